"""The API: an address for each view of a model and a picture."""

import asyncio
from collections.abc import Callable, Mapping, Sequence
from io import BytesIO
from typing import Annotated, Any, TypeVar

from fastapi import APIRouter, Depends, Path, Request, Response
from PIL import Image
from torch import Tensor

from crate_mae import __version__
from crate_mae.analysis.attention import CONVENTIONS
from crate_mae.analysis.quantities import QUANTITIES
from crate_mae.errors import UserError
from crate_mae.web import views
from crate_mae.web.decoders import Decoders
from crate_mae.web.limits import FORMATS, Limits, Refusal
from crate_mae.web.parameters import (
    CompleteGiven,
    LayerGiven,
    MaskParameters,
    NothingGiven,
    PictureGiven,
    PictureParameters,
    SheetGiven,
    given_once,
)
from crate_mae.web.problems import PROBLEMS
from crate_mae.web.request_queue import RequestQueue
from crate_mae.web.samples import Sample
from crate_mae.web.schema import About, Completed, Layer, Layers, Problem, QuantityWords, RequestLimits, SampleName
from crate_mae.web.uploads import Intake
from crate_mae.web.views import SHOWN, Served

T = TypeVar("T")
NO_PICTURE = "there is no picture in the request; send one as its body, or name a sample."
TWO_PICTURES = "the request has a picture and names a sample; send only one of them."
THUMBNAIL = 160
"""Pixels along the longer side of a sample's thumbnail."""
PNG: dict[int | str, dict[str, Any]] = {200: {"content": {"image/png": {}}, "description": "A PNG."}}
NO_SAMPLE: dict[int | str, dict[str, Any]] = {404: {"model": Problem, "description": "There is no such sample."}}
FILE = {"type": "string", "format": "binary"}
PICTURE: dict[str, Any] = {
    "requestBody": {
        "description": f"The bytes of an image file ({', '.join(FORMATS)}), or a form with one such file. "
        "Empty where `sample` is given.",
        "content": {
            "application/octet-stream": {"schema": FILE},
            "multipart/form-data": {"schema": {"type": "object", "properties": {"picture": FILE}}},
        },
    }
}


class Api:
    """Each public method answers one address."""

    def __init__(self, served: Sequence[Served], samples: Mapping[str, Sample], limits: Limits):
        self.served, self.samples, self.limits = served, samples, limits
        self.intake, self.queue, self.decoders = Intake(limits), RequestQueue(limits), Decoders(limits)
        self.thumbnails = {name: _thumbnail(sample.picture) for name, sample in samples.items()}

    def router(self) -> APIRouter:
        """The table of addresses."""
        router = APIRouter(prefix="/api", dependencies=[Depends(given_once)])
        get, add = router.get, router.post
        get("/about", summary="The models, samples and limits")(self.about)
        get("/samples/{name}", summary="A sample, small", response_class=Response, responses=PNG | NO_SAMPLE)(
            self.sample
        )
        json: dict[str, Any] = {"responses": PROBLEMS, "openapi_extra": PICTURE}
        png: dict[str, Any] = {"responses": PNG | PROBLEMS, "openapi_extra": PICTURE, "response_class": Response}
        add("/original", summary="A picture as a model takes it", **png)(self.original)
        add("/complete", summary="Mask a picture and complete it", **json)(self.complete)
        add("/layers", summary="R^c, R and non-zero entries at every layer", **json)(self.layers)
        add("/layer", summary="Attention and components at one layer", **json)(self.layer)
        add("/sheet", summary="Masked, completed and original side by side, to keep", **png)(self.sheet)
        return router

    async def about(self, _: NothingGiven) -> About:
        return About(
            version=__version__,
            models=[one.describe() for one in self.served],
            samples=[SampleName(name=name, title=sample.title) for name, sample in self.samples.items()],
            limits=RequestLimits(
                upload=self.limits.upload,
                pixels=self.limits.pixels,
                seconds=self.limits.seconds,
                formats=list(FORMATS),
            ),
            quantities={
                name: QuantityWords(title=found.title, unit=found.unit, definition=found.definition)
                for name in SHOWN
                for found in [QUANTITIES[name]]
            },
            conventions={str(name): words for name, words in CONVENTIONS.items()},
        )

    async def sample(self, name: Annotated[str, Path(description="As in `/api/about`.")], _: NothingGiven) -> Response:
        self._named(name)
        return Response(self.thumbnails[name], media_type="image/png")

    async def original(self, request: Request, given: PictureGiven) -> Response:
        """With the model's size and channels. Sent in place of the first picture, it gives the same numbers."""
        one = self._chosen(given.model)
        png = await self._answer(request, given, [one], lambda picture: views.original(one.model, picture))
        return Response(png, media_type="image/png")

    async def complete(self, request: Request, given: CompleteGiven) -> Completed:
        """With a mask of your own, or a random one of a ratio and a seed, as `crate-mae complete` draws it."""
        one = self._chosen(given.model)
        mask = views.choose_mask(one.model, given.mask, given.ratio, given.seed)
        return await self._answer(request, given, [one], lambda picture: views.complete(one.model, picture, mask))

    async def layers(self, request: Request, given: PictureGiven) -> Layers:
        """Of this picture, with nothing masked, through the encoder's layers."""
        one = self._chosen(given.model)
        return await self._answer(request, given, [one], lambda picture: views.layers(one.model, picture))

    async def layer(self, request: Request, given: LayerGiven) -> Layer:
        """Every head's attention, and the tokens' principal components, with nothing masked."""
        one = self._chosen(given.model)
        asked = (given.layer, given.convention, given.threshold)
        return await self._answer(request, given, [one], lambda picture: views.layer(one.model, picture, *asked))

    async def sheet(self, request: Request, given: SheetGiven) -> Response:
        """One picture of what the page shows."""
        shown = list(self.served) if given.model is None else [self._chosen(given.model)]
        masks = [views.choose_mask(one.model, given.mask, given.ratio, given.seed) for one in shown]
        drawn = (given.ratio, given.seed) if given.mask is None else (None, None)
        png = await self._answer(request, given, shown, lambda *pictures: views.sheet(shown, pictures, masks, *drawn))
        name = f"crate-mae-{given.sample or 'photo'}-{_mask_in_words(masks[0], given)}.png"
        return Response(png, media_type="image/png", headers={"Content-Disposition": f'attachment; filename="{name}"'})

    def _chosen(self, index: int) -> Served:
        if index >= len(self.served):
            raise UserError(f"there is no model {index}; the server has {len(self.served)}, counted from 0.")
        return self.served[index]

    def _named(self, name: str) -> Sample:
        if name not in self.samples:
            raise Refusal(404, f"there is no such sample; there are {', '.join(self.samples)}.")
        return self.samples[name]

    async def _answer(
        self, request: Request, given: PictureParameters, models: Sequence[Served], view: Callable[..., T]
    ) -> T:
        """What ``view`` makes of the request's picture, once for each model; stopped when the client hangs up."""
        known = self._named(given.sample).picture if given.sample is not None else None
        async with self.intake.received(request) as upload:
            return await self._work(request, given, models, view, known, upload)

    async def _work(
        self,
        request: Request,
        given: PictureParameters,
        models: Sequence[Served],
        view: Callable[..., T],
        known: Image.Image | None,
        upload: bytes,
    ) -> T:
        if bool(upload) == (known is not None):
            raise Refusal(422, TWO_PICTURES if upload else NO_PICTURE)
        targets = [(one.model.config.channels, *one.model.config.image_size) for one in models]

        def work() -> T:
            pictures = [known] * len(models) if known else self.decoders.pictures(upload, targets, given.fit)
            return view(*pictures)

        with self.queue.slot() as deadline:
            job = asyncio.ensure_future(self.queue.run(work, deadline))
            gone = asyncio.ensure_future(_hung_up(request))
            try:
                await asyncio.wait({job, gone}, return_when=asyncio.FIRST_COMPLETED)
                if not job.done():
                    raise Refusal(499, "the client hung up.")
                return job.result()
            finally:
                job.cancel()
                gone.cancel()


def _mask_in_words(mask: Tensor, given: MaskParameters) -> str:
    """For a file name."""
    if given.mask is not None:
        return f"painted-{int(mask.sum())}-of-{mask.numel()}"
    return f"ratio-{given.ratio:.3g}-seed-{given.seed}"


async def _hung_up(request: Request) -> None:
    """Return when the client has hung up; its body has been read before."""
    while (await request.receive())["type"] != "http.disconnect":
        pass


def _thumbnail(picture: Image.Image) -> bytes:
    small, file = picture.copy(), BytesIO()
    small.thumbnail((THUMBNAIL, THUMBNAIL))
    small.save(file, "PNG")
    return file.getvalue()
