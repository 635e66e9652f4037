"""Verbs that run a model on images: complete, embed."""

import sys
from pathlib import Path
from typing import Literal

import tyro

from crate_mae.cli.arguments import CheckpointOrDefault, Data, checked_seed
from crate_mae.device import Device, pick_device
from crate_mae.errors import UserError, check_at_least
from crate_mae.models.shipped import default_checkpoint


def complete(
    images: tyro.conf.Positional[tuple[Path, ...]],
    out: Path,
    checkpoint: CheckpointOrDefault = None,
    *,
    rectangle: tuple[float, float, float, float] | None = None,
    mask: Path | None = None,
    mask_ratio: float | None = None,
    seed: int | None = None,
    sheet: Path | None = None,
    device: Device = "auto",
) -> None:
    """Complete a region of a picture and write the picture at its own size; all other pixels stay as they are.

    The region is a rectangle (--rectangle), what another picture marks (--mask), or random cells (--mask-ratio and
    --seed); the same for every picture. The model sees the region with as much of the picture around it; a long or
    large region is covered by several overlapping tiles. A picture that can't be read is reported, the others are
    completed, and the exit code is 1.

    Args:
        images: Pictures, and folders with pictures at any depth.
        out: The PNG or JPEG to write, by its suffix; a folder for several pictures, with a PNG for each.
        rectangle: LEFT TOP RIGHT BOTTOM as fractions of the width and height: 0.25 0.25 0.75 0.75 is the middle.
        mask: A mask image of any size, stretched over the whole picture: if any of its pixels is transparent, its
            opaque ones are completed, otherwise its white ones (at least half bright).
        mask_ratio: Fraction of the picture to mask at random, in cells of the size of a patch; the default is 0.75.
        seed: Seed of the random mask; the default is 0.
        sheet: Draw masked, completed and original side by side to this file; to a folder for several pictures.
        device: Device to compute on; auto takes a GPU if there is one.
    """
    checkpoint = checkpoint or default_checkpoint()
    ways = {"--mask-ratio": mask_ratio, "--mask": mask, "--rectangle": rectangle}
    chosen = [name for name, value in ways.items() if value is not None]
    if len(chosen) > 1:
        raise UserError(f"{' and '.join(chosen)} each say what is masked; give one of them.")
    if seed is not None and (mask or rectangle):
        raise UserError(f"--seed goes with a random mask, not with {chosen[0]}.")
    seed = checked_seed(0 if seed is None else seed)

    from rich.console import Console

    from crate_mae.completion.command import jobs, planner, run
    from crate_mae.models.zoo import load_autoencoder

    found = jobs(images, out, sheet, mask)
    model = load_autoencoder(checkpoint).to(pick_device(device))
    plan_for = planner(model, rectangle, mask, 0.75 if mask_ratio is None else mask_ratio, seed)
    if not run(model, found, plan_for, Console(stderr=True)):
        sys.exit(1)


def embed(
    data: tyro.conf.Positional[Data],
    out: Path,
    checkpoint: CheckpointOrDefault = None,
    *,
    split: Literal["train", "val", "test"] | None = None,
    data_root: Path | None = None,
    download: bool = False,
    layer: int = -1,
    pool: Literal["cls", "mean"] = "mean",
    batch_size: int = 64,
    workers: int = 0,
    device: Device = "auto",
) -> None:
    """Write the features of every image of a folder to one file: path, label where there is one, feature.

    Stop it at any time: the same command resumes it and gives the same file. Images that can't be read are listed and
    left out, and the exit code is 1.

    Args:
        out: A .parquet file (columns path, label, feature) or an .npz file (arrays paths, labels, features).
        split: The split to take images from, if the set has several.
        data_root: The folder of the named sets; data/ by default.
        download: Download a named set that is missing.
        layer: 0 for the embedding, l for the output of block l, -1 for the last.
        pool: The class token, or the mean over the patches.
        batch_size: Images at a time.
        workers: Processes that load images; 0 loads them in the main process.
        device: Device to compute on; auto takes a GPU if there is one.
    """
    checkpoint = checkpoint or default_checkpoint()
    check_at_least("--batch-size", batch_size, 1)
    check_at_least("--workers", workers, 0)

    from rich.console import Console

    from crate_mae.data.open import find_images
    from crate_mae.features.embed import embed
    from crate_mae.features.extraction import Reader, Which
    from crate_mae.models.zoo import load

    images = find_images(data, data_root, download)
    if split is None and len(images.own) > 1:
        raise UserError(f"{data} has the splits {', '.join(images.own)}; choose one of them with --split.")
    if split is not None and split not in images.own:
        raise UserError(f"{data} has no split {split}; it has {', '.join(images.own)}.")
    source = images.open(split or images.own[0])
    model = load(checkpoint).to(pick_device(device))
    reader = Reader(batch_size, workers, Console(stderr=True))
    out.parent.mkdir(parents=True, exist_ok=True)
    written = embed(model, source, Which(layer, pool), out, reader, checkpoint)
    verb = f"{out} is complete already" if written.before else f"Wrote {out}"
    print(f"{verb}: {written.count} images, {model.config.dim} numbers each.")
    for reason in written.bad:
        print(f"crate-mae: note: {reason}", file=sys.stderr)
    if written.bad:
        print(f"crate-mae: {len(written.bad)} of {len(source)} images can't be read.", file=sys.stderr)
        sys.exit(1)
