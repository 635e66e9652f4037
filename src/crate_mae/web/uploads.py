"""Pictures from strangers: read from memory, checked by their header, decoded within the limits."""

import asyncio
from contextlib import suppress
from io import BytesIO

from PIL import Image
from starlette.requests import Request
from starlette.responses import JSONResponse
from starlette.types import Receive, Scope, Send

from crate_mae import image_io
from crate_mae.errors import UserError
from crate_mae.web.deadline import Deadline, Overdue
from crate_mae.web.limits import MILLION, Limits, Refusal

FORMATS = ("JPEG", "PNG", "WEBP", "GIF", "BMP")
"""What is decoded: pictures of pixels alone. Others, SVG and PDF among them, are not even tried."""
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


def decode(upload: bytes, limits: Limits) -> Image.Image:
    """The picture in an upload."""
    if not upload:
        raise Refusal(422, "there is no picture in the request; send one as its body, or name a sample.")
    too_many = f"the picture has more than {limits.pixels / MILLION:g} million pixels; make it smaller."
    try:
        opened = Image.open(Watched(upload), formats=FORMATS)
    except (Image.DecompressionBombError, Image.DecompressionBombWarning):
        raise Refusal(413, too_many) from None
    except Overdue:
        raise
    except Exception:  # a damaged or hostile header can raise anything in a decoder
        kinds = f"{', '.join(FORMATS[:-1])} or {FORMATS[-1]}"
        raise Refusal(415, f"this is no {kinds} picture, or not a whole one; save it as one of these.") from None
    if opened.width * opened.height > limits.pixels:
        raise Refusal(413, too_many)
    try:
        return image_io.read(opened, "the upload")
    except UserError:
        Deadline.check()  # it may be the deadline that has stopped the decoder
        raise


class Watched(BytesIO):
    """An upload whose decoding stops when its deadline has passed."""

    def read(self, size: int | None = -1, /) -> bytes:
        Deadline.check()
        return super().read(size)
