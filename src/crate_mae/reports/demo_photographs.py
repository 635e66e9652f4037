"""The first part of the demo's report: photographs completed by the model that comes with the package, and its layers.

The photographs are scikit-learn's two, ``china.jpg`` and ``flower.jpg`` (Creative Commons Attribution).
"""

from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np
import torch
from jaxtyping import Float, UInt8
from PIL import Image
from sklearn.datasets import load_sample_images
from torch import Tensor

from crate_mae import figures
from crate_mae.analysis.attention import attention_maps
from crate_mae.analysis.completed_images import MASKED_COLOUR, completion_panels, pictures
from crate_mae.analysis.components import components
from crate_mae.analysis.layerwise import layer_curves
from crate_mae.analysis.quantities import QUANTITIES
from crate_mae.completion.inpaint import inpaint
from crate_mae.completion.mask_regions import Rectangle, region_by_rectangle
from crate_mae.completion.photo import read_photo
from crate_mae.completion.tiles import plan_region
from crate_mae.figures import inside
from crate_mae.models.autoencoder import MaskedAutoencoder
from crate_mae.models.shipped import default_checkpoint
from crate_mae.models.zoo import load_autoencoder, untrained
from crate_mae.reports.html import Report
from crate_mae.reports.inspect_layers import quantity_panels
from crate_mae.tokens import random_mask

Images = Float[Tensor, "b c H W"]

SQUARES = 3
"""Cut from each photograph, from left to right."""
MASKED = 0.75
REGIONS: tuple[Rectangle, ...] = ((0.55, 0.3, 0.8, 0.6), (0.5, 0.4, 0.75, 0.75))
"""Filled in in each photograph, one at a time."""
WATCHED = ("compression", "compression_normed", "sparsity")
ATTENDED = slice(1, 5, 3)
"""The middle square of each photograph."""
HEADS = 6


def add_photographs(report: Report, out: Path, seed: int) -> None:
    """The default model's results on photographs that it was not trained on."""
    name = default_checkpoint()
    model = load_autoencoder(name)
    photos = load_sample_images().images
    images = torch.stack([model.preprocess(square) for photo in photos for square in squares(photo)])
    report.section(
        "Photographs",
        f"The model {name} comes with crate-mae. It has {model.num_parameters:,} parameters and was trained without "
        "labels; crate-mae models says on what. The photographs are two that come with scikit-learn, each cut into "
        f"{SQUARES} squares. The model was not trained on them.",
    )
    _add_completions(report, out, model, images, seed)
    _add_regions(report, out, model, photos)
    _add_layers(report, out, model, images, seed)
    _add_components(report, out, model, images)
    _add_attention(report, out, model, images[ATTENDED])


def squares(photo: UInt8[np.ndarray, "h w 3"]) -> Iterator[Image.Image]:
    """Squares of the photograph's height, from its left to its right end."""
    side = photo.shape[0]
    for left in np.linspace(0, photo.shape[1] - side, SQUARES).astype(int):
        yield Image.fromarray(photo[:, left : left + side])


def _add_completions(report: Report, out: Path, model: MaskedAutoencoder, images: Images, seed: int) -> None:
    masks = random_mask(len(images), model.num_patches, MASKED, torch.Generator().manual_seed(seed))
    panels = completion_panels(model, images, masks)
    drawn = figures.completions(panels.masked, panels.completed, panels.original, panels.errors)
    report.picture(
        figures.save(drawn, out / "photographs.png"),
        f"Masked, completed and original: the model sees {1 - MASKED:.0%} of the patches and predicts the others. The "
        "error is the mean squared error over the masked patches, in units of the pixels' variance.",
        "Three rows of photographs: masked, completed by the model, original",
    )


def _add_regions(
    report: Report, out: Path, model: MaskedAutoencoder, photos: Sequence[UInt8[np.ndarray, "h w 3"]]
) -> None:
    masked, completed, original, errors = [], [], [], []
    for photo in (read_photo(Image.fromarray(pixels)) for pixels in photos):
        for rectangle in REGIONS:
            plan = plan_region(region_by_rectangle(rectangle, photo.size), model.config.image_size, model.config.grid)
            filled = inpaint(photo, plan, model)
            original.append(photo.pixels / photo.top)
            masked.append(np.where(plan.region[..., None], MASKED_COLOUR, original[-1]))
            completed.append(filled.photo.pixels / photo.top)
            errors.append(filled.error)
    report.picture(
        figures.save(figures.completions(masked, completed, original, errors), out / "photographs-regions.png"),
        "A region filled in at the photograph's own size, as crate-mae complete does it. The model sees images of "
        f"{model.config.image_size[1]} x {model.config.image_size[0]} pixels, so a large region has the likely colours "
        "and shapes and no fine texture.",
        "Three rows of photographs: with a region masked, with the region completed, original",
    )


def _add_layers(report: Report, out: Path, model: MaskedAutoencoder, images: Images, seed: int) -> None:
    reference = untrained(model, seed)
    with torch.no_grad():
        found, random = (layer_curves(one.encoder, [one.embed(images)], names=WATCHED) for one in (model, reference))
    definitions = " ".join(QUANTITIES[name].definition for name in WATCHED)
    report.picture(
        figures.save(figures.layer_curves(quantity_panels(found, random)), out / "photographs-layers.png"),
        f"What each encoder layer does to these photographs, with a band of one standard deviation; dashed: the same "
        f"architecture with random weights. {definitions}",
        "Compression and sparsity against the encoder layer",
    )


def _add_components(report: Report, out: Path, model: MaskedAutoencoder, images: Images) -> None:
    found = components(model, images)
    drawn = inside.components(pictures(model, images), found.first, found.kept, found.colours)
    report.picture(
        figures.save(drawn, out / "photographs-components.png"),
        f"Principal components of the tokens that enter encoder layer {found.layer}. Of the patches whose first "
        "component is above a threshold, the next three are shown as red, green and blue. In a small model the first "
        "may follow the position in the image rather than what is shown.",
        "Photographs, the first component of their patches, and three components as colours",
    )


def _add_attention(report: Report, out: Path, model: MaskedAutoencoder, images: Images) -> None:
    with torch.no_grad():
        found = attention_maps(model, images, convention="authors")
    drawn = inside.attention(pictures(model, images), found.maps, range(min(HEADS, found.maps.shape[1])))
    report.picture(
        figures.save(drawn, out / "photographs-attention.png"),
        f"Attention of the class token in encoder layer {found.layer}, as the layer computes it.",
        "Photographs and the attention maps of several heads",
    )
