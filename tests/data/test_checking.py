"""``crate-mae data check`` reads every image and lists the unreadable ones."""

import io
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from crate_mae.cli import main
from tests.data.conftest import picture, write


def printed(arguments: list[str], code: int, capsys: pytest.CaptureFixture[str]) -> str:
    if code:
        with pytest.raises(SystemExit) as stop:
            main(["data", "check", *arguments])
        assert stop.value.code == code
    else:
        main(["data", "check", *arguments])
    return capsys.readouterr().out


def test_a_sound_set(labelled: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = printed([str(labelled)], 0, capsys)
    assert out.splitlines()[-1] == "train: 60 images, 3 classes, 0 unreadable."


def test_a_named_set(capsys: pytest.CaptureFixture[str]) -> None:
    out = printed(["digits"], 0, capsys)
    assert "train: 1347 images, 10 classes, 0 unreadable." in out
    assert "test: 450 images, 10 classes, 0 unreadable." in out


@pytest.mark.parametrize("workers", ["1", "3"])
def test_every_kind_of_picture_and_every_kind_of_damage(
    workers: int, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    train, val = tmp_path / "set" / "train", tmp_path / "set" / "val"
    write(train / "good.png")
    picture(0).convert("L").save(train / "gray.png")
    picture(0).convert("CMYK").save(train / "cmyk.jpg")
    Image.fromarray(np.arange(320, dtype=np.uint16).reshape(16, 20) * 200).save(train / "sixteen.png")
    picture(0).save(train / "animated.gif", save_all=True, append_images=[picture(1)])
    picture(0, (1, 1)).save(train / "pixel.png")
    write(val / "good.png")
    buffer = io.BytesIO()
    picture(0, (100, 100)).save(buffer, "jpeg")
    (train / "cut.jpg").write_bytes(buffer.getvalue()[:2000])
    (train / "empty.png").write_bytes(b"")
    (val / "text.jpeg").write_text("no image")
    (val / "note.txt").write_text("not asked")
    out = printed([str(tmp_path / "set"), "--workers", workers], 1, capsys)
    assert "train: 8 images, no classes, 2 unreadable." in out
    assert "val: 2 images, no classes, 1 unreadable." in out
    lines = [line for line in out.splitlines() if "can't be read" in line]
    assert [Path(line.split(" can't")[0]).name for line in lines] == ["cut.jpg", "empty.png", "text.jpeg"]


def test_shards_are_checked_too(labelled: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (labelled / "class 1" / "bad.jpg").write_bytes(b"no image")
    main(["data", "pack", str(labelled), "--out", str(tmp_path / "shards")])
    out = printed([str(tmp_path / "shards")], 1, capsys)
    assert "000000.tar: class 1/bad can't be read" in out
    assert "train: 61 images, 3 classes, 1 unreadable." in out
