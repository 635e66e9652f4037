"""What the demo measures on its pretrained model: completion, a linear probe, and what each layer does."""

from dataclasses import dataclass
from typing import Any

import torch

from crate_mae.analysis.completed_images import Panels, completion_panels
from crate_mae.analysis.layerwise import LayerCurves, layer_curves
from crate_mae.data.loader import evaluation_batches
from crate_mae.data.masked import MaskedBatch
from crate_mae.data.source import ImageSource
from crate_mae.evaluation.linear_probe import Probe, linear_probe
from crate_mae.evaluation.probe_model import open_parts
from crate_mae.features.extraction import Features
from crate_mae.models.autoencoder import MaskedAutoencoder
from crate_mae.training.config import PretrainConfig
from crate_mae.training.evaluators import as_evaluated, masked_as_evaluated
from crate_mae.training.run_folder import Run

STRENGTHS = (0.01, 0.1, 1.0, 10.0, 100.0)  # raw pixels need stronger regularisation than the paper's C >= 1
SHOWN = 8


@dataclass(frozen=True)
class Losses:
    """The loss during training, by step."""

    training: dict[int, float]
    """Mean over the last few batches."""
    held_out: dict[int, float]
    """On validation images."""


@dataclass(frozen=True)
class DemoResults:
    """Everything that the report shows."""

    losses: Losses
    error: float
    """Mean squared error over the masked patches of the test digits, in units of the pixels' variance."""
    mean_patch: float
    """The same if every masked patch is filled with the mean training patch at its position."""
    probes: dict[str, Probe]
    """Linear probes by the name of their features."""
    layers: LayerCurves
    untrained: LayerCurves
    """The same for the same architecture with random weights."""
    completions: Panels
    training_images: int
    test_images: int

    def numbers(self) -> dict[str, Any]:
        """Every number as plain values for JSON."""
        shown = ("compression", "sparsity")
        return {
            "completion_error": self.error,
            "mean_patch_error": self.mean_patch,
            "probe_accuracy": {name: result.accuracy for name, result in self.probes.items()},
            "probe_C": {name: result.C for name, result in self.probes.items()},
            **{name: self.layers[name].mean.tolist() for name in shown},
            "untrained": {name: self.untrained[name].mean.tolist() for name in shown},
            "training_loss": self.losses.training,
            "held_out_loss": self.losses.held_out,
        }


def measure(model: MaskedAutoencoder, config: PretrainConfig, run: Run) -> DemoResults:
    """Measure the pretrained model of a finished run on the test digits."""
    reference = MaskedAutoencoder(model.config, torch.Generator().manual_seed(config.seed))
    parts = open_parts(config.data, None, download=False)
    probes = {
        "untrained network": probe(features(reference, parts.train), features(reference, parts.test), config.seed),
        "raw pixels": probe(pixels(model, parts.train), pixels(model, parts.test), config.seed),
        "pretrained CRATE-MAE": probe(features(model, parts.train), features(model, parts.test), config.seed),
    }
    train, test = (whole(part, model, config) for part in (parts.train, parts.test))
    with torch.no_grad():
        error = model(test.images, test.masks).loss.item()
    return DemoResults(
        Losses(run.series("loss"), run.series("val_loss")),
        error,
        mean_patch_error(model, train, test),
        probes,
        _layers(model, test),
        _layers(reference, test),
        completion_panels(model, test.images[:SHOWN], test.masks[:SHOWN]),
        len(train.images),
        len(test.images),
    )


def _layers(model: MaskedAutoencoder, test: MaskedBatch) -> LayerCurves:
    return layer_curves(model.encoder, (model.embed(images) for images in test.images.split(64)))


def whole(source: ImageSource, model: MaskedAutoencoder, config: PretrainConfig) -> MaskedBatch:
    """All images of a data set in one batch, with fixed masks."""
    return next(evaluation_batches(masked_as_evaluated(source, model.config, config.mask_ratio), len(source)))


def mean_patch_error(model: MaskedAutoencoder, train: MaskedBatch, test: MaskedBatch) -> float:
    """The error of filling each masked patch with the mean training patch at the same position."""
    mean = model.patches(train.images).mean(0)
    return (model.patches(test.images) - mean).square().mean(-1)[test.masks].mean().item()


@torch.no_grad()
def features(model: MaskedAutoencoder, source: ImageSource) -> Features:
    """The encoder's output, patches side by side: N d numbers that keep their places, as pixels do."""
    batch = next(evaluation_batches(as_evaluated(source, model.config), len(source)))
    return Features(model.features(batch.images, pool="grid").flatten(1).numpy(), batch.labels.numpy())


def pixels(model: MaskedAutoencoder, source: ImageSource) -> Features:
    """The 64 raw pixels."""
    batch = next(evaluation_batches(as_evaluated(source, model.config), len(source)))
    return Features(batch.images.flatten(1).numpy(), batch.labels.numpy())


def probe(train: Features, test: Features, seed: int) -> Probe:
    """A linear probe with C chosen on a fifth of the training digits."""
    return linear_probe(train.values, train.labels, test.values, test.labels, strengths=STRENGTHS, seed=seed)
