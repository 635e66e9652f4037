"""The desk's scale on small images: equal processor time, its numbers, and campaigns that stop and continue."""

import json
import time
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image
from rich.console import Console

import crate_mae
from crate_mae.bench.race.images import batch, load
from crate_mae.bench.race.recipes import Course, Recipe
from crate_mae.cli import main
from crate_mae.errors import UserError
from crate_mae.reproduce import campaign, desk_measurements
from crate_mae.reproduce.campaign import RECORD, Machine, planned
from crate_mae.reproduce.command import run
from crate_mae.reproduce.desk import SOURCE, desk
from crate_mae.reproduce.desk_measurements import DeskProbed, DeskReconstructed
from crate_mae.reproduce.desk_tasks import Decoded, digest
from crate_mae.reproduce.desk_trainings import DONE, DeskFinetuned, DeskPretrained
from crate_mae.reproduce.paper_numbers import SETS
from crate_mae.reproduce.scales import Model, Scale
from crate_mae.reproduce.tables_1_to_6 import table2
from crate_mae.reproduce.tasks import Place, Task

QUIET = Console(quiet=True)
BASE = Model("crate", "base", SOURCE, 0)
SHAPE = {"dim": 16, "depth": 1, "heads": 2}
SECONDS = 0.3


def small_desk(pretrain_seconds: float = SECONDS, speed: float = 1.0, sets: tuple[str, ...] = ("cifar10",)) -> Scale:
    """The desk with 8 x 8 images, one small shape for all, and one set."""
    scale = desk(pretrain_seconds, speed)
    assert scale.timed is not None
    timed = replace(
        scale.timed,
        recipes={
            key: replace(recipe, batch=8, settings=dict(recipe.settings) | SHAPE)
            for key, recipe in scale.timed.recipes.items()
        },
        courses={data: Course(data, image_size=8, patch_size=2, stored_size=8) for data in (SOURCE, *SETS)},
    )
    return replace(scale, sets=sets, images=8, timed=timed)


@pytest.fixture(scope="module")
def data_root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Bright and dark images in class folders."""
    root = tmp_path_factory.mktemp("data")
    rng = np.random.default_rng(0)
    for data, test in ((SOURCE, "val"), ("cifar10", "test")):
        for split, count in (("train", 60), (test, 20)):
            for number in range(count):
                pixels = rng.integers(0, 128, (8, 8, 3)) + 127 * (number % 2)
                path = root / data / split / ("dark", "bright")[number % 2] / f"{number}.png"
                path.parent.mkdir(parents=True, exist_ok=True)
                Image.fromarray(pixels.astype(np.uint8)).save(path)
    return root


@pytest.fixture(autouse=True)
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(campaign, "desk", small_desk)
    monkeypatch.setattr(campaign, "measured", lambda: Machine(campaign.REFERENCE_SPEED, 1.0))
    monkeypatch.setattr(
        desk_measurements, "linear_probe", partial(desk_measurements.linear_probe, strengths=(1.0, 100.0))
    )


@pytest.fixture
def place(tmp_path: Path, data_root: Path) -> Place:
    place = Place(tmp_path / "out", small_desk(), data_root, "cpu")
    place.out.mkdir()
    (place.out / RECORD).write_text(json.dumps({"pretrain_seconds": SECONDS}))
    return place


def cells(place: Place, name: str) -> dict[tuple[str, str], dict]:
    record = json.loads((place.out / name / f"{name}.json").read_text())
    return {(cell["row"], cell["column"]): cell for cell in record["cells"]}


def test_models_are_shared_and_have_the_same_processor_time(place: Place) -> None:
    for name in ("table2", "table3", "table4", "figure6"):
        run(name, place, 1, 1, QUIET)
    folders = [path.parent for path in (place.out / "models").glob(f"*/{DONE}")]
    tuned = [path for path in folders if "tuned" in path.name or "random" in path.name]
    # 3 forms x 2 sizes, and the figures' two with another lambda; table 3 adds random weights of two forms.
    assert len(folders) - len(tuned) == 6 + 2
    assert len(tuned) == 6 + 2
    for path in folders:
        seconds = SECONDS / 3 if path in tuned else SECONDS
        used = json.loads((path / DONE).read_text())["processor_seconds"]
        assert seconds <= used < seconds + 0.5  # the last step may end later
    assert not list((place.out / "models").glob("*/checkpoint.pt"))
    assert (place.out / "figure6" / "figure6.png").is_file()
    _numbers_are_those_of_the_models(place)


def _numbers_are_those_of_the_models(place: Place) -> None:
    images = load(place.out / "images" / "cifar10")
    classifier = crate_mae.load(DeskFinetuned(BASE, "cifar10").beside(place))
    with torch.no_grad():
        guesses = classifier(batch(images.test, np.arange(20), classifier.config)).argmax(-1).numpy()
    right = 100 * float((guesses == images.test_labels).mean())
    assert cells(place, "table2")["fine-tuning, CIFAR10", "CRATE-B"]["values"] == [right]
    assert cells(place, "table3")["CRATE-B (trained)", "CIFAR10"]["values"] == [right]
    probe = json.loads(DeskProbed(BASE, "cifar10").file(place).read_text())
    assert [result["pool"] for result in probe["results"]] == ["cls", "mean"]
    row = "probing, CIFAR10, mean of patches, C by validation"
    assert cells(place, "table2")[row, "CRATE-B"]["values"] == [probe["results"][1]["accuracy"]]
    losses = json.loads(DeskReconstructed(BASE).file(place).read_text())
    found = cells(place, "table4")
    assert found["tiny_imagenet, CRATE-B", "validation loss"]["values"] == [losses["val_loss"]]
    assert found["tiny_imagenet, CRATE-B", "training loss"]["values"] == [losses["train_loss"]]
    assert found["ImageNet-1K, CRATE-B", "training loss"]["note"] == "not run: for --scale full"


def test_the_forms_are_those_of_the_paper_and_ours() -> None:
    timed = desk().timed
    assert timed is not None
    shapes = {key: timed.courses[SOURCE].config(timed.recipe(Model(*key, SOURCE, 0))) for key in timed.recipes}
    paper, residual, vit = (shapes[variant, "base"] for variant in ("crate", "residual", "vit"))
    assert (paper.encoder_sees, paper.encoder_skip, paper.preset) == ("all", "none", "paper")
    assert (paper.decoder_dim, paper.decoder_depth) == (paper.dim, paper.depth)
    assert (residual.encoder_sees, residual.encoder_skip) == ("visible", "added")
    assert (paper.eta, paper.lambda_) == (residual.eta, residual.lambda_) == (0.1, 0.5)
    assert (paper.dim, paper.depth) == (residual.dim, residual.depth) == (vit.dim, vit.depth)
    assert vit.family == "vit"
    assert timed.recipe(replace(BASE, lambda_=5.0, mask_ratio=0.25)).mask_ratio == 0.25


def test_a_training_that_meets_the_deadline_continues_from_there(place: Place) -> None:
    task = DeskPretrained(BASE)
    place = replace(place, scale=small_desk(1.0))
    Decoded(SOURCE).run(place)
    task.run(replace(place, deadline=time.time() + 0.5))
    assert not task.is_done(place)
    state = torch.load(task.folder(place) / "checkpoint.pt", weights_only=True)["state"]
    assert 0 < state["used"] < 1.0
    assert 0 < (task.share_done(place) or 0) < 1
    task.run(place)
    done = json.loads((task.folder(place) / DONE).read_text())
    assert done["steps"] > state["step"]
    assert done["processor_seconds"] == pytest.approx(1.0, abs=0.5)


def test_what_is_not_run_says_what_it_takes(place: Place) -> None:
    place = replace(place, scale=small_desk(600.0))
    (place.out / RECORD).write_text(json.dumps({"pretrain_seconds": 600.0}))
    run("table2", place, 3, 1, QUIET, hours=0)
    cell = cells(place, "table2")["fine-tuning, CIFAR10", "CRATE-B"]
    assert cell["paper"] == 96.8
    assert cell["values"] == []
    minutes = sum(task.seconds(place) or 0 for task in (Decoded(SOURCE), Decoded("cifar10"), DeskPretrained(BASE)))
    minutes += DeskFinetuned(BASE, "cifar10").seconds(place)
    assert cell["note"] == f"not run: {minutes / 60:.0f} min of one core"
    assert cells(place, "table2")["probing, CIFAR10, mean of patches, C by validation", "CRATE-B residual"]["note"]
    missing = small_desk(600.0, sets=("flowers102",))
    assert table2(missing, 1).measured(replace(place, scale=missing), 1).cells[0].note == "not run: data missing"


def test_the_hours_decide_the_seconds_once(tmp_path: Path, data_root: Path) -> None:
    place = Place(tmp_path, small_desk(), data_root, "cpu")

    def wanted(scale: Scale) -> list[Task]:
        return list(table2(scale, 2).tasks)

    def total(place: Place) -> float:
        measured = set(wanted(place.scale))  # a probe serves several cells
        trained = {DeskPretrained(task.model) for task in measured}
        return sum(task.seconds(place) or 0 for task in {*measured, *trained, Decoded(SOURCE), Decoded("cifar10")})

    for hours, words in ((0.05, r"too short .* Choose --hours 0\.[1-9] or more"), (0, "no campaign in")):
        with pytest.raises(UserError, match=words):
            planned(place, wanted, hours, 2, QUIET)
    assert not (tmp_path / RECORD).exists()
    before = time.time()
    long = planned(place, wanted, 3.0, 2, QUIET)
    assert total(long) == pytest.approx(campaign.PLANNED * 3 * 3600 * 2, rel=0.01)
    assert long.deadline == pytest.approx(before + 3 * 3600, abs=60)
    again = planned(place, wanted, 1.0, 2, QUIET)
    assert again.scale.timed == long.scale.timed
    assert planned(place, wanted, None, 2, QUIET).deadline is None


def test_a_setting_with_its_default_changes_no_name() -> None:
    recipe, course = Recipe("crate", "crate_mae_tiny", {}, learning_rate=1e-3), Course("cifar10", 32, 4, 32)

    @dataclass(frozen=True)
    class Later(Recipe):
        added: float = 0.5

    later = Later("crate", "crate_mae_tiny", {}, learning_rate=1e-3)
    assert digest([recipe, course], 60.0) == digest([later, course], 60.0)
    assert digest([later, course], 60.0) != digest([replace(later, added=0.4), course], 60.0)
    assert digest([recipe, course], 60.0) != digest([recipe, course], 61.0)


def test_one_seed_of_everything_comes_first(place: Place) -> None:
    tasks = sorted(table2(place.scale, 3).tasks, key=lambda task: task.order)
    assert [task.model.seed for task in tasks] == sorted(task.model.seed for task in tasks)
    varied = [DeskPretrained(replace(BASE, lambda_=5.0)), DeskFinetuned(BASE, "cifar10"), DeskPretrained(BASE)]
    assert sorted(varied, key=lambda task: task.order) == [varied[2], varied[0], varied[1]]


def test_hours_are_for_the_desk(tmp_path: Path) -> None:
    for words in (["--scale", "digits", "--hours", "1"], ["--hours", "-1"]):
        with pytest.raises(SystemExit) as stop:
            main(["reproduce", "table4", "--out", str(tmp_path), *words])
        assert stop.value.code == 2
