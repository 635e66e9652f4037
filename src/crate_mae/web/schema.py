"""The API's answers, with a description of every field."""

from typing import Literal

from pydantic import BaseModel, Field

Rows = list[list[float]]
"""A number for each patch, in the rows of the grid."""


class Problem(BaseModel):
    """Why there is no answer."""

    error: str = Field(description="What is wrong and what to do, in one sentence.")


class SampleName(BaseModel):
    """A picture that comes with the server."""

    name: str = Field(description="The value of `sample`.")
    title: str = Field(description="For people.")


class ServedModel(BaseModel):
    """A model that the server has loaded."""

    name: str = Field(description="The checkpoint's folder.")
    family: Literal["CRATE-MAE", "ViT-MAE"] = Field(description="White-box layers, or ordinary transformer layers.")
    parameters: int = Field(description="Number of trainable parameters.")
    layers: int = Field(description="L, of the encoder.")
    heads: int = Field(description="K, of each encoder layer.")
    image_size: tuple[int, int] = Field(description="Height and width to which a picture is resized.")
    channels: int = Field(description="1 for gray, 3 for colour, 4 with transparency.")
    grid: tuple[int, int] = Field(description="Rows and columns of patches.")
    encoder_sees: Literal["all", "visible"] = Field(description="Which patches of a masked picture the encoder gets.")


class RequestLimits(BaseModel):
    """Limits of a request."""

    upload: float = Field(description="Bytes of a picture.")
    pixels: float = Field(description="Pixels of a picture.")
    seconds: float = Field(description="From arrival to answer, waiting included.")
    formats: list[str] = Field(description="Image formats that are read.")


class QuantityWords(BaseModel):
    """A quantity in words."""

    title: str = Field(description="For people.")
    unit: str = Field(description="Of its numbers.")
    definition: str = Field(description="One sentence.")


class About(BaseModel):
    """What the server offers."""

    version: str = Field(description="Of crate-mae.")
    models: list[ServedModel] = Field(description="One or two; `model` is an index into this list.")
    samples: list[SampleName] = Field(description="Pictures to start with.")
    limits: RequestLimits = Field(description="Limits of a request.")
    quantities: dict[str, QuantityWords] = Field(description="What `layers` measures, by name.")
    conventions: dict[str, str] = Field(description="The two formulas of an attention map, in words.")


class Completed(BaseModel):
    """A picture with its masked patches filled in."""

    mask: str = Field(description="A 1 for each masked patch and a 0 for each visible one, row by row.")
    masked_patches: int = Field(description="Number of masked patches.")
    patches: int = Field(description="N, the number of patches.")
    error: float | None = Field(
        description="Mean squared error over the masked patches, in normalised units; null where none is masked."
    )
    mean_patch_error: float | None = Field(
        description="For comparison: the error of filling each masked patch with the mean of the visible ones."
    )
    errors: list[list[float | None]] = Field(
        description="The error of each masked patch, in the rows of the grid; null for visible ones."
    )
    caption: str = Field(description="How the completion is shown, where that needs a word.")
    completed: str = Field(description="The completion, a PNG as a data URL.")
    masked: str = Field(description="The picture with its masked patches in one colour, a PNG as a data URL.")


class Layers(BaseModel):
    """Quantities of this picture at every encoder layer, with nothing masked."""

    curves: dict[str, list[float]] = Field(description="By the quantity's name; one number for each layer from 1 to L.")
    left_out: dict[str, str] = Field(description="Quantities that are not defined for this model, and why.")
    epsilon: float = Field(description="The precision epsilon of every coding rate.")


class TokenComponents(BaseModel):
    """Principal components of this picture's tokens at a layer."""

    first: Rows = Field(description="The first component of all patches; those below a threshold are background.")
    kept: list[list[bool]] = Field(description="Where a patch is not background.")
    colours: list[list[tuple[float, float, float] | None]] = Field(
        description="The first three components of the patches kept as red, green and blue from 0 to 1; null elsewhere."
    )
    energy: list[float] = Field(description="The fraction of the kept patches' squared norm in each of the three.")
    threshold: float = Field(description="In root mean squares of the first component.")
    border_kept: float = Field(description="The fraction of the patches on the picture's border that were kept.")


class Layer(BaseModel):
    """One encoder layer at work on this picture, with nothing masked."""

    layer: int = Field(description="From 1 to L.")
    convention: Literal["paper", "authors"] = Field(description="The formula of the attention maps.")
    attention: list[Rows] = Field(description="For each head, the class token's weight on every patch.")
    on_itself: list[float] = Field(description="For each head, its weight on itself: 0 by the paper's formula.")
    components: TokenComponents | None = Field(description="null where there are none.")
    components_missing: str | None = Field(description="Why there are none.")
