"""Fine-tuning: the paper's on four data sets at 224 px, and two recipes for a CPU."""

from crate_mae.data.named import NAMED
from crate_mae.recipes.small_data import DIGITS_SHAPE, cifar10_cpu
from crate_mae.training.config import FinetuneConfig


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
    Hardware: 2 CPU cores. Time: 13 s. Result: 96.7 % of the test digits; from random weights 92.0 % (docs/log.md).
    """
    return FinetuneConfig(
        recipe="finetune_digits",
        model="crate_mae_tiny_residual",
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
    """Fine-tuning of a model that the CPU recipes pretrained, at its own size; on CIFAR-10 by default.

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
        precision="auto",
        randaugment=(2, 14),
        layer_decay=0.8,
        label_smoothing=0.1,
        evaluators={"accuracy": 500},
        checkpoint_every=500,
    )
