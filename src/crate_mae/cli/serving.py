"""The verb that serves."""

from importlib.util import find_spec
from pathlib import Path

import tyro

from crate_mae.device import Device, pick_device
from crate_mae.errors import UserError


def serve(
    checkpoint: tyro.conf.Positional[Path],
    second: tyro.conf.Positional[Path | None] = None,
    host: str = "127.0.0.1",
    port: int = 8000,
    open: bool = False,
    max_upload_mb: float = 10,
    max_megapixels: float = 32,
    max_seconds: float = 20,
    max_waiting: int = 64,
    workers: int = 2,
    device: Device = "auto",
) -> None:
    """Open a local page: mask a picture, see it completed, and look inside every layer; one model, or two side by side.

    Args:
        checkpoint: A checkpoint folder, or a run folder.
        second: Another one to compare with, of the same grid of patches.
        host: Address to listen on; 0.0.0.0 lets other machines in.
        port: Port to listen on; 0 takes any that is free.
        open: Open the page in a browser.
        max_upload_mb: Largest upload in MB.
        max_megapixels: Most pixels of a picture, in millions.
        max_seconds: Longest time for a request, waiting included.
        max_waiting: Requests that may wait; further ones are told that the server is busy.
        workers: Requests worked on at once; the processor's cores are shared out among them.
        device: Where to compute; auto takes a GPU where there is one.
    """
    if not all(map(find_spec, ("fastapi", "uvicorn"))):
        raise UserError("the page needs the extra web; pip install 'crate-mae[web]' brings it.")
    from rich.console import Console

    from crate_mae.web.command import run
    from crate_mae.web.limits import MILLION, Limits

    limits = Limits(max_upload_mb * MILLION, max_megapixels * MILLION, max_seconds, max_waiting, workers)
    checkpoints = [path for path in (checkpoint, second) if path is not None]
    run(checkpoints, limits, host, port, open, pick_device(device), Console())
