"""The bodies of requests, received within the limits."""

import asyncio
from contextlib import suppress

from starlette.requests import Request
from starlette.responses import JSONResponse
from starlette.types import Receive, Scope, Send

from crate_mae.web.deadline import Deadline
from crate_mae.web.limits import MILLION, Limits, Refusal

CLOSE = {"Connection": "close"}  # what is left of the body is not worth reading
LINGER = 2.0
"""Seconds for which what a client still sends is thrown away after it was told that it is too much."""


async def receive(request: Request, limits: Limits, deadline: Deadline) -> bytes:
    """The body of a request; nothing beyond the limit is kept, whatever its headers claim."""
    claimed = request.headers.get("content-length", "")
    if claimed.isdecimal() and int(claimed) > limits.upload:
        raise TooLarge(limits, unread=True)
    body, more = bytearray(), True
    try:
        async with asyncio.timeout(deadline.left):
            while more:
                message = await request.receive()
                if message["type"] == "http.disconnect":
                    raise Refusal(400, "the upload broke off; send it again.", CLOSE)
                chunk, more = message.get("body", b""), message.get("more_body", False)
                if len(body) + len(chunk) > limits.upload:
                    raise TooLarge(limits, unread=more)
                body += chunk
    except TimeoutError:
        raise Refusal(408, f"the upload took more than {limits.seconds:g} seconds; send it again.", CLOSE) from None
    return bytes(body)


class TooLarge(Refusal):
    """An upload with too many bytes."""

    def __init__(self, limits: Limits, unread: bool):
        super().__init__(413, f"the upload is larger than {limits.upload / MILLION:g} MB; send a smaller one.", CLOSE)
        self.unread = unread
        """Whether more of it is on its way."""


class LastWords(JSONResponse):
    """An answer to one who is still sending.

    Many clients listen only when all is sent, and a connection that is closed on them loses the answer. So what still
    comes is thrown away for a moment before it is closed.
    """

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        await send({"type": "http.response.start", "status": self.status_code, "headers": self.raw_headers})
        await send({"type": "http.response.body", "body": self.body, "more_body": True})
        with suppress(TimeoutError):
            async with asyncio.timeout(LINGER):
                while (await receive()).get("more_body", False):
                    pass
        await send({"type": "http.response.body", "body": b""})
