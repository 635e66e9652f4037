"""The demo: a small CRATE-MAE on scikit-learn's digits, from random weights to a report, in a minute or two."""

import json
import time
from dataclasses import dataclass, replace
from pathlib import Path

import torch
from rich.console import Console

from crate_mae import figures, recipes
from crate_mae.analysis.completed_images import completion_panels
from crate_mae.analysis.layerwise import LayerCurves, layer_curves
from crate_mae.data.loader import Batch, evaluation_batches
from crate_mae.data.source import ImageSource
from crate_mae.device import Device
from crate_mae.evaluation.linear_probe import Probe, linear_probe
from crate_mae.evaluation.probe_model import open_parts
from crate_mae.features.extraction import Features, Reader, Which, model_features
from crate_mae.models.autoencoder import MaskedAutoencoder
from crate_mae.models.locate import BEST
from crate_mae.models.zoo import load_autoencoder
from crate_mae.reports.html import Report
from crate_mae.training.config import PretrainConfig
from crate_mae.training.evaluators import as_evaluated
from crate_mae.training.pretrain import pretrain
from crate_mae.training.run_folder import Run

STRENGTHS = (0.01, 0.1, 1.0, 10.0, 100.0)  # raw pixels want stronger regularisation than the paper's C from 1 up
SHOWN = 8


@dataclass(frozen=True)
class Curve:
    """The loss while training, by step."""

    training: dict[int, float]
    """Mean over the last few batches."""
    held_out: dict[int, float]
    """On validation images."""

    @staticmethod
    def of(run: Run) -> "Curve":
        return Curve(run.series("loss"), run.series("val_loss"))


def run(out: Path, steps: int, seed: int, device: Device, console: Console) -> None:
    """Pretrain (or go on with what is in ``out``), measure, draw, and write everything to ``out``."""
    start = time.monotonic()
    config = replace(recipes.digits(), steps=steps, seed=seed).evaluated_every(max(steps // 5, 1))
    if not pretrain(config, out, resume=True, device=device, console=console).finished:
        return
    model = load_autoencoder(out)
    untrained = MaskedAutoencoder(config.model_config(), torch.Generator().manual_seed(seed))
    parts = open_parts(config.data, None, download=False)
    probes = {
        "untrained network": probe(features(untrained, parts.train), features(untrained, parts.test), seed),
        "raw pixels": probe(pixels(model, parts.train), pixels(model, parts.test), seed),
        "pretrained CRATE-MAE": probe(features(model, parts.train), features(model, parts.test), seed),
    }
    train, test = (whole(part, model, config) for part in (parts.train, parts.test))
    with torch.no_grad():
        error = model(test.images, test.masks).loss.item()
    filled = mean_patch_error(model, train, test)
    curve = Curve.of(Run(out))
    curves = layer_curves(model.encoder, (model.embed(images) for images in test.images.split(64)))
    numbers = {
        "seed": seed,
        "steps": steps,
        "parameters": model.num_parameters,
        "mask_ratio": config.mask_ratio,
        "completion_error": error,
        "mean_patch_error": filled,
        "probe_accuracy": {name: result.accuracy for name, result in probes.items()},
        "probe_C": {name: result.C for name, result in probes.items()},
        "compression": curves["compression"].mean.tolist(),
        "sparsity": curves["sparsity"].mean.tolist(),
        "training_loss": curve.training,
        "held_out_loss": curve.held_out,
    }
    report = draw(out, model, config, train, test, curve, error, filled, probes, curves)
    numbers["seconds"] = round(time.monotonic() - start, 1)
    (out / "numbers.json").write_text(json.dumps(numbers, indent=2) + "\n")
    for line in summary(error, filled, probes):
        console.print(line, highlight=False)
    console.print(f"Checkpoint: {out / BEST}", highlight=False, soft_wrap=True)
    console.print(f"Report:     {report}", highlight=False, soft_wrap=True)


def whole(source: ImageSource, model: MaskedAutoencoder, config: PretrainConfig) -> Batch:
    """All images of a set in one batch, with masks that are the same whenever they are measured."""
    return next(evaluation_batches(as_evaluated(source, model.config, config.mask_ratio), len(source)))


def mean_patch_error(model: MaskedAutoencoder, train: Batch, test: Batch) -> float:
    """The error of filling each masked patch with the training set's mean patch at that place."""
    mean = model.patches(train.images).mean(0)
    return (model.patches(test.images) - mean).square().mean(-1)[test.masks].mean().item()


def features(model: MaskedAutoencoder, source: ImageSource) -> Features:
    """The mean over the patches of the encoder's output."""
    which = Which(-1, "mean")
    return model_features(model, source, [which], reader=Reader(console=Console(quiet=True)))[which]


def pixels(model: MaskedAutoencoder, source: ImageSource) -> Features:
    """The 64 pixels themselves."""
    batch = next(evaluation_batches(as_evaluated(source, model.config, 0.0), len(source)))
    return Features(batch.images.flatten(1).numpy(), batch.labels.numpy())


def probe(train: Features, test: Features, seed: int) -> Probe:
    """A linear probe, C chosen on a fifth of the training digits."""
    return linear_probe(train.values, train.labels, test.values, test.labels, STRENGTHS, seed)


def summary(error: float, filled: float, probes: dict[str, Probe]) -> list[str]:
    """The numbers in words, good or bad."""
    verdict = "below" if error < filled else "NOT below"
    lines = [f"Completion error {error:.3f}, {verdict} the {filled:.3f} of filling with the mean patch."]
    lines += [f"Linear probe of the {name}: {result.accuracy:.1f} %" for name, result in probes.items()]
    gain = probes["pretrained CRATE-MAE"].accuracy - probes["raw pixels"].accuracy
    lines.append(f"The probe is {abs(gain):.1f} points {'above' if gain > 0 else 'BELOW'} raw pixels.")
    return lines


def draw(
    out: Path,
    model: MaskedAutoencoder,
    config: PretrainConfig,
    train: Batch,
    test: Batch,
    curve: Curve,
    error: float,
    filled: float,
    probes: dict[str, Probe],
    curves: LayerCurves,
) -> Path:
    """Every picture, and the report that shows them all."""
    panels = completion_panels(model, test.images[:SHOWN], test.masks[:SHOWN])
    rows = figures.completions(panels.masked, panels.completed, panels.original, panels.errors)
    completions = figures.save(rows, out / "completions.png")
    losses = figures.training_curve(curve.training, curve.held_out, ("mean patch", filled))
    training = figures.save(losses, out / "training.png")
    accuracies = {name: result.accuracy for name, result in probes.items()}
    probing = figures.save(figures.bars(accuracies, "accuracy of a linear probe on test digits, %"), out / "probe.png")
    shown = {
        r"$R^c(Z^{\ell+1/2}\,|\,U^\ell)$, nats": curves["compression"],
        r"$\|Z^{\ell+1}\|_0\,/\,(dN)$": curves["sparsity"],
    }
    panels_of = [figures.LayerPanel(label, {"": (one.mean, one.spread)}) for label, one in shown.items()]
    layers = figures.save(figures.layer_curves(panels_of), out / "layers.png")

    shape = model.config
    report = Report(
        "CRATE-MAE on handwritten digits",
        f"A white-box masked autoencoder of {model.num_parameters:,} parameters ({shape.depth} + "
        f"{shape.decoder_depth} layers, d = {shape.dim}, K = {shape.heads}) was pretrained for "
        f"{config.steps} steps on {len(train.images)} unlabelled digits (a twentieth of them to choose the checkpoint "
        f"by) with {config.mask_ratio:.0%} of the patches masked, and measured on {len(test.images)} others.",
    )
    report.section("Numbers", *summary(error, filled, probes))
    report.section("Completion", "Three quarters of the patches are blanked; the model fills them in from the rest.")
    report.picture(
        completions,
        "Masked, completed and original test digits; below, the mean squared error over the masked patches, in units "
        "of the pixels' variance. Visible patches are kept.",
        "Three rows of digits: masked, completed by the model, original",
    )
    report.section("Training")
    report.picture(
        training,
        f"Mean squared error on masked patches, in units of the pixels' variance. Filling each with the training set's "
        f"mean patch at its place gives {filled:.3f}.",
        "Training and held-out loss against the step",
    )
    report.section("Features")
    report.picture(
        probing,
        "Logistic regression on standardised features: the mean over the patches of the encoder's output. C is chosen "
        "on a fifth of the training digits, the accuracy is on the test digits. One seed.",
        "Bars: probe accuracy of the untrained network, raw pixels and the pretrained network",
    )
    report.table(
        ["features", "accuracy, %", "C"],
        [[name, f"{result.accuracy:.1f}", f"{result.C:g}"] for name, result in probes.items()],
    )
    report.section("Layer by layer")
    report.picture(
        layers,
        "Left: compression, the coding rate of the tokens after MSSA against that layer's subspaces (epsilon = 0.1). "
        "Right: sparsity, the share of non-zero entries after ISTA. Mean and deviation over the test digits. The paper "
        "has both fall with depth; whether they do in so small a model is for the curves to say.",
        "Compression and sparsity against the encoder layer",
    )
    report.section(
        "Next",
        f"crate-mae complete IMAGE --checkpoint {out} --out completed.png completes a picture of your own.",
    )
    return report.write(out / "report.html")
