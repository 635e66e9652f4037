"""One small reproduction of everything, shared by the tests of this folder."""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from types import SimpleNamespace

import pytest
from matplotlib.figure import Figure
from PIL import Image
from rich.console import Console

from crate_mae import figures
from crate_mae.data import named_layouts
from crate_mae.data.named_layouts import Digits, split_digits
from crate_mae.evaluation import probe_model
from crate_mae.reproduce import command, run_tasks
from crate_mae.reproduce.command import run
from crate_mae.reproduce.tasks import Place
from crate_mae.training import launch
from tests.reproduce.tiny import tiny


@dataclass
class Reproduced:
    """The place of ``reproduce all`` at the tiny scale with one seed, and the runs that were trained for it."""

    place: Place
    trained: list[str]


def without_pictures_of_runs(patch: pytest.MonkeyPatch) -> None:
    """Skip the curves of runs and probes, which have their own tests: here they would take most of the time."""
    nothing = SimpleNamespace(save=lambda *_: None, strengths=lambda *_: None, probe_by_layer=lambda *_: None)
    patch.setattr(launch, "draw_curves", lambda *_: None)
    patch.setattr(probe_model, "figures", nothing)


def fewer_pictures(patch: pytest.MonkeyPatch) -> None:
    """Write blank files for figures that the same code draws as figures 6 and 7."""
    save = figures.save

    def save_some(figure: Figure, path: Path) -> Path:
        if path.parent.name in ("figure8", "figure9", "figure10", "figure11") or "visible" in path.name:
            Image.new("L", (400, 400)).save(path)
            return path
        return save(figure, path)

    patch.setattr(command.figures, "save", save_some)


def few_digits(patch: pytest.MonkeyPatch) -> None:
    """Every sixth digit."""
    patch.setattr(named_layouts, "split_digits", lambda: Digits(*(part[::6] for part in split_digits())))


def quick_probes(patch: pytest.MonkeyPatch) -> None:
    """Two values of C, not six."""
    patch.setattr(probe_model, "linear_probe", partial(probe_model.linear_probe, strengths=(1.0, 100.0)))


def count_trainings(patch: pytest.MonkeyPatch) -> list[str]:
    """The folders of the runs that are trained from here on."""
    trained: list[str] = []
    whole = run_tasks.train

    def train(config, folder, *rest):  # type: ignore[no-untyped-def]
        trained.append(folder.name)
        whole(config, folder, *rest)

    patch.setattr(run_tasks, "train", train)
    return trained


@pytest.fixture(scope="package")
def reproduced(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Reproduced]:
    with pytest.MonkeyPatch.context() as patch:
        few_digits(patch)
        fewer_pictures(patch)
        quick_probes(patch)
        without_pictures_of_runs(patch)
        trained = count_trainings(patch)
        place = Place(tmp_path_factory.mktemp("reproduce"), tiny(), None, "cpu")
        run("all", place, 1, 1, Console(quiet=True))
        yield Reproduced(place, trained)


@pytest.fixture
def out(tmp_path: Path) -> Path:
    return tmp_path / "reproduce"
