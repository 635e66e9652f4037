"""Measurements at desk scale: linear probes of a pretrained model, and the error of its completions."""

from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

from crate_mae.bench.race.features import features_of
from crate_mae.bench.race.images import load
from crate_mae.bench.race.training import masked_error
from crate_mae.evaluation.linear_probe import PAPER_STRENGTHS, linear_probe
from crate_mae.features.extraction import Which
from crate_mae.models.zoo import load_autoencoder
from crate_mae.reproduce.desk_tasks import (
    EVALUATED,
    FIT,
    PROBE_IMAGES,
    START,
    TEST_IMAGES,
    Decoded,
    DeskTask,
    images_of,
    order_of,
    some,
    timed,
)
from crate_mae.reproduce.desk_trainings import DeskFinetuned, DeskPretrained
from crate_mae.reproduce.scales import Kinds
from crate_mae.reproduce.tasks import Place, ProbeTask, ReconstructTask, Task, write_numbers

PROBED = (Which(-1, "cls"), Which(-1, "mean"))
"""The class token and the mean of the patches, of the last layer."""


@dataclass(frozen=True)
class DeskProbed(DeskTask, ProbeTask):
    """Linear probes on at most ``PROBE_IMAGES`` training and ``TEST_IMAGES`` test images."""

    @property
    def order(self) -> tuple[int, ...]:
        return order_of(self.model, 2)

    @property
    def before(self) -> tuple[Task, ...]:
        return (DeskPretrained(self.model), Decoded(self.data))

    def beside(self, place: Place) -> Path:
        return DeskPretrained(self.model).folder(place) / "probe" / self.data

    def file(self, place: Place) -> Path:
        return self.beside(place) / "probe.json"

    def seconds(self, place: Place) -> float:
        features = (PROBE_IMAGES + TEST_IMAGES) / EVALUATED
        return START + (features + FIT.get(self.data, 60.0)) / timed(place).speed

    def run(self, place: Place) -> None:
        images = load(images_of(place, self.data))
        model = load_autoencoder(DeskPretrained(self.model).folder(place))
        fitted = np.sort(np.random.default_rng(0).permutation(len(images.train))[:PROBE_IMAGES])
        tested = some(TEST_IMAGES, len(images.test))
        labels, truth = images.train_labels[fitted], images.test_labels[tested]
        with self.reporting(place) as report:
            train_features = features_of(model, images.train, fitted, PROBED)
            report(0.3, "")
            test_features = features_of(model, images.test, tested, PROBED)
            results: list[dict[str, Any]] = []
            for which, values in train_features.items():
                fits = 0

                def advance(note: str) -> None:
                    nonlocal fits
                    fits += 1
                    report(0.4 + 0.3 * (len(results) + fits / (2 * len(PAPER_STRENGTHS))), note)

                found = linear_probe(
                    values,
                    labels,
                    test_features[which],
                    truth,
                    strengths=PAPER_STRENGTHS,
                    seed=self.model.seed,
                    advance=advance,
                )
                chosen, best = found.chosen, found.best_on_test
                results.append(
                    {
                        "pool": which.pool,
                        "accuracy": chosen.test,
                        "C": chosen.C,
                        "paper_protocol": {"accuracy": best.test, "C": best.C},
                        "sweep": [asdict(strength) for strength in found.strengths],
                    }
                )
            write_numbers(self.file(place), {"fitted": len(fitted), "tested": len(tested), "results": results})


@dataclass(frozen=True)
class DeskReconstructed(DeskTask, ReconstructTask):
    """The error of completions, on at most ``TEST_IMAGES`` images of each split."""

    @property
    def order(self) -> tuple[int, ...]:
        return order_of(self.model, 1)

    @property
    def before(self) -> tuple[Task, ...]:
        return (DeskPretrained(self.model),)

    def beside(self, place: Place) -> Path:
        return DeskPretrained(self.model).folder(place)

    def file(self, place: Place) -> Path:
        return self.beside(place) / "reconstruction.json"

    def seconds(self, place: Place) -> float:
        return START + 2 * TEST_IMAGES / EVALUATED / timed(place).speed

    def run(self, place: Place) -> None:
        images, model = load(images_of(place, self.model.data)), load_autoencoder(self.beside(place))
        seen = np.flatnonzero(~images.held_out)
        chosen = {
            "train": (images.train, seen[some(TEST_IMAGES, len(seen))]),
            "val": (images.test, some(TEST_IMAGES, len(images.test))),
        }
        with self.reporting(place) as report:
            numbers = {}
            for split, (pixels, indices) in chosen.items():
                numbers[f"{split}_loss"] = masked_error(model, pixels, indices, self.model.mask_ratio)
                report(0.5, "")
            write_numbers(self.file(place), numbers)


TIMED = Kinds(DeskPretrained, DeskFinetuned, DeskProbed, DeskReconstructed)
"""Tasks whose trainings last a number of seconds."""
