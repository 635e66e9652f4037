"""What each encoder layer of a pretrained contestant does, beside the same architecture with random weights."""

from collections.abc import Callable

import numpy as np
import torch
from jaxtyping import Float, Int, UInt8
from torch import Tensor

from crate_mae.analysis.layerwise import layer_curves
from crate_mae.bench.race.images import RaceImages, batch
from crate_mae.bench.race.training import EVALUATED_AT_ONCE, Report
from crate_mae.evaluation.knn import quick_probe
from crate_mae.features.extraction import Which, describe
from crate_mae.models.image_model import ImageModel
from crate_mae.models.zoo import untrained

WATCHED = ("compression", "compression_normed", "compression_step", "objective_step", "sparsity")
"""Of ``crate_mae.analysis.quantities``; a contestant without subspaces has the last one only."""
PROBE = "probe"
MEASURED = 256
"""Test images on which the quantities are measured, evenly spaced."""
PROBED = 10_000
"""Training images to which each layer's probe is fitted; it is scored on all test images."""

Lists = dict[str, list[float]]
"""By the name of a quantity, a number for each layer."""


def by_layer(model: ImageModel, images: RaceImages, seed: int, report: Report) -> dict[str, Lists]:
    """The quantities, and the probe of each layer's output, of the ``trained`` and the ``untrained`` model."""
    found: dict[str, Lists] = {}
    for weights, one in {"trained": model, "untrained": untrained(model, seed)}.items():
        began = len(found) / 2

        def half(share: float, began: float = began) -> None:
            report(began + share / 2, "")

        found[weights] = quantities(one, images) | {PROBE: probes(one, images, half)}
    return found


def quantities(model: ImageModel, images: RaceImages) -> Lists:
    """Means over some test images, nothing masked."""
    chosen = np.linspace(0, len(images.test) - 1, min(MEASURED, len(images.test))).astype(int)
    with torch.no_grad():
        embedded = model.embed(batch(images.test, chosen, model.config))
    found = layer_curves(model.encoder, embedded.split(64), names=WATCHED)
    return {name: curve.mean.tolist() for name, curve in found.curves.items()}


def probes(model: ImageModel, images: RaceImages, report: Callable[[float], None]) -> list[float]:
    """Accuracy in per cent of a ridge regression on the mean of patches of each layer's output."""
    fitted = np.sort(np.random.default_rng(0).permutation(len(images.train))[:PROBED])
    train = _features(model, images.train, fitted, lambda share: report(0.5 * share))
    test = _features(model, images.test, np.arange(len(images.test)), lambda share: report(0.5 + 0.5 * share))
    labels, truth = torch.tensor(images.train_labels[fitted]), torch.tensor(images.test_labels)
    return [quick_probe(train[which], labels, test[which], truth) for which in train]


def _features(
    model: ImageModel,
    pixels: UInt8[np.ndarray, "n H W c"],
    chosen: Int[np.ndarray, " m"],
    report: Callable[[float], None],
) -> dict[Which, Float[Tensor, "m d"]]:
    """The mean of patches of each layer's output, for the chosen images."""
    layers = [Which(layer) for layer in range(1, model.config.depth + 1)]
    found: dict[Which, list[Tensor]] = {which: [] for which in layers}
    with torch.no_grad():
        for first in range(0, len(chosen), EVALUATED_AT_ONCE):
            part = batch(pixels, chosen[first : first + EVALUATED_AT_ONCE], model.config)
            for which, features in describe(model, layers, part).items():
                found[which].append(features)
            report(min(first + EVALUATED_AT_ONCE, len(chosen)) / len(chosen))
    return {which: torch.cat(parts) for which, parts in found.items()}
