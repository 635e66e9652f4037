"""A region of a picture completed by a model, at the picture's own size; all other pixels stay as they are."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np
import torch
from jaxtyping import Bool, Float
from PIL import Image
from torch import Tensor

from crate_mae import image_files, image_tensors
from crate_mae.completion.mask_regions import Region
from crate_mae.completion.patches import Plan, Tile, bounds, tile_weights
from crate_mae.completion.photo import Photo
from crate_mae.completion.seam import without_seam
from crate_mae.errors import UserError
from crate_mae.models.autoencoder import MaskedAutoencoder
from crate_mae.settings import Size

Complete = Callable[[Float[Tensor, "b c h w"], Bool[Tensor, "b n"]], Float[Tensor, "b c h w"]]
"""Images in [0, 1] and the patches that are masked, to completed images."""
LUMA = np.array([0.299, 0.587, 0.114], dtype=np.float32)
"""Gray from red, green and blue, as Pillow has it (ITU-R 601)."""
BATCH = 16
"""Tiles that a model completes at a time."""


@dataclass(frozen=True)
class Filled:
    """A completed picture."""

    photo: Photo
    error: float
    """Mean squared difference from the original over the region, in the model's normalised units."""


def inpaint(photo: Photo, plan: Plan, model: MaskedAutoencoder, advance: Callable[[], object] = lambda: None) -> Filled:
    """Complete a planned region of a picture; ``advance`` is called after every batch of tiles and after the seam."""
    config = model.config
    mean, std = image_tensors.statistics(config.mean, config.std, torch.empty(0, device=model.device))

    @torch.no_grad()
    def complete(images: Tensor, masks: Tensor) -> Tensor:
        advance()
        normalised = (images.to(model.device) - mean) / std
        return (model.complete(normalised, masks, original_known=False) * std + mean).cpu()

    seen = model_view(photo, config.channels)
    fill = without_seam(seen, plan.region, completed_region(seen, plan, complete, config.image_size)).clip(0, 1)
    advance()
    box = tuple(slice(*side) for side in bounds(plan.region))
    difference = (fill - seen[box])[plan.region[box]] / np.array(config.std, dtype=np.float32)
    return Filled(paste(photo, plan.region, fill), float(np.square(difference).mean()))


def model_view(photo: Photo, channels: int) -> Float[np.ndarray, "H W channels"]:
    """A picture in the channels of a model, from 0 to 1; composited on white if the model has no opacity channel."""
    if channels not in image_files.MODES:
        raise UserError(f"this model takes images of {channels} channels, which no picture has; choose another model.")
    image = image_files.in_mode(photo.image(), image_files.MODES[channels])
    return np.atleast_3d(np.asarray(image, dtype=np.float32) / 255)


def completed_region(
    picture: Float[np.ndarray, "H W c"], plan: Plan, complete: Complete, image: Size
) -> Float[np.ndarray, "h w c"]:
    """A model's completion of the region, on the rows and columns of its bounding box: the tiles' weighted mean.

    sum_t w_t f_t / sum_t w_t, with f_t tile t as the model completes it, resampled to the picture's pixels, and w_t its
    ``tile_weights``. Of a tile whose patches are masked in turns, only the masked patches have a weight: the model
    predicts no others. Outside the region, where no tile may lie, the result is 0.
    """
    rows, columns = bounds(plan.region)
    total = np.zeros((rows[1] - rows[0], columns[1] - columns[0], picture.shape[2]), dtype=np.float32)
    weight = np.zeros(total.shape[:2], dtype=np.float32)
    for number, completed in enumerate(_complete_tiles(picture, plan, complete, image)):
        tile = plan.tiles[number]
        inner, here = _within(tile, rows, columns)
        weights = tile_weights(tile)[inner]
        if plan.in_turns[number]:
            weights = weights * plan.masked_pixels(number)[inner]
        total[here] += weights[..., None] * enlarge(completed, tile)[inner]
        weight[here] += weights
    return (total / np.maximum(weight, np.finfo(np.float32).tiny)[..., None]).clip(0, 1)


def _complete_tiles(
    picture: Float[np.ndarray, "H W c"], plan: Plan, complete: Complete, image: Size
) -> Iterator[Float[np.ndarray, "h w c"]]:
    masks = torch.from_numpy(plan.masks)
    nothing = np.zeros_like(plan.region)
    continued = continue_picture(picture, plan.region) if plan.thin and any(plan.in_turns) else picture
    for start in range(0, len(plan.tiles), BATCH):
        some = slice(start, start + BATCH)
        crops = [
            shrink(continued, nothing, tile, image)
            if plan.thin and in_turns
            else shrink(picture, plan.region, tile, image)
            for tile, in_turns in zip(plan.tiles[some], plan.in_turns[some], strict=True)
        ]
        completed = complete(torch.from_numpy(np.stack(crops)).permute(0, 3, 1, 2), masks[some])
        yield from completed.permute(0, 2, 3, 1).numpy()


def continue_picture(picture: Float[np.ndarray, "H W c"], region: Region) -> Float[np.ndarray, "H W c"]:
    """The picture with its region filled smoothly from its surroundings: what visible patches show in its place.

    Thin pieces then look nearly as in the original; filled with the mean of the tile, the model would see them as
    lines. In a thick region the mean is closer to the original.
    """
    box = tuple(slice(*side) for side in bounds(region))
    inside = region[box]
    continued = picture.copy()
    empty = np.zeros((*inside.shape, picture.shape[2]), dtype=np.float32)
    continued[box][inside] = without_seam(picture, region, empty)[inside]
    return continued


def _within(tile: Tile, *box: tuple[int, int]) -> tuple[tuple[slice, ...], tuple[slice, ...]]:
    """The part of a tile's pixels inside a box: as slices of the tile, and as slices of the box."""
    inner, here = [], []
    for pixels, (start, end) in zip(tile.pixels, box, strict=True):
        first, last = max(pixels.start, start), max(min(pixels.stop, end), max(pixels.start, start))
        inner.append(slice(first - pixels.start, last - pixels.start))
        here.append(slice(first - start, last - start))
    return tuple(inner), tuple(here)


def shrink(picture: Float[np.ndarray, "H W c"], region: Region, tile: Tile, image: Size) -> Float[np.ndarray, "h w c"]:
    """A tile resampled to the model's size. Before that, its region is filled with the mean of the visible pixels.

    So nothing of the region's own content reaches the model, not even the pixels that resampling mixes at its border.
    """
    hidden = region[tile.pixels]
    crop = picture[tile.pixels].copy()
    crop[hidden] = crop[~hidden].mean(0)
    rows, columns = tile.pixels
    top, left = tile.top - rows.start, tile.left - columns.start
    return _resample(crop, image, (left, top, left + tile.width, top + tile.height)).clip(0, 1)


def enlarge(completed: Float[np.ndarray, "h w c"], tile: Tile) -> Float[np.ndarray, "rows columns c"]:
    """A completed tile resampled (bicubic) to the pixels of the picture that it touches."""
    rows, columns = tile.pixels
    height, width = completed.shape[:2]
    top, bottom = ((edge - tile.top) / tile.height * height for edge in (rows.start, rows.stop))
    left, right = ((edge - tile.left) / tile.width * width for edge in (columns.start, columns.stop))
    inside = max(left, 0), max(top, 0), min(right, width), min(bottom, height)
    return _resample(completed, (rows.stop - rows.start, columns.stop - columns.start), inside)


def _resample(
    picture: Float[np.ndarray, "H W c"], size: Size, box: tuple[float, float, float, float]
) -> Float[np.ndarray, "h w c"]:
    """Pillow's bicubic filter, which averages where it reduces, on a box (left, top, right, bottom)."""
    height, width = picture.shape[:2]
    box = (max(box[0], 0), max(box[1], 0), min(box[2], width), min(box[3], height))
    bands = [
        Image.fromarray(np.ascontiguousarray(band)).resize((size[1], size[0]), Image.Resampling.BICUBIC, box)
        for band in np.moveaxis(picture, 2, 0)
    ]
    return np.stack([np.asarray(band, dtype=np.float32) for band in bands], 2)


def paste(photo: Photo, region: Region, fill: Float[np.ndarray, "h w c"]) -> Photo:
    """The picture with its region replaced by the fill."""
    box = tuple(slice(*side) for side in bounds(region))
    inside = region[box]
    pixels = photo.pixels.copy()
    pixels[box][inside] = (_in_bands(fill[inside], pixels.shape[2]) * photo.top).round().astype(pixels.dtype)
    return Photo(pixels, photo.profile, photo.exif)


def _in_bands(fill: Float[np.ndarray, "n c"], bands: int) -> Float[np.ndarray, "n bands"]:
    """The model's channels as the picture's bands: gray or colour, then opaque unless the model has an opacity."""
    colours = fill[:, :3]
    if bands < 3 and colours.shape[1] == 3:
        colours = (colours @ LUMA)[:, None]
    elif bands >= 3 and colours.shape[1] == 1:
        colours = colours.repeat(3, 1)
    if bands in (1, 3):
        return colours
    opacity = fill[:, 3:] if fill.shape[1] == 4 else np.ones((len(fill), 1), dtype=np.float32)
    return np.concatenate([colours, opacity], 1)
