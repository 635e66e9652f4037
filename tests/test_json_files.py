"""Configurations are read as far as one can be long."""

import tracemalloc
from pathlib import Path

import pytest

import crate_mae
from crate_mae.errors import UserError
from crate_mae.json_files import MOST, read_json
from crate_mae.training.run_folder import Run
from tests.conftest import small_model


def test_a_configuration_of_gigabytes_is_not_read_whole(tmp_path: Path) -> None:
    folder = small_model("crate_mae_tiny").save(tmp_path / "model")
    for path in (folder / "config.json", tmp_path / "config.json"):
        with path.open("a") as file:
            file.truncate(4 * 2**30)  # it takes no room on the disk
    tracemalloc.start()
    with pytest.raises(UserError, match="can't be read as JSON"):
        crate_mae.load(folder)
    with pytest.raises(UserError, match="can't be read as JSON"):
        Run(tmp_path).stored()
    assert tracemalloc.get_traced_memory()[1] < 4 * MOST
    tracemalloc.stop()


@pytest.mark.parametrize("text", ["", "{", "[" * 100_000, '{"a": ' * 100_000, "1" * 5000, "\xff", "\0" * 40])
def test_what_is_no_json_is_a_value_error(text: str, tmp_path: Path) -> None:
    path = tmp_path / "x.json"
    path.write_bytes(text.encode("latin-1"))
    with pytest.raises(ValueError, match=r"\w"):
        read_json(path)
