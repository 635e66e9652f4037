"""Hugging Face's datasets: Parquet files, and names on the Hub."""

import io
import logging
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow
import pyarrow.parquet
import pytest

from crate_mae.cli import main
from crate_mae.data.open import find_images
from crate_mae.data.source import carve, fingerprint
from crate_mae.errors import UserError
from tests.data.conftest import picture, write

datasets = pytest.importorskip("datasets")
CLASSES = ["cat", "dog", "hen"]


@pytest.fixture(autouse=True)
def _cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(datasets.config, "HF_DATASETS_CACHE", str(tmp_path / "cache"))


def encoded(seed: int) -> bytes:
    file = io.BytesIO()
    picture(seed).save(file, "PNG")
    return file.getvalue()


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """As datasets writes and the Hub stores them: 30 training and 6 validation images with classes."""
    kinds = datasets.Features({"image": datasets.Image(), "label": datasets.ClassLabel(names=CLASSES)})
    (tmp_path / "set" / "data").mkdir(parents=True)
    for split, seeds in {"train": range(30), "validation": range(100, 106)}.items():
        rows = {"image": [picture(seed) for seed in seeds], "label": [seed % 3 for seed in seeds]}
        made = datasets.Dataset.from_dict(rows, features=kinds)
        made.to_parquet(tmp_path / "set" / "data" / f"{split}-00000-of-00001.parquet")
    return tmp_path / "set"


def test_a_folder_of_parquet_has_its_splits_images_and_classes(folder: Path) -> None:
    images = find_images(str(folder))
    assert images.own == ("train", "val")
    train, val = images.split("train"), images.split("val")
    assert (len(train), len(val)) == (30, 6)
    assert train.class_names == val.class_names == tuple(CLASSES)
    for source, first in ((train, 0), (val, 100)):
        for index in range(len(source)):
            assert np.array_equal(np.asarray(source.read(index)), np.asarray(picture(first + index)))
            assert source.label(index) == (first + index) % 3
    assert "row 3 of" in train.name(3)
    assert fingerprint(train) == fingerprint(find_images(folder).split("train"))


def test_a_single_file_without_types_is_read_by_the_names_of_its_columns(tmp_path: Path) -> None:
    rows = {"img": [encoded(seed) for seed in range(40)], "class": [["b", "a", None][seed % 3] for seed in range(40)]}
    pyarrow.parquet.write_table(pyarrow.table(rows), tmp_path / "mine.parquet")
    images = find_images(str(tmp_path / "mine.parquet"))
    whole = images.whole()
    assert whole.class_names == ("a", "b")
    assert [whole.label(index) for index in range(3)] == [1, 0, None]
    assert np.array_equal(np.asarray(whole.read(5)), np.asarray(picture(5)))
    assert len(images.split("val")) == len(carve(whole)[1])


def test_it_trains_with_workers(folder: Path, tmp_path: Path) -> None:
    shape = ["model.channels=3", "model.mean=0.5,0.5,0.5", "model.std=0.2,0.2,0.2", "model.dim=24", "model.heads=3"]
    run = ["steps=2", "batch=4", "workers=1", "pictures=0", "evaluation_images=6"]
    sets = [word for setting in shape + run for word in ("--set", setting)]
    main(["pretrain", "--recipe", "digits", "--data", str(folder), "--out", str(tmp_path / "run"), *sets])
    assert (tmp_path / "run" / "checkpoints" / "best" / "model.safetensors").is_file()


def test_check_lists_an_unreadable_row(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    rows = {"image": [encoded(0), b"no image", encoded(2)]}
    pyarrow.parquet.write_table(pyarrow.table(rows), tmp_path / "mine.parquet")
    with pytest.raises(SystemExit):
        main(["data", "check", str(tmp_path / "mine.parquet"), "--workers", "1"])
    said = capsys.readouterr().out
    assert "row 1 of" in said
    assert "3 images, no classes, 1 unreadable" in said


def test_cells_of_any_kind_are_unreadable_images(tmp_path: Path) -> None:
    cells = [{"bytes": None, "path": path} for path in (None, "/dev/zero", "a\0b")]
    for number, column in enumerate([cells, [{"path": "none"}] * 3, [1, 2, 3], [[1], [2], [3]]]):
        place = tmp_path / f"{number}.parquet"
        pyarrow.parquet.write_table(pyarrow.table({"image": column, "label": [[1], [2], [3]]}), place)
        whole = find_images(place).whole()
        assert whole.class_names is None
        for index in range(3):
            with pytest.raises(UserError, match=f"row {index} of .* can't be read"):
                whole.read(index)


def test_images_beside_parquet_make_it_a_folder_of_images(folder: Path) -> None:
    write(folder / "a.png")
    write(folder / "b.png")
    assert len(find_images(str(folder)).whole()) == 2


@pytest.mark.parametrize(
    ("rows", "sentence"),
    [({"text": ["a"]}, "has the columns text and none with images"), (None, "can't be read (")],
)
def test_what_is_no_set_of_images_is_one_sentence(rows: dict[str, Any] | None, sentence: str, tmp_path: Path) -> None:
    file = tmp_path / "mine.parquet"
    if rows is None:
        file.write_bytes(b"PAR1 and no more")
    else:
        pyarrow.parquet.write_table(pyarrow.table(rows), file)
    with pytest.raises(UserError) as refused:
        find_images(str(file))
    assert sentence in str(refused.value)
    assert "\n" not in str(refused.value)


def test_the_hub_is_asked_only_with_download(monkeypatch: pytest.MonkeyPatch, folder: Path) -> None:
    asked = []

    def load(name: str, download_config: Any) -> Any:
        asked.append((name, download_config.local_files_only))
        if download_config.local_files_only:
            raise ConnectionError("not in the cache\nand so on")
        return {"train": datasets.Dataset.from_dict({"image": [picture(0)]})}

    monkeypatch.setattr(datasets, "load_dataset", load)
    with pytest.raises(UserError) as refused:
        find_images("owner/name")
    assert str(refused.value) == (
        "there is no folder owner/name, and a set of that name on the Hugging Face Hub can't be read (not in the "
        "cache): crate-mae data check owner/name --download fetches it."
    )
    assert len(find_images("owner/name", download=True).whole()) == 1
    assert asked == [("owner/name", True), ("owner/name", False)]
    with pytest.raises(UserError, match="there is no folder"):
        find_images(Path("owner/name"), download=True)


def test_without_the_extra_one_sentence_names_it(monkeypatch: pytest.MonkeyPatch, folder: Path) -> None:
    monkeypatch.setitem(sys.modules, "datasets", None)
    with pytest.raises(UserError, match=r"set needs packages .* pip install 'crate-mae\[hub\]'"):
        find_images(str(folder))


def test_a_name_comes_before_a_folder_and_a_note_says_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.chdir(tmp_path)
    for number in range(3):
        write(tmp_path / "digits" / f"{number}.png", number)
    with caplog.at_level(logging.INFO, "crate_mae"):
        assert find_images("digits").own == ("train", "test")
        assert "write ./digits for the folder" in caplog.text
        caplog.clear()
        for folder in ("./digits", Path("digits"), str(tmp_path / "digits")):
            assert len(find_images(folder).whole()) == 3
        find_images("digits", tmp_path)  # the folder is where named sets are looked for
        assert not caplog.text
