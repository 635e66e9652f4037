"""How far the subspaces of a layer are from being orthonormal, and from each other."""

import math
from dataclasses import dataclass

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from crate_mae.analysis.quantities import wide
from crate_mae.models.stack import Stack


@dataclass(frozen=True)
class Incoherence:
    """The K bases of each layer against each other; from the weights alone."""

    raw: Float[np.ndarray, "layers K K"]
    """||U_k^T U_l||_2, the largest singular value, with the bases as they were learned."""
    orthonormal: Float[np.ndarray, "layers K K"]
    """||Q_k^T Q_l||_2 with Q_k an orthonormal basis of the span of U_k: the cosine of the smallest angle between the
    two subspaces. 0 if they are orthogonal, 1 if they share a direction."""
    stretch: Float[np.ndarray, "layers 2"]
    """The smallest and the largest singular value of the layer's U_k: both 1 if the bases are orthonormal."""
    by_chance: float
    """``orthonormal`` for two random subspaces of a large space: 2 sqrt(r (1 - r)) with r = p / d."""

    @property
    def mean(self) -> Float[np.ndarray, " layers"]:
        """``orthonormal`` averaged over the pairs of different subspaces."""
        return _pairs(self.orthonormal).mean(1)

    @property
    def largest(self) -> Float[np.ndarray, " layers"]:
        """``orthonormal`` of the closest pair."""
        return _pairs(self.orthonormal).max(1)


def incoherence(stack: Stack) -> Incoherence | str:
    """The subspaces of each layer of an encoder or decoder; a reason if there is nothing to compare."""
    found = [block.bases for block in stack.blocks]
    bases = [wide(U).cpu() for U in found if U is not None]
    if len(bases) < len(found):
        return "this family has no subspaces U"
    K, d, p = bases[0].shape
    if K == 1:
        return "there is only one subspace"
    return Incoherence(
        np.stack([_norms(U) for U in bases]),
        np.stack([_norms(torch.linalg.qr(U).Q) for U in bases]),
        np.array([[values.min().item(), values.max().item()] for values in map(torch.linalg.svdvals, bases)]),
        2 * math.sqrt(p / d * (1 - p / d)),
    )


def _norms(U: Float[Tensor, "K d p"]) -> Float[np.ndarray, "K K"]:
    return torch.linalg.matrix_norm(U.mT[:, None] @ U[None], ord=2).numpy()


def _pairs(matrices: Float[np.ndarray, "layers K K"]) -> Float[np.ndarray, "layers pairs"]:
    above, right = np.triu_indices(matrices.shape[1], 1)
    return matrices[:, above, right]
