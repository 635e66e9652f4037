"""What ``crate-mae serve`` does: load, bind, say where, serve."""

import ipaddress
import os
import resource
import socket
import sys
import threading
import webbrowser
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import torch
import uvicorn
from rich.console import Console
from starlette.types import ASGIApp

from crate_mae import image_files
from crate_mae.errors import UserError
from crate_mae.models.zoo import load_autoencoder
from crate_mae.web.connections import connections_within
from crate_mae.web.faults import log_faults
from crate_mae.web.guard import Hosts
from crate_mae.web.limits import Limits
from crate_mae.web.samples import samples
from crate_mae.web.server import create_app
from crate_mae.web.views import FAMILIES, Served

RESERVED = 48
"""Descriptors for everything that is not a connection."""
FEWEST = 8
"""Connections: a browser opens six."""


def run(
    checkpoints: Sequence[str | Path],
    limits: Limits,
    host: str,
    port: int,
    show: bool,
    device: torch.device,
    console: Console,
) -> None:
    """Serve one checkpoint or two until stopped."""
    with bind(host, port) as listener:  # first: a port in use is known before a large model is loaded
        served = load_served(checkpoints, device)
        app = create_app(served, samples(served[0].model.config), limits, hosts_of(listener, host))
        address = address_of(listener, host)
        for one in served:
            family = FAMILIES[one.model.config.family]
            console.print(f"{one.name}: {family}, {one.model.num_parameters:,} parameters, {device}.", highlight=False)
        if not is_loopback(listener):
            elsewhere = f"http://{socket.gethostname()}:{listener.getsockname()[1]}"
            words = f"Whoever can reach this machine can use the page, at {elsewhere} or at its numeric address."
            console.print(words, highlight=False, soft_wrap=True)
        console.print(
            f"Serving on {address} (Ctrl+C stops; {address}/api has the API)", highlight=False, soft_wrap=True
        )
        if show:
            threading.Thread(target=webbrowser.open, args=(address,), daemon=True).start()
        log_faults()
        try:
            uvicorn.Server(configured(app, limits)).run(sockets=[listener])
        except KeyboardInterrupt:
            console.print("Stopped.", highlight=False)


def configured(app: ASGIApp, limits: Limits) -> uvicorn.Config:
    """uvicorn with our connections, time-outs and log."""
    connections = min(limits.connections, descriptors() - RESERVED)
    if connections < FEWEST:
        raise UserError(f"only {descriptors()} files may be open at once; allow more, as with ulimit -n 1024.")
    return uvicorn.Config(
        app,
        http=connections_within(replace(limits, connections=connections)),
        ws="none",
        lifespan="off",
        log_config=None,
        log_level="warning",
        access_log=False,
        server_header=False,
        backlog=128,
        timeout_graceful_shutdown=3,
    )


def descriptors() -> int:
    """How many files and connections this process may have open."""
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return sys.maxsize if soft == resource.RLIM_INFINITY else soft


def load_served(checkpoints: Sequence[str | Path], device: torch.device) -> list[Served]:
    """The models, checked: they take pictures, and one mask fits all of them."""
    served = [Served(name_of(path), load_autoencoder(path).to(device).eval()) for path in checkpoints]
    for one in served:
        if one.model.config.channels not in image_files.MODES:
            raise UserError(
                f"{one.name} takes images of {one.model.config.channels} channels, which no picture has; "
                "serve a model with 1, 3 or 4 channels."
            )
    grids = [one.model.config.grid for one in served]
    if len(set(grids)) > 1:
        words = " and ".join(f"{h} x {w}" for h, w in grids)
        raise UserError(
            f"the two models cut a picture into {words} patches, so no mask fits both; serve one at a time."
        )
    if len({one.name for one in served}) < len(served):
        served = [Served(f"{one.name} ({number})", one.model) for number, one in enumerate(served, 1)]
    return served


def name_of(checkpoint: str | Path) -> str:
    """The name of a run's or a checkpoint's folder, or of a model that has none here."""
    folder = Path(checkpoint).expanduser().resolve()
    return folder.parents[1].name if folder.parent.name == "checkpoints" else folder.name


def bind(host: str, port: int) -> socket.socket:
    """A listening socket."""
    try:
        family, *_, place = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
    except (socket.gaierror, UnicodeError):
        raise UserError(
            f"--host {host} is not an address of this machine; use 127.0.0.1, or 0.0.0.0 for all."
        ) from None
    try:
        return socket.create_server(place[:2], family=family, backlog=1024)
    except OSError as error:
        reason = os.strerror(error.errno) if error.errno else str(error)
        raise UserError(
            f"can't listen on {host} port {port} ({reason}); choose another --port, or 0 for any free one."
        ) from None


def is_loopback(listener: socket.socket) -> bool:
    """Whether only this machine can reach the server."""
    return ipaddress.ip_address(listener.getsockname()[0]).is_loopback


def hosts_of(listener: socket.socket, host: str) -> Hosts:
    """The host names under which the server answers: the given one and its own."""
    if is_loopback(listener):
        return Hosts(frozenset({"localhost", host.lower()}))
    return Hosts(frozenset({"localhost", host.lower(), socket.gethostname().lower()}), loopback=False)


def address_of(listener: socket.socket, host: str) -> str:
    """The address of the page for a browser on this machine."""
    port = listener.getsockname()[1]
    unspecified = ipaddress.ip_address(listener.getsockname()[0]).is_unspecified
    name = "localhost" if unspecified else f"[{host}]" if ":" in host else host
    return f"http://{name}:{port}"
