"""Figures from arrays; nothing here depends on a model."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import MaxNLocator

from crate_mae.atomic_write import atomic_write

INK = "#1f4e79"
ACCENT = "#c8553d"
MUTED = "#8a8f98"
COLOURS = (INK, ACCENT, "#3f7d54", "#8463a5")
TALLEST = 4.0
"""The largest height of a panel over its width; a taller picture is drawn smaller."""


def save(figure: Figure, path: Path) -> Path:
    """Write a figure at 150 dpi in the format of the file's suffix; PNG if it has none."""
    kind = path.suffix.removeprefix(".") or "png"
    with atomic_write(path) as temporary:
        figure.savefig(temporary, format=kind, dpi=150, bbox_inches="tight", facecolor="white")
    return path


def completions(
    masked: Sequence[np.ndarray],
    completed: Sequence[np.ndarray],
    original: Sequence[np.ndarray],
    errors: Sequence[float],
    title: str = "",
) -> Figure:
    """Masked, completed and original images in three rows with the error below each column; one row for one image.

    Images are (H, W, C) in [0, 1]; ``errors`` are mean squared errors over the masked patches.
    """
    kinds = {"masked": masked, "completed": completed, "original": original}
    columns = len(original)
    single = columns == 1
    cell = 3.2 if single else 1.5
    shape = (1, 3) if single else (3, columns)
    tall = min(original[0].shape[0] / original[0].shape[1], TALLEST)
    words = 0.9 if title else 0.5
    figure = Figure(figsize=(cell * shape[1] + 0.4, cell * tall * shape[0] + words), layout="constrained")
    axes = figure.subplots(*shape, squeeze=False).reshape(3, columns)
    for row, (name, images) in enumerate(kinds.items()):
        for column, image in enumerate(images):
            ax = axes[row, column]
            gray = image.shape[2] == 1
            ax.imshow(image[..., 0] if gray else image, cmap="gray", vmin=0, vmax=1, interpolation="nearest")
            ax.set(xticks=[], yticks=[])
            if single:
                ax.set_title(name, fontsize=11)
            elif column == 0:
                ax.set_ylabel(name, fontsize=11)
            if name == ("completed" if single else "original"):
                ax.set_xlabel(f"error {errors[column]:.3f}", fontsize=9)
    figure.suptitle(title, fontsize=10)
    return figure


def training_curve(
    training: Mapping[int, float], held_out: Mapping[int, float], reference: tuple[str, float]
) -> Figure:
    """The loss against the step, on training batches and held-out images, with a reference level."""
    figure = Figure(figsize=(7.5, 4), layout="constrained")
    ax = figure.subplots()
    _losses(ax, training, held_out)
    _level(ax, *reference)
    # The loss of the first steps is much larger; the axis cuts it off so that the rest can be read.
    ax.set(ylabel="mean squared error on masked patches", xlim=(0, None), ylim=(0, 2 * reference[1]))
    ax.legend(frameon=False)
    return figure


def run_curves(
    training: Mapping[int, float],
    held_out: Mapping[str, Mapping[int, float]],
    accuracies: Mapping[str, Mapping[int, float]],
    loss: str,
    reference: tuple[str, float] | None = None,
    added: str = "",
) -> Figure:
    """The losses of a run against the step, with a reference level if there is one; if there are accuracies, a second
    panel with these in per cent. ``added`` is what the loss of the training batches has on top of the others."""
    panels = 1 + bool(accuracies)
    figure = Figure(figsize=(5.5 * panels, 3.8), layout="constrained")
    axes = figure.subplots(1, panels, squeeze=False)[0]
    late = [value for step, value in training.items() if step > max(training) / 50]
    after_start = [value for curve in held_out.values() for step, value in curve.items() if step > 0]
    top = 1.1 * max([*late, *after_start], default=1.0)
    _losses(axes[0], training, {}, added)
    for colour, (name, values) in zip((ACCENT, INK), held_out.items(), strict=False):
        axes[0].plot(list(values), list(values.values()), "o-", ms=4, color=colour, label=name)
    if reference:
        _level(axes[0], *reference)
        top = max(top, 1.1 * reference[1])
    axes[0].set(ylabel=loss, xlim=(0, None), ylim=(0, top))
    axes[0].legend(frameon=False)
    for colour, (name, values) in zip((INK, ACCENT, MUTED), accuracies.items(), strict=False):
        axes[1].plot(list(values), list(values.values()), "o-", ms=4, color=colour, label=name)
    if accuracies:
        axes[1].set(xlabel="step", ylabel="accuracy on validation images, %", xlim=(0, None))
        axes[1].legend(frameon=False)
    return figure


def _level(ax: Axes, name: str, value: float) -> None:
    ax.axhline(value, color=ACCENT, ls="--", label=f"{name} ({value:.3f})")


def _losses(ax: Axes, training: Mapping[int, float], held_out: Mapping[int, float], added: str = "") -> None:
    name = f"training batches, + {added}" if added else "training batches"
    ax.plot(list(training), list(training.values()), color=INK, alpha=0.35, lw=0.8, label=name)
    if held_out:
        ax.plot(list(held_out), list(held_out.values()), "o-", color=INK, ms=4, label="held-out images")
    ax.set(xlabel="step")


@dataclass(frozen=True)
class LayerPanel:
    """One panel of ``layer_curves``."""

    label: str
    """Label of the y axis, with its unit."""
    lines: Mapping[str, tuple[np.ndarray, np.ndarray | None]]
    """By the name of the line: the mean over images at each layer, and the standard deviation if there is one."""
    level: tuple[str, float] | None = None
    """Name and value of a horizontal reference line."""
    title: str = ""
    untrained: Mapping[str, np.ndarray] = field(default_factory=dict)
    """By the name of the line: the same mean for a model with random weights; a thin dashed line."""


def layer_curves(panels: Sequence[LayerPanel], layer: str = "encoder layer", first: int = 1) -> Figure:
    """Quantities over the layers, three panels in a row; the band is one standard deviation over images."""
    columns = min(len(panels), 3)
    rows = -(-len(panels) // columns)
    legend = any(panel.untrained for panel in panels)
    size = (10.5 if columns == 3 else 4.8 * columns), 3.3 * rows + 0.5 * legend
    figure = Figure(figsize=size, layout="constrained")
    figure.get_layout_engine().set(h_pad=0.1)  # type: ignore[union-attr,call-arg]
    axes = figure.subplots(rows, columns, squeeze=False).flatten()
    for ax, panel in zip(axes, panels, strict=False):
        for colour, (name, (mean, spread)) in zip(COLOURS, panel.lines.items(), strict=False):
            layers = np.arange(first, first + len(mean))
            if spread is not None:
                ax.fill_between(layers, mean - spread, mean + spread, color=colour, alpha=0.15, lw=0)
            ax.plot(layers, mean, "o-", color=colour, ms=4, label=name)
            if name in panel.untrained:
                ax.plot(layers, panel.untrained[name], "--", color=colour, lw=0.9)
        if panel.level:
            ax.axhline(panel.level[1], color=MUTED, ls=":", lw=1.2, label=panel.level[0])
        ax.set_xlabel(layer)
        ax.set_ylabel(panel.label)
        ax.set_title(panel.title, fontsize=10.5)
        ax.xaxis.set_major_locator(MaxNLocator(integer=True, min_n_ticks=1, nbins=8))
        if len(layers) == 1:
            ax.set_xlim(first - 1, first + 1)
        entries = len(panel.lines) + (panel.level is not None)
        if entries > 1:  # space for the legend above the curves
            low, high = ax.get_ylim()
            ax.set_ylim(low, high + 0.12 * entries * (high - low))
            ax.legend(frameon=False, fontsize=8, loc="upper left", borderaxespad=0.2, labelspacing=0.3)
    for ax in axes[len(panels) :]:
        ax.set_axis_off()
    if legend:
        styles = [Line2D([], [], color="black", marker="o", ms=4), Line2D([], [], color="black", ls="--", lw=0.9)]
        names = ["this model", "untrained: the same architecture, random weights"]
        figure.legend(styles, names, loc="outside upper center", ncols=2, frameon=False, fontsize=9)
    return figure


def bars(values: Mapping[str, float], label: str) -> Figure:
    """Horizontal bars with their values; the last one is highlighted."""
    figure = Figure(figsize=(7.5, 0.55 * len(values) + 1), layout="constrained")
    ax = figure.subplots()
    colours = [MUTED] * (len(values) - 1) + [INK]
    drawn = ax.barh(list(values), list(values.values()), color=colours)
    ax.bar_label(drawn, fmt="%.1f", padding=4)
    ax.set(xlabel=label, xlim=(0, 108))
    ax.invert_yaxis()
    for side in ("top", "right"):
        ax.spines[side].set_visible(False)
    return figure


def strengths(curves: Mapping[str, tuple[Sequence[float], Sequence[float], Sequence[float]]]) -> Figure:
    """Accuracy of a linear probe against C, one panel for each kind of features: (C, validation, test)."""
    columns = min(len(curves), 4)
    rows = -(-len(curves) // columns)
    figure = Figure(figsize=(max(3 * columns, 5), 2.7 * rows + 0.5), layout="constrained")
    axes = figure.subplots(rows, columns, squeeze=False, sharex=True).ravel()
    for ax, (name, (C, validation, test)) in zip(axes, curves.items(), strict=False):
        ax.semilogx(C, test, "o-", color=INK, ms=4, label="test")
        ax.semilogx(C, validation, "o--", color=MUTED, ms=4, label="validation")
        chosen = int(np.argmax(validation))
        ax.plot(C[chosen], test[chosen], "o", ms=11, mfc="none", mec=ACCENT, mew=1.8, label="C by validation")
        best = int(np.argmax(test))
        ax.plot(C[best], test[best], "s", ms=15, mfc="none", mec=INK, mew=1, label="paper's protocol")
        middle, reach = (max(*validation, *test) + min(*validation, *test)) / 2, np.ptp([*validation, *test]) * 0.7
        ax.set_ylim(
            middle - max(reach, 3), middle + max(reach, 3)
        )  # at least 6 points high, so that small differences look small
        ax.set_title(name, fontsize=10)
    for ax in axes[len(curves) :]:
        ax.set_visible(False)
    figure.supxlabel("C", fontsize=10)
    figure.supylabel("accuracy, %", fontsize=10)
    handles, labels = axes[0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside upper center", ncols=min(4, 2 * columns), frameon=False, fontsize=9)
    return figure


def probe_by_layer(points: Mapping[str, Sequence[tuple[int, float, float]]]) -> Figure:
    """Accuracy of the linear probe and of nearest neighbours against the layer, for each pooling."""
    figure = Figure(figsize=(7, 4), layout="constrained")
    ax = figure.subplots()
    for (pool, of_pool), colour in zip(points.items(), (INK, ACCENT), strict=False):
        layers, probe, neighbours = zip(*of_pool, strict=True)
        ax.plot(layers, probe, "o-", color=colour, label=f"linear probe, {pool}")
        ax.plot(layers, neighbours, "s--", color=colour, ms=4, alpha=0.6, label=f"nearest neighbours, {pool}")
        ax.set_xticks(sorted(set(layers)))
    ax.set(xlabel="encoder layer (0 is the embedding)", ylabel="test accuracy, %")
    ax.legend(frameon=False)
    return figure
