"""Every table and figure, at a scale of two steps; finished work is not repeated."""

import csv
import io
import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image
from rich.console import Console

import crate_mae
from crate_mae.cli import main
from crate_mae.data.open import open_dataset
from crate_mae.reproduce import run_tasks
from crate_mae.reproduce.command import run
from crate_mae.reproduce.paper_numbers import ITEMS
from crate_mae.reproduce.run_tasks import Finetuned, Pretrained, Reconstructed
from crate_mae.reproduce.scales import Model
from crate_mae.reproduce.schedule import open_tasks
from crate_mae.reproduce.tasks import Place
from tests.reproduce.conftest import Reproduced, count_trainings, without_pictures_of_runs
from tests.reproduce.tiny import tiny

QUIET = Console(quiet=True)


def record(place: Place, name: str) -> dict:
    return json.loads((place.out / name / f"{name}.json").read_text())


@pytest.mark.parametrize("name", ITEMS)
def test_each_writes_its_files_and_they_agree(reproduced: Reproduced, name: str) -> None:
    folder = reproduced.place.out / name
    stored = record(reproduced.place, name)
    assert stored["label"] == ITEMS[name].label
    assert stored["seeds"] == 1
    rows = list(csv.DictReader(io.StringIO((folder / f"{name}.csv").read_text())))
    assert len(rows) == len(stored["cells"]) > 0
    for row, cell in zip(rows, stored["cells"], strict=True):
        assert (float(row["ours"]) if row["ours"] else None) == cell["ours"]
        assert np.isfinite(cell["values"]).all()
        assert cell["values"] or cell["note"]
    words = (folder / f"{name}.md").read_text()
    assert words.startswith(f"## {stored['title']}")
    assert f"## {stored['title']}" in (reproduced.place.out / "results.md").read_text()
    pictures = sorted(folder.glob("*.png"))
    assert pictures
    for picture in pictures:
        assert f"]({picture.name})" in words
        with Image.open(picture) as opened:
            assert min(opened.size) > 300


def test_each_model_is_trained_once(reproduced: Reproduced) -> None:
    trained = reproduced.trained
    assert len(trained) == len(set(trained))
    pretrained = [name for name in trained if "tuned" not in name and "random" not in name]
    # 2 sizes x 3 kinds, then tables 5 and 6 for two kinds: 4 + 3 models, of which lambda 0.5 and one other are shared;
    # and the baseline of the figures is that of the tables.
    assert len(pretrained) == 6 + 2 * (4 + 1)
    assert len(trained) - len(pretrained) == 6 + 1


def test_a_second_time_nothing_is_trained_or_measured(reproduced: Reproduced, monkeypatch: pytest.MonkeyPatch) -> None:
    before = len(reproduced.trained)
    monkeypatch.setattr(run_tasks, "probe", lambda *_: pytest.fail("probed again"))
    run("table5", reproduced.place, 1, 1, QUIET)
    run("table2", reproduced.place, 1, 1, QUIET)
    assert len(reproduced.trained) == before


def test_the_share_of_a_training_is_read_off_its_metrics(reproduced: Reproduced, out: Path) -> None:
    for task in (Pretrained(Model("vit", "base", "digits", 0)), Finetuned(Model("vit", "base", "digits", 0), "digits")):
        assert task.share_done(reproduced.place) == 1.0
        assert task.share_done(replace(reproduced.place, out=out)) == 0.0


def test_numbers_are_those_of_the_models(reproduced: Reproduced) -> None:
    place = reproduced.place
    model = Model("vit", "small", "digits", 0)
    classifier = crate_mae.load(Finetuned(model, "digits").folder(place))
    source = open_dataset("digits", "test")
    images = torch.stack([classifier.preprocess(source.read(index)) for index in range(len(source))])
    labels = torch.tensor([source.label(index) for index in range(len(source))])
    with torch.no_grad():
        right = int((classifier(images).argmax(-1) == labels).sum())
    cells = {(cell["row"], cell["column"]): cell for cell in record(place, "table2")["cells"]}
    assert cells["fine-tuning, digits", "ViT-MAE-S"]["values"] == [pytest.approx(100 * right / len(source))]


def test_table_4_is_the_error_on_masked_patches(reproduced: Reproduced) -> None:
    place = reproduced.place
    model = Model("crate", "base", "digits", 0)
    cells = {(cell["row"], cell["column"]): cell for cell in record(place, "table4")["cells"]}
    stored = json.loads(Reconstructed(model).file(place).read_text())
    assert cells["digits, CRATE-B", "training loss"]["values"] == [stored["train_loss"]]
    assert cells["digits, CRATE-B", "validation loss"]["values"] == [stored["val_loss"]]
    autoencoder = crate_mae.load(Pretrained(model).folder(place))
    source = open_dataset("digits", "test")
    images = torch.stack([autoencoder.preprocess(source.read(index)) for index in range(len(source))])
    mask = crate_mae.random_mask(len(images), autoencoder.num_patches, 0.75, torch.Generator().manual_seed(1))
    with torch.no_grad():  # other masks, so only near
        assert autoencoder(images, mask).loss.item() == pytest.approx(stored["val_loss"], rel=0.1)
    imagenet = cells["ImageNet-1K, CRATE-B", "training loss"]
    assert (imagenet["paper"], imagenet["ours"], imagenet["note"]) == (0.265, None, "not run: for --scale full")


def test_a_set_of_another_scale_is_reported(reproduced: Reproduced) -> None:
    for name, row, column in (
        ("table2", "fine-tuning, CIFAR10", "ViT-MAE-B"),
        ("table3", "CRATE-B (random init)", "CIFAR10"),
        ("table5", "CRATE-B, probing, CIFAR10, class token, best C on test", "50% masked"),
    ):
        cells = {(cell["row"], cell["column"]): cell for cell in record(reproduced.place, name)["cells"]}
        cell = cells[row, column]
        assert cell["note"] == "not run: for --scale desk"
        assert cell["values"] == []
        assert cell["paper"] in (98.5, 85.1, 75.97)


class Stopped(Exception):
    pass


def test_it_continues_where_it_was_stopped(out: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    without_pictures_of_runs(monkeypatch)
    trained = count_trainings(monkeypatch)
    counted = run_tasks.train

    def breaks(config, folder, *rest):  # type: ignore[no-untyped-def]
        if len(trained) == 2:
            raise Stopped
        counted(config, folder, *rest)

    place = Place(out, tiny(), None, "cpu")
    with monkeypatch.context() as broken:
        broken.setattr(run_tasks, "train", breaks)
        with pytest.raises(Stopped):
            run("table4", place, 1, 1, QUIET)
    assert not (out / "table4").exists()
    first = list(trained)
    assert len(first) == 2
    run("table4", place, 1, 1, QUIET)
    assert len(trained) == len(set(trained)) == 3


def test_an_incomplete_result_is_measured_again(reproduced: Reproduced) -> None:
    task = Reconstructed(Model("vit", "base", "digits", 0))
    file = task.file(reproduced.place)
    whole = file.read_text()
    file.write_text(whole[:10])
    assert open_tasks([task], reproduced.place) == [task]
    task.run(reproduced.place)
    assert file.read_text() == whole


@pytest.mark.slow
def test_two_processes_side_by_side(out: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    place = Place(out, tiny(), None, "cpu")
    run("table4", place, 1, 2, QUIET)
    assert len(list((out / "models").iterdir())) == 3
    trained = count_trainings(monkeypatch)
    run("table4", place, 1, 1, QUIET)
    assert not trained


def test_another_configuration_has_another_folder(out: Path) -> None:
    place = Place(out, tiny(), None, "cpu")
    model = Model("crate", "base", "digits", 0)
    folders = {
        Pretrained(model).folder(place),
        Pretrained(replace(model, seed=1)).folder(place),
        Pretrained(replace(model, lambda_=5.0)).folder(place),
        Pretrained(replace(model, mask_ratio=0.5)).folder(place),
        Finetuned(model, "digits").folder(place),
        Finetuned(model, "digits", random=True).folder(place),
    }
    longer = {key: replace(config, steps=3) for key, config in place.scale.pretrain.items()}
    folders.add(Pretrained(model).folder(replace(place, scale=replace(place.scale, pretrain=longer))))
    assert len(folders) == 7
    elsewhere = replace(place, data_root=Path("elsewhere"))
    assert Pretrained(model).folder(elsewhere) == Pretrained(model).folder(place)
    moved = replace(place, out=out / "moved")
    assert Finetuned(model, "digits").folder(moved).name == Finetuned(model, "digits").folder(place).name


def test_table_1_by_the_command_line(out: Path, capsys: pytest.CaptureFixture[str]) -> None:
    main(["reproduce", "table1", "--out", str(out)])
    stored = json.loads((out / "table1" / "table1.json").read_text())
    cells = {(cell["row"], cell["column"]): cell for cell in stored["cells"]}
    exact = {
        ("Small (-S)", "CRATE, authors' layout"): 25_405_824,
        ("Base (-B)", "CRATE, authors' layout"): 44_638_464,
        ("Small (-S)", "ViT-MAE, authors' layout"): 47_578_240,
        ("Base (-B)", "ViT-MAE, authors' layout"): 143_790_336,
    }
    for key, count in exact.items():
        assert cells[key]["values"] == [count / 1e6]
        assert round(count / 1e6, 1) == cells[key]["paper"]
    assert cells["Base (-B)", "d"]["values"] == [768] == [cells["Base (-B)", "d"]["paper"]]
    assert "paper 143.8" in capsys.readouterr().out


def test_list_names_every_item(capsys: pytest.CaptureFixture[str]) -> None:
    main(["reproduce", "list"])
    printed = capsys.readouterr().out
    assert all(f"{name} " in printed for name in ITEMS)
    assert len(ITEMS) == 6 + 11


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["tabel6"], "did you mean table6"),
        (["xyz"], "list names them"),
        (["table4", "--seeds", "0"], "--seeds"),
        (["table4", "--processes", "0"], "--processes"),
        (["table4", "--hours", "-1"], "--hours"),
        (["table4", "--hours", "1"], "--scale desk"),
    ],
)
def test_wrong_arguments_give_a_sentence(
    words: list[str], said: str, out: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as stop:
        main(["reproduce", *words, "--out", str(out)])
    assert stop.value.code == 2
    assert said in capsys.readouterr().err
