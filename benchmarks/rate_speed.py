"""Value and gradient of R^c: Cholesky on the p x p side against the same closed form on the N x N side.

    python benchmarks/rate_speed.py [--repeats 7] [--threads 1]

Float32, batch 32, N 196, d 768, K 12, so p 64. Both sides are timed in turn in one run and the medians compared; the
N x N side is given the faster of its two solvers. The whole with the projections U_k^T Z and their lift back to d
stands beside it.
"""

import argparse
import statistics
import time
from collections.abc import Callable

import torch
from torch import Tensor

from crate_mae.theory.rates import (
    compression_rate,
    compression_rate_gradient,
    lift,
    project,
    projected_compression_rate_and_gradient,
)

BATCH, N, D, K, EPSILON = 32, 196, 768, 12, 0.5


def token_side(W: Tensor, solve: bool) -> tuple[Tensor, Tensor]:
    """The same closed form with the N x N matrix I + beta W_k^T W_k."""
    beta = W.shape[-2] / (W.shape[-1] * EPSILON**2)
    gram = beta * (W.mT @ W) + torch.eye(W.shape[-1])
    factor, _ = torch.linalg.cholesky_ex(gram)
    value = factor.diagonal(dim1=-2, dim2=-1).log().sum((-2, -1))
    if solve:
        return value, beta * torch.cholesky_solve(W.mT, factor).mT
    return value, W @ (beta * torch.cholesky_inverse(factor))


def small_side(W: Tensor) -> tuple[Tensor, Tensor]:
    return projected_compression_rate_and_gradient(W, EPSILON)


def whole(Z: Tensor, U: Tensor, inner: Callable[[Tensor], tuple[Tensor, Tensor]]) -> tuple[Tensor, Tensor]:
    value, gradient = inner(project(Z, U))
    return value, lift(gradient, U)


def medians(functions: dict[str, Callable[[], object]], repeats: int) -> dict[str, float]:
    times: dict[str, list[float]] = {name: [] for name in functions}
    for repeat in range(repeats + 1):
        for name, function in functions.items():
            start = time.perf_counter()
            function()
            if repeat:  # the first round warms up
                times[name].append(time.perf_counter() - start)
    return {name: statistics.median(values) for name, values in times.items()}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--repeats", type=int, default=7)
    parser.add_argument("--threads", type=int, default=None, help="torch's own choice where left out")
    options = parser.parse_args()
    if options.threads:
        torch.set_num_threads(options.threads)
    generator = torch.Generator().manual_seed(0)
    Z = torch.randn(BATCH, D, N, generator=generator)
    U = torch.linalg.qr(torch.randn(D, D, generator=generator))[0].T.reshape(K, D // K, D).mT.contiguous()
    W = project(Z, U)
    torch.testing.assert_close(small_side(W), token_side(W, solve=True), rtol=2e-3, atol=2e-3)
    torch.testing.assert_close(compression_rate(Z, U, EPSILON), small_side(W)[0], rtol=1e-4, atol=1e-3)
    torch.testing.assert_close(compression_rate_gradient(Z, U, EPSILON), lift(small_side(W)[1], U))
    times = medians(
        {
            "given W, p x p side": lambda: small_side(W),
            "given W, N x N side, solving": lambda: token_side(W, solve=True),
            "given W, N x N side, inverting": lambda: token_side(W, solve=False),
            "whole, p x p side": lambda: whole(Z, U, small_side),
            "whole, N x N side, solving": lambda: whole(Z, U, lambda w: token_side(w, solve=True)),
            "whole, N x N side, inverting": lambda: whole(Z, U, lambda w: token_side(w, solve=False)),
        },
        options.repeats,
    )
    print(f"float32, batch {BATCH}, N {N}, d {D}, K {K}, {torch.get_num_threads()} threads, {options.repeats} repeats")
    for name, seconds in times.items():
        print(f"  {name:32s} {1e3 * seconds:8.1f} ms")
    for part in ("given W", "whole"):
        small = times[f"{part}, p x p side"]
        large = min(times[f"{part}, N x N side, solving"], times[f"{part}, N x N side, inverting"])
        print(f"  {part}: the smaller side is {large / small:.2f} times as fast")


if __name__ == "__main__":
    main()
