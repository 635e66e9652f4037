"""crate-mae complete: photographs at their own size, many pictures, and every way to say what is masked."""

import re
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image
from sklearn.datasets import load_sample_image

import crate_mae
from crate_mae.cli import main
from crate_mae.completion import command as complete
from crate_mae.completion.inpaint import Filled
from crate_mae.completion.patches import Plan
from crate_mae.completion.photo import Photo
from tests.conftest import small_model
from tests.data.conftest import write


@pytest.fixture
def checkpoint(tmp_path: Path) -> str:
    return str(small_model("crate_mae_tiny").save(tmp_path / "checkpoint"))


@pytest.fixture
def plans(monkeypatch: pytest.MonkeyPatch) -> list[Plan]:
    """What each picture was completed with, in place of doing it."""
    seen: list[Plan] = []

    def instead(photo: Photo, plan: Plan, model: crate_mae.MaskedAutoencoder) -> Filled:
        seen.append(plan)
        return Filled(photo, 0.0)

    monkeypatch.setattr(complete, "inpaint", instead)
    return seen


def photograph(path: Path, scale: int = 4) -> Path:
    """One of scikit-learn's pictures, 160 x 107."""
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.fromarray(load_sample_image("flower.jpg")[::scale, ::scale]).save(path)
    return path


@pytest.mark.parametrize("name", ["filled.png", "filled.jpg", "filled"])
def test_a_photograph_comes_back_at_its_own_size_with_the_rest_untouched(
    name: str, checkpoint: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    photo, out = photograph(tmp_path / "photo.png"), tmp_path / "new folder" / name
    words = ["--checkpoint", checkpoint, "--rectangle", "0.25", "0.25", "0.5", "0.5", "--out", str(out)]
    main(["complete", str(photo), *words])
    with Image.open(photo) as before, Image.open(out) as after:
        assert after.size == before.size == (160, 107)
        assert after.format == ("JPEG" if name.endswith("jpg") else "PNG")
        old, new = np.asarray(before), np.asarray(after)
    inside = np.zeros((107, 160), dtype=bool)
    inside[27:53, 40:80] = True
    assert (new[inside] != old[inside]).mean() > 0.5
    if after.format == "PNG":
        assert (new[~inside] == old[~inside]).all()
    printed = capsys.readouterr()
    said = re.escape(f"Wrote {out}: 160 x 107 pixels, 6.1 % of them completed by ") + r"\d+ tiles?, error \d"
    assert re.match(said, printed.out)
    assert not printed.err


def test_a_sheet_shows_the_panels(checkpoint: str, tmp_path: Path) -> None:
    for number in range(2):
        photograph(tmp_path / "in" / f"{number}.png")
    words = ["--checkpoint", checkpoint, "--out", str(tmp_path / "out"), "--sheet", str(tmp_path / "sheets")]
    main(["complete", str(tmp_path / "in"), *words])
    assert sorted(file.name for file in (tmp_path / "sheets").iterdir()) == ["0.png", "1.png"]
    with Image.open(tmp_path / "sheets" / "0.png") as drawn:
        assert drawn.size[0] > 3 * 160
    main(
        [
            "complete",
            str(tmp_path / "in" / "0.png"),
            *words[:3],
            str(tmp_path / "a.png"),
            "--sheet",
            str(tmp_path / "s.pdf"),
        ]
    )
    assert (tmp_path / "s.pdf").read_bytes().startswith(b"%PDF")


@pytest.mark.parametrize(
    ("channels", "size", "mode", "words"),
    [
        (3, 12, "RGB", "one of its pixels covers 36 x 36 of the picture: expect a coarse completion"),
        (1, 12, "RGB", "gray images of 24 x 12 pixels, and one of its pixels covers 36 x 36"),
        (1, 108, "RGB", "the completed region of a colour picture will be gray"),
        (1, 108, "L", ""),
    ],
)
def test_a_model_that_is_far_from_the_picture_says_so_once(
    channels: int, size: int, mode: str, words: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    statistics = {"channels": channels, "mean": (0.5,) * channels, "std": (0.5,) * channels}
    model = small_model("crate_mae_tiny", image_size=(size, 2 * size), **statistics)
    checkpoint = str(model.save(tmp_path / "far"))
    for number in range(2):
        Image.effect_noise((1000, 427), 80).convert(mode).save(tmp_path / f"{number}.png")
    pictures = [str(tmp_path / f"{number}.png") for number in range(2)]
    main(["complete", *pictures, "--checkpoint", checkpoint, "--out", str(tmp_path / "out")])
    notes = [line for line in capsys.readouterr().err.splitlines() if "note:" in line]
    assert len(notes) == bool(words)
    assert words in "".join(notes)


def test_several_pictures_go_to_a_folder_each_as_if_it_were_alone(
    checkpoint: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    files = [write(tmp_path / name, seed) for seed, name in enumerate(["a.png", "in/a.png", "in/deep/b.png"])]
    words = ["--checkpoint", checkpoint, "--seed", "3", "--out"]
    main(["complete", str(files[0]), str(tmp_path / "in"), *words, str(tmp_path / "out")])
    assert sorted(file.name for file in (tmp_path / "out").iterdir()) == ["a-2.png", "a.png", "b.png"]
    assert f"Wrote 3 pictures to {tmp_path / 'out'}: mean error" in capsys.readouterr().out
    main(["complete", str(files[1]), *words, str(tmp_path / "alone.png")])
    with Image.open(tmp_path / "alone.png") as alone, Image.open(tmp_path / "out" / "a-2.png") as together:
        assert np.array_equal(np.asarray(alone), np.asarray(together))


def test_a_bad_picture_is_reported_and_the_others_completed(
    checkpoint: str, tmp_path: Path, plans: list[Plan], capsys: pytest.CaptureFixture[str]
) -> None:
    good = [str(write(tmp_path / name)) for name in ("a.png", "c.png")]
    (tmp_path / "b.png").write_text("no image")
    words = ["--checkpoint", checkpoint, "--out", str(tmp_path / "out")]
    with pytest.raises(SystemExit) as stop:
        main(["complete", good[0], str(tmp_path / "b.png"), good[1], *words])
    assert stop.value.code == 1
    printed = capsys.readouterr()
    assert "b.png can't be read as an image" in printed.err
    assert "1 of 3 pictures can't be completed" in printed.err
    assert "Wrote 2 pictures" in printed.out
    assert sorted(file.name for file in (tmp_path / "out").iterdir()) == ["a.png", "c.png"]
    with pytest.raises(SystemExit) as stop:
        main(["complete", str(tmp_path / "b.png"), *words[:2], "--out", str(tmp_path / "b2.png")])
    assert stop.value.code == 2  # it is the only one
    assert "b.png can't be read as an image" in capsys.readouterr().err


def test_every_way_to_say_what_is_masked(checkpoint: str, tmp_path: Path, plans: list[Plan]) -> None:
    picture = tmp_path / "a.png"
    Image.effect_noise((48, 24), 80).save(picture)  # of the model's aspect ratio: patches are a grid of 3 x 4

    def masked(*words: str) -> Plan:
        main(["complete", str(picture), "--checkpoint", checkpoint, "--out", str(tmp_path / "out.png"), *words])
        return plans[-1]

    marks = np.zeros((6, 8), dtype=np.uint8)
    marks[2:4, 2:6] = 255
    marks[4, :2] = 255
    Image.fromarray(marks).save(tmp_path / "mask.png")
    assert (masked("--mask", str(tmp_path / "mask.png")).region == (marks > 0).repeat(4, 0).repeat(6, 1)).all()
    assert np.argwhere(masked("--rectangle", "0.25", "0", "0.75", "0.5").region)[[0, -1]].tolist() == [
        [0, 12],
        [11, 35],
    ]
    expected = crate_mae.random_mask(1, 12, 0.5, torch.Generator().manual_seed(7))
    assert (masked("--mask-ratio", "0.5", "--seed", "7").masks == expected.numpy()).all()
    assert (masked().masks == masked("--mask-ratio", "0.75", "--seed", "0").masks).all()


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
        ([picture, *out, "--rectangle", "0", "0", "1", "1"], "leaves too little of the picture"),
        ([picture, *out, "--mask-ratio", "1.5"], "mask ratio is 1.5"),
        ([picture, str(tmp_path / "none.png"), *out], "there is no image or folder"),
        ([picture, picture, *out[:2], "--out", str(tmp_path / "new.png")], "looks like a file, and 2 pictures need"),
        ([picture, picture, *out, "--sheet", str(tmp_path / "new.png")], "--sheet"),
        ([picture, *out[:2], "--out", "same.png", "--sheet", "same.png"], "would be overwritten"),
        ([picture, *out, "--mask", str(tmp_path / "text.png")], "text.png can't be read"),
        ([picture, *out, "--rectangle", "10", "10", "50", "50"], "from 0 to 1"),
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


@pytest.mark.parametrize("option", ["--out", "--sheet"])
def test_neither_the_mask_nor_a_folder_is_overwritten(
    option: str, checkpoint: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    picture, mask, folder = write(tmp_path / "a.png"), write(tmp_path / "mask.png"), tmp_path / "folder.png"
    folder.mkdir()
    before = mask.read_bytes()
    other = [] if option == "--out" else ["--out", str(tmp_path / "new.png")]
    for place, sentence in ((mask, "mask.png would be overwritten"), (folder, "folder.png is a folder; name a file")):
        words = ["--checkpoint", checkpoint, "--mask", str(mask), *other, option, str(place)]
        with pytest.raises(SystemExit) as stop:
            main(["complete", str(picture), *words])
        assert stop.value.code == 2
        assert sentence in capsys.readouterr().err
    assert mask.read_bytes() == before


def test_a_home_folder_in_quotes_is_one(checkpoint: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.chdir(tmp_path)
    write(tmp_path / "a.png")
    main(["complete", "~/a.png", "--checkpoint", checkpoint, "--out=~/b.png"])
    assert (tmp_path / "b.png").is_file()


def test_a_picture_that_no_jpeg_can_hold(checkpoint: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    Image.new("L", (66_000, 8)).save(tmp_path / "wide.png")
    with pytest.raises(SystemExit) as stop:
        main(["complete", str(tmp_path / "wide.png"), "--checkpoint", checkpoint, "--out", str(tmp_path / "b.jpg")])
    assert stop.value.code == 2
    assert "66000 x 8 pixels are too many for a JPEG; choose an --out that ends in .png" in capsys.readouterr().err


def test_the_sheet_of_a_tall_picture_is_not_endless(checkpoint: str, tmp_path: Path) -> None:
    Image.effect_noise((30, 900), 80).save(tmp_path / "tall.png")
    words = ["--checkpoint", checkpoint, "--rectangle", "0.2", "0.4", "0.8", "0.6", "--sheet", str(tmp_path / "s.png")]
    main(["complete", str(tmp_path / "tall.png"), "--out", str(tmp_path / "b.png"), *words])
    with Image.open(tmp_path / "s.png") as sheet:
        assert sheet.height < 2500


@pytest.mark.parametrize("given", [["a.png"], ["a.png", "b.png"], ["."]])
def test_no_picture_that_is_read_is_overwritten(
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
    sentence = "would be overwritten" if given == ["a.png"] else "holds pictures that are to be completed"
    assert sentence in capsys.readouterr().err
    assert [(tmp_path / name).read_bytes() for name in ("a.png", "b.png")] == before


def test_a_format_that_does_not_exist_leaves_the_file_as_it_is(checkpoint: str, tmp_path: Path) -> None:
    picture = write(tmp_path / "a.png", 0)
    notes = tmp_path / "notes.xyz"
    notes.write_text("mine")
    with pytest.raises(SystemExit):
        main(["complete", str(picture), "--checkpoint", checkpoint, "--out", str(notes)])
    assert notes.read_text() == "mine"
