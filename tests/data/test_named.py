"""Every named set from a small tree in its real layout; only the tables of checksums are replaced."""

import hashlib
import pickle
import tarfile
from pathlib import Path

import numpy as np
import pytest
import scipy.io
import torch
from PIL import Image

from crate_mae import UserError
from crate_mae.cli import main
from crate_mae.data.named import NAMED, open_named
from crate_mae.data.named_layouts import OPENERS, split_digits
from crate_mae.data.open import open_dataset
from crate_mae.data.source import ImageSource
from crate_mae.torchvision_fix import torchvision
from tests.conftest import SHARED
from tests.data.conftest import write

datasets = torchvision.datasets


def md5(path: Path) -> str:
    return hashlib.md5(path.read_bytes()).hexdigest()


def cifar(root: Path, monkeypatch: pytest.MonkeyPatch, kind: type, labels: str, classes: list[str]) -> None:
    """30 training images (shared by its batches) and 8 for test, pickled as the authors do."""
    folder = root / kind.base_folder
    folder.mkdir()
    rng = np.random.default_rng(0)

    def batch(name: str, count: int) -> list[str]:
        values = {
            "data": rng.integers(0, 256, (count, 3072), dtype=np.uint8),
            labels: [n % len(classes) for n in range(count)],
        }
        (folder / name).write_bytes(pickle.dumps(values))
        return [name, md5(folder / name)]

    train = [batch(name, 30 // len(kind.train_list)) for name, _ in kind.train_list]
    monkeypatch.setattr(kind, "train_list", train)
    monkeypatch.setattr(kind, "test_list", [batch(name, 8) for name, _ in kind.test_list])
    meta = folder / kind.meta["filename"]
    meta.write_bytes(pickle.dumps({kind.meta["key"]: classes}))
    monkeypatch.setattr(kind, "meta", kind.meta | {"md5": md5(meta)})


def cifar10(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    cifar(root, monkeypatch, datasets.CIFAR10, "labels", ["airplane", "automobile", "bird"])


def cifar100(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    cifar(root, monkeypatch, datasets.CIFAR100, "fine_labels", ["apple", "bee", "camel"])


def flowers102(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = root / "flowers-102"
    for number in range(1, 13):
        write(folder / "jpg" / f"image_{number:05d}.jpg", number)
    scipy.io.savemat(folder / "imagelabels.mat", {"labels": np.arange(12)[None] % 3 + 1})
    parts = {"trnid": np.arange(1, 7)[None], "valid": np.arange(7, 10)[None], "tstid": np.arange(10, 13)[None]}
    scipy.io.savemat(folder / "setid.mat", parts)
    table = datasets.Flowers102._file_dict
    sums = {key: (table[key][0], md5(folder / table[key][0])) for key in ("label", "setid")}
    monkeypatch.setattr(datasets.Flowers102, "_file_dict", table | sums)


def oxford_pets(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = root / "oxford-iiit-pet"
    (folder / "annotations").mkdir(parents=True)
    lines = {"trainval": [], "test": []}
    for number in range(28):
        breed, label = [("Abyssinian", 1), ("american_bulldog", 2)][number % 2]
        write(folder / "images" / f"{breed}_{number}.jpg", number)
        lines["trainval" if number < 20 else "test"].append(f"{breed}_{number} {label} {label} 1\n")
    for split, entries in lines.items():
        (folder / "annotations" / f"{split}.txt").write_text("".join(entries))


def imagenette(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for number in range(14):
        split, wnid = "train" if number < 10 else "val", ["n01440764", "n02102040"][number % 2]
        write(root / "imagenette2-160" / split / wnid / f"{number}.JPEG", number)


def imagenet(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for number in range(14):
        split, wnid = "train" if number < 10 else "val", ["n01440764", "n02102040"][number % 2]
        write(root / split / wnid / f"{number}.JPEG", number)
    names = {"n01440764": ("tench", "Tinca tinca"), "n02102040": ("English springer", "English springer spaniel")}
    torch.save((names, ["n01440764", "n02102040"]), root / "meta.bin")


def tiny_imagenet(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Five training images and two for validation of each of two classes, in the order of their ids."""
    folder, lines = root / "tiny-imagenet-200", []
    for number in range(10):
        wnid = ["n01443537", "n02124075"][number % 2]
        write(folder / "train" / wnid / "images" / f"{wnid}_{number}.JPEG", number)
        (folder / "train" / wnid / f"{wnid}_boxes.txt").write_text(f"{wnid}_{number}.JPEG\t0\t0\t9\t9\n")
    for number in range(4):
        write(folder / "val" / "images" / f"val_{number}.JPEG", number)
        lines.append(f"val_{number}.JPEG\t{['n02124075', 'n01443537'][number % 2]}\t0\t0\t9\t9\n")
    (folder / "val" / "val_annotations.txt").write_text("".join(lines))
    (folder / "words.txt").write_text("n00001740\tentity\nn01443537\tgoldfish, Carassius auratus\n")
    (folder / "wnids.txt").write_text("n02124075\nn01443537\n")


MAKE = {
    "cifar10": (cifar10, {"train": 30, "test": 8}, ("airplane", "automobile", "bird"), 32),
    "cifar100": (cifar100, {"train": 30, "test": 8}, ("apple", "bee", "camel"), 32),
    "flowers102": (flowers102, {"train": 6, "val": 3, "test": 3}, None, 20),
    "oxford_pets": (oxford_pets, {"train": 20, "test": 8}, ("Abyssinian", "American Bulldog"), 20),
    "imagenette": (imagenette, {"train": 10, "val": 4, "test": 4}, ("tench", "English springer"), 20),
    "tiny_imagenet": (tiny_imagenet, {"train": 10, "val": 4, "test": 4}, ("goldfish", "n02124075"), 20),
    "imagenet": (imagenet, {"train": 10, "val": 4, "test": 4}, ("tench", "English springer"), 20),
}


def test_every_named_set_is_made_here_and_documented() -> None:
    assert MAKE.keys() | {"digits"} == NAMED.keys() == OPENERS.keys()
    page = (Path(__file__).parents[2] / "docs" / "data.md").read_text()
    assert all(f"`{name}`" in page for name in NAMED)


def labels(source: ImageSource) -> list[int | None]:
    return [source.label(index) for index in range(len(source))]


@pytest.mark.parametrize("name", MAKE)
def test_a_set_in_its_real_layout(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    make, counts, classes, width = MAKE[name]
    make(tmp_path, monkeypatch)
    opened = {split: open_dataset(name, split, tmp_path) for split in ("train", "val", "test")}
    if "val" in counts:
        assert {split: len(source) for split, source in opened.items()} == counts
    else:  # carved out of the training images
        assert len(opened["train"]) + len(opened["val"]) == counts["train"]
        assert len(opened["val"]) >= 1
        assert len(opened["test"]) == counts["test"]
    for source in opened.values():
        assert classes is None or source.class_names == classes
        for index in range(len(source)):
            assert source.read(index).width == width
        assert set(labels(source)) <= set(range(3))
    assert len(set(labels(opened["train"]))) == (2 if classes and len(classes) == 2 else 3)


@pytest.mark.parametrize("name", MAKE)
def test_the_same_set_as_an_image_folder_tree(name: str, tmp_path: Path) -> None:
    for number, place in enumerate(["train/a", "train/b", "val/b", "test/a"]):
        write(tmp_path / name / place / f"{number}.png", number)
    for split, expected in [("train", [0, 1]), ("val", [1]), ("test", [0])]:
        source = open_dataset(name, split, tmp_path)
        assert labels(source) == expected
        assert source.class_names == ("a", "b")


@pytest.mark.parametrize("name", MAKE)
def test_a_missing_set_says_where_it_should_be(name: str, tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"--data-root, or fetch it: crate-mae data check \w+ --download") as caught:
        open_dataset(name, "train", tmp_path)
    assert NAMED[name].layout in str(caught.value)


@pytest.mark.parametrize("name", ["cifar10", "cifar100"])
def test_a_pickle_with_another_checksum_is_never_loaded(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    MAKE[name][0](tmp_path, monkeypatch)
    folder = tmp_path / NAMED[name].marks[0]
    for file in sorted(folder.iterdir()):
        good = file.read_bytes()
        trap = tmp_path / "trap"
        file.write_bytes(pickle.dumps(Trap(str(trap))))
        with pytest.raises(UserError, match="not complete"):
            open_dataset(name, "train", tmp_path)
        assert not trap.exists()
        file.write_bytes(good)
    assert open_dataset(name, "train", tmp_path)


class Trap:
    """Makes a folder when it is unpickled."""

    def __init__(self, path: str):
        self.path = path

    def __reduce__(self) -> tuple:
        import os

        return os.mkdir, (self.path,)


def test_flowers_with_another_checksum_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    flowers102(tmp_path, monkeypatch)
    scipy.io.savemat(tmp_path / "flowers-102" / "setid.mat", {"trnid": [[1]]})
    with pytest.raises(UserError, match="not complete"):
        open_dataset("flowers102", "train", tmp_path)


def test_imagenet_archives_are_unpacked_only_when_asked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    imagenet(tmp_path, monkeypatch)
    (tmp_path / "val").rename(tmp_path / "away")
    (tmp_path / "ILSVRC2012_img_val.tar").write_bytes(b"")
    with pytest.raises(UserError, match=r"no val/"):
        open_dataset("imagenet", "val", tmp_path)
    with pytest.raises(UserError, match="corrupted"):  # asked, torchvision compares the checksum first
        open_dataset("imagenet", "val", tmp_path, download=True)
    assert not (tmp_path / "val").exists()


def test_tiny_imagenet_has_its_validation_labels_from_the_annotations_or_from_class_folders(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tiny_imagenet(tmp_path, monkeypatch)
    annotated = open_dataset("tiny_imagenet", "val", tmp_path)
    assert labels(annotated) == [1, 0, 1, 0]
    assert labels(open_dataset("tiny_imagenet", "train", tmp_path)) == [0] * 5 + [1] * 5
    folder = tmp_path / "tiny-imagenet-200" / "val"
    (folder / "val_annotations.txt").unlink()
    for number in range(4):
        place = folder / ["n02124075", "n01443537"][number % 2] / "images"
        place.mkdir(parents=True, exist_ok=True)
        (folder / "images" / f"val_{number}.JPEG").rename(place / f"val_{number}.JPEG")
    sorted_by_class = open_dataset("tiny_imagenet", "val", tmp_path)
    assert labels(sorted_by_class) == [0, 0, 1, 1]
    assert sorted_by_class.class_names == annotated.class_names


def test_an_incomplete_tiny_imagenet_is_one_sentence(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tiny_imagenet(tmp_path, monkeypatch)
    folder = tmp_path / "tiny-imagenet-200"
    (folder / "val" / "val_annotations.txt").write_text("val_0.JPEG\n")
    with pytest.raises(UserError, match=r"tiny_imagenet in .* is not complete"):
        open_dataset("tiny_imagenet", "val", tmp_path)
    (folder / "train").rename(folder / "away")
    with pytest.raises(UserError, match=r"tiny_imagenet in .* is not complete"):
        open_dataset("tiny_imagenet", "train", tmp_path)


def test_tiny_imagenet_is_fetched_only_when_asked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fetched = []

    def fetch(url: str, root: str, md5: str) -> None:
        fetched.append((url, md5))
        tiny_imagenet(Path(root), monkeypatch)

    monkeypatch.setattr(datasets.utils, "download_and_extract_archive", fetch)
    with pytest.raises(UserError, match=r"crate-mae data check .* --download"):
        open_dataset("tiny_imagenet", "train", tmp_path)
    assert not fetched
    main(["data", "check", "tiny_imagenet", "--data-root", str(tmp_path), "--download", "--workers", "1"])
    for split in ("train", "val"):
        assert open_dataset("tiny_imagenet", split, tmp_path, download=True)
    assert len(fetched) == 1


def test_the_records_agree_with_the_digits() -> None:
    record = NAMED["digits"]
    train = open_named("digits", Path(), "train", download=False)
    assert (len(train), len(train.class_names or ())) == (record.images, record.classes)
    pixels = np.stack([np.asarray(train.read(index)) for index in range(len(train))]) / 255
    assert (round(float(pixels.mean()), 3), round(float(pixels.std()), 3)) == (record.mean[0], record.std[0])


def test_digits_are_scikit_learns() -> None:
    whole = split_digits()
    test = open_dataset("digits", "test")
    assert labels(test) == whole.test_labels.tolist()
    pixels = np.stack([np.asarray(test.read(index)) for index in range(len(test))]) / 255
    np.testing.assert_allclose(pixels, whole.test, atol=0.5 / 255 + 1e-6)
    train, val = open_dataset("digits", "train"), open_dataset("digits", "val")
    assert len(train) + len(val) == len(whole.train) == 1347
    assert 30 < len(val) < 110
    assert test.class_names == tuple("0123456789")


def unpack(archive: str, folder: Path, wanted: set[str]) -> None:
    path = SHARED / "data" / archive
    if not path.is_file():
        pytest.skip(f"the real images are not here: {archive}")
    with tarfile.open(path) as tar:
        for member in tar:
            if member.name in wanted or member.name.endswith((".mat", ".txt")):
                tar.extract(member, folder, filter="data")


def test_real_flowers_with_their_real_checksums(tmp_path: Path) -> None:
    image = "flowers-102/jpg/image_06765.jpg"  # the first of the official training split
    unpack("flowers-102-96px.tar", tmp_path, {image})
    counts = [len(open_dataset("flowers102", split, tmp_path)) for split in ("train", "val", "test")]
    assert counts == [1020, 1020, 6149]
    train = open_dataset("flowers102", "train", tmp_path)
    first = next(index for index in range(1020) if train.name(index).endswith(image))
    assert min(train.read(first).size) == 96
    with pytest.raises(UserError, match="can't be read"):
        train.read((first + 1) % 1020)


def test_real_pets(tmp_path: Path) -> None:
    image = "oxford-iiit-pet/images/Abyssinian_100.jpg"  # the first of trainval.txt
    unpack("oxford-iiit-pet-96px.tar", tmp_path, {image})
    train, val, test = (open_dataset("oxford_pets", split, tmp_path) for split in ("train", "val", "test"))
    assert (len(train) + len(val), len(test)) == (3680, 3669)
    assert len(train.class_names or ()) == 37
    part, place = next((p, i) for p in (train, val) for i in range(len(p)) if p.name(i).endswith(image))
    assert isinstance(part.read(place), Image.Image)
    assert part.label(place) == 0
