"""A photograph as it is stored: read, and written back with all that a completion does not change."""

import warnings
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import UInt8, UInt16
from PIL import Image

from crate_mae import image_files
from crate_mae.atomic_write import atomic_write
from crate_mae.errors import UserError
from crate_mae.settings import Size

Pixels = UInt8[np.ndarray, "H W bands"] | UInt16[np.ndarray, "H W bands"]
FORMATS = {"": "PNG", ".png": "PNG", ".jpg": "JPEG", ".jpeg": "JPEG"}
JPEG_SIDE, JPEG_EXIF = 65_500, 65_533
"""The largest side of a JPEG, in pixels, and the largest EXIF block, in bytes."""
OTHER_COLOURS = ("CMYK", "LAB", "YCbCr", "HSV")
"""Modes that become RGB, so that a colour profile no longer applies."""


@dataclass(frozen=True)
class Photo:
    """A picture as it is stored: gray or colour, with an opacity or without, 8 bits, or 16 for gray."""

    pixels: Pixels
    profile: bytes | None
    """Its ICC colour profile."""
    exif: bytes | None

    @property
    def size(self) -> Size:
        """Height and width."""
        return self.pixels.shape[0], self.pixels.shape[1]

    @property
    def top(self) -> int:
        """The value of white."""
        return int(np.iinfo(self.pixels.dtype).max)

    def image(self) -> Image.Image:
        """The picture for Pillow."""
        bands = self.pixels.shape[2]
        return Image.fromarray(self.pixels[..., 0] if bands == 1 else np.ascontiguousarray(self.pixels))


def read_photo(source: Image.Image | str | Path) -> Photo:
    """Read a picture, upright. Palettes and CMYK become RGB, gray of 32 bits or floating point becomes 8 bits."""
    image = image_files.read(source)
    profile = None if image.mode in OTHER_COLOURS else image.info.get("icc_profile")
    pixels = np.asarray(_storable(image))
    return Photo(np.atleast_3d(pixels), profile, _exif(image))


def _exif(image: Image.Image) -> bytes | None:
    """The EXIF block of an image that is upright now; None if there is none, or if it is damaged."""
    try:
        exif = image.getexif()
        exif.pop(image_files.ORIENTATION, None)
        return exif.tobytes() if len(exif) else None
    except image_files.DAMAGED_EXIF:
        return None


def _storable(image: Image.Image) -> Image.Image:
    """The picture in mode L, LA, RGB, RGBA or I;16."""
    if image.mode.startswith("I"):
        values = np.asarray(image)
        if image.mode != "I" or (values.min() >= 0 and 255 < values.max() < 2**16):
            return Image.fromarray(values.astype(np.uint16))
    if image.mode.startswith(("I", "F", "1")):
        return image_files.in_mode(image, "L")
    if image.has_transparency_data:
        return image.convert("LA" if image.mode.startswith("L") and image.mode != "LAB" else "RGBA")
    return image if image.mode in ("L", "RGB") else image_files.in_mode(image, "RGB")


def write_photo(photo: Photo, path: Path) -> None:
    """Write a PNG or a JPEG, by the suffix; a PNG without one. A JPEG has no opacity, and 8 bits."""
    image, kind = photo.image(), format_of(path)
    options: dict[str, Any] = {"icc_profile": photo.profile, "exif": photo.exif}
    if kind == "JPEG":
        image = image_files.in_mode(image, "RGB" if photo.pixels.shape[2] > 2 else "L")
        if photo.exif and len(photo.exif) > JPEG_EXIF:
            warnings.warn(f"{path} is written without its EXIF data, which a JPEG can't hold.", stacklevel=1)
            options["exif"] = None
        options |= {"quality": 95, "subsampling": 0}
    with atomic_write(path) as temporary:
        image.save(temporary, format=kind, **{name: value for name, value in options.items() if value is not None})


def check_size(photo: Photo, path: Path) -> None:
    """Refuse to write a picture as a JPEG that is larger than one can be."""
    height, width = photo.size
    if format_of(path) == "JPEG" and max(photo.size) > JPEG_SIDE:
        raise UserError(f"{width} x {height} pixels are too many for a JPEG; choose an --out that ends in .png.")


def format_of(path: Path) -> str:
    """PNG or JPEG; another suffix is an error."""
    if path.suffix.lower() not in FORMATS:
        raise UserError(f"{path} ends in {path.suffix}; choose an --out that ends in .png, .jpg or .jpeg.")
    return FORMATS[path.suffix.lower()]
