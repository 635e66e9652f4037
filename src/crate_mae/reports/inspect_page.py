"""The inspection report: one HTML page with its figures."""

from collections.abc import Callable
from pathlib import Path

from rich.console import Console

from crate_mae.analysis.quantities import QUANTITIES
from crate_mae.analysis.subspaces import Incoherence
from crate_mae.models.image_model import ImageModel
from crate_mae.progress import progress
from crate_mae.reports.html import Report
from crate_mae.reports.inspect_images import add_attention, add_completion, add_components
from crate_mae.reports.inspect_layers import add_decoder, add_encoder, add_subspaces, add_undoing
from crate_mae.reports.inspect_measurements import Inspection

FIGURES: list[Callable[[Report, Path, Inspection], None]] = [
    add_encoder,
    add_decoder,
    add_subspaces,
    add_undoing,
    add_attention,
    add_components,
    add_completion,
]
"""The sections with figures, in the order of the page."""


def write_report(out: Path, model: ImageModel, checkpoint: str, found: Inspection, console: Console) -> Path:
    """Draw every figure and write ``report.html``."""
    report = Report(f"Inside {checkpoint}", _lead(model, found))
    _add_conventions(report, model, found)
    with progress("drawing", len(FIGURES), console) as advance:
        for add in FIGURES:
            add(report, out, found)
            advance()
    _add_left_out(report, found)
    report.section("Definitions", *(f"{one.title} ({one.unit}): {one.definition}" for one in QUANTITIES.values()))
    return report.write(out / "report.html")


def _lead(model: ImageModel, found: Inspection) -> str:
    config, settings = model.config, found.settings
    family = {"crate": "white-box (CRATE)", "vit": "ViT"}[config.family]
    layers = f"{config.depth} encoder layers"
    split = f", split {settings.split}" if settings.split else ""
    if not isinstance(found.layers.decoder, str):
        layers = f"{config.depth} encoder and {config.decoder_depth} decoder layers"
    return (
        f"This {model.kind} of the {family} family has {model.num_parameters:,} parameters in {layers} "
        f"(d = {config.dim}, K = {config.heads} heads, {model.num_patches} patches). It was measured on "
        f"{found.images} of the {found.available} images of {settings.data}{split}, drawn with seed "
        f"{settings.seed}. The untrained model has the same architecture and random weights from the same seed; it was "
        "measured on the same images and masks."
    )


def _add_conventions(report: Report, model: ImageModel, found: Inspection) -> None:
    layers = found.layers
    lines = [
        "Layer l takes the tokens Z^l and computes the half step Z^(l+1/2), the sparse code A^(l+1), and the tokens "
        "Z^(l+1), which are the code itself in the paper's form. Encoder layers count from 1 to L, decoder layers from "
        f"0 to L - 1, as in the paper. N = {model.num_patches} + 1 includes the class token.",
        f"Rates are in nats, with precision epsilon^2 = {layers.encoder.epsilon**2:.3g}. The encoder is measured on "
        f"images without a mask, the decoder on the encoder's output for images with "
        f"{found.settings.mask_ratio:.0%} of the patches masked.",
    ]
    stretches = {
        name: part.stretch
        for name, part in {"encoder": layers.encoder_subspaces, "decoder": layers.decoder_subspaces}.items()
        if isinstance(part, Incoherence)
    }
    if stretches:
        ranges = " and ".join(f"from {s.min():.3g} to {s.max():.3g} in the {name}" for name, s in stretches.items())
        lines.append(
            "In the decoder, Y and V take the place of Z and U, and the half step comes before MSSA, not after it. "
            f"The bases U_k are learned and not orthonormal: their singular values range {ranges}, and would all be 1 "
            "for orthonormal bases. A rate measured against such bases is not the length of a code; only its change "
            "over the layers can be interpreted."
        )
    report.section("How to read this report", *lines)


def _add_left_out(report: Report, found: Inspection) -> None:
    layers = found.layers
    reasons = {QUANTITIES[name].title: why for name, why in layers.encoder.left_out.items()}
    parts = {
        "layers of the decoder": layers.decoder,
        "subspaces of the encoder": layers.encoder_subspaces,
        "subspaces of the decoder": layers.decoder_subspaces,
        "how well the decoder undoes the encoder": layers.undoing,
        "principal components": found.components,
        "completions": found.completion,
    }
    reasons |= {name: part for name, part in parts.items() if isinstance(part, str)}
    if reasons:
        report.section("Left out", *(f"{name}: {why}." for name, why in reasons.items()))
