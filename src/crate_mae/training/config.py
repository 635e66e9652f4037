"""Everything that decides a run, in one flat record; ``--set key=value`` replaces a field."""

import json
import math
from collections.abc import Iterable
from dataclasses import asdict, dataclass, field, fields, replace
from difflib import get_close_matches
from types import NoneType, UnionType
from typing import Any, ClassVar, Literal, TypeVar, Union, get_args, get_origin, get_type_hints

from crate_mae.errors import UserError
from crate_mae.models.config import ModelConfig, Preset
from crate_mae.models.zoo import model_config
from crate_mae.tokens import Size

Precision = Literal["float32", "bfloat16", "float64"]


@dataclass(frozen=True, kw_only=True)
class RunConfig:
    """What pretraining and fine-tuning share."""

    task: ClassVar[str]

    recipe: str
    """The name of the recipe that this started from."""
    model: str
    """A name of the zoo."""
    preset: Preset | None = None
    """crate: ``paper`` (the default) or ``official``."""
    model_settings: dict[str, Any] = field(default_factory=dict)
    """Fields of ``ModelConfig`` that replace the zoo's; ``--set model.NAME=VALUE`` sets one."""
    data: str
    """The images: a name, a folder or shards."""
    data_root: str | None = None
    """Where named sets are."""
    seed: int = 0
    """Decides the weights, the order, the augmentation, the masks and all else that is random."""

    steps: int
    """Steps of the optimiser."""
    batch: int
    """Images in a step, over all processes and parts together."""
    accumulation: int = 1
    """Parts in which each process works through its share of a batch, one after the other, to need less memory."""
    learning_rate: float
    """The peak, after the warm-up."""
    weight_decay: float
    """AdamW's, on matrices alone."""
    betas: tuple[float, float] = (0.9, 0.95)
    """AdamW's."""
    warmup: float = 0.05
    """The share of the steps in which the learning rate rises from zero; a half cosine back to zero follows."""
    clip: float | None = None
    """The largest norm of the gradient; what is longer is shortened to it."""

    crop_area: tuple[float, float] = (0.08, 1.0)
    """The least and the largest share of a picture that a random crop takes."""
    flip: bool = True
    """Mirror every other picture."""
    randaugment: tuple[int, int] | None = (2, 14)
    """RandAugment's number of operations and strength; none for none."""
    workers: int = 0
    """Processes that read images, for each process that trains; 0 reads in the same one."""
    max_bad: float = 0.01
    """The share of images that may be unreadable; above it the run stops."""

    precision: Precision = "float32"
    """``bfloat16`` is autocast: weights stay in float32. ``float64`` is for checks."""
    compile: bool = False
    """Compile the model with torch.compile: a minute or so at the start, less time for each step on a GPU."""
    gradient_checkpointing: bool = False
    """Keep only what enters each layer for the backward pass and compute the rest again: less memory, more time."""

    log_every: int = 10
    """Steps from one line of metrics.jsonl to the next."""
    evaluate_every: int = 1000
    """Steps from one evaluation to the next; there is also one at the start and one at the end."""
    checkpoint_every: int = 1000
    """Steps from one checkpoint to the next; there is also one at the end."""
    keep: int = 2
    """So many of the last checkpoints stay; the best one stays besides."""
    evaluation_images: int = 2000
    """At most so many images of a split are evaluated while training goes on."""

    def __post_init__(self) -> None:
        hints = get_type_hints(type(self))
        for item in fields(self):
            object.__setattr__(self, item.name, _settle(item.name, getattr(self, item.name), hints[item.name]))
            _check_finite(item.name, getattr(self, item.name))
        for name, least in _LEAST.items():
            if hasattr(self, name) and getattr(self, name) is not None and getattr(self, name) < least:
                raise UserError(f"{name} is {getattr(self, name)}; choose a number from {least} up.")
        for name, (low, high) in _BETWEEN.items():
            if hasattr(self, name) and not low <= getattr(self, name) <= high:
                raise UserError(f"{name} is {getattr(self, name)}; choose a number from {low} to {high}.")
        if not all(0 <= beta < 1 for beta in self.betas):
            raise UserError(f"betas is {self.betas}; choose two numbers from 0 to below 1.")
        if self.batch % self.accumulation:
            raise UserError(f"accumulation={self.accumulation} does not divide batch={self.batch}.")
        if self.clip is not None and self.clip <= 0:
            raise UserError(f"clip is {self.clip}; choose a number above 0, or none.")

    def model_config(self) -> ModelConfig:
        """The model's configuration, from its name, preset and settings."""
        return model_config(self.model, self.preset, **self.model_settings)

    def to_dict(self) -> dict[str, Any]:
        """Plain values for JSON."""
        return json.loads(json.dumps(asdict(self)))


@dataclass(frozen=True, kw_only=True)
class PretrainConfig(RunConfig):
    """A run of masked autoencoding."""

    task: ClassVar[str] = "pretrain"

    mask_ratio: float = 0.75
    """The share of the patches that is masked."""
    pictures: int = 8
    """So many validation images are drawn masked, completed and original at each evaluation; 0 for none."""


@dataclass(frozen=True, kw_only=True)
class FinetuneConfig(RunConfig):
    """A run of supervised training of the whole model."""

    task: ClassVar[str] = "finetune"

    checkpoint: str | None = None
    """The pretrained model; it decides the model's configuration, not ``model``, ``preset`` and ``model_settings``."""
    random: bool = False
    """Start from random weights instead: of the checkpoint's configuration where there is one."""
    pool: Literal["mean", "cls"] = "mean"
    """What the head reads: the mean over the patches, or the class token as in the paper."""
    image_size: Size | None = None
    """Height and width to train at; the checkpoint's positions are interpolated. None for the checkpoint's own."""
    layer_decay: float = 1.0
    """Each layer learns at this share of the rate of the one above it; 1 for the same rate everywhere."""
    drop_path: float = 0.0
    """The last layer is skipped in this share of the samples, earlier ones in proportion to their depth."""
    mixup: float = 0.0
    """Mix pairs of images and labels with a weight from Beta(mixup, mixup); 0 for no mixing."""
    label_smoothing: float = 0.0
    """This share of each label is spread over all classes."""


_LEAST = {
    "seed": 0,
    "steps": 1,
    "batch": 1,
    "accumulation": 1,
    "learning_rate": 0,
    "weight_decay": 0,
    "workers": 0,
    "log_every": 1,
    "evaluate_every": 1,
    "checkpoint_every": 1,
    "keep": 1,
    "evaluation_images": 1,
    "pictures": 0,
    "mixup": 0,
}
_BETWEEN = {
    "warmup": (0, 1),
    "max_bad": (0, 1),
    "mask_ratio": (0, 1),
    "layer_decay": (0, 1),
    "drop_path": (0, 0.9),
    "label_smoothing": (0, 0.9),
}

Config = TypeVar("Config", bound=RunConfig)


def override(config: Config, settings: Iterable[str]) -> Config:
    """The configuration with ``key=value`` words applied, each value read as its field's type.

    A key is a field of the configuration, or ``model.`` and a field of ``ModelConfig``. Pairs are written ``0.2,1``,
    and ``none`` stands for nothing.
    """
    own = get_type_hints(type(config))
    kinds = {item.name: own[item.name] for item in fields(config) if item.name not in _NOT_SET_BY_WORDS}
    kinds |= {f"model.{name}": kind for name, kind in get_type_hints(ModelConfig).items()}
    changes: dict[str, Any] = {}
    in_model = dict(config.model_settings)
    for setting in settings:
        key, equals, text = setting.partition("=")
        if not equals:
            raise UserError(f"--set takes key=value, not {setting!r}.")
        if key not in kinds:
            near = _nearest(key, kinds)
            own_names = sorted(name for name in kinds if not name.startswith("model."))
            hint = f"did you mean {near}?" if near else f"there are {', '.join(own_names)}, and model.NAME."
            raise UserError(f"there is no setting {key}; {hint}")
        value = _read(key, text.strip(), kinds[key])
        if key.startswith("model."):
            in_model[key.removeprefix("model.")] = value
        else:
            changes[key] = value
    return replace(config, **changes, model_settings=in_model)


_NOT_SET_BY_WORDS = ("recipe", "model_settings")


def _nearest(key: str, kinds: Iterable[str]) -> str | None:
    """The key that was meant: by spelling, or by the last word where ``model.`` was left out or is wrong."""
    names = {name: name for name in kinds} | {name.removeprefix("model."): name for name in kinds}
    if (last := key.removeprefix("model.")) in names:
        return names[last]
    near = get_close_matches(key, names, n=1)
    return names[near[0]] if near else None


def _read(key: str, text: str, kind: Any) -> Any:
    """A value from its words, by its annotation."""
    options = get_args(kind) if get_origin(kind) in (Union, UnionType) else (kind,)
    for option in sorted(options, key=lambda option: option is not NoneType):  # none is nothing, not a word
        try:
            return _read_as(text, option)
        except ValueError:
            continue
    raise UserError(f"{key}={text} is not {_words(kind)}.")


def _read_as(text: str, kind: Any) -> Any:
    origin = get_origin(kind)
    if kind is NoneType:
        if text.lower() == "none":
            return None
    elif kind is bool:
        if text.lower() in _TRUTH:
            return _TRUTH[text.lower()]
    elif kind is int or kind is float:
        return kind(text)
    elif kind is str:
        return text
    elif origin is Literal:
        if text in get_args(kind):
            return text
    elif origin is tuple:
        parts = [part.strip() for part in text.strip("()[]").split(",") if part.strip()]
        kinds = get_args(kind)
        if kind == Size and len(parts) == 1:
            parts *= 2
        if kinds[-1] is Ellipsis:
            kinds = (kinds[0],) * len(parts)
        if len(parts) == len(kinds):
            return tuple(_read_as(part, each) for part, each in zip(parts, kinds, strict=True))
    raise ValueError(text)


_TRUTH = {"true": True, "yes": True, "1": True, "false": False, "no": False, "0": False}


def _words(kind: Any) -> str:
    """An annotation in words."""
    if get_origin(kind) in (Union, UnionType):
        return " or ".join(_words(option) for option in get_args(kind))
    if get_origin(kind) is Literal:
        return f"one of {', '.join(map(str, get_args(kind)))}"
    if get_origin(kind) is tuple:
        kinds = get_args(kind)
        count = "several" if kinds[-1] is Ellipsis else "two"
        return f"{count} {'whole numbers' if kinds[0] is int else 'numbers'} with a comma between"
    return {NoneType: "none", bool: "true or false", int: "a whole number", float: "a number", str: "a word"}[kind]


def _check_finite(name: str, value: Any) -> None:
    for number in value if isinstance(value, tuple) else (value,):
        if isinstance(number, float) and not math.isfinite(number):
            raise UserError(f"{name} is {value}; choose a finite number.")


def _settle(name: str, value: Any, kind: Any) -> Any:
    """A value from Python or JSON in the form of its annotation: lists become tuples, whole numbers floats."""
    if isinstance(value, dict):
        return {key: tuple(item) if isinstance(item, list) else item for key, item in value.items()}
    if value is None and NoneType in get_args(kind):
        return None
    if isinstance(value, str):
        if kind is str or str in get_args(kind):
            return value
        text = value
    else:
        text = ",".join(map(str, value)) if isinstance(value, tuple | list) else str(value)
    return _read(name, text, kind)
