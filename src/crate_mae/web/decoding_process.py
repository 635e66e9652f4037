"""A process of its own that decodes and resizes uploads, with limits on memory and processor time.

A decoder works on what strangers send. Here it can neither hold the server's interpreter nor take its memory, and a
crash ends this process alone. ``decoders`` starts it and sends it a job as JSON, then the upload. It answers with
modes and sizes as JSON, then the pixels of each picture; or with a status and a sentence. Each message has its length
before it.
"""

import json
import resource
import signal
import socket
import struct
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from io import BufferedRWPair, BytesIO

from PIL import Image

from crate_mae import image_files
from crate_mae.errors import UserError
from crate_mae.web.limits import FORMATS, MILLION, Refusal

LENGTH = struct.Struct(">Q")
"""Of a message, in bytes."""
STARTS = (b"\xff\xd8\xff", b"\x89PNG\r\n\x1a\n", b"GIF8")
"""The first bytes of the formats that are decoded; a WebP has its name at byte 8."""


@dataclass(frozen=True)
class Job:
    """What is to be made of an upload."""

    targets: Sequence[tuple[int, int, int]]
    """Channels, height and width of each picture."""
    fit: image_files.Fit
    pixels: float
    side: int
    aspect: float
    seconds: float


def main(server: BufferedRWPair, memory: int) -> None:
    """Answer jobs until the server hangs up."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl+C in a terminal reaches every process; the server ends this one
    Image.MAX_IMAGE_PIXELS = None  # Pillow only warns; `opened` refuses
    resource.setrlimit(resource.RLIMIT_AS, (memory, memory))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))  # no picture reaches the disk
    while asked := _receive(server):
        job, upload = Job(**json.loads(asked)), _receive(server)
        signal.setitimer(signal.ITIMER_PROF, job.seconds)  # when it runs out, the signal ends this process
        try:
            pictures = prepare(upload, job)
        except Refusal as refusal:
            _send(server, json.dumps({"status": refusal.status, "error": refusal.message}).encode())
        else:
            _send(server, json.dumps({"pictures": [(one.mode, one.size) for one in pictures]}).encode())
            for one in pictures:
                _send(server, one.tobytes())
        server.flush()
        signal.setitimer(signal.ITIMER_PROF, 0)


def _receive(server: BufferedRWPair) -> bytes:
    """A message; empty when the server has hung up."""
    length = server.read(LENGTH.size)
    return server.read(*LENGTH.unpack(length)) if length else b""


def _send(server: BufferedRWPair, message: bytes) -> None:
    server.write(LENGTH.pack(len(message)) + message)


def prepare(upload: bytes, job: Job) -> list[Image.Image]:
    """The picture in an upload, once for each target."""
    source = opened(upload, job)
    try:
        picture = image_files.read(source, "the picture")
        return [
            image_files.fitted(picture, channels, (height, width), job.fit) for channels, height, width in job.targets
        ]
    except MemoryError:
        raise too_much_memory() from None
    except UserError as error:
        cause = error.__context__
        if isinstance(cause, MemoryError):
            raise too_much_memory() from None
        if isinstance(cause, EOFError) or "truncated" in str(cause).lower():
            words = "the picture ends before it is complete; download, copy or save it again."
        else:
            words = f"the picture is damaged ({cause or error}); open it in an image program and save it again."
        raise Refusal(422, words) from None


def opened(upload: bytes, job: Job) -> Image.Image:
    """An upload whose header is within the limits; nothing is decoded yet."""
    try:
        source = Image.open(BytesIO(upload), formats=FORMATS)
    except Exception:  # a damaged or hostile header can raise anything in a decoder
        if upload.startswith(STARTS) or upload[8:12] == b"WEBP":
            words = "the picture is damaged or ends before it is complete; download, copy or save it again."
            raise Refusal(422, words) from None
        kinds = f"{', '.join(FORMATS[:-1])} or {FORMATS[-1]}"
        raise Refusal(415, f"this is not a {kinds} image; save the picture as one of these.") from None
    short, long = sorted(source.size)
    if short * long > job.pixels:
        raise Refusal(413, f"the picture has more than {job.pixels / MILLION:g} million pixels; make it smaller.")
    if long > job.side:
        raise Refusal(413, f"the picture is {long:,} pixels long; the limit is {job.side:,} along each side.")
    if long > job.aspect * short:
        raise Refusal(413, f"one side of the picture is more than {job.aspect:g} times the other; crop it.")
    if source.format == "JPEG" and image_files.has_many_scans(upload):
        raise Refusal(413, f"the JPEG has more than {image_files.SCANS} scans; save it again in an image program.")
    return source


def too_much_memory() -> Refusal:
    return Refusal(413, "decoding this picture takes more memory than is allowed; make it smaller.")


if __name__ == "__main__":
    with socket.socket(fileno=int(sys.argv[1])) as line, line.makefile("rwb") as server:
        main(server, int(sys.argv[2]))
