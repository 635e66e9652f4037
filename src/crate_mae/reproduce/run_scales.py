"""The scales whose models are ordinary runs of a number of steps: digits, and the paper's own."""

from dataclasses import replace
from typing import Any

from crate_mae import recipes
from crate_mae.reproduce import paper_numbers as paper
from crate_mae.reproduce.run_tasks import RUN_FOLDERS
from crate_mae.reproduce.scales import IMAGENET, Scale, Size, Variant

NAMES: dict[tuple[Variant, Size], str] = {
    ("crate", "small"): "crate_mae_small",
    ("crate", "base"): "crate_mae_base",
    ("visible", "small"): "crate_mae_small_visible",
    ("visible", "base"): "crate_mae_base_visible",
    ("vit", "small"): "vit_mae_small",
    ("vit", "base"): "vit_mae_base",
}
"""In the zoo."""


def full() -> Scale:
    """The paper's recipe: ImageNet-1K at 224 px, then the four sets."""
    pretrain = {
        (IMAGENET, *key): replace(recipes.PRETRAIN[f"{name.removesuffix('_visible')}_imagenet"](), model=name)
        for key, name in NAMES.items()
    }
    finetune = {(data, *key): recipes.FINETUNE[f"finetune_{data}"]() for data in paper.SETS for key in NAMES}
    words = (
        "The paper's recipe: pretrained on ImageNet-1K at 224 px, AdamW 3e-5, weight decay 0.1, batch 4096; fine-tuned "
        "with 5e-5, weight decay 0.01, batch 256. Ours, where the paper is silent: 800 epochs of pretraining, 100 of "
        "fine-tuning, warm-up, betas."
    )
    return Scale(
        name="full",
        protocol=words,
        kinds=RUN_FOLDERS,
        variants=("crate", "visible", "vit"),
        sets=tuple(paper.SETS),
        probed=("cifar10",),
        completed=(IMAGENET,),
        shown=IMAGENET,
        images=10_000,
        source=IMAGENET,
        pretrain=pretrain,
        finetune=finetune,
    )


_SHAPE: dict[str, Any] = {key: recipes.DIGITS_SHAPE[key] for key in ("image_size", "channels", "mean", "std")}
_SIZES: dict[Size, tuple[int, int, int]] = {"small": (64, 2, 4), "base": (96, 3, 4)}
"""Dim, depth and heads."""


def _digits_model(variant: Variant, size: Size) -> dict[str, Any]:
    dim, depth, heads = _SIZES[size]
    shape = _SHAPE | {"patch_size": (2, 2), "dim": dim, "depth": depth, "heads": heads}
    # As in table 1, the baseline's decoder has two layers for three of its encoder.
    decoder = {"decoder_dim": dim, "decoder_depth": max(2 * depth // 3, 1), "decoder_heads": heads}
    return shape | decoder if variant == "vit" else shape


def digits() -> Scale:
    """Very small models on scikit-learn's digits, which need no download."""
    first = replace(recipes.digits_paper(), steps=1200, checkpoint_every=200)
    second = replace(recipes.finetune_digits(), steps=600)
    pretrain, finetune = {}, {}
    for (variant, size), name in NAMES.items():
        shape = _digits_model(variant, size)
        # Evaluated only at the end: the last checkpoint is the result, for every model of a table.
        pretrain["digits", variant, size] = replace(
            first.evaluated_every(first.steps), model=name, model_settings=shape, pictures=0, keep=1
        )
        finetune["digits", variant, size] = replace(
            second.evaluated_every(second.steps), model=name, model_settings=shape, keep=1, pool="cls"
        )
    words = (
        "Small models on a CPU, pretrained without labels on the training images of digits (8 x 8, patches of 2 x 2): "
        f"{first.steps} steps of {first.batch}, then {second.steps} of {second.batch} of fine-tuning. -S and -B are "
        "smaller sizes of our own: compare the pattern with the paper's numbers, not the values."
    )
    return Scale(
        name="digits",
        protocol=words,
        kinds=RUN_FOLDERS,
        variants=("crate", "visible", "vit"),
        sets=("digits",),
        probed=("digits",),
        completed=("digits", IMAGENET),
        shown="digits",
        images=10_000,
        source=None,
        pretrain=pretrain,
        finetune=finetune,
    )
