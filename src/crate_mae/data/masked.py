"""Samples for masked autoencoding: images, labels and masks."""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from jaxtyping import Bool
from torch import Tensor

from crate_mae.data.loader import Batch, Key, Sample, Samples
from crate_mae.data.source import ImageSource
from crate_mae.data.transforms import Transform
from crate_mae.tokens import random_mask


@dataclass(frozen=True)
class MaskedBatch(Batch):
    """Images, labels and masks."""

    masks: Bool[Tensor, "b n"]
    """True where a patch is masked. They stay on the CPU, so that counting them does not wait for a GPU."""

    @property
    def given(self) -> Bool[Tensor, "b n"]:
        """What a loss takes beside the images: the masks."""
        return self.masks


class MaskedSamples(Samples[MaskedBatch]):
    """Samples with a mask each: a pure function of the seed, the epoch and the sample's index, not of its image."""

    def __init__(
        self, source: ImageSource, transform: Transform, num_patches: int, mask_ratio: float = 0.75, seed: int = 0
    ):
        super().__init__(source, transform, seed)
        self.num_patches, self.mask_ratio = num_patches, mask_ratio

    def generator(self, key: Key) -> torch.Generator:
        """The augmentation is drawn after the mask, from the same generator."""
        generator = super().generator(key)
        self._draw(generator)
        return generator

    def mask(self, key: Key) -> Bool[Tensor, " n"]:
        """The mask of a sample."""
        return self._draw(super().generator(key))

    def _draw(self, generator: torch.Generator) -> Bool[Tensor, " n"]:
        return random_mask(1, self.num_patches, self.mask_ratio, generator)[0]

    def batch(self, samples: Sequence[Sample]) -> MaskedBatch:
        masks = torch.stack([self.mask(sample.key) for sample in samples])
        return MaskedBatch(**vars(self._plain(samples)), masks=masks)
