"""Everything that decides a run, in one flat record; ``--set key=value`` replaces a field."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Annotated, Any, ClassVar, Literal, Self, TypeVar, get_args

from crate_mae.errors import UserError, nearest
from crate_mae.models.architectures import model_config
from crate_mae.models.config import LARGEST, ModelConfig, Pool, Preset
from crate_mae.settings import ONE_FOR_BOTH, FieldsOf, Range, Setting, Settings, Since, Size

Precision = Literal["auto", "float32", "bfloat16", "float64"]
Optimiser = Literal["adamw", "muon"]
Count = Annotated[int, Range(least=1)]
CountOr0 = Annotated[int, Range(least=0)]
Share = Annotated[float, Range(least=0, most=1)]

# Marks of a field. A change of a field with neither of the first two makes it a different run.
FREE = "a resumed run may change it"
HOW_IT_RUNS = "it does not change what the run produces, so that a resumed run may change it too"
UNLISTED = "the model card does not list it: it is elsewhere on the card, a private path, or says nothing about a model"
NOT_SET = "--set can't change it"


def chosen_precision(precision: Precision, fast_bfloat16: bool) -> Precision:
    """What ``auto`` means on a device; any other precision as it is."""
    if precision != "auto":
        return precision
    return "bfloat16" if fast_bfloat16 else "float32"


@dataclass(frozen=True, kw_only=True)
class RunConfig(Settings):
    """What pretraining and fine-tuning share."""

    subject: ClassVar[str] = "a run"
    task: ClassVar[str]
    best_by: ClassVar[str]
    """The metric that chooses the best checkpoint."""
    lower_is_better: ClassVar[bool]
    best_from: ClassVar[str]
    """The evaluator that gives that metric."""

    recipe: Annotated[str, UNLISTED, NOT_SET]
    """The name of the recipe that this started from."""
    model: Annotated[str, UNLISTED]
    """A name of the zoo."""
    preset: Annotated[Preset | None, UNLISTED] = None
    """crate: ``paper`` or ``official``; None for the one that belongs to the model's name."""
    model_settings: Annotated[dict[str, Any], FieldsOf(ModelConfig), UNLISTED, NOT_SET] = field(default_factory=dict)
    """Fields of ``ModelConfig`` that replace the zoo's; ``--set model.NAME=VALUE`` sets one."""
    checkpoint: Annotated[str | None, Since(3, before=None), FREE, UNLISTED] = None
    """The model to start from, in place of ``model``, ``preset`` and ``model_settings`` with random weights."""
    data: Annotated[str, FREE, UNLISTED]
    """The images: a name, a folder or shards."""
    data_root: Annotated[str | None, HOW_IT_RUNS, UNLISTED] = None
    """The folder of the named sets."""
    seed: Annotated[int, Range(least=0)] = 0
    """Decides the weights, the order, the augmentation, the masks and everything else that is random."""

    steps: Annotated[Count, FREE]
    """Steps of the optimiser. Another number changes the schedule of the steps that are left."""
    batch: Count
    """Images in a step, over all processes and micro-batches together."""
    accumulation: Annotated[Count, HOW_IT_RUNS] = 1
    """Micro-batches in a step of each process; more of them need less memory."""
    optimiser: Annotated[Optimiser, Since(3, before="adamw")] = "adamw"
    """``adamw``, or ``muon``, which orthogonalises the updates of the layers' matrices: faster in short trainings."""
    learning_rate: Annotated[float, Range(least=0)]
    """The peak, after the warm-up."""
    weight_decay: Annotated[float, Range(least=0)]
    """On matrices only, decoupled from the gradient."""
    betas: Annotated[tuple[float, float], Range(least=0, below=1)] = (0.9, 0.95)
    """AdamW's; with ``muon``, of the parameters that are not matrices of a layer."""
    warmup: Share = 0.05
    """The fraction of the steps in which the learning rate rises from zero; a half cosine back to zero follows."""
    clip: Annotated[float | None, Range(above=0)] = None
    """The largest norm of the gradient; a longer gradient is scaled down to it."""

    crop_area: tuple[float, float] = (0.08, 1.0)
    """The smallest and the largest fraction of an image's area that a random crop takes."""
    flip: bool = True
    """Mirror every other image."""
    randaugment: tuple[int, int] | None = (2, 14)
    """RandAugment's number of operations and strength; none for no RandAugment."""
    workers: Annotated[CountOr0, HOW_IT_RUNS, UNLISTED] = 0
    """Worker processes that load images, for each process that trains; 0 loads them in that process itself."""
    max_bad: Annotated[Share, HOW_IT_RUNS] = 0.01
    """The fraction of images that may be unreadable; above it the run stops."""

    precision: Precision = "float32"
    """``bfloat16`` is autocast: weights stay in float32. ``float64`` is for checks. ``auto`` is bfloat16 on a device
    that multiplies it fast, float32 on others; a run records which."""
    compile: Annotated[bool, HOW_IT_RUNS] = False
    """Compile the model with torch.compile: about a minute at the start, less time for each step on a GPU."""
    gradient_checkpointing: Annotated[bool, HOW_IT_RUNS] = False
    """Keep only the input of each layer for the backward pass and compute the rest again: less memory, more time."""

    evaluators: Annotated[dict[Any, int], Range(least=1), FREE, NOT_SET]
    """Each evaluator and its interval in steps; a task says which it has."""
    log_every: Annotated[Count, HOW_IT_RUNS, UNLISTED] = 10
    """Steps from one line of metrics.jsonl to the next."""
    checkpoint_every: Annotated[Count, HOW_IT_RUNS] = 1000
    """Steps from one checkpoint to the next; there is also one at the end."""
    keep: Annotated[Count, HOW_IT_RUNS, UNLISTED] = 2
    """How many of the last checkpoints are kept, besides the best one."""
    evaluation_images: Annotated[Count, FREE] = 2000
    """The most images of a split that an evaluation during training uses."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.batch % self.accumulation:
            raise UserError(f"accumulation={self.accumulation} does not divide batch={self.batch}.")
        if self.best_from not in self.evaluators:
            raise UserError(
                f"evaluators lacks {self.best_from}, whose {self.best_by} chooses the best checkpoint; add it."
            )

    def model_config(self) -> ModelConfig:
        """The model's configuration, from its name, preset and settings."""
        return model_config(self.model, self.preset, **self.model_settings)

    def concrete(self, fast_bfloat16: bool) -> Self:
        """With a precision in place of ``auto``, for a device that multiplies bfloat16 fast or does not."""
        return replace(self, precision=chosen_precision(self.precision, fast_bfloat16))

    def evaluated_every(self, steps: int) -> Self:
        """The configuration with this interval for all evaluators."""
        return replace(self, evaluators=dict.fromkeys(self.evaluators, steps))


@dataclass(frozen=True, kw_only=True)
class PretrainConfig(RunConfig):
    """A run of masked autoencoding."""

    task: ClassVar[str] = "pretrain"
    best_by: ClassVar[str] = "val_loss"
    lower_is_better: ClassVar[bool] = True
    best_from: ClassVar[str] = "reconstruction"

    evaluators: Annotated[dict[Literal["reconstruction", "representation"], int], Range(least=1), FREE, NOT_SET]
    """Each evaluator (training/evaluators.py) and its interval in steps; all run at the start and the end too.

    ``--set evaluate_every=N`` sets all intervals, ``--set evaluators.NAME=N`` one. ``representation`` needs labels, and
    is left out if the images have none.
    """
    mask_ratio: Share = 0.75
    """The fraction of the patches that is masked."""
    detail: Annotated[float, Since(4, before=0.0), Range(least=0)] = 0.0
    """The weight of the error of each patch's detail in the loss: features gain, the error of the completion rises."""
    pictures: Annotated[CountOr0, HOW_IT_RUNS, UNLISTED] = 8
    """How many validation images are drawn masked, completed and original at each ``reconstruction``; 0 for none."""

    @classmethod
    def upgrade(cls, values: dict[str, Any], version: int) -> dict[str, Any]:
        return _with_intervals(values, version, "reconstruction", "representation")


@dataclass(frozen=True, kw_only=True)
class FinetuneConfig(RunConfig):
    """A run of supervised training of the whole model."""

    task: ClassVar[str] = "finetune"
    best_by: ClassVar[str] = "val_accuracy"
    lower_is_better: ClassVar[bool] = False
    best_from: ClassVar[str] = "accuracy"

    evaluators: Annotated[dict[Literal["accuracy"], int], Range(least=1), FREE, NOT_SET]
    """Each evaluator and its interval in steps, as in ``PretrainConfig``."""
    random: Annotated[bool, UNLISTED] = False
    """Start from random weights instead: of the checkpoint's configuration where there is one."""
    pool: Annotated[Pool, Since(2, before="cls")] = "mean"
    """What the head reads: the mean over the patches, or the class token as in the paper."""
    image_size: Annotated[Size | None, ONE_FOR_BOTH, Range(least=1, most=LARGEST)] = None
    """Height and width to train at; the checkpoint's positions are interpolated. None for the checkpoint's own."""
    layer_decay: Share = 1.0
    """Each layer's learning rate is this fraction of the next layer's; 1 for the same rate everywhere."""
    drop_path: Annotated[float, Range(least=0, most=0.9)] = 0.0
    """The last layer is skipped in this fraction of the samples, earlier ones in proportion to their depth."""
    mixup: Annotated[float, Range(least=0)] = 0.0
    """Mix pairs of images and labels with a weight from Beta(mixup, mixup); 0 for no mixing."""
    label_smoothing: Annotated[float, Range(least=0, most=0.9)] = 0.0
    """This fraction of each label is spread over all classes."""

    @classmethod
    def upgrade(cls, values: dict[str, Any], version: int) -> dict[str, Any]:
        return _with_intervals(values, version, "accuracy")


def _with_intervals(values: dict[str, Any], version: int, *evaluators: str) -> dict[str, Any]:
    """Up to format version 1 a task had these evaluators, all with the interval ``evaluate_every``."""
    if version == 1 and "evaluate_every" in values:
        values["evaluators"] = dict.fromkeys(evaluators, values.pop("evaluate_every"))
    return values


TASKS: dict[str, type[RunConfig]] = {kind.task: kind for kind in (PretrainConfig, FinetuneConfig)}
Config = TypeVar("Config", bound=RunConfig)


def override(config: Config, settings: Iterable[str], scale_intervals: bool = False) -> Config:
    """The configuration with ``key=value`` words applied, each value read as its field's type.

    With ``scale_intervals``, as for a recipe, another number of ``steps`` scales the intervals that no word sets.

    A key is a field of the configuration, ``model.`` and a field of ``ModelConfig``, ``evaluators.`` and an evaluator,
    or ``evaluate_every`` for all evaluators. Pairs are written ``0.2,1``, and ``none`` stands for None.
    """
    known = {name: setting for name, setting in config.all().items() if NOT_SET not in setting.marks}
    known |= {f"model.{name}": replace(s, name=f"model.{name}") for name, s in ModelConfig.all().items()}
    names = get_args(get_args(config.all()["evaluators"].kind)[0])
    known |= {key: Setting(key, int, (Range(least=1),)) for key in (EVERY, *(f"evaluators.{name}" for name in names))}
    changes: dict[str, Any] = {}
    groups = {"model": dict(config.model_settings), "evaluators": dict(config.evaluators)}
    for words in (given := list(settings)):
        key, equals, text = words.partition("=")
        if not equals:
            raise UserError(f"--set takes key=value, not {words!r}.")
        if key not in known:
            raise UserError(f"there is no setting {key}; {_hint(key, known)}")
        value = known[key].read(text)
        group, dot, name = key.partition(".")
        if dot:
            groups[group][name] = value
        elif key == EVERY:
            groups["evaluators"] = dict.fromkeys(groups["evaluators"], value)
        else:
            changes[key] = value
    made = replace(config, **changes, model_settings=groups["model"], evaluators=groups["evaluators"])
    return _scaled(made, config, {words.partition("=")[0] for words in given}) if scale_intervals else made


def _scaled(config: Config, recipe: Config, given: set[str]) -> Config:
    """Scale the intervals that were not set in proportion to the steps, so that a short run has as many evaluations.

    A long run keeps the recipe's intervals for the log and the checkpoints.
    """
    factor = config.steps / recipe.steps
    evaluators = {
        name: every if {EVERY, f"evaluators.{name}"} & given else max(1, round(factor * every))
        for name, every in config.evaluators.items()
    }
    often = {
        name: max(1, round(min(factor, 1) * getattr(recipe, name)))
        for name in ("log_every", "checkpoint_every")
        if name not in given
    }
    return replace(config, evaluators=evaluators, **often)


EVERY = "evaluate_every"


def _hint(key: str, known: Mapping[str, object]) -> str:
    """The key that was probably meant: the same name after another or a missing prefix, or a similar spelling."""
    meant = {name.rpartition(".")[2]: name for name in known} | {name: name for name in known}
    last = key.rpartition(".")[2]
    if near := last if last in meant else nearest(key, meant):
        return f"did you mean {meant[near]}?"
    return f"there are {', '.join(sorted(name for name in known if '.' not in name))}, and model.NAME."
