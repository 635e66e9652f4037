"""Images as tokens: patches, masks and position tables."""

import math
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import torch
import torch.nn.functional as F
from einops import rearrange
from jaxtyping import Bool, Float, Int
from torch import Tensor

from crate_mae.errors import UserError
from crate_mae.settings import Size

MaskTensor = Tensor
"""A user's mask, True where a patch is masked: Bool[Tensor, "b N"], or Bool[Tensor, " N"] for all images.

The shape is not enforced by the annotation, since ``Mask.of`` refuses another one in a sentence.
"""


def patchify(images: Float[Tensor, "b c H W"], patch: Size) -> Float[Tensor, "b n pixels"]:
    """Cut images into patches in row-major order; the pixels of a patch in the order (row, column, channel)."""
    return rearrange(images, "b c (h p) (w q) -> b (h w) (p q c)", p=patch[0], q=patch[1])


def unpatchify(patches: Float[Tensor, "b n pixels"], patch: Size, grid: Size) -> Float[Tensor, "b c H W"]:
    """The inverse of ``patchify`` for a grid of h x w patches."""
    h, w = grid
    return rearrange(patches, "b (h w) (p q c) -> b c (h p) (w q)", h=h, w=w, p=patch[0], q=patch[1])


def normalise_patches(patches: Float[Tensor, "b n pixels"]) -> Float[Tensor, "b n pixels"]:
    """Each patch minus its own mean, divided by its own standard deviation: the targets of ``norm_pix_loss``."""
    mean, std = patch_statistics(patches)
    return (patches - mean) / std


def patch_statistics(patches: Float[Tensor, "b n pixels"]) -> tuple[Float[Tensor, "b n 1"], Float[Tensor, "b n 1"]]:
    """Mean and standard deviation of each patch over pixels and channels; unbiased variance plus 1e-6 (He et al.)."""
    return patches.mean(-1, keepdim=True), (patches.var(-1, keepdim=True) + 1e-6).sqrt()


# --- masks ----------------------------------------------------------------------------------------------------------


def masked_count(num_patches: int, ratio: float) -> int:
    """round(ratio * N), but at least one patch masked and one visible."""
    if not 0 <= ratio <= 1:
        raise UserError(f"the mask ratio is {ratio}; choose a number from 0 to 1.")
    if num_patches < 2:
        raise UserError("one patch can't be split into masked and visible ones; use a smaller patch or a larger image.")
    return min(max(round(ratio * num_patches), 1), num_patches - 1)


def random_mask(
    batch: int, num_patches: int, ratio: float = 0.75, generator: torch.Generator | None = None
) -> Bool[Tensor, "b n"]:
    """Uniformly random masks with round(ratio * N) masked patches each; True where masked.

    Every row has the same count: at least one patch is masked and one visible. The tensor is on the generator's device
    (the CPU by default), so that the same seed gives the same masks on any machine.
    """
    device = "cpu" if generator is None else generator.device
    order = torch.rand(batch, num_patches, generator=generator, device=device).argsort(-1)
    return order < masked_count(num_patches, ratio)


@dataclass(frozen=True)
class Mask:
    """A mask that has been checked against a batch, and the operations that the autoencoder needs."""

    masked: Bool[Tensor, "b n"]
    """True where a patch is masked."""
    given: Bool[Tensor, "b n"]
    """The same on its original device. A mask from the CPU is counted there, so that a GPU is not synchronised."""

    @staticmethod
    def of(mask: object, batch: int, num_patches: int, device: torch.device) -> "Mask":
        """Check a boolean mask, (N,) for all images or (B, N) for each, and move it to the device."""
        if not isinstance(mask, Tensor) or mask.dtype != torch.bool:
            kind = mask.dtype if isinstance(mask, Tensor) else type(mask).__name__
            raise UserError(f"a mask is a boolean tensor, True where masked, not {kind}; make one with mask.bool().")
        if mask.shape not in ((num_patches,), (batch, num_patches)):
            raise UserError(
                f"the mask has shape {tuple(mask.shape)}; this model and these {batch} images need ({num_patches},) "
                f"or ({batch}, {num_patches}), one entry for each patch."
            )
        if not torch.compiler.is_compiling() and mask.all(-1).any():
            raise UserError("the mask leaves nothing visible in an image; keep at least one patch.")
        mask = mask.expand(batch, num_patches)
        return Mask(mask.to(device, non_blocking=True), mask)

    @cached_property
    def index(self) -> Int[Tensor, "b v"]:
        """The visible patches of each image in patch order; images with fewer of them than others are padded."""
        return self._order.to(self.masked.device, non_blocking=True)

    @cached_property
    def present(self) -> Bool[Tensor, "b v"] | None:
        """False where ``index`` is padding; None if there is no padding."""
        there = ~self.given.gather(1, self._order)
        return None if there.all() else there.to(self.masked.device, non_blocking=True)

    @cached_property
    def _order(self) -> Int[Tensor, "b v"]:
        longest = int((~self.given).sum(-1).max())
        return self.given.long().argsort(dim=-1, stable=True)[:, :longest]

    def take(self, patches: Float[Tensor, "b n c"]) -> Float[Tensor, "b v c"]:
        """The visible patches, in patch order."""
        return patches.gather(1, self.index[..., None].expand(-1, -1, patches.shape[-1]))

    def put(self, visible: Float[Tensor, "b v c"], fill: Float[Tensor, " c"]) -> Float[Tensor, "b n c"]:
        """The inverse of ``take``: visible patches in their places, ``fill`` where masked."""
        index = self.index[..., None].expand(-1, -1, visible.shape[-1])
        places = visible.new_zeros(*self.masked.shape, visible.shape[-1]).scatter(1, index, visible)
        return self.replace(places, fill)

    def replace(self, patches: Float[Tensor, "b n c"], fill: Float[Tensor, "..."]) -> Float[Tensor, "b n c"]:
        """``fill`` where masked, the patches elsewhere."""
        return torch.where(self.masked[..., None], fill.to(patches.dtype), patches)

    def mean_over_masked(self, values: Float[Tensor, "b n"], dim: int | None = None) -> Float[Tensor, "*left"]:
        """The mean over all masked patches of the batch, or over those of each image (``dim=-1``); zero without any."""
        return torch.where(self.masked, values, 0).sum(dim) / self.masked.sum(dim).clamp(min=1)


@dataclass(frozen=True)
class StillMask(Mask):
    """The same operations with shapes that do not depend on the mask, as an exported graph needs them.

    The masked patches stay in their places, and no token attends to them. The result is the same up to rounding.
    """

    @cached_property
    def index(self) -> Int[Tensor, "b n"]:
        """Every patch."""
        return torch.arange(self.masked.shape[1], device=self.masked.device).expand(self.masked.shape)

    @cached_property
    def present(self) -> Bool[Tensor, "b n"]:
        """False where a patch is masked."""
        return ~self.masked

    def take(self, patches: Float[Tensor, "b n c"]) -> Float[Tensor, "b n c"]:
        """All patches."""
        return patches

    def put(self, visible: Float[Tensor, "b n c"], fill: Float[Tensor, " c"]) -> Float[Tensor, "b n c"]:
        """``fill`` where masked."""
        return self.replace(visible, fill)


# --- positions ------------------------------------------------------------------------------------------------------


def sine_cosine_table(grid: Size, dim: int) -> Float[Tensor, "n d"]:
    """The fixed 2-D table of He et al.: half of the channels for the column, half for the row, sines then cosines."""
    if dim % 4:
        raise UserError(f"the fixed position table needs a dim that 4 divides, not {dim}; use positions='learned'.")
    # float32 in numpy, as the authors' code does it. numpy's sine differs in the last bit from processor to processor.
    frequency = 1.0 / 10000 ** (np.arange(dim // 4, dtype=np.float32) / np.float32(dim / 4))
    row, column = (np.outer(np.arange(size, dtype=np.float32), frequency) for size in grid)
    row, column = (np.concatenate([np.sin(angle), np.cos(angle)], -1) for angle in (row, column))
    h, w = grid
    table = np.concatenate([np.tile(column, (h, 1)), np.repeat(row, w, 0)], -1)
    return torch.from_numpy(table)


def interpolate_table(table: Float[Tensor, "n d"], old: Size, new: Size) -> Float[Tensor, "m d"]:
    """A position table of an old grid, resampled (bicubic) for a new one."""
    if old == new:
        return table
    picture = rearrange(table, "(h w) d -> 1 d h w", h=old[0], w=old[1]).float()
    picture = F.interpolate(picture, size=new, mode="bicubic", align_corners=False)
    return rearrange(picture, "1 d h w -> (h w) d").to(table.dtype)


def square_grid(num_patches: int) -> Size | None:
    """(h, h) if N is a square number, else None."""
    side = math.isqrt(num_patches)
    return (side, side) if side * side == num_patches else None
