"""Tokens at each step of a layer: as matrices, and as points in space."""

from collections.abc import Mapping, Sequence

import numpy as np
from jaxtyping import Float, Int
from matplotlib.figure import Figure

from crate_mae.figures import COLOURS
from crate_mae.figures.inside import show

Panel = tuple[str, np.ndarray]
"""A title, and a matrix (d, N) or an image (H, W, C)."""


def token_flow(rows: Mapping[str, Sequence[Panel]]) -> Figure:
    """Token matrices in the order of computation, one row for each stage; images are shown as they are.

    Each matrix has its own colour scale, symmetric around zero, which is white.
    """
    columns = max(map(len, rows.values()))
    figure = Figure(figsize=(1.45 * columns + 0.6, 2.15 * len(rows) + 0.4), layout="constrained")
    axes = figure.subplots(len(rows), columns, squeeze=False)
    for line, (name, panels) in zip(axes, rows.items(), strict=True):
        line[0].set_ylabel(name, fontsize=10)
        for ax, (title, values) in zip(line, panels, strict=False):
            if values.ndim == 3:
                show(ax, values)
            else:
                reach = float(np.abs(values).max()) or 1.0
                ax.imshow(values, cmap="RdBu_r", vmin=-reach, vmax=reach, aspect="auto", interpolation="nearest")
                ax.set(xticks=[], yticks=[])
            ax.set_title(title, fontsize=9)
        for ax in line[len(panels) :]:
            ax.set_axis_off()
    figure.supxlabel(
        "columns: tokens, the class token first; rows: the d coordinates; red: positive, blue: negative", fontsize=9
    )
    return figure


def clouds(
    panels: Mapping[str, Float[np.ndarray, "3 N"]],
    members: Int[np.ndarray, " N"],
    axes_of: Mapping[str, Float[np.ndarray, "3 K"]],
) -> Figure:
    """Points in space, coloured by subspace, with lines along the columns of ``axes_of``; one panel for each title."""
    figure = Figure(figsize=(4.1 * len(panels), 4.4), layout="constrained")
    for number, (title, points) in enumerate(panels.items(), 1):
        ax = figure.add_subplot(1, len(panels), number, projection="3d")
        reach = 1.05 * float(np.abs(points).max())
        for column in axes_of[title].T:
            ax.plot(*np.outer(column / np.linalg.norm(column), [-reach, reach]), color="black", lw=0.8, alpha=0.5)
        for member in np.unique(members):
            ax.plot(*points[:, members == member], ".", color=COLOURS[member % len(COLOURS)], ms=4)
        ax.set(
            xlim=(-reach, reach),
            ylim=(-reach, reach),
            zlim=(-reach, reach),
            xlabel="$z_1$",
            ylabel="$z_2$",
            zlabel="$z_3$",
        )
        ax.set_box_aspect(None, zoom=0.86)
        ax.tick_params(labelsize=6)
        ax.locator_params(nbins=4)
        ax.set_title(title, fontsize=10)
    return figure
