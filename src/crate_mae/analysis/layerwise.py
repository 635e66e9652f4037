"""What each layer does to its tokens, over many images: the paper's two curves and more."""

from collections.abc import Collection, Iterable
from dataclasses import dataclass

import torch
from torch import Tensor

from crate_mae.analysis.quantities import QUANTITIES, View
from crate_mae.analysis.streaming import Curve, Moments
from crate_mae.models.stack import Stack, Tokens

EPSILON = 0.1
"""eps^2 = 0.01 in every rate, as in the authors' script; the paper gives no value."""


@dataclass(frozen=True)
class LayerCurves:
    """``QUANTITIES`` over the layers of an encoder or a decoder."""

    curves: dict[str, Curve]
    """Each quantity by name, with one entry for every layer."""
    left_out: dict[str, str]
    """Quantities that are not defined for this model, and why."""
    images: int
    epsilon: float

    def __getitem__(self, name: str) -> Curve:
        return self.curves[name]


class LayerWatch:
    """Accumulates ``LayerCurves`` of the named quantities over batches."""

    def __init__(self, stack: Stack, epsilon: float = EPSILON, names: Collection[str] = QUANTITIES.keys()):
        self.stack, self.epsilon = stack, epsilon
        reasons = {
            name: next((why for block in stack.blocks if (why := QUANTITIES[name].why_not(block))), None)
            for name in names
        }
        self.left_out = {name: why for name, why in reasons.items() if why}
        self._moments = {name: Moments() for name, why in reasons.items() if not why}

    @torch.no_grad()
    def add(self, tokens: Tokens) -> None:
        """Add a batch of inputs of the first layer."""
        rows: dict[str, list[Tensor]] = {name: [] for name in self._moments}
        for block, step in zip(self.stack.blocks, self.stack.steps(tokens), strict=True):
            view = View(block, tokens, step, self.epsilon)
            for name, row in rows.items():
                row.append(QUANTITIES[name].of(view))
            tokens = step.tokens
        for name, moments in self._moments.items():
            moments.add(torch.stack(rows[name], 1))

    def curves(self) -> LayerCurves:
        """The curves over all batches so far."""
        curves = {name: moments.curve() for name, moments in self._moments.items()}
        return LayerCurves(curves, self.left_out, next(iter(self._moments.values())).count, self.epsilon)


def layer_curves(
    stack: Stack, batches: Iterable[Tensor], epsilon: float = EPSILON, names: Collection[str] = QUANTITIES.keys()
) -> LayerCurves:
    """Every named quantity over the layers of a stack, given batches of inputs of its first layer.

    For an encoder that is ``model.embed(images)``, for a decoder ``model.hand_over(model.encode(images, mask), mask)``.
    """
    watch = LayerWatch(stack, epsilon, names)
    for tokens in batches:
        watch.add(tokens)
    return watch.curves()
