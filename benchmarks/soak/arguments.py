"""Words for every verb, drawn from its own types and their edges.

A call goes through ``main`` as from a terminal, in a sandboxed worker; it ends where the verb's long work would begin.
Of those that are refused a sample is given to a real process too, which must say the same.
"""

import contextlib
import importlib
import inspect
import io
import os
import random
import subprocess
import sys
import tempfile
import warnings
from functools import cache
from pathlib import Path
from types import NoneType, UnionType
from typing import Annotated, Any, Literal, Union, get_args, get_origin, get_type_hints

import torch
from PIL import Image

import crate_mae
from benchmarks.soak import sandbox
from benchmarks.soak.record import Budget, Row
from crate_mae import recipes
from crate_mae.cli import VERBS, main
from crate_mae.cli.parsing import POSITIONAL
from crate_mae.data.checking import processors
from crate_mae.data.named import NAMED
from crate_mae.models.config import ModelConfig
from crate_mae.planning import hardware
from crate_mae.reproduce.paper_numbers import ITEMS

SECONDS = 20.0
MEGABYTES = 1024
REAL = 200
"""Of the calls with a number that this divides, the refused ones are repeated in a real process."""
LONG_WORK = (
    "bench.command.run",
    "bench.race.command.race",
    "completion.command.run",
    "data.checking.check",
    "data.packing.pack",
    "evaluation.accuracy.evaluate",
    "evaluation.predict.predict",
    "evaluation.probe_model.run",
    "export.to_onnx",
    "export.to_torch",
    "features.embed.embed",
    "models.pretrained.HubModel.push_to_hub",
    "reports.demo_command.run",
    "reports.inspect_command.run",
    "reproduce.command.run",
    "theory.command.run",
    "training.finetune.finetune",
    "training.pretrain.pretrain",
    "web.command.run",
)
"""Where a verb's own work begins."""

NUMBERS = (
    "0",
    "1",
    "-1",
    "2",
    "3",
    "7",
    "64",
    "255",
    "65535",
    "2147483648",
    "9" * 30,
    "9" * 5000,
    "1.5",
    "1e3",
    "0x10",
)
FLOATS = (*NUMBERS, "0.5", "0.75", "-0.0", "1e-46", "1e300", "1e400", "nan", "inf", "-inf", ".", "1,5")
WORDS = (
    "",
    " ",
    "a",
    "-",
    "--",
    "é",
    "日本",
    "\udcff",
    "a\0b",
    "x" * 5000,
    "a\nb",
    "$HOME",
    "%s",
    "{}",
    "[b]x[/b]",
    "a b",
)
PATHS = (
    *WORDS,
    "pictures",
    "pictures/0.png",
    "model",
    "none",
    "loop",
    "loop/x",
    "~",
    "~nobody-here/x",
    "/",
    ".",
    "..",
    "/dev/null",
)


def row() -> Row:
    return Row(
        "arguments of every verb, drawn from its own types and their edges",
        "20,000 calls; exit code 0, 1 or 2, one sentence",
        20_000,
        "calls",
    )


def run(budget: Budget) -> None:
    with tempfile.TemporaryDirectory() as made:
        place = Path(made)
        make_place(place)

        def make() -> sandbox.Try:
            prepare(place)
            return lambda number: attempt(budget.seed, number)

        for report in sandbox.run(make, range(budget.row.wanted), processors(), SECONDS, lambda: budget.goes_on):
            budget.row.add(report.kind, report.seconds, report.peak)
            if report.problem:
                given = words(budget.seed, report.number)
                budget.fail({"number": report.number, "words": given}, f"{[w[:80] for w in given]}: {report.problem}")


def replay(about: dict, _: bytes) -> str | None:
    with tempfile.TemporaryDirectory() as made:
        make_place(Path(made))
        prepare(Path(made))
        return attempt(about["seed"], about["number"])[1]


def make_place(place: Path) -> None:
    """A folder with a model, a few pictures and a link that leads to itself."""
    crate_mae.create_model("crate_mae_tiny", depth=1, dim=16, heads=2, image_size=16, patch_size=8).save(
        place / "model"
    )
    (place / "pictures").mkdir()
    for number in range(3):
        Image.new("RGB", (20, 20), (80 * number, 0, 0)).save(place / "pictures" / f"{number}.png")
    (place / "loop").symlink_to("loop")


def prepare(place: Path) -> None:
    """In the worker: no long work, no network, everything below ``place``."""
    os.chdir(place)
    os.environ |= {"HF_HUB_OFFLINE": "1", "HOME": str(place), "COLUMNS": "200"}
    warnings.simplefilter("ignore")
    torch.set_num_threads(1)
    hardware.hardware = cache(hardware.hardware)  # which measures this machine for a second
    for name in LONG_WORK:
        owner, _, function = f"crate_mae.{name}".rpartition(".")
        try:
            target: Any = importlib.import_module(owner)
        except ModuleNotFoundError:
            module, _, kind = owner.rpartition(".")
            target = getattr(importlib.import_module(module), kind)
        assert hasattr(target, function), name
        setattr(target, function, _reached)


def _reached(*_: Any, **__: Any) -> None:
    sys.exit(0)


def attempt(seed: int, number: int) -> tuple[str, str | None, float]:
    given = words(seed, number)
    kind = " ".join(given[:2]) if given[0] == "data" else given[0]
    code, said = call(given)
    problem = wrong(code, said)
    if problem is None and code == 2 and number % REAL == 0 and not any("\0" in word for word in given):
        command = [sys.executable, "-m", "crate_mae", *given]
        done = subprocess.run(command, capture_output=True, text=True, errors="backslashreplace")
        problem = wrong(done.returncode, done.stderr) or (
            None if done.stderr.splitlines()[-1:] == said.splitlines()[-1:] else f"a process says: {done.stderr[-300:]}"
        )
    return kind, problem, MEGABYTES


def call(given: list[str]) -> tuple[int, str]:
    """The exit code, and what is printed to stderr."""
    out, said = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(said):
        try:
            main(given)
        except SystemExit as stop:
            code = stop.code if isinstance(stop.code, int) else 0 if stop.code is None else 1
            return code, said.getvalue().encode("utf-8", "backslashreplace").decode()
    return 0, said.getvalue().encode("utf-8", "backslashreplace").decode()


def wrong(code: int, said: str) -> str | None:
    """What is wrong with the end of a call; None if nothing is."""
    if code not in (0, 1, 2):
        return f"exit code {code}: {said[-300:]}"
    if "Traceback" in said:
        return f"a traceback: {said[-500:]}"
    sentences = [line for line in said.splitlines() if not line.startswith("crate-mae: note: ")]
    if code == 2 and (len(sentences) != 1 or not sentences[0].startswith("crate-mae: error: ")):
        return f"no single sentence: {said[:500]}"
    return "a sentence without end" if len(said) > 20_000 else None


def words(seed: int, number: int) -> list[str]:
    """A call of a verb."""
    chance = random.Random(f"{seed} arguments {number}")
    name = chance.choice([verb for verb in VERBS if verb != "models"])  # which has no arguments, and takes seconds
    verb = VERBS[name]
    parameters, hints = inspect.signature(verb).parameters, get_type_hints(verb, include_extras=True)
    given: list[str] = []
    for each, parameter in parameters.items():
        needed = parameter.default is inspect.Parameter.empty
        if each == "download" or (chance.random() > (0.95 if needed else 0.3)):
            continue
        option = f"--{each.strip('_').replace('_', '-')}"
        values = drawn(each, hints[each], chance)
        if POSITIONAL in getattr(hints[each], "__metadata__", ()):
            given = values + given
        elif _plain(hints[each]) is bool:
            given.append(chance.choice((option, option.replace("--", "--no-"))))
        else:
            given += [option, *values]
    if chance.random() < 0.05:
        given.insert(chance.randrange(len(given) + 1), chance.choice((*WORDS, "--surplus", "--help", "-h", "--out")))
    return [*name.split(), *given]


def drawn(name: str, hint: Any, chance: random.Random) -> list[str]:
    """The words after an option: mostly of its type, now and then of none."""
    if chance.random() < 0.05:
        return [chance.choice((*WORDS, *FLOATS))]
    if name == "set_":
        return [_setting(chance)]
    good = {
        "recipe": [*recipes.PRETRAIN, *recipes.FINETUNE],
        "checkpoint": ["model", "./model", "crate-photos"],
        "second": ["model", "crate-photos"],
        "data": ["digits", "pictures", *NAMED, "owner/name", "*.tar", "none-{000..003}.tar"],
        "what": [*ITEMS, "all", "list"],
        "out": ["out", "out.png", "out.npz", "out.parquet", "out.csv", "out.onnx", "new/folder"],
        "shard_size": ["1GB", "10KB", "0", "-1GB", "1XB"],
    }
    if name in good and chance.random() < 0.8:
        return [chance.choice(good[name])]
    kind = _plain(hint)
    if get_origin(kind) is Literal:
        return [str(chance.choice(get_args(kind)))]
    if get_origin(kind) is tuple:
        inner, *rest = get_args(kind)
        count = chance.randrange(4) if rest[-1:] == [Ellipsis] else len(rest) + 1
        return [word for _ in range(count) for word in drawn("", inner, chance)]
    return [chance.choice({int: NUMBERS, float: FLOATS, Path: PATHS}.get(kind, (*WORDS, *PATHS)))]


def _plain(hint: Any) -> Any:
    """The type without marks and None."""
    while get_origin(hint) is Annotated:
        hint = get_args(hint)[0]
    if get_origin(hint) in (Union, UnionType):
        return _plain(next(option for option in get_args(hint) if option is not NoneType))
    return hint


def _setting(chance: random.Random) -> str:
    """KEY=VALUE of a run, with a value of any kind."""
    from crate_mae.training.config import FinetuneConfig, PretrainConfig

    names = [*PretrainConfig.all(), *FinetuneConfig.all(), *(f"model.{name}" for name in ModelConfig.all())]
    names += ["evaluate_every", "evaluators.reconstruction", "surplus", "model.", "", "model"]
    value = chance.choice((*FLOATS, *WORDS, "none", "true", "0.2,1", "1,2,3", "()", "[1]", "0.1,nan"))
    return f"{chance.choice(names)}{chance.choice(('=', '=', '=', '=', '==', ''))}{value}"
