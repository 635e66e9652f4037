"""Pictures to start with: what scikit-learn brings, and one that is drawn."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

from PIL import Image, ImageDraw, ImageOps
from sklearn.datasets import load_sample_image

from crate_mae.data.open import open_dataset
from crate_mae.models.config import ModelConfig

DIGITS = 32
"""Gray models up to this size get digits, others photos."""


@dataclass(frozen=True)
class Sample:
    """A picture with a name; a request can name no other."""

    title: str
    picture: Image.Image


def samples(config: ModelConfig) -> dict[str, Sample]:
    """By name, as fits a model; photos are cut to the shape of its images."""
    if config.channels == 1 and max(config.image_size) <= DIGITS:
        return _digits()
    height, width = config.image_size
    longest = 640
    shape = (longest, max(longest * height // width, 1)) if width >= height else (longest * width // height, longest)
    drawn: dict[str, tuple[str, Callable[[], Image.Image]]] = {
        "temple": ("a temple in China", partial(_photo, "china.jpg")),
        "flower": ("a dahlia", partial(_photo, "flower.jpg")),
        "shapes": ("a drawing of shapes", _shapes),
    }
    return {name: Sample(title, ImageOps.fit(draw(), shape)) for name, (title, draw) in drawn.items()}


def _digits() -> dict[str, Sample]:
    """The first of each digit among those that ``--data digits`` keeps for testing."""
    source = open_dataset("digits", "test")
    first = {source.label(index): index for index in reversed(range(len(source)))}
    return {f"digit-{label}": Sample(f"digit {label}", source.read(first[label])) for label in range(10)}


def _photo(name: str) -> Image.Image:
    return Image.fromarray(load_sample_image(name))


def _shapes(side: int = 640) -> Image.Image:
    picture = Image.new("RGB", (side, side), "#dfe7ef")
    draw = ImageDraw.Draw(picture)
    draw.rectangle((0, 420, side, side), fill="#5d7f55")
    draw.ellipse((420, 60, 560, 200), fill="#f2b63c")
    draw.polygon([(60, 420), (220, 120), (380, 420)], fill="#7d6a8f")
    draw.rectangle((330, 300, 540, 500), fill="#c8553d")
    draw.rectangle((400, 380, 470, 500), fill="#33302f")
    for left in range(40, side, 120):
        draw.line((left, 640, left + 60, 540), fill="#36512f", width=12)
    return picture
