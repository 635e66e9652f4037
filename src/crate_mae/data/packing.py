"""``crate-mae data pack``: shards from a folder."""

import io
import json
import math
import re
import tarfile
from pathlib import Path

from rich.console import Console

from crate_mae.atomic_write import atomic_write, remove
from crate_mae.data.folders import Folder, as_key
from crate_mae.data.open import tree_splits
from crate_mae.data.shards import CLASSES
from crate_mae.errors import UserError, brief
from crate_mae.progress import progress
from crate_mae.usable_path import printable

UNITS = {"": 1, "k": 10**3, "m": 10**6, "g": 10**9, "t": 10**12}


def pack(folder: Path, out: Path, shard_size: str, console: Console) -> None:
    """Write the images of a folder, each split on its own, to ``out/[SPLIT/]000000.tar`` and so on.

    The files are copied as they are, in the order of their names; a shard ends before it would exceed ``shard_size``.
    The same folder gives the same bytes. Labels are members ``KEY.cls``, their names a list in ``out/classes.json``.
    """
    size, out = parse_size(shard_size), out.absolute()
    if not folder.is_dir():
        raise UserError(f"there is no folder {folder}.")
    if out.exists() and any(out.iterdir()):
        raise UserError(f"{out} is not empty; choose another --out.")
    sources = {split: opener() for split, opener in tree_splits(folder).items()}
    folders = {split: source for split, source in sources.items() if isinstance(source, Folder)}
    if len(folders) < len(sources):
        raise UserError(f"{folder} holds shards; give a folder of images.")
    for left in out.parent.glob(f".{out.name}.*.part"):  # of a command that was killed
        remove(left)
    out.parent.mkdir(parents=True, exist_ok=True)
    with atomic_write(out) as temporary:
        temporary.mkdir()
        names = next(iter(folders.values())).class_names
        if names is not None:
            text = json.dumps(names, ensure_ascii=False, indent=0) + "\n"
            (temporary / CLASSES).write_text(text, encoding="utf-8")
        shards = 0
        for split, source in folders.items():
            target = temporary if source.path == folder else temporary / split
            target.mkdir(exist_ok=True)
            shards += _write(source, target, size, console, f"packing {split}")
    count = sum(map(len, folders.values()))
    console.print(f"Wrote {out}: {count} images in {shards} shards.", highlight=False, markup=False, soft_wrap=True)


def parse_size(text: str) -> int:
    """Bytes from a text like 500MB or 1GB (powers of ten)."""
    found = re.fullmatch(r"\s*(\d+(?:\.\d+)?)\s*([kmgt]?)b?\s*", text.lower())
    size = float(found[1]) * UNITS[found[2]] if found else 0.0
    if not 1 <= size < math.inf:
        raise UserError(f"--shard-size is {brief(text)}; write it like 500MB or 1GB.")
    return round(size)


def _write(source: Folder, target: Path, size: int, console: Console, label: str) -> int:
    shard: tarfile.TarFile | None = None
    number, taken = 0, set[str]()
    with progress(label, len(source), console) as advance:
        try:
            for index, file in enumerate(source.files):
                try:
                    content = source.stored(index)
                except OSError as error:
                    raise UserError(f"{source.name(index)} can't be read ({error.strerror}).") from None
                if shard is None or shard.offset + len(content) > size:
                    if shard is not None:
                        shard.close()
                    shard = tarfile.open(target / f"{number:06d}.tar", "w", format=tarfile.PAX_FORMAT)  # noqa: SIM115
                    number += 1
                key = _free(as_key(printable(file)), taken)
                _add(shard, key + Path(file).suffix.lower(), content)
                if source.labels is not None:
                    _add(shard, f"{key}.cls", str(source.label(index)).encode())
                advance()
        finally:
            if shard is not None:
                shard.close()
    return number


def _free(key: str, taken: set[str]) -> str:
    """The key, with a number if it is taken: a.jpg and a.png are two samples."""
    name, number = key, 1
    while name in taken:
        number += 1
        name = f"{key}_{number}"
    taken.add(name)
    return name


def _add(shard: tarfile.TarFile, name: str, content: bytes) -> None:
    member = tarfile.TarInfo(name)  # owner, mode and time are always the same
    member.size = len(content)
    shard.addfile(member, io.BytesIO(content))
