"""What the page and the API show of a model and a picture: plain functions, each quantity by its one definition."""

import base64
from collections.abc import Sequence
from dataclasses import dataclass
from io import BytesIO
from typing import Literal

import numpy as np
import torch
from jaxtyping import Bool, Float
from PIL import Image
from torch import Tensor

from crate_mae.analysis.attention import Convention, attention_maps
from crate_mae.analysis.completed_images import completion_panels
from crate_mae.analysis.components import THRESHOLD, Components, components
from crate_mae.analysis.layerwise import layer_curves
from crate_mae.errors import UserError
from crate_mae.figures.comparison import completions_in_a_row
from crate_mae.models.autoencoder import MaskedAutoencoder
from crate_mae.models.config import Family
from crate_mae.tokens import random_mask
from crate_mae.web.schema import Completed, Layer, Layers, ServedModel, TokenComponents

FAMILIES: dict[Family, Literal["CRATE-MAE", "ViT-MAE"]] = {"crate": "CRATE-MAE", "vit": "ViT-MAE"}
SHOWN = ("compression", "rate", "sparsity")
"""Of ``QUANTITIES``."""


@dataclass(frozen=True)
class Served:
    """A model and the name it goes by."""

    name: str
    model: MaskedAutoencoder

    def describe(self) -> ServedModel:
        """What there is to know before a picture is there."""
        config = self.model.config
        return ServedModel(
            name=self.name,
            family=FAMILIES[config.family],
            parameters=self.model.num_parameters,
            layers=config.depth,
            heads=config.heads,
            image_size=config.image_size,
            channels=config.channels,
            grid=config.grid,
            encoder_sees=config.encoder_sees,
        )


def original(model: MaskedAutoencoder, picture: Image.Image) -> bytes:
    """A picture as the model takes it, resized, as a PNG; taken again, it gives the very same numbers."""
    return _png(model.to_image(model.preprocess(picture)))


def choose_mask(
    model: MaskedAutoencoder, mask: str | None = None, ratio: float = 0.75, seed: int = 0
) -> Bool[Tensor, "1 N"]:
    """A mask from its 0s and 1s row by row, or drawn as ``crate-mae complete`` draws it."""
    if mask is None:
        return random_mask(1, model.num_patches, ratio, generator=torch.Generator().manual_seed(seed))
    if len(mask) != model.num_patches:
        raise UserError(f"the mask has {len(mask)} places; this model cuts a picture into {model.num_patches} patches.")
    return torch.tensor([[place == "1" for place in mask]])


def complete(model: MaskedAutoencoder, picture: Image.Image, mask: Bool[Tensor, "1 N"]) -> Completed:
    """Mask a picture and fill it in."""
    panels = completion_panels(model, _pixels(model, picture), mask)
    masked = int(mask.sum())
    return Completed(
        mask="".join("1" if place else "0" for place in mask[0].tolist()),
        masked_patches=masked,
        patches=model.num_patches,
        error=panels.errors[0] if masked else None,
        caption=panels.caption,
        completed=_data_url(panels.completed[0]),
        masked=_data_url(panels.masked[0]),
    )


@torch.no_grad()
def layers(model: MaskedAutoencoder, picture: Image.Image) -> Layers:
    """R^c, R and sparsity of a picture at every encoder layer."""
    found = layer_curves(model.encoder, [model.embed(_pixels(model, picture))], names=SHOWN)
    curves = {name: curve.mean.tolist() for name, curve in found.curves.items()}
    return Layers(curves=curves, left_out=found.left_out, epsilon=found.epsilon)


def layer(
    model: MaskedAutoencoder,
    picture: Image.Image,
    number: int,
    convention: Convention = "paper",
    threshold: float = THRESHOLD,
) -> Layer:
    """Every head's attention and the tokens' components at encoder layer ``number``, from 1 to L."""
    depth = model.config.depth
    if not 1 <= number <= depth:
        raise UserError(f"there is no layer {number}; this model has layers 1 to {depth}.")
    pixels = _pixels(model, picture)
    attention = attention_maps(model, pixels, number, convention)
    found, missing = None, None
    try:
        found = _plain(components(model, pixels, number, threshold))
    except UserError as error:  # the other half of the answer is still right
        missing = str(error)
    return Layer(
        layer=attention.layer,
        convention=attention.convention,
        attention=attention.maps[0].tolist(),
        on_itself=attention.on_itself[0].tolist(),
        components=found,
        components_missing=missing,
    )


def sheet(models: Sequence[Served], pictures: Sequence[Image.Image], masks: Sequence[Bool[Tensor, "1 N"]]) -> bytes:
    """A picture to keep, as a PNG: masked, completed by each model, original."""
    panels = [
        completion_panels(one.model, _pixels(one.model, picture), mask)
        for one, picture, mask in zip(models, pictures, masks, strict=True)
    ]
    count, patches = int(masks[0].sum()), models[0].model.num_patches
    completed = {
        f"completed by {FAMILIES[one.model.config.family]} {one.name}": (
            made.completed[0],
            f"error {made.errors[0]:.4f}" if count else "nothing is masked",
        )
        for one, made in zip(models, panels, strict=True)
    }
    words = [f"{count} of {patches} patches masked", *dict.fromkeys(made.caption for made in panels if made.caption)]
    figure = completions_in_a_row(panels[0].masked[0], completed, panels[0].original[0], "; ".join(words))
    file = BytesIO()
    figure.savefig(file, format="png", dpi=150, bbox_inches="tight", facecolor="white")
    return file.getvalue()


def _pixels(model: MaskedAutoencoder, picture: Image.Image) -> Float[Tensor, "1 c H W"]:
    return model.preprocess(picture)[None].to(model.device)


def _plain(found: Components) -> TokenComponents:
    colours, kept = found.colours[0], found.kept[0]
    return TokenComponents(
        first=found.first[0].tolist(),
        kept=kept.tolist(),
        colours=[
            [tuple(colour.tolist()) if keep else None for colour, keep in zip(*row, strict=True)]
            for row in zip(colours, kept, strict=True)
        ],
        energy=found.energy.tolist(),
        threshold=found.threshold,
        border_kept=found.border_kept,
    )


def _data_url(pixels: Float[np.ndarray, "H W c"]) -> str:
    array = (pixels * 255).round().astype(np.uint8)
    png = _png(Image.fromarray(array[..., 0] if array.shape[2] == 1 else array))
    return f"data:image/png;base64,{base64.b64encode(png).decode()}"


def _png(picture: Image.Image) -> bytes:
    file = BytesIO()
    picture.save(file, "PNG")
    return file.getvalue()
