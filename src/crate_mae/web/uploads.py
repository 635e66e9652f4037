"""The bodies of requests, received within the limits."""

import asyncio
from contextlib import suppress

from starlette.requests import Request
from starlette.responses import JSONResponse
from starlette.types import Receive, Scope, Send

from crate_mae.web.deadline import Deadline
from crate_mae.web.limits import MILLION, RETRY_AFTER, Limits, Refusal
from crate_mae.web.multipart import file_in

CLOSE = {"Connection": "close"}  # what is left of the body is not worth reading
LINGER = 2.0
"""Seconds during which further data of a client are read and discarded after a refusal."""


class Intake:
    """Receives the bodies of requests, and bounds the memory that unfinished ones take together."""

    def __init__(self, limits: Limits):
        self.limits = limits
        self._held = 0

    async def receive(self, request: Request) -> bytes:
        """The picture in the body of a request; nothing beyond the limit is kept, whatever its headers claim."""
        limits, deadline = self.limits, Deadline(self.limits.seconds)
        claimed = request.headers.get("content-length", "")
        if claimed.isdecimal() and int(claimed) > limits.upload:
            raise self._too_large(unread=True)
        body, more = bytearray(), True
        try:
            while more:
                chunk, more = await self._next(request, deadline)
                if len(body) + len(chunk) > limits.upload:
                    raise self._too_large(unread=more)
                if more and self._held + len(chunk) > limits.unfinished:
                    message = "the server is busy with other uploads; try again in a moment."
                    raise Refusal(503, message, CLOSE | RETRY_AFTER, unread=True)
                body += chunk
                self._held += len(chunk)
        finally:
            self._held -= len(body)
        return file_in(bytes(body), request.headers.get("content-type", ""))

    def _too_large(self, unread: bool) -> Refusal:
        message = f"the upload is larger than {self.limits.upload / MILLION:g} MB; send a smaller one."
        return Refusal(413, message, CLOSE, unread)

    async def _next(self, request: Request, deadline: Deadline) -> tuple[bytes, bool]:
        """The next part of a body, and whether there is more."""
        try:
            async with asyncio.timeout(min(self.limits.idle, deadline.left)):
                message = await request.receive()
        except TimeoutError:
            late = (
                f"took more than {self.limits.seconds:g}" if deadline.left <= 0 else f"stopped for {self.limits.idle:g}"
            )
            raise Refusal(408, f"the upload {late} seconds; send it again.", CLOSE) from None
        if message["type"] == "http.disconnect":
            raise Refusal(400, "the upload broke off; send it again.", CLOSE)
        return message.get("body", b""), message.get("more_body", False)


class LastWords(JSONResponse):
    """An answer to a client that is still sending.

    Many clients listen only when all is sent, and lose the answer when the connection closes before. So what still
    comes is read and thrown away for a moment.
    """

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        await send({"type": "http.response.start", "status": self.status_code, "headers": self.raw_headers})
        await send({"type": "http.response.body", "body": self.body, "more_body": True})
        with suppress(TimeoutError):
            async with asyncio.timeout(LINGER):
                while (await receive()).get("more_body", False):
                    pass
        await send({"type": "http.response.body", "body": b""})
