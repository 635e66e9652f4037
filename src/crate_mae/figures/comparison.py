"""The paper's numbers beside ours, and completions of the same images by several models."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from textwrap import wrap

import numpy as np
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from crate_mae.figures import ACCENT, INK, MUTED
from crate_mae.figures.inside import show

ACROSS = 4


@dataclass(frozen=True)
class Panel:
    """One panel of ``comparison``."""

    title: str
    points: Mapping[str, tuple[float | None, float | None, float | None]]
    """By the label on the x axis: the paper's number, ours and its standard deviation; None if missing."""


def comparison(panels: Sequence[Panel], unit: str) -> Figure:
    """The paper's numbers as rings, ours as dots with standard deviations; a panel for each row of a table."""
    columns = min(len(panels), ACROSS)
    rows = -(-len(panels) // columns)
    names = max((list(panel.points) for panel in panels), key=len)
    width = max(2.9, 0.45 * len(names) + 0.8)
    figure = Figure(figsize=(max(width * columns, 5) + 0.4, 3.1 * rows + 0.5), layout="constrained")
    axes = figure.subplots(rows, columns, squeeze=False).flatten()
    for ax, panel in zip(axes, panels, strict=False):
        for place, (theirs, ours, spread) in enumerate(panel.points.values()):
            if theirs is not None:
                ax.plot(place - 0.12, theirs, "o", ms=7, mfc="none", mec=ACCENT, mew=1.6)
            if ours is not None:
                ax.errorbar(place + 0.12, ours, spread or 0, fmt="o", ms=5, color=INK, capsize=3)
        ax.set_xticks(range(len(panel.points)), list(panel.points), rotation=40, ha="right", fontsize=8)
        ax.set_xlim(-0.6, len(panel.points) - 0.4)
        ax.margins(y=0.15)
        ax.tick_params(axis="y", labelsize=8)
        ax.grid(axis="y", color=MUTED, alpha=0.25)
        ax.set_title("\n".join(wrap(panel.title, int(11 * width))), fontsize=9)
    for ax in axes[len(panels) :]:
        ax.set_axis_off()
    figure.supylabel(unit, fontsize=10)
    spread = any(point[2] is not None for panel in panels for point in panel.points.values())
    seeds = ", mean and standard deviation over seeds" if spread else ""
    handles = [
        Line2D([], [], ls="", marker="o", ms=7, mfc="none", mec=ACCENT, mew=1.6, label="paper"),
        Line2D([], [], ls="", marker="o", ms=5, color=INK, label=f"ours{seeds}"),
    ]
    figure.legend(handles=handles, loc="outside upper right", ncols=2, frameon=False, fontsize=9)
    return figure


def completions_of(
    original: Sequence[np.ndarray],
    masked: Sequence[np.ndarray],
    completed: Mapping[str, Sequence[np.ndarray]],
    errors: Mapping[str, Sequence[float]],
) -> Figure:
    """Original and masked images, and the completions of each model with the error on the masked patches."""
    columns = len(original)
    height, width = original[0].shape[:2]
    cell = 1.25
    rows = 2 + len(completed)
    size = (cell * columns + 1.5, (cell * height / width + 0.2) * rows + 0.2)
    figure = Figure(figsize=size, layout="constrained")
    axes = figure.subplots(rows, columns, squeeze=False)
    for row, (name, images) in zip(axes, {"original": original, "masked": masked, **completed}.items(), strict=True):
        row[0].set_ylabel(name.replace(" ", "\n"), fontsize=9)
        for column, (ax, image) in enumerate(zip(row, images, strict=True)):
            show(ax, image)
            if name in errors:
                ax.set_xlabel(f"error {errors[name][column]:.3f}", fontsize=8)
    return figure
