"""Trainings at desk scale: pretraining, and fine-tuning with its accuracy on test images."""

from dataclasses import dataclass
from pathlib import Path

import torch
import torch.nn.functional as F
from torch import Tensor

from crate_mae.bench.race.images import RaceImages, batch, load
from crate_mae.bench.race.measurements import CLIP, DECAY, WARMUP, accuracy
from crate_mae.bench.race.training import Budget, Report, batch_of, for_seconds, train
from crate_mae.data.transforms import sample_generator
from crate_mae.models.classifier import Classifier
from crate_mae.models.zoo import load_autoencoder, load_classifier
from crate_mae.reproduce.desk_tasks import (
    EVALUATED,
    START,
    TEST_IMAGES,
    Decoded,
    DeskTask,
    digest,
    images_of,
    order_of,
    some,
    timed,
)
from crate_mae.reproduce.tasks import FinetuneTask, Place, PretrainTask, Task, write_numbers
from crate_mae.training.optim import adamw

DONE = "training.json"


@dataclass(frozen=True)
class DeskPretrained(DeskTask, PretrainTask):
    """A model pretrained for a number of seconds."""

    @property
    def order(self) -> tuple[int, ...]:
        return order_of(self.model, 0)

    @property
    def before(self) -> tuple[Task, ...]:
        return (Decoded(self.model.data),)

    def folder(self, place: Place) -> Path:
        scale = timed(place)
        identity = [scale.courses[self.model.data], scale.recipe(self.model)]
        return place.out / "models" / f"{self.model.name}-{digest(identity, scale.pretrain_seconds)}"

    beside = folder

    def is_done(self, place: Place) -> bool:
        return (self.folder(place) / DONE).is_file()

    def seconds(self, place: Place) -> float:
        return START + 1.05 * timed(place).pretrain_seconds  # evaluations for the curve do not count

    def run(self, place: Place) -> None:
        scale, folder = timed(place), self.folder(place)
        course, recipe = scale.courses[self.model.data], scale.recipe(self.model)
        with self.reporting(place) as report:
            model, state = train(
                course,
                recipe,
                load(images_of(place, self.model.data)),
                seconds=scale.pretrain_seconds,
                seed=self.model.seed,
                checkpoint=folder / "checkpoint.pt",
                report=report,
            )
            model.save(folder)
            numbers = {"steps": state.step, "batch": recipe.batch, "processor_seconds": state.used}
            write_numbers(folder / DONE, numbers | {"parameters": model.num_parameters, "curve": state.curve})
            (folder / "checkpoint.pt").unlink(missing_ok=True)


@dataclass(frozen=True)
class DeskFinetuned(DeskTask, FinetuneTask):
    """A model fine-tuned for a number of seconds, and its accuracy on at most ``TEST_IMAGES`` test images."""

    @property
    def order(self) -> tuple[int, ...]:
        return order_of(self.model, 3)

    @property
    def before(self) -> tuple[Task, ...]:
        decoded = (Decoded(self.data),)
        return decoded if self.random else (DeskPretrained(self.model), *decoded)

    def beside(self, place: Place) -> Path:
        scale = timed(place)
        identity = [scale.courses[self.data], scale.recipe(self.model)]
        seconds = (scale.finetune_seconds, 0.0 if self.random else scale.pretrain_seconds)
        return place.out / "models" / f"{self.model.name}-{self.kind}-{self.data}-{digest(identity, *seconds)}"

    def file(self, place: Place) -> Path:
        return self.beside(place) / "test.json"

    def seconds(self, place: Place) -> float:
        return START + timed(place).finetune_seconds + TEST_IMAGES / EVALUATED / timed(place).speed

    def run(self, place: Place) -> None:
        images, folder = load(images_of(place, self.data)), self.beside(place)
        with self.reporting(place) as report:
            if not (folder / DONE).is_file():
                self._train(place, images, report)
            model = load_classifier(folder)
            chosen = some(TEST_IMAGES, len(images.test))
            write_numbers(self.file(place), {"test_accuracy": accuracy(model, images, chosen)})

    def _train(self, place: Place, images: RaceImages, report: Report) -> None:
        scale, seed, folder = timed(place), self.model.seed, self.beside(place)
        recipe = scale.recipe(self.model)
        config = scale.courses[self.data].config(recipe)
        model = Classifier(config, images.class_names, torch.Generator().manual_seed(seed))
        if not self.random:
            model.adopt_encoder(load_autoencoder(DeskPretrained(self.model).folder(place)))
        optimiser = adamw(model, recipe.finetune_rate, DECAY, (0.9, 0.999), recipe.layer_decay)

        def loss(step: int) -> Tensor:
            chosen = batch_of(step, recipe.batch, len(images.train), seed)
            scores = model(batch(images.train, chosen, config, sample_generator(seed, step)))
            return F.cross_entropy(scores, torch.tensor(images.train_labels[chosen]), label_smoothing=0.1)

        budget = Budget(scale.finetune_seconds, recipe.finetune_rate, WARMUP, CLIP)
        state = for_seconds(budget, model, optimiser, loss, folder / "checkpoint.pt", report)
        model.save(folder)
        seen = state.step * recipe.batch / len(images.train)
        write_numbers(folder / DONE, {"steps": state.step, "epochs": seen, "processor_seconds": state.used})
        (folder / "checkpoint.pt").unlink(missing_ok=True)
