"""Dependencies point one way."""

import ast
import subprocess
import sys
from pathlib import Path

import pytest

SOURCE = Path(__file__).parents[1] / "src" / "crate_mae"
ORDER = [  # each may import those before it
    ["allocator", "atomic_write", "errors", "figures", "mssa_cpu", "progress", "torchvision_fix"],
    ["image_files", "operators", "tokens", "device", "settings"],
    ["image_tensors", "theory"],
    ["models"],
    ["data", "export"],
    ["analysis", "features"],
    ["completion", "evaluation"],
    ["training"],
    ["hub", "planning", "recipes"],
    ["bench", "reports", "reproduce", "web"],
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


def test_the_public_names_are_all_there() -> None:
    import crate_mae

    for name in crate_mae.__all__:
        assert getattr(crate_mae, name)
    assert set(crate_mae.__all__) <= set(dir(crate_mae))
    with pytest.raises(AttributeError, match="nonsense"):
        crate_mae.nonsense  # noqa: B018
