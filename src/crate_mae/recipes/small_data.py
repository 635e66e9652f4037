"""Pretraining on small data sets with one or two CPU cores."""

from dataclasses import replace
from typing import Any

from crate_mae.data.named import NAMED
from crate_mae.training.config import PretrainConfig

DIGITS_SHAPE: dict[str, Any] = {
    "image_size": (8, 8),
    "patch_size": (2, 4),
    "channels": 1,
    "dim": 192,
    "depth": 2,
    "heads": 6,
    "mean": NAMED["digits"].mean,
    "std": NAMED["digits"].std,
}


def digits() -> PretrainConfig:
    """A small CRATE-MAE of the residual form on scikit-learn's 8 x 8 digits, which need no download.

    Command: crate-mae pretrain --recipe digits --out runs/digits
    Hardware: 2 CPU cores. Time: 35 s. Result: error 0.306 on the test digits; linear probe of the patches side by side
    98.2 %. It is the demo's model.
    """
    return replace(
        digits_paper(), recipe="digits", model="crate_mae_tiny_residual", optimiser="muon", learning_rate=4e-3
    )


def digits_paper() -> PretrainConfig:
    """The same in the paper's form, trained by AdamW.

    Command: crate-mae pretrain --recipe digits_paper --out runs/digits-paper
    Hardware: 2 CPU cores. Time: 82 s. Result: validation error 0.325; linear probe of the mean of patches 97.3 %.
    """
    return PretrainConfig(
        recipe="digits_paper",
        model="crate_mae_tiny",
        model_settings=DIGITS_SHAPE,
        data="digits",
        steps=1500,
        batch=64,
        learning_rate=1e-3,
        weight_decay=0.05,
        warmup=0.1,
        clip=1.0,
        crop_area=(1.0, 1.0),
        flip=False,
        randaugment=None,
        evaluators={"reconstruction": 500, "representation": 500},
        checkpoint_every=500,
    )


def _desk(recipe: str, data: str, *, image_size: int, patch_size: int, workers: int = 0) -> PretrainConfig:
    """What a search found best for a few minutes of one core (docs/log.md).

    The residual form, a wide encoder, a narrow and shallow decoder, and a larger step of ISTA with the same threshold
    eta lambda; and Muon, which lowers the loss more in each step. The model is the race's.
    """
    shape = {"dim": 384, "depth": 4, "heads": 6, "decoder_dim": 128, "decoder_depth": 2, "decoder_heads": 4}
    sizes = {"image_size": (image_size, image_size), "patch_size": (patch_size, patch_size)}
    return PretrainConfig(
        recipe=recipe,
        model="crate_mae_tiny_residual",
        model_settings=sizes | shape | {"eta": 0.5, "lambda_": 0.1},
        data=data,
        steps=6000,
        batch=128,
        optimiser="muon",
        learning_rate=4e-3,
        weight_decay=0.05,
        warmup=0.1,
        clip=1.0,
        crop_area=(0.4, 1.0),
        randaugment=None,
        precision="auto",
        evaluators={"reconstruction": 1000, "representation": 1000},
        checkpoint_every=500,
        workers=workers,
    )


def cifar10_cpu() -> PretrainConfig:
    """A CRATE-MAE of the residual form for 32 x 32 images on CIFAR-10: the desk recipe.

    Command: crate-mae pretrain --recipe cifar10_cpu --data-root DIR --out runs/cifar10
    Hardware: one CPU core. Time: estimated at 20 minutes with AVX512-BF16, an hour without. Result: not measured by
    this command; docs/performance.md has the same model and optimiser after 20 minutes of one core.
    """
    return _desk("cifar10_cpu", "cifar10", image_size=32, patch_size=4)


def imagenette_cpu() -> PretrainConfig:
    """The desk recipe for photographs at 64 x 64, on Imagenette, ten classes of ImageNet, or on a folder of your own.

    Command: crate-mae pretrain --recipe imagenette_cpu --data-root DIR --out runs/imagenette
    Hardware: one CPU core. Time: estimated at 20 minutes with AVX512-BF16, an hour without. Result: not measured by
    this command; docs/performance.md has the same model and optimiser after 20 minutes of one core.
    """
    return _desk("imagenette_cpu", "imagenette", image_size=64, patch_size=8, workers=2)


def cifar10_paper_cpu() -> PretrainConfig:
    """A CRATE-MAE of the paper's form for 32 x 32 images on CIFAR-10.

    Command: crate-mae pretrain --recipe cifar10_paper_cpu --data-root DIR --out runs/cifar10-paper
    Hardware: 2 CPU cores. Time: about an hour. Result: not measured to its end; 2,500 of its steps took 52 minutes on
    one core and gave a validation error of 0.466 and a linear probe of 50.0 % at the first layer (docs/training.md).
    """
    return PretrainConfig(
        recipe="cifar10_paper_cpu",
        model="crate_mae_tiny",
        model_settings={"image_size": (32, 32), "patch_size": (4, 4), "dim": 192, "depth": 4, "heads": 6},
        data="cifar10",
        steps=4500,
        batch=128,
        learning_rate=1e-3,
        weight_decay=0.05,
        clip=1.0,
        crop_area=(0.4, 1.0),
        randaugment=None,
        evaluators={"reconstruction": 500, "representation": 500},
        checkpoint_every=250,
        evaluation_images=2000,
    )


def tiny_imagenet_cpu() -> PretrainConfig:
    """A CRATE-MAE of the residual form for photographs, on Tiny-ImageNet's 100,000 images of 64 x 64.

    Command: crate-mae pretrain --recipe tiny_imagenet_cpu --data-root DIR --out runs/photographs
    Hardware: one CPU core with AVX512-BF16. Time: 87 minutes. Result: validation error 0.560, where the mean patch
    gives 1.446. crate-photos, which comes with the package, is this run resumed to 36,500 steps: 3.65 hours, 0.548.
    """
    desk = _desk("tiny_imagenet_cpu", "tiny_imagenet", image_size=64, patch_size=8)
    return replace(
        desk,
        model_settings=desk.model_settings | {"depth": 6, "decoder_dim": 192, "decoder_heads": 6},
        steps=14_500,
        detail=0.3,
        evaluators={"reconstruction": 1000, "representation": 2000},
        checkpoint_every=250,
        evaluation_images=2000,
    )
