"""A set of images from what a person calls it: a name, a folder or shards."""

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import get_args

from crate_mae.data.folders import Folder, classes
from crate_mae.data.named import NAMED, NAMES, Split, open_named
from crate_mae.data.shards import Shards, find_shards, is_pattern
from crate_mae.data.source import ImageSource, carve
from crate_mae.errors import UserError

ROOT = Path("data")
"""Where named sets are looked for unless a root is given."""
FOLDERS: dict[Split, tuple[str, ...]] = {
    "train": ("train", "training"),
    "val": ("val", "valid", "validation"),
    "test": ("test", "testing"),
}
"""The folders that are taken for a split."""

Splits = dict[Split, Callable[[], ImageSource]]


def open_dataset(data: str | Path, split: Split, root: Path | None = None, download: bool = False) -> ImageSource:
    """A split of a set of images.

    ``data`` is a name (``NAMED``) or a path. What a split is, by what there is:

    - ``train``: the training images, less those carved out for validation;
    - ``val``: the set's own validation split; without one, 5 % of the training images (``carve``);
    - ``test``: the set's own test split; without one, the same as ``val``.

    Where there are no splits at all, every image is a training image in this sense. A named set is looked for below
    ``root`` in torchvision's layout, then as ``root/NAME`` in any layout that a path may have. Nothing is fetched,
    and no archive unpacked, without ``download``.
    """
    if split not in get_args(Split):
        raise UserError(f"there is no split {split}; choose from {', '.join(get_args(Split))}.")
    there = find_splits(data, root, download)
    wanted: Split = "val" if split == "test" and "test" not in there else split
    if wanted in there and (wanted != "train" or "val" in there):
        return there[wanted]()
    if "train" not in there:
        raise UserError(f"{data} has no training images; put them in a folder train/ beside {', '.join(there)}/.")
    training = there["train"]()
    if wanted == "train" and len(training) == 1:
        return training
    return carve(training)[wanted == "val"]


def open_whole(data: str | Path, root: Path | None = None, download: bool = False) -> ImageSource:
    """Every image of a set that has no splits."""
    there = find_splits(data, root, download)
    if len(there) > 1:
        raise UserError(f"{data} has the splits {', '.join(there)}; choose one of them.")
    return next(iter(there.values()))()


def find_splits(data: str | Path, root: Path | None = None, download: bool = False) -> Splits:
    """The splits that a set has itself, each opened when it is called; ``train`` where there is no word of splits."""
    if str(data) in NAMED:
        return _named(str(data), root or ROOT, download)
    if is_pattern(str(data)):
        return {"train": partial(Shards, find_shards(str(data)))}
    path = Path(data).expanduser()
    if path.is_file() and path.suffix == ".tar":
        return {"train": partial(Shards, [path])}
    if path.is_dir():
        return tree_splits(path)
    if path.exists():
        raise UserError(f"{path} is neither a folder of images nor a .tar shard.")
    raise UserError(f"there is no folder {path}, and no set of that name; the names are {NAMES}.")


def _named(name: str, root: Path, download: bool) -> Splits:
    named, root = NAMED[name], root.expanduser()
    if not named.is_there(root) and (root / name).is_dir():
        return tree_splits(root / name)
    if not named.is_there(root) and not download:
        raise UserError(
            f"{name} is not in {root}, which must hold {named.layout}, or {name}/train/CLASS/IMAGE and so on; say "
            "where it is with --data-root, or use --download to fetch it."
        )
    return {split: partial(open_named, name, root, split, download) for split in named.splits}


def tree_splits(path: Path) -> Splits:
    """The splits of a folder: its folders of that name, or all of it for training where it has none."""
    parts: dict[Split, Path] = {}
    for split, names in FOLDERS.items():
        for name in names:
            if (path / name).is_dir():
                parts.setdefault(split, path / name)
    if not parts:
        parts = {"train": path}
    shards = {split: sorted(part.glob("*.tar")) for split, part in parts.items()}
    class_names = classes([part for split, part in parts.items() if not shards[split]])
    return {
        split: partial(Shards, shards[split]) if shards[split] else partial(Folder, part, class_names)
        for split, part in parts.items()
    }
