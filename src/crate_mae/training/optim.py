"""The optimisers, with weight decay on matrices only, and the learning rate as a pure function of the step."""

import math
import re

import torch

from crate_mae.models.image_model import ImageModel
from crate_mae.training.config import Optimiser
from crate_mae.training.muon import Muon, orthogonalise_flops

_BLOCK = re.compile(r"encoder\.blocks\.(\d+)\.")


def parameter_groups(model: ImageModel, weight_decay: float, layer_decay: float = 1.0) -> list[dict[str, object]]:
    """Decay on matrices; none on the parameters in ``model.no_weight_decay``: biases, norms, tokens, position tables.

    Each group has a ``scale``, a factor of the learning rate: with ``layer_decay`` c it is 1 for the head,
    c^(L + 1 - l) for encoder layer l of L, and c^(L + 1) for the embedding. The matrices of the layers are in groups of
    their own, marked ``orthogonalise`` for Muon.
    """
    names = [name for name, _ in model.named_parameters()]
    depth = max((layer_of(name, 0) for name in names), default=0)
    spared = model.no_weight_decay()
    groups: dict[tuple[float, float, bool], dict[str, object]] = {}
    for name, parameter in model.named_parameters():
        decay = 0.0 if name in spared else weight_decay
        scale = layer_decay ** (depth + 1 - layer_of(name, depth + 1))
        in_layer = parameter.ndim == 2 and ".blocks." in name
        group = groups.setdefault(
            (decay, scale, in_layer),
            {"params": [], "weight_decay": decay, "scale": scale, "orthogonalise": in_layer},
        )
        group["params"].append(parameter)  # type: ignore[attr-defined]
    return list(groups.values())


def layer_of(name: str, above: int) -> int:
    """The encoder layer of a parameter: 0 for the embedding, l for block l, ``above`` for what follows the encoder."""
    if name.startswith("embedding."):
        return 0
    block = _BLOCK.match(name)
    return int(block[1]) + 1 if block else above


def optimiser_of(
    model: ImageModel,
    kind: Optimiser,
    learning_rate: float,
    weight_decay: float,
    betas: tuple[float, float] = (0.9, 0.95),
    layer_decay: float = 1.0,
) -> torch.optim.AdamW:
    """Fused AdamW, or Muon, over ``parameter_groups``."""
    groups = parameter_groups(model, weight_decay, layer_decay)
    optimiser = {"adamw": torch.optim.AdamW, "muon": Muon}[kind]
    return optimiser(groups, lr=learning_rate, betas=betas, fused=True)


def adamw(
    model: ImageModel,
    learning_rate: float,
    weight_decay: float,
    betas: tuple[float, float] = (0.9, 0.95),
    layer_decay: float = 1.0,
) -> torch.optim.AdamW:
    """``optimiser_of`` for AdamW."""
    return optimiser_of(model, "adamw", learning_rate, weight_decay, betas, layer_decay)


def optimiser_flops(model: ImageModel, kind: Optimiser) -> int:
    """FLOPs of the matrix products in one step of the optimiser: those of Newton-Schulz with Muon, none with AdamW."""
    if kind != "muon":
        return 0
    matrices = [
        matrix
        for group in parameter_groups(model, 0.0)
        if group["orthogonalise"]
        for matrix in group["params"]  # type: ignore[attr-defined]
    ]
    return sum(orthogonalise_flops(*matrix.shape) for matrix in matrices)


def set_learning_rate(optimiser: torch.optim.Optimizer, rate: float) -> None:
    """Set each group's learning rate to its ``scale`` times ``rate``."""
    for group in optimiser.param_groups:
        group["lr"] = rate * group["scale"]


def cosine_schedule(step: int, steps: int, warmup: float, peak: float) -> float:
    """The learning rate of step 0 .. steps - 1: linear warm-up to the peak, then a half cosine towards zero.

    ``warmup`` is the fraction of the steps in which it rises.
    """
    rise = round(steps * warmup)
    if step < rise:
        return peak * (step + 1) / rise
    return peak * 0.5 * (1 + math.cos(math.pi * (step - rise) / max(steps - rise, 1)))
