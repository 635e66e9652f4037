"""Verbs that measure a model: probe, evaluate, predict."""

import sys
import warnings
from pathlib import Path
from typing import Literal

import tyro

from crate_mae.cli.arguments import Data, checked_seed
from crate_mae.device import Device, pick_device
from crate_mae.errors import UserError


def probe(
    checkpoint: tyro.conf.Positional[Path],
    data: Data,
    data_root: Path | None = None,
    download: bool = False,
    layer: tyro.conf.UseAppendAction[tuple[Literal["all"] | int, ...]] = (),
    pool: Literal["cls", "mean", "both"] = "cls",
    pixels: bool = False,
    out: Path | None = None,
    seed: int = 0,
    batch: int = 256,
    workers: int | None = None,
    device: Device = "auto",
) -> None:
    """Probe a frozen model: logistic regression and nearest neighbours on its features of labelled images.

    C is chosen on a validation split; the paper's protocol, the best C on the test set, stands beside it. Features are
    kept in OUT/features and not computed again.

    Args:
        checkpoint: A checkpoint folder, or a run folder.
        data_root: Where named sets are; data/ unless given.
        download: Fetch a named set that is not there.
        layer: 0 for the embedding, l for the output of block l, -1 for the last; all for each. May be given again.
        pool: The class token, the mean over the patches, or both.
        pixels: Probe the raw pixels too, at no more than 32 x 32.
        out: Folder for probe.json, the figures and the features; probe/DATA in the checkpoint's folder unless given.
        seed: Seed of the training images that choose C, where the set has no validation split.
        batch: Images at a time.
        workers: Processes that read images; as many as there are processors where a GPU computes, else none.
        device: Where to compute; auto takes a GPU where there is one.
    """
    from rich.console import Console

    from crate_mae.data.checking import processors
    from crate_mae.evaluation.probe_model import run
    from crate_mae.features.extraction import Pool, Reader
    from crate_mae.models.zoo import load

    if batch < 1:
        raise UserError(f"--batch is {batch}; choose a whole number from 1 up.")
    if workers is not None and workers < 0:
        raise UserError(f"--workers is {workers}; choose a whole number from 0 up.")
    target = pick_device(device)
    model = load(checkpoint).to(target)
    if workers is None:
        workers = 0 if target.type == "cpu" else processors()
    every = [*range(model.config.depth), -1]
    layers = [number for word in layer or (-1,) for number in (every if word == "all" else [int(word)])]
    pools: tuple[Pool, ...] = ("cls", "mean") if pool == "both" else (pool,)
    folder = out or checkpoint / "probe" / Path(data).resolve().name
    reader = Reader(batch, workers, Console())
    run(model, data, data_root, download, layers, pools, pixels, folder, checked_seed(seed), reader)


def evaluate(
    checkpoint: tyro.conf.Positional[Path],
    data: str,
    data_root: Path | None = None,
    download: bool = False,
    split: Literal["train", "val", "test", "all"] = "test",
    batch: int = 128,
    workers: int = 0,
    device: Device = "auto",
    out: Path | None = None,
) -> None:
    """How good a fine-tuned classifier is: accuracy with its interval, the worst classes, what is taken for what.

    Args:
        checkpoint: The classifier: a checkpoint folder, or a run folder and then its best checkpoint.
        data: Images with labels: a name, a folder of class folders, or tar shards. Classes are matched by name.
        data_root: Where named sets are; data/ unless given.
        download: Fetch a named set that is not there.
        split: Which images; all takes every one of a folder without splits.
        batch: Images at a time.
        workers: Processes that read images; 0 reads in the same one.
        device: Where to compute; auto takes a GPU where there is one.
        out: Write everything to this JSON file too.
    """
    import json

    from rich.console import Console

    from crate_mae.data.open import find_splits, open_dataset, open_whole
    from crate_mae.evaluation.accuracy import evaluate
    from crate_mae.models.zoo import load_classifier

    target = pick_device(device)
    model = load_classifier(checkpoint).to(target)
    if split == "all":
        source = open_whole(data, data_root, download)
    else:
        source = open_dataset(data, split, data_root, download)
        if split != "train" and find_splits(data, data_root).keys() == {"train"}:
            warnings.warn(
                f"{data} has no splits: these are the images that training sets aside for validation; --split all "
                "takes every one.",
                stacklevel=1,
            )
    if out:
        out.parent.mkdir(parents=True, exist_ok=True)
    marks = evaluate(model, source, batch, workers, Console(stderr=True))
    print(f"{checkpoint} on {data}, {split}", *marks.summary(), sep="\n")
    if out:
        asked = {"checkpoint": str(checkpoint), "data": data, "split": split}
        out.write_text(json.dumps(asked | marks.to_dict(), indent=1) + "\n")
        print(f"\nWrote {out}.")


def predict(
    images: tyro.conf.Positional[tuple[Path, ...]],
    checkpoint: Path,
    top: int = 5,
    batch: int = 128,
    workers: int = 0,
    device: Device = "auto",
    out: Path | None = None,
) -> None:
    """What a fine-tuned classifier takes pictures for; exit with code 1 where one can't be read.

    Args:
        images: Pictures, and folders with pictures at any depth.
        checkpoint: The classifier: a checkpoint folder, or a run folder and then its best checkpoint.
        top: So many of the likeliest classes.
        batch: Pictures at a time.
        workers: Processes that read pictures; 0 reads in the same one.
        device: Where to compute; auto takes a GPU where there is one.
        out: Write to this .csv or .json file instead of printing.
    """
    from rich.console import Console

    from crate_mae.data.loader import Bad
    from crate_mae.evaluation.predict import Listed, Prediction, check_suffix, predict, write_predictions
    from crate_mae.models.zoo import load_classifier
    from crate_mae.progress import progress

    source = Listed(images)
    if out:
        check_suffix(out)
        out.parent.mkdir(parents=True, exist_ok=True)
    model = load_classifier(checkpoint).to(pick_device(device))
    results: list[Prediction | Bad] = []
    found = predict(model, source, top, batch, workers)
    if out:
        with progress("predict", len(source), Console(stderr=True)) as advance:
            for each in found:
                results.append(each)
                advance()
        write_predictions([each for each in results if isinstance(each, Prediction)], out)
    else:
        for each in found:
            results.append(each)
            if isinstance(each, Prediction):
                print(each)
    bad = [each.reason for each in results if isinstance(each, Bad)]
    for reason in bad:
        warnings.warn(reason, stacklevel=1)
    if out:
        print(f"Wrote {out}: {len(results) - len(bad)} images.")
    if bad:
        print(f"crate-mae: {len(bad)} of {len(source)} images can't be read.", file=sys.stderr)
        sys.exit(1)
