"""Small sets of images, made by the tests."""

import logging
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from PIL import Image


def picture(seed: int, size: tuple[int, int] = (20, 16)) -> Image.Image:
    """A picture of noise that the seed decides."""
    width, height = size
    return Image.fromarray(np.random.default_rng(seed).integers(0, 256, (height, width, 3), dtype=np.uint8))


def write(path: Path, seed: int = 0, size: tuple[int, int] = (20, 16)) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    picture(seed, size).save(path)
    return path


@pytest.fixture
def labelled(tmp_path: Path) -> Path:
    """60 images in three class folders."""
    for number in range(60):
        write(tmp_path / "set" / f"class {number % 3}" / f"{number:02d}.png", number)
    return tmp_path / "set"


@pytest.fixture(autouse=True)
def _log_level(caplog: pytest.LogCaptureFixture) -> Iterator[None]:
    with caplog.at_level(logging.WARNING, logger="crate_mae.data"):
        yield
