"""The whole server as an ASGI app: the page's files and the API, behind the guard."""

from collections.abc import Mapping, Sequence

from fastapi import FastAPI
from starlette.types import ASGIApp

from crate_mae import __version__
from crate_mae.web.api import Api
from crate_mae.web.deadline import watch
from crate_mae.web.guard import Guard, Hosts
from crate_mae.web.limits import Limits
from crate_mae.web.problems import PROBLEMS, answer_problems
from crate_mae.web.samples import Sample
from crate_mae.web.static_files import serve_files
from crate_mae.web.views import Served


def create_app(served: Sequence[Served], samples: Mapping[str, Sample], limits: Limits, hosts: Hosts) -> ASGIApp:
    """The server of one model, or of two that share a grid of patches."""
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
    answer_problems(app)
    serve_files(app)
    app.include_router(Api(served, samples, limits).router())
    return Guard(app, hosts)
