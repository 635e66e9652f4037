"""How well decoder layer g^{L-l} inverts encoder layer f^l, an assumption of the paper's design."""

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from crate_mae.analysis.quantities import wide
from crate_mae.analysis.streaming import Curve, LinearCKA, Moments
from crate_mae.errors import UserError
from crate_mae.models.autoencoder import MaskedAutoencoder
from crate_mae.models.stack import Tokens


@dataclass(frozen=True)
class Undoing:
    """g^{L-l}(f^l(Z^l)) compared with Z^l for l = 1 .. L, nothing masked; for reference also f^l(Z^l) itself."""

    error: Curve
    """||g(f(Z)) - Z||_F / ||Z||_F for each image."""
    error_left_alone: Curve
    """||f(Z) - Z||_F / ||Z||_F for each image; if ``error`` is above it, g does not help."""
    alignment: Float[np.ndarray, " layers"]
    """Linear CKA of g(f(Z)) and Z over the tokens of all images; invariant to scale, rotation and shift."""
    alignment_left_alone: Float[np.ndarray, " layers"]
    """Linear CKA of f(Z) and Z."""
    images: int


def why_not_undoing(model: MaskedAutoencoder) -> str | None:
    """Why the layers can't be paired; None if they can."""
    config = model.config
    if config.depth != config.decoder_depth:
        return f"{config.depth} encoder layers and {config.decoder_depth} decoder layers do not pair up"
    if config.dim != config.decoder_dim:
        return f"tokens are {config.dim} wide in the encoder and {config.decoder_dim} in the decoder"
    return None


class UndoingWatch:
    """Accumulates ``Undoing`` over batches."""

    def __init__(self, model: MaskedAutoencoder):
        if reason := why_not_undoing(model):
            raise UserError(f"the decoder's layers can't be compared with the encoder's: {reason}.")
        self.pairs = list(zip(model.encoder.blocks, reversed(model.decoder.blocks), strict=True))
        self._errors, self._left_alone = Moments(), Moments()
        self._alignments = [(LinearCKA(), LinearCKA()) for _ in self.pairs]

    @torch.no_grad()
    def add(self, tokens: Tokens) -> None:
        """Add a batch of Z^1, ``model.embed(images)``."""
        errors, left_alone = [], []
        for (f, g), (alignment, alone) in zip(self.pairs, self._alignments, strict=True):
            done = f(tokens)
            Z, after, back = (wide(state) for state in (tokens, done, g(done)))
            errors.append(_relative(back, Z))
            left_alone.append(_relative(after, Z))
            alignment.add(Z.flatten(0, 1), back.flatten(0, 1))
            alone.add(Z.flatten(0, 1), after.flatten(0, 1))
            tokens = done
        self._errors.add(torch.stack(errors, 1))
        self._left_alone.add(torch.stack(left_alone, 1))

    def undoing(self) -> Undoing:
        """The result over all batches so far."""
        alignment, alone = np.array([[one.value() for one in both] for both in self._alignments]).T
        return Undoing(self._errors.curve(), self._left_alone.curve(), alignment, alone, self._errors.count)


def undoing(model: MaskedAutoencoder, batches: Iterable[Tensor]) -> Undoing:
    """How well each decoder layer inverts its encoder layer, over batches of normalised images."""
    watch = UndoingWatch(model)
    for images in batches:
        with torch.no_grad():
            watch.add(model.embed(images))
    return watch.undoing()


def _relative(one: Tokens, other: Tokens) -> Float[Tensor, " b"]:
    return (one - other).flatten(1).norm(dim=1) / other.flatten(1).norm(dim=1)
