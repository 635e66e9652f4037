"""``crate-mae probe``: what a frozen model's features tell about the classes of a set of images."""

import json
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from rich.console import Console
from rich.table import Table

from crate_mae import figures
from crate_mae.data.open import find_splits, open_dataset
from crate_mae.data.source import CARVED, ImageSource
from crate_mae.data.transforms import Evaluation
from crate_mae.errors import UserError
from crate_mae.evaluation.knn import K, nearest_neighbours
from crate_mae.evaluation.linear_probe import HELD_OUT, STRENGTHS, Probe, linear_probe
from crate_mae.features.extraction import Features, Pool, Reader, Which, canonical, extract, model_features
from crate_mae.models.image_model import ImageModel
from crate_mae.progress import progress

PIXELS = 32
"""Raw pixels are probed at no more than so many on a side."""


@dataclass(frozen=True)
class Parts:
    """The labelled images that a probe needs."""

    train: ImageSource
    validation: ImageSource | None
    """The set's own, where it has one beside its test split. It chooses C, and then joins the training images."""
    test: ImageSource
    words: str
    """What chooses C and what is reported on."""


@dataclass(frozen=True)
class Result:
    """One line of the table."""

    layer: str
    pool: str
    probe: Probe
    neighbours: float

    def to_dict(self) -> dict[str, Any]:
        chosen, best = self.probe.chosen, self.probe.best_on_test
        return {
            "layer": self.layer,
            "pool": self.pool,
            "accuracy": chosen.test,
            "C": chosen.C,
            "paper_protocol": {"accuracy": best.test, "C": best.C},
            "nearest_neighbours": self.neighbours,
            "sweep": [asdict(strength) for strength in self.probe.strengths],
        }


def run(
    model: ImageModel,
    data: str,
    root: Path | None,
    download: bool,
    layers: Sequence[int],
    pools: Sequence[Pool],
    pixels: bool,
    out: Path,
    seed: int,
    reader: Reader,
) -> list[Result]:
    """Probe each layer and pool, print the table, and write probe.json and the figures to ``out``."""
    console = reader.console or Console()
    wanted = list(dict.fromkeys(Which(canonical(model, layer), pool) for layer in layers for pool in pools))
    parts = open_parts(data, root, download)
    out.mkdir(parents=True, exist_ok=True)
    sources = {"train": parts.train, "validation": parts.validation, "test": parts.test}
    there = {name: source for name, source in sources.items() if source is not None}
    cache = out / "features"
    of = {name: model_features(model, part, wanted, cache, reader, f"features, {name}") for name, part in there.items()}
    tasks: list[tuple[str, str, dict[str, Features]]] = [
        (str(which.layer), which.pool, {name: features[which] for name, features in of.items()}) for which in wanted
    ]
    if pixels:
        tasks.append(("pixels", "", {name: _pixels(model, part, reader, name) for name, part in there.items()}))
    with progress("probing", 2 * len(STRENGTHS) * len(tasks), console) as advance:
        results = [Result(layer, pool, *_measure(features, seed, advance)) for layer, pool, features in tasks]
    _write(out, model, data, seed, parts, results)
    notes = [parts.words, *_notes(tasks[0][2], results)]
    _print(console, results, notes, out)
    return results


def open_parts(data: str, root: Path | None, download: bool) -> Parts:
    """Training, validation and test images by the splits that a set has.

    With all three, validation chooses C. With two, the one that is not for training is the test set (that is what
    Imagenette and ImageNet call val). With one, a share of it is carved out as test set.
    """
    there = find_splits(data, root, download)
    validation, fifth = None, f"C is chosen on one in {HELD_OUT} training images"
    if {"train", "val", "test"} <= there.keys():
        train, validation, test = there["train"](), there["val"](), there["test"]()
        words = f"C is chosen on the set's own {len(validation)} validation images; then they join the training images"
    elif "train" in there and len(there) == 2:
        train, test = there["train"](), there["test" if "test" in there else "val"]()
        words = fifth
    else:
        train, test = open_dataset(data, "train", root, download), open_dataset(data, "test", root, download)
        words = f"The set has no test split: {CARVED:.0%} of it, by a hash of their names, serve as one. {fifth}"
    for source in (train, validation, test):
        if source is not None and source.class_names is None:
            raise UserError(
                f"the images of {data} have no labels to probe for; put those of a class in its own folder."
            )
    if len({train.label(index) for index in range(len(train))}) < 2:
        raise UserError(f"the training images of {data} are all of one class; a probe needs two or more.")
    total = len(train) + (len(validation) if validation else 0)
    return Parts(train, validation, test, f"{words}. {total} training images, {len(test)} test images.")


def _pixels(model: ImageModel, source: ImageSource, reader: Reader, name: str) -> Features:
    """The pixels themselves, normalised as the model takes them."""
    config = model.config
    height, width = (min(side, PIXELS) for side in config.image_size)
    transform = Evaluation((height, width), config.channels, config.mean, config.std)
    return extract(source, transform, lambda images: {"pixels": images.flatten(1)}, reader, f"pixels, {name}")["pixels"]


def _measure(features: dict[str, Features], seed: int, advance: Callable[[str], None]) -> tuple[Probe, float]:
    """The linear probe and the accuracy of the nearest neighbours."""
    test = features["test"]
    fitted = [features[name] for name in ("train", "validation") if name in features]
    values, labels = np.concatenate([part.values for part in fitted]), np.concatenate([part.labels for part in fitted])
    held_out = np.arange(len(labels)) >= len(fitted[0].labels) if len(fitted) == 2 else None
    probe = linear_probe(values, labels, test.values, test.labels, seed=seed, held_out=held_out, advance=advance)
    train, test_values = torch.from_numpy(values), torch.from_numpy(test.values)
    return probe, nearest_neighbours(train, torch.from_numpy(labels), test_values, torch.from_numpy(test.labels))


def _notes(features: dict[str, Features], results: list[Result]) -> list[str]:
    known = np.unique(np.concatenate([part.labels for name, part in features.items() if name != "test"]))
    labels = features["test"].labels
    notes = []
    if strange := int((~np.isin(labels, known)).sum()):
        notes.append(f"{strange} test images are of classes that have no training images; they count as errors.")
    cut = {
        f"layer {result.layer}: C = {', '.join(f'{C:g}' for C in unfinished)}"
        for result in results
        if (unfinished := [strength.C for strength in result.probe.strengths if not strength.converged])
    }
    notes.append(f"Not converged: {'; '.join(sorted(cut))}." if cut else "Every fit converged.")
    return notes


def _print(console: Console, results: list[Result], notes: list[str], out: Path) -> None:
    table = Table("layer", "pool", "test accuracy\nC by validation", "paper's protocol\nC by the test set", f"{K}-NN")
    for result in results:
        chosen, best = result.probe.chosen, result.probe.best_on_test
        table.add_row(
            result.layer,
            result.pool,
            f"{chosen.test:.1f} % (C = {chosen.C:g})",
            f"{best.test:.1f} % (C = {best.C:g})",
            f"{result.neighbours:.1f} %",
        )
    console.print(table)
    for note in notes:
        console.print(note, highlight=False, markup=False, soft_wrap=True)
    console.print(f"{out / 'probe.json'} and figures written.", highlight=False, markup=False, soft_wrap=True)


def _write(out: Path, model: ImageModel, data: str, seed: int, parts: Parts, results: list[Result]) -> None:
    report = {
        "data": data,
        "seed": seed,
        "model": {"kind": model.kind, **model.config.to_dict()},
        "images": parts.words,
        "results": [result.to_dict() for result in results],
    }
    (out / "probe.json").write_text(json.dumps(report, indent=2) + "\n")
    curves = {
        f"layer {result.layer}, {result.pool}" if result.pool else "raw pixels": (
            [strength.C for strength in result.probe.strengths],
            [strength.validation for strength in result.probe.strengths],
            [strength.test for strength in result.probe.strengths],
        )
        for result in results
    }
    figures.save(figures.strengths(curves), out / "strengths.png")
    of_model = [result for result in results if result.pool]
    if len({result.layer for result in of_model}) > 1:
        places = {str(layer): layer for layer in range(model.config.depth + 1)} | {"-1": model.config.depth}
        by_pool = {
            pool: sorted(
                (places[result.layer], result.probe.accuracy, result.neighbours)
                for result in of_model
                if result.pool == pool
            )
            for pool in dict.fromkeys(result.pool for result in of_model)
        }
        figures.save(figures.probe_by_layer(by_pool), out / "layers.png")
