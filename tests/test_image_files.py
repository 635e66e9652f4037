"""Files that claim more than they hold are refused before memory or time is spent on them."""

import io
import struct
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from benchmarks.soak.pictures import pictures, tiled_tiff
from crate_mae.data.jpeg import ColourJpeg
from crate_mae.errors import UserError
from crate_mae.image_files import Encoded, read


def with_tags(tiff: bytes, **values: int) -> bytes:
    """A little-endian TIFF whose header claims something else."""
    data, (at,) = bytearray(tiff), struct.unpack("<I", tiff[4:8])
    for place in range(at + 2, at + 2 + 12 * struct.unpack_from("<H", data, at)[0], 12):
        (tag,) = struct.unpack_from("<H", data, place)
        if f"tag{tag}" in values:
            struct.pack_into("<HII", data, place + 2, 4, 1, values[f"tag{tag}"])
    return bytes(data)


FAX = io.BytesIO()
Image.new("1", (48, 48)).save(FAX, "TIFF", compression="group3")


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (
            with_tags(FAX.getvalue(), tag257=300_000, tag278=300_000),
            "300,000 pixels high",
        ),  # libtiff reports each
        (with_tags(tiled_tiff(np.zeros((48, 48), np.uint8)), tag322=40_000, tag323=40_000), "tiles of 1,600,000,000"),
        (with_tags(FAX.getvalue(), tag256=9_000, tag257=9_000), "9,000 x 9,000 pixels in"),
    ],
    ids=["fax lines", "tiles", "pixels"],
)
def test_a_tiff_that_claims_too_much(content: bytes, reason: str, tmp_path: Path) -> None:
    for source in (Encoded(content, "bomb.tif"), tmp_path / "bomb.tif"):
        (tmp_path / "bomb.tif").write_bytes(content)
        with pytest.raises(UserError, match=reason):
            read(source)


def test_a_jpeg_of_many_scans_is_refused_and_a_film_after_its_end_is_not() -> None:
    made = io.BytesIO()
    Image.new("RGB", (64, 64)).save(made, "JPEG", progressive=True)
    content = made.getvalue()
    scan = content[content.rindex(b"\xff\xda") : -2]
    hostile = Encoded(content[:-2] + 1000 * scan + content[-2:], "scans.jpg")
    with pytest.raises(UserError, match="more than 64 scans"):
        read(hostile)
    assert ColourJpeg.of(hostile) is None
    assert read(Encoded(content + 1000 * b"a film\xff\xda", "motion.jpg")).size == (64, 64)


def test_a_format_that_would_run_a_program_is_refused() -> None:
    page = b"%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 9 9\n%%EndComments\nshowpage\n%%EOF\n"
    with pytest.raises(UserError, match="it is EPS; save it as PNG or JPEG"):
        read(Encoded(page, "a.png"))


def test_good_files_of_every_format_are_read(tmp_path: Path) -> None:
    for kind, files in pictures().items():
        for content in files:
            assert read(Encoded(content, kind)).size[0] == 48
    page = io.BytesIO()
    Image.new("1", (2480, 3508), 1).save(page, "TIFF", compression="group4")  # a blank page, in less than 1 kB
    assert read(Encoded(page.getvalue(), "page.tif")).size == (2480, 3508)
