"""Features of images as a table in one file, written in a stream: Parquet, or NumPy's .npz."""

import json
import zipfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Float, Int

from crate_mae.atomic_write import atomic_write
from crate_mae.errors import UserError, missing_extra

About = dict[str, Any]
"""The file's metadata; values that JSON takes."""


@dataclass(frozen=True)
class Rows:
    """A few rows of the table."""

    paths: list[str]
    labels: Int[np.ndarray, " n"]
    """-1 if an image has none."""
    features: Float[np.ndarray, "n d"]


@dataclass(frozen=True)
class Table:
    """The whole table, as a stream that can be read several times."""

    about: About
    count: int
    dim: int
    rows: Callable[[], Iterator[Rows]]


def check_format(path: Path) -> None:
    """Refuse a file that can't be written."""
    if path.suffix not in FORMATS:
        raise UserError(f"{path} ends in neither {' nor '.join(FORMATS)}; choose one of them.")
    if path.suffix == ".parquet":
        _pyarrow()


def write_table(path: Path, table: Table) -> None:
    """Write a table atomically; the same table gives the same bytes."""
    with atomic_write(path) as temporary:
        FORMATS[path.suffix][0](temporary, table)


def read_about(path: Path) -> About | None:
    """The metadata of a file; None if it is no such table."""
    try:
        return FORMATS[path.suffix][1](path)
    except Exception:  # an arbitrary file can raise anything in its decoder
        return None


# --- Parquet: columns path, label (null if there is none) and feature, a list of d numbers ------------------------


def _pyarrow() -> Any:
    try:
        import pyarrow
        import pyarrow.parquet
    except ImportError:
        raise missing_extra("Parquet", "parquet") from None
    return pyarrow


def _write_parquet(path: Path, table: Table) -> None:
    arrow = _pyarrow()
    columns = [("path", arrow.string()), ("label", arrow.int64()), ("feature", arrow.list_(arrow.float32(), table.dim))]
    schema = arrow.schema(columns, {name: json.dumps(value) for name, value in table.about.items()})
    with path.open("wb") as file, arrow.parquet.ParquetWriter(file, schema) as writer:
        for rows in table.rows():
            features = arrow.FixedSizeListArray.from_arrays(arrow.array(rows.features.ravel()), table.dim)
            labels = arrow.array(rows.labels, mask=rows.labels < 0)
            writer.write_table(arrow.table([arrow.array(rows.paths, arrow.string()), labels, features], schema=schema))


def _about_parquet(path: Path) -> About:
    metadata = _pyarrow().parquet.read_schema(path).metadata
    return {name.decode(): json.loads(value) for name, value in metadata.items() if name != b"ARROW:schema"}


# --- .npz: arrays features, paths, labels (-1 if there is none) and about, a line of JSON ------------------------


def _write_npz(path: Path, table: Table) -> None:
    width = max((len(name) for rows in table.rows() for name in rows.paths), default=1)
    columns: dict[str, tuple[np.dtype, tuple[int, ...], Callable[[Rows], Any]]] = {
        "features": (np.dtype("<f4"), (table.count, table.dim), lambda rows: rows.features),
        "paths": (np.dtype(f"<U{width}"), (table.count,), lambda rows: rows.paths),
        "labels": (np.dtype("<i8"), (table.count,), lambda rows: rows.labels),
    }
    with zipfile.ZipFile(path, "w") as archive:
        for name, (kind, shape, column) in columns.items():
            # A member made from a ZipInfo has a fixed date, so the same table gives the same bytes.
            with archive.open(zipfile.ZipInfo(f"{name}.npy"), "w", force_zip64=True) as member:
                header = {"descr": np.lib.format.dtype_to_descr(kind), "fortran_order": False, "shape": shape}
                np.lib.format.write_array_header_2_0(member, header)
                for rows in table.rows():
                    member.write(np.asarray(column(rows), dtype=kind).tobytes())
        with archive.open(zipfile.ZipInfo("about.npy"), "w") as member:
            np.lib.format.write_array(member, np.array(json.dumps(table.about)))


def _about_npz(path: Path) -> About:
    with path.open("rb") as file, np.load(file, allow_pickle=False) as stored:
        return json.loads(str(stored["about"]))


FORMATS: dict[str, tuple[Callable[[Path, Table], None], Callable[[Path], About]]] = {
    ".parquet": (_write_parquet, _about_parquet),
    ".npz": (_write_npz, _about_npz),
}
"""How each kind of file is written, and how its metadata is read."""
