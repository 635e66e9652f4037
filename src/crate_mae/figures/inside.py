"""Figures of a model's internals: subspaces, attention, principal components, completions."""

from collections.abc import Sequence

import numpy as np
from jaxtyping import Bool, Float
from matplotlib.axes import Axes
from matplotlib.colors import LinearSegmentedColormap
from matplotlib.figure import Figure

HEAT = "magma"
# From transparent to nearly opaque, so that the image is visible below the map.
OVERLAY = LinearSegmentedColormap.from_list("overlay", [(0.75, 0.05, 0.15, 0.0), (0.75, 0.05, 0.15, 0.8)])
BACKGROUND = "#d9dde3"
MOST_LAYERS = 12
PER_ROW = 7


def incoherence(
    matrices: Float[np.ndarray, "layers K K"], layers: Sequence[int], label: str, top: float | None = None
) -> Figure:
    """A K x K heat map for each layer, or for twelve evenly spaced layers; one colour scale from 0 to ``top``."""
    shown = np.unique(np.linspace(0, len(matrices) - 1, min(len(matrices), MOST_LAYERS)).round().astype(int))
    columns = min(len(shown), 4)
    rows = -(-len(shown) // columns)
    figure = Figure(figsize=(2.4 * columns + 1.2, 2.5 * rows + 0.3), layout="constrained")
    axes = figure.subplots(rows, columns, squeeze=False)
    top = float(matrices.max()) if top is None else top
    K = matrices.shape[1]
    ticks = np.unique(np.linspace(0, K - 1, min(K, 6)).round().astype(int))
    for ax, index in zip(axes.flatten(), shown, strict=False):
        drawn = ax.imshow(matrices[index], cmap=HEAT, vmin=0, vmax=top)
        ax.set_title(f"layer {layers[index]}", fontsize=10)
        ax.set_xticks(ticks, [str(tick + 1) for tick in ticks], fontsize=8)
        ax.set_yticks(ticks, [str(tick + 1) for tick in ticks], fontsize=8)
    for ax in axes.flatten()[len(shown) :]:
        ax.set_axis_off()
    figure.supxlabel("subspace", fontsize=10)
    figure.supylabel("subspace", fontsize=10)
    figure.colorbar(drawn, ax=axes, label=label, shrink=0.9)
    return figure


def attention(
    images: Sequence[np.ndarray], maps: Float[np.ndarray, "b heads h w"], heads: Sequence[int] | None = None
) -> Figure:
    """Each image, and its attention map in each head laid over it; colours run from 0 to the map's peak, in the title.

    Images are (H, W, C) in [0, 1]; ``heads`` counts from 0, all by default.
    """
    chosen = list(range(maps.shape[1])) if heads is None else list(heads)
    columns = 1 + min(len(chosen), PER_ROW - 1)
    rows_each = -(-len(chosen) // (columns - 1))
    rows = rows_each * len(images)
    figure = Figure(figsize=(1.45 * columns + 1.0, 1.85 * rows), layout="constrained")
    axes = figure.subplots(rows, columns, squeeze=False)
    for ax in axes.flatten():
        ax.set(xticks=[], yticks=[])
        ax.set_axis_off()
    for index, image in enumerate(images):
        top = index * rows_each
        show(axes[top, 0], image)
        axes[top, 0].set_title("image", fontsize=9)
        pale = 0.55 + 0.45 * image[..., :3].mean(-1)
        extent = (0, image.shape[1], image.shape[0], 0)
        for place, head in enumerate(chosen):
            ax = axes[top + place // (columns - 1), 1 + place % (columns - 1)]
            weight = maps[index, head] / max(maps[index, head].max(), np.finfo(float).tiny)
            ax.imshow(pale, cmap="gray", vmin=0, vmax=1, extent=extent, interpolation="nearest")
            drawn = ax.imshow(weight, cmap=OVERLAY, vmin=0, vmax=1, extent=extent, interpolation="nearest")
            ax.set_title(f"head {head + 1}\npeak {maps[index, head].max():.2g}", fontsize=8.5)
    figure.colorbar(drawn, ax=axes, label="weight / peak of the map", shrink=min(1.0, 3 / rows))
    return figure


def components(
    images: Sequence[np.ndarray],
    first: Float[np.ndarray, "b h w"],
    kept: Bool[np.ndarray, "b h w"],
    colours: Float[np.ndarray, "b h w 3"],
) -> Figure:
    """Images, their first component, and the first three components of the kept patches as red, green and blue."""
    columns = len(images)
    figure = Figure(figsize=(1.3 * columns + 1.6, 1.35 * 3 + 0.3), layout="constrained")
    axes = figure.subplots(3, columns, squeeze=False)
    reach = float(np.abs(first).max()) or 1.0
    for column, image in enumerate(images):
        show(axes[0, column], image)
        extent = (0, image.shape[1], image.shape[0], 0)
        drawn = axes[1, column].imshow(
            first[column], cmap="RdBu_r", vmin=-reach, vmax=reach, extent=extent, interpolation="nearest"
        )
        axes[2, column].set_facecolor(BACKGROUND)
        alpha = kept[column].astype(float)
        rgba = np.concatenate([np.nan_to_num(colours[column]), alpha[..., None]], -1)
        axes[2, column].imshow(rgba, extent=extent, interpolation="nearest")
    for row, name in zip(axes, ["image", "first\ncomponent", "three as\nRGB"], strict=True):
        row[0].set_ylabel(name, fontsize=10)
        for ax in row:
            ax.set(xticks=[], yticks=[])
    figure.colorbar(drawn, ax=axes[1], label=r"$\langle u_0, z\rangle$", aspect=8)
    return figure


def completions_at(
    original: Sequence[np.ndarray],
    masked: Sequence[Sequence[np.ndarray]],
    completed: Sequence[Sequence[np.ndarray]],
    errors: Sequence[Sequence[float]],
    shares: Sequence[str],
) -> Figure:
    """Original images, then a row of masked and a row of completed images for each mask ratio in ``shares``.

    The number below a completion is its mean squared error over the masked patches.
    """
    columns = len(original)
    height, width = original[0].shape[:2]
    cell = 1.45
    rows = 1 + 2 * len(shares)
    figure = Figure(figsize=(cell * columns + 1.2, (cell * height / width + 0.16) * rows + 0.3), layout="constrained")
    axes = figure.subplots(rows, columns, squeeze=False)
    names = ["original", *(f"{share}\n{kind}" for share in shares for kind in ("masked", "completed"))]
    stacked = [original, *(images for pair in zip(masked, completed, strict=True) for images in pair)]
    for row, name, images in zip(axes, names, stacked, strict=True):
        row[0].set_ylabel(name, fontsize=9)
        for ax, image in zip(row, images, strict=True):
            show(ax, image)
    for row, at in zip(axes[2::2], errors, strict=True):
        for ax, error in zip(row, at, strict=True):
            ax.set_xlabel(f"error {error:.3f}", fontsize=8.5)
    return figure


def show(ax: Axes, image: Float[np.ndarray, "H W c"]) -> None:
    """Draw an image (H, W, C) in [0, 1] without ticks."""
    gray = image.shape[2] == 1
    ax.imshow(image[..., 0] if gray else image, cmap="gray", vmin=0, vmax=1, interpolation="nearest")
    ax.set(xticks=[], yticks=[])
