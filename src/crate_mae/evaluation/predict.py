"""What a classifier takes pictures for."""

import csv
import json
import os
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from crate_mae.data.folders import SUFFIXES, walk
from crate_mae.data.loader import Bad
from crate_mae.data.source import ImageSource, printable
from crate_mae.errors import UserError
from crate_mae.evaluation.class_scores import scores
from crate_mae.models.classifier import Classifier


@dataclass(frozen=True)
class Prediction:
    """The likeliest classes of a picture."""

    image: str
    classes: tuple[tuple[str, float], ...]
    """Name and probability, the likeliest first."""

    def __str__(self) -> str:
        return f"{self.image}: {', '.join(f'{name} {100 * share:.1f} %' for name, share in self.classes)}"


class Listed(ImageSource):
    """Image files, and those below folders, in the order in which they are named."""

    def __init__(self, paths: Sequence[str | Path]):
        self.files: list[str] = []
        for path in map(os.path.expanduser, paths):
            if os.path.isdir(path):
                below = list(walk(Path(path)))
                if not below:
                    raise UserError(
                        f"there are no images in {path}; files that end in {', '.join(sorted(SUFFIXES))} count."
                    )
                self.files += below
            elif os.path.exists(path):
                self.files.append(path)
            else:
                raise UserError(f"there is no image or folder {printable(path)}.")
        if not self.files:
            raise UserError("name at least one image or folder.")

    def __len__(self) -> int:
        return len(self.files)

    def stored(self, index: int) -> bytes:
        return Path(self.files[index]).read_bytes()

    def label(self, index: int) -> None:
        return None

    def name(self, index: int) -> str:
        return printable(self.files[index])

    def key(self, index: int) -> str:
        return self.name(index)


def predict(
    model: Classifier, source: ImageSource, top: int = 5, batch: int = 128, workers: int = 0
) -> Iterator[Prediction | Bad]:
    """For every picture in turn, its ``top`` classes by probability (the softmax of the scores), or why it has none."""
    if top < 1:
        raise UserError(f"top is {top}; choose a whole number from 1 up.")
    for some in scores(model, source, batch, workers):
        found: dict[int, Prediction | Bad] = {bad.index: bad for bad in some.bad}
        shares, places = some.scores.double().softmax(-1).topk(min(top, len(model.class_names)))
        for index, own_shares, own_places in zip(some.indices.tolist(), shares.tolist(), places.tolist(), strict=True):
            names = (model.class_names[place] for place in own_places)
            found[index] = Prediction(source.name(index), tuple(zip(names, own_shares, strict=True)))
        yield from (found[index] for index in sorted(found))


def write_predictions(predictions: Iterable[Prediction], path: Path) -> None:
    """To a .csv with a row for each picture and class, or to a .json."""
    with path.open("w", encoding="utf-8", newline="") as file:
        if path.suffix.lower() == ".json":
            rows = [
                {"image": each.image, "classes": [{"class": n, "probability": p} for n, p in each.classes]}
                for each in predictions
            ]
            json.dump(rows, file, indent=1)
            return
        table = csv.writer(file)
        table.writerow(["image", "rank", "class", "probability"])
        for each in predictions:
            for rank, (name, share) in enumerate(each.classes, start=1):
                table.writerow([each.image, rank, name, f"{share:.6g}"])


def check_suffix(path: Path) -> None:
    """Refuse what ``write_predictions`` can't write."""
    if path.suffix.lower() not in (".csv", ".json"):
        raise UserError(f"{path} ends in neither .csv nor .json; choose one of them.")
