"""What the API answers, with a word about every field."""

from typing import Literal

from pydantic import BaseModel, Field

Rows = list[list[float]]
"""A number for each patch, in the rows of the grid."""


class Problem(BaseModel):
    """Why there is no answer."""

    error: str = Field(description="What is wrong and what to do, in one sentence.")


class SampleName(BaseModel):
    """A picture that the server brings."""

    name: str = Field(description="What `sample` takes.")
    title: str = Field(description="For people.")


class ServedModel(BaseModel):
    """A model that the server has loaded."""

    name: str = Field(description="The checkpoint's folder.")
    family: Literal["CRATE-MAE", "ViT-MAE"] = Field(description="White-box layers, or ordinary ones.")
    parameters: int = Field(description="Trainable ones.")
    layers: int = Field(description="L, of the encoder.")
    heads: int = Field(description="K, of each encoder layer.")
    image_size: tuple[int, int] = Field(description="Height and width to which a picture is resized.")
    channels: int = Field(description="1 for gray, 3 for colour, 4 with transparency.")
    grid: tuple[int, int] = Field(description="Rows and columns of patches.")
    encoder_sees: Literal["all", "visible"] = Field(description="What the encoder gets of a masked picture.")


class RequestLimits(BaseModel):
    """The bounds of a request."""

    upload: float = Field(description="Bytes of a picture.")
    pixels: float = Field(description="Pixels of a picture.")
    seconds: float = Field(description="From arrival to answer, waiting included.")
    formats: list[str] = Field(description="Kinds of picture that are read.")


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
    limits: RequestLimits = Field(description="What a request may ask for.")
    quantities: dict[str, QuantityWords] = Field(description="What `layers` measures, by name.")
    conventions: dict[str, str] = Field(description="The two formulas of an attention map, in words.")


class Completed(BaseModel):
    """A picture whose masked patches were filled in."""

    mask: str = Field(description="A 1 for each masked patch and a 0 for each visible one, row by row.")
    masked_patches: int = Field(description="How many of them are masked.")
    patches: int = Field(description="N, all of them.")
    error: float | None = Field(
        description="Mean squared error over the masked patches, in normalised units; null where none is masked."
    )
    caption: str = Field(description="How the picture was made, where that needs a word.")
    completed: str = Field(description="The completion as a PNG in a data URL.")
    masked: str = Field(description="The picture with its masked patches in one colour, likewise.")


class Layers(BaseModel):
    """The numbers of this picture at every encoder layer, with nothing masked."""

    curves: dict[str, list[float]] = Field(description="By the quantity's name; one number for each layer from 1 to L.")
    left_out: dict[str, str] = Field(description="Quantities that make no sense for this model, and why.")
    epsilon: float = Field(description="The precision of the code in every rate.")


class TokenComponents(BaseModel):
    """Principal components of this picture's tokens at a layer."""

    first: Rows = Field(description="The first component of all patches; those below a cut are background.")
    kept: list[list[bool]] = Field(description="Where a patch is no background.")
    colours: list[list[tuple[float, float, float] | None]] = Field(
        description="The first three components of the patches kept as red, green and blue from 0 to 1; null elsewhere."
    )
    energy: list[float] = Field(description="The share of the kept patches' squared norm that each of the three holds.")
    threshold: float = Field(description="The cut, in root mean squares of the first component.")
    border_kept: float = Field(description="The share of the patches on the picture's border that were kept.")


class Layer(BaseModel):
    """One encoder layer at work on this picture, with nothing masked."""

    layer: int = Field(description="From 1 to L.")
    convention: Literal["paper", "authors"] = Field(description="The formula of the attention maps.")
    attention: list[Rows] = Field(description="For each head, the class token's weight on every patch.")
    on_itself: list[float] = Field(description="For each head, its weight on itself: 0 by the paper's formula.")
    components: TokenComponents | None = Field(description="null where there are none.")
    components_missing: str | None = Field(description="Why there are none.")
