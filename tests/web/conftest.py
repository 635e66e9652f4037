"""Two tiny models of digits, the server around them, and a browser."""

import atexit
import contextlib
import socket
import threading
import time
from collections.abc import Iterator
from io import BytesIO
from typing import Any

import httpx
import torch
import uvicorn
from PIL import Image
from starlette.types import ASGIApp

from crate_mae import MaskedAutoencoder
from crate_mae.web.command import configured
from crate_mae.web.guard import Hosts
from crate_mae.web.limits import Limits
from crate_mae.web.samples import samples
from crate_mae.web.server import create_app
from crate_mae.web.views import Served
from tests.reports.test_inspect_measurements import for_digits


def shaken(name: str) -> MaskedAutoencoder:
    """A model whose norms and biases hide nothing."""
    model, generator = for_digits(name), torch.Generator().manual_seed(2)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter += 0.1 * torch.randn(parameter.shape, generator=generator)
    return model.eval()


CRATE, VIT = shaken("crate_mae_tiny"), shaken("vit_mae_base_he")
DEFAULT = Limits()
# One for all: a client reads the machine's certificates, which takes longer than most of the tests.
CLIENT = httpx.Client(timeout=60, verify=False, trust_env=False, limits=httpx.Limits(max_connections=50))
atexit.register(CLIENT.close)
SERVED = [Served("white-box", CRATE), Served("ordinary", VIT)]


def app_of(*served: Served, limits: Limits = DEFAULT) -> ASGIApp:
    return create_app(served or SERVED, samples(CRATE.config), limits, Hosts())


@contextlib.contextmanager
def serving(app: ASGIApp, limits: Limits = DEFAULT) -> Iterator[str]:
    """The address of a real server of the app, in a thread."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        server = uvicorn.Server(configured(app, limits))
        thread = threading.Thread(target=server.run, kwargs={"sockets": [listener]})
        thread.start()
        try:
            while not server.started:
                assert thread.is_alive()
                time.sleep(0.01)
            yield f"http://127.0.0.1:{listener.getsockname()[1]}"
        finally:
            server.should_exit = True
            thread.join()


def png(picture: Image.Image, kind: str = "PNG", **options: Any) -> bytes:
    file = BytesIO()
    picture.save(file, kind, **options)
    return file.getvalue()


def photo(width: int = 90, height: int = 60) -> Image.Image:
    """A picture in colour that no model takes as it is."""
    generator = torch.Generator().manual_seed(5)
    pixels = torch.randint(0, 256, (height // 10, width // 10, 3), generator=generator, dtype=torch.uint8)
    return Image.fromarray(pixels.numpy()).resize((width, height), Image.Resampling.BICUBIC)
