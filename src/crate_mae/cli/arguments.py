"""Arguments that several verbs share, and the checks that come before anything heavy is imported."""

import os
import re
import warnings
from pathlib import Path
from typing import Annotated, Any

import tyro

from crate_mae.data.named import NAMED, NAMES
from crate_mae.errors import UserError, did_you_mean
from crate_mae.models.locate import HUB_NAME, locate
from crate_mae.models.shipped import DEFAULT, shipped_names
from crate_mae.usable_path import is_unicode, printable, usable

Data = Annotated[
    str, tyro.conf.arg(help=f"A name ({NAMES}), a folder, shards, Parquet files, or owner/name on the Hub.")
]
"""``--data``, or the first word."""
_MODEL = "a name that crate-mae models lists, a checkpoint folder, a run folder, or owner/name on the Hub"
Checkpoint = Annotated[str, tyro.conf.arg(metavar="MODEL", help=f"The model: {_MODEL}.")]
"""``--checkpoint``, or the first word. It is a string, not a path: NAME is a shipped model, ./NAME a folder."""
CheckpointOrDefault = Annotated[
    str | None, tyro.conf.arg(metavar="MODEL", help=f"The model: {_MODEL}; the default is {DEFAULT}.")
]
"""The same, for verbs that use the default model if none is given."""
Settings = Annotated[tuple[str, ...], tyro.conf.arg(name="set", metavar="KEY=VALUE"), tyro.conf.UseAppendAction]
"""``--set KEY=VALUE``, any number of times."""


CHECKPOINTS = ("checkpoint", "second")
"""Arguments that name a model."""


def given(**options: Any) -> dict[str, Any]:
    """The options that were given, as fields of a run's configuration; paths become strings."""
    chosen = {name: value for name, value in options.items() if value not in (None, False)}
    return {name: str(value) if isinstance(value, Path) else value for name, value in chosen.items()}


def checked_seed(seed: int) -> int:
    """A seed that every generator takes."""
    if not 0 <= seed < 2**32:
        raise UserError(f"--seed is {seed}; choose a whole number from 0 to {2**32 - 1}.")
    return seed


def checked(verb: str, arguments: dict[str, Any]) -> dict[str, Any]:
    """The arguments of any verb, checked as far as that needs neither torch nor a model."""
    for name, value in arguments.items():
        for path in value if isinstance(value, tuple) else (value,):
            if isinstance(path, str | Path):
                check_path(name, Path(path) if name in CHECKPOINTS else path)
    arguments = {name: _expanded(value) for name, value in arguments.items()}
    if isinstance(arguments.get("data"), str):
        check_data(arguments["data"])
    if arguments.get("recipe") is not None:
        check_recipe(arguments["recipe"], verb)
    if verb != "plan" and not arguments.get("resume"):  # a plan opens no checkpoint, and a resumed run has its own
        for name in CHECKPOINTS:
            if arguments.get(name) is not None:
                check_checkpoint(arguments[name])
    if isinstance(arguments.get("images"), tuple):
        check_images(arguments["images"])
    if verb != "serve" and (arguments.get("workers") or 0) > 1:
        return arguments | {"workers": capped_workers(arguments["workers"])}
    return arguments


def _expanded(value: Any) -> Any:
    """Paths with ``~`` for the home folder, which a shell leaves as it is after = and within quotes."""
    if isinstance(value, tuple):
        return tuple(map(_expanded, value))
    return value.expanduser() if isinstance(value, Path) else value


def check_path(name: str, path: str | Path) -> None:
    """Refuse a path that the system can't use, and a name that is not UTF-8; it need not exist."""
    option = f"--{name.strip('_').replace('_', '-')}"
    if isinstance(path, str):
        if "\0" in path:
            raise UserError(f"{option} has a NUL byte in it; remove it.")
        return
    if name != "images" and not is_unicode(str(path)):
        raise UserError(f"{option} {os.fsencode(path)!r} is not UTF-8; choose another name.")
    usable(path, option)


def check_checkpoint(name: str) -> None:
    """Refuse a folder that holds no checkpoint; a name on the Hub is for ``load`` to find."""
    if name not in shipped_names() and (usable(name).exists() or not HUB_NAME.fullmatch(name)):
        locate(name)


def check_images(images: tuple[Path, ...]) -> None:
    """Refuse images and folders that do not exist."""
    for path in images:
        if not usable(path).exists():
            raise UserError(f"there is no image or folder {printable(str(path))}.")


def check_data(data: str) -> None:
    """Refuse a value of ``--data`` that is no known name, existing path, pattern of shards or name on the Hub."""
    if data in NAMED or re.search(r"[*?\[{]", data) or HUB_NAME.fullmatch(data) or usable(data, "--data").exists():
        return
    raise UserError(f"there is no folder {data}, and no set of that name; {did_you_mean(data, NAMED)}")


def check_recipe(name: str, verb: str) -> None:
    """Refuse a recipe that does not exist, or that is for another verb; ``plan`` takes those of both."""
    recipes = recipe_verbs()
    own = [recipe for recipe, task in recipes.items() if verb in (task, "plan")]
    if name in own:
        return
    if name in recipes:
        raise UserError(f"{name} is a recipe of crate-mae {recipes[name]}; crate-mae {verb} has {', '.join(own)}.")
    raise UserError(f"there is no recipe {name}; {did_you_mean(name, own)}")


def recipe_verbs() -> dict[str, str]:
    """Every recipe, and the verb that it is for."""
    from crate_mae import recipes

    return dict.fromkeys(recipes.PRETRAIN, "pretrain") | dict.fromkeys(recipes.FINETUNE, "finetune")


def capped_workers(workers: int) -> int:
    """At most one worker for each processor; a note says so if this lowers the number."""
    from crate_mae.data.checking import processors

    if workers > (most := processors()):
        warnings.warn(f"--workers is {workers}, and this machine has {most} processors: {most} are used.", stacklevel=1)
    return min(workers, most)
