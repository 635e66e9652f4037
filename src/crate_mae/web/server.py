"""The server: the page's files from a fixed table, and the API over ``views``."""

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from http import HTTPStatus
from importlib.resources import files
from io import BytesIO
from typing import Annotated, Any, TypeVar

from fastapi import FastAPI, Path, Query, Request, Response
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse
from PIL import Image
from starlette.exceptions import HTTPException
from starlette.types import ASGIApp

from crate_mae import __version__
from crate_mae.analysis.attention import CONVENTIONS, Convention
from crate_mae.analysis.components import THRESHOLD
from crate_mae.analysis.quantities import QUANTITIES
from crate_mae.errors import UserError
from crate_mae.web import views
from crate_mae.web.deadline import watch
from crate_mae.web.guard import Guard, Hosts
from crate_mae.web.limits import Limits, Refusal
from crate_mae.web.samples import Sample
from crate_mae.web.schema import (
    About,
    Completed,
    Layer,
    Layers,
    Problem,
    QuantityWords,
    RequestLimits,
    SampleName,
)
from crate_mae.web.uploads import FORMATS, LastWords, TooLarge, decode, receive
from crate_mae.web.views import SHOWN, Served
from crate_mae.web.workers import Workers

T = TypeVar("T")
FILES = {  # what a browser can ask for, and no more
    "/": ("index.html", "text/html; charset=utf-8"),
    "/api": ("reference.html", "text/html; charset=utf-8"),
    "/icon.svg": ("icon.svg", "image/svg+xml"),
    "/style.css": ("style.css", "text/css; charset=utf-8"),
    **{
        f"/{name}.js": (f"{name}.js", "text/javascript; charset=utf-8")
        for name in ("page", "mask", "drawing", "requests", "theme", "reference")
    },
}
THUMBNAIL = 160
PICTURE: dict[str, Any] = {
    "requestBody": {
        "description": f"The bytes of a picture's file: {', '.join(FORMATS)}. Empty where `sample` is given.",
        "content": {"application/octet-stream": {"schema": {"type": "string", "format": "binary"}}},
    }
}
PROBLEMS: dict[int | str, dict[str, Any]] = {
    status: {"model": Problem, "description": description}
    for status, description in {
        404: "There is no such sample.",
        408: "The upload took too long.",
        413: "The upload has too many bytes or pixels.",
        415: "The upload is no picture that is read.",
        422: "The picture is damaged, or a parameter is wrong.",
        503: "Too many requests wait; `Retry-After` says for how long.",
        504: "Time ran out.",
    }.items()
}
PNG: dict[int | str, dict[str, Any]] = {200: {"content": {"image/png": {}}, "description": "A PNG."}}

Which = Annotated[int, Query(ge=0, description="Index of the model in `/api/about`.")]
SampleGiven = Annotated[str | None, Query(description="The name of a sample, in place of a body.")]
MaskGiven = Annotated[
    str | None,
    Query(pattern="^[01]+$", description="A 1 for each masked patch, a 0 for each visible one, row by row."),
]
Ratio = Annotated[float, Query(ge=0, le=1, description="Without `mask`: share of the patches to mask.")]
Seed = Annotated[int, Query(ge=0, lt=2**32, description="Without `mask`: seed of the mask.")]


def create_app(served: Sequence[Served], samples: Mapping[str, Sample], limits: Limits, hosts: Hosts) -> ASGIApp:
    """The whole server for one model, or for two that share a grid of patches."""
    app = FastAPI(
        title="crate-mae",
        version=__version__,
        description="Masked completion of images with white-box transformers: complete a picture, and look inside.",
        docs_url=None,  # FastAPI's own pages fetch their scripts from elsewhere
        redoc_url=None,
        responses={422: PROBLEMS[422]},
    )
    for one in served:
        watch(one.model)
    _answer_problems(app)
    _serve_files(app)
    _serve_api(app, served, samples, Workers(limits))
    return Guard(app, hosts)


def _serve_files(app: FastAPI) -> None:
    folder = files("crate_mae.web") / "static"
    for address, (name, kind) in FILES.items():
        app.add_route(address, _always(Response((folder / name).read_bytes(), media_type=kind)))


def _always(response: Response) -> Callable[[Request], Awaitable[Response]]:
    async def answer(request: Request) -> Response:
        return response

    return answer


def _serve_api(app: FastAPI, served: Sequence[Served], samples: Mapping[str, Sample], workers: Workers) -> None:
    limits = workers.limits

    def chosen(index: int) -> Served:
        if index >= len(served):
            raise UserError(f"there is no model {index}; the server has {len(served)}, counted from 0.")
        return served[index]

    def named(name: str) -> Sample:
        if name not in samples:
            raise Refusal(404, f"there is no such sample; there are {', '.join(samples)}.")
        return samples[name]

    async def answer(request: Request, sample: str | None, view: Callable[[Image.Image], T]) -> T:
        """What ``view`` makes of the request's picture, by a worker; dropped when the one who asked has gone."""
        known = named(sample).picture if sample is not None else None
        with workers.place() as deadline:
            upload = await receive(request, limits, deadline)
            work = lambda: view(known if known is not None else decode(upload, limits))  # noqa: E731
            job = asyncio.ensure_future(workers.run(work, deadline))
            gone = asyncio.ensure_future(_gone(request))
            try:
                await asyncio.wait({job, gone}, return_when=asyncio.FIRST_COMPLETED)
                if not job.done():
                    raise Refusal(499, "nobody waits for the answer.")
                return job.result()
            finally:
                job.cancel()
                gone.cancel()

    @app.get("/api/about", summary="The models, samples and limits")
    async def about() -> About:
        return About(
            version=__version__,
            models=[one.describe() for one in served],
            samples=[SampleName(name=name, title=sample.title) for name, sample in samples.items()],
            limits=RequestLimits(
                upload=limits.upload, pixels=limits.pixels, seconds=limits.seconds, formats=list(FORMATS)
            ),
            quantities={
                name: QuantityWords(title=found.title, unit=found.unit, definition=found.definition)
                for name in SHOWN
                for found in [QUANTITIES[name]]
            },
            conventions={str(name): words for name, words in CONVENTIONS.items()},
        )

    thumbnails = {name: _thumbnail(sample.picture) for name, sample in samples.items()}

    @app.get(
        "/api/samples/{name}",
        summary="A sample, small",
        response_class=Response,
        responses=PNG | {404: {"model": Problem, "description": "There is no such sample."}},
    )
    async def sample_picture(name: Annotated[str, Path(description="As in `/api/about`.")]) -> Response:
        named(name)
        return Response(thumbnails[name], media_type="image/png")

    @app.post(
        "/api/original",
        summary="A picture as a model takes it",
        response_class=Response,
        responses=PNG | PROBLEMS,
        openapi_extra=PICTURE,
    )
    async def original(request: Request, model: Which = 0, sample: SampleGiven = None) -> Response:
        """Resized to the model's size and channels. Sent in place of the first picture it gives the same numbers."""
        one = chosen(model)
        png = await answer(request, sample, lambda picture: views.original(one.model, picture))
        return Response(png, media_type="image/png")

    @app.post("/api/complete", summary="Mask a picture and complete it", responses=PROBLEMS, openapi_extra=PICTURE)
    async def complete(
        request: Request,
        model: Which = 0,
        sample: SampleGiven = None,
        mask: MaskGiven = None,
        ratio: Ratio = 0.75,
        seed: Seed = 0,
    ) -> Completed:
        """With a mask of your own, or one drawn with a ratio and a seed as `crate-mae complete` draws it."""
        one = chosen(model).model
        places = views.choose_mask(one, mask, ratio, seed)
        return await answer(request, sample, lambda picture: views.complete(one, picture, places))

    @app.post("/api/layers", summary="R^c, R and sparsity at every layer", responses=PROBLEMS, openapi_extra=PICTURE)
    async def layers(request: Request, model: Which = 0, sample: SampleGiven = None) -> Layers:
        """Of this very picture, with nothing masked, through the encoder's layers."""
        one = chosen(model).model
        return await answer(request, sample, lambda picture: views.layers(one, picture))

    @app.post("/api/layer", summary="Attention and components at a layer", responses=PROBLEMS, openapi_extra=PICTURE)
    async def layer(
        request: Request,
        layer: Annotated[int, Query(ge=1, description="Encoder layer, from 1 to L.")],
        model: Which = 0,
        sample: SampleGiven = None,
        convention: Annotated[Convention, Query(description="Formula of the attention maps.")] = "paper",
        threshold: Annotated[
            float, Query(ge=0, le=10, description="Patches below it in the first component are background.")
        ] = THRESHOLD,
    ) -> Layer:
        """Every head's attention, and the tokens' principal components, with nothing masked."""
        one = chosen(model).model
        return await answer(request, sample, lambda picture: views.layer(one, picture, layer, convention, threshold))

    @app.post(
        "/api/sheet",
        summary="Masked, completed and original side by side, to keep",
        response_class=Response,
        responses=PNG | PROBLEMS,
        openapi_extra=PICTURE,
    )
    async def sheet(
        request: Request,
        model: Annotated[int | None, Query(ge=0, description="Index of a model; all of them unless given.")] = None,
        sample: SampleGiven = None,
        mask: MaskGiven = None,
        ratio: Ratio = 0.75,
        seed: Seed = 0,
    ) -> Response:
        shown = list(served) if model is None else [chosen(model)]
        places = [views.choose_mask(one.model, mask, ratio, seed) for one in shown]
        png = await answer(request, sample, lambda picture: views.sheet(shown, picture, places))
        return Response(png, media_type="image/png")


async def _gone(request: Request) -> None:
    """Until the one who asked has hung up; the body has been read before."""
    while (await request.receive())["type"] != "http.disconnect":
        pass


def _thumbnail(picture: Image.Image) -> bytes:
    small, file = picture.copy(), BytesIO()
    small.thumbnail((THUMBNAIL, THUMBNAIL))
    small.save(file, "PNG")
    return file.getvalue()


def _answer_problems(app: FastAPI) -> None:
    """One form for everything that goes wrong."""

    def problem(status: int, message: str, headers: Mapping[str, str] | None = None) -> JSONResponse:
        return JSONResponse({"error": message}, status, headers)

    @app.exception_handler(Refusal)
    async def refused(_: Request, refusal: Refusal) -> JSONResponse:
        return problem(refusal.status, refusal.message, refusal.headers)

    @app.exception_handler(TooLarge)
    async def too_large(_: Request, refusal: TooLarge) -> JSONResponse:
        kind = LastWords if refusal.unread else JSONResponse
        return kind({"error": refusal.message}, refusal.status, refusal.headers)

    @app.exception_handler(UserError)
    async def wrong(_: Request, error: UserError) -> JSONResponse:
        return problem(422, str(error))

    @app.exception_handler(RequestValidationError)
    async def invalid(_: Request, error: RequestValidationError) -> JSONResponse:
        first = error.errors()[0]
        return problem(422, f"{first['loc'][-1]}: {first['msg'][:1].lower()}{first['msg'][1:]}.")

    @app.exception_handler(HTTPException)
    async def unknown(_: Request, error: HTTPException) -> JSONResponse:
        words = {404: "there is nothing at this address", 405: "this address does not take this method"}
        what = words.get(error.status_code, HTTPStatus(error.status_code).phrase.lower())
        return problem(error.status_code, f"{what}; /api lists what there is.", error.headers)

    @app.exception_handler(Exception)
    async def broken(_: Request, error: Exception) -> JSONResponse:
        return problem(500, "the server failed at this request and has written why to its terminal; it goes on.")
