"""Connections that are silent, slow, too many or no HTTP at all; and the log that they can't fill."""

import contextlib
import logging
import os
import re
import resource
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from crate_mae import MaskedAutoencoder, recipes
from crate_mae.web import faults
from crate_mae.web.faults import Faults
from crate_mae.web.limits import Limits
from tests.web.conftest import CLIENT, app_of, photo, png, serving

LIMITS = Limits(header=0.6, connections=8)


@pytest.fixture(scope="module")
def address() -> Iterator[str]:
    with serving(app_of(limits=LIMITS), LIMITS) as address:
        yield address


def connect(address: str, first: bytes = b"") -> socket.socket:
    host, port = address.removeprefix("http://").split(":")
    line = socket.create_connection((host, int(port)), timeout=10)
    line.sendall(first)
    return line


def answers(address: str) -> bool:
    """Whether the server answers on a new connection; one that a client has kept may be pushed out as it is used."""
    with connect(address, b"GET /api/about HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n") as line:
        return line.recv(65536).startswith(b"HTTP/1.1 200 ")


def closed(line: socket.socket) -> bool:
    """Whether the server closes a connection without a word."""
    try:
        return line.recv(1) == b""
    except ConnectionResetError:
        return True


@pytest.mark.parametrize("first", [b"", b"GET / HT", b"GET / HTTP/1.1\r\nHost: 127.0.0.1\r\nX: "])
def test_half_a_header_is_not_waited_for(address: str, first: bytes) -> None:
    start = time.monotonic()
    with connect(address, first) as line:
        assert closed(line)
    assert 0.5 < time.monotonic() - start < 5


def test_a_trickling_header_gets_no_more_time(address: str) -> None:
    start = time.monotonic()
    with connect(address, b"GET / HTTP/1.1\r\n") as line, contextlib.suppress(OSError):
        while time.monotonic() - start < 5:
            line.sendall(b"X")
            time.sleep(0.1)
    assert time.monotonic() - start < 4


def test_half_a_second_header_is_not_waited_for_either(address: str) -> None:
    with connect(address, b"GET /icon.svg HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n") as line:
        answer = b""
        while b"</svg>" not in answer:
            answer += (part := line.recv(65536))
            assert part
        line.sendall(b"GET / HT")
        assert closed(line)


@pytest.mark.parametrize("more", [b"", b"x", b"xxx"])
def test_the_rest_of_a_body_that_nobody_reads_is_not_waited_for(address: str, more: bytes) -> None:
    with connect(address, b"POST /nothing HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: 999\r\n\r\n") as line:
        line.settimeout(0.2)
        start, answer, ended = time.monotonic(), b"", False
        while not ended and time.monotonic() < start + 4:
            try:
                line.sendall(more[:1])
                more = more[1:]
                answer += (part := line.recv(65536))
                ended = part == b""
            except TimeoutError:
                pass
            except OSError:
                ended = True
    assert answer.startswith(b"HTTP/1.1 404 ")
    assert ended


def test_an_answer_that_nobody_takes_is_dropped(address: str) -> None:
    with connect(address) as line:
        line.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        with pytest.raises(OSError, match=r"Broken pipe|reset|timed out"):  # noqa: PT012
            last = time.monotonic() + 60  # a busy machine takes long to fill the buffers in between
            while time.monotonic() < last:
                line.sendall(b"GET /page.js HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n" * 20)
                time.sleep(0.01)
    assert CLIENT.get(f"{address}/").status_code == 200


def test_too_many_connections_push_out_the_oldest_silent_one(address: str) -> None:
    with contextlib.ExitStack() as lines:
        silent = [lines.enter_context(connect(address)) for _ in range(30)]
        start = time.monotonic()
        assert closed(silent[0])
        assert time.monotonic() - start < 0.5  # long before its time was up
        assert answers(address)


def test_an_upload_outlives_connections_that_are_silent(address: str) -> None:
    picture = png(photo())
    head = f"POST /api/original HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: {len(picture)}\r\n\r\n".encode()
    with contextlib.ExitStack() as lines:
        old = lines.enter_context(connect(address, head + picture[:100]))
        time.sleep(0.1)
        for _ in range(30):
            lines.enter_context(connect(address))
        assert answers(address)
        old.sendall(picture[100:])
        assert old.recv(65536).startswith(b"HTTP/1.1 200 ")


MALFORMED = {
    "no HTTP": b"hello\r\n\r\n",
    "TLS": b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + bytes(100),
    "HTTP/2": b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
    "an endless header": b"GET / HTTP/1.1\r\nX: " + b"x" * 100_000,
    "two lengths": b"POST /api/complete HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\n",
    "no host": b"GET / HTTP/1.1\r\n\r\n",
    "a bad chunk": b"POST /api/complete HTTP/1.1\r\nHost: 127.0.0.1\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n",
}


@pytest.mark.parametrize("name", MALFORMED)
def test_what_is_no_http_gets_a_quiet_answer(
    address: str, name: str, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(logging.getLogger("uvicorn.error"), "propagate", True)
    with connect(address, MALFORMED[name]) as line:
        answer = b""
        with contextlib.suppress(ConnectionResetError):
            while part := line.recv(65536):
                answer += part
    assert answer.startswith(
        b"HTTP/1.1 421 Misdirected Request\r\n" if name == "HTTP/2" else b"HTTP/1.1 400 Bad Request\r\n"
    )
    assert b'{"error": "this is not a valid HTTP/1.1 request;' in answer
    assert b"Content-Security-Policy" in answer
    assert [record for record in caplog.records if record.msg not in faults.QUIET] == []


def test_a_websocket_is_refused_and_another_upgrade_ignored(
    address: str, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(logging.getLogger("uvicorn.error"), "propagate", True)
    headers = {"Connection": "Upgrade", "Upgrade": "websocket", "Sec-WebSocket-Key": "x", "Sec-WebSocket-Version": "13"}
    response = CLIENT.get(f"{address}/", headers=headers)
    assert response.status_code == 400
    assert "no WebSockets" in response.json()["error"]
    assert CLIENT.get(f"{address}/", headers={"Connection": "Upgrade", "Upgrade": "h2c"}).status_code == 200
    assert caplog.records == []


def fault(error: Exception) -> logging.LogRecord:
    try:
        raise error
    except Exception as raised:
        information = (type(raised), raised, raised.__traceback__)
        return logging.LogRecord("uvicorn.error", logging.ERROR, "", 1, "Exception in app\n", (), information)


def test_a_kind_of_fault_is_one_line(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    clock = [0.0]
    monkeypatch.setattr(faults.time, "monotonic", lambda: clock[0])
    handler = Faults()
    for number in range(100):
        handler.handle(fault(ZeroDivisionError(f"number\n{number}")))
    handler.handle(logging.LogRecord("asyncio", logging.WARNING, "", 1, "slow: %s", ("x",), None))
    handler.handle(logging.LogRecord("uvicorn.error", logging.WARNING, "", 1, faults.QUIET[0], (), None))
    first, second = capsys.readouterr().err.splitlines()
    assert re.fullmatch(
        r"crate-mae: ZeroDivisionError at test_connections\.py:\d+: number 0 \(Exception in app\)", first
    )
    assert second == "crate-mae: slow: x"
    for number in range(9):  # as asyncio does, with a line about the connection
        handler.handle(logging.LogRecord("asyncio", logging.ERROR, "", 1, f"lost \x1b[2J\ntask: {number}", (), None))
    assert capsys.readouterr().err == "crate-mae: lost ?[2J\n"
    clock[0] = faults.AGAIN + 1
    handler.handle(fault(ZeroDivisionError("once more")))
    assert capsys.readouterr().err.endswith(" (100 times since)\n")


def test_silent_connections_neither_stop_a_server_with_few_descriptors_nor_fill_its_log(tmp_path: Path) -> None:
    MaskedAutoencoder(recipes.digits().model_config()).save(tmp_path / "demo")
    few = lambda: resource.setrlimit(resource.RLIMIT_NOFILE, (80, 80))  # noqa: E731
    words = [sys.executable, "-m", "crate_mae", "serve", "demo", "--port", "0"]
    with (
        (tmp_path / "log").open("w") as log,
        subprocess.Popen(
            words, cwd=tmp_path, env=os.environ | {"OMP_NUM_THREADS": "1"}, stdout=log, stderr=log, preexec_fn=few
        ) as process,
        contextlib.ExitStack() as lines,
    ):
        lines.callback(process.kill)
        while not (found := re.search(r"Serving on (\S+)", (tmp_path / "log").read_text())):
            assert process.poll() is None
            time.sleep(0.1)
        for number in range(150):
            lines.enter_context(connect(found[1], b"GET / HT" if number % 2 else b""))
        assert CLIENT.post(f"{found[1]}/api/complete?sample=digit-1").status_code == 200
        assert len((tmp_path / "log").read_text().splitlines()) < 8
        assert "Traceback" not in (tmp_path / "log").read_text()
