"""What each layer does to its tokens: the two curves of the paper's figure on compression and sparsity."""

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from crate_mae.errors import UserError
from crate_mae.models.image_model import ImageModel
from crate_mae.models.stack import Step, Tokens
from crate_mae.theory.rates import compression_rate


@dataclass(frozen=True)
class LayerCurve:
    """One number for each layer and each image."""

    values: Float[np.ndarray, "images layers"]

    @property
    def mean(self) -> Float[np.ndarray, " layers"]:
        return self.values.mean(0)

    @property
    def spread(self) -> Float[np.ndarray, " layers"]:
        """Standard deviation over images."""
        return self.values.std(0)


@dataclass(frozen=True)
class LayerCurves:
    """Compression and sparsity over the encoder's layers."""

    compression: LayerCurve
    """R^c(Z^{l+1/2} | U^l)."""
    sparsity: LayerCurve
    """||Z^{l+1}||_0 / (d N)."""


def sparsity(tokens: Tokens) -> Float[Tensor, " b"]:
    """||Z||_0 / (d N): the share of entries that are not zero, the class token's among them."""
    return (tokens != 0).float().mean((-2, -1))


@torch.no_grad()
def layer_curves(model: ImageModel, batches: Iterable[Tensor], epsilon: float = 0.1) -> LayerCurves:
    """Both curves over all images of some batches; N counts the class token, tokens are taken as they are."""
    if any(block.bases is None for block in model.encoder.blocks):
        raise UserError("compression is measured against the subspaces of a CRATE encoder; this model has none.")
    rates, shares = [], []
    for images in batches:
        steps = list(zip(model.encoder.blocks, model.encoder.steps(model.embed(images)), strict=True))
        rates.append(torch.stack([_compression(step, block.bases, epsilon) for block, step in steps], 1))
        shares.append(torch.stack([sparsity(step.full) for _, step in steps], 1))
    return LayerCurves(*(LayerCurve(torch.cat(values).cpu().double().numpy()) for values in (rates, shares)))


def _compression(step: Step, bases: Tensor | None, epsilon: float) -> Float[Tensor, " b"]:
    assert bases is not None
    return compression_rate(step.half.mT, bases, epsilon)
