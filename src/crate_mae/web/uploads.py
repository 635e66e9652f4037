"""Pictures from strangers: read from memory, checked by their header, decoded within the limits."""

import asyncio
from io import BytesIO

from PIL import Image
from starlette.requests import ClientDisconnect, Request

from crate_mae import images
from crate_mae.errors import UserError
from crate_mae.web.deadline import Deadline, Overdue
from crate_mae.web.limits import MILLION, Limits, Refusal

FORMATS = ("JPEG", "PNG", "WEBP", "GIF", "BMP")
"""What is decoded: pictures of pixels alone. Others, SVG and PDF among them, are not even tried."""
CLOSE = {"Connection": "close"}  # what is left of the body is not worth reading


async def receive(request: Request, limits: Limits, deadline: Deadline) -> bytes:
    """The body of a request; reading stops at the limit, whatever its headers claim."""
    too_large = Refusal(
        413, f"the upload is larger than {limits.upload / MILLION:g} MB; send a smaller picture.", CLOSE
    )
    claimed = request.headers.get("content-length", "")
    if claimed.isdecimal() and int(claimed) > limits.upload:
        raise too_large
    body = bytearray()
    try:
        async with asyncio.timeout(deadline.left):
            async for chunk in request.stream():
                if len(body) + len(chunk) > limits.upload:
                    raise too_large
                body += chunk
    except TimeoutError:
        raise Refusal(408, f"the upload took more than {limits.seconds:g} seconds; send it again.", CLOSE) from None
    except ClientDisconnect:
        raise Refusal(400, "the upload broke off; send it again.", CLOSE) from None
    return bytes(body)


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
        return images.read(opened, "the upload")
    except UserError:
        Deadline.check()  # it may be the deadline that has stopped the decoder
        raise


class Watched(BytesIO):
    """An upload whose decoding stops when its deadline has passed."""

    def read(self, size: int | None = -1, /) -> bytes:
        Deadline.check()
        return super().read(size)
