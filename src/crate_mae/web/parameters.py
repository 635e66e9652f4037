"""The parameters of every request, in the address. An unknown one is refused."""

from collections import Counter
from typing import Annotated, Self

from fastapi import Query, Request
from pydantic import BaseModel, Field, model_validator
from pydantic_core import PydanticCustomError

from crate_mae.analysis.attention import Convention
from crate_mae.analysis.components import THRESHOLD
from crate_mae.image_files import Fit
from crate_mae.web.limits import Refusal

NAME = 40
"""Characters of a parameter's name that an answer repeats."""


class Parameters(BaseModel, extra="forbid"):
    """No parameters."""


class PictureParameters(Parameters):
    """Which picture, for which model."""

    model: int = Field(0, ge=0, description="Index of the model in `/api/about`.")
    sample: str | None = Field(None, description="The name of a sample, in place of a body.")
    fit: Fit = Field(
        "stretch",
        description="How an upload gets the model's shape: `stretch` resizes both sides, `crop` cuts out the middle, "
        "`pad` keeps the whole picture and adds a border of its average colour.",
    )


class MaskParameters(Parameters):
    """Which patches are masked."""

    mask: str | None = Field(
        None, pattern="^[01]+$", description="A 1 for each masked patch, a 0 for each visible one, row by row."
    )
    ratio: float = Field(0.75, ge=0, le=1, description="Mask ratio of a random mask; not together with `mask`.")
    seed: int = Field(0, ge=0, lt=2**32, description="Seed of a random mask; not together with `mask`.")

    @model_validator(mode="after")
    def one_mask(self) -> Self:
        """A mask is given or drawn, not both."""
        if self.mask is not None and self.model_fields_set & {"ratio", "seed"}:
            raise PydanticCustomError("two_masks", "give mask, or ratio and seed, but not both")
        return self


class CompleteParameters(PictureParameters, MaskParameters):
    """Of ``/api/complete``."""


class SheetParameters(CompleteParameters):
    """Of ``/api/sheet``."""

    model: int | None = Field(None, ge=0, description="Index of a model; all of them by default.")  # type: ignore[assignment]


class LayerParameters(PictureParameters):
    """Of ``/api/layer``."""

    layer: int = Field(ge=1, description="Encoder layer, from 1 to L.")
    convention: Convention = Field("paper", description="Formula of the attention maps.")
    threshold: float = Field(
        THRESHOLD, ge=0, le=10, description="Patches below it in the first component are background."
    )


NothingGiven = Annotated[Parameters, Query()]
PictureGiven = Annotated[PictureParameters, Query()]
CompleteGiven = Annotated[CompleteParameters, Query()]
SheetGiven = Annotated[SheetParameters, Query()]
LayerGiven = Annotated[LayerParameters, Query()]


async def given_once(request: Request) -> None:
    """Refuse a parameter that is given twice: two samples are two pictures, and only one would be shown."""
    names = Counter(name for name, _ in request.query_params.multi_items())
    name, times = max(names.items(), key=lambda one: one[1], default=("", 0))
    if times > 1:
        raise Refusal(422, f"the parameter {name[:NAME]} is given {times} times; give it once.")
