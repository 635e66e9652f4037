"""The bodies of requests, received within the limits."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field

from starlette.requests import Request
from starlette.responses import JSONResponse
from starlette.types import Receive, Scope, Send

from crate_mae.web.deadline import Deadline
from crate_mae.web.limits import MILLION, RETRY_AFTER, Limits, Refusal
from crate_mae.web.multipart import file_in

CLOSE = {"Connection": "close"}  # what is left of the body is not worth reading
LINGER = 2.0
"""Seconds during which further data of a client are read and discarded after a refusal."""


@dataclass(eq=False)
class Arrival:
    """A body on its way."""

    deadline: Deadline
    body: bytearray = field(default_factory=bytearray)
    given_up: bool = False
    waiting: asyncio.Timeout | None = None

    def give_up(self) -> None:
        """Free its memory, and end its wait for the next part."""
        self.given_up = True
        self.body.clear()
        if self.waiting is not None and not self.waiting.expired():
            self.waiting.reschedule(0)


class Intake:
    """Receives the bodies of requests, and bounds the memory that they take together."""

    def __init__(self, limits: Limits):
        self.limits = limits
        self._arriving: list[Arrival] = []  # oldest first
        self._kept = 0
        """Bytes of the pictures whose requests are not answered yet."""

    @asynccontextmanager
    async def received(self, request: Request) -> AsyncIterator[bytes]:
        """The picture in the body of a request; nothing beyond the limit is kept, whatever its headers claim."""
        picture = file_in(await self._body(request), request.headers.get("content-type", ""))
        self._kept += len(picture)
        try:
            yield picture
        finally:
            self._kept -= len(picture)

    async def _body(self, request: Request) -> bytes:
        arrival = Arrival(Deadline(self.limits.seconds))
        self._arriving.append(arrival)
        try:
            await self._receive(request, arrival)
            return bytes(arrival.body)
        finally:
            self._arriving.remove(arrival)

    async def _receive(self, request: Request, arrival: Arrival) -> None:
        claimed = request.headers.get("content-length", "")
        if claimed.isdecimal() and int(claimed) > self.limits.upload:
            raise self._too_large(unread=True)
        more = True
        while more:
            chunk, more = await self._next(request, arrival)
            if len(arrival.body) + len(chunk) > self.limits.upload:
                raise self._too_large(unread=more)
            self._make_room(arrival, len(chunk))
            if arrival.given_up:
                message = "the server is busy with other uploads; try again in a moment."
                raise Refusal(503, message, CLOSE | RETRY_AFTER, unread=more)
            arrival.body += chunk

    def _make_room(self, newcomer: Arrival, count: int) -> None:
        """Give up the oldest uploads: those that trickle are among them."""
        while self._kept + sum(len(one.body) for one in self._arriving) + count > self.limits.uploads:
            oldest = next((one for one in self._arriving if one.body), newcomer)
            oldest.give_up()
            if oldest is newcomer:
                return

    def _too_large(self, unread: bool) -> Refusal:
        message = f"the upload is larger than {self.limits.upload / MILLION:g} MB; send a smaller one."
        return Refusal(413, message, CLOSE, unread)

    async def _next(self, request: Request, arrival: Arrival) -> tuple[bytes, bool]:
        """The next part of a body, and whether there is more."""
        try:
            async with asyncio.timeout(min(self.limits.idle, arrival.deadline.left)) as arrival.waiting:
                message = await request.receive()
        except TimeoutError:
            if arrival.given_up:
                return b"", True
            overdue = arrival.deadline.left <= 0
            late = f"took more than {self.limits.seconds:g}" if overdue else f"stopped for {self.limits.idle:g}"
            raise Refusal(408, f"the upload {late} seconds; send it again.", CLOSE) from None
        finally:
            arrival.waiting = None
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
