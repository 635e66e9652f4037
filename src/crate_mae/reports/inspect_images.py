"""Sections of the inspection report that show images: attention maps, principal components, completions."""

from pathlib import Path

import numpy as np

from crate_mae import figures
from crate_mae.analysis.attention import CONVENTIONS, AttentionMaps
from crate_mae.figures import inside
from crate_mae.reports.html import Report
from crate_mae.reports.inspect_measurements import Inspection
from crate_mae.reports.wording import sentence, with_std

MOST_HEADS = 12


def add_attention(report: Report, out: Path, found: Inspection) -> None:
    """The attention maps of the class token, by the paper's formula and by the authors' convention."""
    _add_maps(report, out / "attention.png", "by the paper's formula", found.attention, found)
    _add_maps(report, out / "attention-authors.png", "by the authors' convention", found.attention_authors, found)


def _add_maps(report: Report, file: Path, convention: str, found: AttentionMaps, inspection: Inspection) -> None:
    heads = found.maps.shape[1]
    patches = found.maps.shape[2] * found.maps.shape[3]
    report.section(f"Attention of the class token, {convention}", sentence(CONVENTIONS[found.convention]))
    drawn = inside.attention(inspection.attended, found.maps, range(min(heads, MOST_HEADS)))
    entropy = -(found.maps * np.log(np.clip(found.maps, 1e-300, None))).sum((-2, -1))
    caption = (
        f"Encoder layer {found.layer}, {min(heads, MOST_HEADS)} of {heads} heads. Uniform attention over all {patches} "
        f"patches would be {1 / patches:.2g}; the peaks range from {found.maps.max((-2, -1)).min():.2g} to "
        f"{found.maps.max():.2g}, the entropies from {entropy.min():.2f} to {entropy.max():.2f} nats (at most "
        f"{np.log(patches):.2f}). The mean weight of the class token on itself is {found.on_itself.mean():.2g}."
    )
    report.picture(figures.save(drawn, file), caption, "Images and the attention maps of each head")


def add_components(report: Report, out: Path, inspection: Inspection) -> None:
    """Principal components of the tokens of one class, as colours."""
    found = inspection.components
    if isinstance(found, str):
        return
    whose = f"of class {inspection.class_name}" if inspection.class_name is not None else "without labels"
    report.section(
        "Principal components of the tokens",
        f"The tokens of {len(inspection.coloured)} images {whose}, as [U_1^T z; ..; U_K^T z] (in a ViT, the keys), not "
        "centred. Patches whose first component is below the threshold count as background. The first three "
        "components of the other patches are shown as red, green and blue. The sign of the first component is chosen "
        "such that fewer patches on the border are kept.",
    )
    drawn = inside.components(inspection.coloured, found.first, found.kept, found.colours)
    shares = ", ".join(f"{share:.1%}" for share in found.energy)
    caption = (
        f"Encoder layer {found.layer}, threshold {found.cut:.3g} ({found.threshold:g} times the root mean square of "
        f"the first component): {found.kept.mean():.0%} of the patches are kept, {found.border_kept:.0%} of those on "
        f"the border. The three components hold {shares} of the energy of the kept patches (red, green, blue); "
        "background is gray."
    )
    if found.border_kept > found.kept.mean():
        caption += " More of the border is kept than of the whole image: the kept patches are probably the background."
    report.picture(
        figures.save(drawn, out / "components.png"), caption, "Images, first component, and three components as colours"
    )


def add_completion(report: Report, out: Path, found: Inspection) -> None:
    """Completions at several mask ratios, and their errors; nothing without a decoder."""
    if isinstance(found.completion, str):
        return
    result, panels = found.completion, found.panels
    ratios = [f"{ratio:.0%}" for ratio in result.ratios]
    drawn = inside.completions_at(
        panels[0].original,
        [one.masked for one in panels],
        [one.completed for one in panels],
        [one.errors for one in panels],
        ratios,
    )
    report.section(
        "Completion",
        "The masks are nested: a patch masked at one ratio is also masked at every higher one. Errors are mean squared "
        "errors over the masked patches, in normalised pixel units. " + panels[0].caption,
    )
    errors = "; ".join(f"{ratio}: {with_std(result.error, index)}" for index, ratio in enumerate(ratios))
    caption = f"Error at each mask ratio, mean and standard deviation over {result.images} images: {errors}."
    picture = figures.save(drawn, out / "completions.png")
    report.picture(picture, caption, "Original images, and masked and completed ones at each mask ratio")
    rows = [
        [ratio, str(masked), with_std(result.error, index)]
        for index, (ratio, masked) in enumerate(zip(ratios, result.masked, strict=True))
    ]
    report.table(["mask ratio", "masked patches", "error"], rows)
