"""Paths that no file can have get one sentence, wherever they are given."""

from collections.abc import Callable
from pathlib import Path

import pytest
from PIL import Image

import crate_mae
from crate_mae.completion.command import jobs
from crate_mae.data.open import open_dataset
from crate_mae.errors import UserError
from crate_mae.training.run_folder import Run
from crate_mae.usable_path import shown, usable
from tests.conftest import small_model, unusable_paths


def test_a_usable_path_need_not_exist(tmp_path: Path) -> None:
    assert usable(tmp_path / "none" / "of it") == tmp_path / "none" / "of it"
    (tmp_path / "file").touch()
    assert usable(tmp_path / "file" / "below") == tmp_path / "file" / "below"
    assert usable("~") == Path.home()


@pytest.mark.parametrize(
    "use",
    [
        crate_mae.load,
        lambda path: small_model("crate_mae_tiny").save(path),
        lambda path: small_model("crate_mae_tiny").save_pretrained(path),
        lambda path: open_dataset(path, "train"),
        lambda path: open_dataset(Path(path), "train"),
        lambda path: Run(Path(path)).stored(),
        lambda path: jobs([Path(path)], Path("out.png"), None),
    ],
    ids=["load", "save", "save_pretrained", "data", "data as a path", "run", "complete"],
)
def test_every_use_of_an_unusable_path_gets_a_sentence(use: Callable[[str], object], tmp_path: Path) -> None:
    paths = {words: path for words, path in unusable_paths(tmp_path).items() if "UTF-8" not in words}
    for words, path in (paths | {"home of a user": "~nobody-of-this-name/run"}).items():
        with pytest.raises(UserError, match=words) as caught:
            use(path)
        assert len(str(caught.value)) < 400


def test_a_name_that_is_not_utf8_can_be_shown(tmp_path: Path) -> None:
    assert shown("a\udcff") == r"a\xff"
    folder = tmp_path / "a\udcff"
    folder.mkdir()
    Image.new("L", (8, 8)).save(folder / "one.png")
    assert len(open_dataset(folder, "train")) == 1
