"""The models that a scale (desk or full) trains: each is a complete configuration of an ordinary run."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, Literal

from crate_mae import recipes
from crate_mae.reproduce import paper_numbers as paper
from crate_mae.training.config import FinetuneConfig, PretrainConfig

Variant = Literal["crate", "visible", "vit"]
Size = Literal["small", "base"]
VARIANTS: dict[Variant, str] = {"crate": "CRATE-{}", "visible": "CRATE-{} visible", "vit": "ViT-MAE-{}"}
"""The paper's model, its form whose encoder sees only the visible patches, and the baseline."""
SIZES: tuple[Size, ...] = ("small", "base")
IMAGENET = "imagenet"


def title(variant: Variant, size: Size) -> str:
    """A model's name in the tables, such as CRATE-B."""
    return VARIANTS[variant].format(size[0].upper())


@dataclass(frozen=True)
class Model:
    """A pretrained model that a table or a figure needs."""

    variant: Variant
    size: Size
    data: str
    """What it is pretrained on."""
    seed: int
    lambda_: float = paper.LAMBDA
    """ISTA's threshold. The baseline has none; it always gets the default here, so that one model has one name."""
    mask_ratio: float = paper.MASK_RATIO

    def __post_init__(self) -> None:
        if self.variant == "vit":
            object.__setattr__(self, "lambda_", paper.LAMBDA)

    @property
    def name(self) -> str:
        threshold = "" if self.variant == "vit" else f"-lambda{self.lambda_:g}"
        return f"{self.variant}-{self.size}-{self.data}{threshold}-mask{self.mask_ratio * 100:.0f}-seed{self.seed}"


Key = tuple[str, Variant, Size]
"""Data, variant and size."""


@dataclass(frozen=True, kw_only=True)
class Scale:
    """Data, models and training of a whole reproduction."""

    name: str
    protocol: str
    """What differs from the paper, in a sentence for the tables."""
    sets: tuple[str, ...]
    """Sets for fine-tuning and probing (tables 2 and 3)."""
    probed: tuple[str, ...]
    """Sets of tables 5 and 6."""
    completed: tuple[str, ...]
    """Sets of table 4."""
    shown: str
    """The set of the figures."""
    images: int
    """The most images that figure 5 is measured on."""
    source: str | None
    """The set that every model is pretrained on; None for the set that it is evaluated on."""
    pretrain: Mapping[Key, PretrainConfig]
    finetune: Mapping[Key, FinetuneConfig]

    def source_of(self, data: str) -> str:
        """The set on which models are pretrained that are evaluated on ``data``."""
        return self.source or data

    def pretraining(self, model: Model) -> PretrainConfig:
        """The run that pretrains a model."""
        base = self.pretrain[model.data, model.variant, model.size]
        threshold = {} if model.variant == "vit" else {"lambda_": model.lambda_}
        settings = base.model_settings | threshold
        return replace(base, model_settings=settings, mask_ratio=model.mask_ratio, seed=model.seed)

    def finetuning(self, model: Model, data: str) -> FinetuneConfig:
        """The run that fine-tunes a model on a set, or trains one of its shape from random weights."""
        base, made = self.finetune[data, model.variant, model.size], self.pretraining(model)
        return replace(base, model=made.model, model_settings=made.model_settings, seed=model.seed)


# --- full: the paper's recipes ---------------------------------------------------------------------------------------

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
        sets=tuple(paper.SETS),
        probed=("cifar10",),
        completed=(IMAGENET,),
        shown=IMAGENET,
        images=10_000,
        source=IMAGENET,
        pretrain=pretrain,
        finetune=finetune,
    )


# --- desk: small models on a CPU -------------------------------------------------------------------------------------

_DIGITS: dict[str, Any] = {key: recipes.DIGITS_SHAPE[key] for key in ("image_size", "channels", "mean", "std")}
_SHAPES: dict[str, dict[str, Any]] = {
    "digits": _DIGITS | {"patch_size": (2, 2)},
    "cifar10": {"image_size": (32, 32), "patch_size": (4, 4)},
    "cifar100": {"image_size": (32, 32), "patch_size": (4, 4)},
    "flowers102": {"image_size": (64, 64), "patch_size": (8, 8)},
    "oxford_pets": {"image_size": (64, 64), "patch_size": (8, 8)},
}
_SMALL_SIZES: dict[bool, dict[Size, tuple[int, int, int]]] = {
    True: {"small": (64, 2, 4), "base": (96, 3, 4)},
    False: {"small": (128, 3, 4), "base": (192, 4, 6)},
}
"""Dim, depth and heads: True for digits, False for photographs."""


def _desk_model(data: str, variant: Variant, size: Size) -> dict[str, Any]:
    dim, depth, heads = _SMALL_SIZES[data == "digits"][size]
    shape = _SHAPES[data] | {"dim": dim, "depth": depth, "heads": heads}
    # As in table 1, the baseline's decoder has two layers for three of its encoder.
    decoder = {"decoder_dim": dim, "decoder_depth": max(2 * depth // 3, 1), "decoder_heads": heads}
    return shape | decoder if variant == "vit" else shape


def desk() -> Scale:
    """Small models, each pretrained on the training images of the set that it is evaluated on."""
    digits = replace(recipes.digits(), steps=1200, checkpoint_every=200)
    photos = replace(recipes.cifar10_paper_cpu(), steps=2000, batch=64, checkpoint_every=200)
    tuned_digits = replace(recipes.finetune_digits(), steps=600)
    tuned_photos = replace(recipes.finetune_cpu(), steps=1000, batch=64, checkpoint_every=200)
    pretrain, finetune = {}, {}
    for data in _SHAPES:
        for (variant, size), name in NAMES.items():
            shape = _desk_model(data, variant, size)
            first, second = (digits, tuned_digits) if data == "digits" else (photos, tuned_photos)
            # Evaluated only at the end: the last checkpoint is the result, for every model of a table.
            pretrain[data, variant, size] = replace(
                first.evaluated_every(first.steps), model=name, model_settings=shape, data=data, pictures=0, keep=1
            )
            tuned = second.evaluated_every(second.steps)
            finetune[data, variant, size] = replace(
                tuned, model=name, model_settings=shape, data=data, keep=1, pool="cls"
            )
    words = (
        "Small models on a CPU, pretrained without labels on the training images of the set that they are evaluated "
        f"on. Digits (8 x 8, patches of 2 x 2): {digits.steps} steps of {digits.batch}, then {tuned_digits.steps} of "
        f"{tuned_digits.batch} of fine-tuning; photographs: {photos.steps} and {tuned_photos.steps} of {photos.batch}. "
        "-S and -B are smaller sizes of our own: compare the pattern with the paper's numbers, not the values."
    )
    return Scale(
        name="desk",
        protocol=words,
        sets=("digits", *paper.SETS),
        probed=("digits", "cifar10"),
        completed=("digits", IMAGENET),
        shown="digits",
        images=10_000,
        source=None,
        pretrain=pretrain,
        finetune=finetune,
    )


SCALES = {"desk": desk, "full": full}
