"""Sections of the inspection report about the layers: curves, subspaces, and decoder against encoder."""

from pathlib import Path
from typing import Literal

import numpy as np

from crate_mae import figures
from crate_mae.analysis.layerwise import LayerCurves
from crate_mae.analysis.quantities import QUANTITIES
from crate_mae.analysis.streaming import Curve
from crate_mae.analysis.subspaces import Incoherence
from crate_mae.analysis.undoing import Undoing
from crate_mae.figures import LayerPanel, inside
from crate_mae.reports.html import Report
from crate_mae.reports.inspect_measurements import Inspection
from crate_mae.reports.wording import sentence, with_std

ANGLES = {
    "layer's MSSA": "angle",
    "layer's MSSA, beyond the span": "angle_beyond",
    "MSSA of the equation": "angle_equation",
    "MSSA of the equation, beyond the span": "angle_equation_beyond",
}
COSINE = r"$\|Q_k^\top Q_{k'}\|_2$, cosine"
FIRST_LAYER = {"encoder": 1, "decoder": 0}
"""The number of each stack's first layer, as in the paper."""
Lines = dict[str, tuple[np.ndarray, np.ndarray | None]]


def add_encoder(report: Report, out: Path, found: Inspection) -> None:
    """Every quantity over the layers of the encoder, which count from 1."""
    layers, reference = found.layers, found.untrained
    panels = quantity_panels(layers.encoder, reference.encoder)
    panels += _subspace_panels(layers.encoder_subspaces, reference.encoder_subspaces)
    _add_curves(report, out, "encoder", panels, layers.encoder, reference.encoder)


def add_decoder(report: Report, out: Path, found: Inspection) -> None:
    """Every quantity over the layers of the decoder, which count from 0; nothing without a decoder."""
    layers, reference = found.layers, found.untrained
    if isinstance(layers.decoder, LayerCurves) and isinstance(reference.decoder, LayerCurves):
        panels = quantity_panels(layers.decoder, reference.decoder)
        panels += _subspace_panels(layers.decoder_subspaces, reference.decoder_subspaces)
        _add_curves(report, out, "decoder", panels, layers.decoder, reference.decoder)


def _add_curves(
    report: Report,
    out: Path,
    stack: Literal["encoder", "decoder"],
    panels: list[LayerPanel],
    found: LayerCurves,
    untrained: LayerCurves,
) -> None:
    first = FIRST_LAYER[stack]
    report.section(f"The layers of the {stack}")
    picture = figures.save(figures.layer_curves(panels, f"{stack} layer", first), out / f"{stack}-layers.png")
    changes = [
        f"{QUANTITIES[name].title}: {with_std(found[name], 0)} in the first layer, {with_std(found[name], -1)} in the "
        f"last (untrained: {untrained[name].mean[0]:.4g} and {untrained[name].mean[-1]:.4g})"
        for name in ("compression", "rate", "sparsity", "angle")
        if name in found.curves
    ]
    caption = (
        f"Mean over {found.images} images, with a band of one standard deviation. Dashed: the mean for the same "
        f"architecture with random weights. {sentence('; '.join(changes))}"
    )
    report.picture(picture, caption, f"Curves of every quantity over the layers of the {stack}")
    names = list(found.curves)
    rows = [
        [str(first + index), *(with_std(found[name], index) for name in names)]
        for index in range(len(found[names[0]].mean))
    ]
    report.table(["layer", *(QUANTITIES[name].title for name in names)], rows)


def quantity_panels(found: LayerCurves, untrained: LayerCurves) -> list[LayerPanel]:
    """A panel for each measured quantity, and one for all angles."""
    panels = [
        LayerPanel(
            f"${one.symbol}$, {one.unit}",
            {"": _line(found[name])},
            title=one.title,
            untrained={"": untrained[name].mean},
        )
        for name, one in QUANTITIES.items()
        if name in found.curves and name not in ANGLES.values()
    ]
    if "angle" in found.curves:
        panels.append(
            LayerPanel(
                "degrees",
                {label: _line(found[name]) for label, name in ANGLES.items()},
                ("orthogonal", 90.0),
                r"angle between MSSA and $-\nabla R^c$",
                {label: untrained[name].mean for label, name in ANGLES.items()},
            )
        )
    return panels


def _subspace_panels(found: Incoherence | str, untrained: Incoherence | str) -> list[LayerPanel]:
    if isinstance(found, str) or isinstance(untrained, str):
        return []
    lines: Lines = {"mean over pairs": (found.mean, None), "closest pair": (found.largest, None)}
    reference = {"mean over pairs": untrained.mean, "closest pair": untrained.largest}
    level = ("random subspaces, in theory", found.by_chance)
    return [LayerPanel(COSINE, lines, level, "cosine between subspaces", reference)]


def add_subspaces(report: Report, out: Path, found: Inspection) -> None:
    """Heat maps of the subspaces of each layer against each other."""
    stacks = {"encoder": found.layers.encoder_subspaces, "decoder": found.layers.decoder_subspaces}
    present = {name: subspaces for name, subspaces in stacks.items() if isinstance(subspaces, Incoherence)}
    if not present:
        return
    report.section(
        "Incoherence of the subspaces",
        "Each cell compares two subspaces of a layer by the cosine of the smallest angle between them, computed from "
        "orthonormalised bases: 0 (black) if they are orthogonal, 1 if they share a direction. The theory assumes 0.",
    )
    for name, subspaces in present.items():
        layers = range(FIRST_LAYER[name], FIRST_LAYER[name] + len(subspaces.raw))
        drawn = inside.incoherence(subspaces.orthonormal, layers, COSINE, 1.0)
        picture = figures.save(drawn, out / f"{name}-subspaces.png")
        caption = (
            f"Subspaces of the {name}, orthonormalised. The mean cosine of all pairs is {subspaces.mean.mean():.3f}, "
            f"the largest {subspaces.largest.max():.3f}; random subspaces have about {subspaces.by_chance:.3f}."
        )
        report.picture(picture, caption, f"Heat maps of the {name}'s subspaces against each other, layer by layer")
        raw = figures.save(
            inside.incoherence(subspaces.raw, layers, r"$\|U_k^\top U_{k'}\|_2$"), out / f"{name}-subspaces-raw.png"
        )
        caption = (
            f"The learned bases of the {name}: the largest singular value of U_k^T U_k', up to "
            f"{subspaces.raw.max():.3g}. The diagonal is the squared spectral norm of each basis, which is 1 for an "
            "orthonormal one."
        )
        report.picture(raw, caption, f"Heat maps of the {name}'s bases as they were learned")


def add_undoing(report: Report, out: Path, found: Inspection) -> None:
    """How well each decoder layer undoes its encoder layer; nothing if they do not pair up."""
    undone, reference = found.layers.undoing, found.untrained.undoing
    if not (isinstance(undone, Undoing) and isinstance(reference, Undoing)):
        return
    depth = len(undone.alignment)
    report.section(
        "How well the decoder undoes the encoder",
        "Decoder layer g^(L-l) is meant to undo encoder layer f^l. With nothing masked, it is applied to the output "
        "f^l(Z^l), and its result is compared with Z^l. The second line compares f^l(Z^l) with Z^l directly, without "
        "the decoder layer. The decoder layer helps where its error is below the second line and its alignment above "
        "it. The error depends on scale and rotation of the tokens, the alignment on neither.",
    )
    picture = figures.save(figures.layer_curves(_undoing_panels(undone, reference)), out / "undoing.png")
    better = int((undone.error.mean < undone.error_left_alone.mean).sum())
    closer = int((undone.alignment > undone.alignment_left_alone).sum())
    caption = (
        f"The decoder layer lowers the error in {better} of {depth} layers and raises the alignment in {closer}. "
        f"Errors from {undone.error.mean.min():.3g} to {undone.error.mean.max():.3g}, alignments from "
        f"{undone.alignment.min():.3f} to {undone.alignment.max():.3f}, over {undone.images} images."
    )
    report.picture(picture, caption, "Relative error and alignment of each encoder layer and its decoder layer")
    rows = [
        [
            f"{index + 1}, {depth - 1 - index}",
            with_std(undone.error, index),
            with_std(undone.error_left_alone, index),
            f"{undone.alignment[index]:.3f}",
            f"{undone.alignment_left_alone[index]:.3f}",
        ]
        for index in range(depth)
    ]
    report.table(["encoder layer, decoder layer", "error", "without decoder", "CKA", "without decoder"], rows)


def _undoing_panels(undone: Undoing, untrained: Undoing) -> list[LayerPanel]:
    with_decoder, without = "g(f(Z)): with the decoder layer", "f(Z): without it"
    return [
        LayerPanel(
            r"$\|g(f(Z^\ell)) - Z^\ell\|_F\,/\,\|Z^\ell\|_F$",
            {with_decoder: _line(undone.error), without: _line(undone.error_left_alone)},
            title="relative error (lower is better)",
            untrained={with_decoder: untrained.error.mean, without: untrained.error_left_alone.mean},
        ),
        LayerPanel(
            "linear CKA, 0 to 1",
            {with_decoder: (undone.alignment, None), without: (undone.alignment_left_alone, None)},
            title="alignment with $Z^\\ell$ (higher is better)",
            untrained={with_decoder: untrained.alignment, without: untrained.alignment_left_alone},
        ),
    ]


def _line(curve: Curve) -> tuple[np.ndarray, np.ndarray]:
    return curve.mean, curve.spread
