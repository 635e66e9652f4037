"""What each encoder layer of a pretrained contestant does, beside the same architecture with random weights."""

from collections.abc import Callable

import numpy as np
import torch

from crate_mae.analysis.layerwise import layer_curves
from crate_mae.bench.race.features import features_of
from crate_mae.bench.race.images import RaceImages, batch
from crate_mae.bench.race.training import Report
from crate_mae.evaluation.knn import quick_probe
from crate_mae.features.extraction import Which
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
    layers = [Which(layer) for layer in range(1, model.config.depth + 1)]
    train = features_of(model, images.train, fitted, layers, lambda share: report(0.5 * share))
    everything = np.arange(len(images.test))
    test = features_of(model, images.test, everything, layers, lambda share: report(0.5 + 0.5 * share))
    labels, truth = torch.tensor(images.train_labels[fitted]), torch.tensor(images.test_labels)
    return [
        quick_probe(torch.from_numpy(train[which]), labels, torch.from_numpy(test[which]), truth) for which in layers
    ]
