"""Streaming statistics: memory does not grow with the number of images."""

from dataclasses import dataclass

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from crate_mae.errors import UserError


@dataclass(frozen=True)
class Curve:
    """One number for each layer, or for each entry of any other sequence."""

    mean: Float[np.ndarray, " k"]
    """Over images."""
    spread: Float[np.ndarray, " k"]
    """Standard deviation over images."""


class Moments:
    """Mean and standard deviation over images, merged batch by batch (Chan, Golub and LeVeque)."""

    def __init__(self) -> None:
        self.count = 0
        self._mean: np.ndarray | float = 0.0
        self._squares: np.ndarray | float = 0.0  # sum of squared distances from the mean

    def add(self, values: Float[Tensor, "b k"]) -> None:
        """One row for each image."""
        rows = values.detach().double().cpu().numpy()
        mean, total = rows.mean(0), self.count + len(rows)
        shift = mean - self._mean
        self._squares = self._squares + ((rows - mean) ** 2).sum(0) + shift**2 * (self.count * len(rows) / total)
        self._mean = self._mean + shift * (len(rows) / total)
        self.count = total

    def curve(self) -> Curve:
        """Mean and standard deviation over all images so far."""
        if not self.count:
            raise UserError("there is no image to measure; give at least one.")
        return Curve(np.asarray(self._mean), np.sqrt(np.asarray(self._squares) / self.count))


class LinearCKA:
    """Linear centred kernel alignment between two representations of the same tokens (Kornblith et al., 2019).

        CKA(X, Y) = ||X^T Y||_F^2 / (||X^T X||_F ||Y^T Y||_F)   with the mean token subtracted from X (n d) and Y (n e)

    1 if one is a rotated, scaled and shifted copy of the other; near 0 if they are unrelated.
    """

    def __init__(self) -> None:
        self._count = 0
        self._mean: Tensor | None = None
        self._products: Tensor | float = 0.0  # of [X, Y] with itself, centred
        self._width = 0

    def add(self, X: Float[Tensor, "n d"], Y: Float[Tensor, "n e"]) -> None:
        """Add tokens, as rows."""
        both = torch.cat([X, Y], 1)
        mean, total = both.mean(0), self._count + len(both)
        shift = mean if self._mean is None else mean - self._mean
        centred = both - mean
        share = len(both) / total
        self._products = self._products + centred.mT @ centred + (self._count * share) * torch.outer(shift, shift)
        self._mean = shift * share if self._mean is None else self._mean + shift * share
        self._count, self._width = total, X.shape[1]

    def value(self) -> float:
        """The alignment over all tokens so far; 0 if one of the two is constant."""
        if self._mean is None:
            raise UserError("there is no image to measure; give at least one.")
        products, width = torch.as_tensor(self._products), self._width
        own = products[:width, :width].norm() * products[width:, width:].norm()
        return float(products[:width, width:].norm() ** 2 / own) if own > 0 else 0.0
