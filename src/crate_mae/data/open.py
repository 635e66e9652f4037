"""A set of images from the value of ``--data``: a name, a folder, shards, or a Hugging Face dataset."""

import logging
from collections.abc import Callable
from functools import cache, partial
from pathlib import Path
from typing import get_args

from crate_mae.data.folders import Folder, class_folders, walk, walk_relative
from crate_mae.data.hugging_face import open_hugging_face
from crate_mae.data.named import NAMED, NAMES, Split, open_named
from crate_mae.data.shards import Shards, find_shards, is_pattern
from crate_mae.data.source import ImageSource, Subset, carve
from crate_mae.errors import UserError
from crate_mae.models.locate import HUB_NAME
from crate_mae.usable_path import usable

log = logging.getLogger("crate_mae")

ROOT = Path("data")
"""The default folder of the named sets."""
FOLDERS: dict[Split, tuple[str, ...]] = {
    "train": ("train", "training"),
    "val": ("val", "valid", "validation"),
    "test": ("test", "testing"),
}
"""The names of folders that are taken for a split."""

SPLITS: tuple[Split, ...] = get_args(Split)

Openers = dict[Split, Callable[[], ImageSource]]


class ImageSet:
    """A set of images. Each split is opened once, when it is first needed."""

    def __init__(self, name: str, openers: Openers):
        self.name = name
        self.own = tuple(openers)
        """The splits that the set has itself; ``train`` alone if it has no splits."""
        self.open = cache(lambda split: openers[split]())
        """From one of the set's own splits to its images."""

    def split(self, split: Split) -> ImageSource:
        """The images of a split:

        - ``train``: the training images, without those held out for validation;
        - ``val``: the set's own validation split; without one, 5 % of the training images (``carve``);
        - ``test``: the set's own test split; without one, the same as ``val``.

        If there are no splits at all, every image is a training image in this sense.
        """
        if split not in SPLITS:
            raise UserError(f"there is no split {split}; choose from {', '.join(SPLITS)}.")
        wanted: Split = "val" if split == "test" and "test" not in self.own else split
        if wanted in self.own and (wanted != "train" or "val" in self.own):
            return self.open(wanted)
        if "train" not in self.own:
            raise UserError(
                f"{self.name} has no training images; put them in a folder train/ beside {', '.join(self.own)}/."
            )
        training = self.open("train")
        if wanted == "train" and len(training) == 1:
            return training
        return self._carved()[wanted == "val"]

    @cache  # noqa: B019 (it lives as long as its images)
    def _carved(self) -> tuple[Subset, Subset]:
        return carve(self.open("train"))

    def whole(self) -> ImageSource:
        """Every image of a set that has no splits."""
        if len(self.own) > 1:
            raise UserError(f"{self.name} has the splits {', '.join(self.own)}; choose one of them.")
        return self.open(self.own[0])


def open_dataset(data: str | Path, split: Split, root: Path | None = None, download: bool = False) -> ImageSource:
    """One split of a set of images; ``find_images`` gives several without reading the set's folders again."""
    return find_images(data, root, download).split(split)


def find_images(data: str | Path, root: Path | None = None, download: bool = False) -> ImageSet:
    """The set of images that ``data`` stands for.

    A name (``NAMED``), a folder, a shard or a pattern of shards; a Parquet file, a folder of them, or owner/name on the
    Hugging Face Hub. A name comes before a folder of the same name, and ./NAME, or a ``Path``, is always the folder, as
    it is for models (``shipped_folder``); a folder comes before owner/name on the Hub.

    A named set is looked for below ``root`` in its own layout, then as ``root/NAME`` in any layout that a path may
    have. Nothing is fetched, and no archive unpacked, without ``download``.
    """
    name = str(data)
    if name in NAMED and not isinstance(data, Path):
        if Path(name).is_dir() and Path(name).resolve() != ((root or ROOT) / name).resolve():
            log.info("%s is the well-known set; write ./%s for the folder of that name.", name, name)
        return ImageSet(name, _named(name, root or ROOT, download))
    if is_pattern(name):
        return ImageSet(name, {"train": partial(Shards, find_shards(name))})
    path = usable(data, "--data")
    if path.is_file() and path.suffix == ".tar":
        return ImageSet(name, {"train": partial(Shards, [path])})
    if (path.is_file() and path.suffix == ".parquet") or is_parquet(path):
        return _hugging_face(name, download)
    if path.is_dir():
        return ImageSet(name, tree_splits(path))
    if path.exists():
        raise UserError(f"{path} is neither a folder of images nor a .tar shard nor a Parquet file.")
    if HUB_NAME.fullmatch(name) and not isinstance(data, Path):
        return _hugging_face(name, download)
    raise UserError(f"there is no folder {path}, and no set of that name; the names are {NAMES}.")


def is_parquet(path: Path) -> bool:
    """Whether a folder holds Parquet files, at most one folder deep, and no images."""
    found = path.is_dir() and any(next(path.glob(pattern), None) for pattern in ("*.parquet", "*/*.parquet"))
    return found and next(walk(path), None) is None


def _hugging_face(name: str, download: bool) -> ImageSet:
    parts = open_hugging_face(name, download, FOLDERS)
    return ImageSet(name, {split: partial(parts.__getitem__, split) for split in parts})


def _named(name: str, root: Path, download: bool) -> Openers:
    named, root = NAMED[name], root.expanduser()
    if not named.is_there(root) and (root / name).is_dir():
        return tree_splits(root / name)
    if not named.is_there(root) and not download:
        raise UserError(
            f"{name} is not in {root}, which must hold {named.layout}, or {name}/train/CLASS/IMAGE and so on; say "
            f"where it is with --data-root, or fetch it: crate-mae data check {name} --download."
        )
    return {split: partial(open_named, name, root, split, download) for split in named.splits}


def tree_splits(path: Path) -> Openers:
    """The splits of a folder: its folders of that name, or all of it for training if it has none.

    The first that is opened walks all of them, once: the classes of a split are those of all splits together.
    """
    parts: dict[Split, Path] = {}
    for split, names in FOLDERS.items():
        for name in names:
            if (path / name).is_dir():
                parts.setdefault(split, path / name)
    if not parts:
        parts = {"train": path}
    shards = {split: found for split, part in parts.items() if (found := sorted(part.glob("*.tar")))}

    @cache
    def walked() -> tuple[list[str] | None, dict[Split, list[str]]]:
        files = {split: list(walk_relative(part)) for split, part in parts.items() if split not in shards}
        return class_folders(files.values()), files

    def open_folder(split: Split) -> Folder:
        class_names, files = walked()
        return Folder(parts[split], class_names, files[split])

    return {
        split: partial(Shards, shards[split]) if split in shards else partial(open_folder, split) for split in parts
    }
