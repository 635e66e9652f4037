"""What each layer does to its tokens, over many images: the paper's two curves and more."""

from collections.abc import Collection, Iterable
from dataclasses import dataclass

import torch
from torch import Tensor

from crate_mae.analysis.quantities import QUANTITIES, View
from crate_mae.analysis.streaming import Curve, Moments
from crate_mae.models.stack import Stack, Tokens

EPSILON = 0.1
"""eps^2 = 0.01 in every rate: what the authors' script has; the paper gives none."""


@dataclass(frozen=True)
class LayerCurves:
    """``QUANTITIES`` over the layers of an encoder or a decoder."""

    curves: dict[str, Curve]
    """By name; each has one entry for every layer."""
    left_out: dict[str, str]
    """Quantities that make no sense for this model, and why."""
    images: int
    epsilon: float

    def __getitem__(self, name: str) -> Curve:
        return self.curves[name]


class LayerWatch:
    """Gathers ``LayerCurves`` of the quantities that are named while batches stream by."""

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
        """A batch of what enters the first layer."""
        rows: dict[str, list[Tensor]] = {name: [] for name in self._moments}
        for block, step in zip(self.stack.blocks, self.stack.steps(tokens), strict=True):
            view = View(block, tokens, step, self.epsilon)
            for name, row in rows.items():
                row.append(QUANTITIES[name].of(view))
            tokens = step.tokens
        for name, moments in self._moments.items():
            moments.add(torch.stack(rows[name], 1))

    def curves(self) -> LayerCurves:
        """What all batches so far give."""
        curves = {name: moments.curve() for name, moments in self._moments.items()}
        return LayerCurves(curves, self.left_out, next(iter(self._moments.values())).count, self.epsilon)


def layer_curves(
    stack: Stack, batches: Iterable[Tensor], epsilon: float = EPSILON, names: Collection[str] = QUANTITIES.keys()
) -> LayerCurves:
    """Every quantity that is named over the layers of a stack, given what enters its first layer.

    For an encoder that is ``model.embed(images)``, for a decoder ``model.hand_over(model.encode(images, mask), mask)``.
    """
    watch = LayerWatch(stack, epsilon, names)
    for tokens in batches:
        watch.add(tokens)
    return watch.curves()
