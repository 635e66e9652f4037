"""The server's side of ``decoding_process``: a few processes, kept for the next picture and replaced when they fail."""

import json
import os
import signal
import socket
import subprocess
import sys
import weakref
from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

from PIL import Image

from crate_mae.image_files import Fit
from crate_mae.web.deadline import Deadline
from crate_mae.web.decoding_process import LENGTH, Job
from crate_mae.web.limits import Limits, Refusal

POLL = 0.05
"""Seconds between two looks at the deadline."""


class Process:
    """One decoding process and the connection to it."""

    def __init__(self, limits: Limits):
        self.line, theirs = socket.socketpair()
        self.line.settimeout(POLL)
        words = [sys.executable, "-m", "crate_mae.web.decoding_process", str(theirs.fileno()), str(limits.memory)]
        with theirs:
            self.process = subprocess.Popen(
                words,
                env=os.environ | {"OPENBLAS_NUM_THREADS": "1"},  # a thread for each core would take the memory
                pass_fds=[theirs.fileno()],
                stdin=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
            )

    @property
    def alive(self) -> bool:
        return self.process.poll() is None

    def ask(self, job: Job, upload: bytes) -> list[Image.Image]:
        """The pictures of a job. Stops at the deadline of this thread."""
        self._send(json.dumps(asdict(job)).encode())
        self._send(upload)
        answer: dict[str, Any] = json.loads(self._receive())
        if "error" in answer:
            raise Refusal(answer["status"], answer["error"])
        return [Image.frombytes(mode, tuple(size), self._receive()) for mode, size in answer["pictures"]]

    def _send(self, message: bytes) -> None:
        rest = memoryview(LENGTH.pack(len(message)) + message)
        while rest:
            try:
                rest = rest[self.line.send(rest) :]
            except TimeoutError:  # it does not read, however much is left to send
                Deadline.check()

    def _receive(self) -> bytes:
        (length,) = LENGTH.unpack(self._exactly(LENGTH.size))
        return self._exactly(length)

    def _exactly(self, count: int) -> bytes:
        found = bytearray()
        while len(found) < count:
            try:
                part = self.line.recv(count - len(found))
            except TimeoutError:
                Deadline.check()
            else:
                if not part:
                    raise EOFError
                found += part
        return bytes(found)

    def wait(self) -> int:
        """The exit code of a process that has ended, or is about to."""
        self.line.close()
        return self.process.wait()

    def end(self) -> None:
        """Stop it, whatever it is doing."""
        self.process.kill()
        self.wait()


class Decoders:
    """Decodes uploads, in the thread that asks, by a process that is not busy."""

    def __init__(self, limits: Limits):
        self.limits = limits
        self._idle = [Process(limits)]  # it starts while the first picture is still on its way
        weakref.finalize(self, _end_all, self._idle)

    def pictures(self, upload: bytes, targets: Sequence[tuple[int, int, int]], fit: Fit) -> list[Image.Image]:
        """The upload with each target's channels, height and width."""
        limits = self.limits
        job = Job(targets, fit, limits.pixels, limits.side, limits.aspect, limits.decoding)
        process = self._take()
        try:
            pictures = process.ask(job, upload)
        except Refusal:  # an answer like any other
            self._idle.append(process)
            raise
        except (EOFError, OSError):  # the process has ended
            if process.wait() == -signal.SIGPROF:
                words = f"decoding this picture takes more than {limits.decoding:g} s; make it smaller."
                raise Refusal(413, words) from None
            words = "the picture broke its decoder; open it in an image program and save it again."
            raise Refusal(422, words) from None
        except BaseException:  # the deadline has passed
            process.end()
            raise
        self._idle.append(process)
        return pictures

    def _take(self) -> Process:
        while self._idle:
            process = self._idle.pop()
            if process.alive:
                return process
            process.end()
        return Process(self.limits)


def _end_all(processes: list[Process]) -> None:
    while processes:
        processes.pop().end()
