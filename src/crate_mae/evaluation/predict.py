"""The most probable classes of images by a classifier."""

import csv
import json
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from crate_mae.atomic_write import atomic_write
from crate_mae.data.loader import Bad
from crate_mae.data.source import ImageSource
from crate_mae.errors import UserError, check_at_least
from crate_mae.evaluation.class_scores import scores
from crate_mae.models.classifier import Classifier


@dataclass(frozen=True)
class Prediction:
    """The most probable classes of an image."""

    image: str
    classes: tuple[tuple[str, float], ...]
    """Name and probability, the most probable first."""

    def __str__(self) -> str:
        return f"{self.image}: {', '.join(f'{name} {100 * share:.1f} %' for name, share in self.classes)}"


def predict(
    model: Classifier, source: ImageSource, *, top: int = 5, batch_size: int = 128, workers: int = 0
) -> Iterator[Prediction | Bad]:
    """For every image in turn, its ``top`` classes by probability (the softmax of the scores), or why it has none."""
    check_at_least("top", top, 1)
    for some in scores(model, source, batch_size=batch_size, workers=workers):
        found: dict[int, Prediction | Bad] = {bad.index: bad for bad in some.bad}
        shares, places = some.scores.double().softmax(-1).topk(min(top, len(model.class_names)))
        for index, own_shares, own_places in zip(some.indices.tolist(), shares.tolist(), places.tolist(), strict=True):
            names = (model.class_names[place] for place in own_places)
            found[index] = Prediction(source.name(index), tuple(zip(names, own_shares, strict=True)))
        yield from (found[index] for index in sorted(found))


def write_predictions(predictions: Iterable[Prediction], path: Path) -> None:
    """Write predictions to a .csv file with a row for each image and class, or to a .json file."""
    with atomic_write(path) as temporary, temporary.open("w", encoding="utf-8", newline="") as file:
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
    """Refuse a file that ``write_predictions`` can't write."""
    if path.suffix.lower() not in (".csv", ".json"):
        raise UserError(f"{path} ends in neither .csv nor .json; choose one of them.")
