"""``crate-mae embed``: the features of every image of a set, in parts, so that it can be stopped at any time.

While it runs, the folder OUT.parts holds ``about.json``, which describes the features, and a file for each finished
part. A part always has the same images in the same batches: a resumed run gives bit for bit the same file. Once all
parts are there they become one table and the folder is removed, unless there were images that could not be opened at
all, as on a lost disk: then the folder stays, and the next run tries these again.
"""

import hashlib
import json
import shutil
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from jaxtyping import Float, Int

from crate_mae.allocator import freed_memory_kept
from crate_mae.atomic_write import atomic_write
from crate_mae.data.loader import NEIGHBOURS, Bad
from crate_mae.data.sequential import Read, consecutive, read_batches
from crate_mae.data.source import ImageSource, fingerprint
from crate_mae.data.transforms import Evaluation
from crate_mae.errors import UserError
from crate_mae.features.extraction import Reader, Which, canonical, model_digest
from crate_mae.features.extraction import describe as described
from crate_mae.features.table import About, Rows, Table, check_format, read_about, write_table
from crate_mae.models.image_model import ImageModel
from crate_mae.progress import progress

PART = 1024
"""Images in a part, or one batch if that is larger: what is lost when the process is killed."""
WORDS = {"checkpoint", "class_names"}
"""Entries of ``about`` for people only: they may differ when a run is resumed."""


@dataclass(frozen=True)
class Part:
    """The features of some consecutive images."""

    indices: Int[np.ndarray, " n"]
    features: Float[np.ndarray, "n d"]
    bad: list[Bad]
    """Unreadable images."""
    unopened: int = 0
    """How many of these could not be opened; the next run tries again."""


@dataclass(frozen=True)
class Embedded:
    """What the written file holds."""

    count: int
    bad: list[str]
    """The reason for each unreadable image."""
    before: bool = False
    """The file was complete before this run."""


def embed(
    model: ImageModel, source: ImageSource, which: Which, out: Path, reader: Reader, checkpoint: str = ""
) -> Embedded:
    """Write the features of every readable image to a .parquet or .npz file, resuming a stopped run."""
    check_format(out)
    which = Which(canonical(model, which.layer), which.pool)
    about = describe(model, source, which, reader.batch, checkpoint)
    folder = out.with_name(f"{out.name}.parts")
    if out.exists():
        there = _compare(read_about(out), about, out)
        if not there["unopened"]:
            shutil.rmtree(folder, ignore_errors=True)  # an earlier process was killed between the last rename and this
            return Embedded(there["rows"], there["bad"], before=True)
    parts = Parts(folder, about)
    spans = consecutive(range(len(source)), reader.batch * max(1, PART // reader.batch))
    _compute(model, source, which, reader, parts, spans)
    return _gather(parts, source, spans, model.config.dim, out)


def describe(model: ImageModel, source: ImageSource, which: Which, batch: int, checkpoint: str) -> About:
    """Everything that decides the features, and a few entries for people."""
    digest = hashlib.blake2b(fingerprint(source).encode(), digest_size=16)
    for index in range(len(source)):
        digest.update(f"{source.name(index)}\0{source.stamp(index)}\n".encode("utf-8", "surrogateescape"))
    return {
        "format": "crate-mae features",
        "checkpoint": checkpoint,
        "weights": model_digest(model).hexdigest(),
        "layer": which.layer,
        "pool": which.pool,
        "image_size": list(model.config.image_size),
        "batch_size": batch,
        "device": model.device.type,
        "images": len(source),
        "data": digest.hexdigest(),
        "class_names": None if source.class_names is None else list(source.class_names),
    }


class Parts:
    """The folder of finished parts."""

    def __init__(self, folder: Path, about: About):
        self.folder = folder
        record = folder / "about.json"
        if record.exists():
            _compare(_read_json(record), about, folder)
        else:
            folder.mkdir(parents=True, exist_ok=True)
            with atomic_write(record) as temporary:
                temporary.write_text(json.dumps(about, indent=1) + "\n")

    def file(self, number: int) -> Path:
        """The file of a part."""
        return self.folder / f"{number:06d}.npz"

    def read(self, number: int) -> Part | None:
        """A stored part; None if it is missing or damaged."""
        try:
            with self.file(number).open("rb") as file, np.load(file, allow_pickle=False) as stored:
                bad = [Bad(int(index), str(why)) for index, why in zip(stored["bad"], stored["reasons"], strict=True)]
                return Part(stored["indices"], stored["features"], bad, int(stored["unopened"]))
        except Exception:  # a damaged file can raise anything in its decoder; its checksums find the rest
            return None

    def write(self, number: int, part: Part) -> None:
        """Store a part by an atomic write."""
        with atomic_write(self.file(number)) as temporary, temporary.open("wb") as file:
            np.savez(
                file,
                indices=part.indices,
                features=part.features,
                bad=np.array([bad.index for bad in part.bad], dtype=np.int64),
                reasons=np.array([bad.reason for bad in part.bad], dtype=np.str_),
                unopened=np.array(part.unopened),
            )


def _compute(
    model: ImageModel, source: ImageSource, which: Which, reader: Reader, parts: Parts, spans: list[range]
) -> None:
    """Compute every part that is not there yet."""
    missing = [number for number in range(len(spans)) if (part := parts.read(number)) is None or part.unopened]
    batches = {number: consecutive(spans[number], reader.batch) for number in missing}
    config = model.config
    asked = [batch for each in batches.values() for batch in each]
    reading = read_batches(source, Evaluation.of(config), asked, reader.workers)
    total = -(-len(source) // reader.batch)
    done = total - sum(map(len, batches.values()))
    watch = _Watch(source)
    with freed_memory_kept(), progress("embed", total, reader.console, done) as advance:
        for number, of_part in batches.items():
            indices: list[int] = []
            bad: list[Bad] = []
            unopened = 0
            features = [np.empty((0, config.dim), dtype=np.float32)]
            for batch, read in zip(of_part, reading, strict=False):  # does not consume the next part's batches
                unopened += watch.see(read)
                features.append(_features(model, which, read))
                indices += read.indices
                bad += read.bad
                advance(f"{batch.stop} images")
            parts.write(number, Part(np.array(indices, dtype=np.int64), np.concatenate(features), bad, unopened))


@torch.inference_mode()
def _features(model: ImageModel, which: Which, read: Read) -> Float[np.ndarray, "n d"]:
    if not read.indices:
        return np.empty((0, model.config.dim), dtype=np.float32)
    return described(model, [which], read.images)[which].float().cpu().numpy()


class _Watch:
    """Stops if the disk is gone: its images must not count as unreadable."""

    def __init__(self, source: ImageSource):
        self.source, self.in_a_row = source, 0

    def see(self, read: Read) -> int:
        """The number of images of a batch that can't be opened."""
        unopened = [bad for bad in read.bad if not self._opens(bad.index)]
        self.in_a_row = 0 if read.indices or len(unopened) < len(read.bad) else self.in_a_row + len(unopened)
        if self.in_a_row >= NEIGHBOURS:
            raise UserError(
                f"{unopened[-1].reason} {self.in_a_row} images in a row can't be opened, so the disk seems to be gone; "
                "run the same command again to resume."
            )
        return len(unopened)

    def _opens(self, index: int) -> bool:
        try:
            self.source.stored(index)
        except OSError:
            return False
        return True


def _gather(parts: Parts, source: ImageSource, spans: list[range], dim: int, out: Path) -> Embedded:
    """All parts as one table, with one part at a time in memory."""
    bad: list[str] = []
    count = unopened = 0
    for part in _every(parts, spans):
        bad += [each.reason for each in part.bad]
        count += len(part.indices)
        unopened += part.unopened
    if not count:
        shutil.rmtree(parts.folder)
        raise UserError(f"none of the {len(source)} images can be read. The first: {bad[0]}")

    def rows() -> Iterator[Rows]:
        for part in _every(parts, spans):
            indices = part.indices.tolist()
            labels = [source.label(index) for index in indices]
            known = np.array([-1 if label is None else label for label in labels], dtype=np.int64)
            yield Rows([source.name(index) for index in indices], known, part.features)

    about = _read_json(parts.folder / "about.json") | {"rows": count, "bad": bad, "unopened": unopened}
    write_table(out, Table(about, count, dim, rows))
    if not unopened:
        shutil.rmtree(parts.folder)
    return Embedded(count, bad)


def _every(parts: Parts, spans: list[range]) -> Iterator[Part]:
    for number in range(len(spans)):
        part = parts.read(number)
        if part is None:
            raise UserError(f"{parts.file(number)} is missing or damaged; run the same command again to compute it.")
        yield part


def _compare(there: Any, now: About, place: Path) -> About:
    """The metadata of the file; a ``UserError`` if it describes other features than the ones requested now."""
    if not isinstance(there, dict) or there.get("format") != now["format"]:
        raise UserError(f"{place} was not written by crate-mae embed; choose another --out.")
    for name in now:
        if name not in WORDS and there.get(name) != now[name]:
            changed = {
                "weights": "its features do not match this model",
                "data": "its images differ, or have changed since",
            }.get(name, f"{name} was {there.get(name)} and is {now[name]}")
            raise UserError(f"{place} does not match this command: {changed}; delete it or choose another --out.")
    return there


def _read_json(path: Path) -> Any:
    try:
        return json.loads(path.read_text())
    except ValueError:
        return None
