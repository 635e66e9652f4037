"""Completions as pictures."""

from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from crate_mae.models.autoencoder import MaskedAutoencoder
from crate_mae.tokens import unpatchify

MASKED_COLOUR = (0.70, 0.78, 0.90)  # no gray, so that it differs from any pixel of a gray image


class Panels(NamedTuple):
    """Images (H, W, C) in [0, 1], and each one's mean squared error over its masked patches, in normalised units."""

    masked: list[np.ndarray]
    completed: list[np.ndarray]
    original: list[np.ndarray]
    errors: list[float]
    caption: str
    """How the completions were made, where that needs a word."""


@torch.no_grad()
def completion_panels(model: MaskedAutoencoder, images: Tensor, mask: Tensor) -> Panels:
    """Mask normalised images, complete them, and bring all to what a person can look at."""
    completion = model(images, mask)
    config = model.config
    hidden = completion.mask.masked[..., None].expand_as(completion.patches).float()
    hidden = unpatchify(hidden, config.patch_size, config.grid).amax(1)[..., None].cpu().numpy()
    original, completed = (
        [np.atleast_3d(np.asarray(model.to_image(image), dtype=np.float32) / 255) for image in batch]
        for batch in (images, completion.completed)
    )
    masked = [np.where(where > 0, MASKED_COLOUR, _rgb(image)) for where, image in zip(hidden, original, strict=True)]
    errors = (completion.errors * completion.mask.masked).sum(-1) / completion.mask.masked.sum(-1).clamp(min=1)
    return Panels(masked, completed, original, errors.tolist(), completion.caption)


def _rgb(image: np.ndarray) -> np.ndarray:
    return np.broadcast_to(image, (*image.shape[:2], 3)) if image.shape[2] == 1 else image[..., :3]
