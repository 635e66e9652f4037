"""Limits on requests, and the answer to a request that exceeds one."""

from dataclasses import dataclass

from crate_mae.errors import UserError, check_at_least

MILLION = 10**6
FORMATS = ("JPEG", "PNG", "WEBP", "GIF", "BMP")
"""Image formats that are decoded: pixels alone. Others, SVG and PDF among them, are not even tried."""

RETRY_AFTER = {"Retry-After": "2"}
"""Seconds after which a client that was turned away may come again."""


@dataclass(frozen=True)
class Limits:
    """Limits of one request, and of all requests that wait."""

    upload: float = 10 * MILLION
    """Bytes of an image file as it is sent."""
    pixels: float = 32 * MILLION
    """Pixels of a picture, by its header, before any of them is decoded."""
    seconds: float = 20.0
    """From a request's arrival to its answer, waiting included; and for an upload to arrive."""
    waiting: int = 64
    """Requests that may wait while others are worked on; further ones are answered 503."""
    workers: int = 2
    """Requests worked on at once; the processor's cores are shared among them."""
    side: int = 16_384
    """Pixels along each side of a picture."""
    aspect: float = 50.0
    """The longer side of a picture over the shorter."""
    decoding: float = 5.0
    """Seconds of processor time to decode and resize a picture; the costliest within the other limits takes about 2."""

    idle: float = 5.0
    """Seconds without a byte after which an upload is given up."""
    header: float = 10.0
    """Seconds for the header of a request to arrive; and for an answer to be taken."""
    connections: int = 256
    """Open connections; beyond it the one that has been idle for longest is closed."""

    @property
    def uploads(self) -> float:
        """Bytes of all uploads in memory."""
        return 64 * self.upload

    @property
    def memory(self) -> int:
        """Bytes of a decoding process: an interpreter, the upload, and the picture in its widest form. That is 16-bit
        gray, which takes three float64 copies on its way to 8 bits."""
        return int(256 * MILLION + 2 * self.upload + 36 * self.pixels)

    def __post_init__(self) -> None:
        bounds = {"--max-upload-mb": self.upload, "--max-megapixels": self.pixels, "--max-seconds": self.seconds}
        for flag, bound in bounds.items():
            if not 0 < bound < float("inf"):
                raise UserError(f"{flag} is {bound:g}; choose a finite number above 0.")
        check_at_least("--max-waiting", self.waiting, 0)
        check_at_least("--workers", self.workers, 1)


class Refusal(Exception):
    """A request that gets a sentence in place of an answer."""

    def __init__(self, status: int, message: str, headers: dict[str, str] | None = None, unread: bool = False):
        super().__init__(message)
        self.status, self.message, self.headers = status, message, headers or {}
        self.unread = unread
        """Whether more of the request is on its way."""
