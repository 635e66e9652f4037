"""Verbs that measure a model: probe, evaluate, predict."""

import sys
import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import Literal

import tyro

from crate_mae.cli.arguments import Checkpoint, Data, checked_seed
from crate_mae.device import Device, pick_device
from crate_mae.errors import check_at_least
from crate_mae.models.shipped import shipped_names
from crate_mae.usable_path import usable


def probe(
    checkpoint: tyro.conf.Positional[Checkpoint],
    data: Data,
    *,
    data_root: Path | None = None,
    download: bool = False,
    layer: tyro.conf.UseAppendAction[tuple[Literal["all"] | int, ...]] = (),
    pool: Literal["mean", "cls", "both"] = "mean",
    untrained: bool = True,
    pixels: bool = False,
    out: Path | None = None,
    seed: int = 0,
    batch_size: int = 256,
    workers: int | None = None,
    device: Device = "auto",
) -> None:
    """Probe a frozen model: logistic regression and nearest neighbours on its features of labelled images.

    C is chosen on a validation split; the paper's protocol, the best C on the test set, is shown beside it. Features
    are kept in OUT/features and not computed again.

    Args:
        data_root: The folder of the named sets; data/ by default.
        download: Download a named set that is missing.
        layer: 0 for the embedding, l for the output of block l, -1 for the last after the final norm; all for each.
            May be repeated.
        pool: The mean over the patches, the class token, or both.
        untrained: Probe the same architecture with random weights too, which doubles the time.
        pixels: Probe the raw pixels too, at no more than 32 x 32.
        out: Folder for probe.json, the figures and the features; the default is probe/DATA in the checkpoint's folder,
            and runs/probe/NAME/DATA for a model that comes with crate-mae or from the Hub.
        seed: Seed of the random weights, and of the training images that choose C if there is no validation split.
        batch_size: Images at a time.
        workers: Processes that load images; the default is one for each processor on a GPU, and none on a CPU.
        device: Device to compute on; auto takes a GPU if there is one.
    """
    check_at_least("--batch-size", batch_size, 1)
    check_at_least("--workers", workers or 0, 0)
    checked_seed(seed)

    from rich.console import Console

    from crate_mae.data.checking import processors
    from crate_mae.evaluation.probe_model import ProbeSettings, run
    from crate_mae.features.extraction import Reader
    from crate_mae.models.zoo import load

    target = pick_device(device)
    model = load(checkpoint).to(target)
    if workers is None:
        workers = 0 if target.type == "cpu" else processors()
    settings = ProbeSettings(
        data,
        data_root,
        download,
        layers=chosen_layers(layer or (-1,), model.config.depth),
        pools=("cls", "mean") if pool == "both" else (pool,),
        untrained=untrained,
        pixels=pixels,
        seed=seed,
    )
    folder = out or probe_folder(checkpoint) / usable(data, "--data").resolve().name
    run(model, settings, folder, Reader(batch_size, workers, Console()))


def chosen_layers(words: Sequence[Literal["all"] | int], depth: int) -> tuple[int, ...]:
    """The numbers of the layers that ``--layer`` names; all stands for every layer of an encoder of that depth."""
    every = [*range(depth), -1]
    return tuple(number for word in words for number in (every if word == "all" else [int(word)]))


def probe_folder(checkpoint: str) -> Path:
    """The default folder for probes of a model: in its own folder if it has one."""
    if checkpoint not in shipped_names() and (folder := Path(checkpoint).expanduser()).is_dir():
        return folder / "probe"
    return Path("runs/probe") / checkpoint


def evaluate(
    checkpoint: tyro.conf.Positional[Checkpoint],
    data: Data,
    *,
    data_root: Path | None = None,
    download: bool = False,
    split: Literal["train", "val", "test", "all"] = "test",
    batch_size: int = 128,
    workers: int = 0,
    device: Device = "auto",
    out: Path | None = None,
) -> None:
    """Measure a fine-tuned classifier: accuracy with its interval, the worst classes, the most frequent confusions.

    The images need labels; classes are matched by name. The exit code is 1 if an image can't be read.

    Args:
        data_root: The folder of the named sets; data/ by default.
        download: Download a named set that is missing.
        split: Which images; all takes every image of a folder without splits.
        batch_size: Images at a time.
        workers: Processes that load images; 0 loads them in the main process.
        device: Device to compute on; auto takes a GPU if there is one.
        out: Write everything to this JSON file too.
    """
    check_at_least("--batch-size", batch_size, 1)
    check_at_least("--workers", workers, 0)

    import json

    from rich.console import Console

    from crate_mae.data.open import find_images
    from crate_mae.evaluation.accuracy import evaluate
    from crate_mae.models.zoo import load_classifier

    target = pick_device(device)
    model = load_classifier(checkpoint).to(target)
    images = find_images(data, data_root, download)
    source = images.whole() if split == "all" else images.split(split)
    if split in ("val", "test") and images.own == ("train",):
        warnings.warn(
            f"{data} has no splits: these are the images that training holds out for validation; --split all takes "
            "every image.",
            stacklevel=1,
        )
    if out:
        out.parent.mkdir(parents=True, exist_ok=True)
    marks = evaluate(model, source, batch_size=batch_size, workers=workers, console=Console(stderr=True))
    print(f"{checkpoint} on {data}, {split}", *marks.summary(), sep="\n")
    if out:
        asked = {"checkpoint": checkpoint, "data": data, "split": split}
        out.write_text(json.dumps(asked | marks.to_dict(), indent=1) + "\n")
        print(f"\nWrote {out}.")
    if marks.unreadable:
        print(f"crate-mae: {len(marks.unreadable)} of {len(source)} images can't be read.", file=sys.stderr)
        sys.exit(1)


def predict(
    images: tyro.conf.Positional[tuple[Path, ...]],
    checkpoint: Checkpoint,
    top: int = 5,
    *,
    batch_size: int = 128,
    workers: int = 0,
    device: Device = "auto",
    out: Path | None = None,
) -> None:
    """Classify images with a fine-tuned classifier; exit with code 1 if one can't be read.

    Args:
        images: Images, and folders with images at any depth.
        top: Number of the most probable classes to show.
        batch_size: Images at a time.
        workers: Processes that load images; 0 loads them in the main process.
        device: Device to compute on; auto takes a GPU if there is one.
        out: Write to this .csv or .json file instead of printing.
    """
    for option, value, least in (("--top", top, 1), ("--batch-size", batch_size, 1), ("--workers", workers, 0)):
        check_at_least(option, value, least)

    from rich.console import Console

    from crate_mae.data.folders import list_images
    from crate_mae.data.loader import Bad
    from crate_mae.data.source import Files
    from crate_mae.evaluation.predict import Prediction, check_suffix, predict, write_predictions
    from crate_mae.models.zoo import load_classifier
    from crate_mae.progress import progress

    source = Files(list_images(images))
    if out:
        check_suffix(out)
        out.parent.mkdir(parents=True, exist_ok=True)
    model = load_classifier(checkpoint).to(pick_device(device))
    results: list[Prediction | Bad] = []
    found = predict(model, source, top=top, batch_size=batch_size, workers=workers)
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
    unreadable = [each.reason for each in results if isinstance(each, Bad)]
    for reason in unreadable:
        warnings.warn(reason, stacklevel=1)
    if out:
        print(f"Wrote {out}: {len(results) - len(unreadable)} images.")
    if unreadable:
        print(f"crate-mae: {len(unreadable)} of {len(source)} images can't be read.", file=sys.stderr)
        sys.exit(1)
