"""What is measured of a pretrained contestant, each with the same images, masks and labels for all."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from jaxtyping import Int
from torch import nn

from crate_mae.allocator import freed_memory_kept
from crate_mae.bench.race.features import features_of
from crate_mae.bench.race.images import RaceImages, batch
from crate_mae.bench.race.layers import by_layer
from crate_mae.bench.race.recipes import REFERENCES, Course, Recipe
from crate_mae.bench.race.training import EVALUATED_AT_ONCE, Report, fast_products, masked_batches, masked_error
from crate_mae.evaluation.knn import nearest_neighbours
from crate_mae.evaluation.linear_probe import PAPER_STRENGTHS, linear_probe
from crate_mae.features.extraction import Which
from crate_mae.models.autoencoder import MaskedAutoencoder
from crate_mae.models.classifier import Classifier
from crate_mae.tokens import patchify
from crate_mae.training.optim import adamw, cosine_schedule, set_learning_rate

WARMUP, DECAY, CLIP = 0.1, 0.05, 1.0
"""Of fine-tuning."""
FINETUNE = "finetune"
"""How the names of fine-tunings begin."""
MEAN_OVER = 5000
"""Training images whose mean patches are taken."""
Numbers = dict[str, Any]
"""By name, as JSON has them."""


@dataclass(frozen=True)
class Pretrained:
    """A contestant after its training."""

    model: MaskedAutoencoder
    course: Course
    recipe: Recipe
    images: RaceImages
    seed: int


Measurement = Callable[[Pretrained, Report], Numbers]


def loss(it: Pretrained, report: Report) -> Numbers:
    """The error on masked patches of the held-out images, and that of filling in the mean training patch."""
    images, config = it.images, it.model.config
    held_out = np.flatnonzero(images.held_out)
    error = masked_error(it.model, images.train, held_out, it.recipe.mask_ratio)
    report(0.5, "")
    seen = np.flatnonzero(~images.held_out)[:MEAN_OVER]
    mean = patchify(batch(images.train, seen, config), config.patch_size).mean(0)
    filled = [
        (patchify(inputs, config.patch_size) - mean).square().mean(-1)[masks]
        for inputs, masks in masked_batches(images.train, held_out, config, it.recipe.mask_ratio)
    ]
    return {"loss": error, "mean_patch_error": torch.cat(filled).mean().item()}


def features(it: Pretrained, report: Report) -> Numbers:
    """A linear probe with C chosen on the held-out images, fitted to all training images; and 20 neighbours' vote."""
    images = it.images

    def mean_of_patches(pixels: np.ndarray, chosen: np.ndarray, began: float, share: float) -> np.ndarray:
        mean = Which(-1, "mean")
        found = features_of(it.model, pixels, chosen, [mean], lambda done: report(began + share * done, "features"))
        return found[mean]

    used = np.sort(np.random.default_rng(0).permutation(len(images.train))[: it.course.probe_images])
    labels, held_out = images.train_labels[used], images.held_out[used]
    train = mean_of_patches(images.train, used, 0.0, 0.4)
    test = mean_of_patches(images.test, np.arange(len(images.test)), 0.4, 0.1)
    train_labels, test_labels = torch.tensor(labels), torch.tensor(images.test_labels)
    knn = nearest_neighbours(torch.from_numpy(train), train_labels, torch.from_numpy(test), test_labels)
    fits = 0

    def advance(note: str) -> None:
        nonlocal fits
        fits += 1
        report(0.5 + 0.5 * fits / (2 * len(PAPER_STRENGTHS)), note)

    found = linear_probe(
        train, labels, test, images.test_labels, strengths=PAPER_STRENGTHS, held_out=held_out, advance=advance
    )
    return {"probe": found.accuracy, "C": found.C, "knn": knn}


def layers(it: Pretrained, report: Report) -> Numbers:
    """What each encoder layer does, by ``layers.by_layer``."""
    return {"layers": by_layer(it.model, it.images, it.seed, report)}


def finetuned(percent: int, random: bool) -> Measurement:
    """Test accuracy after fine-tuning on some of the labels, from the pretrained or from random weights."""

    def measure(it: Pretrained, report: Report) -> Numbers:
        names, generator = it.images.class_names, torch.Generator().manual_seed(it.seed)
        model = Classifier(it.model.config, names, generator)
        if not random:
            model.adopt_encoder(it.model)
        finetune(
            model, it, labelled(it.images.train_labels, percent, it.seed), it.course.finetune_steps[percent], report
        )
        return {f"finetune_{percent}{'_random' if random else ''}": accuracy(model, it.images)}

    return measure


def labelled(labels: Int[np.ndarray, " n"], percent: int, seed: int) -> Int[np.ndarray, " m"]:
    """The same per cent of each class, at least one image."""
    order = np.random.default_rng(seed).permutation(len(labels))
    found = []
    for label in np.unique(labels):
        members = order[labels[order] == label]
        found.append(members[: max(1, round(len(members) * percent / 100))])
    return np.concatenate(found)


def finetune(model: Classifier, it: Pretrained, chosen: np.ndarray, steps: int, report: Report) -> None:
    """All weights, on these training images."""
    recipe, images, size = it.recipe, it.images, it.course.finetune_batch
    optimiser = adamw(model, recipe.finetune_rate, DECAY, (0.9, 0.999), recipe.layer_decay)
    generator = torch.Generator().manual_seed(it.seed)
    model.train()
    with freed_memory_kept():
        for step in range(steps):
            set_learning_rate(optimiser, cosine_schedule(step, steps, WARMUP, recipe.finetune_rate))
            part = chosen[torch.randint(len(chosen), (size,), generator=generator).numpy()]
            with fast_products():
                scores = model(batch(images.train, part, model.config, generator))
                error = F.cross_entropy(scores, torch.tensor(images.train_labels[part]), label_smoothing=0.1)
            error.backward()
            nn.utils.clip_grad_norm_(model.parameters(), CLIP)
            optimiser.step()
            optimiser.zero_grad()
            report((step + 1) / steps, "")


@torch.no_grad()
def accuracy(model: Classifier, images: RaceImages, chosen: Int[np.ndarray, " m"] | None = None) -> float:
    """Per cent of the test images, or of those that are chosen."""
    model.eval()
    chosen = np.arange(len(images.test)) if chosen is None else chosen
    right = 0
    for first in range(0, len(chosen), EVALUATED_AT_ONCE):
        part = chosen[first : first + EVALUATED_AT_ONCE]
        guesses = model(batch(images.test, part, model.config)).argmax(1).numpy()
        right += int((guesses == images.test_labels[part]).sum())
    return 100 * right / len(chosen)


def measurements(course: Course, contestant: str) -> dict[str, Measurement]:
    """All of a contestant on a course, by the names of their files."""
    always: dict[str, Measurement] = {"loss": loss, "features": features}
    if course.by_layer:
        always["layers"] = layers
    if contestant in REFERENCES:
        return always
    tuned = {
        f"{FINETUNE}-{percent}{'-random' if random else ''}": finetuned(percent, random)
        for percent in course.finetune_steps
        for random in (False, True)
    }
    return always | tuned
