"""What a scale (digits, desk or full) trains and measures: its sets, its models, and its kinds of tasks."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Literal, NamedTuple

from crate_mae.bench.race.recipes import Course, Recipe
from crate_mae.reproduce import paper_numbers as paper
from crate_mae.training.config import FinetuneConfig, PretrainConfig

if TYPE_CHECKING:
    from crate_mae.reproduce.tasks import Measurement, Training

Variant = Literal["crate", "visible", "residual", "vit"]
Size = Literal["small", "base"]
VARIANTS: dict[Variant, str] = {
    "crate": "CRATE-{}",
    "visible": "CRATE-{} visible",
    "residual": "CRATE-{} residual",
    "vit": "ViT-MAE-{}",
}
"""The paper's model, its form whose encoder sees only the visible patches, the residual form, and the baseline."""
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
        """A name for messages and folders; different models have different names."""
        threshold = "" if self.variant == "vit" else f"-lambda{self.lambda_:g}"
        return f"{self.variant}-{self.size}-{self.data}{threshold}-mask{self.mask_ratio * 100:.0f}-seed{self.seed}"


Key = tuple[str, Variant, Size]
"""Data, variant and size."""


class Kinds(NamedTuple):
    """What makes the tasks of a scale."""

    pretrained: "Callable[[Model], Training]"
    finetuned: "Callable[[Model, str, bool], Measurement]"
    """From a model, a set, and whether to start from random weights."""
    probed: "Callable[[Model, str], Measurement]"
    reconstructed: "Callable[[Model], Measurement]"


@dataclass(frozen=True)
class Timed:
    """Trainings that end after a number of seconds of processor time."""

    pretrain_seconds: float
    finetune_seconds: float
    recipes: Mapping[tuple[Variant, Size], Recipe]
    courses: Mapping[str, Course]
    """For each set, how its images are kept."""
    speed: float = 1.0
    """Speed of a core of this machine, relative to the machine on which the durations of measurements were taken."""

    def recipe(self, model: "Model") -> Recipe:
        """The recipe of a model, with its lambda and its mask ratio."""
        base = self.recipes[model.variant, model.size]
        settings = dict(base.settings) | ({} if model.variant == "vit" else {"lambda_": model.lambda_})
        return replace(base, settings=settings, mask_ratio=model.mask_ratio)


@dataclass(frozen=True, kw_only=True)
class Scale:
    """Data, models and training of a whole reproduction."""

    name: str
    protocol: str
    """What differs from the paper, in a sentence for the tables."""
    kinds: Kinds
    variants: tuple[Variant, ...]
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
    pretrain: Mapping[Key, PretrainConfig] = field(default_factory=dict)
    """Runs of a number of steps, .."""
    finetune: Mapping[Key, FinetuneConfig] = field(default_factory=dict)
    timed: Timed | None = None
    """.. or trainings of a number of seconds."""

    @property
    def white_box(self) -> list[Variant]:
        """The variants other than the baseline."""
        return [variant for variant in self.variants if variant != "vit"]

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
