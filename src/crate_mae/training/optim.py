"""AdamW with decay only where it belongs, and the learning rate as a pure function of the step."""

import math

import torch
from torch import nn


def parameter_groups(model: nn.Module, weight_decay: float) -> list[dict[str, object]]:
    """Decay on matrices; none on biases, norms, tokens and position tables."""
    tables = {id(parameter) for name, parameter in model.named_parameters() if name.endswith("positions.table")}
    matrices: list[nn.Parameter] = []
    rest: list[nn.Parameter] = []
    for parameter in model.parameters():
        (matrices if parameter.ndim >= 2 and id(parameter) not in tables else rest).append(parameter)
    return [{"params": matrices, "weight_decay": weight_decay}, {"params": rest, "weight_decay": 0.0}]


def adamw(
    model: nn.Module, learning_rate: float, weight_decay: float, betas: tuple[float, float] = (0.9, 0.95)
) -> torch.optim.AdamW:
    """Fused AdamW over ``parameter_groups``."""
    return torch.optim.AdamW(parameter_groups(model, weight_decay), lr=learning_rate, betas=betas, fused=True)


def cosine_schedule(step: int, steps: int, warmup: int, peak: float) -> float:
    """The learning rate of step 0 .. steps - 1: linear up to the peak, then a half cosine towards zero."""
    if step < warmup:
        return peak * (step + 1) / warmup
    return peak * 0.5 * (1 + math.cos(math.pi * (step - warmup) / max(steps - warmup, 1)))
