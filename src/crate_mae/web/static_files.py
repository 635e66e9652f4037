"""The page's own files, from a fixed table that is read once."""

from collections.abc import Awaitable, Callable
from importlib.resources import files

from fastapi import FastAPI, Request, Response

SCRIPTS = (
    *("page", "state", "pictures", "mask", "history", "completion", "inside"),
    *("messages", "drawing", "curves", "formulas", "requests", "words", "theme", "reference"),
)
FILES = {  # what a browser can ask for, and no more
    "/": ("index.html", "text/html; charset=utf-8"),
    "/api": ("reference.html", "text/html; charset=utf-8"),
    "/icon.svg": ("icon.svg", "image/svg+xml"),
    "/style.css": ("style.css", "text/css; charset=utf-8"),
    **{f"/{name}.js": (f"{name}.js", "text/javascript; charset=utf-8") for name in SCRIPTS},
}


def serve_files(app: FastAPI) -> None:
    """Add an address for each file."""
    folder = files("crate_mae.web") / "static"
    for address, (name, kind) in FILES.items():
        app.add_route(address, _always(Response((folder / name).read_bytes(), media_type=kind)))


def _always(response: Response) -> Callable[[Request], Awaitable[Response]]:
    async def answer(request: Request) -> Response:
        return response

    return answer
