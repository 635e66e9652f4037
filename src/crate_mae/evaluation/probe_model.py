"""``crate-mae probe``: how well a frozen model's features tell the classes of a set of images apart."""

import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from rich.console import Console
from rich.table import Table

from crate_mae import figures
from crate_mae.data.open import find_images
from crate_mae.data.source import CARVED, ImageSource
from crate_mae.data.transforms import Evaluation
from crate_mae.errors import UserError
from crate_mae.evaluation.knn import K, nearest_neighbours
from crate_mae.evaluation.linear_probe import HELD_OUT, STRENGTHS, Probe, linear_probe
from crate_mae.features.extraction import Features, Reader, Which, canonical, extract, model_features
from crate_mae.models.config import Pool
from crate_mae.models.image_model import ImageModel
from crate_mae.models.zoo import untrained
from crate_mae.progress import progress

PIXELS = 32
"""Raw pixels are probed at no more than 32 x 32."""
UNTRAINED = "untrained"


@dataclass(frozen=True)
class ProbeSettings:
    """What is probed, and on which images."""

    data: str
    root: Path | None = None
    """The folder of the named sets."""
    download: bool = False
    layers: tuple[int, ...] = (-1,)
    pools: tuple[Pool, ...] = ("mean",)
    untrained: bool = True
    """Probe the same architecture with random weights too, which the seed decides."""
    pixels: bool = False
    """Probe the raw pixels too."""
    strengths: tuple[float, ...] = STRENGTHS
    """Values of C, in ascending order."""
    seed: int = 0


@dataclass(frozen=True)
class ProbeImages:
    """The labelled images that a probe needs."""

    train: ImageSource
    validation: ImageSource | None
    """The set's own, if it has one beside its test split. It chooses C, and then joins the training images."""
    test: ImageSource
    words: str
    """Which images choose C and which are reported on."""

    @property
    def parts(self) -> dict[str, ImageSource]:
        """The splits that there are, by name."""
        sources = {"train": self.train, "validation": self.validation, "test": self.test}
        return {name: source for name, source in sources.items() if source is not None}


@dataclass(frozen=True)
class Task:
    """One kind of features: a row of the table."""

    weights: str
    """``trained``, ``untrained``, or nothing for pixels."""
    layer: str
    pool: str
    features: Mapping[str, Features]
    """Features of the training, validation and test images."""

    @property
    def title(self) -> str:
        """The kind of features in words."""
        if not self.pool:
            return "raw pixels"
        return f"layer {self.layer}, {self.pool}" + f", {UNTRAINED}" * (self.weights == UNTRAINED)


@dataclass(frozen=True)
class Result:
    """One row of the table."""

    task: Task
    probe: Probe
    neighbours: float

    def to_dict(self) -> dict[str, Any]:
        """Plain values for JSON."""
        chosen, best = self.probe.chosen, self.probe.best_on_test
        return {
            "weights": self.task.weights,
            "layer": self.task.layer,
            "pool": self.task.pool,
            "accuracy": chosen.test,
            "C": chosen.C,
            "paper_protocol": {"accuracy": best.test, "C": best.C},
            "nearest_neighbours": self.neighbours,
            "sweep": [asdict(strength) for strength in self.probe.strengths],
        }


def run(model: ImageModel, settings: ProbeSettings, out: Path, reader: Reader) -> list[Result]:
    """Probe each layer and pool, print the table, and write probe.json and the figures to ``out``."""
    console = reader.console or Console()
    wanted = [Which(canonical(model, layer), pool) for layer in settings.layers for pool in settings.pools]
    images = open_parts(settings.data, settings.root, settings.download)
    out.mkdir(parents=True, exist_ok=True)
    tasks = list(_model_tasks(model, "trained", wanted, images, out / "features", reader))
    if settings.untrained:
        reference = untrained(model, settings.seed)
        tasks += _model_tasks(reference, UNTRAINED, wanted, images, out / "features", reader)
    if settings.pixels:
        pixels = {name: _pixels(model, part, reader, name) for name, part in images.parts.items()}
        tasks.append(Task("", "pixels", "", pixels))
    with progress("probing", 2 * len(settings.strengths) * len(tasks), console) as advance:
        results = [Result(task, *_measure(task.features, settings, advance)) for task in tasks]
    _write(out, model, settings, images, results)
    _draw(out, model, results)
    _print(console, results, [images.words, *_notes(results)], out)
    return results


def open_parts(data: str, root: Path | None = None, download: bool = False) -> ProbeImages:
    """Training, validation and test images by the splits that a set has.

    With all three, validation chooses C. With two, the one that is not for training is the test set (that is what
    Imagenette and ImageNet call val). With one, a part of it is carved out as the test set.
    """
    images = find_images(data, root, download)
    validation, fifth = None, f"C is chosen on one in {HELD_OUT} training images"
    if set(images.own) == {"train", "val", "test"}:
        train, validation, test = (images.open(split) for split in ("train", "val", "test"))
        words = f"C is chosen on the set's own {len(validation)} validation images; then they join the training images"
    elif "train" in images.own and len(images.own) == 2:
        train, test = images.open("train"), images.split("test")
        words = fifth
    else:
        train, test = images.split("train"), images.split("test")
        words = f"The set has no test split: {CARVED:.0%} of it, by a hash of their names, serve as one. {fifth}"
    for source in (train, validation, test):
        if source is not None and source.class_names is None:
            raise UserError(
                f"the images of {data} have no labels to probe for; put the images of each class in its own folder."
            )
    if len({train.label(index) for index in range(len(train))}) < 2:
        raise UserError(f"the training images of {data} are all of one class; a probe needs two or more.")
    total = len(train) + (len(validation) if validation else 0)
    return ProbeImages(train, validation, test, f"{words}. {total} training images, {len(test)} test images.")


def _model_tasks(
    model: ImageModel, weights: str, wanted: list[Which], images: ProbeImages, cache: Path, reader: Reader
) -> Iterator[Task]:
    found = {
        name: model_features(model, part, wanted, cache=cache, reader=reader, label=f"features, {weights}, {name}")
        for name, part in images.parts.items()
    }
    for which in dict.fromkeys(wanted):
        features = {name: by_which[which] for name, by_which in found.items()}
        yield Task(weights, str(which.layer), which.pool, features)


def _pixels(model: ImageModel, source: ImageSource, reader: Reader, name: str) -> Features:
    """The pixels themselves, normalised for the model."""
    config = model.config
    height, width = (min(side, PIXELS) for side in config.image_size)
    transform = Evaluation((height, width), config.channels, config.mean, config.std)
    return extract(source, transform, lambda images: {"pixels": images.flatten(1)}, reader, f"pixels, {name}")["pixels"]


def _measure(
    features: Mapping[str, Features], settings: ProbeSettings, advance: Callable[[str], None]
) -> tuple[Probe, float]:
    """The linear probe and the accuracy of the nearest neighbours."""
    test = features["test"]
    fitted = [features[name] for name in ("train", "validation") if name in features]
    values, labels = np.concatenate([part.values for part in fitted]), np.concatenate([part.labels for part in fitted])
    held_out = np.arange(len(labels)) >= len(fitted[0].labels) if len(fitted) == 2 else None
    probe = linear_probe(
        values,
        labels,
        test.values,
        test.labels,
        strengths=settings.strengths,
        seed=settings.seed,
        held_out=held_out,
        advance=advance,
    )
    train, test_values = torch.from_numpy(values), torch.from_numpy(test.values)
    return probe, nearest_neighbours(train, torch.from_numpy(labels), test_values, torch.from_numpy(test.labels))


def _notes(results: list[Result]) -> list[str]:
    features = results[0].task.features
    known = np.unique(np.concatenate([part.labels for name, part in features.items() if name != "test"]))
    notes = []
    if unknown := int((~np.isin(features["test"].labels, known)).sum()):
        notes.append(f"{unknown} test images are of classes that have no training images; they count as errors.")
    unfinished = {
        f"{result.task.title}: C = {', '.join(f'{C:g}' for C in strengths)}"
        for result in results
        if (strengths := [strength.C for strength in result.probe.strengths if not strength.converged])
    }
    notes.append(f"Not converged: {'; '.join(sorted(unfinished))}." if unfinished else "Every fit converged.")
    return notes


def _print(console: Console, results: list[Result], notes: list[str], out: Path) -> None:
    heads = ("weights", "layer", "pool", "test accuracy\nC by validation", "paper's protocol\nC by the test set")
    table = Table(*heads, f"{K}-NN")
    for result in results:
        chosen, best, task = result.probe.chosen, result.probe.best_on_test, result.task
        table.add_row(
            task.weights,
            task.layer,
            task.pool,
            f"{chosen.test:.1f} % (C = {chosen.C:g})",
            f"{best.test:.1f} % (C = {best.C:g})",
            f"{result.neighbours:.1f} %",
        )
    console.print(table)
    for note in notes:
        console.print(note, highlight=False, markup=False, soft_wrap=True)
    console.print(f"{out / 'probe.json'} and figures written.", highlight=False, markup=False, soft_wrap=True)


def _write(out: Path, model: ImageModel, settings: ProbeSettings, images: ProbeImages, results: list[Result]) -> None:
    report = {
        "data": settings.data,
        "seed": settings.seed,
        "model": {"kind": model.kind, **model.config.to_dict()},
        "images": images.words,
        "results": [result.to_dict() for result in results],
    }
    (out / "probe.json").write_text(json.dumps(report, indent=2) + "\n")


def _draw(out: Path, model: ImageModel, results: list[Result]) -> None:
    """strengths.png, accuracy by C; and layers.png, accuracy by layer, if there are several."""
    curves = {
        result.task.title: (
            [strength.C for strength in result.probe.strengths],
            [strength.validation for strength in result.probe.strengths],
            [strength.test for strength in result.probe.strengths],
        )
        for result in results
    }
    figures.save(figures.strengths(curves), out / "strengths.png")
    of_models = [result for result in results if result.task.pool]
    if len({result.task.layer for result in of_models}) < 2:
        return
    by_pool: dict[str, list[tuple[int, float, float]]] = {}
    for result in of_models:
        task = result.task
        name = task.pool + f", {UNTRAINED}" * (task.weights == UNTRAINED)
        place = model.layer_from_the_front(int(task.layer))
        by_pool.setdefault(name, []).append((place, result.probe.accuracy, result.neighbours))
    figures.save(figures.probe_by_layer({name: sorted(rows) for name, rows in by_pool.items()}), out / "layers.png")
