"""crate-mae complete: many pictures, and every way to say what is masked."""

from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

import crate_mae
from crate_mae import complete
from crate_mae.cli import main
from tests.conftest import small_model
from tests.data.conftest import write


@pytest.fixture
def checkpoint(tmp_path: Path) -> str:
    return str(small_model("crate_mae_tiny").save(tmp_path / "checkpoint"))


@pytest.fixture
def masks(monkeypatch: pytest.MonkeyPatch) -> list[list[int]]:
    """The patches that each picture was completed with, in place of drawing it."""
    seen: list[list[int]] = []

    def draw(model: crate_mae.MaskedAutoencoder, picture: Path, mask: torch.Tensor, out: Path) -> float:
        seen.append(mask.nonzero().flatten().tolist())
        return 0.0

    monkeypatch.setattr(complete, "draw", draw)
    return seen


def test_several_pictures_go_to_a_folder_each_as_if_it_were_alone(
    checkpoint: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    files = [write(tmp_path / name, seed) for seed, name in enumerate(["a.png", "in/a.png", "in/deep/b.png"])]
    words = ["--checkpoint", checkpoint, "--seed", "3", "--out"]
    main(["complete", str(files[0]), str(tmp_path / "in"), *words, str(tmp_path / "out")])
    assert sorted(file.name for file in (tmp_path / "out").iterdir()) == ["a-2.png", "a.png", "b.png"]
    assert f"Wrote 3 pictures to {tmp_path / 'out'}: 9 of 12 patches masked in each" in capsys.readouterr().out
    main(["complete", str(files[1]), *words, str(tmp_path / "alone.png")])
    with Image.open(tmp_path / "alone.png") as alone, Image.open(tmp_path / "out" / "a-2.png") as together:
        assert np.array_equal(np.asarray(alone), np.asarray(together))


def test_a_bad_picture_is_reported_and_the_others_completed(
    checkpoint: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    good = [str(write(tmp_path / name)) for name in ("a.png", "c.png")]
    (tmp_path / "b.png").write_text("no image")
    given = [good[0], str(tmp_path / "b.png"), str(tmp_path / "none.png"), good[1]]

    def refuse(model: crate_mae.MaskedAutoencoder, picture: Path, mask: torch.Tensor, out: Path) -> float:
        model.preprocess(picture)
        out.write_text("drawn")
        return 0.0

    monkeypatch.setattr(complete, "draw", refuse)
    with pytest.raises(SystemExit) as stop:
        main(["complete", *given, "--checkpoint", checkpoint, "--out", str(tmp_path / "out")])
    assert stop.value.code == 2
    printed = capsys.readouterr()
    assert "b.png can't be read as an image" in printed.err
    assert "there is no image" in printed.err
    assert "2 of 4 pictures can't be completed" in printed.err
    assert "Wrote 2 pictures" in printed.out
    assert sorted(file.name for file in (tmp_path / "out").iterdir()) == ["a.png", "c.png"]


def test_every_way_to_say_what_is_masked(checkpoint: str, tmp_path: Path, masks: list[list[int]]) -> None:
    picture = str(write(tmp_path / "a.png"))  # patches are a grid of 3 x 4

    def masked(*words: str) -> list[int]:
        main(["complete", picture, "--checkpoint", checkpoint, "--out", str(tmp_path / "out.png"), *words])
        return masks[-1]

    marks = np.zeros((6, 8), dtype=np.uint8)
    marks[2:4, 2:6] = 255
    marks[4, :2] = 255  # half of patch 8
    Image.fromarray(marks).save(tmp_path / "mask.png")
    assert masked("--mask", str(tmp_path / "mask.png")) == [5, 6, 8]
    assert masked("--mask", str(tmp_path / "mask.png"), "--mask-threshold", "0.6") == [5, 6]
    assert masked("--rectangle", "0.25", "0", "0.75", "0.4") == [1, 2]
    assert masked("--rectangle", "0.25", "0", "0.75", "0.4", "--mask-threshold", "0.1") == [1, 2, 5, 6]
    expected = crate_mae.random_mask(1, 12, 0.5, torch.Generator().manual_seed(7))[0].nonzero().flatten().tolist()
    assert masked("--mask-ratio", "0.5", "--seed", "7") == expected
    assert masked() == masked("--mask-ratio", "0.75", "--seed", "0")


def test_what_contradicts_itself_gets_one_sentence(
    checkpoint: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    picture = str(write(tmp_path / "a.png"))
    (tmp_path / "empty").mkdir()
    (tmp_path / "text.png").write_text("no image")
    out = ["--checkpoint", checkpoint, "--out", str(tmp_path / "out")]
    middle = ["--rectangle", "0.2", "0.2", "0.8", "0.8"]
    cases = [
        ([picture, *out, *middle, "--mask", picture], "--mask and --rectangle each say what is masked"),
        ([picture, *out, *middle, "--mask-ratio", "0.5"], "--mask-ratio and --rectangle each say"),
        ([picture, *out, *middle, "--seed", "1"], "--seed goes with a random mask, not with --rectangle"),
        ([picture, *out, "--mask-threshold", "0.5"], "--mask-threshold goes with --mask and --rectangle"),
        ([picture, *out, "--mask", str(tmp_path / "text.png")], "text.png can't be read"),
        ([picture, *out, "--rectangle", "10", "10", "50", "50"], "from 0 to 1"),
        ([picture, *out, "--rectangle", "0.4", "0.4", "0.41", "0.41"], "covers no patch"),
        ([picture, picture, *out[:2], "--out", picture], "is a file"),
        ([str(tmp_path / "empty"), *out], "no images in"),
        ([*out], "at least one"),
    ]
    for words, expected in cases:
        with pytest.raises(SystemExit) as stop:
            main(["complete", *words])
        printed = capsys.readouterr()
        assert stop.value.code == 2
        assert expected in printed.err
        assert printed.err.count("\n") == 1


@pytest.mark.parametrize("given", [["a.png"], ["a.png", "b.png"], ["."]])
def test_no_picture_that_is_read_is_written_over(
    given: list[str],
    checkpoint: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    before = [write(tmp_path / name, seed).read_bytes() for seed, name in enumerate(["a.png", "b.png"])]
    with pytest.raises(SystemExit) as stop:
        main(["complete", *given, "--checkpoint", checkpoint, "--out", "a.png" if given == ["a.png"] else "."])
    assert stop.value.code == 2
    assert "would be written over" in capsys.readouterr().err
    assert [(tmp_path / name).read_bytes() for name in ("a.png", "b.png")] == before


def test_a_format_that_does_not_exist_leaves_the_file_as_it_is(checkpoint: str, tmp_path: Path) -> None:
    picture = write(tmp_path / "a.png", 0)
    notes = tmp_path / "notes.xyz"
    notes.write_text("mine")
    with pytest.raises(SystemExit):
        main(["complete", str(picture), "--checkpoint", checkpoint, "--out", str(notes)])
    assert notes.read_text() == "mine"
