"""Evaluation during training: functions from a model to (name, value), called by all processes together.

``EVALUATORS`` names them; a recipe says which of them a run has, and at which intervals.
"""

from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Generic

import numpy as np
import torch
from jaxtyping import Float, Int, Shaped
from torch import Tensor

from crate_mae.data.loader import Batch, LabelledSamples, Samples, SomeBatch, evaluation_batches
from crate_mae.data.masked import MaskedBatch, MaskedSamples
from crate_mae.data.source import ImageSource, Subset
from crate_mae.data.transforms import Evaluation
from crate_mae.errors import UserError
from crate_mae.evaluation.knn import nearest_neighbours, quick_probe
from crate_mae.models.autoencoder import Completion
from crate_mae.models.config import ModelConfig
from crate_mae.models.image_model import ImageModel
from crate_mae.training.config import RunConfig
from crate_mae.training.distributed import Processes

BATCH = 128


def evenly_spaced(source: ImageSource, most: int) -> ImageSource:
    """At most ``most`` images of a source, evenly spaced, so that every class is represented."""
    if len(source) <= most:
        return source
    return Subset(source, np.linspace(0, len(source) - 1, most).astype(np.int64))


def as_evaluated(source: ImageSource, config: ModelConfig) -> LabelledSamples:
    """A source as the model sees it outside of training: resized only."""
    return LabelledSamples(source, Evaluation.of(config))


def masked_as_evaluated(source: ImageSource, config: ModelConfig, mask_ratio: float) -> MaskedSamples:
    """The same, with the same masks each time."""
    return MaskedSamples(source, Evaluation.of(config), config.num_patches, mask_ratio)


@dataclass(frozen=True)
class Evaluator(ABC, Generic[SomeBatch]):
    """Measures a model on the images of each split."""

    needs_labels: ClassVar[bool] = False

    samples: Mapping[str, Samples[SomeBatch]]
    """The images of each split."""
    processes: Processes
    workers: int

    def batches(self, split: str, model: ImageModel) -> Iterator[SomeBatch]:
        """This process's images of a split, on its device and in the model's precision."""
        processes = self.processes
        for batch in evaluation_batches(
            self.samples[split], BATCH, rank=processes.rank, world=processes.world, workers=self.workers
        ):
            images = batch.images.to(model.device, model.embedding.class_token.dtype)
            yield replace(batch, images=images, labels=batch.labels.to(model.device))

    @abstractmethod
    def __call__(self, model: ImageModel) -> Iterator[tuple[str, float]]:
        """Each metric and its value."""

    def gather(self, rows: list[Shaped[Tensor, "_ ..."]], split: str) -> Shaped[Tensor, "n ..."]:
        """One row for each image of a split, in its order."""
        return self.processes.gather(torch.cat(rows), len(self.samples[split]))


class Reconstruction(Evaluator[MaskedBatch]):
    """The error of the completion on the masked patches of each split: ``SPLIT_loss``.

    ``mean_patch_error`` is what needs no model: that of filling each masked patch of ``val`` with the mean patch of
    ``train`` at its position.
    """

    def __call__(self, model: ImageModel) -> Iterator[tuple[str, float]]:
        train_errors, patch_sums = [], []
        for completion in self._completions("train", model):
            train_errors.append(completion.image_errors)
            patch_sums.append(completion.targets.sum(0))
        # Each process sums over its own images; the mean of these sums, times the processes, is the sum over all.
        total = self.processes.mean(torch.stack(patch_sums).sum(0)) * self.processes.world
        mean_patches = (total / len(self.samples["train"])).to(model.device)
        val_errors, mean_errors = [], []
        for completion in self._completions("val", model):
            val_errors.append(completion.image_errors)
            mean_errors.append(
                completion.mask.mean_over_masked((completion.targets - mean_patches).square().mean(-1), dim=-1)
            )
        yield "train_loss", self.gather(train_errors, "train").mean().item()
        yield "val_loss", self.gather(val_errors, "val").mean().item()
        yield "mean_patch_error", self.gather(mean_errors, "val").mean().item()

    def _completions(self, split: str, model: ImageModel) -> Iterator[Completion]:
        for batch in self.batches(split, model):
            yield model(batch.images, batch.masks)


class Representation(Evaluator[SomeBatch]):
    """What is linearly or locally readable from the features: ``knn_accuracy`` and ``probe_accuracy`` on ``val``.

    k nearest neighbours and a quick linear probe, both trained on ``train``. The features are the mean over the patches
    of the encoder's output.
    """

    needs_labels = True

    def __call__(self, model: ImageModel) -> Iterator[tuple[str, float]]:
        train, test = self._features("train", model), self._features("val", model)
        if not train[0].isfinite().all():
            raise UserError("the model's features are not finite; start again with a lower learning_rate.")
        yield "knn_accuracy", nearest_neighbours(*train, *test)
        yield "probe_accuracy", quick_probe(*train, *test)

    def _features(self, split: str, model: ImageModel) -> tuple[Float[Tensor, "n d"], Int[Tensor, " n"]]:
        rows, labels = [], []
        for batch in self.batches(split, model):
            rows.append(model.features(batch.images, pool="mean").float())
            labels.append(batch.labels)
        return self.gather(rows, split), self.gather(labels, split)


class Accuracy(Evaluator[Batch]):
    """The classifier's ``SPLIT_accuracy``, in per cent, and its cross entropy, ``SPLIT_loss``."""

    needs_labels = True

    def __call__(self, model: ImageModel) -> Iterator[tuple[str, float]]:
        for split in self.samples:
            right, losses = [], []
            for batch in self.batches(split, model):
                scores = model(batch.images)
                right.append((scores.argmax(-1) == batch.labels).float())
                losses.append(torch.nn.functional.cross_entropy(scores, batch.labels, reduction="none"))
            yield f"{split}_accuracy", 100 * self.gather(right, split).mean().item()
            yield f"{split}_loss", self.gather(losses, split).mean().item()


EVALUATORS: dict[str, type[Evaluator]] = {
    "reconstruction": Reconstruction,
    "representation": Representation,
    "accuracy": Accuracy,
}


def evaluators(config: RunConfig, samples: Mapping[str, Samples[Any]], processes: Processes) -> dict[str, Evaluator]:
    """The evaluators of the configuration, by name; those that need labels are left out if there are none."""
    labelled = all(split.source.class_names for split in samples.values())
    chosen = {name: EVALUATORS[name] for name in config.evaluators}
    return {
        name: kind(samples, processes, config.workers)
        for name, kind in chosen.items()
        if labelled or not kind.needs_labels
    }
