"""Training for a number of seconds of processor time.

What counts is the time that this process computes, in training steps and their batches: a machine that others use
makes it last longer, and changes nothing else. Evaluation and checkpoints are not counted.
"""

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from crate_mae.allocator import freed_memory_kept
from crate_mae.atomic_write import atomic_write
from crate_mae.bench.race.images import RaceImages, batch
from crate_mae.bench.race.recipes import Course, Recipe
from crate_mae.data.transforms import sample_generator
from crate_mae.device import multiplies_bfloat16
from crate_mae.models.autoencoder import MaskedAutoencoder
from crate_mae.models.config import ModelConfig
from crate_mae.models.image_model import ImageModel
from crate_mae.tokens import random_mask
from crate_mae.training.optim import cosine_schedule, optimiser_of, set_learning_rate

Report = Callable[[float, str], None]
"""Told the share that is done and a few words; raises ``Stopped`` where the process is asked to end."""
TICKS = 10_000
"""Steps of the schedule over the whole budget."""
CURVE_POINTS = 20
CURVE_IMAGES = 1000
SAVE_EVERY = 180.0
"""Seconds on the clock between two checkpoints."""
EVALUATED_AT_ONCE = 250


class Stopped(Exception):
    """The process was asked to end."""


@dataclass
class State:
    """What training remembers beside weights and moments; randomness is a function of seed and step."""

    step: int = 0
    used: float = 0.0
    """Seconds of processor time."""
    curve: list[tuple[float, float]] = field(default_factory=list)
    """Seconds of processor time, and the loss on masked patches of some held-out images."""


def train(
    course: Course, recipe: Recipe, images: RaceImages, *, seconds: float, seed: int, checkpoint: Path, report: Report
) -> tuple[MaskedAutoencoder, State]:
    """Pretrain, or continue from ``checkpoint``, until the seconds are used."""
    config = course.config(recipe)
    model = MaskedAutoencoder(config, torch.Generator().manual_seed(seed))
    optimiser = optimiser_of(model, recipe.optimiser, recipe.learning_rate, recipe.weight_decay, recipe.betas)
    seen, held_out = np.flatnonzero(~images.held_out), np.flatnonzero(images.held_out)[:CURVE_IMAGES]

    def loss(step: int) -> Tensor:
        generator = sample_generator(seed, step)
        chosen = seen[batch_of(step, recipe.batch, len(seen), seed)]
        inputs = batch(images.train, chosen, config, generator)
        return model(inputs, random_mask(len(chosen), config.num_patches, recipe.mask_ratio, generator)).loss

    def watched() -> float:
        return masked_error(model, images.train, held_out, recipe.mask_ratio)

    budget = Budget(seconds, recipe.learning_rate, recipe.warmup, recipe.clip, recipe.averaging)
    state = for_seconds(budget, model, optimiser, loss, checkpoint, report, watched)
    return model.eval(), state


@dataclass(frozen=True)
class Budget:
    """Seconds of processor time, and the learning rate over them."""

    seconds: float
    learning_rate: float
    """The peak."""
    warmup: float
    """The share of the seconds in which it rises."""
    clip: float
    """The largest norm of the gradient."""
    averaging: float = 0.0
    """Above 0, the model ends with A, which is A <- averaging A + (1 - averaging) W after each step with weights W."""


def for_seconds(
    budget: Budget,
    model: ImageModel,
    optimiser: torch.optim.Optimizer,
    loss: Callable[[int], Tensor],
    checkpoint: Path,
    report: Report,
    watched: Callable[[], float] | None = None,
) -> State:
    """Training steps, from ``checkpoint`` if it is there, until the seconds are used.

    ``loss`` is that of a step, with its batch; ``watched`` gives a number now and then for the curve and the report.
    """
    model.train()
    state = _resumed(checkpoint, model, optimiser)
    seconds, saved = budget.seconds, time.monotonic()
    with freed_memory_kept():
        while state.used < seconds:
            began = time.process_time()
            ticks = int(TICKS * state.used / seconds)
            set_learning_rate(optimiser, cosine_schedule(ticks, TICKS, budget.warmup, budget.learning_rate))
            with fast_products():
                error = loss(state.step)
            error.backward()
            nn.utils.clip_grad_norm_(model.parameters(), budget.clip)
            optimiser.step()
            optimiser.zero_grad()
            if budget.averaging:
                _average(optimiser, budget.averaging)
            state.used += time.process_time() - began
            state.step += 1
            if watched is not None and state.used >= seconds * (len(state.curve) + 1) / CURVE_POINTS:
                with _averaged(optimiser):
                    state.curve.append((state.used, watched()))
            try:
                report(min(state.used / seconds, 1.0), f"loss {state.curve[-1][1]:.3f}" if state.curve else "")
            except Stopped:
                _save(checkpoint, model, optimiser, state)
                raise
            if time.monotonic() - saved > SAVE_EVERY:
                _save(checkpoint, model, optimiser, state)
                saved = time.monotonic()
    _exchange(optimiser)
    return state


@torch.no_grad()
def _average(optimiser: torch.optim.Optimizer, kept: float) -> None:
    """A step of the running mean, which is kept with the optimiser's moments, so that it is in a checkpoint."""
    for parameter, moments in optimiser.state.items():
        if "average" in moments:
            moments["average"].lerp_(parameter, 1 - kept)
        else:
            moments["average"] = parameter.detach().clone()


@contextmanager
def _averaged(optimiser: torch.optim.Optimizer) -> Iterator[None]:
    """The model has the running mean as its weights, if there is one; afterwards its own again."""
    _exchange(optimiser)
    try:
        yield
    finally:
        _exchange(optimiser)


def _exchange(optimiser: torch.optim.Optimizer) -> None:
    for parameter, moments in optimiser.state.items():
        if "average" in moments:
            parameter.data, moments["average"] = moments["average"], parameter.data


def fast_products() -> torch.autocast:
    """Products in bfloat16 on a CPU that has instructions for it, otherwise in float32; weights stay in float32."""
    return torch.autocast("cpu", torch.bfloat16, enabled=multiplies_bfloat16(torch.device("cpu")))


def batch_of(step: int, size: int, count: int, seed: int) -> np.ndarray:
    """The places of a step's images in a sequence of epochs, each in an order of its own."""
    places = np.arange(step * size, (step + 1) * size)
    return np.array([_order(seed, place // count, count)[place % count] for place in places])


@lru_cache(maxsize=2)
def _order(seed: int, epoch: int, count: int) -> np.ndarray:
    return np.random.default_rng((seed, epoch)).permutation(count)


@torch.no_grad()
def masked_error(model: MaskedAutoencoder, pixels: np.ndarray, chosen: np.ndarray, mask_ratio: float) -> float:
    """The mean squared error on masked patches, with the same masks each time."""
    training = model.training
    model.eval()
    batches = masked_batches(pixels, chosen, model.config, mask_ratio)
    total = sum(len(images) * model(images, masks).loss.item() for images, masks in batches)
    model.train(training)
    return total / len(chosen)


def masked_batches(
    pixels: np.ndarray, chosen: np.ndarray, config: ModelConfig, mask_ratio: float
) -> Iterator[tuple[Tensor, Tensor]]:
    """Images that are only cropped and normalised, with masks that are the same each time."""
    generator = torch.Generator().manual_seed(0)
    for part in np.split(chosen, range(EVALUATED_AT_ONCE, len(chosen), EVALUATED_AT_ONCE)):
        masks = random_mask(len(part), config.num_patches, mask_ratio, generator)
        yield batch(pixels, part, config), masks


def _save(path: Path, model: ImageModel, optimiser: torch.optim.Optimizer, state: State) -> None:
    content: dict[str, Any] = {"model": model.state_dict(), "optimiser": optimiser.state_dict(), "state": asdict(state)}
    with atomic_write(path) as temporary:
        torch.save(content, temporary)


def _resumed(path: Path, model: ImageModel, optimiser: torch.optim.Optimizer) -> State:
    if not path.is_file():
        return State()
    content = torch.load(path, weights_only=True)
    model.load_state_dict(content["model"])
    optimiser.load_state_dict(content["optimiser"])
    return State(**content["state"])
