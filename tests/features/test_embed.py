"""crate-mae embed: against the model's own features, after a kill, and where something has changed."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pyarrow.parquet
import pytest
import torch
from rich.console import Console

import crate_mae
from crate_mae.cli import main
from crate_mae.data.open import find_images
from crate_mae.data.packing import pack
from crate_mae.data.source import ImageSource
from crate_mae.errors import UserError
from crate_mae.features import embed as embedding
from crate_mae.features.embed import Parts, embed
from crate_mae.features.extraction import Reader, Which
from tests.conftest import small_model
from tests.data.conftest import write

QUIET = Reader(batch=4, console=Console(quiet=True))
LAST = Which(-1, "cls")


@pytest.fixture(autouse=True)
def _small_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(embedding, "PART", 8)


@pytest.fixture
def model() -> crate_mae.MaskedAutoencoder:
    return small_model("crate_mae_tiny", final_norms=True).eval()


@pytest.fixture
def photos(tmp_path: Path) -> Path:
    """29 images in two classes, of which one is no image and one an empty file."""
    for number in range(29):
        write(tmp_path / "photos" / ["cat", "ün, dog"][number % 2] / f"{number:02d}.png", number)
    (tmp_path / "photos" / "cat" / "06.png").write_text("no image")
    (tmp_path / "photos" / "ün, dog" / "07.png").write_bytes(b"")
    return tmp_path / "photos"


@pytest.mark.parametrize(("layer", "pool"), [(-1, "cls"), (1, "mean"), (0, "mean")])
def test_a_row_for_every_image_with_the_features_of_the_model(
    model: crate_mae.MaskedAutoencoder, photos: Path, tmp_path: Path, layer: int, pool: str
) -> None:
    checkpoint = str(model.save(tmp_path / "checkpoint"))
    for name in ("features.parquet", "features.npz"):
        words = ["embed", str(photos), "--checkpoint", checkpoint, "--out", str(tmp_path / "out" / name)]
        with pytest.raises(SystemExit) as stop:  # of the two that can't be read
            main([*words, "--layer", str(layer), "--pool", pool, "--batch-size", "4"])
        assert stop.value.code == 1
    assert sorted(file.name for file in (tmp_path / "out").iterdir()) == ["features.npz", "features.parquet"]
    table = pyarrow.parquet.read_table(tmp_path / "out" / "features.parquet")
    with np.load(tmp_path / "out" / "features.npz") as stored:
        arrays = dict(stored)
    kinds = {field.name: str(field.type) for field in table.schema}
    assert kinds == {"path": "string", "label": "int64", "feature": "fixed_size_list<element: float>[16]"}
    rows = table.to_pylist()
    good = [file for file in sorted(photos.rglob("*.png")) if file.name not in ("06.png", "07.png")]
    assert [row["path"] for row in rows] == arrays["paths"].tolist() == [str(file) for file in good]
    labels = [["cat", "ün, dog"].index(file.parent.name) for file in good]
    assert [row["label"] for row in rows] == arrays["labels"].tolist() == labels
    np.testing.assert_array_equal(arrays["features"], np.array([row["feature"] for row in rows], dtype=np.float32))
    with torch.no_grad():
        own = torch.cat([model.features(model.preprocess(file)[None], layer, pool) for file in good])
    np.testing.assert_allclose(arrays["features"], own, atol=1e-5)
    said = {name.decode(): json.loads(value) for name, value in table.schema.metadata.items()}
    assert json.loads(str(arrays["about"])) == said
    assert (said["checkpoint"], said["layer"], said["pool"]) == (checkpoint, layer, pool)
    assert (said["image_size"], said["class_names"], said["rows"]) == ([12, 24], ["cat", "ün, dog"], 27)
    assert [Path(reason.split(" can't be read")[0]).name for reason in said["bad"]] == ["06.png", "07.png"]


class Killed(BaseException):
    pass


@pytest.mark.parametrize("suffix", [".parquet", ".npz"])
def test_what_is_resumed_is_the_same_to_the_last_bit(
    model: crate_mae.MaskedAutoencoder, photos: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, suffix: str
) -> None:
    source = find_images(photos).whole()
    whole, out = tmp_path / f"whole{suffix}", tmp_path / f"out{suffix}"
    embed(model, source, LAST, whole, QUIET)
    written: list[int] = []
    once = Parts.write
    shown: list[int] = []
    features = embedding._features

    def die_half_way(parts: Parts, number: int, part: embedding.Part) -> None:
        if len(written) == 2:
            parts.file(number).with_suffix(".part1").write_bytes(b"half a file")
            raise Killed
        written.append(number)
        once(parts, number, part)

    monkeypatch.setattr(Parts, "write", die_half_way)
    with pytest.raises(Killed):
        embed(model, source, LAST, out, QUIET)
    assert not out.exists()
    monkeypatch.setattr(Parts, "write", once)
    (tmp_path / f"out{suffix}.parts" / "000001.npz").write_bytes(b"")  # as a power cut may leave it
    monkeypatch.setattr(
        embedding, "_features", lambda model, which, read: (shown.extend(read.indices), features(model, which, read))[1]
    )
    workers = Reader(batch=4, workers=1, console=Console(quiet=True))
    embed(model, source, LAST, out, workers)
    assert shown == [index for index in range(8, 29) if index != 18]  # the first part was not computed again
    assert out.read_bytes() == whole.read_bytes()
    assert not Path(f"{out}.parts").exists()


def test_a_finished_file_is_left_as_it_is(model: crate_mae.MaskedAutoencoder, photos: Path, tmp_path: Path) -> None:
    out = tmp_path / "out.npz"
    first = embed(model, find_images(photos).whole(), LAST, out, QUIET)
    stamp = out.stat().st_mtime_ns
    Path(f"{out}.parts").mkdir()  # killed just before it would have gone
    again = embed(model, find_images(photos).whole(), LAST, out, QUIET)
    assert (again.count, again.bad, again.before) == (first.count, first.bad, True)
    assert out.stat().st_mtime_ns == stamp
    assert not Path(f"{out}.parts").exists()


def test_another_request_in_the_same_place_is_refused(
    model: crate_mae.MaskedAutoencoder, photos: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    done, half = tmp_path / "done.npz", tmp_path / "half.npz"
    embed(model, find_images(photos).whole(), LAST, done, QUIET)
    with monkeypatch.context() as patch:
        patch.setattr(embedding, "write_table", lambda *_: (_ for _ in ()).throw(Killed))
        with pytest.raises(Killed):
            embed(model, find_images(photos).whole(), LAST, half, QUIET)
    other = small_model("crate_mae_tiny", final_norms=True, lambda_=0.4).eval()
    for out in (done, half):
        for asked, said in [
            ((model, Which(1, "cls"), QUIET), "layer was -1 and is 1"),
            ((model, Which(-1, "mean"), QUIET), "pool was cls and is mean"),
            ((model, LAST, Reader(batch=5, console=QUIET.console)), "batch_size was 4 and is 5"),
            ((other, LAST, QUIET), "its features do not match this model"),
        ]:
            with pytest.raises(UserError, match=said):
                embed(asked[0], find_images(photos).whole(), asked[1], out, asked[2])
    write(photos / "cat" / "08.png", 99)  # written anew under its old name
    for out in (done, half):
        with pytest.raises(UserError, match="its images differ, or have changed since; delete it"):
            embed(model, find_images(photos).whole(), LAST, out, QUIET)


def test_shards_and_named_sets_have_features_too(model: crate_mae.MaskedAutoencoder, tmp_path: Path) -> None:
    for number in range(5):
        write(tmp_path / "plain" / f"{number}.png", number)
    pack(tmp_path / "plain", tmp_path / "shards", "1GB", Console(quiet=True))
    checkpoint = str(model.save(tmp_path / "checkpoint"))
    for name in ("plain", "shards"):
        main(["embed", str(tmp_path / name), "--checkpoint", checkpoint, "--out", str(tmp_path / f"{name}.npz")])
    with np.load(tmp_path / "plain.npz") as plain, np.load(tmp_path / "shards.npz") as shards:
        np.testing.assert_array_equal(plain["features"], shards["features"])
        assert plain["labels"].tolist() == shards["labels"].tolist() == [-1] * 5
        assert shards["paths"][4].endswith(".tar: 4")
    words = ["embed", "digits", "--checkpoint", checkpoint, "--out", str(tmp_path / "digits.parquet")]
    main([*words, "--split", "test"])
    table = pyarrow.parquet.read_table(tmp_path / "digits.parquet")
    assert len(table) == 450
    assert set(table["label"].to_pylist()) == set(range(10))


class Gone(ImageSource):
    """A set whose disk goes away after a few images, and comes back."""

    def __init__(self, whole: ImageSource, there: int):
        self.whole, self.there = whole, there

    def __len__(self) -> int:
        return len(self.whole)

    def stored(self, index: int) -> bytes:
        if index >= self.there:
            raise OSError(5, "Input/output error")
        stored = self.whole.stored(index)
        assert isinstance(stored, bytes)
        return stored

    def label(self, index: int) -> int | None:
        return self.whole.label(index)

    def name(self, index: int) -> str:
        return self.whole.name(index)

    def key(self, index: int) -> str:
        return self.whole.key(index)


def test_a_disk_that_goes_away_loses_nothing(
    model: crate_mae.MaskedAutoencoder, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for number in range(40):
        write(tmp_path / "photos" / f"{number:02d}.png", number)
    monkeypatch.setattr(embedding, "fingerprint", lambda source: "the same")
    whole = find_images(tmp_path / "photos").whole()
    with pytest.raises(UserError, match=r"Input/output error.*the disk seems to be gone"):
        embed(model, Gone(whole, 16), LAST, tmp_path / "out.npz", QUIET)
    few = embed(model, Gone(whole, 38), LAST, tmp_path / "out.npz", QUIET)
    assert (few.count, len(few.bad)) == (38, 2)
    assert embed(model, Gone(whole, 40), LAST, tmp_path / "out.npz", QUIET).count == 40
    assert embed(model, Gone(whole, 40), LAST, tmp_path / "out.npz", QUIET).before
    assert not (tmp_path / "out.npz.parts").exists()


def test_what_can_not_be_embedded_gets_one_sentence(
    model: crate_mae.MaskedAutoencoder,
    photos: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    good = ["--checkpoint", str(model.save(tmp_path / "checkpoint")), "--out"]
    (tmp_path / "bad").mkdir()
    (tmp_path / "bad" / "one.png").write_text("no image")
    (tmp_path / "other.npz").write_text("another file")
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    cases = [
        (["none", *good, "x.npz"], "no folder none"),
        (["digits", *good, "x.npz"], "has the splits train, test"),
        ([str(photos), *good, "x.npz", "--split", "val"], "has no split val"),
        ([str(photos), *good, "x.csv"], "neither .parquet nor .npz"),
        ([str(photos), *good, "x.parquet"], "pip install 'crate-mae[parquet]'"),
        ([str(photos), *good, "x.npz", "--layer", "3"], "no layer 3 in 2"),
        ([str(photos), *good, "x.npz", "--batch-size", "0"], "--batch-size is 0"),
        ([str(photos), *good, "x.npz", "--workers", "-1"], "--workers is -1"),
        ([str(tmp_path / "bad"), *good, str(tmp_path / "y.npz")], "none of the 1 images can be read"),
        ([str(photos), *good, str(tmp_path / "other.npz")], "was not written by crate-mae embed"),
    ]
    for words, expected in cases:
        with pytest.raises(SystemExit) as stop:
            main(["embed", *words])
        printed = capsys.readouterr()
        assert stop.value.code == 2
        assert expected in printed.err
        assert printed.err.rstrip("\n").splitlines()[-1].startswith("crate-mae: error:")
    assert not list(tmp_path.glob("*.parts"))


@pytest.mark.slow
def test_a_real_process_is_killed_and_run_again(
    model: crate_mae.MaskedAutoencoder, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for number in range(3000):
        write(tmp_path / "photos" / f"{number:04d}.png", number)
    checkpoint = model.save(tmp_path / "checkpoint")

    def command(out: str) -> list[str]:
        words = ["embed", str(tmp_path / "photos"), "--checkpoint", str(checkpoint), "--out", str(tmp_path / out)]
        return [sys.executable, "-m", "crate_mae", *words, "--batch-size", "8", "--workers", "1"]

    subprocess.run(command("whole.parquet"), check=True, capture_output=True)
    with subprocess.Popen(command("out.parquet"), stderr=subprocess.DEVNULL) as process:
        while not (tmp_path / "out.parquet.parts" / "000000.npz").exists():
            time.sleep(0.01)
        os.kill(process.pid, signal.SIGKILL)
    assert not (tmp_path / "out.parquet").exists()
    subprocess.run(command("out.parquet"), check=True, capture_output=True)
    assert (tmp_path / "out.parquet").read_bytes() == (tmp_path / "whole.parquet").read_bytes()
