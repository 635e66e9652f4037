"""Settings: frozen dataclasses whose annotations say what each field takes.

    steps: Annotated[int, Range(least=1), FREE]

is a whole number from 1 up with the mark ``FREE``. One mechanism checks a value wherever it comes from (Python, JSON,
the words of ``--set``), says what is wrong with it, and reads files of earlier format versions.
"""

import math
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, fields
from functools import cache
from pathlib import Path
from types import NoneType, UnionType
from typing import Annotated, Any, ClassVar, Literal, Self, Union, get_args, get_origin, get_type_hints

from crate_mae.errors import UserError, brief, did_you_mean

Size = tuple[int, int]  # height, width

FORMAT_VERSION = 4
"""Format of checkpoints and run folders. Version 1 is crate-mae 0.1.0's; version N has the fields marked ``Since(N,
..)``."""


def check_version(path: Path, version: Any, written_by: Any) -> None:
    """Refuse a file of a format version that this crate-mae does not read."""
    if type(version) is not int or not 1 <= version <= FORMAT_VERSION:
        raise UserError(
            f"{path} has format version {brief(version)} and this crate-mae reads versions 1 to {FORMAT_VERSION}; "
            f"install the crate-mae that wrote it ({brief(written_by)}), or a later one."
        )


@dataclass(frozen=True)
class Range:
    """Bounds of a number, or of every number in a tuple; ``least`` and ``most`` are included."""

    least: float | None = None
    most: float | None = None
    above: float | None = None
    below: float | None = None

    def __contains__(self, number: float) -> bool:
        return (
            (self.least is None or number >= self.least)
            and (self.most is None or number <= self.most)
            and (self.above is None or number > self.above)
            and (self.below is None or number < self.below)
        )

    def __str__(self) -> str:
        low = f"from {self.least:,}" if self.least is not None else f"above {self.above:,}"
        if self.most is not None:
            return f"{low} to {self.most:,}"
        if self.below is not None:
            return f"{low} to below {self.below:,}"
        return f"{low} up" if self.least is not None else low


@dataclass(frozen=True)
class Since:
    """A field that files have from this format version on; ``before`` is its meaning in files without it."""

    version: int
    before: Any


@dataclass(frozen=True)
class FieldsOf:
    """A dictionary of some fields of other settings."""

    of: "type[Settings]"


ONE_FOR_BOTH = "one number stands for both"
"""Marks a pair that may be given as one number."""


@dataclass(frozen=True)
class Setting:
    """What one field takes."""

    name: str
    kind: Any
    """Its type."""
    marks: tuple[Any, ...]
    """The other arguments of ``Annotated``."""

    def mark(self, kind: type) -> Any:
        """The mark of this class, or None."""
        return next((mark for mark in self.marks if isinstance(mark, kind)), None)

    def convert(self, value: Any) -> Any:
        """The value in the form of the field's type: a list becomes a tuple, a whole number a float."""
        try:
            if part := self.mark(FieldsOf):
                return part.of.convert_some(value)
            converted = _convert(value, self.kind, ONE_FOR_BOTH in self.marks)
            bounds = self.mark(Range)
            if bounds and not all(number in bounds for number in _numbers(converted)):
                raise ValueError
        except UserError:
            raise
        except (ValueError, OverflowError):
            raise self._refusal(value) from None
        return converted

    def read(self, text: str) -> Any:
        """The value of a text: pairs are written ``0.2,1``, and ``none`` is None."""
        try:
            value = _read(text.strip(), self.kind)
        except ValueError:
            raise self._refusal(text) from None
        return self.convert(value)

    def _refusal(self, value: Any) -> UserError:
        infinite = any(isinstance(number, float) and not math.isfinite(number) for number in _numbers(value))
        return UserError(f"{self.name} is {brief(value)}; choose {'finite numbers' if infinite else self}.")

    def __str__(self) -> str:
        """What it takes, in words."""
        return _words(self.kind, self.mark(Range), ONE_FOR_BOTH in self.marks)


@dataclass(frozen=True)
class Settings:
    """The base of all settings: every field is checked and converted when an object is created."""

    subject: ClassVar[str]
    """What has these settings, for messages: a model, a run."""

    def __post_init__(self) -> None:
        for name, setting in self.all().items():
            object.__setattr__(self, name, setting.convert(getattr(self, name)))

    @classmethod
    @cache
    def all(cls) -> dict[str, Setting]:
        """Every field by its name."""
        hints = get_type_hints(cls, include_extras=True)
        return {field.name: _setting(field.name, hints[field.name]) for field in fields(cls)}

    @classmethod
    def marked(cls, *marks: Any) -> set[str]:
        """The names of the fields with any of these marks."""
        return {name for name, setting in cls.all().items() if not set(marks).isdisjoint(setting.marks)}

    @classmethod
    def check_names(cls, names: Iterable[str]) -> None:
        """Refuse a name that is no field; the message suggests one."""
        for name in names:
            if name not in cls.all():
                raise UserError(f"{cls.subject} has no setting {name}; {did_you_mean(name, sorted(cls.all()))}")

    @classmethod
    def convert_some(cls, values: Any) -> dict[str, Any]:
        """Values for some of the fields."""
        if not isinstance(values, dict):
            raise UserError(f"the settings of {cls.subject} are {brief(values)}; give a name and a value for each.")
        cls.check_names(values)
        return {name: cls.all()[name].convert(value) for name, value in values.items()}

    def to_dict(self) -> dict[str, Any]:
        """Plain values for JSON."""
        return _plain(asdict(self))

    @classmethod
    def from_dict(cls, values: Mapping[str, Any], version: int = FORMAT_VERSION) -> Self:
        """The inverse of ``to_dict``, for files of this format version and of earlier ones."""
        values = cls.upgrade(dict(values), version)
        for name, setting in cls.all().items():
            since = setting.mark(Since)
            if since and version < since.version:
                values.setdefault(name, since.before)
            elif (part := setting.mark(FieldsOf)) and isinstance(values.get(name), dict):
                values[name] = part.of.upgrade(dict(values[name]), version)
        cls.check_names(values)
        if missing := cls.all().keys() - values:
            raise UserError(f"the configuration of {cls.subject} lacks {', '.join(sorted(missing))}.")
        return cls(**values)

    @classmethod
    def upgrade(cls, values: dict[str, Any], version: int) -> dict[str, Any]:
        """Values from a file of ``version``, under the current names. A class that renames a field extends it."""
        return values


def _setting(name: str, annotation: Any) -> Setting:
    if get_origin(annotation) is Annotated:
        kind, *marks = get_args(annotation)
        return Setting(name, kind, tuple(marks))
    return Setting(name, annotation, ())


def _options(kind: Any) -> tuple[Any, ...]:
    return get_args(kind) if get_origin(kind) in (Union, UnionType) else (kind,)


def _convert(value: Any, kind: Any, one_for_both: bool = False) -> Any:
    """A value converted to a type; ValueError if it has another type."""
    for option in _options(kind):
        origin = get_origin(option)
        if option in (int, float) and isinstance(value, int | option) and not isinstance(value, bool):
            if math.isfinite(value) and (option is float or abs(value) < 2**63):
                return option(value)
        elif _is(value, option):
            return value
        elif origin is tuple:
            if one_for_both and isinstance(value, int):
                value = (value, value)
            kinds = get_args(option)
            if isinstance(value, tuple | list) and (kinds[-1] is Ellipsis or len(value) == len(kinds)):
                return tuple(_convert(item, kinds[0]) for item in value)
        elif origin is dict and isinstance(value, dict):
            names, items = get_args(option)
            return {_convert(name, names): _convert(item, items) for name, item in value.items()}
    raise ValueError


def _is(value: Any, kind: Any) -> bool:
    if kind in (bool, str, NoneType):
        return isinstance(value, kind)
    return get_origin(kind) is Literal and isinstance(value, str) and value in get_args(kind)


_TRUTH = {"true": True, "yes": True, "1": True, "false": False, "no": False, "0": False}


def _read(text: str, kind: Any) -> Any:
    """The value of a text, by its type; ValueError if it has none of that type."""
    options = _options(kind)
    if NoneType in options and text.lower() == "none":
        return None
    kind = next(option for option in options if option is not NoneType)
    if kind is bool:
        if text.lower() not in _TRUTH:
            raise ValueError
        return _TRUTH[text.lower()]
    if kind in (int, float):
        return kind(text)
    if get_origin(kind) is tuple:
        parts = [part.strip() for part in text.strip("()[]").split(",") if part.strip()]
        values = tuple(_read(part, get_args(kind)[0]) for part in parts)
        return values[0] if len(values) == 1 < len(get_args(kind)) and get_args(kind)[-1] is not Ellipsis else values
    return text


def _numbers(value: Any) -> Iterable[Any]:
    if isinstance(value, dict):
        return value.values()
    return value if isinstance(value, tuple | list) else () if value is None else (value,)


def _words(kind: Any, bounds: Range | None, one_for_both: bool = False) -> str:
    """What a type takes within bounds."""
    within = f" {bounds}" if bounds else ""
    options = _options(kind)
    if NoneType in options:
        rest = next(option for option in options if option is not NoneType)
        return f"{_words(rest, bounds, one_for_both)}, or none"
    if get_origin(kind) is Literal:
        return f"one of {', '.join(get_args(kind))}"
    if get_origin(kind) is tuple:
        first, *_, last = get_args(kind)
        numbers = ("whole numbers" if first is int else "numbers") + within
        if one_for_both:
            return f"two {numbers} (height, width), or one for both"
        return f"{'several' if last is Ellipsis else 'two'} {numbers} with a comma between"
    if get_origin(kind) is dict:
        names, items = get_args(kind)
        return f"{_words(items, bounds)} for each name, {_words(names, None)}"
    return {bool: "true or false", int: "a whole number", float: "a number", str: "a word"}[kind] + within


def _plain(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: _plain(item) for name, item in value.items()}
    return [_plain(item) for item in value] if isinstance(value, tuple) else value
