"""One form for everything that goes wrong: a status and one sentence."""

from collections.abc import Mapping, Sequence
from http import HTTPStatus
from typing import Any

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse
from fastapi.routing import APIRoute
from starlette.exceptions import HTTPException

from crate_mae.errors import UserError
from crate_mae.web.limits import Refusal
from crate_mae.web.parameters import NAME
from crate_mae.web.schema import Problem
from crate_mae.web.uploads import LastWords

PROBLEMS: dict[int | str, dict[str, Any]] = {
    status: {"model": Problem, "description": description}
    for status, description in {
        404: "There is no such sample.",
        408: "The upload took too long.",
        413: "The upload has too many bytes or pixels, or is too costly to decode.",
        415: "The upload is not an image of a supported format.",
        422: "The picture is damaged, or a parameter is wrong.",
        503: "Too many requests wait; `Retry-After` says for how long.",
        504: "Time ran out.",
    }.items()
}


def answer_problems(app: FastAPI) -> None:
    """Answer every exception of the app's addresses with a status and a sentence."""

    @app.exception_handler(Refusal)
    async def refused(_: Request, refusal: Refusal) -> JSONResponse:
        kind = LastWords if refusal.unread else JSONResponse
        return kind({"error": refusal.message}, refusal.status, refusal.headers)

    @app.exception_handler(UserError)
    async def wrong(_: Request, error: UserError) -> JSONResponse:
        return _problem(422, str(error))

    @app.exception_handler(RequestValidationError)
    async def invalid(request: Request, error: RequestValidationError) -> JSONResponse:
        return _problem(422, _in_words(error.errors()[0], _parameters_of(request)))

    @app.exception_handler(HTTPException)
    async def unknown(_: Request, error: HTTPException) -> JSONResponse:
        words = {404: "there is nothing at this address", 405: "this address does not take this method"}
        what = words.get(error.status_code, HTTPStatus(error.status_code).phrase.lower())
        return _problem(error.status_code, f"{what}; /api lists what there is.", error.headers)

    @app.exception_handler(Exception)
    async def broken(_: Request, error: Exception) -> JSONResponse:
        return _problem(
            500, "the server failed at this request and wrote the reason to its terminal; it keeps running."
        )


def _problem(status: int, message: str, headers: Mapping[str, str] | None = None) -> JSONResponse:
    return JSONResponse({"error": message}, status, headers)


def _in_words(error: Mapping[str, Any], allowed: Sequence[str]) -> str:
    name, message = error["loc"][-1], error["msg"]
    if error["type"] == "extra_forbidden":
        takes = f"this address takes {', '.join(allowed)}" if allowed else "this address takes none"
        return f"there is no parameter {str(name)[:NAME]}; {takes}."
    if error["type"] == "two_masks":
        return f"{message}."
    return f"{name}: {message[:1].lower()}{message[1:]}."


def _parameters_of(request: Request) -> list[str]:
    """The names of the parameters that the request's address takes."""
    route = request.scope.get("route")
    if not isinstance(route, APIRoute):
        return []
    models = [one.field_info.annotation for one in route.dependant.query_params]
    return [name for model in models for name in getattr(model, "model_fields", ())]
