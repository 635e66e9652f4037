"""The paper's pretraining on ImageNet-1K, for CRATE-MAE and for the baseline ViT-MAE."""

from crate_mae.data.named import NAMED
from crate_mae.training.config import PretrainConfig


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
