"""``crate-mae embed``: the features of every image of a set, in parts, so that it can be stopped at any time.

While it runs, the folder OUT.parts holds ``about.json``, which says of what the features are, and a file for each part
that is done. A part always has the same images in the same batches: what is resumed is the same to the last bit. When
all are there they become one table, and the folder goes; unless there were images that could not even be opened, as
where a disk is gone: then it stays, and another run tries these again.
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
from crate_mae.data.sequential import Read, in_turn, read_batches
from crate_mae.data.source import ImageSource, fingerprint
from crate_mae.data.transforms import Evaluation
from crate_mae.errors import UserError
from crate_mae.features.extraction import Reader, Which, canonical, model_digest
from crate_mae.features.extraction import describe as described
from crate_mae.features.table import About, Rows, Table, check_format, read_about, write_table
from crate_mae.models.image_model import ImageModel
from crate_mae.progress import progress

PART = 1024
"""Images in a part, or a batch where that is larger: what a kill can cost."""
WORDS = {"checkpoint", "class_names"}
"""What ``about`` says for people alone: it may differ where features go on."""


@dataclass(frozen=True)
class Part:
    """The features of some images that follow each other."""

    indices: Int[np.ndarray, " n"]
    features: Float[np.ndarray, "n d"]
    bad: list[Bad]
    """Those that could not be read."""
    unopened: int = 0
    """So many of these could not even be opened; another run tries again."""


@dataclass(frozen=True)
class Embedded:
    """What the file holds."""

    count: int
    bad: list[str]
    """Why, for each image that could not be read."""
    before: bool = False
    """It was complete already."""


def embed(
    model: ImageModel, source: ImageSource, which: Which, out: Path, reader: Reader, checkpoint: str = ""
) -> Embedded:
    """Write the features of every image that can be read to a .parquet or .npz file, going on where it stopped."""
    check_format(out)
    which = Which(canonical(model, which.layer), which.pool)
    about = describe(model, source, which, reader.batch, checkpoint)
    folder = out.with_name(f"{out.name}.parts")
    if out.exists():
        there = _compare(read_about(out), about, out)
        if not there["unopened"]:
            shutil.rmtree(folder, ignore_errors=True)  # a kill came between the last rename and this
            return Embedded(there["rows"], there["bad"], before=True)
    parts = Parts(folder, about)
    spans = in_turn(range(len(source)), reader.batch * max(1, PART // reader.batch))
    _compute(model, source, which, reader, parts, spans)
    return _gather(parts, source, spans, model.config.dim, out)


def describe(model: ImageModel, source: ImageSource, which: Which, batch: int, checkpoint: str) -> About:
    """All that decides the features, and a few words for people."""
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
    """The folder of what is done so far."""

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
        return self.folder / f"{number:06d}.npz"

    def read(self, number: int) -> Part | None:
        """None where it is not there, or damaged."""
        try:
            with self.file(number).open("rb") as file, np.load(file, allow_pickle=False) as stored:
                bad = [Bad(int(index), str(why)) for index, why in zip(stored["bad"], stored["reasons"], strict=True)]
                return Part(stored["indices"], stored["features"], bad, int(stored["unopened"]))
        except Exception:  # a damaged file can raise anything in its reader; its checksums find what would not
            return None

    def write(self, number: int, part: Part) -> None:
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
    """Every part that is not there yet."""
    missing = [number for number in range(len(spans)) if (part := parts.read(number)) is None or part.unopened]
    batches = {number: in_turn(spans[number], reader.batch) for number in missing}
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
            for batch, read in zip(of_part, reading, strict=False):  # leaves the next part's batches where they are
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
    """Stops where the disk is gone, which must not count as images that can't be read."""

    def __init__(self, source: ImageSource):
        self.source, self.in_a_row = source, 0

    def see(self, read: Read) -> int:
        """How many images of a batch can't be opened."""
        unopened = [bad for bad in read.bad if not self._opens(bad.index)]
        self.in_a_row = 0 if read.indices or len(unopened) < len(read.bad) else self.in_a_row + len(unopened)
        if self.in_a_row >= NEIGHBOURS:
            raise UserError(
                f"{unopened[-1].reason} So many in a row mean that the disk is gone; run it again to go on."
            )
        return len(unopened)

    def _opens(self, index: int) -> bool:
        try:
            self.source.stored(index)
        except OSError:
            return False
        return True


def _gather(parts: Parts, source: ImageSource, spans: list[range], dim: int, out: Path) -> Embedded:
    """All parts as one table, one part at a time in memory."""
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
            raise UserError(f"{parts.file(number)} is gone or damaged; run it again to compute it again.")
        yield part


def _compare(there: Any, now: About, place: Path) -> About:
    """What is there; a ``UserError`` where that is of something else than what is asked for now."""
    if not isinstance(there, dict) or there.get("format") != now["format"]:
        raise UserError(f"{place} was not written by crate-mae embed; choose another --out.")
    for name in now:
        if name not in WORDS and there.get(name) != now[name]:
            changed = {
                "weights": "the model was another",
                "data": "the images were others, or have changed since",
            }.get(name, f"{name} was {there.get(name)} and is {now[name]}")
            raise UserError(f"{place} does not fit what is asked: {changed}; delete it or choose another --out.")
    return there


def _read_json(path: Path) -> Any:
    try:
        return json.loads(path.read_text())
    except ValueError:
        return None
