"""Sets of images in the format of Hugging Face's ``datasets``: a folder of Parquet files, or a name on the Hub.

A set needs a column of images; a column of classes gives labels. The images stay encoded until they are read, and
the table stays on disk, mapped into memory.
"""

import errno
import logging
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from crate_mae.data.named import Split
from crate_mae.data.source import ImageSource
from crate_mae.errors import UserError, missing_extra

IMAGE_NAMES = ("image", "img", "picture", "photo", "jpg", "png")
"""Names of columns that hold images although their type does not say so; the first one found is used."""
LABEL_NAMES = ("label", "labels", "fine_label", "class", "target")
"""Names of columns that hold classes; the first one found is used, or else the first of the type ``ClassLabel``."""


class HubRows(ImageSource):
    """One split of such a set."""

    def __init__(
        self, title: str, rows: Any, image: str, labels: np.ndarray | None, class_names: tuple[str, ...] | None
    ):
        self.title, self.rows, self.image = title, rows, image
        self.labels, self.class_names = labels, class_names

    def __len__(self) -> int:
        return len(self.rows)

    def stored(self, index: int) -> bytes:
        cell = self.rows[index][self.image]
        if isinstance(cell, dict):
            cell = cell.get("bytes") or cell.get("path")
        if isinstance(cell, str):
            if not os.path.isfile(cell):  # a device has no end
                raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), cell)
            return Path(cell).read_bytes()
        return cell if isinstance(cell, bytes) else b""

    def label(self, index: int) -> int | None:
        return None if self.labels is None or self.labels[index] < 0 else int(self.labels[index])

    def name(self, index: int) -> str:
        return f"row {index} of {self.title}"

    def key(self, index: int) -> str:
        return f"{index:08d}"


def open_hugging_face(name: str, download: bool, names: Mapping[Split, tuple[str, ...]]) -> dict[Split, ImageSource]:
    """The splits of a Parquet file, a folder of them, or a set on the Hub; ``names`` are the spellings of a split.

    Without ``download``, only files of the Hub that were downloaded earlier are used.
    """
    parts = _load(name, download)
    known = {split: parts[word] for split, words in names.items() for word in words if word in parts}
    if not known and len(parts) == 1:
        known = {"train": next(iter(parts.values()))}
    if not known:
        raise UserError(f"{name} has the splits {', '.join(parts)}; one of them must be called train, val or test.")
    features = next(iter(known.values())).features
    image, column = _image_column(name, features), _label_column(features)
    labels, class_names = _labels(known, features, column) if column else ({}, None)
    return {
        split: HubRows(f"{name}, {split}", _encoded(rows, image), image, labels.get(split), class_names)
        for split, rows in known.items()
    }


def _load(name: str, download: bool) -> dict[str, Any]:
    path = Path(name).expanduser()
    what = name if path.exists() else f"there is no folder {name}, and a set of that name on the Hugging Face Hub"
    try:
        import datasets
    except ImportError:
        raise missing_extra(what, "hub") from None
    datasets.disable_progress_bars()
    datasets.logging.set_verbosity(logging.CRITICAL)  # its exceptions say the same
    try:
        if path.is_file():
            return datasets.load_dataset("parquet", data_files=str(path))
        if path.is_dir():
            return datasets.load_dataset(str(path))
        only_here = datasets.DownloadConfig(local_files_only=not download)
        return datasets.load_dataset(name, download_config=only_here)
    except Exception as error:  # of pyarrow, the Hub's library, the network or datasets itself
        reason = (str(error).strip().splitlines() or [type(error).__name__])[0].rstrip(".")
        fetching = (
            "check the name and the network" if download else f"crate-mae data check {name} --download fetches it"
        )
        advice = "" if path.exists() else f": {fetching}"
        raise UserError(f"{what} can't be read ({reason}){advice}.") from None


def _image_column(name: str, features: Any) -> str:
    import datasets

    typed = [column for column, kind in features.items() if isinstance(kind, datasets.Image)]
    spelled = [column for column in IMAGE_NAMES if column in features]
    if not typed and not spelled:
        raise UserError(f"{name} has the columns {', '.join(features)} and none with images; call one of them image.")
    return (typed or spelled)[0]


def _label_column(features: Any) -> str | None:
    import datasets

    plain = (datasets.Value, datasets.ClassLabel)  # lists of classes are no labels
    spelled = [column for column in LABEL_NAMES if isinstance(features.get(column), plain)]
    typed = [column for column, kind in features.items() if isinstance(kind, datasets.ClassLabel)]
    return next(iter(spelled + typed), None)


def _labels(parts: Mapping[Split, Any], features: Any, column: str) -> tuple[dict[Split, np.ndarray], tuple[str, ...]]:
    """The index of each row's class, -1 for none, and the names of the classes: those of all splits together."""
    values = {split: list(rows[column]) for split, rows in parts.items()}
    if named := getattr(features[column], "names", None):
        numbers = {split: [-1 if value is None else value for value in of] for split, of in values.items()}
        return {split: np.array(of, dtype=np.int64) for split, of in numbers.items()}, tuple(named)
    every = sorted({value for of in values.values() for value in of if value is not None and value != -1})
    place = {value: number for number, value in enumerate(every)}
    indices = {split: np.array([place.get(value, -1) for value in of], dtype=np.int64) for split, of in values.items()}
    return indices, tuple(map(str, every))


def _encoded(rows: Any, image: str) -> Any:
    """The rows with one column, its images not decoded."""
    import datasets

    rows = rows.select_columns([image])
    return (
        rows.cast_column(image, datasets.Image(decode=False))
        if isinstance(rows.features[image], datasets.Image)
        else rows
    )
