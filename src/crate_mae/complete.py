"""``crate-mae complete``: pictures with a part of them masked, completed, and drawn side by side."""

import os
import warnings
from collections.abc import Iterator, Sequence
from contextlib import nullcontext
from pathlib import Path

from jaxtyping import Bool
from rich.console import Console
from torch import Tensor

from crate_mae import figures
from crate_mae.analysis.completed_images import completion_panels
from crate_mae.data.folders import walk
from crate_mae.data.source import printable
from crate_mae.errors import UserError
from crate_mae.models.autoencoder import MaskedAutoencoder
from crate_mae.progress import progress


def run(model: MaskedAutoencoder, given: Sequence[Path], mask: Bool[Tensor, " N"], out: Path, console: Console) -> bool:
    """Complete pictures and those below folders, all with the same mask; True where all could be read.

    A single picture is drawn to the file ``out``, anything else to a PNG for each in the folder ``out``.
    """
    masked = f"{int(mask.sum())} of {model.num_patches} patches masked"
    if len(given) == 1 and not given[0].is_dir():
        _keep_apart(given, [out])
        out.parent.mkdir(parents=True, exist_ok=True)
        error = draw(model, given[0], mask, out)
        print(f"Wrote {out}: {masked}, error {error:.4f}.")
        return True
    files = [file for path in given for file in pictures(path)]
    if not files:
        raise UserError(f"there are no images in {', '.join(printable(str(path)) for path in given)}.")
    if out.exists() and not out.is_dir():
        raise UserError(f"{out} is a file, and several pictures go to a folder; choose another --out.")
    drawn = [out / name for name in names(files)]
    _keep_apart(files, drawn)
    out.mkdir(parents=True, exist_ok=True)
    errors, bad = [], 0
    with progress("complete", len(files), console) if len(files) > 1 else nullcontext() as advance:
        for file, place in zip(files, drawn, strict=True):
            try:
                errors.append(draw(model, file, mask, place))
            except UserError as reason:
                warnings.warn(str(reason), stacklevel=1)
                bad += 1
            if advance:
                advance()
    if errors:
        mean = sum(errors) / len(errors)
        print(f"Wrote {len(errors)} pictures to {out}: {masked} in each, mean error {mean:.4f}.")
    if bad:
        console.print(f"crate-mae: {bad} of {len(files)} pictures can't be completed.", highlight=False, soft_wrap=True)
    return not bad


def draw(model: MaskedAutoencoder, picture: Path, mask: Bool[Tensor, " N"], out: Path) -> float:
    """Masked, completed and original side by side; the mean squared error over the masked patches."""
    pixels = model.preprocess(picture)[None].to(model.device)
    panels = completion_panels(model, pixels, mask)
    masked = f"{int(mask.sum())} of {model.num_patches} patches masked"
    title = "\n".join(filter(None, [masked, panels.caption]))
    figure = figures.completions(panels.masked, panels.completed, panels.original, panels.errors, title)
    try:
        figures.save(figure, out)
    except ValueError as error:
        raise UserError(f"{out} could not be written ({error}); choose another --out.") from None
    return panels.errors[0]


def _keep_apart(files: Sequence[Path], drawn: Sequence[Path]) -> None:
    """No picture that is read is written over."""
    read = {file.resolve() for file in files}
    for place in drawn:
        if place.resolve() in read:
            raise UserError(
                f"{printable(str(place))} would be written over, and it is to be read; choose another --out."
            )


def pictures(path: Path) -> Iterator[Path]:
    """A file as it is, a folder as the images below it."""
    if path.is_dir():
        yield from map(Path, walk(path))
    else:
        yield path


def names(files: Sequence[Path]) -> Iterator[str]:
    """A PNG's name for each file: its own, with a number behind it where another had it before."""
    taken: set[str] = set()
    for file in files:
        stem, number = os.path.splitext(printable(file.name))[0], 1
        while (name := f"{stem}.png" if number == 1 else f"{stem}-{number}.png") in taken:
            number += 1
        taken.add(name)
        yield name
