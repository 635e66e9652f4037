"""An inspection as pictures and one HTML page."""

from collections.abc import Callable
from pathlib import Path

import numpy as np
from rich.console import Console

from crate_mae import figures
from crate_mae.analysis.attention import CONVENTIONS, AttentionMaps
from crate_mae.analysis.layerwise import LayerCurves
from crate_mae.analysis.quantities import QUANTITIES
from crate_mae.analysis.streaming import Curve
from crate_mae.analysis.subspaces import Incoherence
from crate_mae.figures import LayerPanel, inside
from crate_mae.models.image_model import ImageModel
from crate_mae.progress import progress
from crate_mae.reports.html import Report
from crate_mae.reports.inspect_measurements import Inspection

MOST_HEADS = 12
ANGLES = {
    "the layer's own": "angle",
    "own, beyond the span": "angle_beyond",
    "the equation's": "angle_equation",
    "equation's, beyond the span": "angle_equation_beyond",
}


def write_report(out: Path, model: ImageModel, checkpoint: str, found: Inspection, console: Console) -> Path:
    """Draw everything and write ``report.html`` with the pictures inside."""
    report = Report(f"Inside {checkpoint}", _lead(model, found))
    parts: list[Callable[[], None]] = [
        lambda: _conventions(report, model, found),
        lambda: _layers(report, out, "encoder", found.encoder, found.encoder_subspaces, first=1),
        lambda: _layers(report, out, "decoder", found.decoder, found.decoder_subspaces, first=0),
        lambda: _subspaces(report, out, found),
        lambda: _undoing(report, out, found),
        lambda: _attention(report, out, "attention", found.attention, found),
        lambda: _attention(report, out, "attention-authors", found.attention_authors, found),
        lambda: _components(report, out, found),
        lambda: _completion(report, out, found),
        lambda: _left_out(report, found),
        lambda: _definitions(report),
    ]
    with progress("drawing", len(parts), console) as advance:
        for part in parts:
            part()
            advance()
    return report.write(out / "report.html")


# --- words ----------------------------------------------------------------------------------------------------------


def _lead(model: ImageModel, found: Inspection) -> str:
    config, settings = model.config, found.settings
    family = {"crate": "white-box (CRATE)", "vit": "ordinary (ViT)"}[config.family]
    decoder = " layers" if isinstance(found.decoder, str) else f" and {config.decoder_depth} decoder layers"
    return (
        f"The {model.kind} has {model.num_parameters:,} parameters in {config.depth} encoder{decoder} of "
        f"the {family} family (d = {config.dim}, K = {config.heads} heads, {model.num_patches} patches). Measured on "
        f"{found.images} of the {found.available} images of {settings.data}, split {settings.split}, drawn with seed "
        f"{settings.seed}; every curve is a mean over these images, its band one standard deviation over them."
    )


def _conventions(report: Report, model: ImageModel, found: Inspection) -> None:
    epsilon = found.encoder.epsilon
    lines = [
        "Layer l takes the tokens Z^l, makes Z^(l+1/2) of them in its first half and Z^(l+1) in its second. Encoder "
        "layers count from 1 to L, decoder layers from 0 to L - 1, as in the paper. All tokens count, the class token "
        f"too: N is {model.num_patches} + 1.",
        f"Rates are in nats at the precision epsilon^2 = {epsilon**2:.3g}. The encoder is measured with nothing "
        f"masked, the decoder on what the encoder makes of images with {found.settings.mask_ratio:.0%} of the patches "
        "masked.",
    ]
    stretches = {
        name: part.stretch
        for name, part in {"encoder": found.encoder_subspaces, "decoder": found.decoder_subspaces}.items()
        if isinstance(part, Incoherence)
    }
    if stretches:
        ranges = " and ".join(f"from {s.min():.3g} to {s.max():.3g} in the {name}" for name, s in stretches.items())
        lines.append(
            "In the decoder Y and V stand for Z and U, and the half step comes before MSSA, not after it. "
            f"The bases U_k are learned and not orthonormal: their singular values go {ranges}, where orthonormal ones "
            "have 1 throughout. A rate against such bases is not the length of a code; its course over the layers is "
            "what can be read."
        )
    report.section("How to read this", *lines)


def _left_out(report: Report, found: Inspection) -> None:
    reasons = {QUANTITIES[name].title: why for name, why in found.encoder.left_out.items()}
    parts = {
        "the decoder's layers": found.decoder,
        "the encoder's subspaces": found.encoder_subspaces,
        "the decoder's subspaces": found.decoder_subspaces,
        "how well the decoder undoes the encoder": found.undoing,
        "components": found.components,
        "completions": found.completion,
    }
    reasons |= {name: part for name, part in parts.items() if isinstance(part, str)}
    if reasons:
        report.section("Left out", *(f"{name}: {why}." for name, why in reasons.items()))


def _definitions(report: Report) -> None:
    report.section("Definitions", *(f"{one.title} ({one.unit}): {one.definition}" for one in QUANTITIES.values()))


# --- layers ---------------------------------------------------------------------------------------------------------


def _layers(
    report: Report, out: Path, stack: str, found: LayerCurves | str, subspaces: Incoherence | str, first: int
) -> None:
    if isinstance(found, str):
        return
    panels = [
        LayerPanel(f"${one.symbol}$, {one.unit}", {"": _line(found[name])}, title=one.title)
        for name, one in QUANTITIES.items()
        if name in found.curves and name not in ANGLES.values()
    ]
    if "angle" in found.curves:
        lines = {label: _line(found[name]) for label, name in ANGLES.items()}
        panels.append(LayerPanel("degrees", lines, ("neither way", 90.0), r"angle of the MSSA step to $-\nabla R^c$"))
    if isinstance(subspaces, Incoherence):
        pairs = {"mean over pairs": (subspaces.mean, None), "closest pair": (subspaces.largest, None)}
        label = r"$\|Q_k^\top Q_{k'}\|_2$, cosine"
        panels.append(
            LayerPanel(label, pairs, ("random subspaces", subspaces.by_chance), "subspaces against each other")
        )
    report.section(f"The {stack}, layer by layer")
    picture = figures.save(figures.layer_curves(panels, f"{stack} layer", first), out / f"{stack}-layers.png")
    said = [
        f"the {QUANTITIES[name].title} goes from {_with_spread(found[name], 0)} in the first layer to "
        f"{_with_spread(found[name], -1)} in the last"
        for name in ("compression", "rate", "sparsity", "angle")
        if name in found.curves
    ]
    caption = f"Mean and deviation over {found.images} images. {_sentence('; '.join(said))}"
    report.picture(picture, caption, f"Curves of every quantity over the {stack}'s layers")
    names = list(found.curves)
    rows = [
        [str(first + index), *(_with_spread(found[name], index) for name in names)]
        for index in range(len(found[names[0]].mean))
    ]
    report.table(["layer", *(QUANTITIES[name].title for name in names)], rows)


def _subspaces(report: Report, out: Path, found: Inspection) -> None:
    stacks = {"encoder": (found.encoder_subspaces, 1), "decoder": (found.decoder_subspaces, 0)}
    there = {name: (part, first) for name, (part, first) in stacks.items() if isinstance(part, Incoherence)}
    if not there:
        return
    report.section(
        "How incoherent the subspaces are",
        "Each square compares two subspaces of a layer by the cosine of the smallest angle between them, with their "
        "bases orthonormalised: 0 (black) if they are orthogonal, 1 if they share a direction. The theory wants 0.",
    )
    for name, (part, first) in there.items():
        layers = range(first, first + len(part.raw))
        label = r"$\|Q_k^\top Q_{k'}\|_2$, cosine"
        picture = figures.save(inside.incoherence(part.orthonormal, layers, label, 1.0), out / f"{name}-subspaces.png")
        caption = (
            f"The {name}'s subspaces. Over pairs and layers the mean is {part.mean.mean():.3f} and the largest "
            f"{part.largest.max():.3f}; random subspaces of these sizes have about {part.by_chance:.3f}."
        )
        report.picture(picture, caption, f"Heat maps of the {name}'s subspaces against each other, layer by layer")
        raw = figures.save(
            inside.incoherence(part.raw, layers, r"$\|U_k^\top U_{k'}\|_2$"), out / f"{name}-subspaces-raw.png"
        )
        caption = (
            f"The same without orthonormalising: the largest singular value of U_k^T U_k', up to {part.raw.max():.3g}. "
            "The diagonal is the squared size of each basis, 1 if it were orthonormal."
        )
        report.picture(raw, caption, f"Heat maps of the {name}'s bases as they were learned")


def _undoing(report: Report, out: Path, found: Inspection) -> None:
    undone = found.undoing
    if isinstance(undone, str):
        return
    depth = len(undone.alignment)
    panels = [
        LayerPanel(
            r"$\|g(f(Z^\ell)) - Z^\ell\|_F\,/\,\|Z^\ell\|_F$",
            {"undone by the decoder": _line(undone.error), "left alone": _line(undone.error_left_alone)},
            title="relative error",
        ),
        LayerPanel(
            "linear CKA, 0 to 1",
            {"undone by the decoder": (undone.alignment, None), "left alone": (undone.alignment_left_alone, None)},
            title="alignment",
        ),
    ]
    report.section(
        "How well the decoder undoes the encoder",
        "Decoder layer g^(L-l) is meant to undo encoder layer f^l. It is given what f^l makes of the tokens Z^l, "
        "nothing masked, and what it returns is held against Z^l. The second line leaves g out and holds f^l(Z^l) "
        "itself against Z^l: the decoder layer helps where the first line is below the second on the left, and above "
        "it on the right. The error depends on the tokens' scale and rotation, the alignment on neither.",
    )
    picture = figures.save(figures.layer_curves(panels), out / "undoing.png")
    better = int((undone.error.mean < undone.error_left_alone.mean).sum())
    closer = int((undone.alignment > undone.alignment_left_alone).sum())
    caption = (
        f"In {better} of {depth} layers the decoder layer brings the error below that of leaving the tokens alone, in "
        f"{closer} the alignment above it. Errors from {undone.error.mean.min():.3g} to {undone.error.mean.max():.3g}, "
        f"alignments from {undone.alignment.min():.3f} to {undone.alignment.max():.3f}, over {undone.images} images."
    )
    report.picture(picture, caption, "Relative error and alignment of each encoder layer and the one that undoes it")
    rows = [
        [
            f"{index + 1}, by {depth - 1 - index}",
            _with_spread(undone.error, index),
            _with_spread(undone.error_left_alone, index),
            f"{undone.alignment[index]:.3f}",
            f"{undone.alignment_left_alone[index]:.3f}",
        ]
        for index in range(depth)
    ]
    report.table(["encoder layer, by decoder layer", "error", "left alone", "CKA", "left alone"], rows)


# --- pictures -------------------------------------------------------------------------------------------------------


def _attention(report: Report, out: Path, name: str, found: AttentionMaps, inspection: Inspection) -> None:
    heads = found.maps.shape[1]
    patches = found.maps.shape[2] * found.maps.shape[3]
    whose = {"paper": "the paper's formula", "authors": "the authors' convention"}[found.convention]
    report.section(f"What the class token looks at, by {whose}", _sentence(CONVENTIONS[found.convention]))
    drawn = inside.attention(inspection.attended, found.maps, range(min(heads, MOST_HEADS)))
    entropy = -(found.maps * np.log(np.clip(found.maps, 1e-300, None))).sum((-2, -1))
    caption = (
        f"Encoder layer {found.layer}, {min(heads, MOST_HEADS)} of {heads} heads. Equal weight on all {patches} "
        f"patches would be {1 / patches:.2g}; the peaks go from {found.maps.max((-2, -1)).min():.2g} to "
        f"{found.maps.max():.2g}, the entropies from {entropy.min():.2f} to {entropy.max():.2f} nats (at most "
        f"{np.log(patches):.2f}). The class token's weight on itself is {found.on_itself.mean():.2g} on average."
    )
    report.picture(figures.save(drawn, out / f"{name}.png"), caption, "Images and the attention maps of each head")


def _components(report: Report, out: Path, inspection: Inspection) -> None:
    found = inspection.components
    if isinstance(found, str):
        return
    whose = (
        f"of the class {inspection.class_name}"
        if inspection.class_name is not None
        else "taken as one class, for they have no labels"
    )
    report.section(
        "Principal components of the tokens",
        f"Tokens of {len(inspection.coloured)} images {whose}, as [U_1^T z; ..; U_K^T z] (the keys of an ordinary "
        "layer), not centred. Patches whose first component is below the threshold are taken for background; the first "
        "three components of the rest are red, green and blue. The sign of the first is that for which fewer patches "
        "on the border stay.",
    )
    drawn = inside.components(inspection.coloured, found.first, found.kept, found.colours)
    shares = ", ".join(f"{share:.1%}" for share in found.energy)
    caption = (
        f"Encoder layer {found.layer}, threshold {found.cut:.3g} ({found.threshold:g} times the root mean square of "
        f"the first component): {found.kept.mean():.0%} of the patches stay, {found.border_kept:.0%} of those on the "
        f"border. The three components hold {shares} of what stays (red, green, blue); dropped patches are gray."
    )
    if found.border_kept > found.kept.mean():
        caption += " More stays of the border than of the whole: what stays is rather the background."
    report.picture(figures.save(drawn, out / "components.png"), caption, "Images, first component, three as colours")


def _completion(report: Report, out: Path, found: Inspection) -> None:
    if isinstance(found.completion, str):
        return
    result, panels = found.completion, found.panels
    shares = [f"{ratio:.0%}" for ratio in result.ratios]
    drawn = inside.completions_at(
        panels[0].original,
        [one.masked for one in panels],
        [one.completed for one in panels],
        [one.errors for one in panels],
        shares,
    )
    report.section(
        "Completion",
        "The masks are nested: what is hidden at a lower ratio is hidden at a higher one. Errors are mean squared ones "
        "over the masked patches, in units of the model's normalised pixels. " + panels[0].caption,
    )
    errors = "; ".join(f"{share}: {_with_spread(result.error, i)}" for i, share in enumerate(shares))
    caption = f"Mean error and deviation over {result.images} images at each mask ratio: {errors}."
    picture = figures.save(drawn, out / "completions.png")
    report.picture(picture, caption, "Original images, and masked and completed ones at each mask ratio")
    rows = [
        [share, str(masked), _with_spread(result.error, index)]
        for index, (share, masked) in enumerate(zip(shares, result.masked, strict=True))
    ]
    report.table(["masked", "patches", "error"], rows)


def _sentence(words: str) -> str:
    return f"{words[0].upper()}{words[1:]}."


def _line(curve: Curve) -> tuple[np.ndarray, np.ndarray]:
    return curve.mean, curve.spread


def _with_spread(curve: Curve, index: int) -> str:
    return f"{curve.mean[index]:.4g}\u00a0±\u00a0{curve.spread[index]:.2g}"
