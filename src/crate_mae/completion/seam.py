"""A completion joined to its picture without a seam: a smooth correction takes up the difference at the border."""

import numpy as np
from jaxtyping import Bool, Float

from crate_mae.completion.mask_regions import Region
from crate_mae.completion.tiles import bounds

STEPS = 24
"""Steps of conjugate gradients at each resolution: enough for what the next coarser one can't show."""
TINY = np.finfo(np.float32).tiny


def without_seam(
    picture: Float[np.ndarray, "H W c"], region: Region, fill: Float[np.ndarray, "h w c"]
) -> Float[np.ndarray, "h w c"]:
    """The fill plus a correction e that is harmonic in the region, on the rows and columns of its bounding box.

    Laplacian e = 0 in the region, e = picture - fill on the pixels around it, where the fill is continued by the mean
    of its neighbours in the region. So the result has the picture's colours at the border and the fill's structure
    inside: Poisson image editing (Perez et al., 2003) with the gradient of the fill. The picture's own edge is no
    border, and nothing of the region's own content is used.
    """
    margins = [(start > 0, end < whole) for (start, end), whole in zip(bounds(region), region.shape, strict=True)]
    wide = tuple(
        slice(start - before, end + after)
        for (start, end), (before, after) in zip(bounds(region), margins, strict=True)
    )
    inner = tuple(slice(int(before), -1 if after else None) for before, after in margins)
    inside = region[wide]
    whole = np.zeros((*inside.shape, fill.shape[2]), dtype=np.float32)
    whole[inner] = fill
    whole[~inside] = 0
    beside = _around(inside[..., None].astype(np.float32))
    border = (beside[..., 0] > 0) & ~inside
    continued = _around(whole)[border] / beside[border]
    difference = np.zeros_like(whole)
    difference[border] = picture[wide][border] - continued
    return fill + np.where(inside[..., None], harmonic(difference, border, inside), 0)[inner]


def harmonic(
    values: Float[np.ndarray, "H W c"], known: Bool[np.ndarray, "H W"], wanted: Bool[np.ndarray, "H W"]
) -> Float[np.ndarray, "H W c"]:
    """Known values continued over the wanted pixels, each of which becomes the mean of its neighbours.

    From coarse to fine: the solution at half the resolution is where a few steps of conjugate gradients start, so that
    the result is within a few hundredths of the values' range. Without a known pixel it is 0.
    """
    result = np.where(known[..., None], values, 0)
    if not known.any() or not wanted.any():
        return result
    if max(known.shape) > 2:
        coarse = harmonic(*_halve(result, known, wanted))
        guess = coarse.repeat(2, 0).repeat(2, 1)[: known.shape[0], : known.shape[1]]
    else:
        guess = np.broadcast_to(result[known].mean(0), result.shape)
    result[wanted] = guess[wanted]
    count = _around((known | wanted)[..., None].astype(np.float32))

    def laplacian(values: Float[np.ndarray, "H W c"]) -> Float[np.ndarray, "H W c"]:
        """The sum over the neighbours of what a pixel has more than they; 0 where nothing is wanted."""
        return np.where(wanted[..., None], count * values - _around(values), 0)

    residual = -laplacian(result)
    direction, norm = residual, _inner(residual, residual)
    for _ in range(STEPS):
        change = laplacian(direction)
        step = norm / np.maximum(_inner(direction, change), TINY)
        result = result + step * direction
        residual = residual - step * change
        before, norm = norm, _inner(residual, residual)
        direction = residual + norm / np.maximum(before, TINY) * direction
    return result


def _inner(one: Float[np.ndarray, "H W c"], other: Float[np.ndarray, "H W c"]) -> Float[np.ndarray, " c"]:
    return np.einsum("hwc,hwc->c", one, other)


def _halve(
    values: Float[np.ndarray, "H W c"], known: Bool[np.ndarray, "H W"], wanted: Bool[np.ndarray, "H W"]
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """The means of the known pixels in blocks of 2 x 2; a block without one is wanted if it has a wanted pixel."""
    odd = [(0, side % 2) for side in known.shape]

    def blocks(array: np.ndarray) -> np.ndarray:
        padded = np.pad(array, [*odd, (0, 0)])
        rows = padded[::2] + padded[1::2]
        return rows[:, ::2] + rows[:, 1::2]

    count, asked = (blocks(mask[..., None].astype(np.float32)) for mask in (known, wanted))
    mean = blocks(values) / np.maximum(count, 1)
    return mean, count[..., 0] > 0, (asked[..., 0] > 0) & (count[..., 0] == 0)


def _around(values: Float[np.ndarray, "H W c"]) -> Float[np.ndarray, "H W c"]:
    """The sum over the four neighbours of every pixel; outside the array there is 0."""
    padded = np.pad(values, ((1, 1), (1, 1), (0, 0)))
    return padded[:-2, 1:-1] + padded[2:, 1:-1] + padded[1:-1, :-2] + padded[1:-1, 2:]
