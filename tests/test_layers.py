"""Dependencies point one way; the tests and the documentation have the same folders as the source."""

import ast
import re
import subprocess
import sys
from itertools import combinations
from pathlib import Path

import pytest

from crate_mae.models.shipped import ROOT

TESTS = Path(__file__).parent
SOURCE = TESTS.parent / "src" / "crate_mae"
ORDER = [  # each may import those before it
    ["allocator", "disk_errors", "errors"],
    ["atomic_write", "json_files", "mssa_cpu", "progress", "torchvision_fix"],
    ["figures", "image_files", "operators", "device", "settings", "usable_path"],
    ["tokens"],
    ["image_tensors", "theory"],
    ["models"],
    ["data", "export"],
    ["analysis", "features"],
    ["completion", "evaluation"],
    ["training"],
    ["hub", "planning", "recipes"],
    ["bench", "reports", "web"],
    ["reproduce"],
    ["cli"],
]
WHEN_CALLED = {("models", "hub")}  # push_to_hub writes a card, which may tell of a run; models know no runs
LEVEL = {name: level for level, names in enumerate(ORDER) for name in names}


def imported(path: Path) -> set[str]:
    found = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("crate_mae"):
            parts = node.module.split(".")
            found |= {parts[1]} if len(parts) > 1 else {alias.name for alias in node.names}
        elif isinstance(node, ast.Import):
            found |= {alias.name.split(".")[1] for alias in node.names if alias.name.startswith("crate_mae.")}
    return found - {"__version__"}


@pytest.mark.parametrize("path", sorted(SOURCE.rglob("*.py")), ids=lambda path: str(path.relative_to(SOURCE)))
def test_a_module_imports_only_what_lies_below_it(path: Path) -> None:
    subject = path.relative_to(SOURCE).parts[0].removesuffix(".py")
    if subject in ("__init__", "__main__"):
        return
    for name in imported(path) - {subject}:
        if (subject, name) in WHEN_CALLED:
            continue
        assert LEVEL[name] < LEVEL[subject], f"{subject} imports {name}"


def folders(top: Path) -> set[str]:
    return {str(path.parent.relative_to(top)) for path in top.rglob("*.py")} - {"."}


def test_the_tests_have_the_folders_of_the_source() -> None:
    assert folders(TESTS) == folders(SOURCE) | {"documentation", "fixtures"}
    for folder in folders(SOURCE):
        assert list((TESTS / folder).glob("test_*.py")), f"tests/{folder} has no tests"


def test_a_module_has_a_name_of_its_own() -> None:
    """Nearly the same name twice in a folder, such as table.py and tables.py, can't be told apart."""
    for folder in folders(SOURCE):
        stems = sorted(path.stem for path in (SOURCE / folder).glob("*.py"))
        for short, long in combinations(stems, 2):
            assert long.removeprefix(short) not in ("s", "r", "er", "ing", "ed"), f"{folder}: {short} and {long}"


@pytest.mark.parametrize("page", ["README.md", "docs/how-it-is-built.md"])
def test_the_documented_tree_is_the_tree(page: str) -> None:
    text = (TESTS.parent / page).read_text()
    for folder in {folder.split("/")[0] for folder in folders(SOURCE)}:
        assert re.search(rf"^  {folder}/ ", text, re.MULTILINE) or f"`{folder}/`" in text, folder
    modules = {path.stem for path in SOURCE.glob("*.py")} - {"__init__", "__main__"}
    assert {name for name in modules if f"{name}.py" not in text} == set(), page
    named = re.findall(r"^  (\w+)(?:/|\.py) ", text, re.MULTILINE) if page == "README.md" else []
    assert set(named) <= modules | folders(SOURCE) | {ROOT.name}


def test_theory_imports_no_model_and_figures_no_torch() -> None:
    for module, banned in [("crate_mae.theory.rates", "crate_mae.models"), ("crate_mae.figures", "torch")]:
        script = f"import sys, {module}; sys.exit(any(name.startswith('{banned}') for name in sys.modules))"
        subprocess.run([sys.executable, "-c", script], check=True)


def test_help_imports_no_torch() -> None:
    script = """
import sys
from crate_mae.cli import VERBS, main
for words in [["--help"], ["--version"], *([*verb.split(), "--help"] for verb in VERBS)]:
    try:
        main(words)
    except SystemExit as stop:
        assert not stop.code, words
    assert not {"torch", "numpy", "matplotlib"} & sys.modules.keys(), words
"""
    subprocess.run([sys.executable, "-c", script], check=True, capture_output=True)


def test_importing_every_name_costs_little_beyond_torch() -> None:
    """By what is not imported: the times vary with the machine."""
    script = """
import sys
from crate_mae import *
MaskedAutoencoder, load, __version__
heavy = {"sklearn", "scipy", "pandas", "pyarrow", "matplotlib", "huggingface_hub", "transformers", "torchvision"}
sys.exit(", ".join(sorted(heavy & sys.modules.keys())) or None)
"""
    subprocess.run([sys.executable, "-c", script], check=True)


def test_a_run_is_configured_without_torch() -> None:
    """So that a wrong ``--set`` is known at once."""
    script = """
import sys
from crate_mae import recipes
from crate_mae.training.config import override
from crate_mae.training.run_folder import Run
override(recipes.digits(), ["steps=3", "model.dim=96"]).model_config()
sys.exit(", ".join({"torch", "numpy", "matplotlib", "rich"} & sys.modules.keys()) or None)
"""
    subprocess.run([sys.executable, "-c", script], check=True)


def test_the_public_names_are_all_there() -> None:
    import crate_mae

    for name in dir(crate_mae):
        assert getattr(crate_mae, name)
    assert set(dir(crate_mae)) - set(crate_mae.__all__) == {"CrateFeatures"}
    with pytest.raises(AttributeError, match="nonsense"):
        crate_mae.nonsense  # noqa: B018
