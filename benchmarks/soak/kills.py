"""Runs of every kind that are killed with SIGKILL again and again, and end as the unbroken run does."""

import json
import random
import signal
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
from PIL import Image

import crate_mae
from benchmarks.soak.record import Budget, Row
from crate_mae.features import embed
from crate_mae.reproduce import command
from tests.reproduce.tiny import tiny
from tests.training.processes import Process, finish, finish_group, start, start_group
from tests.training.runs import assert_same, words
from tests.training.test_kill import OFTEN, begun

KILLS = (4, 12)
"""Of one run before it may end."""
IN_SAVES = 3
"""Every third kill waits until a save has begun."""
PATIENCE = 600.0
"""Seconds after which a process that should have ended hangs; other programs may hold the processor."""


def row() -> Row:
    return Row(
        "pretraining (named set, folder, shards, two processes), fine-tuning, `embed` and `reproduce` killed with "
        "SIGKILL at random moments, a third of them within a save",
        "500 kills; end weights bit for bit the unbroken run's (two processes: to rounding)",
        500,
        "kills",
    )


@dataclass(frozen=True)
class Kind:
    """A command that can be killed and given again."""

    command: Callable[[Path, Path], list[str]]
    """From the place of the sources and the place to write to, its words."""
    same: Callable[[Path, Path], None]
    """Asserts that two places hold the same."""
    prepare: Callable[[], None] | None = None
    processes: int = 1


def run(budget: Budget) -> None:
    chance = random.Random(f"{budget.seed} kills")
    with tempfile.TemporaryDirectory() as made:
        sources = Path(made) / "sources"
        make_sources(sources)
        wholes: dict[str, tuple[Path, float]] = {}
        number = 0
        while budget.goes_on:
            name = list(KINDS)[number % len(KINDS)]
            place = Path(made) / f"{number}"
            try:
                if name not in wholes:
                    wholes[name] = unbroken(name, sources, Path(made) / f"whole {name}")
                story(name, sources, place, *wholes[name], chance, budget)
            except AssertionError as error:
                budget.fail({"kind": name, "number": number}, f"{name}: {str(error)[:500]}", place)
            number += 1


def unbroken(name: str, sources: Path, place: Path) -> tuple[Path, float]:
    """The run that nobody kills, and its seconds."""
    began = time.monotonic()
    _end(name, sources, place)
    return place, time.monotonic() - began


def story(
    name: str, sources: Path, place: Path, whole: Path, seconds: float, chance: random.Random, budget: Budget
) -> None:
    """One run, killed several times, then left to end, and compared with the unbroken one."""
    for number in range(chance.randint(*KILLS)):
        if not budget.goes_on:
            break
        processes = _start(name, sources, place)
        began = time.monotonic()
        in_save = number % IN_SAVES == IN_SAVES - 1
        moment = chance.uniform(0, seconds / 3)
        while processes[0].is_alive() and time.monotonic() < began + PATIENCE:
            if in_save and torn(place):
                time.sleep(chance.uniform(0, 0.01))
                break
            if not in_save and time.monotonic() > began + moment:
                break
            time.sleep(0.001)
        for process in processes:
            if process.is_alive():
                process.kill()
        codes = [process.wait(PATIENCE) for process in processes]
        said = "".join(process.words for process in processes)
        assert "Traceback" not in said, said[-1000:]
        if codes[0] == 0:  # it had ended, perhaps between the last look and the kill
            break
        assert codes[0] == -signal.SIGKILL, said[-1000:]
        budget.row.add(name)
        in_parts = "killed while a temporary file was there"
        budget.row.numbers[in_parts] = str(int(budget.row.numbers.get(in_parts, "0")) + bool(torn(place)))
    began = time.monotonic()
    _end(name, sources, place)
    budget.row.worst_seconds = max(budget.row.worst_seconds, time.monotonic() - began)
    KINDS[name].same(place, whole)
    budget.row.numbers["runs compared"] = str(int(budget.row.numbers.get("runs compared", "0")) + 1)


def torn(place: Path) -> bool:
    """Whether something is being written."""
    return next(place.rglob(".*.part"), None) is not None


def _start(name: str, sources: Path, place: Path) -> list[Process]:
    kind, log = KINDS[name], place.with_name(f"{place.name}.log")
    if kind.processes > 1:
        return start_group(kind.command(sources, place), log, kind.prepare)
    return [start(kind.command(sources, place), log, kind.prepare)]


def _end(name: str, sources: Path, place: Path) -> None:
    kind, log = KINDS[name], place.with_name(f"{place.name}.log")
    if kind.processes > 1:
        codes, said = finish_group(kind.command(sources, place), log, kind.prepare)
    else:
        code, said = finish(kind.command(sources, place), log, kind.prepare)
        codes = [code]
    assert set(codes) == {0}, said[-1000:]


def make_sources(place: Path) -> None:
    """A folder of small images in two classes, the same as shards, and a model for ``embed``."""
    chance = np.random.default_rng(0)
    for number in range(120):
        folder = place / "folder" / f"class {number % 2}"
        folder.mkdir(parents=True, exist_ok=True)
        Image.fromarray(chance.integers(0, 256, (8, 8), dtype=np.uint8)).save(folder / f"{number:03d}.png")
    code, said = finish(["data", "pack", str(place / "folder"), "--out", str(place / "shards")], place / "log")
    assert code == 0, said
    crate_mae.create_model("crate_mae_tiny", depth=1, dim=24, heads=3, image_size=32).save(place / "model")


def _pretrain(data: str | None = None, **settings: object) -> Callable[[Path, Path], list[str]]:
    def command(sources: Path, place: Path) -> list[str]:
        more = ["--data", str(sources / data)] if data else []
        return words(place / "run", "--resume", *more, **OFTEN | settings)

    return command


def _finetune(sources: Path, place: Path) -> list[str]:
    return words(place / "run", "--resume", "--random", task="finetune", **OFTEN)


def _embed(sources: Path, place: Path) -> list[str]:
    place.mkdir(exist_ok=True)
    model, out = str(sources / "model"), str(place / "features.npz")
    return ["embed", str(sources / "folder"), "--checkpoint", model, "--out", out, "--batch-size", "4"]


def _reproduce(sources: Path, place: Path) -> list[str]:
    return ["reproduce", "table3", "--seeds", "1", "--processes", "1", "--out", str(place)]


def small_parts() -> None:
    """Eight images in each part of ``embed``."""
    embed.PART = 8


def tiny_scale() -> None:
    """``reproduce`` at a scale of some steps, on the digits alone."""
    small = replace(tiny(), sets=("digits",))
    command.SCALES["digits"] = lambda: small


def _same_run(place: Path, whole: Path) -> None:
    assert_same(place / "run", whole / "run")
    assert begun(place / "run") >= 1


def _same_to_rounding(place: Path, whole: Path) -> None:
    assert_same(place / "run", whole / "run", 1e-11)


def _same_features(place: Path, whole: Path) -> None:
    with np.load(place / "features.npz") as found, np.load(whole / "features.npz") as expected:
        assert sorted(found) == sorted(expected)
        for name in ("features", "labels", "paths"):
            assert np.array_equal(found[name], expected[name]), name
    assert not torn(place)
    assert not list(place.glob("*.parts"))


def _same_table(place: Path, whole: Path) -> None:
    found, expected = (json.loads((path / "table3" / "table3.json").read_text()) for path in (place, whole))
    assert found["cells"] == expected["cells"]


KINDS: dict[str, Kind] = {
    "pretrain": Kind(_pretrain(), _same_run),
    "folder": Kind(_pretrain("folder", evaluation_images=6), _same_run),
    "finetune": Kind(_finetune, _same_run),
    "shards": Kind(_pretrain("shards", evaluation_images=6), _same_run),
    "two processes": Kind(_pretrain(precision="float64"), _same_to_rounding, processes=2),
    "embed": Kind(_embed, _same_features, small_parts),
    "reproduce": Kind(_reproduce, _same_table, tiny_scale),
}
