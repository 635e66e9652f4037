import csv
import errno
import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch

from crate_mae.cli import main
from crate_mae.data.folders import list_images
from crate_mae.data.source import Files
from crate_mae.errors import UserError
from crate_mae.evaluation.predict import Prediction, predict, write_predictions
from crate_mae.models.classifier import Classifier
from tests.conftest import small_model
from tests.data.conftest import write

NAMES = ["cat", "dog, large", 'a "fox"', "gnu", "hen", "ibis", "jay"]


@pytest.fixture
def model() -> Classifier:
    classifier = Classifier.on(small_model("crate_mae_tiny"), NAMES, torch.Generator().manual_seed(3)).eval()
    with torch.no_grad():
        classifier.head.weight *= 5
    return classifier


@pytest.fixture
def photos(tmp_path: Path) -> Path:
    for number, name in enumerate(["b.png", "a.jpg", "deep/er/c.PNG", "deep/a, \n.png", "notes.txt", ".hidden.png"]):
        write((tmp_path / "photos" / name).with_suffix(".png"), number).rename(tmp_path / "photos" / name)
    return tmp_path / "photos"


def test_probabilities_are_the_softmax_of_the_scores(model: Classifier, photos: Path) -> None:
    found = list(predict(model, Files(list_images([photos])), top=3, batch_size=3))
    assert [Path(each.image).name for each in found] == ["a.jpg", "b.png", "a, \n.png", "c.PNG"]
    for each in found:
        with torch.no_grad():
            scores = model(model.preprocess(each.image)[None])[0]
        shares = dict(zip(NAMES, (scores.exp() / scores.exp().sum()).tolist(), strict=True))
        best = sorted(NAMES, key=shares.__getitem__, reverse=True)[:3]
        assert [name for name, _ in each.classes] == best
        assert [share for _, share in each.classes] == pytest.approx([shares[name] for name in best], abs=1e-5)


def test_files_and_folders_come_in_the_order_given(photos: Path) -> None:
    text = photos / "notes.txt"  # named itself, it is taken for an image whatever its suffix
    files = list_images([photos / "deep", text, photos / "a.jpg", photos / "a.jpg"])
    assert [file.name for file in files] == ["a, \n.png", "c.PNG", "notes.txt", "a.jpg", "a.jpg"]


def test_more_classes_than_there_are(model: Classifier, photos: Path) -> None:
    (only,) = predict(model, Files(list_images([photos / "b.png"])), top=50)
    assert isinstance(only, Prediction)
    assert len(only.classes) == 7
    assert sum(share for _, share in only.classes) == pytest.approx(1)
    with pytest.raises(UserError, match="top is 0"):
        list(predict(model, Files(list_images([photos])), top=0))


def test_a_bad_image_is_noted_and_the_others_predicted(
    model: Classifier, photos: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    checkpoint = str(model.save(tmp_path / "checkpoint"))
    for number in range(12):
        (photos / f"aa{number}.png").write_text("no image")
    words = ["predict", str(photos), "--checkpoint", checkpoint, "--batch-size", "2", "--top", "2"]
    with pytest.raises(SystemExit) as stop:
        main(words)
    printed = capsys.readouterr()
    assert stop.value.code == 1
    assert printed.err.count("can't be read as an image") == 12
    assert "12 of 16 images can't be read." in printed.err
    assert f"{photos / 'b.png'}: " in printed.out
    assert printed.out.count(" %") == 4 * 2
    with pytest.raises(SystemExit) as stop:
        main([*words, "--out", str(tmp_path / "out.csv")])
    assert stop.value.code == 1
    assert capsys.readouterr().out == f"Wrote {tmp_path / 'out.csv'}: 4 images.\n"


def test_csv_and_json_hold_the_same(model: Classifier, photos: Path, tmp_path: Path) -> None:
    checkpoint = str(model.save(tmp_path / "checkpoint"))
    files = [tmp_path / "new" / "out.csv", tmp_path / "out.json"]
    for file in files:
        main(["predict", str(photos), "--checkpoint", checkpoint, "--out", str(file)])
    with files[0].open(newline="") as file:
        rows = list(csv.DictReader(file))
    stored = json.loads(files[1].read_text())
    flat = [
        (each["image"], rank, found["class"], found["probability"])
        for each in stored
        for rank, found in enumerate(each["classes"], start=1)
    ]
    assert len(rows) == len(flat) == 4 * 5
    assert set(NAMES[1:3]) & {row["class"] for row in rows}
    assert {each["image"] for each in stored} == set(map(str, list_images([photos])))
    for row, (image, rank, name, share) in zip(rows, flat, strict=True):
        assert (row["image"], int(row["rank"]), row["class"]) == (image, rank, name)
        assert float(row["probability"]) == pytest.approx(share, rel=1e-5)


@pytest.mark.parametrize("name", ["old.csv", "old.json"])
def test_a_table_that_is_not_finished_leaves_the_old_one(tmp_path: Path, name: str) -> None:
    def interrupted() -> Iterator[Prediction]:
        yield Prediction("a.png", (("cat", 1.0),))
        raise OSError(errno.ENOSPC, "no space")

    (tmp_path / name).write_text("old")
    with pytest.raises(OSError, match="no space"):
        write_predictions(interrupted(), tmp_path / name)
    assert (tmp_path / name).read_text() == "old"
    assert [file.name for file in tmp_path.iterdir()] == [name]


def test_what_can_not_be_predicted_gets_one_sentence(
    model: Classifier, photos: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    good = ["--checkpoint", str(model.save(tmp_path / "checkpoint"))]
    autoencoder = str(small_model("crate_mae_tiny").save(tmp_path / "autoencoder"))
    (tmp_path / "empty").mkdir()
    cases = [
        ([str(photos), "--checkpoint", autoencoder], "crate-mae finetune"),
        ([str(tmp_path / "none.png"), *good], "no image or folder"),
        ([str(tmp_path / "empty"), *good], "no images in"),
        ([*good], "at least one"),
        ([str(photos), *good, "--out", "out.xlsx"], "neither .csv nor .json"),
        ([str(photos), *good, "--top", "0"], "--top is 0"),
        ([str(photos), *good, "--batch-size", "0"], "--batch-size is 0"),
    ]
    for words, expected in cases:
        with pytest.raises(SystemExit) as stop:
            main(["predict", *words])
        printed = capsys.readouterr()
        assert stop.value.code == 2
        assert expected in printed.err + printed.out


def test_a_reader_that_has_seen_enough(model: Classifier, photos: Path, tmp_path: Path) -> None:
    """predict .. | head must not end in words about a broken pipe."""
    checkpoint = str(model.save(tmp_path / "checkpoint"))
    words = [sys.executable, "-m", "crate_mae", "predict", *[str(photos)] * 60, "--checkpoint", checkpoint]
    with subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        assert process.stdout
        assert process.stderr
        process.stdout.readline()
        process.stdout.close()
        assert process.stderr.read() == b""
