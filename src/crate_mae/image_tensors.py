"""Images to tensors and back; ``image_files`` reads them."""

from functools import partial

import numpy as np
import torch
from jaxtyping import Float, UInt8
from PIL import Image
from torch import Tensor

from crate_mae.errors import UserError
from crate_mae.image_files import MODES, resized
from crate_mae.settings import Size


def planes(image: Image.Image, channels: int, size: Size) -> UInt8[Tensor, "c H W"]:
    """Pixels from 0 to 255, channel by channel, resized (bicubic, both sides) to height and width."""
    if channels not in MODES:
        raise UserError(
            f"an image file can't fill {channels} channels; make the tensor yourself, normalised, (B, C, H, W)."
        )
    image, (height, width) = resized(image, channels, size), size
    pixels = bytearray().join(
        image.tobytes("raw", band) for band in image.getbands()
    )  # Pillow splits the bands fastest
    return torch.frombuffer(pixels, dtype=torch.uint8).view(channels, height, width)


def normalise(
    pixels: UInt8[Tensor, "c H W"], mean: tuple[float, ...], std: tuple[float, ...], into: Float[Tensor, "c H W"]
) -> None:
    """(pixels / 255 - mean) / std, written to ``into``."""
    # By numpy: torch would split work this small over threads, and wait for them on a busy machine.
    values = into.numpy()
    values[...] = pixels.numpy()
    values /= 255
    values -= np.array(mean, dtype=np.float32)[:, None, None]
    values /= np.array(std, dtype=np.float32)[:, None, None]


def from_tensor(pixels: Float[Tensor, "c H W"]) -> Image.Image:
    """An image from pixels in [0, 1]; values outside are clipped."""
    if pixels.ndim != 3 or pixels.shape[0] not in MODES:
        raise UserError(f"an image needs a tensor (C, H, W) of 1, 3 or 4 channels, not {tuple(pixels.shape)}.")
    array = (pixels.float().clamp(0, 1) * 255).round().to(torch.uint8).permute(1, 2, 0).cpu().numpy()
    return Image.fromarray(array.squeeze(2) if pixels.shape[0] == 1 else array)


def statistics(
    mean: tuple[float, ...], std: tuple[float, ...], like: Float[Tensor, "..."]
) -> tuple[Float[Tensor, "c 1 1"], Float[Tensor, "c 1 1"]]:
    """Mean and standard deviation as tensors that broadcast over (C, H, W)."""
    as_tensor = partial(torch.tensor, dtype=like.dtype, device=like.device)
    return as_tensor(mean)[:, None, None], as_tensor(std)[:, None, None]
