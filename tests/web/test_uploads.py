"""Hostile and broken uploads: each gets one sentence with the right status, and the server lives on."""

import contextlib
import random
import select
import socket
import struct
import time
import zlib
from collections import deque
from collections.abc import Iterator
from itertools import repeat

import pytest
from PIL import Image
from starlette.testclient import TestClient

from crate_mae.web import uploads
from crate_mae.web.limits import MILLION, Limits
from tests.web.conftest import CLIENT, app_of, photo, png, serving

LIMITS = Limits(upload=200_000, pixels=0.5 * MILLION, seconds=10)


def bomb(width: int, height: int | None = None) -> bytes:
    """A small PNG that claims width x height pixels."""

    def chunk(kind: bytes, data: bytes) -> bytes:
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))

    header = struct.pack(">IIBBBBB", width, height or width, 8, 0, 0, 0, 0)
    return (
        b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header) + chunk(b"IDAT", zlib.compress(bytes(9999))) + chunk(b"IEND", b"")
    )


def damaged(whole: bytes) -> bytes:
    """A PNG with a wrong checksum."""
    at = whole.index(b"IDAT") + 20
    return whole[:at] + bytes([whole[at] ^ 1]) + whole[at + 1 :]


JPEG = png(photo(300, 200), "JPEG")
SVG = b'<svg xmlns="http://www.w3.org/2000/svg" width="9" height="9"><rect width="9" height="9"/></svg>'
HOSTILE = {
    "bomb of 10^10 pixels": (bomb(100_000), 413, "more than 0.5 million pixels"),
    "bomb that only warns": (bomb(10_000), 413, "more than 0.5 million pixels"),
    "a little too many pixels": (bomb(800), 413, "more than 0.5 million pixels"),
    "a line of pixels": (bomb(1, 20_000), 413, "20,000 pixels long; the limit is 16,384 along each side"),
    "a strip": (bomb(8000, 60), 413, "more than 50 times the other"),
    "promised pixels that are not there": (
        bomb(700),
        422,
        "ends before it is complete; download, copy or save it again",
    ),
    "truncated": (JPEG[: len(JPEG) // 2], 422, "ends before it is complete; download, copy or save it again"),
    "damaged": (damaged(png(photo())), 422, "the picture is damaged (broken data stream"),
    "cut in the header": (JPEG[:20], 422, "is damaged or ends before it is complete; download, copy or save it again"),
    "WebP cut in half": (png(photo(), "WEBP")[:200], 422, "is damaged or ends before it is complete"),
    "text": (b"no image at all", 415, "not a JPEG"),
    "svg": (SVG, 415, "not a JPEG, PNG, WEBP, GIF or BMP image"),
    "pdf": (b"%PDF-1.7\n1 0 obj\n", 415, "not a JPEG"),
    "an image of a format that is not read": (png(photo(), "TIFF"), 415, "not a JPEG"),
    "postscript": (b"%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 9 9\n", 415, "not a JPEG"),
    "nothing": (b"", 422, "no picture in the request"),
    "too large": (bytes(LIMITS.upload + 1), 413, "larger than 0.2 MB"),
}


@pytest.fixture(scope="module")
def client() -> Iterator[TestClient]:
    with TestClient(app_of(limits=LIMITS), base_url="http://127.0.0.1") as client:
        yield client


@pytest.mark.parametrize("name", HOSTILE)
@pytest.mark.parametrize("address", ["/api/original", "/api/complete"])
def test_a_hostile_upload_gets_a_sentence_and_the_server_lives_on(client: TestClient, name: str, address: str) -> None:
    body, status, words = HOSTILE[name]
    response = client.post(address, content=body)
    assert response.status_code == status
    assert list(response.json()) == ["error"]
    assert words in response.json()["error"]
    assert client.post(address, content=JPEG).status_code == 200


@pytest.mark.parametrize("kind", ["JPEG", "PNG", "WEBP", "GIF", "BMP"])
def test_every_kind_that_is_promised_is_read(client: TestClient, kind: str) -> None:
    assert client.post("/api/complete", content=png(photo(), kind)).status_code == 200


def test_odd_pictures_are_read(client: TestClient) -> None:
    for mode in ("1", "L", "LA", "P", "RGBA", "CMYK", "I;16"):
        body = png(Image.new(mode, (5, 9)), "JPEG" if mode == "CMYK" else "PNG")
        assert client.post("/api/complete", content=body).status_code == 200, mode


def test_damage_anywhere_never_breaks_the_server(client: TestClient) -> None:
    dice = random.Random(0)
    for whole in (JPEG, png(photo()), png(photo(), "WEBP"), png(photo(), "GIF")):
        for _ in range(25):
            damaged = bytearray(whole)
            for _ in range(dice.randint(1, 12)):
                damaged[dice.randrange(min(len(damaged), 700))] = dice.randrange(256)
            response = client.post("/api/original", content=bytes(damaged))
            assert response.status_code in (200, 413, 415, 422)
            assert response.status_code == 200 or response.json()["error"]


def test_a_form_with_one_file_is_taken(client: TestClient) -> None:
    plain = client.post("/api/complete", content=JPEG).json()
    for name in ("photo.jpg", 'a "photo"\r\n of mine', "写真.jpg"):
        assert client.post("/api/complete", files={"picture": (name, JPEG)}).json() == plain
    ends_like_a_line = JPEG + b"\r\n--\r\n"
    assert client.post("/api/complete", files={"picture": ("a", ends_like_a_line)}).json() == plain


FORM = "multipart/form-data; boundary=x"
FILE = b'--x\r\nContent-Disposition: form-data; name="a"; filename="a.jpg"\r\n\r\n' + JPEG
FORMS = {
    "two files": (FORM, FILE + b"\r\n" + FILE + b"\r\n--x--", "more than one field"),
    "thousands": (FORM, b"--x\r\n\r\n" * 9000 + b"--x--", "more than one field"),
    "a text": (
        FORM,
        b'--x\r\nContent-Disposition: form-data; name="seed"\r\n\r\n3\r\n--x--',
        "not a file; send one picture",
    ),
    "cut off": (FORM, FILE, "ends before it is complete"),
    "no field": (FORM, b"--x--\r\n", "ends before it is complete"),
    "no form at all": (FORM, JPEG, "ends before it is complete"),
    "an empty boundary": ("multipart/form-data; boundary=", FILE + b"\r\n--x--", "does not say what separates"),
    "a boundary in parts": (
        "multipart/form-data; a*0=b; a*=c''d; boundary*0=x",
        FILE + b"\r\n--x--",
        "does not say what separates",
    ),
    "a parameter without end": (f"{FORM[:19]}; a*{'9' * 5000}=b", FILE + b"\r\n--x--", "does not say what separates"),
    "no boundary": ("multipart/form-data", FILE + b"\r\n--x--", "does not say what separates"),
    "an empty file": (FORM, FILE[: -len(JPEG)] + b"\r\n--x--", "there is no picture in the request"),
}


@pytest.mark.parametrize("name", FORMS)
def test_another_form_gets_a_sentence(client: TestClient, name: str) -> None:
    kind, body, words = FORMS[name]
    response = client.post("/api/complete", content=body, headers={"Content-Type": kind})
    assert response.status_code == 422
    assert words in response.json()["error"]


def test_two_pictures_are_one_too_many(client: TestClient) -> None:
    response = client.post("/api/complete?sample=digit-1", content=JPEG)
    assert response.status_code == 422
    assert response.json()["error"] == "the request has a picture and names a sample; send only one of them."


def test_a_picture_is_cropped_on_request(client: TestClient) -> None:
    square = photo(90, 60).crop((15, 0, 75, 60))
    cropped = client.post("/api/original?fit=crop", content=png(photo(90, 60))).content
    assert cropped == client.post("/api/original", content=png(square)).content
    assert cropped != client.post("/api/original", content=png(photo(90, 60))).content


@pytest.fixture(scope="module")
def address() -> Iterator[str]:
    with serving(app_of(limits=Limits(upload=200_000, seconds=1.5))) as address:
        yield address


@pytest.mark.parametrize("length", ["true", "none"])
def test_a_hundred_megabytes_are_told_so_whether_their_length_is_or_not(address: str, length: str) -> None:
    sent = 0

    def endless() -> Iterator[bytes]:
        nonlocal sent
        while sent < 100 * MILLION:
            sent += 50_000
            yield bytes(50_000)

    headers = {"Content-Length": str(100 * MILLION)} if length == "true" else {}
    response = CLIENT.post(f"{address}/api/complete", content=endless(), headers=headers)
    assert response.status_code == 413
    assert "larger than 0.2 MB" in response.json()["error"]
    assert CLIENT.post(f"{address}/api/complete?sample=digit-1").status_code == 200


def test_what_never_ends_is_not_read_for_ever(address: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(uploads, "LINGER", 0.3)
    host, port = address.removeprefix("http://").split(":")
    chunk = b"10000\r\n" + bytes(0x10000) + b"\r\n"
    with socket.create_connection((host, int(port)), timeout=20) as line:
        line.sendall(f"POST /api/complete HTTP/1.1\r\nHost: {host}\r\nTransfer-Encoding: chunked\r\n\r\n".encode())
        start = time.monotonic()
        with pytest.raises(OSError, match=r"Broken pipe|reset"):
            deque(map(line.sendall, repeat(chunk)), maxlen=0)
    assert time.monotonic() < start + 15


def trickle(address: str, first: bytes = b"") -> socket.socket:
    """A request whose body does not come."""
    host, port = address.removeprefix("http://").split(":")
    line = socket.create_connection((host, int(port)), timeout=20)
    line.sendall(f"POST /api/complete HTTP/1.1\r\nHost: {host}\r\nContent-Length: 150000\r\n\r\n".encode() + first)
    return line


def whole(line: socket.socket) -> bytes:
    """All that comes before the server closes a connection."""
    return b"".join(iter(lambda: line.recv(65536), b""))


def test_a_body_that_does_not_come_is_not_waited_for_longer_than_allowed(address: str) -> None:
    start = time.monotonic()
    with trickle(address, JPEG[:100]) as line:
        answer = whole(line)
    assert answer.startswith(b"HTTP/1.1 408")
    assert b"took more than 1.5 seconds" in answer
    assert 1.4 < time.monotonic() - start < 10
    assert CLIENT.post(f"{address}/api/complete?sample=digit-1").status_code == 200


def test_an_upload_that_stops_is_given_up() -> None:
    with serving(app_of(limits=Limits(idle=0.3))) as address, trickle(address, b"x") as line:
        time.sleep(0.2)
        line.sendall(b"x")  # a byte starts the time anew
        start = time.monotonic()
        answer = whole(line)
    assert answer.startswith(b"HTTP/1.1 408")
    assert b"stopped for 0.3 seconds" in answer
    assert time.monotonic() - start > 0.25


def test_uploads_on_their_way_take_no_slots() -> None:
    limits = Limits(upload=200_000, workers=1, waiting=0, seconds=30, idle=30)
    with serving(app_of(limits=limits)) as address, contextlib.ExitStack() as lines:
        for _ in range(66):
            lines.enter_context(trickle(address, b"x"))
        assert CLIENT.post(f"{address}/api/complete", content=JPEG).status_code == 200


def test_uploads_that_trickle_take_bounded_memory_and_give_way(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Limits, "uploads", 1_000_000)
    limits = Limits(upload=400_000, seconds=30, idle=30)
    large = png(photo(900, 600), compress_level=0)[:400_000].ljust(390_000, b"x")  # more than arrives in one part
    with serving(app_of(limits=limits)) as address, contextlib.ExitStack() as lines:
        held = [lines.enter_context(trickle(address, bytes(140_000))) for _ in range(20)]
        answer = CLIENT.post(f"{address}/api/complete", content=large)
        assert answer.status_code == 422, answer.text  # it was decoded
        given_up = [line for line in held if select.select([line], [], [], 0.3)[0]]
        assert len(given_up) >= 20 - 1_000_000 // 140_000
        for line in given_up:
            words = whole(line)
            assert words.startswith(b"HTTP/1.1 503")
            assert b"busy with other uploads" in words
        assert CLIENT.post(f"{address}/api/complete?sample=digit-1").status_code == 200
