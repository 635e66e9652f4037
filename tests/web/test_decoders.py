"""The decoding process: what it gives, and what it can't take from the server."""

import os
import signal
import subprocess
import sys
import threading
import time
from dataclasses import replace

import numpy as np
import pytest
from PIL import Image

from crate_mae import image_files
from crate_mae.web.deadline import Deadline, Overdue
from crate_mae.web.decoders import Decoders
from crate_mae.web.limits import MILLION, Limits, Refusal
from tests.web.conftest import CRATE, photo, png

GRAY, COLOUR = (1, 8, 8), (3, 12, 24)
LARGE = png(Image.effect_noise((3000, 3000), 90), "PNG", compress_level=1)


@pytest.fixture(scope="module")
def decoders() -> Decoders:
    return Decoders(Limits())


@pytest.mark.parametrize("kind", ["PNG", "BMP"])
def test_the_models_own_pixels(decoders: Decoders, kind: str) -> None:
    gray, colour = decoders.pictures(png(photo(), kind), [GRAY, COLOUR], "stretch")
    assert (gray.mode, gray.size, colour.mode, colour.size) == ("L", (8, 8), "RGB", (24, 12))
    assert np.array_equal(np.asarray(gray), np.asarray(image_files.resized(photo(), 1, (8, 8))))
    assert CRATE.preprocess(gray).equal(CRATE.preprocess(photo()))
    assert np.array_equal(np.asarray(colour), np.asarray(image_files.resized(photo(), 3, (12, 24))))


def test_a_crop_is_the_undistorted_middle(decoders: Decoders) -> None:
    (square,) = decoders.pictures(png(photo(90, 60)), [GRAY], "crop")
    assert np.array_equal(np.asarray(square), np.asarray(image_files.resized(photo().crop((15, 0, 75, 60)), 1, (8, 8))))
    (wide,) = decoders.pictures(png(photo(90, 60)), [COLOUR], "crop")
    middle = photo().crop((0, 7, 90, 52))
    assert np.array_equal(np.asarray(wide), np.asarray(image_files.resized(middle, 3, (12, 24))))


def test_a_fitted_picture_is_whole_and_undistorted(decoders: Decoders) -> None:
    (square,) = decoders.pictures(png(photo(90, 60)), [(3, 12, 12)], "pad")
    inner = np.asarray(image_files.resized(photo(90, 60), 3, (8, 12)))
    found = np.asarray(square)
    assert np.array_equal(found[2:10], inner)
    border = np.concatenate([found[:2], found[10:]]).reshape(-1, 3)
    assert (border == inner.reshape(-1, 3).mean(0).round()).all()
    (gray,) = decoders.pictures(png(photo(60, 90)), [GRAY], "pad")
    assert np.array_equal(np.asarray(gray)[:, 1:6], np.asarray(image_files.resized(photo(60, 90), 1, (8, 5))))


def test_a_process_is_kept_for_the_next_picture(decoders: Decoders) -> None:
    decoders.pictures(png(photo()), [GRAY], "stretch")
    before = [one.process.pid for one in decoders._idle]
    with pytest.raises(Refusal):
        decoders.pictures(b"no picture", [GRAY], "stretch")
    decoders.pictures(png(photo()), [GRAY], "stretch")
    assert [one.process.pid for one in decoders._idle] == before


def test_memory_is_limited(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Limits, "memory", 200 * MILLION)
    decoders = Decoders(Limits())
    with pytest.raises(Refusal, match="more memory than is allowed") as refused:
        decoders.pictures(png(Image.new("RGBA", (5000, 5000)), compress_level=1), [GRAY], "stretch")
    assert refused.value.status == 413
    (picture,) = decoders.pictures(png(photo()), [GRAY], "stretch")
    assert picture.size == (8, 8)


@pytest.mark.parametrize("mode", ["I;16", "RGBA", "LA", "P", "CMYK"])
def test_the_largest_picture_allowed_fits_in_the_memory(mode: str) -> None:
    limits = replace(Limits(), pixels=9 * MILLION)
    picture = Image.new(mode, (3000, 3000))
    (small,) = Decoders(limits).pictures(png(picture, "JPEG" if mode == "CMYK" else "PNG"), [GRAY], "crop")
    assert small.size == (8, 8)


def test_processor_time_is_limited() -> None:
    decoders = Decoders(replace(Limits(), decoding=0.01))
    with pytest.raises(Refusal, match=r"more than 0\.01 s") as refused:
        decoders.pictures(LARGE, [GRAY], "stretch")
    assert refused.value.status == 413
    assert decoders._idle == []


def test_a_jpeg_of_many_scans_is_refused(decoders: Decoders) -> None:
    whole = png(Image.new("L", (90, 60)), "JPEG", progressive=True)
    last = whole.rindex(b"\xff\xda")
    assert decoders.pictures(whole[:last] + whole[last:-2] * 20 + whole[-2:], [GRAY], "stretch")
    with pytest.raises(Refusal, match="more than 64 scans; save it again") as refused:
        decoders.pictures(whole[:last] + whole[last:-2] * 100 + whole[-2:], [GRAY], "stretch")
    assert refused.value.status == 413


@pytest.mark.parametrize("upload", [png(photo()), LARGE], ids=["small", "larger than the line to it"])
def test_a_deadline_stops_the_decoder_at_once(upload: bytes) -> None:
    decoders = Decoders(Limits())
    decoders.pictures(png(photo()), [GRAY], "stretch")
    (process,) = decoders._idle
    os.kill(process.process.pid, signal.SIGSTOP)  # as one that is busy for ever
    deadline = Deadline(60)
    threading.Timer(0.2, deadline.cut).start()
    start = time.monotonic()
    with deadline.of_this_thread(), pytest.raises(Overdue):
        decoders.pictures(upload, [GRAY], "stretch")
    assert time.monotonic() - start < 5
    assert not process.alive
    assert decoders.pictures(png(photo()), [GRAY], "stretch")


def test_a_decoder_that_crashes_is_replaced() -> None:
    decoders = Decoders(Limits())
    decoders.pictures(png(photo()), [GRAY], "stretch")
    (process,) = decoders._idle
    os.kill(process.process.pid, signal.SIGSTOP)
    threading.Timer(0.2, os.kill, (process.process.pid, signal.SIGSEGV)).start()
    threading.Timer(0.3, os.kill, (process.process.pid, signal.SIGCONT)).start()
    with pytest.raises(Refusal, match="broke its decoder") as refused:
        decoders.pictures(png(photo()), [GRAY], "stretch")
    assert refused.value.status == 422
    process = decoders._take()
    process.process.kill()  # while nobody looks
    process.process.wait()
    decoders._idle.append(process)
    assert decoders.pictures(png(photo()), [GRAY], "stretch")


def test_the_processes_end_with_their_owner() -> None:
    decoders = Decoders(Limits())
    decoders.pictures(png(photo()), [GRAY], "stretch")
    (process,) = decoders._idle
    del decoders
    assert not process.alive


def test_the_decoder_needs_no_torch() -> None:
    script = "import sys, crate_mae.web.decoding_process; sys.exit('torch' in sys.modules)"
    subprocess.run([sys.executable, "-c", script], check=True)
