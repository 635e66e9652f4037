"""What the class token attends to."""

from dataclasses import dataclass
from typing import Literal

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from crate_mae.analysis.quantities import wide
from crate_mae.models.image_model import ImageModel

Convention = Literal["paper", "authors"]
CONVENTIONS: dict[Convention, str] = {
    "paper": "softmax over the patches of the unscaled inner products <K_k z_i, Q_k z_cls> of the raw tokens, the "
    "class token excluded; K_k = Q_k = U_k^T in a white-box layer",
    "authors": "the class token's row of the layer's own attention map: scaled logits, after the norm; the class "
    "token's weight on itself is included in the softmax and not drawn",
}


@dataclass(frozen=True)
class AttentionMaps:
    """Attention of the class token to the patches, in every head of one encoder layer."""

    maps: Float[np.ndarray, "b heads h w"]
    """Weights; with ``on_itself`` each map sums to 1."""
    on_itself: Float[np.ndarray, "b heads"]
    """The class token's weight on itself: 0 by the paper's formula."""
    layer: int
    """From 1 to L."""
    convention: Convention


@torch.no_grad()
def attention_maps(
    model: ImageModel, images: Float[Tensor, "b c H W"], layer: int | None = None, convention: Convention = "paper"
) -> AttentionMaps:
    """The maps of encoder layer 1 to L (-1 is the last), by default the one before the last, as in the paper.

    ``paper`` is A_k = softmax_i <U_k^T z_i, U_k^T z_cls> (eq:def_attention_map_crate), and the queries and keys of an
    ordinary layer in place of U_k^T z. ``authors`` is a row of ``model.attention``. ``CONVENTIONS`` has both in words.
    """
    number = model.encoder.index(penultimate(model) if layer is None else layer) + 1
    if convention == "authors":
        row = model.attention(images, number)[:, :, 0]
        weights, on_itself = row[..., 1:], row[..., 0]
    else:
        tokens = model.encoder.entering(model.embed(images), number)
        queries, keys = (wide(heads) for heads in model.encoder.blocks[number - 1].queries_and_keys(tokens))
        weights = (queries[:, :, :1] @ keys[:, :, 1:].mT).softmax(-1)[:, :, 0]
        on_itself = torch.zeros_like(weights[..., 0])
    maps = weights.unflatten(-1, model.config.grid)
    return AttentionMaps(maps.cpu().numpy(), on_itself.cpu().numpy(), number, convention)


def penultimate(model: ImageModel) -> int:
    """The number of the layer before the last; 1 if there is only one."""
    return max(model.config.depth - 1, 1)
