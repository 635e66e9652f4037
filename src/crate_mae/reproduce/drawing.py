"""What the figures share: their models, the images that they show, and their results."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from jaxtyping import Bool, Float, Int
from matplotlib.figure import Figure
from torch import Tensor

from crate_mae.data.loader import evaluation_batches
from crate_mae.data.open import open_dataset
from crate_mae.data.source import ImageSource, Subset
from crate_mae.data.transforms import sample_generator
from crate_mae.device import pick_device
from crate_mae.models.autoencoder import MaskedAutoencoder
from crate_mae.models.zoo import load_autoencoder
from crate_mae.reproduce import paper_numbers as paper
from crate_mae.reproduce.comparison_table import MISSING, Cell, Table
from crate_mae.reproduce.scales import Model, Scale, Variant
from crate_mae.reproduce.schedule import what_it_takes
from crate_mae.reproduce.tasks import Place, Training
from crate_mae.training.evaluators import masked_as_evaluated

BATCH = 64
SEED = 0
"""Seed of the choice of images."""


@dataclass(frozen=True)
class Made:
    """The result of a table or a figure: its numbers, and its pictures by file name."""

    table: Table
    pictures: dict[str, Figure]


@dataclass(frozen=True)
class Drawing:
    """A figure before it is drawn: the trainings that it needs, and how to draw it."""

    name: str
    tasks: Sequence[Training]
    """The models that it shows; those of the first seed must be there."""
    draw: Callable[[Place], Made]
    """Given the place where the models are."""

    def made(self, place: Place) -> Made:
        """The figure, or a table that says what is missing for it."""
        there = all(place.has(data) for task in self.tasks for data in task.sets)
        needed = [task for task in self.tasks if task.model.seed == 0]
        if there and all(task.is_done(place) for task in needed):
            return self.draw(place)
        cells = [Cell(task.name, "ours", note=what_it_takes(task, place) if there else MISSING) for task in needed]
        return Made(figure_table(self.name, heading="to be trained", cells=cells, notes=[place.scale.protocol]), {})


def figure_table(
    name: str, *, heading: str, cells: Sequence[Cell], notes: Sequence[str], unit: str = "", digits: int = 1
) -> Table:
    """The numbers behind a figure."""
    words = f"Figure {name.removeprefix('figure')}. {paper.ITEMS[name].title}"
    return Table(
        name=name, title=words, heading=heading, unit=unit, cells=tuple(cells), notes=tuple(notes), digits=digits
    )


def model_of_figures(scale: Scale, variant: Variant, seed: int = 0) -> Model:
    """The model that the figures show: Base, with the paper's lambda for figures."""
    return Model(variant, "base", scale.source_of(scale.shown), seed, paper.LAMBDA_OF_FIGURES)


def pretrainings(scale: Scale, models: Iterable[Model]) -> list[Training]:
    """The tasks that pretrain these models."""
    return [scale.kinds.pretrained(model) for model in models]


def is_trained(place: Place, model: Model) -> bool:
    """Whether a model has been pretrained."""
    return place.scale.kinds.pretrained(model).is_done(place)


def trained(place: Place, model: Model) -> MaskedAutoencoder:
    """The model from its run folder."""
    return load_autoencoder(place.scale.kinds.pretrained(model).folder(place)).to(pick_device(place.device)).eval()


def shown(place: Place) -> ImageSource:
    """The images of the figures: the test split."""
    return open_dataset(place.scale.shown, "test", place.data_root)


def in_random_order(source: ImageSource) -> Int[np.ndarray, " n"]:
    """Indices of all images in a fixed random order."""
    return torch.randperm(len(source), generator=sample_generator(SEED)).numpy()


def look(
    place: Place, model: MaskedAutoencoder, chosen: Int[np.ndarray, " b"]
) -> tuple[Float[Tensor, "b c H W"], Bool[Tensor, "b N"]]:
    """These images, preprocessed for the model, and a mask for each, which only depends on the number of patches."""
    source = Subset(shown(place), chosen)
    batch = next(iter(evaluation_batches(masked_as_evaluated(source, model.config, paper.MASK_RATIO), len(source))))
    return batch.images.to(model.device), batch.masks.to(model.device)


def stream(model: MaskedAutoencoder, source: ImageSource) -> Iterator[Float[Tensor, "b c H W"]]:
    """Many images, batch by batch."""
    for batch in evaluation_batches(masked_as_evaluated(source, model.config, paper.MASK_RATIO), BATCH):
        yield batch.images.to(model.device)
