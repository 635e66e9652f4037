"""The page, by its public addresses: many people at once with all kinds of requests, a tenth of them hostile."""

import io
import os
import random
import re
import socket
import statistics
import subprocess
import sys
import threading
import time
import zlib
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

import httpx
from PIL import Image

from benchmarks.soak.mutations import damaged
from benchmarks.soak.pictures import pictures
from benchmarks.soak.record import Budget, Row

PEOPLE = 50
HOSTILE = 0.1
PAUSE = 6.0
"""Seconds between two requests of a person, on average."""
PATIENCE = 60.0
"""Seconds in which a person comes back after the server said that it is busy, as it asks for."""
MINUTES = 10


def row() -> Row:
    return Row(
        "the page: 50 people at once with all kinds of requests, a tenth hostile",
        "ten minutes: every good request answered; 99th percentile and memory in the table; memory flat",
        60 * MINUTES,
        "seconds",
    )


@dataclass
class Seen:
    """What all people saw."""

    waits: list[float] = field(default_factory=list)
    good: int = 0
    busy: int = 0
    hostile: int = 0
    lock: threading.Lock = field(default_factory=threading.Lock)


def run(budget: Budget) -> None:
    seconds = min(budget.left, 60 * MINUTES)
    log = budget.failures.parent / "page.log"
    log.parent.mkdir(parents=True, exist_ok=True)
    with log.open("w") as file:
        command = [sys.executable, "-m", "crate_mae", "serve", "--port", "0"]
        server = subprocess.Popen(command, stdout=file, stderr=subprocess.STDOUT)
        try:
            address = _address(log, server)
            end = time.monotonic() + seconds
            seen, memory = Seen(), []
            sample = httpx.get(f"{address}/api/about", timeout=PATIENCE).json()["samples"][0]["name"]
            people = [
                threading.Thread(target=person, args=(address, sample, number, end, seen, budget), daemon=True)
                for number in range(PEOPLE)
            ]
            for one in people:
                one.start()
            while time.monotonic() < end:
                time.sleep(1)
                memory.append(_memory(server.pid))
                budget.row.count = int(seconds - max(end - time.monotonic(), 0))
                if server.poll() is not None:
                    break
            for one in people:
                one.join(PATIENCE + 60)
            if server.poll() is not None:
                budget.fail({}, f"the server ended with code {server.returncode}", log)
        finally:
            server.terminate()
            server.wait(30)
    _conclude(budget, seen, memory, log)


def _conclude(budget: Budget, seen: Seen, memory: list[float], log: Path) -> None:
    row = budget.row
    row.details = {"good requests": seen.good, "hostile ones": seen.hostile}
    row.worst_seconds, row.peak_mb = max(seen.waits, default=0.0), max(memory, default=0.0)
    row.numbers["answers that asked to come again"] = str(seen.busy)
    if len(seen.waits) > 10:
        cuts = statistics.quantiles(seen.waits, n=100)
        row.numbers["median wait"] = f"{cuts[49]:.2f} s"
        row.numbers["99th percentile"] = f"{cuts[98]:.2f} s"
    quarter = len(memory) // 4
    if quarter >= 5:
        # Medians: a decoder that reads a large picture has it in memory for a moment, which is the peak.
        second, last = statistics.median(memory[quarter : 2 * quarter]), statistics.median(memory[-quarter:])
        row.numbers["median memory in the second and last quarter"] = f"{second:,.0f} and {last:,.0f} MB"
        if last > 1.1 * second + 50:
            budget.fail({}, f"memory grew from {second:.0f} to {last:.0f} MB", log)
    said = log.read_text()
    if "Traceback" in said:
        budget.fail({}, f"the server's log has a traceback: {said[said.index('Traceback') :][:300]}", log)


def _address(log: Path, server: subprocess.Popen) -> str:
    end = time.monotonic() + 300
    while time.monotonic() < end and server.poll() is None:
        if found := re.search(r"Serving on (http://\S+)", log.read_text()):
            return found[1]
        time.sleep(0.2)
    raise AssertionError(f"the server does not start: {log.read_text()}")


def _memory(pid: int) -> float:
    """MB of a process and its children, shared pages counted once for each (PSS would need more rights)."""
    total = 0.0
    for each in (pid, *_children(pid)):
        try:
            total += int(Path(f"/proc/{each}/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE") / 2**20
        except (OSError, IndexError):
            continue
    return total


def _children(pid: int) -> list[int]:
    try:
        return [
            int(child)
            for task in Path(f"/proc/{pid}/task").iterdir()
            for child in (task / "children").read_text().split()
        ]
    except OSError:
        return []


def person(address: str, sample: str, number: int, end: float, seen: Seen, budget: Budget) -> None:
    """Somebody who looks at the page until the end."""
    chance = random.Random(f"{budget.seed} page {number}")
    time.sleep(chance.uniform(0, PAUSE))
    with httpx.Client(base_url=address, timeout=PATIENCE) as client:
        while time.monotonic() < end:
            if chance.random() < HOSTILE:
                problem = _hostile(address, client, chance)
                with seen.lock:
                    seen.hostile += 1
            else:
                problem = _good(client, sample, chance, seen)
            if problem:
                with seen.lock:
                    budget.fail({"person": number}, problem)
            time.sleep(chance.uniform(0, 2 * PAUSE))


def _good(client: httpx.Client, sample: str, chance: random.Random, seen: Seen) -> str | None:
    """A request that a browser would make; a person who is told to come again does so."""
    method, path, content = chance.choice(GOOD)(chance, sample)
    began = time.monotonic()
    while True:
        try:
            answer = client.request(method, path, content=content)
        except httpx.HTTPError as error:
            return f"{method} {path}: {type(error).__name__} {error}"
        if answer.status_code != 503 or time.monotonic() > began + PATIENCE:
            break
        with seen.lock:
            seen.busy += 1
        time.sleep(float(answer.headers.get("Retry-After", "1")) * chance.uniform(0.5, 1.5))
    with seen.lock:
        seen.waits.append(time.monotonic() - began)
        seen.good += 1
    return None if answer.status_code == 200 else f"{method} {path}: {answer.status_code} {answer.text[:200]}"


def _photo(chance: random.Random) -> bytes:
    size = chance.choice(((300, 200), (640, 480), (1200, 900)))
    file = io.BytesIO()
    Image.effect_noise((size[0] // 8, size[1] // 8), 60).resize(size).convert("RGB").save(file, "JPEG")
    return file.getvalue()


Made = Callable[[random.Random, str], tuple[str, str, bytes | None]]
"""From a source of chance and the name of a sample to a request."""
GOOD: tuple[Made, ...] = (
    lambda chance, sample: ("GET", "/", None),
    lambda chance, sample: ("GET", "/api/about", None),
    lambda chance, sample: ("GET", f"/api/samples/{sample}", None),
    lambda chance, sample: (
        "POST",
        f"/api/complete?sample={sample}&ratio={chance.uniform(0.1, 0.9):.2f}&seed={chance.randrange(9)}",
        None,
    ),
    lambda chance, sample: ("POST", f"/api/complete?ratio=0.75&seed={chance.randrange(9)}", _photo(chance)),
    lambda chance, sample: ("POST", "/api/original?fit=crop", _photo(chance)),
    lambda chance, sample: ("POST", f"/api/layers?sample={sample}", None),
    lambda chance, sample: ("POST", f"/api/layer?sample={sample}&layer=2", None),
    lambda chance, sample: ("POST", f"/api/sheet?sample={sample}&ratio=0.5", None),
)


def _hostile(address: str, client: httpx.Client, chance: random.Random) -> str | None:
    """A request that no browser would make: a sentence, a closed connection, or nothing; no fault of the server."""
    try:
        match chance.randrange(5):
            case 0:
                return _refused(client.post("/api/complete", content=_damaged(chance)))
            case 1:
                return _refused(client.post("/api/complete", content=bomb(chance)))
            case 2:
                wild = {"ratio": chance.choice(("nan", "-1", "9" * 400)), "seed": "x", "surplus": "1", "mask": "2" * 40}
                return _refused(
                    client.post(f"/api/{chance.choice(('complete', 'layers', 'sheet', 'none'))}", params=wild)
                )
            case _:
                _raw(address, chance)
    except httpx.HTTPError:
        return None  # it hung up, as it may
    return None


def _refused(answer: httpx.Response) -> str | None:
    """Whatever it makes of it, the server itself has not failed."""
    known = answer.status_code < 500 or answer.status_code in (503, 504)
    return None if known else f"a hostile request got {answer.status_code}: {answer.text[:200]}"


def _damaged(chance: random.Random) -> bytes:
    every = [content for files in pictures().values() for content in files]
    return damaged(chance.choice(every), chance, every)


def bomb(chance: random.Random) -> bytes:
    """A PNG of many pixels in few bytes: one long line, or a large square."""
    width, height = chance.choice(((1, 32_000_000), (32_000_000, 1), (5600, 5600), (60_000, 60_000), (16_000, 2_000)))

    def chunk(name: bytes, content: bytes) -> bytes:
        return len(content).to_bytes(4) + name + content + zlib.crc32(name + content).to_bytes(4)

    head = width.to_bytes(4) + height.to_bytes(4) + bytes([8, 0, 0, 0, 0])
    lines = zlib.compress(bytes(min((width + 1) * height, 40_000_000)), 1)
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", head) + chunk(b"IDAT", lines) + chunk(b"IEND", b"")


def _raw(address: str, chance: random.Random) -> None:
    """Bytes that are no request, half of one, or one that never ends."""
    host, _, port = address.removeprefix("http://").partition(":")
    words = chance.choice(
        (
            b"\x16\x03\x01\x02\x00\x01\x00",
            b"GET / HTTP/9.9\r\n\r\n",
            b"POST /api/complete HTTP/1.1\r\nHost: x\r\nContent-Length: 99999999999\r\n\r\nabc",
            b"POST /api/complete HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: 5000\r\n\r\nabc",
            b"GET /api/about HTTP/1.1\r\nHost: 127.0.0.1\r\nX: " + b"y" * 100_000,
            b"GET / HTTP/1.1\r\nHost: 127.0.0.1\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n\r\n",
            b"GET /../../etc/passwd HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n",
            b"",
        )
    )
    try:
        with socket.create_connection((host, int(port)), timeout=5) as line:
            line.sendall(words)
            line.settimeout(chance.choice((0.1, 2.0, 8.0)))
            line.recv(4096)
    except OSError:
        pass
