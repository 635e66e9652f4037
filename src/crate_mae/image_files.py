"""Image files, by Pillow and without torch: gray, alpha, palette, CMYK and 16-bit ones too."""

import os
import re
import struct
from collections.abc import Callable
from dataclasses import dataclass
from io import BytesIO
from pathlib import Path
from typing import Literal

import numpy as np
from PIL import Image, ImageOps, ImageStat, UnidentifiedImageError

from crate_mae.errors import UserError

MODES = {1: "L", 3: "RGB", 4: "RGBA"}
FREE_PIXELS = 16_000_000
"""Pixels that a file of any size may have: a blank fax page has 9 million pixels in half a kilobyte."""
PIXELS_PER_BYTE = 2000
"""The limit for larger images; deflate expands a byte to at most 1,032."""
TILE_WIDTH, TILE_LENGTH, FREE_TILE, TIFF_LINES = 322, 323, 2048 * 2048, 100_000
FORMATS = ("AVIF", "BMP", "GIF", "JPEG", "JPEG2000", "MPO", "PNG", "PPM", "TIFF", "WEBP")
"""The formats that are decoded, by Pillow's names. Of the others, EPS runs Ghostscript, and DDS can take minutes."""
SCANS = 64
"""The most scans of a JPEG. A progressive one has about ten; a scan of 50 bytes can take 10 ms."""
MARKER = re.compile(rb"\xff[\x02-\xcf\xd8-\xfe]")  # in the data of a scan, 0xff is followed by 0 or by 0xd0 to 0xd7
DAMAGED_EXIF = (OSError, SyntaxError, ValueError, struct.error)
"""What Pillow raises for a damaged EXIF block in an intact image."""
ORIENTATION = 0x0112  # the EXIF field; 1 is upright, from 5 up the image lies on its side


@dataclass(frozen=True)
class Encoded:
    """The bytes of an image file, and its name for messages."""

    content: bytes
    name: str


ImageInput = Image.Image | Encoded | str | Path
"""An image, or what it can be read from."""

Fit = Literal["stretch", "crop", "pad"]
"""How an image gets the shape of a model's images."""


def read(
    source: ImageInput, name: str | None = None, before: Callable[[Image.Image], None] | None = None
) -> Image.Image:
    """An image, decoded and upright; the first frame of an animated one.

    ``name`` is what errors call it, by default its file's name; ``before`` gets an opened file before its pixels are
    decoded.
    """
    name = name or _name(source)
    try:
        if isinstance(source, Image.Image):
            image = _upright(source)
        else:
            with Image.open(BytesIO(source.content) if isinstance(source, Encoded) else source) as opened:
                check_claims(opened, len(source.content) if isinstance(source, Encoded) else os.stat(source).st_size)
                if before:
                    before(opened)
                image = _upright(opened)
    except FileNotFoundError:
        raise UserError(f"there is no image {name}.") from None
    except UnidentifiedImageError:  # its own message names an object in memory
        raise UserError(f"{name} can't be read as an image (its format is unknown).") from None
    except Image.DecompressionBombError:
        most = 2 * (Image.MAX_IMAGE_PIXELS or 0)
        raise UserError(f"{name} has more than {most:,} pixels; make it smaller.") from None
    except Exception as error:  # a damaged or hostile file can raise anything in a decoder
        raise UserError(f"{name} can't be read as an image ({error}).") from None
    if 0 in image.size:
        raise UserError(f"{name} has no pixels.")
    return image


def check_claims(opened: Image.Image, length: int) -> None:
    """Refuse a file that claims far more pixels than its bytes can hold, before memory is taken for them.

    TIFF has more ways to do so: tiles far larger than the image, and fax lines, each of which takes time to decode. So
    does each scan of a JPEG.
    """
    if opened.format not in FORMATS:
        raise ValueError(f"it is {opened.format}; save it as PNG or JPEG")
    width, height = opened.size
    if width * height > max(FREE_PIXELS, PIXELS_PER_BYTE * length):
        raise ValueError(f"it claims {width:,} x {height:,} pixels in {length:,} bytes")
    if opened.format == "TIFF":
        tags = opened.tag_v2  # type: ignore[attr-defined]
        tile = int(tags.get(TILE_WIDTH, 0)) * int(tags.get(TILE_LENGTH, 0))
        if tile > max(FREE_TILE, 4 * width * height):
            raise ValueError(f"it has tiles of {tile:,} pixels for {width:,} x {height:,}")
        if height > TIFF_LINES:
            raise ValueError(f"it is {height:,} pixels high, and a TIFF may have {TIFF_LINES:,} lines")
    if opened.format in ("JPEG", "MPO"):
        file = opened.fp  # type: ignore[attr-defined]
        place = file.tell()
        file.seek(0)
        if has_many_scans(file.read()):
            raise ValueError(f"it has more than {SCANS} scans")
        file.seek(place)


def has_many_scans(jpeg: bytes) -> bool:
    """Whether a JPEG has more than ``SCANS``. What follows its end, such as a phone's film, may hold anything."""
    start, end = b"\xff\xda", b"\xff\xd9"
    if jpeg.count(start) <= SCANS:
        return False
    found, place = 0, 2
    while (marker := MARKER.search(jpeg, place)) and marker[0] != end:
        found += marker[0] == start
        place = marker.end() + int.from_bytes(jpeg[marker.end() : marker.end() + 2])  # the length of its header
    return found > SCANS


def _name(source: ImageInput) -> str:
    match source:
        case Image.Image():
            return "the image"
        case Encoded():
            return source.name
    return str(source)


def _upright(image: Image.Image) -> Image.Image:
    image.load()
    if image.format is None and not image.info:
        return image  # made in memory: there is no EXIF block
    try:
        if image.format == "JPEG" and image.getexif().get(ORIENTATION, 1) == 1:
            return image  # most images: the other branch copies
        return ImageOps.exif_transpose(image)
    except DAMAGED_EXIF:
        return image.copy()


def in_mode(image: Image.Image, mode: str) -> Image.Image:
    """The image in mode L, RGB or RGBA; for L and RGB, transparent parts become white."""
    if image.mode == mode and ("A" in mode or "transparency" not in image.info):
        return image
    if image.mode.startswith(("I", "F")):
        image = _eight_bits(image)
    try:
        if "A" in mode:
            return image.convert("RGBA")
        if image.has_transparency_data:
            image = Image.alpha_composite(Image.new("RGBA", image.size, "white"), image.convert("RGBA"))
        return (image if image.mode == mode else image.convert("RGB")).convert(mode)
    except ValueError as error:
        raise UserError(f"an image of mode {image.mode} can't be converted to {mode} ({error}).") from None


def _eight_bits(image: Image.Image) -> Image.Image:
    """A 16-bit, 32-bit or float gray image as 8 bits: full scale is the smallest of 1, 255 and 65535 that holds it."""
    values = np.nan_to_num(np.asarray(image, dtype=np.float64), posinf=0.0, neginf=0.0)
    top = values.max(initial=0.0)
    full = 65535.0 if image.mode.startswith("I;16") or top > 255.5 else 255.0
    if image.mode == "F" and top <= 1.5:  # a little above 1 is rounding, not another scale
        full = 1.0
    return Image.fromarray((values * (255.0 / full)).round().clip(0, 255).astype(np.uint8))


def resized(image: Image.Image, channels: int, size: tuple[int, int]) -> Image.Image:
    """The image in a model's channels and size (height, width): bicubic, both sides."""
    image, (height, width) = in_mode(image, MODES[channels]), size
    return image if image.size == (width, height) else image.resize((width, height), Image.Resampling.BICUBIC)


def centre_crop(image: Image.Image, size: tuple[int, int]) -> Image.Image:
    """The largest part from the middle of an image that has the shape of ``size`` (height, width)."""
    height, width = size
    wide = min(image.width, max(round(image.height * width / height), 1))
    high = min(image.height, max(round(image.width * height / width), 1))
    left, top = (image.width - wide) // 2, (image.height - high) // 2
    return image.crop((left, top, left + wide, top + high))


def padded(image: Image.Image, channels: int, size: tuple[int, int]) -> Image.Image:
    """The whole image in a model's channels and size, undistorted, with a border of its average colour."""
    height, width = size
    scale = min(height / image.height, width / image.width)
    inner = resized(image, channels, (max(round(image.height * scale), 1), max(round(image.width * scale), 1)))
    average = tuple(round(mean) for mean in ImageStat.Stat(inner).mean)
    whole = Image.new(inner.mode, (width, height), average if channels > 1 else average[0])
    whole.paste(inner, ((width - inner.width) // 2, (height - inner.height) // 2))
    return whole


def fitted(image: Image.Image, channels: int, size: tuple[int, int], fit: Fit) -> Image.Image:
    """The image in a model's channels and size: both sides resized, cropped to the middle, or with a border."""
    if fit == "pad":
        return padded(image, channels, size)
    return resized(centre_crop(image, size) if fit == "crop" else image, channels, size)
