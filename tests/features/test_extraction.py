import os
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

import crate_mae
from crate_mae.data.folders import Folder
from crate_mae.data.source import ArrayImages, Subset, fingerprint
from crate_mae.errors import UserError
from crate_mae.features import extraction as subject
from crate_mae.features.extraction import Reader, Which, describe, model_features
from tests.conftest import MAKES, small_model

QUIET = Reader(batch=4)


@pytest.fixture
def source() -> ArrayImages:
    """Eleven pictures of noise in two classes."""
    pixels = np.random.default_rng(0).integers(0, 256, (11, 12, 24, 3), dtype=np.uint8)
    return ArrayImages("noise", pixels, np.arange(11) % 2, ["a", "b"])


def test_one_pass_gives_every_layer_and_pool(model: crate_mae.MaskedAutoencoder, images: torch.Tensor) -> None:
    depth = model.config.depth
    wanted = [Which(layer, pool) for layer in [*range(depth + 1), -1] for pool in ("cls", "mean")]
    for which, values in describe(model, wanted, images).items():
        torch.testing.assert_close(values, model.features(images, which.layer, which.pool), rtol=0, atol=0)
    first = [Which(1, "mean")]
    torch.testing.assert_close(describe(model, first, images)[first[0]], model.features(images, 1, "mean"))


def test_every_image_is_described_in_its_place(source: ArrayImages) -> None:
    model = small_model("crate_mae_tiny")
    model.train()
    (found,) = model_features(model, source, [Which(-1, "mean")], reader=QUIET).values()
    assert model.training
    one_by_one = [model.features(model.preprocess(source.read(index))[None], pool="mean")[0] for index in range(11)]
    np.testing.assert_allclose(found.values, torch.stack(one_by_one).detach(), rtol=1e-5, atol=1e-6)
    assert found.labels.tolist() == source.labels.tolist()
    assert found.values.dtype == np.float32


def test_layers_are_counted_from_either_end(source: ArrayImages) -> None:
    model = small_model("crate_mae_tiny")
    both = model_features(model, source, [Which(-2, "cls"), Which(1, "cls")], reader=QUIET)
    assert list(both) == [Which(1, "cls")]
    with pytest.raises(UserError, match="no layer 3 in 2"):
        model_features(model, source, [Which(3, "cls")], reader=QUIET)


@pytest.fixture
def passes(monkeypatch: pytest.MonkeyPatch) -> list[set[Which]]:
    """What each pass over the images computed."""
    made: list[set[Which]] = []
    real = subject.extract

    def counted(*arguments, **named):
        found = real(*arguments, **named)
        made.append(set(found))
        return found

    monkeypatch.setattr(subject, "extract", counted)
    return made


def test_what_is_in_the_cache_is_not_computed_again(
    source: ArrayImages, tmp_path: Path, passes: list[set[Which]]
) -> None:
    model = small_model("crate_mae_tiny")
    one, two = Which(1, "cls"), Which(-1, "mean")
    first = model_features(model, source, [one], cache=tmp_path, reader=QUIET)
    again = model_features(model, source, [one, two], cache=tmp_path, reader=QUIET)
    last = model_features(model, source, [two, one], cache=tmp_path, reader=QUIET)
    assert passes == [{one}, {two}]
    assert list(last) == [two, one]
    for found in (again, last):
        np.testing.assert_array_equal(found[one].values, first[one].values)
        np.testing.assert_array_equal(found[one].labels, first[one].labels)
    assert len(list(tmp_path.iterdir())) == 2  # nothing is left aside


def test_another_model_or_another_set_has_another_place(
    source: ArrayImages, tmp_path: Path, passes: list[set[Which]]
) -> None:
    model = small_model("crate_mae_tiny")
    models = [model, small_model("crate_mae_tiny", lambda_=0.9), small_model("crate_mae_tiny", mean=(0.1, 0.2, 0.3))]
    changed = small_model("crate_mae_tiny")
    with torch.no_grad():
        changed.encoder.blocks[1].ista.dictionary[0, 0] += 1
    other = ArrayImages("noise", 255 - source.images, source.labels, ["a", "b"])
    relabelled = ArrayImages("noise", source.images, 1 - source.labels, ["a", "b"])
    renamed = ArrayImages("noise", source.images, source.labels, ["c", "d"])
    shorter = Subset(source, np.arange(10))
    for each in [*models, changed]:
        model_features(each, source, [Which(-1, "cls")], cache=tmp_path, reader=QUIET)
    for part in (other, relabelled, renamed, shorter):
        model_features(model, part, [Which(-1, "cls")], cache=tmp_path, reader=QUIET)
    assert len(passes) == 8


def test_a_damaged_cache_is_computed_again(source: ArrayImages, tmp_path: Path, passes: list[set[Which]]) -> None:
    model, which = small_model("crate_mae_tiny"), Which(-1, "cls")
    good = model_features(model, source, [which], cache=tmp_path, reader=QUIET)[which]
    (file,) = tmp_path.iterdir()
    whole = file.read_bytes()
    middle = whole.index(good.values[5].tobytes()[:32])
    damages = [b"", b"no file of ours", whole[: len(whole) // 2], whole[:-1]]
    damages += [whole[:middle] + bytes([whole[middle] ^ 1]) + whole[middle + 1 :]]  # one bit of one number
    for damaged in damages:
        file.write_bytes(damaged)
        np.testing.assert_array_equal(
            model_features(model, source, [which], cache=tmp_path, reader=QUIET)[which].values, good.values
        )
    assert len(passes) == 1 + len(damages)
    assert file.read_bytes() == whole


def test_a_write_that_fails_leaves_nothing(
    source: ArrayImages, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "replace", full)
    with pytest.raises(OSError, match="No space"):
        model_features(small_model("crate_mae_tiny"), source, [Which(-1, "cls")], cache=tmp_path, reader=QUIET)
    assert not list(tmp_path.iterdir())


def test_the_fingerprint_moves_with_the_set(tmp_path: Path) -> None:
    def write(folder: Path, seed: int) -> Folder:
        for number in range(3):
            file = folder / "cat" / f"{number}.png"
            file.parent.mkdir(parents=True, exist_ok=True)
            Image.fromarray(np.random.default_rng(seed + number).integers(0, 256, (4, 4), dtype=np.uint8)).save(file)
        return Folder(folder, ["cat"])

    assert fingerprint(write(tmp_path / "here", 0)) == fingerprint(write(tmp_path / "there", 0))
    assert fingerprint(write(tmp_path / "here", 0)) != fingerprint(write(tmp_path / "elsewhere", 5))


def test_an_unreadable_image_has_the_label_of_the_one_in_its_place(tmp_path: Path) -> None:
    for number, name in enumerate(["a", "b", "b"]):
        (tmp_path / name).mkdir(exist_ok=True)
        Image.new("RGB", (24, 12), (80 * number, 0, 0)).save(tmp_path / name / f"{number}.png")
    (tmp_path / "a" / "0.png").write_bytes(b"damaged")
    (found,) = model_features(
        MAKES["vit, all"](), Folder(tmp_path, ["a", "b"]), [Which(-1, "cls")], reader=QUIET
    ).values()
    assert found.labels.tolist() == [1, 1, 1]
    np.testing.assert_array_equal(found.values[0], found.values[1])
