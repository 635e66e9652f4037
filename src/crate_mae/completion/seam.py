"""A completion joined to its picture without a seam: a smooth correction takes up the difference at the border."""

import numpy as np
from jaxtyping import Bool, Float, Int
from scipy import ndimage

from crate_mae.completion.mask_regions import Region
from crate_mae.completion.patches import bounds

STEPS, FINE_STEPS = 24, 8
"""Steps of conjugate gradients at a coarse and at a fine resolution: enough for what the next coarser can't show."""
FINE = 512
"""From this side on, a resolution is fine."""
BLOCK = 64
"""Pixels; parts of a region that are two blocks apart are corrected one by one."""
TINY = np.finfo(np.float32).tiny


def without_seam(
    picture: Float[np.ndarray, "H W c"], region: Region, fill: Float[np.ndarray, "h w c"]
) -> Float[np.ndarray, "h w c"]:
    """The fill plus a correction e that is harmonic in the region, on the rows and columns of its bounding box.

    Laplacian e = 0 in the region, e = picture - fill on the pixels around it, where the fill is continued by the mean
    of its neighbours in the region. So the result has the picture's colours at the border and the fill's structure
    inside: Poisson image editing (Perez et al., 2003) with the gradient of the fill. The picture's own edge is no
    border, and nothing of the region's own content is used. Parts of the region that lie far apart are corrected one by
    one, which takes less time and memory.
    """
    corners = [start for start, _ in bounds(region)]
    parts = _parts(region)
    result = fill.copy()
    for number, box in enumerate(ndimage.find_objects(parts), start=1):
        wide = tuple(
            slice(max(side.start - 1, 0), min(side.stop + 1, whole))
            for side, whole in zip(box, region.shape, strict=True)
        )
        inner = tuple(slice(side.start - out.start, side.stop - out.start) for side, out in zip(box, wide, strict=True))
        here = tuple(slice(side.start - corner, side.stop - corner) for side, corner in zip(box, corners, strict=True))
        inside = parts[wide] == number
        beside = _around(inside.astype(np.float32))
        border = (beside > 0) & ~inside
        for channel in range(fill.shape[2]):
            continued = np.zeros(inside.shape, dtype=np.float32)
            continued[inner] = np.where(inside[inner], fill[here][..., channel], 0)
            continued = _around(continued)[border] / beside[border]
            difference = np.zeros(inside.shape, dtype=np.float32)
            difference[border] = picture[wide][..., channel][border] - continued
            correction = harmonic(difference, border, inside)[inner]
            result[here][..., channel] += np.where(inside[inner], correction, 0)
    return result


def _parts(region: Region) -> Int[np.ndarray, "H W"]:
    """The number of the part that each pixel of a region belongs to, from 1 on; 0 outside the region.

    The picture is cut into blocks; those with a pixel of the region that touch each other, also at a corner, are one
    part.
    """
    height, width = region.shape
    padded = np.pad(region, [(0, -side % BLOCK) for side in region.shape])
    blocks = padded.reshape(-(-height // BLOCK), BLOCK, -(-width // BLOCK), BLOCK).any((1, 3))
    numbers, _ = ndimage.label(blocks, np.ones((3, 3)))
    return np.where(region, numbers.repeat(BLOCK, 0).repeat(BLOCK, 1)[:height, :width], 0)


def harmonic(
    values: Float[np.ndarray, "H W"], known: Bool[np.ndarray, "H W"], wanted: Bool[np.ndarray, "H W"]
) -> Float[np.ndarray, "H W"]:
    """Known values continued over the wanted pixels, each of which becomes the mean of its neighbours.

    From coarse to fine: the solution at half the resolution is where a few steps of conjugate gradients start, so that
    the result is within a tenth of the values' range, and in photographs within a twentieth. Without a known pixel it
    is 0.
    """
    result = np.where(known, values, 0)
    if not known.any() or not wanted.any():
        return result
    if max(known.shape) > 2:
        coarse = harmonic(*_halve(result, known, wanted))
        guess = coarse.repeat(2, 0).repeat(2, 1)[: known.shape[0], : known.shape[1]]
    else:
        guess = np.broadcast_to(result[known].mean(), result.shape)
    result[wanted] = guess[wanted]
    count = _around((known | wanted).astype(np.float32))

    def laplacian(values: Float[np.ndarray, "H W"]) -> Float[np.ndarray, "H W"]:
        """The sum over the neighbours of what a pixel has more than they; 0 where nothing is wanted."""
        return np.where(wanted, count * values - _around(values), 0)

    residual = -laplacian(result)
    direction, norm = residual, np.vdot(residual, residual)
    for _ in range(FINE_STEPS if max(known.shape) >= FINE else STEPS):
        change = laplacian(direction)
        step = norm / max(np.vdot(direction, change), TINY)
        result += step * direction
        residual = residual - step * change
        before, norm = norm, np.vdot(residual, residual)
        direction = residual + norm / max(before, TINY) * direction
    return result


def _halve(
    values: Float[np.ndarray, "H W"], known: Bool[np.ndarray, "H W"], wanted: Bool[np.ndarray, "H W"]
) -> tuple[Float[np.ndarray, "h w"], Bool[np.ndarray, "h w"], Bool[np.ndarray, "h w"]]:
    """The means of the known pixels in blocks of 2 x 2; a block without one is wanted if it has a wanted pixel."""
    odd = [(0, side % 2) for side in known.shape]

    def blocks(array: Float[np.ndarray, "H W"]) -> Float[np.ndarray, "h w"]:
        padded = np.pad(array, odd)
        rows = padded[::2] + padded[1::2]
        return rows[:, ::2] + rows[:, 1::2]

    count, asked = (blocks(mask.astype(np.float32)) for mask in (known, wanted))
    return blocks(values) / np.maximum(count, 1), count > 0, (asked > 0) & (count == 0)


def _around(values: Float[np.ndarray, "H W"]) -> Float[np.ndarray, "H W"]:
    """The sum over the four neighbours of every pixel; outside the array there is 0."""
    padded = np.pad(values, 1)
    return padded[:-2, 1:-1] + padded[2:, 1:-1] + padded[1:-1, :-2] + padded[1:-1, 2:]
