"""JPEG files decoded by libjpeg-turbo directly, where the extra ``jpeg`` is installed: the same pixels in less time.

Pillow decodes with the same library, but its pixels are copied three times before they are in a tensor.
"""

from functools import cache
from io import BytesIO
from typing import Any

import torch
from jaxtyping import UInt8
from PIL import Image
from torch import Tensor

from crate_mae import image_files
from crate_mae.image_files import Encoded, ImageInput


@cache
def _simplejpeg() -> Any:
    try:
        import simplejpeg
    except ImportError:
        return None
    return simplejpeg


class ColourJpeg:
    """An upright JPEG file in colour, not decoded yet."""

    def __init__(self, content: bytes, size: tuple[int, int]):
        self.content, self.size = content, size

    @classmethod
    def of(cls, source: ImageInput) -> "ColourJpeg | None":
        """The file, if this decoder can read it; None for any other image, and without the extra: Pillow reads
        those."""
        if _simplejpeg() is None or not isinstance(source, Encoded) or not source.content.startswith(b"\xff\xd8\xff"):
            return None
        try:
            with Image.open(BytesIO(source.content)) as opened:
                upright = opened.getexif().get(image_files.ORIENTATION, 1) == 1
                image_files.check_claims(opened, len(source.content))
                if opened.format != "JPEG" or opened.mode != "RGB" or not upright:
                    return None
                return cls(source.content, opened.size)
        except Exception:  # a damaged or hostile file can raise anything; Pillow's own path says what is wrong with it
            return None

    def pixels(self) -> UInt8[Tensor, "H W 4"] | None:
        """Red, green, blue and an unused byte; None if the file is damaged, since Pillow can read some of these."""
        try:
            found = _simplejpeg().decode_jpeg(self.content, "RGBX")
        except ValueError:
            return None
        width, height = self.size
        return torch.from_numpy(found) if found.shape == (height, width, 4) else None
