"""Principal components of the tokens of one class's images, as colours (appendix on visualisation)."""

from dataclasses import dataclass

import numpy as np
import torch
from jaxtyping import Bool, Float
from torch import Tensor

from crate_mae.analysis.attention import penultimate
from crate_mae.analysis.quantities import wide
from crate_mae.errors import UserError
from crate_mae.models.image_model import ImageModel
from crate_mae.operators import merge

COLOURS = 3
THRESHOLD = 0.5
"""In root mean squares of the first component; the paper gives no number."""


@dataclass(frozen=True)
class Components:
    """What the components say about each patch of each image."""

    first: Float[np.ndarray, "b h w"]
    """<u_0, z>: the first component over all patches, its sign chosen."""
    kept: Bool[np.ndarray, "b h w"]
    """Where ``first`` is at least ``cut``; the rest is background."""
    projections: Float[np.ndarray, "b h w 3"]
    """<u_1, z>, <u_2, z>, <u_3, z>: the first three components over the patches that were kept; NaN elsewhere."""
    energy: Float[np.ndarray, " 3"]
    """The fraction of the kept patches' squared norm in each of the three."""
    cut: float
    """lambda: ``threshold`` times the root mean square of ``first``."""
    threshold: float
    border_kept: float
    """The fraction of the patches on the images' border that were kept."""
    layer: int
    """From 1 to L."""

    @property
    def colours(self) -> Float[np.ndarray, "b h w 3"]:
        """The three components as red, green and blue, each from 0 to 1 over the patches kept; NaN elsewhere."""
        low = np.nanmin(self.projections, (0, 1, 2))
        reach = np.nanmax(self.projections, (0, 1, 2)) - low
        return (self.projections - low) / np.where(reach > 0, reach, 1)


@torch.no_grad()
def components(
    model: ImageModel, images: Float[Tensor, "b c H W"], layer: int | None = None, threshold: float = THRESHOLD
) -> Components:
    """The paper's procedure on the patches of some images, preferably of one class.

    1. A patch is [U_1^T z; ..; U_K^T z], with z a token that enters encoder layer ``layer`` (1 to L, -1 is the last; by
       default the one before the last) and U_k that layer's bases. In a ViT layer it is the keys [K_1 z; ..; K_K z], as
       in Amir et al., whom the paper follows; the paper itself does not say. In a white-box layer U_k^T z are the keys.
    2. u_0 is the first eigenvector of the uncentred Z^T Z of all patches. Patches with <u_0, z> >= lambda are kept. The
       sign of u_0 is chosen such that fewer patches on the border are kept, but at least three patches in all. (If all
       projections have the same sign, the other sign keeps none, and the kept patches may be the background: see
       ``border_kept``.)
    3. u_1, u_2, u_3 are the first three eigenvectors of Z_s^T Z_s of the kept patches; <u_i, z> are their colours.

    Differs from the paper by the unit of lambda: ``threshold`` is in root mean squares of <u_0, z>, so that it means
    the same in any layer of any model. The sign of u_1 to u_3 makes the sum of their projections positive.
    """
    if not threshold >= 0:
        raise UserError(f"the threshold is {threshold}; choose a number from 0 up.")
    number = model.encoder.index(penultimate(model) if layer is None else layer) + 1
    tokens = model.encoder.entering(model.embed(images), number)
    _, keys = model.encoder.blocks[number - 1].queries_and_keys(tokens)
    patches = wide(merge(keys))[:, 1:]
    Z = patches.flatten(0, 1)
    if Z.shape[1] < COLOURS:
        raise UserError(f"three components need tokens of three dimensions or more, not {Z.shape[1]}.")
    h, w = model.config.grid
    border = torch.ones(h, w, dtype=torch.bool, device=Z.device)
    border[1:-1, 1:-1] = False
    first = (Z @ leading(Z, 1)[0])[:, 0]
    cut = threshold * float(first.square().mean().sqrt())
    first = _with_sign(first, cut, border.flatten().repeat(len(images)))
    kept = first >= cut
    axes, energy = leading(Z[kept], COLOURS)
    axes = axes * (Z[kept] @ axes).sum(0).sign()
    projections = torch.where(kept[:, None], Z @ axes, torch.nan)
    shape = (len(images), h, w)
    on_border = kept.unflatten(0, shape)[:, border].to(Z.dtype).mean()
    return Components(
        first.unflatten(0, shape).cpu().numpy(),
        kept.unflatten(0, shape).cpu().numpy(),
        projections.unflatten(0, shape).cpu().numpy(),
        energy.cpu().numpy(),
        cut,
        threshold,
        float(on_border),
        number,
    )


def leading(Z: Float[Tensor, "n d"], count: int) -> tuple[Float[Tensor, "d k"], Float[Tensor, " k"]]:
    """The first right singular vectors of Z as columns, and the fraction of ||Z||_F^2 in each."""
    _, values, axes = torch.linalg.svd(Z, full_matrices=False)
    squares = values.square()
    return axes[:count].mT, squares[:count] / squares.sum()


def _with_sign(first: Float[Tensor, " n"], cut: float, border: Bool[Tensor, " n"]) -> Float[Tensor, " n"]:
    signs = [side for side in (first, -first) if (side >= cut).sum() >= COLOURS]
    if not signs:
        most = max(int((side >= cut).sum()) for side in (first, -first))
        raise UserError(f"the threshold keeps {most} of {len(first)} patches, fewer than three; choose a lower one.")
    return min(signs, key=lambda side: int((side >= cut)[border].sum()))
