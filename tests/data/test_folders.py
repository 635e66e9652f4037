"""A folder in any state that people have them in."""

import inspect
import os
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from crate_mae import UserError, recipes
from crate_mae.data import folders
from crate_mae.data import open as opening
from crate_mae.data.open import find_images, open_dataset
from crate_mae.data.source import CARVED, carve
from crate_mae.training.launch import open_splits
from tests.data.conftest import picture, write


def names(path: Path, split: str) -> set[str]:
    source = open_dataset(path, split)
    return {Path(source.name(index)).name for index in range(len(source))}


def whole(path: Path):
    return find_images(path).whole()


def test_class_folders_give_labels(labelled: Path) -> None:
    source = whole(labelled)
    assert len(source) == 60
    assert source.class_names == ("class 0", "class 1", "class 2")
    for index in range(60):
        number = int(Path(source.name(index)).stem)
        assert source.label(index) == number % 3
        assert source.read(index).tobytes() == picture(number).tobytes()


def test_a_flat_folder_has_no_labels(tmp_path: Path) -> None:
    for number in range(3):
        write(tmp_path / f"{number}.png", number)
    source = whole(tmp_path)
    assert source.class_names is None
    assert [source.label(index) for index in range(3)] == [None] * 3


def test_an_image_outside_the_class_folders_means_no_labels(labelled: Path) -> None:
    write(labelled / "stray.png")
    assert whole(labelled).class_names is None
    assert len(whole(labelled)) == 61


def test_files_that_are_no_images_are_ignored(labelled: Path) -> None:
    for name in ("README.md", ".hidden.png", "class 0/Thumbs.db", "__MACOSX/00.png", ".git/x.png", "notes/only.txt"):
        (labelled / name).parent.mkdir(exist_ok=True)
        (labelled / name).write_text("no image")
    (labelled / "class 1" / "folder.png").mkdir()  # a folder with the name of an image
    (labelled / "class 1" / "gone.png").symlink_to(labelled / "nowhere.png")
    (labelled / "class 1" / "itself.png").symlink_to("itself.png")
    write(labelled / "class 2" / "deep" / "deeper" / "UPPER.PNG")
    source = whole(labelled)
    assert len(source) == 61
    assert source.class_names == ("class 0", "class 1", "class 2")
    deep = next(index for index in range(61) if "UPPER" in source.name(index))
    assert source.label(deep) == 2


def test_links_are_followed_and_loops_end(labelled: Path, tmp_path: Path) -> None:
    write(tmp_path / "elsewhere" / "linked.png")
    (labelled / "class 0" / "up").symlink_to(labelled, target_is_directory=True)
    (labelled / "loop").symlink_to(labelled, target_is_directory=True)
    (labelled / "class 3").symlink_to(tmp_path / "elsewhere", target_is_directory=True)
    source = whole(labelled)
    assert len(source) == 61
    assert source.class_names == ("class 0", "class 1", "class 2", "class 3")


def test_folders_may_be_nested_more_deeply_than_calls(tmp_path: Path) -> None:
    write(tmp_path.joinpath(*"a" * 200) / "x.png")
    limit, now = sys.getrecursionlimit(), len(inspect.stack(0))
    sys.setrecursionlimit(now + 150)
    try:
        assert len(whole(tmp_path)) == 1
    finally:
        sys.setrecursionlimit(limit)


def test_names_may_be_any_bytes(tmp_path: Path) -> None:
    good = write(tmp_path / "ein schönes Bild 猫.png", 1)
    os.rename(write(tmp_path / "x.png", 2), os.fsencode(tmp_path) + b"/\xff\xfe.png")
    source = whole(tmp_path)
    assert sorted(source.name(index) for index in range(2)) == [str(tmp_path / "\\xff\\xfe.png"), str(good)]
    for index in range(2):
        source.name(index).encode("utf-8")
        assert source.read(index).size == (20, 16)


def test_split_folders_and_their_other_names(tmp_path: Path) -> None:
    for number, place in enumerate(["training/a", "training/b", "valid/b", "test/a"]):
        write(tmp_path / place / f"{number}.png", number)
    for split, number in [("val", 2), ("test", 3)]:
        assert names(tmp_path, split) == {f"{number}.png"}
    assert names(tmp_path, "train") == {"0.png", "1.png"}
    assert open_dataset(tmp_path, "val").label(0) == 1  # though b is the first class that val/ has


def test_only_val_is_both_val_and_test(tmp_path: Path) -> None:
    for number in range(40):
        write(tmp_path / "train" / f"{number}.png", number)
    write(tmp_path / "val" / "v.png")
    assert len(names(tmp_path, "train")) == 40
    assert names(tmp_path, "val") == names(tmp_path, "test") == {"v.png"}


def test_only_test_is_kept_for_the_end(tmp_path: Path) -> None:
    for number in range(40):
        write(tmp_path / "train" / f"{number}.png", number)
    write(tmp_path / "test" / "t.png")
    train, val = names(tmp_path, "train"), names(tmp_path, "val")
    assert names(tmp_path, "test") == {"t.png"}
    assert not train & val
    assert len(train | val) == 40


def test_the_carved_part_depends_on_names_alone(tmp_path: Path) -> None:
    for number in range(400):
        (tmp_path / "a").mkdir(exist_ok=True)
        (tmp_path / "a" / f"{number}.png").write_bytes(b"")
    before = names(tmp_path / "a", "val")
    assert names(tmp_path / "a", "test") == before
    assert abs(len(before) / 400 - CARVED) < 0.035  # three standard deviations
    for number in range(400, 500):
        (tmp_path / "a" / f"{number}.png").write_bytes(b"")
    (tmp_path / "a").rename(tmp_path / "moved")
    after = names(tmp_path / "moved", "val")
    assert before <= after
    assert {int(Path(name).stem) >= 400 for name in after - before} == {True}
    assert names(tmp_path / "moved", "train").isdisjoint(after)


def test_a_folder_is_walked_once_and_split_once_for_a_run(labelled: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    scanned, carved = [], []
    entries = folders._entries
    monkeypatch.setattr(folders, "_entries", lambda folder: (scanned.append(folder), entries(folder))[1])
    monkeypatch.setattr(opening, "carve", lambda source: (carved.append(source), carve(source))[1])
    training, validation = open_splits(replace(recipes.digits(), data=str(labelled)), download=False)
    assert len(training) + len(validation) == 60
    assert sorted(scanned) == sorted([str(labelled), *(str(labelled / f"class {number}") for number in range(3))])
    assert len(carved) == 1


def test_two_images_are_one_and_one_and_one_trains(tmp_path: Path) -> None:
    write(tmp_path / "a.png")
    assert names(tmp_path, "train") == {"a.png"}
    with pytest.raises(UserError, match="one image can't be split"):
        open_dataset(tmp_path, "val")
    write(tmp_path / "b.png")
    assert len(names(tmp_path, "train")) == len(names(tmp_path, "val")) == 1
    assert names(tmp_path, "train") != names(tmp_path, "val")


@pytest.mark.parametrize(
    ("make", "word"),
    [
        (lambda path: None, "no folder"),
        (lambda path: path.mkdir(), "no images"),
        (lambda path: (path / "train").mkdir(parents=True), "no images"),
        (lambda path: write(path / "val" / "x.png"), "no training images"),
        (lambda path: path.write_text("x"), "neither a folder"),
    ],
)
def test_a_set_without_images_gets_one_sentence(make, word: str, tmp_path: Path) -> None:
    make(tmp_path / "set")
    with pytest.raises(UserError, match=word):
        open_dataset(tmp_path / "set", "train")


def test_a_wrong_split_is_said(labelled: Path) -> None:
    with pytest.raises(UserError, match="no split dev"):
        open_dataset(labelled, "dev")
