"""``crate-mae complete``: regions of pictures completed, each picture written at its own size."""

import os
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from PIL import Image
from rich.console import Console

from crate_mae import figures, image_files
from crate_mae.analysis.completed_images import MASKED_COLOUR
from crate_mae.completion.inpaint import BATCH, Filled, inpaint
from crate_mae.completion.mask_regions import (
    Rectangle,
    check_rectangle,
    read_marks,
    region_by_picture,
    region_by_rectangle,
)
from crate_mae.completion.patches import Plan
from crate_mae.completion.photo import Photo, check_size, format_of, read_photo, write_photo
from crate_mae.completion.random_cells import plan_random
from crate_mae.completion.tiles import plan_region
from crate_mae.data.folders import SUFFIXES, list_images
from crate_mae.errors import UserError
from crate_mae.models.autoencoder import MaskedAutoencoder
from crate_mae.progress import progress
from crate_mae.settings import Size
from crate_mae.tokens import masked_count
from crate_mae.usable_path import printable

COARSE = 16
"""If a pixel of the model covers more than this number of the picture's along a side, a note says so."""
LARGE = 1_000_000
"""Pixels of a region whose seam takes seconds."""
PANEL = 640
"""The longer side of a panel of the sheet, in pixels."""

Planner = Callable[[Size], Plan]
"""What to complete of a picture of this size, and by which tiles."""


def planner(
    model: MaskedAutoencoder, rectangle: Rectangle | None, mask: Path | None, ratio: float, seed: int
) -> Planner:
    """Plans for the region that a rectangle or another picture marks; for random cells if neither is given."""
    config = model.config
    if rectangle:
        check_rectangle(rectangle)
        return lambda size: plan_region(region_by_rectangle(rectangle, size), config.image_size, config.grid)
    if mask:
        marks = read_marks(mask)
        return lambda size: plan_region(region_by_picture(marks, size), config.image_size, config.grid)

    masked_count(model.num_patches, ratio)  # refuses a ratio outside [0, 1]

    def random(size: Size) -> Plan:
        generator = torch.Generator().manual_seed(seed)  # the mask of a picture does not depend on the others
        return plan_random(size, config.image_size, config.grid, ratio, generator)

    return random


@dataclass(frozen=True)
class Job:
    """A picture to read, and where its completion and its sheet go."""

    picture: Path
    out: Path
    sheet: Path | None


def jobs(given: Sequence[Path], out: Path, sheet: Path | None, mask: Path | None = None) -> list[Job]:
    """One picture goes to a file; several, and those below folders, to a PNG for each in a folder. So do their sheets.

    Nothing is loaded or written here: what can't work is an error before any work is done.
    """
    files = list_images(given)
    if len(given) == 1 and not given[0].is_dir():
        format_of(out)
        for name, file in (("--out", out), ("--sheet", sheet)):
            if file is not None and file.is_dir():
                raise UserError(f"{name} {printable(str(file))} is a folder; name a file in it.")
        found = [Job(files[0], out, sheet)]
    else:
        for name, folder in (("--out", out), ("--sheet", sheet)):
            if folder is not None:
                _check_folder(name, folder, files)
        found = [
            Job(file, out / name, sheet / name if sheet else None)
            for file, name in zip(files, names(files), strict=True)
        ]
    _keep_apart(found, [] if mask is None else [mask])
    return found


def _check_folder(option: str, folder: Path, files: Sequence[Path]) -> None:
    """Refuse a file, and a folder of pictures that are read: other pictures there may have the names of the results."""
    named = f"{option} {printable(str(folder))}"
    if folder.is_dir():
        if any(file.parent.resolve() == folder.resolve() for file in files):
            raise UserError(f"{named} holds pictures that are to be completed; name another folder.")
    elif folder.exists() or folder.suffix.lower() in SUFFIXES:
        kind = "is a file" if folder.exists() else "looks like a file"
        raise UserError(f"{named} {kind}, and {len(files)} pictures need a folder; name a folder.")


def _keep_apart(found: Sequence[Job], read: Sequence[Path]) -> None:
    """No picture that is read is overwritten, and no completion by a sheet."""
    taken = {path.resolve() for path in [*read, *(job.picture for job in found)]}
    for place in (place for job in found for place in (job.out, job.sheet) if place):
        if place.resolve() in taken:
            raise UserError(
                f"{printable(str(place))} would be overwritten, and it is needed; choose another --out or --sheet."
            )
        taken.add(place.resolve())


def names(files: Sequence[Path]) -> Iterator[str]:
    """A PNG's name for each file: its own, followed by a number where an earlier file has the same."""
    taken: set[str] = set()
    for file in files:
        stem, number = os.path.splitext(printable(file.name))[0], 1
        while (name := f"{stem}.png" if number == 1 else f"{stem}-{number}.png") in taken:
            number += 1
        taken.add(name)
        yield name


# --- the work ---


def run(model: MaskedAutoencoder, found: Sequence[Job], plan_for: Planner, console: Console) -> bool:
    """Complete every picture, and return whether all were completed. A note gives the reason for one that was not."""
    errors: list[float] = []
    noted = False
    with progress("complete", len(found), console) if len(found) > 1 else nullcontext() as advance:
        for job in found:
            if (opened := _open(job, plan_for, len(found) == 1)) is not None:
                photo, plan = opened
                if not noted and (note := far_from(model, photo, plan)):
                    warnings.warn(note, stacklevel=1)
                    noted = True
                filled = _complete(model, photo, plan, console if advance is None else None)
                _write(job, photo, plan, filled)
                errors.append(filled.error)
                if len(found) == 1:
                    print(f"Wrote {job.out}: {describe(photo, plan)}, error {filled.error:.4f}.")
            if advance:
                advance()
    bad = len(found) - len(errors)
    if len(found) > 1 and errors:
        mean = sum(errors) / len(errors)
        print(f"Wrote {len(errors)} pictures to {found[0].out.parent}: mean error {mean:.4f}.")
    if bad:
        console.print(f"crate-mae: {bad} of {len(found)} pictures can't be completed.", highlight=False, soft_wrap=True)
    return not bad


def _open(job: Job, plan_for: Planner, alone: bool) -> tuple[Photo, Plan] | None:
    """A picture and its plan; None, with a note, for one of several that can't be read or planned."""
    named = ""  # what the reason does not name itself
    try:
        photo = read_photo(job.picture)
        named = f"{printable(str(job.picture))}: "
        check_size(photo, job.out)
        return photo, plan_for(photo.size)
    except UserError as reason:
        if alone:
            raise
        warnings.warn(f"{named}{reason}", stacklevel=1)
        return None


def _complete(model: MaskedAutoencoder, photo: Photo, plan: Plan, console: Console | None) -> Filled:
    """Complete a picture; with a progress bar if a console is given and there is much to do."""
    batches = -(-len(plan.tiles) // BATCH)
    if console is None or (batches == 1 and np.count_nonzero(plan.region) < LARGE):
        return inpaint(photo, plan, model)
    with progress("tiles, then the seam", batches + 1, console) as advance:
        return inpaint(photo, plan, model, advance)


def _write(job: Job, photo: Photo, plan: Plan, filled: Filled) -> None:
    job.out.parent.mkdir(parents=True, exist_ok=True)
    write_photo(filled.photo, job.out)
    if job.sheet:
        job.sheet.parent.mkdir(parents=True, exist_ok=True)
        draw_sheet(photo, plan, filled, job.sheet)


def describe(photo: Photo, plan: Plan) -> str:
    """What was completed, in a few words."""
    height, width = photo.size
    tiles = "1 tile" if len(plan.tiles) == 1 else f"{len(plan.tiles)} tiles"
    return f"{width} x {height} pixels, {100 * plan.region.mean():.1f} % of them completed by {tiles}"


def far_from(model: MaskedAutoencoder, photo: Photo, plan: Plan) -> str:
    """A note if the model is too small for the picture, or gray for a colour picture; otherwise empty."""
    height, width = model.config.image_size
    scale = max(max(tile.height / height, tile.width / width) for tile in plan.tiles)
    gray = model.config.channels == 1 and photo.pixels.shape[2] >= 3
    if scale <= COARSE and not gray:
        return ""
    kind = f"this model completes {'gray ' if model.config.channels == 1 else ''}images of {width} x {height} pixels"
    if scale <= COARSE:
        return f"{kind}: the completed region of a colour picture will be gray."
    look = "coarse and gray" if gray else "coarse"
    return f"{kind}, and one of its pixels covers {scale:.0f} x {scale:.0f} of the picture: expect a {look} completion."


def draw_sheet(photo: Photo, plan: Plan, filled: Filled, out: Path) -> None:
    """Masked, completed and original side by side, with the error."""
    original, completed = (_panel(each.image()) for each in (photo, filled.photo))
    region = np.asarray(Image.fromarray(plan.region).resize(original.shape[1::-1], Image.Resampling.NEAREST))
    masked = np.where(region[..., None], MASKED_COLOUR, original)
    title = describe(photo, plan)
    figure = figures.completions([masked], [completed], [original], [filled.error], title)
    try:
        figures.save(figure, out)
    except ValueError as error:
        raise UserError(f"{out} could not be written ({error}); choose another --sheet.") from None


def _panel(image: Image.Image) -> np.ndarray:
    """(H, W, 3) in [0, 1], small enough for a sheet."""
    image = image_files.in_mode(image, "RGB")
    scale = min(1.0, PANEL / max(image.size))
    width, height = (max(1, round(scale * side)) for side in image.size)
    return np.asarray(image.resize((width, height), Image.Resampling.BICUBIC), dtype=np.float32) / 255
