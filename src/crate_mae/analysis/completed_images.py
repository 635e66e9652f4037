"""Completed images for display, and their errors."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from jaxtyping import Bool, Float
from torch import Tensor

from crate_mae.analysis.streaming import Curve, Moments
from crate_mae.models.autoencoder import Completion, MaskedAutoencoder
from crate_mae.models.image_model import ImageModel
from crate_mae.tokens import MaskTensor, masked_count, random_mask, unpatchify

MASKED_COLOUR = (0.70, 0.78, 0.90)  # not gray, so that it differs from every pixel of a gray image
RATIOS = (0.25, 0.5, 0.75, 0.9)


@dataclass(frozen=True)
class Panels:
    """Images (H, W, C) in [0, 1], and each one's mean squared error over its masked patches, in normalised units."""

    masked: list[np.ndarray]
    completed: list[np.ndarray]
    original: list[np.ndarray]
    errors: list[float]
    caption: str
    """How the completions were computed, if a caption should say so."""


@torch.no_grad()
def completion_panels(model: MaskedAutoencoder, images: Float[Tensor, "b c H W"], mask: MaskTensor) -> Panels:
    """Mask normalised images, complete them, and convert all to pixel values for display."""
    return panels_of(model, images, model(images, mask))


def panels_of(model: MaskedAutoencoder, images: Float[Tensor, "b c H W"], completion: Completion) -> Panels:
    """``completion_panels`` for a completion that was already computed."""
    config = model.config
    hidden = completion.mask.masked[..., None].expand_as(completion.patches).float()
    places = unpatchify(hidden, config.patch_size, config.grid).amax(1)[..., None].cpu().numpy()
    original, completed = (pictures(model, batch) for batch in (images, completion.completed))
    masked = [np.where(where > 0, MASKED_COLOUR, _rgb(image)) for where, image in zip(places, original, strict=True)]
    return Panels(masked, completed, original, completion.image_errors.tolist(), completion.caption)


def pictures(model: ImageModel, images: Float[Tensor, "b c H W"]) -> list[np.ndarray]:
    """Normalised images as arrays (H, W, C) in [0, 1]."""
    return [np.atleast_3d(np.asarray(model.to_image(image), dtype=np.float32) / 255) for image in images]


@dataclass(frozen=True)
class Ratios:
    """The error of completion at several mask ratios."""

    ratios: tuple[float, ...]
    masked: tuple[int, ...]
    """Masked patches at each ratio."""
    error: Curve
    """Over images, for each ratio: mean squared error over the masked patches, in normalised units."""
    images: int


class RatioWatch:
    """Accumulates ``Ratios`` over batches."""

    def __init__(self, model: MaskedAutoencoder, seed: int = 0, ratios: Sequence[float] = RATIOS):
        self.model, self.ratios = model, tuple(ratios)
        self._generators = _same_generators(seed, len(self.ratios))
        self._moments = Moments()

    @torch.no_grad()
    def add(self, images: Float[Tensor, "b c H W"]) -> None:
        """Add a batch of normalised images."""
        masks = _nested_masks(self.model, len(images), self.ratios, self._generators)
        self._moments.add(torch.stack([self.model(images, mask).image_errors for mask in masks], 1))

    def result(self) -> Ratios:
        """The result over all batches so far."""
        masked = tuple(masked_count(self.model.num_patches, ratio) for ratio in self.ratios)
        return Ratios(self.ratios, masked, self._moments.curve(), self._moments.count)


def completions_at(
    model: MaskedAutoencoder, images: Float[Tensor, "b c H W"], ratios: Sequence[float] = RATIOS, seed: int = 0
) -> list[Panels]:
    """The same images at several mask ratios; patches masked at one ratio stay masked at all higher ones."""
    masks = _nested_masks(model, len(images), ratios, _same_generators(seed, len(ratios)))
    return [completion_panels(model, images, mask) for mask in masks]


def _same_generators(seed: int, count: int) -> list[torch.Generator]:
    # With the same seed the patches of an image get the same order, and each ratio masks the first ones in it.
    return [torch.Generator().manual_seed(seed) for _ in range(count)]


def _nested_masks(
    model: MaskedAutoencoder, batch: int, ratios: Sequence[float], generators: Sequence[torch.Generator]
) -> list[Bool[Tensor, "b N"]]:
    pairs = zip(ratios, generators, strict=True)
    return [random_mask(batch, model.num_patches, ratio, generator) for ratio, generator in pairs]


def _rgb(image: np.ndarray) -> np.ndarray:
    return np.broadcast_to(image, (*image.shape[:2], 3)) if image.shape[2] == 1 else image[..., :3]
