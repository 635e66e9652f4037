"""Checks of every request, and headers of every answer."""

import ipaddress
from dataclasses import dataclass
from urllib.parse import urlsplit

from starlette.datastructures import Headers, MutableHeaders
from starlette.responses import JSONResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send

POLICY = {
    "Content-Security-Policy": "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data: blob:; "
    "connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cache-Control": "no-store",
}


@dataclass(frozen=True)
class Hosts:
    """The host names under which the server answers.

    A foreign page can make its own host name resolve to this machine (DNS rebinding) and then read every answer; but
    the browser still sends that name as ``Host``. A numeric address can't be rebound.
    """

    names: frozenset[str] = frozenset({"localhost"})
    loopback: bool = True
    """Whether only loopback addresses are allowed."""

    def allow(self, host: str) -> bool:
        """Whether a ``Host`` header, with or without a port, is one of the server's own."""
        try:
            name = urlsplit(f"//{host}").hostname or ""
        except ValueError:
            return False
        if name in self.names:
            return True
        try:
            address = ipaddress.ip_address(name)
        except ValueError:
            return False
        return address.is_loopback or not self.loopback


class Guard:
    """Refuses requests under a foreign host name or from a foreign page; adds the policy to every answer."""

    def __init__(self, app: ASGIApp, hosts: Hosts):
        self.app, self.hosts = app, hosts

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return

        async def send_with_policy(message: Message) -> None:
            if message["type"] == "http.response.start":
                MutableHeaders(scope=message).update(POLICY)
            await send(message)

        await (self._refusal(scope) or self.app)(scope, receive, send_with_policy)

    def _refusal(self, scope: Scope) -> JSONResponse | None:
        headers = Headers(scope=scope)
        host, origin = headers.get("host", ""), headers.get("origin")
        if headers.get("upgrade", "").lower() == "websocket":
            return JSONResponse({"error": "this server has no WebSockets; /api lists what there is."}, 400)
        if not self.hosts.allow(host):
            message = "this server does not have that name; use the address that crate-mae serve printed."
            return JSONResponse({"error": message}, 421)
        if origin is not None and scope["method"] not in ("GET", "HEAD") and origin.partition("://")[2] != host:
            return JSONResponse({"error": "only the server's own page may send requests from a browser."}, 403)
        return None
