"""What the page and the API show of a model and a picture: plain functions, with the library's own definitions."""

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

from crate_mae import __version__
from crate_mae.analysis.attention import Convention, attention_maps
from crate_mae.analysis.completed_images import panels_of
from crate_mae.analysis.components import THRESHOLD, Components, components
from crate_mae.analysis.layerwise import layer_curves
from crate_mae.errors import UserError
from crate_mae.models.autoencoder import Completion, MaskedAutoencoder
from crate_mae.models.config import Family
from crate_mae.tokens import random_mask
from crate_mae.web.schema import Completed, Layer, Layers, ServedModel, TokenComponents
from crate_mae.web.sheet import Panel, draw

FAMILIES: dict[Family, Literal["CRATE-MAE", "ViT-MAE"]] = {"crate": "CRATE-MAE", "vit": "ViT-MAE"}
SHOWN = ("compression", "rate", "sparsity")
"""Of ``QUANTITIES``."""


@dataclass(frozen=True)
class Served:
    """A model and the name it goes by."""

    name: str
    model: MaskedAutoencoder

    def describe(self) -> ServedModel:
        """What can be said without a picture."""
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
    """A picture as the model takes it, resized, as a PNG; used as the picture, it gives the same numbers."""
    return _png(model.to_image(model.preprocess(picture)))


def choose_mask(
    model: MaskedAutoencoder, mask: str | None = None, ratio: float = 0.75, seed: int = 0
) -> Bool[Tensor, "1 N"]:
    """A mask from its 0s and 1s, row by row, or a random one as ``crate-mae complete`` draws it."""
    if mask is None:
        return random_mask(1, model.num_patches, ratio, generator=torch.Generator().manual_seed(seed))
    if len(mask) != model.num_patches:
        raise UserError(
            f"the mask has {len(mask)} entries; this model cuts a picture into {model.num_patches} patches."
        )
    return torch.tensor([[entry == "1" for entry in mask]])


@torch.no_grad()
def complete(model: MaskedAutoencoder, picture: Image.Image, mask: Bool[Tensor, "1 N"]) -> Completed:
    """Mask a picture and fill it in."""
    pixels = _pixels(model, picture)
    completion = model(pixels, mask)
    panels = panels_of(model, pixels, completion)
    masked = int(mask.sum())
    return Completed(
        mask=as_text(mask),
        masked_patches=masked,
        patches=model.num_patches,
        error=panels.errors[0] if masked else None,
        mean_patch_error=mean_patch_error(completion),
        errors=_rows(torch.where(completion.mask.masked, completion.errors, torch.nan), model.config.grid),
        caption=panels.caption,
        completed=_data_url(panels.completed[0]),
        masked=_data_url(panels.masked[0]),
    )


def mean_patch_error(completion: Completion) -> float | None:
    """The error of filling every masked patch of one picture with the mean of its visible patches.

        mean over the masked i of |x_i - m|^2 / pixels,   m = mean over the visible j of x_j

    x are the model's targets: patches, normalised where the model was trained on normalised ones.
    None where no patch is masked.
    """
    targets, hidden = completion.targets, completion.mask.masked
    if not hidden.any():
        return None
    return (targets[hidden] - targets[~hidden].mean(0)).square().mean().item()


def as_text(mask: Bool[Tensor, "1 N"]) -> str:
    """A 1 for each masked patch and a 0 for each visible one."""
    return "".join("1" if masked else "0" for masked in mask[0].tolist())


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
    except UserError as error:  # the attention is still right
        missing = str(error)
    return Layer(
        layer=attention.layer,
        convention=attention.convention,
        attention=attention.maps[0].tolist(),
        on_itself=attention.on_itself[0].tolist(),
        components=found,
        components_missing=missing,
    )


@torch.no_grad()
def sheet(
    models: Sequence[Served],
    pictures: Sequence[Image.Image],
    masks: Sequence[Bool[Tensor, "1 N"]],
    ratio: float | None = None,
    seed: int | None = None,
) -> bytes:
    """A picture to keep, as a PNG: masked, completed by each model, original. It knows how its mask was made."""
    found, errors = [], []
    for one, picture, mask in zip(models, pictures, masks, strict=True):
        pixels = _pixels(one.model, picture)
        completion = one.model(pixels, mask)
        found.append(panels_of(one.model, pixels, completion))
        errors.append(_errors_in_words(completion))
    count, patches = int(masks[0].sum()), models[0].model.num_patches
    names = [f"{FAMILIES[one.model.config.family]} {one.name}" for one in models]
    how = "painted by hand" if seed is None else f"mask ratio {ratio:g}, seed {seed}"
    captions = dict.fromkeys(made.caption for made in found if made.caption)
    panels = [
        Panel("masked", found[0].original[0], mask=masks[0].view(models[0].model.config.grid).numpy()),
        *(
            Panel(f"completed by {name}", made.completed[0], words)
            for name, made, words in zip(names, found, errors, strict=True)
        ),
        Panel("original", found[0].original[0]),
    ]
    texts = {
        "Software": f"crate-mae {__version__}",
        "Title": f"Masked completion by {' and '.join(names)}",
        "Description": "; ".join(f"{name}: {words}" for name, words in zip(names, errors, strict=True)),
        "mask": as_text(masks[0]),
        **({} if seed is None else {"mask ratio": f"{ratio:g}", "seed": str(seed)}),
    }
    return draw(panels, "; ".join([f"{count} of {patches} patches masked ({how})", *captions]), texts)


def _errors_in_words(completion: Completion) -> str:
    if not completion.mask.masked.any():
        return "nothing is masked"
    return f"error {completion.image_errors.item():.4f}; the mean patch gives {mean_patch_error(completion):.4f}"


def _pixels(model: MaskedAutoencoder, picture: Image.Image) -> Float[Tensor, "1 c H W"]:
    return model.preprocess(picture)[None].to(model.device)


def _rows(values: Float[Tensor, "1 N"], grid: tuple[int, int]) -> list[list[float | None]]:
    """By rows of the grid; None in place of NaN, which JSON does not have."""
    return [[None if value != value else value for value in row] for row in values.view(grid).tolist()]


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
