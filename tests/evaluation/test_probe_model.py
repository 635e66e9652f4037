import json
import re
from functools import partial
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

import crate_mae
from crate_mae.cli import main
from crate_mae.data.open import open_dataset
from crate_mae.evaluation import probe_model
from crate_mae.evaluation.linear_probe import linear_probe
from crate_mae.evaluation.probe_model import open_parts
from crate_mae.features import extraction


@pytest.fixture
def checkpoint(tmp_path: Path) -> Path:
    return tiny().save(tmp_path / "checkpoint")


def tiny() -> crate_mae.MaskedAutoencoder:
    """A small model of digits with random weights, whose features tell them apart well enough."""
    return crate_mae.create_model(
        "crate_mae_tiny",
        generator=torch.Generator().manual_seed(0),
        image_size=8,
        patch_size=4,
        channels=1,
        dim=24,
        depth=2,
        heads=2,
        mean=(0.3,),
        std=(0.4,),
    )


def colours(folder: Path, splits: dict[str, dict[str, int]]) -> Path:
    """Class folders of dark red, dark green and dark blue pictures with noise."""
    rng = np.random.default_rng(0)
    for split, classes in splits.items():
        for name, count in classes.items():
            (folder / split / name).mkdir(parents=True)
            for number in range(count):
                pixels = rng.integers(0, 100, (8, 8, 3))
                pixels[..., ["red", "green", "blue"].index(name)] += 60
                Image.fromarray(pixels.astype(np.uint8)).save(folder / split / name / f"{number}.png")
    return folder


def coloured_model(kind: str, folder: Path) -> Path:
    model = crate_mae.create_model("crate_mae_tiny", image_size=8, patch_size=4, dim=24, depth=1, heads=2)
    match kind:
        case "encoder":
            return crate_mae.ImageEncoder(model.config).save(folder)
        case "classifier":
            return crate_mae.Classifier.on(model, ["one", "other"]).save(folder)
    return model.save(folder)


def test_the_command_writes_its_numbers(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    splits = {"train": {"red": 20, "green": 20, "blue": 20}, "test": {"red": 5, "green": 6, "blue": 7}}
    data, checkpoint = colours(tmp_path / "set", splits), coloured_model("autoencoder", tmp_path / "c")
    out = tmp_path / "out"
    command = ["probe", str(checkpoint), "--data", str(data), "--out", str(out), "--device", "cpu"]
    main([*command, "--layer", "all", "--pool", "both", "--pixels"])
    printed = capsys.readouterr().out
    report = json.loads((out / "probe.json").read_text())
    names = [(result["weights"], result["layer"], result["pool"]) for result in report["results"]]
    assert names == [
        *((w, layer, pool) for w in ("trained", "untrained") for layer in ("0", "-1") for pool in ("cls", "mean")),
        ("", "pixels", ""),
    ]
    for result in report["results"]:
        tests = {row["C"]: row["test"] for row in result["sweep"]}
        assert list(tests) == [0.01, 0.1, 1, 10, 100, 1e3, 1e4, 1e5]
        assert result["accuracy"] == tests[result["C"]] <= result["paper_protocol"]["accuracy"] == max(tests.values())
        assert f"{result['accuracy']:.1f} % (C = {result['C']:g})" in printed
        assert f"{result['nearest_neighbours']:.1f} %" in printed
    assert "C by validation" in printed
    assert "paper's protocol" in printed
    assert "60 training images, 18 test images" in printed
    assert "Every fit converged." in printed
    for picture in ("strengths.png", "layers.png"):
        with Image.open(out / picture) as drawn:
            assert drawn.size[0] > 500

    def refuse(*_: object, **__: object) -> None:
        raise AssertionError("computed again")

    monkeypatch.setattr(extraction, "extract", refuse)
    main([*command, "--layer", "0", "--layer", "-1"])
    again = json.loads((out / "probe.json").read_text())["results"]
    assert again == [result for result in report["results"] if result["pool"] == "mean"]


def test_the_untrained_model_is_of_the_same_architecture_and_the_seed_decides_it(
    checkpoint: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    splits = {"train": {"red": 20, "green": 20}, "test": {"red": 5, "green": 6}}
    data = colours(checkpoint.parent / "set", splits)
    command = ["probe", str(coloured_model("autoencoder", checkpoint)), "--data", str(data), "--device", "cpu"]
    rows = {}
    for seed in ("0", "1"):
        main([*command, "--seed", seed])
        assert " untrained " in capsys.readouterr().out
        rows[seed] = json.loads((checkpoint / "probe" / "set" / "probe.json").read_text())["results"]
        assert [row["weights"] for row in rows[seed]] == ["trained", "untrained"]
        features = {file.name for file in (checkpoint / "probe" / "set" / "features").iterdir()}
        assert len(features) == 4 + 2 * int(seed)  # training and test images, of one model and then of another
    main([*command, "--no-untrained"])
    assert " untrained " not in capsys.readouterr().out
    (only,) = json.loads((checkpoint / "probe" / "set" / "probe.json").read_text())["results"]
    assert only == rows["0"][0]


def test_fits_that_are_cut_short_are_named(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    data = colours(tmp_path / "set", {"train": {"red": 20, "green": 20}, "test": {"red": 5, "green": 6}})
    monkeypatch.setattr(probe_model, "linear_probe", partial(linear_probe, tol=1e-12, max_iter=1))
    main(["probe", str(coloured_model("autoencoder", tmp_path / "c")), "--data", str(data), "--no-untrained"])
    assert "Not converged: layer -1, mean: C = 0.01, 0.1, 1, 10, 100, 1000, 10000, 100000." in capsys.readouterr().out


def test_the_numbers_are_those_of_the_parts(checkpoint: Path) -> None:
    main(["probe", str(checkpoint), "--data", "digits", "--no-untrained", "--seed", "3"])
    (result,) = json.loads((checkpoint / "probe" / "digits" / "probe.json").read_text())["results"]
    model = crate_mae.load(checkpoint)
    arrays: list[np.ndarray] = []
    for split in ("train", "test"):
        source = open_dataset("digits", split) if split == "test" else open_parts("digits").train
        pixels = torch.stack([model.preprocess(source.read(index)) for index in range(len(source))])
        with torch.no_grad():
            arrays += [model.features(pixels, pool="mean").numpy(), np.array(source.labels)]
    probe = linear_probe(*arrays, seed=3)
    assert result["accuracy"] == pytest.approx(probe.accuracy, abs=0.5)
    assert result["accuracy"] > 60


@pytest.mark.parametrize("kind", ["autoencoder", "encoder", "classifier"])
def test_every_kind_of_checkpoint_and_a_folder_of_splits(
    kind: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    data = colours(tmp_path / "set", {"train": {"red": 20, "green": 20}, "test": {"red": 5, "green": 6}})
    main(["probe", str(coloured_model(kind, tmp_path / "c")), "--data", str(data), "--no-untrained", "--pixels"])
    report = json.loads((tmp_path / "c" / "probe" / "set" / "probe.json").read_text())
    assert report["model"]["kind"] == kind
    assert report["results"][1]["accuracy"] == 100  # by their pixels they are easily told apart
    assert "40 training images, 11 test images" in capsys.readouterr().out


def test_which_images_choose_and_which_are_reported_on(tmp_path: Path) -> None:
    both = {"red": 10, "green": 10}
    three = open_parts(str(colours(tmp_path / "3", {"train": both, "val": {"red": 3}, "test": both})))
    assert three.validation is not None
    assert [len(three.train), len(three.validation), len(three.test)] == [20, 3, 20]
    assert "own 3 validation images" in three.words
    assert "23 training images" in three.words
    two = open_parts(str(colours(tmp_path / "2", {"train": both, "val": {"red": 3}})))
    assert two.validation is None
    assert [len(two.train), len(two.test)] == [20, 3]
    one = open_parts(str(colours(tmp_path / "1", {"": both})))
    assert len(one.train) + len(one.test) == 20
    assert not {one.train.key(i) for i in range(len(one.train))} & {one.test.key(i) for i in range(len(one.test))}
    assert "no test split" in one.words


def test_the_sets_own_validation_images_join_the_training_images(tmp_path: Path) -> None:
    three = {"red": 6, "green": 6, "blue": 6}
    data = colours(tmp_path / "set", {"train": {"red": 6, "green": 6}, "val": three, "test": three})
    main(
        ["probe", str(coloured_model("autoencoder", tmp_path / "c")), "--data", str(data), "--no-untrained", "--pixels"]
    )
    sweep = json.loads((tmp_path / "c" / "probe" / "set" / "probe.json").read_text())["results"][1]["sweep"]
    assert sweep[0]["validation"] == pytest.approx(100 * 2 / 3)  # blue is unknown
    assert sweep[0]["test"] == 100  # blue is known


def test_classes_without_training_images_are_named_in_a_note(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    data = colours(tmp_path / "set", {"train": {"red": 10, "green": 10}, "test": {"red": 5, "blue": 4}})
    main(
        ["probe", str(coloured_model("autoencoder", tmp_path / "c")), "--data", str(data), "--no-untrained", "--pixels"]
    )
    printed = re.sub(r"\s+", " ", capsys.readouterr().out)
    assert "4 test images are of classes that have no training images; they count as errors." in printed
    results = json.loads((tmp_path / "c" / "probe" / "set" / "probe.json").read_text())["results"]
    assert results[1]["accuracy"] == pytest.approx(100 * 5 / 9)


def test_bad_input_gets_one_sentence(checkpoint: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    plain = tmp_path / "plain"
    plain.mkdir()
    for number in range(5):
        Image.new("RGB", (8, 8)).save(plain / f"{number}.png")
    one = colours(tmp_path / "one", {"train": {"red": 5}, "test": {"red": 5}})
    untrained = colours(tmp_path / "untrained", {"test": {"red": 5}})
    good = ["probe", str(checkpoint), "--data", "digits"]
    words = {
        "no labels": ["probe", str(checkpoint), "--data", str(plain)],
        "one class": ["probe", str(checkpoint), "--data", str(one)],
        "no training images": ["probe", str(checkpoint), "--data", str(untrained)],
        "no layer 7 in 2": [*good, "--layer", "7"],
        "--batch-size is 0": [*good, "--batch-size", "0"],
        "--workers is -1": [*good, "--workers", "-1"],
        "--seed is -1": [*good, "--seed", "-1"],
        "no folder": ["probe", str(checkpoint), "--data", str(tmp_path / "none")],
        "no checkpoint": ["probe", str(tmp_path), "--data", "digits"],
        "--data-root": ["probe", str(checkpoint), "--data", "cifar10", "--data-root", str(tmp_path)],
        "exists": [*good, "--out", str(plain / "0.png")],
    }
    for word, arguments in words.items():
        with pytest.raises(SystemExit) as stop:
            main(arguments)
        printed = capsys.readouterr().err
        assert stop.value.code == 2, word
        assert word in printed, word
        assert printed.count("\n") == 1, word
