"""The demo's report: one HTML page with its figures."""

from pathlib import Path

from crate_mae import figures
from crate_mae.analysis.quantities import QUANTITIES
from crate_mae.evaluation.linear_probe import Probe
from crate_mae.figures import LayerPanel
from crate_mae.models.autoencoder import MaskedAutoencoder
from crate_mae.reports.demo_measurements import DemoResults
from crate_mae.reports.demo_photographs import add_photographs
from crate_mae.reports.html import Report
from crate_mae.training.config import PretrainConfig


def summary(error: float, mean_patch: float, probes: dict[str, Probe]) -> list[str]:
    """The main numbers in sentences."""
    verdict = "below" if error < mean_patch else "NOT below"
    lines = [f"Completion error {error:.3f}, {verdict} the {mean_patch:.3f} of filling in the mean patch."]
    lines += [f"Linear probe, {name}: {result.accuracy:.1f} %" for name, result in probes.items()]
    gain = probes["pretrained CRATE-MAE"].accuracy - probes["raw pixels"].accuracy
    lines.append(f"The pretrained model is {abs(gain):.1f} points {'above' if gain > 0 else 'BELOW'} raw pixels.")
    return lines


def write_report(out: Path, model: MaskedAutoencoder, config: PretrainConfig, found: DemoResults) -> Path:
    """Draw every figure and write ``report.html``."""
    shape = model.config
    report = Report(
        "CRATE-MAE: masked completion with a white-box transformer",
        "Photographs, completed by a model that comes with the package; then a model that this demo has just trained "
        "on handwritten digits.",
    )
    add_photographs(report, out, config.seed)
    report.section(
        "Digits: a model trained just now",
        f"A white-box masked autoencoder with {model.num_parameters:,} parameters ({shape.depth} encoder and "
        f"{shape.decoder_depth} decoder layers, d = {shape.dim}, K = {shape.heads}) was pretrained for {config.steps} "
        f"steps on {found.training_images} unlabelled digits with {config.mask_ratio:.0%} of the patches masked. A "
        "twentieth of these digits was held out to choose the checkpoint. All results below are on "
        f"{found.test_images} other digits.",
    )
    report.section("Results on digits", *summary(found.error, found.mean_patch, found.probes))
    _add_completions(report, out, config, found)
    _add_losses(report, out, found)
    _add_probes(report, out, found)
    _add_layers(report, out, found)
    report.section(
        "Next step",
        "To fill in a region of a photo of your own: crate-mae complete PHOTO --rectangle 0.3 0.3 0.6 0.6 --out "
        "filled.png",
    )
    return report.write(out / "report.html")


def _add_completions(report: Report, out: Path, config: PretrainConfig, found: DemoResults) -> None:
    panels = found.completions
    drawn = figures.completions(panels.masked, panels.completed, panels.original, panels.errors)
    report.section(
        "Completion",
        f"The model sees {1 - config.mask_ratio:.0%} of the patches and predicts the others.",
    )
    report.picture(
        figures.save(drawn, out / "completions.png"),
        "Masked, completed and original test digits. Masked patches are blue; in the completed digits the visible "
        "patches are unchanged. The error is the mean squared error over the masked patches, in units of the pixels' "
        "variance.",
        "Three rows of digits: masked, completed by the model, original",
    )


def _add_losses(report: Report, out: Path, found: DemoResults) -> None:
    drawn = figures.training_curve(found.losses.training, found.losses.held_out, ("mean patch", found.mean_patch))
    report.section("Training")
    report.picture(
        figures.save(drawn, out / "training.png"),
        "Mean squared error on masked patches, in units of the pixels' variance. Dashed: every masked patch is filled "
        f"with the mean training patch at its position, {found.mean_patch:.3f}.",
        "Training and held-out loss against the step",
    )


def _add_probes(report: Report, out: Path, found: DemoResults) -> None:
    accuracies = {name: result.accuracy for name, result in found.probes.items()}
    drawn = figures.bars(accuracies, "accuracy of a linear probe on test digits, %")
    report.section("Features")
    report.picture(
        figures.save(drawn, out / "probe.png"),
        "Accuracy of logistic regression on standardised features of the test digits. The features of a network are "
        "its encoder's output, the patches side by side. C is chosen on a fifth of the training digits. One seed.",
        "Bars: probe accuracy of the untrained network, raw pixels and the pretrained network",
    )
    report.table(
        ["features", "accuracy, %", "C"],
        [[name, f"{result.accuracy:.1f}", f"{result.C:g}"] for name, result in found.probes.items()],
    )


def _add_layers(report: Report, out: Path, found: DemoResults) -> None:
    panels = []
    for name in ("compression", "sparsity"):
        one, curve = QUANTITIES[name], found.layers[name]
        reference = {"": found.untrained[name].mean}
        label = f"${one.symbol}$, {one.unit}"
        panels.append(LayerPanel(label, {"": (curve.mean, curve.spread)}, title=one.title, untrained=reference))
    report.section("Layer by layer")
    report.picture(
        figures.save(figures.layer_curves(panels), out / "layers.png"),
        f"Left: {QUANTITIES['compression'].definition} Right: {QUANTITIES['sparsity'].definition} Mean over "
        f"{found.layers.images} test digits, with a band of one standard deviation; dashed: the mean for the same "
        "architecture with random weights. In the paper, both decrease with depth. This small model may differ.",
        "Compression and sparsity against the encoder layer",
    )
