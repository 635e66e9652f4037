"""Complete run configurations by name. A recipe is a function; its docstring has the command, hardware, time, result.

Values that the paper states are marked (paper), those that it leaves open (ours). A recipe that was never run to its
end says so: not measured.
"""

from collections.abc import Callable
from typing import Any, TypeVar

from crate_mae.data.named import NAMED
from crate_mae.errors import UserError, did_you_mean
from crate_mae.training.config import FinetuneConfig, PretrainConfig, RunConfig


def _imagenet(recipe: str, model: str) -> PretrainConfig:
    """The paper's appendix B.1; values that it leaves open are those of He et al.'s code where it has them."""
    epochs = 800  # ours
    batch = 4096  # paper
    images = NAMED["imagenet"].images
    return PretrainConfig(
        recipe=recipe,
        model=model,
        data="imagenet",
        steps=epochs * images // batch,
        batch=batch,
        learning_rate=3e-5,  # paper
        weight_decay=0.1,  # paper
        betas=(0.9, 0.95),  # ours
        warmup=0.05,  # ours
        mask_ratio=0.75,  # paper
        crop_area=(0.2, 1.0),  # ours
        precision="bfloat16",  # ours
        workers=8,
        log_every=50,
        evaluators={"reconstruction": 5 * images // batch, "representation": 5 * images // batch},
        checkpoint_every=images // batch,
        evaluation_images=10_000,
    )


def crate_mae_small_imagenet() -> PretrainConfig:
    """CRATE-MAE-Small on ImageNet-1K as in the paper: AdamW, 3e-5, weight decay 0.1, batch 4096, 75 % masked.

    The paper's lambda = 0.5 and eta = 0.1 are the model's defaults. Ours: 800 epochs, 40 of warm-up, betas, the crop's
    area, bfloat16.

    Command: torchrun --nproc-per-node 8 -m crate_mae pretrain --recipe crate_mae_small_imagenet --data-root D --out RUN
    Hardware: 8 GPUs of 40 GB. Time: crate-mae plan estimates it. Result: not measured.
    """
    return _imagenet("crate_mae_small_imagenet", "crate_mae_small")


def crate_mae_base_imagenet() -> PretrainConfig:
    """CRATE-MAE-Base on ImageNet-1K as in the paper, otherwise as ``crate_mae_small_imagenet``.

    Command: torchrun --nproc-per-node 8 -m crate_mae pretrain --recipe crate_mae_base_imagenet --data-root D --out RUN
    Hardware: 8 GPUs of 80 GB. Time: crate-mae plan estimates it. Result: not measured.
    """
    return _imagenet("crate_mae_base_imagenet", "crate_mae_base")


def vit_mae_small_imagenet() -> PretrainConfig:
    """The paper's baseline ViT-MAE-Small on the same protocol (the paper says nothing more about it).

    Command: torchrun --nproc-per-node 8 -m crate_mae pretrain --recipe vit_mae_small_imagenet --data-root D --out RUN
    Hardware: 8 GPUs of 40 GB. Time: crate-mae plan estimates it. Result: not measured.
    """
    return _imagenet("vit_mae_small_imagenet", "vit_mae_small")


def vit_mae_base_imagenet() -> PretrainConfig:
    """The paper's baseline ViT-MAE-Base on the same protocol.

    Command: torchrun --nproc-per-node 8 -m crate_mae pretrain --recipe vit_mae_base_imagenet --data-root D --out RUN
    Hardware: 8 GPUs of 80 GB. Time: crate-mae plan estimates it. Result: not measured.
    """
    return _imagenet("vit_mae_base_imagenet", "vit_mae_base")


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
    """A small CRATE-MAE on scikit-learn's 8 x 8 digits, which need no download.

    Command: crate-mae pretrain --recipe digits --out runs/digits
    Hardware: 2 CPU cores. Time: 82 s. Result: validation error 0.325; linear probe of the mean of patches 97.3 %.
    """
    return PretrainConfig(
        recipe="digits",
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
    eta lambda; small batches, since the number of steps counts; Muon, which goes further with each of them.
    """
    shape = {"dim": 256, "depth": 4, "heads": 8, "decoder_dim": 128, "decoder_depth": 2, "decoder_heads": 4}
    sizes = {"image_size": (image_size, image_size), "patch_size": (patch_size, patch_size)}
    return PretrainConfig(
        recipe=recipe,
        model="crate_mae_tiny_residual",
        model_settings=sizes | shape | {"eta": 0.5, "lambda_": 0.1},
        data=data,
        steps=10_000,
        batch=64,
        optimiser="muon",
        learning_rate=4e-3,
        weight_decay=0.05,
        warmup=0.1,
        clip=1.0,
        crop_area=(0.4, 1.0),
        randaugment=None,
        evaluators={"reconstruction": 1000, "representation": 1000},
        checkpoint_every=500,
        workers=workers,
    )


def cifar10_cpu() -> PretrainConfig:
    """A CRATE-MAE of the residual form for 32 x 32 images on CIFAR-10: the desk recipe.

    Command: crate-mae pretrain --recipe cifar10_cpu --data-root DIR --out runs/cifar10
    Hardware: one CPU core. Time: about half an hour. Result: not measured by this command; docs/performance.md has the
    same model, trained by AdamW, after 20 minutes of one core.
    """
    return _desk("cifar10_cpu", "cifar10", image_size=32, patch_size=4)


def imagenette_cpu() -> PretrainConfig:
    """The desk recipe for photographs at 64 x 64, on Imagenette, ten classes of ImageNet, or on a folder of your own.

    Command: crate-mae pretrain --recipe imagenette_cpu --data-root DIR --out runs/imagenette
    Hardware: 2 CPU cores. Time: about half an hour. Result: not measured.
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
    Hardware: one CPU core with AVX512-BF16, with --set precision=bfloat16. Time: 58 minutes. Result: validation error
    0.566, where the mean patch gives 1.446. It is crate-photos, which comes with the package.
    """
    return PretrainConfig(
        recipe="tiny_imagenet_cpu",
        model="crate_mae_tiny_residual",
        model_settings={
            "image_size": (64, 64),
            "patch_size": (8, 8),
            "dim": 384,
            "depth": 6,
            "heads": 12,
            "decoder_dim": 192,
            "decoder_depth": 2,
            "decoder_heads": 6,
        },
        data="tiny_imagenet",
        steps=9000,
        batch=128,
        optimiser="muon",
        learning_rate=4e-3,
        weight_decay=0.05,
        warmup=0.1,
        clip=1.0,
        crop_area=(0.4, 1.0),
        randaugment=None,
        evaluators={"reconstruction": 1000, "representation": 2000},
        checkpoint_every=250,
        evaluation_images=2000,
    )


def _paper_finetune(recipe: str, data: str) -> FinetuneConfig:
    """The paper's fine-tuning: AdamW, 5e-5, weight decay 0.01, batch 256, 224 px, class token; the epochs are ours."""
    epochs, batch = 100, 256
    steps = epochs * NAMED[data].images // batch
    return FinetuneConfig(
        recipe=recipe,
        model="crate_mae_base",
        data=data,
        steps=steps,
        batch=batch,
        learning_rate=5e-5,  # paper
        weight_decay=0.01,  # paper
        betas=(0.9, 0.999),  # ours
        warmup=0.05,  # ours
        image_size=(224, 224),  # paper
        pool="cls",  # paper
        precision="bfloat16",  # ours
        workers=8,
        evaluators={"accuracy": max(steps // 20, 1)},
        checkpoint_every=max(steps // 20, 1),
    )


def finetune_cifar10() -> FinetuneConfig:
    """The paper's fine-tuning on CIFAR-10 at 224 px (Tables 2 and 3); 100 epochs, warm-up and betas are ours.

    Command: crate-mae finetune --recipe finetune_cifar10 --checkpoint RUN --data-root DIR --out runs/tuned
    Hardware: one GPU. Time: crate-mae plan estimates it. Result: not measured.
    """
    return _paper_finetune("finetune_cifar10", "cifar10")


def finetune_cifar100() -> FinetuneConfig:
    """The paper's fine-tuning on CIFAR-100 at 224 px (Table 2); 100 epochs, warm-up and betas are ours.

    Command: crate-mae finetune --recipe finetune_cifar100 --checkpoint RUN --data-root DIR --out runs/tuned
    Hardware: one GPU. Time: crate-mae plan estimates it. Result: not measured.
    """
    return _paper_finetune("finetune_cifar100", "cifar100")


def finetune_flowers102() -> FinetuneConfig:
    """The paper's fine-tuning on Oxford Flowers-102 at 224 px (Table 2); 100 epochs, warm-up and betas are ours.

    Command: crate-mae finetune --recipe finetune_flowers102 --checkpoint RUN --data-root DIR --out runs/tuned
    Hardware: one GPU. Time: crate-mae plan estimates it. Result: not measured.
    """
    return _paper_finetune("finetune_flowers102", "flowers102")


def finetune_oxford_pets() -> FinetuneConfig:
    """The paper's fine-tuning on Oxford-IIIT Pets at 224 px (Table 2); 100 epochs, warm-up and betas are ours.

    Command: crate-mae finetune --recipe finetune_oxford_pets --checkpoint RUN --data-root DIR --out runs/tuned
    Hardware: one GPU. Time: crate-mae plan estimates it. Result: not measured.
    """
    return _paper_finetune("finetune_oxford_pets", "oxford_pets")


def finetune_digits() -> FinetuneConfig:
    """Fine-tuning of the ``digits`` recipe's model.

    Command: crate-mae finetune --recipe finetune_digits --checkpoint runs/digits --out runs/digits-tuned
    Hardware: 2 CPU cores. Time: 21 s. Result: 92.0 % of the test digits; from random weights 96.4 % (docs/log.md).
    """
    return FinetuneConfig(
        recipe="finetune_digits",
        model="crate_mae_tiny",
        model_settings=DIGITS_SHAPE,
        data="digits",
        steps=400,
        batch=64,
        learning_rate=5e-4,
        weight_decay=0.05,
        betas=(0.9, 0.999),
        warmup=0.1,
        clip=1.0,
        crop_area=(0.8, 1.0),
        flip=False,
        randaugment=None,
        evaluators={"accuracy": 100},
        checkpoint_every=100,
    )


def finetune_cpu() -> FinetuneConfig:
    """Fine-tuning of a model that the CPU recipes pretrained, at its own size; CIFAR-10 unless --data says otherwise.

    Command: crate-mae finetune --recipe finetune_cpu --checkpoint runs/cifar10 --data-root DIR --out runs/cifar10-tuned
    Hardware: 2 CPU cores. Time and result: not measured.
    """
    return FinetuneConfig(
        recipe="finetune_cpu",
        model="crate_mae_tiny_residual",
        model_settings=cifar10_cpu().model_settings,
        data="cifar10",
        steps=3000,
        batch=128,
        learning_rate=5e-4,
        weight_decay=0.05,
        betas=(0.9, 0.999),
        clip=1.0,
        crop_area=(0.4, 1.0),
        randaugment=(2, 14),
        layer_decay=0.8,
        label_smoothing=0.1,
        evaluators={"accuracy": 500},
        checkpoint_every=500,
    )


PRETRAIN: dict[str, Callable[[], PretrainConfig]] = {
    recipe.__name__: recipe
    for recipe in (
        digits,
        cifar10_cpu,
        cifar10_paper_cpu,
        imagenette_cpu,
        tiny_imagenet_cpu,
        crate_mae_small_imagenet,
        crate_mae_base_imagenet,
        vit_mae_small_imagenet,
        vit_mae_base_imagenet,
    )
}
FINETUNE: dict[str, Callable[[], FinetuneConfig]] = {
    recipe.__name__: recipe
    for recipe in (
        finetune_digits,
        finetune_cpu,
        finetune_cifar10,
        finetune_cifar100,
        finetune_flowers102,
        finetune_oxford_pets,
    )
}
Config = TypeVar("Config", bound=RunConfig)


def find(name: str, recipes: dict[str, Callable[[], Config]]) -> Config:
    """The recipe of that name; for an unknown name, the error suggests one."""
    if name in recipes:
        return recipes[name]()
    raise UserError(f"there is no recipe {name}; {did_you_mean(name, recipes)}")
