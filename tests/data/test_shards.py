"""Shards read as the folder does that they were packed from; hostile and broken ones are refused."""

import io
import json
import tarfile
from pathlib import Path

import pytest

from crate_mae import UserError
from crate_mae.cli import main
from crate_mae.data.open import find_images, open_dataset
from crate_mae.data.packing import parse_size
from crate_mae.data.source import ImageSource
from tests.data.conftest import picture, write


def png(seed: int) -> bytes:
    buffer = io.BytesIO()
    picture(seed).save(buffer, "png")
    return buffer.getvalue()


def tar(path: Path, members: dict[str, bytes]) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    with tarfile.open(path, "w") as shard:
        for name, content in members.items():
            info = tarfile.TarInfo(name)
            info.size = len(content)
            shard.addfile(info, io.BytesIO(content))
    return path


def pack(folder: Path, out: Path, size: str = "20kB") -> None:
    main(["data", "pack", str(folder), "--out", str(out), "--shard-size", size])


def content(source: ImageSource) -> list[tuple[str, int | None, bytes]]:
    return [(source.key(index), source.label(index), source.read(index).tobytes()) for index in range(len(source))]


@pytest.mark.parametrize("split", ["train", "val", "test"])
def test_packed_is_the_same_as_the_folder(split: str, labelled: Path, tmp_path: Path) -> None:
    pack(labelled, tmp_path / "shards")
    assert len(list((tmp_path / "shards").glob("*.tar"))) > 2
    folder, shards = open_dataset(labelled, split), open_dataset(tmp_path / "shards", split)
    assert content(shards) == content(folder)  # the carved part too
    assert shards.class_names == folder.class_names


def test_splits_are_packed_each_on_its_own(tmp_path: Path) -> None:
    for number, place in enumerate(["train/a", "train/b", "val/b"]):
        write(tmp_path / "set" / place / f"{number}.png", number)
    pack(tmp_path / "set", tmp_path / "shards")
    assert sorted(str(p.relative_to(tmp_path / "shards")) for p in (tmp_path / "shards").rglob("*.*")) == [
        "classes.json",
        "train/000000.tar",
        "val/000000.tar",
    ]
    for split in ("train", "val"):
        folder, shards = open_dataset(tmp_path / "set", split), open_dataset(tmp_path / "shards", split)
        assert content(shards) == content(folder)
        assert shards.class_names == ("a", "b")


def test_files_are_copied_as_they_are_and_the_bytes_repeat(labelled: Path, tmp_path: Path) -> None:
    (labelled / "class 1" / "bad.jpg").write_bytes(b"not an image")
    for out in ("one", "two"):
        pack(labelled, tmp_path / out)
    shards = [sorted((tmp_path / out).iterdir()) for out in ("one", "two")]
    assert [p.read_bytes() for p in shards[0]] == [p.read_bytes() for p in shards[1]]
    found = {}
    for path in shards[0][:-1]:
        with tarfile.open(path) as shard:
            assert path.stat().st_size < 20_000 + 3 * 10240  # the end of a tar file is padded
            found |= {member.name: shard.extractfile(member).read() for member in shard}
    files = {str(p.relative_to(labelled)): p.read_bytes() for p in labelled.rglob("*.*")}
    assert {name: data for name, data in found.items() if not name.endswith(".cls")} == files


def test_names_that_collide_stay_two_samples(tmp_path: Path) -> None:
    for number, name in enumerate(["a.png", "a.bmp", "b.v2.png", "b.v1.png", "ü/猫.png"]):
        write(tmp_path / "set" / name, number)
    pack(tmp_path / "set", tmp_path / "shards")
    packed = find_images(tmp_path / "shards").whole()
    assert sorted(pixels for _, _, pixels in content(packed)) == sorted(picture(n).tobytes() for n in range(5))
    assert "ü/猫" in packed.keys


def test_a_stopped_pack_leaves_nothing(labelled: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write(labelled / "class 2" / "zz.png").chmod(0)
    real = Path.read_bytes

    def fails_at_the_last(path: Path) -> bytes:
        if path.name == "zz.png":
            raise PermissionError(13, "Permission denied")
        return real(path)

    monkeypatch.setattr(Path, "read_bytes", fails_at_the_last)
    with pytest.raises(SystemExit):
        pack(labelled, tmp_path / "out" / "shards")
    assert list((tmp_path / "out").iterdir()) == []


def test_what_a_killed_pack_left_is_in_nobodys_way(labelled: Path, tmp_path: Path) -> None:
    write(tmp_path / ".shards.123.part" / "junk.png")
    pack(labelled, tmp_path / "shards")
    assert len(open_dataset(tmp_path / "shards", "train")) > 50
    assert not (tmp_path / "shards" / "junk.png").exists()
    assert not (tmp_path / ".shards.123.part").exists()


def test_the_layout_of_other_tools(tmp_path: Path) -> None:
    """Labels as .cls or .json, two dots in a name, members that are no images, folders and links between them."""
    first = {"000.png": png(0), "000.cls": b"2\n", "000.txt": b"a caption", "x/.hidden.png": b"", "README": b"?"}
    tar(tmp_path / "a-000.tar", first | {"001.seg.PNG": png(1), "001.json": b'{"label": 1, "w": 20}'})
    tar(tmp_path / "a-001.tar", {"000.png": png(2), "000.json": b'{"cls": 0}'})
    with tarfile.open(tmp_path / "a-001.tar", "a") as shard:
        link = tarfile.TarInfo("link.png")
        link.type, link.linkname = tarfile.SYMTYPE, "/etc/passwd"
        shard.addfile(link)
        folder = tarfile.TarInfo("folder.png")
        folder.type = tarfile.DIRTYPE
        shard.addfile(folder)
    (tmp_path / "classes.json").write_text(json.dumps(["a", "b", "c"]))
    for data in (tmp_path, tmp_path / "*.tar", tmp_path / "a-{000..001}.tar", tmp_path / "a-00[01].tar"):
        source = find_images(data).whole()
        assert [(label, pixels) for _, label, pixels in content(source)] == [
            (2, picture(0).tobytes()),
            (1, picture(1).tobytes()),
            (0, picture(2).tobytes()),
        ]
        assert source.class_names == ("a", "b", "c")
        assert source.key(0) != source.key(2)  # the same name in two shards
    assert len(find_images(tmp_path / "a-001.tar").whole()) == 1


def test_a_label_missing_is_no_labels(tmp_path: Path) -> None:
    tar(tmp_path / "a.tar", {"0.png": png(0), "0.cls": b"1", "1.png": png(1), "1.cls": b"dog"})
    source = find_images(tmp_path).open("train")
    assert source.class_names is None
    assert source.label(0) is None


def test_a_label_that_is_nested_too_deeply_is_none(tmp_path: Path) -> None:
    tar(tmp_path / "a.tar", {"0.png": png(0), "0.json": b"[" * 100_000})
    assert find_images(tmp_path / "a.tar").open("train").class_names is None


def test_no_path_in_a_shard_reaches_the_disk(tmp_path: Path) -> None:
    tar(tmp_path / "in" / "a.tar", {"../../escaped.png": png(0), f"{tmp_path}/absolute.png": png(1), "b.png": png(2)})
    before = sorted(tmp_path.rglob("*"))
    source = find_images(tmp_path / "in").open("train")
    assert [pixels for _, _, pixels in content(source)] == [picture(n).tobytes() for n in range(3)]
    assert sorted(tmp_path.rglob("*")) == before


def cut(path: Path) -> None:
    tar(path, {"a.png": png(0), "b.png": bytes(50_000)})
    path.write_bytes(path.read_bytes()[:20_000])


def endless(path: Path) -> None:
    """The second header sends a reader back to the first."""
    tar(path, {"a.txt": b""})
    back = tarfile.TarInfo("b.png")
    back.size = -1024
    path.write_bytes(path.read_bytes()[:512] + back.tobuf(tarfile.GNU_FORMAT) + bytes(1024))


@pytest.mark.parametrize(
    ("make", "data", "word"),
    [
        (endless, "a.tar", "negative"),
        (cut, "a.tar", "can't be read as a tar"),
        (lambda path: path.write_bytes(b"x" * 5000), "a.tar", "can't be read as a tar"),
        (lambda path: path.write_bytes(b""), "a.tar", "can't be read as a tar"),
        (lambda path: tar(path, {"a.txt": b"x"}), "a.tar", "no images"),
        (lambda path: tar(path, {"a.png": png(0)}), "{a..b}*.tar", "no shard"),
        (lambda path: tar(path, {"a.png": png(0)}), "b*.tar", "no shard"),
        (lambda path: tar(path, {"a.png": png(0)}), "a-{0..1}.tar", "no shard"),
        (lambda path: tar(path, {"a.png": png(0)}), "b.tar", "no folder"),
        (lambda path: tar(path, {"a.png": png(0)}), "a-{5..2}.tar", "no shard"),
        (lambda path: tar(path, {"a.png": png(0)}), "a-{0..999999999999999999}.tar", "no shard"),
        (lambda path: tar(path, {"a.png": png(0)}), "a-{0..%s}.tar" % ("9" * 5000), "too long"),
        (lambda path: tar(path, {"a.png": png(0), "a.cls": b"2147483647"}), "a.tar", "the label 2,147,483,647"),
    ],
)
def test_broken_shards_are_refused(make, data: str, word: str, tmp_path: Path) -> None:
    make(tmp_path / "a.tar")
    with pytest.raises(UserError, match=word):
        open_dataset(tmp_path / data, "train")


@pytest.mark.parametrize("names", ['["only one"]', "{}", "[1, 2]", "not JSON", "[" * 100_000, r'["\ud800", "b"]'])
def test_class_names_that_do_not_fit_are_refused(names: str, tmp_path: Path) -> None:
    tar(tmp_path / "a.tar", {"0.png": png(0), "0.cls": b"1"})
    (tmp_path / "classes.json").write_text(names)
    with pytest.raises(UserError, match=r"classes\.json"):
        find_images(tmp_path).open("train")


def test_sizes() -> None:
    assert [parse_size(text) for text in ("7", "2kB", "1.5 MB", "1GB", "1g")] == [7, 2000, 1_500_000, 10**9, 10**9]
    for text in ("", "GB", "-1GB", "0", "1GiB", "one", "9" * 5000):
        with pytest.raises(UserError, match="--shard-size"):
            parse_size(text)


@pytest.mark.parametrize(
    ("arguments", "word"),
    [
        (["pack", "none", "--out", "out"], "no folder"),
        (["pack", "set", "--out", "set"], "not empty"),
        (["pack", "set", "--out", "out", "--shard-size", "big"], "--shard-size"),
        (["pack", "shards", "--out", "out"], "holds shards"),
        (["pack", "empty", "--out", "out"], "no images"),
        (["pack", "set", "--out", "shards/a.tar"], "Not a directory"),
        (["check", "none"], "no folder"),
        (["check", "set", "--workers", "0"], "--workers"),
        (["check", "cifar10"], "--download"),
        (["pak"], "did you mean data pack?"),
        ([], "data"),
    ],
)
def test_bad_words_get_one_sentence(
    arguments: list[str],
    word: str,
    labelled: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    tar(tmp_path / "shards" / "a.tar", {"a.png": png(0)})
    (tmp_path / "empty").mkdir()
    monkeypatch.chdir(tmp_path)
    with pytest.raises(SystemExit) as stop:
        main(["data", *arguments])
    printed = capsys.readouterr()
    assert stop.value.code == 2
    assert word in printed.err
    assert printed.err.count("\n") == 1
    assert not (tmp_path / "out").exists()
