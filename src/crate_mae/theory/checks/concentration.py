"""The lemmas and concentration propositions by Monte Carlo: the constants that simulation supports."""

import math
from dataclasses import replace

import torch

from crate_mae.theory import concentration as cn
from crate_mae.theory import theorems as th
from crate_mae.theory.checks.check import Check, spread

TRIALS, TRIALS_LARGER = 60, 6
SIGMA = 0.03
LARGE = th.Setting(d=3072, N=392, K=24, p=128, sigma=SIGMA, epsilon=0.5)
"""Another size, with half of Base's N / d, to see whether a constant depends on the size."""


def _constants(name: str, generator: torch.Generator) -> dict[str, dict]:
    rows = {}
    for label, setting, trials in (("Base", replace(th.BASE, sigma=SIGMA), TRIALS), ("larger", LARGE, TRIALS_LARGER)):
        values = cn.monte_carlo(th.at_optimum(setting), trials, generator, [name])[name]
        rows[label] = {**spread(values), "q99": float(values.quantile(0.99)), "max": float(values.max())}
    return rows


def _check(name: str, claim: str, expected: float, generator: torch.Generator) -> Check:
    rows = _constants(name, generator)
    return Check(claim, "paper", "not met: see the assumption", rows["Base"]["q99"], "<=", expected, numbers=rows)


def noise_norm(generator: torch.Generator) -> Check:
    """C in ||Delta|| = sigma (C + sqrt(N/d))."""
    claim = "prop:delta: ||Delta|| <= sigma (C + sqrt(N/d)) (99 % quantile of C at Base; Gaussian theory gives 1)"
    return _check("noise", claim, 1.05, generator)


def signal_norm(generator: torch.Generator) -> Check:
    """C in ||A_k|| = 1 + C sqrt(N/d), the largest over k."""
    claim = "prop:xk: ||A_k|| <= 1 + C sqrt(N/d) for all k (99 % quantile of C at Base; equal classes would give 1)"
    return _check("norm", claim, 2.0, generator)


def gram_deviation(generator: torch.Generator) -> Check:
    """C in ||A_k^T A_k - I|| = C sqrt(N/d), against the largest C that the assumption allows at Base."""
    most = math.sqrt(th.BASE.d / (2 * th.BASE.N))
    claim = "prop:xktxk: ||A_k^T A_k - I|| <= C sqrt(N/d) with the C that 2 C^2 N <= d allows at Base (99 % quantile)"
    return _check("gram", claim, most, generator)


def inverse_deviation(generator: torch.Generator) -> Check:
    """The constant of (beta^-1 I + A_k^T A_k)^-1, against twice that of ``gram_deviation``."""
    rows, gram = _constants("inverse", generator), _constants("gram", generator)
    claim = (
        "lem:blockwise-pinv, first: its constant is at most twice that of prop:xktxk, as in the proof (99 % quantile)"
    )
    numbers = {"inverse": rows, "gram": gram}
    hypotheses = "not met: C sqrt(N/d) < 1"
    return Check(claim, "paper", hypotheses, rows["Base"]["q99"], "<=", 2 * gram["Base"]["q99"], numbers=numbers)


def pseudo_inverse_deviation(generator: torch.Generator) -> Check:
    """The constant of A_k (beta^-1 I + A_k^T A_k)^-1."""
    claim = "lem:blockwise-pinv, second: ||A_k (..)^-1 - A_k / (1 + 1/beta)|| (99 % quantile of its constant)"
    return _check("pseudo-inverse", claim, 6.0, generator)


def neumann(generator: torch.Generator) -> Check:
    """C in ||Xi_k D_k^-1|| = C beta [sigma^2 + sigma (1 + sqrt(N/d))]."""
    claim = "lem:neumann: ||Xi_k D_k^-1|| <= C beta [sigma^2 + sigma (1 + sqrt(N/d))] (99 % quantile of C at Base)"
    return _check("neumann", claim, 1.0, generator)


def neumann_converges(generator: torch.Generator) -> Check:
    """max_k ||Xi_k D_k^-1||, which is below 1 if the Neumann series converges."""
    setting = th.at_optimum(replace(th.BASE, sigma=SIGMA))
    norms = [max(cn.neumann_norms(setting, th.observe(setting, generator))) for _ in range(10)]
    claim = "at Base and the remark's eps the Neumann series converges: max_k ||Xi_k D_k^-1|| < 1 (mean)"
    return Check(
        claim, "paper", "not met: C beta sigma <= 1/2", spread(norms)["mean"], "<=", 1.0, numbers=spread(norms)
    )


def _gaussian(which: int, claim: str, expected: float, generator: torch.Generator) -> Check:
    rows = {}
    for q, n in ((64, 16), (256, 64), (768, 196)):
        values = torch.tensor([cn.gaussian_constants(q, n, generator)[which] for _ in range(100)]).double()
        rows[f"{q} x {n}"] = {**spread(values), "q99": float(values.quantile(0.99))}
    most = max(row["q99"] for row in rows.values())
    return Check(claim, "paper", "met", most, "<=", expected, numbers=rows)


def gaussian_norm(generator: torch.Generator) -> Check:
    """C in ||M|| = sqrt q + C sqrt n for a standard normal M of shape (q, n)."""
    claim = "prop:gaussian_concentration: ||M|| <= sqrt q + C sqrt n, same C at all sizes (99 % quantile)"
    return _gaussian(0, claim, 1.5, generator)


def gaussian_covariance(generator: torch.Generator) -> Check:
    """C in ||M^T M - q I|| = C sqrt(n q) for a standard normal M of shape (q, n)."""
    claim = "prop:gaussian_covariance: ||M^T M - q I|| <= C sqrt(n q) for n < q, same C at all sizes (99 % quantile)"
    return _gaussian(1, claim, 3.5, generator)


def binomial(generator: torch.Generator) -> Check:
    """The smallest C with P(|B - n/k| >= C sqrt(n log n)) <= 2/n^3, from the exact distribution."""
    rows = {f"n={n} k={k}": cn.binomial_constant(n, k) for n, k in ((196, 12), (196, 2), (10**4, 2), (10**6, 2))}
    claim = "prop:binom: P(|B - n/k| >= C sqrt(n log n)) <= 2/n^3 with C = sqrt(3/2) (smallest C at n = 10^6)"
    return Check(claim, "paper", "met", max(rows.values()), "<=", math.sqrt(1.5), numbers=rows)
