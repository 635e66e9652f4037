"""Damaged checkpoints and run folders: each loads right, or is refused in one sentence; no code of a file is run."""

import json
import os
import pickle
import random
import shutil
import tempfile
import warnings
from functools import cache
from pathlib import Path
from typing import Any

import torch
from PIL import Image

import crate_mae
from benchmarks.soak import sandbox
from benchmarks.soak.mutations import damaged
from benchmarks.soak.record import Budget, Row
from crate_mae.data.checking import processors
from crate_mae.errors import UserError
from crate_mae.hub.run_record import read_record
from crate_mae.training import training_state
from crate_mae.training.distributed import Processes
from crate_mae.training.optim import adamw
from crate_mae.training.run_folder import Run
from tests.training.runs import words

SECONDS = 5.0
VALUES: tuple[Any, ...] = (
    *(None, True, False, 0, 1, -1, 2, 3, 16, 10**6, 2**31, 2**63, 10**30, 10**400, -(10**400)),
    *(0.5, -0.0, 1e-46, 1e-300, 1e300, float("inf"), float("-inf"), float("nan")),
    *("", "a", "\0", "é" * 3, "x" * 10_000, "16", [], [0], [1, 2, 3], [10**400] * 3, [[[]]], {}, {"a": 1}),
    *([1e-46] * 3, [10**300] * 3, [None] * 3, [float("nan")] * 3, [10**6, 10**6], list(range(5000))),
)


def row() -> Row:
    return Row(
        "checkpoints: bytes flipped or cut, configurations of wrong types and sizes",
        "50,000 files: loads right or one sentence; never code run, never more memory than the file justifies",
        50_000,
        "files",
    )


def run(budget: Budget) -> None:
    with tempfile.TemporaryDirectory() as made:
        base = bases(Path(made))

        def make() -> sandbox.Try:
            warnings.simplefilter("ignore")
            torch.set_num_threads(1)
            place = Path(tempfile.mkdtemp(dir=made))
            return lambda number: attempt(budget.seed, number, base, place / "case")

        for report in sandbox.run(make, range(budget.row.wanted), processors(), SECONDS, lambda: budget.goes_on):
            budget.row.add(report.kind, report.seconds, report.peak)
            if report.problem:
                kept = Path(made) / "kept"
                kind = spoil(budget.seed, report.number, base, kept)
                budget.fail({"number": report.number}, f"{kind}: {report.problem}", kept)


def replay(about: dict, _: bytes) -> str | None:
    with tempfile.TemporaryDirectory() as made:
        return attempt(about["seed"], about["number"], bases(Path(made)), Path(made) / "case")[1]


def bases(place: Path) -> Path:
    """A folder with what damage begins from: an autoencoder, a classifier, and a run of a few steps."""
    from crate_mae.cli import main

    small: dict[str, Any] = {"dim": 16, "depth": 1, "heads": 2, "image_size": 16, "patch_size": 8}
    base = place / "base"
    crate_mae.create_model("crate_mae_tiny", **small).save(base / "autoencoder")
    vit = crate_mae.create_model("vit_mae_small", decoder_dim=16, decoder_depth=1, decoder_heads=2, **small)
    crate_mae.Classifier.on(vit, ["a", "b"]).save(base / "classifier")
    settings = {"steps": 2, "log_every": 1, "evaluate_every": 1, "checkpoint_every": 1, "evaluation_images": 8}
    log = os.open(place / "log", os.O_WRONLY | os.O_CREAT)
    pid = os.fork()
    if pid == 0:
        os.dup2(log, 1)
        os.dup2(log, 2)
        torch.set_num_threads(1)
        main(words(base / "run", **settings))
        os._exit(0)
    assert os.waitpid(pid, 0)[1] == 0, (place / "log").read_text()
    return base


FILES = {
    "autoencoder": ("config.json", "model.safetensors"),
    "classifier": ("config.json", "model.safetensors"),
    "run": (
        *("config.json", "metrics.jsonl", "starts.jsonl", "checkpoints/best/config.json"),
        *(f"checkpoints/step-00000002/{name}" for name in ("model.safetensors", "state.json", "config.json")),
        *(f"checkpoints/step-00000002/optimiser/{name}" for name in (".metadata", "__0_0.distcp")),
    ),
}


def spoil(seed: int, number: int, base: Path, into: Path) -> str:
    """Write the case of this number: a copy of one of the bases with one file damaged. Returns what was done."""
    chance = random.Random(f"{seed} checkpoints {number}")
    kind = chance.choice(list(FILES))
    shutil.rmtree(into, ignore_errors=True)
    shutil.copytree(base / kind, into)
    name = chance.choice(FILES[kind])
    path = into / name
    content = path.read_bytes()
    if name.endswith(".json") and chance.random() < 0.7:
        tree = json.loads(content)
        for _ in range(chance.choice((1, 1, 1, 2, 5))):
            tree = edited(tree, chance)
        path.write_text(json.dumps(tree))
        return f"{kind}: settings of {name}"
    if chance.random() < 0.05:
        path.write_bytes(pickle.dumps(Canary(str(into / "called"))))
        return f"{kind}: a pickle as {name}"
    path.write_bytes(damaged(content, chance, [content]))
    return f"{kind}: bytes of {name}"


def edited(tree: Any, chance: random.Random) -> Any:
    """A value somewhere in it is replaced, taken out or added."""
    if isinstance(tree, dict) and tree and chance.random() < 0.95:
        key = chance.choice(list(tree))
        match chance.randrange(10):
            case 0:
                return {name: value for name, value in tree.items() if name != key}
            case 1:
                return tree | {chance.choice(("surplus", "", "format", "step")): chance.choice(VALUES)}
        return tree | {key: edited(tree[key], chance)}
    if isinstance(tree, list) and tree and chance.random() < 0.7:
        place = chance.randrange(len(tree))
        return [*tree[:place], edited(tree[place], chance), *tree[place + 1 :]]
    return chance.choice(VALUES)


class Canary:
    """Unpickled, it makes a folder."""

    def __init__(self, path: str):
        self.path = path

    def __reduce__(self) -> tuple[Any, tuple[str]]:
        return os.mkdir, (self.path,)


def attempt(seed: int, number: int, base: Path, place: Path) -> tuple[str, str | None, float]:
    what = spoil(seed, number, base, place)
    kind = what.split(":")[0]
    size = sum(path.stat().st_size for path in place.rglob("*") if path.is_file())
    allowed = 64 + 8 * size / 2**20
    try:
        use_run(place) if kind == "run" else use(place)
    except UserError as error:
        if "\n" in str(error).strip() or len(str(error)) > 2000:
            return kind, f"says too much: {str(error)[:200]}", allowed
    if (place / "called").exists():
        return kind, f"code was run ({what})", allowed
    return kind, None, allowed


def use(place: Path) -> None:
    """A model that loads takes a picture."""
    model = crate_mae.load(place)
    pixels = model.preprocess(Image.new("RGB", (8, 8)))
    assert pixels.isfinite().all(), "its pixels are not finite"
    with torch.no_grad():
        model.encode(pixels[None])


def use_run(place: Path) -> None:
    """Everything that a resume and a model card read of a run."""
    run = Run(place)
    model = started()
    for read in (
        run.stored,
        run.best_step,
        lambda: run.rewind(2),
        lambda: run.series("loss"),
        lambda: read_record(place),
        lambda: crate_mae.load(place),
        lambda: training_state.restore(
            place / "checkpoints" / "step-00000002",
            model,
            adamw(model, 1e-3, 0.1),
            Processes(0, 1, torch.device("cpu")),
        ),
    ):
        try:
            read()
        except UserError as error:
            if "\n" in str(error).strip():
                raise AssertionError(f"says several lines: {error}") from None


@cache
def started() -> crate_mae.MaskedAutoencoder:
    """A model of the run's shape."""
    from crate_mae.recipes import digits
    from crate_mae.training.config import override

    config = override(digits(), ["model.dim=24", "model.heads=3"])
    return crate_mae.MaskedAutoencoder(config.model_config(), torch.Generator().manual_seed(0))
