"""Commands read by the real command line, without running them."""

import inspect
from collections.abc import Callable
from typing import Any

import pytest

from crate_mae import cli, recipes
from crate_mae.reproduce.paper_numbers import ITEMS
from crate_mae.training.config import RunConfig, override


def read(words: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    """Fail where the command line would not take these words, or a recipe, a setting or an item does not exist."""
    taken: list[tuple[str, dict[str, Any]]] = []
    with monkeypatch.context() as patch:
        patch.setattr(cli, "run", lambda verb, arguments: taken.append((verb, arguments)))
        cli.main(words)
    ((verb, arguments),) = taken
    if verb in ("pretrain", "finetune", "plan") and arguments.get("recipe"):
        every: dict[str, Callable[[], RunConfig]] = {**recipes.PRETRAIN, **recipes.FINETUNE}
        override(recipes.find(arguments["recipe"], every), arguments.get("set_", ()))
    if verb == "reproduce":
        assert arguments["what"] in (*ITEMS, "all", "list")


def mentioned(words: list[str]) -> None:
    """Fail where a command that the text speaks of, whole or in part, has a verb or an option that does not exist."""
    verb = " ".join(words[:2]) if " ".join(words[:2]) in cli.VERBS else words[0]
    if verb.isupper() or verb.startswith("--"):  # VERB, or --help itself
        return
    assert verb in cli.VERBS, f"there is no command {verb}"
    options = {f"--{name.strip('_').replace('_', '-')}" for name in inspect.signature(cli.VERBS[verb]).parameters}
    for word in words:
        assert not word.startswith("--") or word.split("=")[0] in options | {"--help"}, f"{verb} has no option {word}"
