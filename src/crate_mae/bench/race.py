"""The visible-only form beside the paper's form and ViT-MAE: same data, same machine, same seconds.

Each trains for so many seconds of the clock, reading its images included, with the same optimiser, batch and schedule
(which follows the seconds). Then the error on the masked patches of validation images and a linear probe (ridge, in
closed form) of the mean of patches are measured, with the same images and masks for all.
"""

import statistics
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path

import torch
from rich.console import Console
from torch import Tensor, nn

from crate_mae.bench.contestants import MISSING, OURS, TRANSFORMERS, he_mae, installed, transformers_model
from crate_mae.bench.harness import Spread
from crate_mae.bench.steps import OWN_VIT, VISIBLE
from crate_mae.bench.table import Row
from crate_mae.data.loader import Samples, evaluation_batches, training_batches
from crate_mae.data.open import open_dataset
from crate_mae.data.transforms import Augmentation
from crate_mae.errors import UserError
from crate_mae.evaluation.knn import quick_probe
from crate_mae.models.autoencoder import MaskedAutoencoder
from crate_mae.models.config import ModelConfig
from crate_mae.models.zoo import model_config
from crate_mae.progress import progress
from crate_mae.training.evaluators import as_evaluated, some
from crate_mae.training.optim import adamw, cosine_schedule, set_learning_rate

RATE, DECAY, CLIP = 1e-3, 0.05, 1.0


@dataclass(frozen=True)
class Course:
    """A set of images, and the shape of the models that run on it."""

    data: str
    config: ModelConfig
    batch: int
    crop_area: tuple[float, float]
    flip: bool


DIGITS = Course(
    "digits",
    model_config(
        "crate_mae_tiny",
        image_size=(8, 8),
        patch_size=(2, 2),
        channels=1,
        dim=192,
        depth=2,
        heads=6,
        mean=(0.305,),
        std=(0.376,),
    ),
    batch=64,
    crop_area=(1.0, 1.0),
    flip=False,
)
CIFAR = Course(
    "cifar10",
    model_config("crate_mae_tiny", image_size=(32, 32), patch_size=(4, 4), dim=192, depth=4, heads=6),
    batch=128,
    crop_area=(0.4, 1.0),
    flip=True,
)


@dataclass(frozen=True)
class Sizes:
    courses: tuple[Course, ...] = (DIGITS, CIFAR)
    seconds: float = 50.0
    seeds: int = 3
    evaluated: int = 2000
    """Images of each split that are measured at the end."""
    data_root: Path | None = None


WHOLE, QUICK = Sizes(), Sizes(seconds=5.0, seeds=1, evaluated=500)


@dataclass(frozen=True)
class Racer:
    """A model as the race needs it."""

    module: nn.Module
    loss: Callable[[Tensor, Tensor], Tensor]
    """From images and masks."""
    features: Callable[[Tensor], Tensor]
    """From images to the mean of patches."""
    optimiser: torch.optim.Optimizer
    """AdamW; decay on matrices alone."""


def own(config: ModelConfig, seed: int) -> Racer:
    model = MaskedAutoencoder(config, torch.Generator().manual_seed(seed))
    return Racer(
        model,
        lambda images, masks: model(images, masks).loss,
        lambda images: model.features(images, pool="mean"),
        adamw(model, RATE, DECAY),
    )


def theirs(config: ModelConfig, seed: int) -> Racer:
    """transformers' ViTMAE, with our masks: it keeps the patches of the least noise."""
    model = transformers_model(config, seed)
    ratio = model.config.mask_ratio

    def features(images: Tensor) -> Tensor:
        model.config.mask_ratio = 0.0
        tokens = model.vit(images).last_hidden_state
        model.config.mask_ratio = ratio
        return tokens[:, 1:].mean(1)

    learned = [parameter for parameter in model.parameters() if parameter.requires_grad]
    groups = [
        {"params": [one for one in learned if one.ndim >= 2 and len(one) > 1], "weight_decay": DECAY, "scale": 1.0},
        {"params": [one for one in learned if one.ndim < 2 or len(one) == 1], "weight_decay": 0.0, "scale": 1.0},
    ]
    optimiser = torch.optim.AdamW(groups, lr=RATE, betas=(0.9, 0.95), fused=True)
    return Racer(model, lambda images, masks: model(images, noise=masks.float()).loss, features, optimiser)


RACERS: dict[str, Callable[[ModelConfig, int], Racer]] = {
    VISIBLE: lambda config, seed: own(replace(config, encoder_sees="visible"), seed),
    OURS: own,
    OWN_VIT: lambda config, seed: own(he_mae(config), seed),
    TRANSFORMERS: theirs,
}


@dataclass(frozen=True)
class Finish:
    """Where one racer stands after its seconds."""

    images_per_second: float
    loss: float
    probe: float
    """Accuracy in per cent."""
    parameters: int


@dataclass
class Finishes:
    """Of all seeds."""

    found: list[Finish] = field(default_factory=list)

    def mean(self, name: str) -> str:
        """Mean and standard deviation over the seeds."""
        values = [getattr(finish, name) for finish in self.found]
        deviation = statistics.stdev(values) if len(values) > 1 else 0.0
        return f"{statistics.mean(values):.3g} ± {deviation:.2g}"


def rows(sizes: Sizes, console: Console) -> Iterator[Row]:
    names = installed(RACERS)
    for course in sizes.courses:
        what = f"{sizes.seconds:g} s on {course.data}: images/s of {VISIBLE}"
        try:
            splits = {split: open_dataset(course.data, split, sizes.data_root) for split in ("train", "val", "test")}
        except UserError:
            yield Row(what, "the others", None, note="not run: data missing; say where it is with --data-root")
            continue
        found = {name: Finishes() for name in names}
        with progress(f"race on {course.data}", sizes.seeds * len(names), console) as advance:
            for seed in range(sizes.seeds):
                first = seed % len(names)
                for name in names[first:] + names[:first]:
                    samples = Samples(splits["train"], augmentation(course), course.config.num_patches, seed=seed)
                    racer = RACERS[name](course.config, seed)
                    speed = train(racer, samples, course.batch, sizes.seconds)
                    measured = {
                        split: as_evaluated(some(source, sizes.evaluated), course.config, samples.mask_ratio)
                        for split, source in splits.items()
                    }
                    parameters = sum(p.numel() for p in racer.module.parameters() if p.requires_grad)
                    found[name].found.append(Finish(speed, *measure(racer, measured), parameters))
                    advance(name)
        for other in RACERS:
            if other == VISIBLE:
                continue
            if other not in found:
                yield Row(what, other, None, note=MISSING)
                continue
            pairs = zip(found[VISIBLE].found, found[other].found, strict=True)
            yield Row(
                what,
                other,
                Spread.of([a.images_per_second / b.images_per_second for a, b in pairs]),
                note="; ".join(
                    f"{name}: {each.mean('images_per_second')} images/s, loss {each.mean('loss')}, "
                    f"probe {each.mean('probe')} %"
                    for name, each in ((VISIBLE, found[VISIBLE]), (other, found[other]))
                ),
                details={name: [asdict(finish) for finish in found[name].found] for name in (VISIBLE, other)},
            )


def augmentation(course: Course) -> Augmentation:
    c = course.config
    return Augmentation(c.image_size, c.channels, c.mean, c.std, course.crop_area, course.flip, randaugment=None)


def train(racer: Racer, samples: Samples, batch: int, seconds: float) -> float:
    """Train until the seconds are over; images in a second."""
    optimiser = racer.optimiser
    racer.module.train()
    began, ticks, seen = time.perf_counter(), 10_000, 0
    for part in training_batches(samples, batch, range(10**9)):
        spent = time.perf_counter() - began
        set_learning_rate(optimiser, cosine_schedule(int(ticks * min(spent / seconds, 1)), ticks, 0.1, RATE))
        racer.loss(part.images, part.masks).backward()
        nn.utils.clip_grad_norm_(racer.module.parameters(), CLIP)
        optimiser.step()
        optimiser.zero_grad()
        seen += batch
        if (spent := time.perf_counter() - began) >= seconds:
            break
    return seen / spent


@torch.no_grad()
def measure(racer: Racer, samples: dict[str, Samples]) -> tuple[float, float]:
    """The error on the masked patches of validation images, and the accuracy of the probe on test images."""
    racer.module.eval()
    losses, weights = [], []
    for batch in evaluation_batches(samples["val"], 128):
        losses.append(racer.loss(batch.images, batch.masks).item())
        weights.append(len(batch.images))
    loss = sum(a * b for a, b in zip(losses, weights, strict=True)) / sum(weights)
    train, test = (features(racer, samples[split]) for split in ("train", "test"))
    return loss, quick_probe(*train, *test)


def features(racer: Racer, samples: Samples) -> tuple[Tensor, Tensor]:
    """The means of patches of all images, and their labels."""
    batches = list(evaluation_batches(samples, 128))
    return torch.cat([racer.features(batch.images) for batch in batches]), torch.cat([b.labels for b in batches])
