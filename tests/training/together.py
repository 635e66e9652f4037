"""Steps on a small model by the loop's own functions, alone or as one of several processes."""

import os
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed.tensor import DTensor
from torch.nn.parallel import DistributedDataParallel

import crate_mae
from crate_mae.data.masked import MaskedBatch
from crate_mae.models.autoencoder import MaskedAutoencoder
from crate_mae.recipes import digits
from crate_mae.tokens import random_mask
from crate_mae.training.config import Optimiser, PretrainConfig
from crate_mae.training.distributed import Processes, full_weights, join, joined
from crate_mae.training.loop import DTYPES, take_step
from crate_mae.training.objectives import Completing
from crate_mae.training.optim import optimiser_of

MAKES = {"crate, paper": "crate_mae_tiny", "crate, visible": "crate_mae_tiny_visible", "vit, visible": "vit_mae_small"}
SIZES: dict[str, Any] = {
    "dim": 16,
    "depth": 2,
    "heads": 4,
    "decoder_dim": 16,
    "decoder_depth": 2,
    "decoder_heads": 2,
    "image_size": (12, 24),
    "patch_size": (4, 6),
    "channels": 3,
}
OPTIMISERS: tuple[Optimiser, ...] = ("adamw", "muon")
BATCH = 8
STEPS = 4


class Keep(torch.optim.Optimizer):
    """An optimiser that keeps the gradient it is given, whole, and changes nothing."""

    def __init__(self, model: MaskedAutoencoder):
        super().__init__(model.parameters(), {})
        self.model = model
        self.gradient: dict[str, Tensor] = {}

    def step(self) -> None:  # type: ignore[override]
        for name, parameter in self.model.named_parameters():
            assert parameter.grad is not None
            gradient = parameter.grad
            self.gradient[name] = (gradient.full_tensor() if isinstance(gradient, DTensor) else gradient).clone()


def setting(precision: str = "float32", accumulation: int = 1, clip: float | None = None) -> PretrainConfig:
    return replace(digits(), precision=precision, accumulation=accumulation, clip=clip, batch=BATCH)


def new_model(make: str) -> MaskedAutoencoder:
    return crate_mae.create_model(MAKES[make], generator=torch.Generator().manual_seed(1), **SIZES)


def batch_of(step: int, config: PretrainConfig, processes: Processes) -> list[MaskedBatch]:
    """This process's share of a step's images, in parts."""
    generator = torch.Generator().manual_seed(step)
    images = torch.randn(BATCH, 3, 12, 24, generator=generator)
    masks = random_mask(BATCH, 12, 0.75, generator)
    labels = indices = torch.arange(BATCH)
    size = BATCH // (processes.world * config.accumulation)
    first = processes.rank * size * config.accumulation
    parts = [slice(at, at + size) for at in range(first, first + size * config.accumulation, size)]
    return [MaskedBatch(images[at], labels[at], indices[at], [], False, masks[at]) for at in parts]


def gradients(
    make: str, config: PretrainConfig, processes: Processes, recompute: bool = False
) -> tuple[dict[str, Tensor], float, float]:
    """The gradient of one batch, its loss and its norm."""
    objective = Completing(new_model(make)).to(processes.device, DTYPES[config.precision])
    for stack in objective.model.stacks():
        stack.recompute = recompute
    together = join(objective, processes)  # which may put other parameters in place of the model's
    keep = Keep(objective.model)
    loss, norm = take_step(together, keep, batch_of(0, config, processes), config, processes)
    return keep.gradient, processes.mean(loss).item(), norm.item()


def trained(make: str, config: PretrainConfig, processes: Processes, kind: Optimiser) -> dict[str, Tensor]:
    """The weights after a few steps of an optimiser."""
    objective = Completing(new_model(make)).to(processes.device, DTYPES[config.precision])
    together = join(objective, processes)
    optimiser = optimiser_of(objective.model, kind, 1e-3, 0.1)
    for step in range(STEPS):
        take_step(together, optimiser, batch_of(step, config, processes), config, processes)
    return full_weights(objective.model)


def several() -> None:
    """All cases in this process among others; the first one writes them to the file RESULT."""
    found = {}
    with joined("cpu") as alike:
        for shard in (False, True):
            processes = replace(alike, shard=shard)
            for make in MAKES:
                for accumulation in (1, 2):
                    exact = setting("float64", accumulation, clip=0.5)
                    weights = {kind: trained(make, exact, processes, kind) for kind in OPTIMISERS}
                    gradient = gradients(make, setting(accumulation=accumulation), processes)
                    found[make, accumulation, shard] = gradient, weights
        if alike.is_main:
            torch.save(found, Path(os.environ["RESULT"]))


def many_ends() -> None:
    """Groups of this process alone, one after the other, each of which ends while DDP still has it."""
    dist.rendezvous = lambda _: iter([(dist.HashStore(), 0, 1)])  # a real one takes a fifth of a second
    for _ in range(100):
        _end_right_after_a_sum()


def _end_right_after_a_sum() -> None:
    with joined("cpu"):
        held = DistributedDataParallel(nn.Linear(2, 2))
        dist.all_reduce(torch.zeros(()))  # of a tensor that gloo's thread is the last to have
    del held
