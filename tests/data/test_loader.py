"""The same batches for any number of workers and processes, from any step on; each sample once an epoch."""

import os
import subprocess
import sys
from collections import Counter
from itertools import pairwise
from pathlib import Path

import pytest
import torch

from crate_mae import UserError
from crate_mae.data.folders import Folder
from crate_mae.data.loader import (
    TOLERATED,
    GlobalBatches,
    LabelledSamples,
    epoch_order,
    evaluation_batches,
    training_batches,
)
from crate_mae.data.masked import MaskedBatch, MaskedSamples
from crate_mae.data.open import find_images
from crate_mae.data.transforms import Augmentation, Evaluation, sample_generator
from crate_mae.tokens import random_mask
from tests.data.conftest import write

STATISTICS = ((0.5,) * 3, (0.25,) * 3)


def samples(folder: Path, seed: int = 3) -> MaskedSamples:
    return MaskedSamples(find_images(folder).open("train"), Augmentation((8, 12), 3, *STATISTICS), 6, 0.5, seed)


def same(one: MaskedBatch, other: MaskedBatch) -> bool:
    return all(
        torch.equal(getattr(one, name), getattr(other, name)) for name in ("images", "labels", "masks", "indices")
    )


def keys(batch: int, steps: range, seed: int = 0, count: int = 10, **place: int) -> list[list[tuple[int, int]]]:
    return list(GlobalBatches(count, batch, seed, steps, **place))


@pytest.mark.parametrize("batch", [1, 3, 4, 10, 25])
def test_each_sample_comes_once_an_epoch(batch: int) -> None:
    """Also where the batch does not divide the set, and where it is larger."""
    drawn = [key for step in keys(batch, range(100 // batch)) for key in step]
    assert all(len(step) == batch for step in keys(batch, range(100 // batch)))
    assert [epoch for epoch, _ in drawn] == sorted(epoch for epoch, _ in drawn)
    for epoch in range(len(drawn) // 10):
        own = [index for number, index in drawn if number == epoch]
        assert sorted(own) == list(range(10))
        assert own == epoch_order(10, 0, epoch).tolist()
    assert set(Counter(drawn).values()) == {1}


def test_epochs_and_seeds_differ() -> None:
    orders = {tuple(epoch_order(10, seed, epoch).tolist()) for seed in range(3) for epoch in range(3)}
    assert len(orders) == 9


@pytest.mark.parametrize("world", [1, 2, 4])
@pytest.mark.parametrize("accumulation", [1, 2])
def test_processes_and_parts_share_the_global_batch(world: int, accumulation: int) -> None:
    whole = keys(8, range(7))
    parts = [keys(8, range(7), rank=rank, world=world, accumulation=accumulation) for rank in range(world)]
    assert all(len(part) == 7 * accumulation for part in parts)
    for step in range(7):
        mine = slice(step * accumulation, (step + 1) * accumulation)
        assert [key for part in parts for chunk in part[mine] for key in chunk] == whole[step]


def test_it_starts_at_any_step() -> None:
    whole = keys(4, range(20))
    for start in (0, 1, 7, 19):
        assert keys(4, range(start, 20)) == whole[start:]


def test_a_batch_that_can_not_be_shared_is_refused() -> None:
    with pytest.raises(UserError, match="multiple of 6"):
        keys(8, range(1), world=3, accumulation=2)
    with pytest.raises(UserError, match="batch of 0"):
        keys(0, range(1))


def test_it_is_refused_before_the_first_step(labelled: Path) -> None:
    with pytest.raises(UserError, match="multiple of 2"):
        training_batches(samples(labelled), 7, range(1), world=2)


def test_batches_do_not_depend_on_workers_or_processes(labelled: Path) -> None:
    data = samples(labelled)
    before = torch.get_rng_state()
    whole = list(training_batches(data, 8, range(5, 12)))  # over the end of an epoch
    assert torch.equal(torch.get_rng_state(), before)
    assert whole[0].images.shape == (8, 3, 8, 12)
    assert whole[0].masks.sum(1).tolist() == [3] * 8
    for workers in (1, 2):
        loaded = list(training_batches(data, 8, range(5, 12), workers=workers))
        assert torch.equal(torch.get_rng_state(), before)
        assert len(loaded) == 7
        assert all(same(one, other) for one, other in zip(whole, loaded, strict=True))
    halves = [list(training_batches(data, 8, range(5, 12), rank=rank, world=2)) for rank in range(2)]
    for step, batch in enumerate(whole):
        for name in ("images", "labels", "masks", "indices"):
            joined = torch.cat([getattr(half[step], name) for half in halves])
            assert torch.equal(joined, getattr(batch, name))
    resumed = list(training_batches(data, 8, range(9, 12)))
    assert all(same(one, other) for one, other in zip(whole[4:], resumed, strict=True))


def test_another_process_draws_the_same(labelled: Path, tmp_path: Path) -> None:
    """A fresh interpreter with another hash seed and other global generators."""
    script = f"""
import sys, torch
from pathlib import Path
sys.path.insert(0, {str(Path(__file__).parents[2])!r})
from tests.data.test_loader import samples
from crate_mae.data.loader import training_batches
torch.manual_seed(77)
(batch,) = training_batches(samples(Path({str(labelled)!r})), 16, range(9, 10))
torch.save([batch.images, batch.labels, batch.masks, batch.indices], {str(tmp_path / "batch.pt")!r})
"""
    environment = os.environ | {"PYTHONHASHSEED": "5"}
    subprocess.run([sys.executable, "-c", script], check=True, env=environment)
    (own,) = training_batches(samples(labelled), 16, range(9, 10))
    for mine, theirs in zip(
        [own.images, own.labels, own.masks, own.indices], torch.load(tmp_path / "batch.pt"), strict=True
    ):
        assert torch.equal(mine, theirs)


def test_masks_and_augmentation_change_with_epoch_seed_and_sample_alone(labelled: Path) -> None:
    data = samples(labelled)
    first, again = data[0, 7], data[0, 7]
    assert torch.equal(first.image, again.image)
    assert torch.equal(data.mask((0, 7)), samples(labelled).mask((0, 7)))
    variants = [first, data[1, 7], samples(labelled, seed=4)[0, 7]]
    for one, other in pairwise(variants):
        assert not torch.equal(one.image, other.image)
    masks = {tuple(data.mask((epoch, index)).tolist()) for epoch in range(4) for index in range(10)}
    assert len(masks) > 12  # of 20 possible ones
    plain = MaskedSamples(data.source, Evaluation((8, 12), 3, *STATISTICS), 6, 0.5, seed=3)
    assert torch.equal(plain.mask((0, 7)), data.mask((0, 7)))


def test_the_augmentation_is_drawn_after_the_mask_from_the_same_generator(labelled: Path) -> None:
    """So that the batches of a run are those of every version before."""
    data = samples(labelled)
    generator = sample_generator(3, 1, 7)
    mask = random_mask(1, 6, 0.5, generator)[0]
    assert torch.equal(data.mask((1, 7)), mask)
    assert torch.equal(data[1, 7].image, data.transform(data.source.encoded(7), generator))
    batch = data.batch([data[1, 7], data[0, 2]])
    assert torch.equal(batch.masks, torch.stack([mask, data.mask((0, 2))]))
    assert batch.given is batch.masks


def test_without_masks_there_are_images_and_labels_alone(labelled: Path) -> None:
    data = LabelledSamples(find_images(labelled).whole(), Augmentation((8, 12), 3, *STATISTICS), seed=3)
    (batch,) = training_batches(data, 4, range(1))
    assert batch.given is batch.labels
    assert not hasattr(batch, "masks")
    sample = data[1, 7]
    assert torch.equal(sample.image, data.transform(data.source.encoded(7), sample_generator(3, 1, 7)))


def test_evaluation_sees_each_once_and_always_the_same(labelled: Path) -> None:
    data = MaskedSamples(find_images(labelled).open("train"), Evaluation((8, 12), 3, *STATISTICS), 6)
    batches = list(evaluation_batches(data, 25))
    assert [len(batch.indices) for batch in batches] == [25, 25, 10]
    assert torch.cat([batch.indices for batch in batches]).tolist() == list(range(60))
    assert all(same(one, other) for one, other in zip(batches, evaluation_batches(data, 25, workers=2), strict=True))
    parts = [
        index
        for rank in range(3)
        for b in evaluation_batches(data, 25, rank=rank, world=3)
        for index in b.indices.tolist()
    ]
    assert sorted(parts) == list(range(60))


def test_without_labels_they_are_minus_one(tmp_path: Path) -> None:
    write(tmp_path / "a.png")
    (batch,) = training_batches(
        LabelledSamples(Folder(tmp_path, None), Evaluation((8, 12), 3, *STATISTICS)), 3, range(1)
    )
    assert batch.labels.tolist() == [-1] * 3


def spoil(folder: Path, numbers: list[int]) -> None:
    for number in numbers:
        (folder / f"class {number % 3}" / f"{number:02d}.png").write_bytes(b"no image")


@pytest.mark.parametrize("workers", [0, 2])
def test_an_unreadable_image_is_replaced_named_and_counted_once(
    workers: int, labelled: Path, caplog: pytest.LogCaptureFixture
) -> None:
    whole = samples(labelled)
    good = list(training_batches(whole, 6, range(20)))
    spoil(labelled, [0, 3, 59])  # two neighbours in the order of the folder, and the last one
    found = list(training_batches(whole, 6, range(20), workers=workers))
    place = {Path(whole.source.name(index)).stem: index for index in range(60)}
    bad = {place["00"], place["03"], place["59"]}
    stand_in = {place["00"]: place["06"], place["03"]: place["06"], place["59"]: 0 if place["59"] == 59 else None}
    for before, after in zip(good, found, strict=True):
        assert torch.equal(before.indices, after.indices)
        assert torch.equal(before.masks, after.masks)
        for row, index in enumerate(before.indices.tolist()):
            if index not in bad:
                assert torch.equal(before.images[row], after.images[row])
            elif stand_in[index] != 0:
                assert after.labels[row] == whole.source.label(stand_in[index])
                assert not torch.equal(before.images[row], after.images[row])
    assert {entry.index for batch in found for entry in batch.bad} == bad
    messages = [record.getMessage() for record in caplog.records if record.name == "crate_mae.data"]
    assert len(messages) == 3  # though two epochs went by
    for name in ("00.png", "03.png", "59.png"):
        assert sum(name in message for message in messages) == 1


@pytest.mark.parametrize("workers", [0, 1])
def test_too_many_stop_the_run_with_their_names(workers: int, labelled: Path) -> None:
    spoil(labelled, [0, 7, 14, 21, 28, 35, 42, 49, 56, 13])
    with pytest.raises(UserError) as caught:
        list(training_batches(samples(labelled), 6, range(40), workers=workers))
    assert "1.0% are allowed" in str(caught.value)
    assert "crate-mae data check" in str(caught.value)
    assert str(caught.value).count(".png") == TOLERATED
    assert "Traceback" not in str(caught.value)
    assert len(list(training_batches(samples(labelled), 6, range(40), max_bad=0.2))) == 40


@pytest.mark.parametrize("workers", [0, 1])
def test_nothing_readable_stops_at_once(workers: int, tmp_path: Path) -> None:
    for number in range(4):
        (tmp_path / f"{number}.png").write_bytes(b"no image")
    data = LabelledSamples(Folder(tmp_path, None), Evaluation((8, 12), 3, *STATISTICS))
    with pytest.raises(UserError, match="4 of about 2 images can't be read"):
        next(training_batches(data, 2, range(5), workers=workers, max_bad=1.0))
