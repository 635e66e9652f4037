"""Every block of code in the README and in docs/ runs, or is read where it can't; a new page is covered by itself."""

import ast
import importlib.util
import re
import subprocess
import tomllib
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from crate_mae.cli import main
from crate_mae.training.run_folder import Run
from tests.documentation.pages import PAGES, ROOT, Block, blocks, commands, name, ours, outputs, spans
from tests.documentation.reading import mentioned, read
from tests.documentation.world import EVERY, READ, shortened, shortened_python, world

Names = dict[str, Any]  # of a page's Python, top to bottom
PLACEHOLDER = re.compile(r"^[A-Z]+$")  # --data-root DIR: something of the reader's own
EXTRAS = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]


@dataclass(frozen=True)
class Ran:
    """A command or a block of Python, and what it printed."""

    text: str
    printed: str


@pytest.mark.parametrize("page", PAGES, ids=name)
def test_its_code_runs(
    page: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    found = blocks(page)
    if not found:
        return
    names: Names = {}
    ran = []
    with world(tmp_path, page.read_text(), monkeypatch) as hub:
        for block in found:
            match block.language:
                case "sh":
                    for words in commands(block):
                        run_command(words, monkeypatch)
                        ran.append(Ran(" ".join(words), capsys.readouterr().out))
                case "python":
                    exec(compile(shortened_python(block.text), name(page), "exec"), names)
                    ran.append(Ran(block.text, capsys.readouterr().out))
                case "bash":
                    read_script(block, monkeypatch)
                case "py":
                    read_python(block)
    if name(page) in EXPECTED:
        EXPECTED[name(page)](page, ran, names)
    if "me/digits-mae" in page.read_text():
        assert hub.repos["me/digits-mae"]["config.json"] == Path("digits-mae/config.json").read_bytes()


def run_command(words: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    """Run it in its shortest form where that is ours; hold it against the project's files where it is another's."""
    if own := ours(words):
        if own[0] in READ or any(map(PLACEHOLDER.match, own)):
            read(own, monkeypatch)
        else:
            main(shortened(own))
        return
    match words:
        case ["make", target, *_]:
            made = subprocess.run(["make", "-n", "-B", target], cwd=ROOT, capture_output=True, text=True)
            assert made.returncode == 0, f"there is no make {target}"
        case ["pip", "install", *rest]:
            asked = [extra for word in rest for part in re.findall(r"\[([\w,]+)\]", word) for extra in part.split(",")]
            assert not set(asked) - EXTRAS.keys(), f"there is no extra {asked}"
        case ["python", "-m", "venv", _] | [".", _] | ["git", *_] | ["cd", _]:
            pass
        case ["python", script, *_]:
            assert (ROOT / script).is_file(), f"there is no {script}"
        case _:
            raise AssertionError(f"{words} has no test: mark its block bash, or say here how to hold it to the truth")


def read_script(block: Block, monkeypatch: pytest.MonkeyPatch) -> None:
    """A shell takes it, and the command line takes the commands of ours in it."""
    subprocess.run(["bash", "-n"], input=block.text, text=True, check=True)
    for words in commands(block):
        if own := ours(words):
            read(own, monkeypatch)


def read_python(block: Block) -> None:
    """It compiles, and what it imports is there."""
    for node in ast.walk(ast.parse(block.text)):
        match node:
            case ast.Import(names=aliases):
                for alias in aliases:
                    assert importlib.util.find_spec(alias.name), f"there is no {alias.name}"
            case ast.ImportFrom(module=str(module), names=aliases):
                there = importlib.import_module(module)
                assert all(hasattr(there, alias.name) for alias in aliases), f"{module} lacks some of these"


# --- what came of it, where the page says what should ---


def _data(page: Path, ran: list[Ran], names: Names) -> None:
    checks = [
        one.printed for one in ran if one.text.startswith("crate-mae data check") and "imagenette" not in one.text
    ]
    assert sum("train: 24 images, 2 classes, 0 unreadable." in printed for printed in checks) == 3
    assert ran[-1].printed.count("torch.Size([16, 3, 224, 224])") == 3


def _training(page: Path, ran: list[Ran], names: Names) -> None:
    assert Run(Path("runs/photos")).series("val_loss").keys() == {0, 1, 2}
    assert Path("runs/photos-probe/probe.json").is_file()
    stored = Run(Path("runs/from-python")).stored()
    assert stored is not None
    assert stored.config.seed == 1


def _planning(page: Path, ran: list[Ran], names: Names) -> None:
    whole, last_line = outputs(page)
    assert ran[0].printed == whole
    assert ran[1].printed.endswith(last_line)
    planned, took = map(float, re.findall(r"([\d.]+) s", ran[-1].printed))
    assert planned / 10 < took < 10 * planned


def _probing(page: Path, ran: list[Ran], names: Names) -> None:
    shown = next(text for text in outputs(page) if text.startswith("┏"))
    for line in shown.splitlines()[1:3]:  # the head of the table
        for words in line.strip("┃ ").split("┃"):
            assert words.strip() in ran[1].printed
    assert Path("runs/photos/layers.png").is_file()
    made = {file.name for file in Path("runs/demo/probe/digits").iterdir()}
    assert made == {"features", "layers.png", "probe.json", "strengths.png"}


def _fine_tuning(page: Path, ran: list[Ran], names: Names) -> None:
    shown = next(text for text in outputs(page) if text.startswith("runs/tuned on digits"))
    printed = next(one.printed for one in ran if one.text.startswith("crate-mae evaluate"))
    for words in ("top-1 accuracy", "top-5 accuracy", "mean over classes", "images", "most frequent confusions"):
        assert words in shown
        assert words in printed
    assert "new/more/1.png: " in "".join(one.printed for one in ran)
    assert len(Path("predictions.csv").read_text().splitlines()) == 1 + 2 * 5
    assert f" % of {450 // EVERY} images" in ran[-1].printed


def _look_inside(page: Path, ran: list[Ran], names: Names) -> None:
    assert names["curves"]["compression"].mean.shape == (2,)
    assert names["maps"].shape == (4, 4, 4, 4)
    assert names["colours"].shape == (8, 4, 4, 3)
    assert len(names["panels"]) == 4


def _hugging_face(page: Path, ran: list[Ran], names: Names) -> None:
    assert names["grid"].shape[2:] == (4, 4)
    assert names["scores"].shape == (1, 10)


def _scikit_learn(page: Path, ran: list[Ran], names: Names) -> None:
    assert len(names["features"]) == 24


def _using(page: Path, ran: list[Ran], names: Names) -> None:
    made = {"model.pt2", "encoder.onnx", "features.parquet", "features.npz", "filled.png", "hole.jpg", "panels.png"}
    assert made <= {path.name for path in Path().iterdir()}
    assert len(list(Path("completed").iterdir())) == 25


def _theory(page: Path, ran: list[Ran], names: Names) -> None:
    assert names["Z"].shape == (768, 196)


EXPECTED: dict[str, Callable[[Path, list[Ran], Names], None]] = {
    "docs/data.md": _data,
    "docs/training.md": _training,
    "docs/planning.md": _planning,
    "docs/probing.md": _probing,
    "docs/fine-tuning.md": _fine_tuning,
    "docs/look-inside.md": _look_inside,
    "docs/theory.md": _theory,
    "docs/hugging-face.md": _hugging_face,
    "docs/scikit-learn.md": _scikit_learn,
    "docs/using.md": _using,
}


# --- code within the text ---


@pytest.mark.parametrize("page", PAGES, ids=name)
def test_what_its_text_names_exists(page: Path) -> None:
    for span in spans(page):
        words = span.split()
        if words[0] == "crate-mae" and len(words) > 1:
            mentioned(words[1:])
        elif re.fullmatch(r"[\w./-]+\.py", span) and "/" in span and not Path(span).stem.isupper():  # NAME.py
            assert (ROOT / span).is_file() or (ROOT / "src/crate_mae" / span.removeprefix("crate_mae/")).is_file(), span
        elif match := re.fullmatch(r"make ([a-z-]+)", span):
            assert f"\n{match[1]}:" in (ROOT / "Makefile").read_text(), span


def test_every_page_in_the_table_is_one() -> None:
    assert EXPECTED.keys() <= {name(page) for page in PAGES}


@pytest.mark.parametrize(
    "wrong",
    [
        "crate-mae pretrain --recipe digits --outt runs/x",
        "crate-mae pretrain --recipe digits --out runs/x --set stepps=3",
        "crate-mae pretrain --recipe digitz --out runs/x",
        "torchrun --nproc-per-node 2 -m crate_mae pretrain --out runs/x --recpe digits",
        "crate-mae reproduce table9",
        "for x in; do",
    ],
)
def test_a_wrong_command_is_found_out(wrong: str, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises((SystemExit, ValueError, AssertionError, subprocess.CalledProcessError)):
        read_script(Block("bash", wrong + "\n"), monkeypatch)


@pytest.mark.parametrize("wrong", ["import crate_may", "from crate_mae import loaded", "print("])
def test_wrong_python_is_found_out(wrong: str) -> None:
    with pytest.raises((SyntaxError, AssertionError, ImportError)):
        read_python(Block("py", wrong))


@pytest.mark.parametrize("wrong", ["crate-mae inspekt", "crate-mae data pack --shards 3"])
def test_a_wrong_mention_is_found_out(wrong: str) -> None:
    with pytest.raises(AssertionError):
        mentioned(wrong.split()[1:])
