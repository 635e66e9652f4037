"""Arguments that several verbs share, and the checks that come before anything heavy is imported."""

import ast
import os
import re
import warnings
from importlib.util import find_spec
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
"""``--checkpoint``, or the first word. A word and no path: NAME is a shipped model and ./NAME a folder."""
CheckpointOrDefault = Annotated[
    str | None, tyro.conf.arg(metavar="MODEL", help=f"The model: {_MODEL}; the default is {DEFAULT}.")
]
"""The same, for verbs that take the default model where none is named."""
Settings = Annotated[tuple[str, ...], tyro.conf.arg(name="set", metavar="KEY=VALUE"), tyro.conf.UseAppendAction]
"""``--set KEY=VALUE``, any number of times."""


CHECKPOINTS = ("checkpoint", "second")
"""Arguments that name a model."""


def given(**options: Any) -> dict[str, Any]:
    """The options that were given, as fields of a run's configuration, where a path is text."""
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
    if isinstance(arguments.get("data"), str):
        check_data(arguments["data"])
    if arguments.get("recipe") is not None:
        check_recipe(arguments["recipe"], verb)
    if verb != "plan" and not arguments.get("resume"):  # a plan opens nothing, and a run has what it needs
        for name in CHECKPOINTS:
            if arguments.get(name) is not None:
                check_checkpoint(arguments[name])
    if isinstance(arguments.get("images"), tuple):
        check_images(arguments["images"])
    if verb != "serve" and (arguments.get("workers") or 0) > 1:
        return arguments | {"workers": capped_workers(arguments["workers"])}
    return arguments


def check_path(name: str, path: str | Path) -> None:
    """Refuse a path that no system call takes, and a name that can't be written down; it need not exist."""
    option = f"--{name.strip('_').replace('_', '-')}"
    if isinstance(path, str):
        if "\0" in path:
            raise UserError(f"{option} has a NUL byte in it; give a word without.")
        return
    if name != "images" and not is_unicode(str(path)):
        raise UserError(f"{option} {os.fsencode(path)!r} is not UTF-8; choose another name.")
    usable(path, option)


def check_checkpoint(name: str) -> None:
    """Refuse a folder that holds no checkpoint; a name on the Hub is for ``load`` to find."""
    if name not in shipped_names() and (usable(name).exists() or not HUB_NAME.fullmatch(name)):
        locate(name)


def check_images(images: tuple[Path, ...]) -> None:
    """Refuse pictures and folders that are not there."""
    for path in images:
        if not usable(path).exists():
            raise UserError(f"there is no image or folder {printable(str(path))}.")


def check_data(data: str) -> None:
    """Refuse a word that can be no set of images: neither a name, nor there, nor a pattern, nor a name on the Hub."""
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
    """Every recipe, and the verb that it is for.

    A recipe is a function of recipes.py, and what it returns says which verb takes it. The source is read and not
    imported: a wrong name should not have to wait for torch.
    """
    verbs = {"PretrainConfig": "pretrain", "FinetuneConfig": "finetune"}
    spec = find_spec("crate_mae.recipes")
    assert spec is not None
    assert spec.origin is not None
    functions = [node for node in ast.parse(Path(spec.origin).read_text()).body if isinstance(node, ast.FunctionDef)]
    returned = {node.name: getattr(node.returns, "id", None) for node in functions if not node.name.startswith("_")}
    return {name: verbs[kind] for name, kind in returned.items() if kind in verbs}


def capped_workers(workers: int) -> int:
    """At most as many processes that load images as there are processors; a note says where it is fewer."""
    from crate_mae.data.checking import processors

    if workers > (most := processors()):
        warnings.warn(f"--workers is {workers}, and this machine has {most} processors: {most} are used.", stacklevel=1)
    return min(workers, most)
