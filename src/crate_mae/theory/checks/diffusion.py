"""Do the four processes have the same marginals: with the exact score, with the printed signs, and with R^c?"""

import math

import torch
from torch import Tensor

from crate_mae.theory import diffusion as df
from crate_mae.theory import mixture as mx
from crate_mae.theory.checks.check import Check
from crate_mae.theory.theorems import log_slope
from crate_mae.theory.two_sample import TwoSample, kernel_test, moment_test

T_1, LAYERS, SAMPLES, PERMUTATIONS = 0.01, 121, 1000, 1000
KAPPA = (100 ** (1 / (LAYERS - 1)) - 1) / 2
"""Chosen so that the last time is T = 1, a hundred times the first."""
STEPS = (32, 64, 128, 256)
"""Numbers of steps in the round trip."""
LEVEL = 0.002
"""A p-value below it counts as a difference: without one, it occurs once in 500 tests."""
PRINTED = (1, 1, -1)
"""Factors of the score in the appendix: reverse SDE's drift, forward flow, reverse flow. They should be 2, -1, 1."""
ACCELERATION = 3.0
"""Rate at which the drift -(1 + 3 t) z grows; at 0 the drift does not depend on time."""


def _lines() -> Tensor:
    # three lines in R^3 that are not orthogonal, with bases of unequal length
    return torch.tensor([[[1.0], [0.2], [0]], [[0], [0.8], [0.3]], [[0.3], [0], [1.2]]], dtype=torch.float64)


def _score(U: Tensor) -> df.Field:
    """The exact score of the mixture at time t, noise sqrt(2 t), with samples as rows."""
    return lambda x, t: mx.score(mx.codebook(U, math.sqrt(2 * t)), x.T).T


def _at(U: Tensor, t: float, generator: torch.Generator) -> Tensor:
    return mx.sample(mx.codebook(U, math.sqrt(2 * t)), (SAMPLES,), generator).tokens.T


def _both(x: Tensor, y: Tensor, generator: torch.Generator) -> dict[str, dict[str, float]]:
    tests: dict[str, TwoSample] = {
        "moments": moment_test(x, y, generator, PERMUTATIONS),
        "kernel": kernel_test(x, y, generator, PERMUTATIONS),
    }
    return {name: vars(test) for name, test in tests.items()}


def _smallest_p(pairs: dict[str, dict[str, dict[str, float]]]) -> float:
    return min(pair[test]["p_value"] for pair in pairs.values() for test in ("moments", "kernel"))


def _noise(x: Tensor, steps: int, generator: torch.Generator) -> Tensor:
    return torch.randn(steps, *x.shape, generator=generator, dtype=x.dtype)


def exact_marginals(generator: torch.Generator) -> Check:
    """Two-sample tests of the SDE, both flows and exact samples, with the exact score."""
    U = _lines()
    process, score = df.variance_exploding(1.0), _score(U)
    times = df.denoising_times(T_1, KAPPA, LAYERS)
    exact = _at(U, T_1, generator)
    start = _at(U, 1.0, generator)
    noise = _noise(start, LAYERS - 1, generator)
    stochastic = df.integrate_sde(df.time_reversal(process, score), start, times, noise, "heun")
    flow = df.integrate_ode(df.reverse_probability_flow(process, score), _at(U, 1.0, generator), times)
    out = df.diffusion_times(T_1, KAPPA, LAYERS)
    forward = df.integrate_ode(df.probability_flow(process, score), _at(U, T_1, generator), out)
    pairs = {
        "SDE and ODE": _both(stochastic, flow, generator),
        "SDE and exact": _both(stochastic, exact, generator),
        "ODE and exact": _both(flow, exact, generator),
        "forward ODE and exact": _both(forward, _at(U, 1.0, generator), generator),
    }
    claim = "with the exact score, SDE, ODE and the exact distribution agree (smallest p-value of 8 tests)"
    return Check(claim, "paper", "met", _smallest_p(pairs), ">=", LEVEL, numbers=pairs)


def printed_signs(generator: torch.Generator) -> Check:
    """The same for the variance-exploding processes with the signs printed in the appendix."""
    U = _lines()
    score, root = _score(U), 2**0.5
    drift, forwards, backwards = PRINTED
    times = df.denoising_times(T_1, KAPPA, LAYERS)
    exact = _at(U, T_1, generator)
    start = _at(U, 1.0, generator)
    printed_sde = df.ItoProcess(lambda x, t: drift * score(x, 1 - t), lambda x, t: root, 1.0)
    stochastic = df.integrate_sde(printed_sde, start, times, _noise(start, LAYERS - 1, generator), "heun")
    flow = df.integrate_ode(lambda x, t: backwards * score(x, 1 - t), start, times)
    out = df.diffusion_times(T_1, KAPPA, LAYERS)
    forward = df.integrate_ode(lambda x, t: forwards * score(x, t), exact, out)
    pairs = {
        "reverse SDE with drift s, and exact": _both(stochastic, exact, generator),
        "reverse ODE with -s, and exact": _both(flow, exact, generator),
        "printed SDE and printed ODE": _both(stochastic, flow, generator),
        "forward ODE with +s, and exact": _both(forward, start, generator),
    }
    claim = "the printed variance-exploding processes (drift s, flows +s and -s) are exact (smallest p-value)"
    return Check(claim, "paper", "met", _smallest_p(pairs), ">=", LEVEL, numbers=pairs)


def _reversed_variance(printed: bool) -> dict[str, float]:
    """The variance of the reverse flow halfway and at its end, for a drift that changes with time.

    dz = -(1 + 3 t) z dt + sqrt(2) dw from N(0, 4) is Gaussian at all times, so its flow multiplies z by a factor. In
    this linear case the errors of the printed formula cancel by the end, but not halfway.
    """
    steps = 2000
    grid = torch.linspace(0, 1, steps + 1, dtype=torch.float64)
    process = df.ItoProcess(lambda x, t: -(1 + ACCELERATION * t) * x, lambda x, t: 2**0.5, 1.0)
    variances: list[float] = []
    start = torch.tensor(4.0, dtype=torch.float64)
    df.integrate_ode(
        lambda v, t: 2 - 2 * (1 + ACCELERATION * t) * v, start, grid, callback=lambda t, v: variances.append(float(v))
    )

    def score(x: Tensor, t: float) -> Tensor:
        return -x / variances[round(t * steps)]

    def as_printed(x: Tensor, t: float) -> Tensor:
        return -process.drift(x, t) + score(x, 1 - t)

    velocity = as_printed if printed else df.reverse_probability_flow(process, score)
    factors: list[float] = []
    unit = torch.ones((), dtype=torch.float64)
    df.integrate_ode(velocity, unit, grid, callback=lambda t, x: factors.append(float(x)))
    half = steps // 2
    return {
        "halfway": factors[half] ** 2 * variances[-1],
        "exact halfway": variances[half],
        "end": factors[-1] ** 2 * variances[-1],
        "exact end": variances[0],
    }


def general_clock(generator: torch.Generator) -> Check:
    """The reverse flow of a drift that depends on time, with -b(x, T - t)."""
    found = _reversed_variance(printed=False)
    claim = "reverse ODE with -b(x, T - t), the general formula, has the process's marginals (variance halfway)"
    return Check(claim, "paper", "met", found["halfway"], "=", found["exact halfway"], 1e-3, found)


def printed_clock(generator: torch.Generator) -> Check:
    """The same with -b(x, t), as printed."""
    found = _reversed_variance(printed=True)
    claim = "reverse ODE with -b(x, t), as printed, has the process's marginals (variance halfway)"
    return Check(claim, "paper", "met", found["halfway"], "=", found["exact halfway"], 1e-3, found)


def structured_marginals(generator: torch.Generator) -> Check:
    """Two-sample tests of eq:compression_sde and eq:compression_ode, which have -grad R^c in place of the score."""
    U = mx.orthogonal_bases(4, 2, 2, generator)
    pairs = {}
    for epsilon in (0.2, 0.5, 1.0):
        first, last = 0.05, 1.0
        kappa = (20 ** (1 / 60) - 1) / 2
        times = df.denoising_times(first, kappa, 61)
        noisy = mx.codebook(U, math.sqrt(2 * last), U.new_full((2, 2), 2**-0.5))
        starts = [mx.sample(noisy, (600, 8), generator).tokens for _ in range(2)]
        process = df.structured_denoising(U, epsilon, last)
        stochastic = df.integrate_sde(process, starts[0], times, _noise(starts[0], 60, generator), "heun")
        flow = df.integrate_ode(df.structured_denoising_flow(U, epsilon, last), starts[1], times)
        pairs[f"SDE and ODE, eps {epsilon}"] = _both(stochastic.flatten(1), flow.flatten(1), generator)
        sizes = {"SDE": float(stochastic.square().mean().sqrt()), "ODE": float(flow.square().mean().sqrt())}
        pairs[f"SDE and ODE, eps {epsilon}"]["root mean square"] = sizes
    claim = (
        "with -grad R^c / (2 (T - t)) as the score, eq:compression_sde and eq:compression_ode agree (smallest p-value)"
    )
    return Check(claim, "paper", "-", _smallest_p(pairs), ">=", LEVEL, numbers=pairs)


def round_trip(generator: torch.Generator) -> Check:
    """The order of the error after the forward flow and then the reverse flow, by Euler and by Heun."""
    U = _lines()
    process, score = df.variance_exploding(1.0), _score(U)
    forward, backward = df.probability_flow(process, score), df.reverse_probability_flow(process, score)
    first = 0.05
    start = mx.sample(mx.codebook(U, math.sqrt(2 * first)), (200,), generator).tokens.T
    counts = STEPS
    numbers: dict[str, object] = {"steps": list(counts)}
    for method in ("euler", "heun"):
        for back in (1, 2):
            errors = []
            for n in counts:
                out = first ** torch.linspace(1, 0, n + 1, dtype=torch.float64)
                home = 1 - (first ** torch.linspace(1, 0, back * n + 1, dtype=torch.float64)).flip(0)
                there = df.integrate_ode(forward, start, out, method)
                again = df.integrate_ode(backward, there, home, method)
                errors.append(float((again - start).square().mean().sqrt()))
            order = -log_slope(torch.tensor(counts[1:]).double(), torch.tensor(errors[1:]).double())
            numbers[f"{method}, {'as many' if back == 1 else 'twice as many'} steps back"] = {
                "order": order,
                "errors": errors,
            }
    orders = {name: row["order"] for name, row in numbers.items() if isinstance(row, dict)}
    error = max(abs(orders["euler, twice as many steps back"] - 1), abs(orders["heun, twice as many steps back"] - 2))
    claim = (
        "forward, then reverse returns to the start at the method's order: Euler 1, Heun 2 (largest error of the order)"
    )
    return Check(claim, "paper", "met", error, "<=", 0.25, numbers=numbers)


def last_time(generator: torch.Generator) -> Check:
    """The exponent of 1 + 2 kappa in T / t_1."""
    times = df.diffusion_times(0.01, 0.25, 12)
    ratio = math.log(float(times[-1] / times[0])) / math.log(1 + 2 * 0.25)
    claim = "the last of L = 12 times is (1 + 2 kappa)^L t_1 (exponent; the times are t_l = (1 + 2 kappa)^(l-1) t_1)"
    return Check(claim, "paper", "met", ratio, "=", 12.0, 1e-6, {"times": times.tolist()})


def encoder_step(generator: torch.Generator) -> Check:
    """The size of an Euler step of the encoder's flow on the decoder's times."""
    kappa = 0.25
    times = df.denoising_times(0.01, kappa, 12)
    horizon = float(df.diffusion_times(0.01, kappa, 12)[-1])
    steps = (times[1:] - times[:-1]) / (2 * (horizon - times[:-1]))
    claim = "on the same times, Euler steps of the denoising ODE are kappa = 0.25 too (step; it is kappa/(1+2kappa))"
    return Check(claim, "paper", "met", float(steps.mean()), "=", kappa, 1e-6, {"steps": steps.tolist()})
