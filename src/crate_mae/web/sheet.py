"""The picture to keep: masked, completed by each model and original side by side, drawn with Pillow.

Drawn this way a sheet costs little more than its completions; a figure by matplotlib would take half a second.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from io import BytesIO
from pathlib import Path

import matplotlib
import numpy as np
from jaxtyping import Float
from PIL import Image, ImageDraw, ImageFont
from PIL.PngImagePlugin import PngInfo

CELL, GAP, LINE = 440, 24, 24
INK, QUIET, PAPER = "#1b2530", "#566371", "#ffffff"
HATCH, HATCHED = "#3b5f8f", "#d3deee"


@dataclass(frozen=True)
class Panel:
    """One image of a sheet."""

    title: str
    pixels: Float[np.ndarray, "H W c"]
    """In [0, 1]."""
    words: str = ""
    """Below the image."""
    mask: np.ndarray | None = None
    """Rows and columns of patches, True where hatched."""


def draw(panels: Sequence[Panel], title: str, texts: Mapping[str, str]) -> bytes:
    """A PNG of the panels in a row; ``texts`` go into its text chunks."""
    images = [_enlarged(panel) for panel in panels]
    titles = [_wrapped(panel.title, 16) for panel in panels]
    words = [_wrapped(panel.words, 15) for panel in panels]
    heading = _wrapped(title, 15, len(panels) * (CELL + GAP) - GAP)
    top = GAP + LINE * len(heading) + GAP // 2
    below = top + LINE * max(map(len, titles)) + 4
    height = below + max(image.height for image in images) + 4 + LINE * max(map(len, words)) + GAP
    sheet = Image.new("RGB", (len(panels) * (CELL + GAP) + GAP, height), PAPER)
    pen = ImageDraw.Draw(sheet)
    _write(pen, heading, (GAP, GAP), 15, QUIET)
    for place, (image, above, under) in enumerate(zip(images, titles, words, strict=True)):
        left = GAP + place * (CELL + GAP)
        _write(pen, above, (left, below - 4 - LINE * len(above)), 16, INK)
        sheet.paste(image, (left, below))
        _write(pen, under, (left, below + image.height + 4), 15, QUIET)
    information = PngInfo()
    for name, text in texts.items():
        information.add_itxt(name, text)
    file = BytesIO()
    sheet.save(file, "PNG", pnginfo=information, compress_level=4)
    return file.getvalue()


def _enlarged(panel: Panel) -> Image.Image:
    """A panel's image, as wide as a column; small ones pixel by pixel."""
    array = (panel.pixels * 255).round().astype(np.uint8)
    image = Image.fromarray(array[..., 0] if array.shape[2] == 1 else array).convert("RGB")
    size = (CELL, max(round(CELL * image.height / image.width), 1))
    image = image.resize(size, Image.Resampling.NEAREST if image.width < CELL else Image.Resampling.LANCZOS)
    return image if panel.mask is None else _hatched(image, panel.mask)


def _hatched(image: Image.Image, mask: np.ndarray) -> Image.Image:
    """Masked patches with stripes: a plain colour could be a part of the picture."""
    stripes = Image.new("RGB", image.size, HATCHED)
    pen = ImageDraw.Draw(stripes)
    for start in range(-image.height, image.width, 14):
        pen.line((start, image.height, start + image.height, 0), fill=HATCH, width=3)
    where = Image.fromarray(mask.astype(np.uint8) * 255).resize(image.size, Image.Resampling.NEAREST)
    return Image.composite(stripes, image, where)


def _write(pen: ImageDraw.ImageDraw, lines: Sequence[str], at: tuple[int, int], size: int, colour: str) -> None:
    for number, line in enumerate(lines):
        pen.text((at[0], at[1] + number * LINE), line, colour, _font(size))


def _wrapped(text: str, size: int, width: int = CELL) -> list[str]:
    """Lines that fit a width."""
    lines: list[str] = []
    for word in text.split():
        longer = f"{lines[-1]} {word}" if lines else word
        if lines and _font(size).getlength(longer) <= width:
            lines[-1] = longer
        else:
            lines.append(word)
    return lines


@cache
def _font(size: int) -> ImageFont.FreeTypeFont:
    """matplotlib brings a font with most alphabets."""
    return ImageFont.truetype(Path(matplotlib.get_data_path()) / "fonts" / "ttf" / "DejaVuSans.ttf", size)
