"""Muon: the matrices of the layers move by orthogonalised momentum, everything else by AdamW.

A gradient of U, D or any other matrix of a layer has a few large singular values. AdamW follows these; Muon gives all
directions of the matrix the same length (Jordan et al., "Muon", 2024). In a short training this counts: docs/log.md.
"""

from collections import defaultdict
from collections.abc import Callable
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor
from torch.distributed.tensor import DTensor, Replicate

from crate_mae.device import multiplies_bfloat16

MOMENTUM = 0.95
NEWTON_SCHULZ = (3.4445, -4.7750, 2.0315)
"""Jordan et al.'s a, b, c: the fastest growth of small singular values that ends near 1."""
ITERATIONS = 5
RMS = 0.2
"""The root mean square of an update's entries over the learning rate, about that of AdamW: one rate serves both."""


class Muon(torch.optim.AdamW):
    """AdamW, except for the groups with ``"orthogonalise": True``. For each matrix W of these with gradient G

        M <- mu M + (1 - mu) G
        W <- (1 - gamma decay) W - gamma 0.2 sqrt(max(m, n)) O,   O = orthogonalise(mu M + (1 - mu) G)

    where W is m x n and gamma the learning rate. M is the only moment, so that a matrix takes half of AdamW's memory.
    """

    @torch.no_grad()
    def step(self, closure: Callable[[], Any] | None = None) -> Any:
        loss = None
        if closure is not None:  # before the matrices move: it computes the gradients
            with torch.enable_grad():
                loss = closure()
        for group in self.param_groups:
            if group.get("orthogonalise"):
                self._step_matrices(group)
        super().step()  # it passes over parameters without a gradient
        return loss

    def _step_matrices(self, group: dict[str, Any]) -> None:
        by_shape: dict[torch.Size, list[tuple[Tensor, Tensor]]] = defaultdict(list)
        for matrix in group["params"]:
            if matrix.grad is None:
                continue
            state = self.state[matrix]
            if not state:
                state["step"] = torch.tensor(0.0)  # AdamW asks for it when it restores a state
                state["momentum"] = torch.zeros_like(matrix)
            state["step"] += 1
            state["momentum"].lerp_(matrix.grad, 1 - MOMENTUM)
            by_shape[matrix.shape].append((matrix, matrix.grad.lerp_(state["momentum"], MOMENTUM)))
            matrix.grad = None
        for shape, pairs in by_shape.items():
            updates = orthogonalise(torch.stack([_whole(update) for _, update in pairs]))
            length = group["lr"] * RMS * max(shape) ** 0.5
            for (matrix, _), update in zip(pairs, updates, strict=True):
                matrix.mul_(1 - group["lr"] * group["weight_decay"])
                matrix.sub_(_placed_like(matrix, update), alpha=length)


def orthogonalise(matrices: Float[Tensor, "k m n"]) -> Float[Tensor, "k m n"]:
    """About U V^T for each matrix U S V^T: its singular values become 0.7 to 1.2.

        X <- a X + b (X X^T) X + c (X X^T)^2 X

    five times, from X = G / ||G||. In bfloat16 instead of float32 where that is fast: the result is rough anyway.
    """
    a, b, c = NEWTON_SCHULZ
    rounds = matrices.dtype == torch.float32 and multiplies_bfloat16(matrices.device)
    x = matrices.bfloat16() if rounds else matrices
    x = x / x.norm(dim=(-2, -1), keepdim=True).clamp_min(1e-7)
    wide = x.mT if x.shape[-2] > x.shape[-1] else x
    for _ in range(ITERATIONS):
        gram = wide @ wide.mT
        wide = torch.baddbmm(wide, torch.baddbmm(gram, gram, gram, beta=b, alpha=c), wide, beta=a)
    return (wide.mT if x.shape[-2] > x.shape[-1] else wide).to(matrices.dtype)


def orthogonalise_flops(rows: int, columns: int) -> int:
    """FLOPs of ``orthogonalise`` for one matrix: in each iteration X X^T, its square, and their product with X."""
    short, long = sorted((rows, columns))
    return ITERATIONS * 2 * short * short * (2 * long + short)


def _whole(tensor: Tensor) -> Tensor:
    return tensor.full_tensor() if isinstance(tensor, DTensor) else tensor


def _placed_like(matrix: Tensor, update: Tensor) -> Tensor:
    """Every process has the whole update; of a sharded matrix it takes its own part."""
    if not isinstance(matrix, DTensor):
        return update
    replicated = DTensor.from_local(update, matrix.device_mesh, [Replicate()] * matrix.device_mesh.ndim)
    return replicated.redistribute(placements=matrix.placements)
