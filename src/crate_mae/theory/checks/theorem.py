"""The main theorem and its remark, at CRATE-Base's sizes and where sqrt(N / d) is far below sigma."""

import math
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from crate_mae.theory import theorems as th
from crate_mae.theory.checks.check import Check, spread

SIGMAS = (0.3, 0.1, 0.03, 0.01, 0.003, 0.001)
DRAWS = 3
EXPONENTS, SLOPE_DRAWS = (10, 16, 20, 24, 28, 32, 36, 40, 50), 20
"""d = 2^exponent."""
SUPPORTED = th.Constants(binomial=math.sqrt(1.5), covariance=0.5, gram=2.0, neumann=1.0)
"""The smallest constants that theory or simulation allows.

Binomial: Hoeffding's, attained in the limit by the exact distribution at k = 2. Gram: ||A_k^T A_k - I|| tends to
2 r + r^2. Covariance: 0.5 with C_2 = 2, since only C_2^2 C_3 >= 2 and C_2 C_3 >= 1 restrict it.
"""
ALLOWED = th.Setting(d=144_000, N=18_000, K=16, p=9_000, sigma=0.01, epsilon=1.0)
"""Sizes that meet every hypothesis of the theorem with these constants; used in formulas only, never drawn."""


def base_sweep(generator: torch.Generator) -> dict[str, list]:
    """Mean and standard deviation of every measurement at Base's sizes over sigma; the remark's epsilon and step."""
    rows: dict[str, list] = {"sigma": list(SIGMAS)}
    for sigma in SIGMAS:
        setting = th.at_optimum(replace(th.BASE, sigma=sigma))
        found = [th.measure(setting, generator) for _ in range(DRAWS)]
        for name in ("residual", "bound", "ratio", "noise_norm", "relative", "signal_factor", "rate_reduction_factor"):
            rows.setdefault(name, []).append(spread([getattr(one, name) for one in found]))
        rows.setdefault("epsilon", []).append(setting.epsilon)
        rows.setdefault("beta sigma", []).append(setting.beta * sigma)
        rows.setdefault("predicted signal factor", []).append(th.shrinkage(setting))
        rows.setdefault("predicted Delta R factor", []).append(th.rate_reduction_growth(setting))
    return rows


def _means(rows: list[dict[str, Any]]) -> Tensor:
    return torch.tensor([row["mean"] for row in rows], dtype=torch.float64)


def _unmet(setting: th.Setting) -> str:
    missing = th.unmet(setting, SUPPORTED)
    return "not met: " + "; ".join(missing) if missing else "met"


def assumption_at_base(generator: torch.Generator) -> Check:
    """The number of relations of ass:parameter_config that fail at Base's sizes."""
    setting = replace(th.BASE, sigma=0.01, epsilon=0.5)
    missing = th.unmet(setting, SUPPORTED)
    N, K, d = setting.N, setting.K, setting.d
    numbers = {
        "unmet": missing,
        "C_1 of the binomial: at most, for Base": N / (2 * K) / math.sqrt(N * math.log(N)),
        "C_1 of the binomial: at least": SUPPORTED.binomial,
        "C of the Gram matrix: at most, for Base": math.sqrt(d / (2 * N)),
        "C of the Gram matrix: at least": SUPPORTED.gram,
    }
    claim = "ass:parameter_config holds for CRATE-Base (number of relations that fail with the smallest constants)"
    return Check(claim, "paper", "-", float(len(missing)), "=", 0.0, 0.0, numbers)


def beta_above_one(generator: torch.Generator) -> Check:
    """beta = p / (N eps^2) at eps = 1, for sizes that meet the assumption."""
    numbers = {"allowed": ALLOWED.beta, "Base": replace(th.BASE, epsilon=1.0).beta}
    claim = "eps <= 1 and the assumption imply beta >= 1 (beta at eps = 1 and sizes that meet the assumption, N = 2 p)"
    return Check(claim, "paper", _unmet(ALLOWED), ALLOWED.beta, ">=", 1.0, numbers=numbers)


def bound_at_base(generator: torch.Generator) -> Check:
    """||Z^+ - predicted form|| over the theorem's bound with its constant set to 1, at Base's sizes."""
    rows = base_sweep(generator)
    largest = max(row["mean"] + row["std"] for row in rows["ratio"])
    hypotheses = _unmet(th.at_optimum(replace(th.BASE, sigma=0.01)))
    claim = "lem:inverse-term at Base, sigma 0.3 to 0.001: residual / bound with C_5 = 1 (largest mean + std)"
    return Check(claim, "paper", hypotheses, largest, "<=", 1.0, numbers=rows)


def residual_below_noise(generator: torch.Generator) -> Check:
    """||Z^+ - predicted form|| / ||Delta|| at Base's sizes."""
    rows = base_sweep(generator)
    hypotheses = _unmet(th.at_optimum(replace(th.BASE, sigma=0.01)))
    largest = float(_means(rows["relative"]).max())
    claim = "at Base the residual is smaller than the noise: residual / ||Delta|| (largest mean)"
    return Check(claim, "paper", hypotheses, largest, "<=", 1.0, numbers={"relative": rows["relative"]})


def slope_at_base(generator: torch.Generator) -> Check:
    """The slope of the residual in sigma, at Base's sizes."""
    rows = base_sweep(generator)
    small = slice(2, None)  # sigma <= 0.03, far below sqrt(N / d) = 0.51
    sigmas = torch.tensor(SIGMAS, dtype=torch.float64)[small]
    slope = th.log_slope(sigmas, _means(rows["residual"])[small])
    numbers = {"residual": slope, "bound": th.log_slope(sigmas, _means(rows["bound"])[small])}
    claim = "at Base the residual falls as sigma^(3/2) (slope from 0.03 to 0.001; sqrt(N/d) = 0.51 is above sigma)"
    return Check(claim, "paper", "not met: sqrt(N/d) << sigma", slope, "=", 1.5, 0.15, numbers)


def slope_over_d(generator: torch.Generator) -> Check:
    """The slope of the residual in sigma, for d from 2^10 to 2^50."""
    sigmas = torch.tensor([0.01, 0.003, 0.001, 0.0003, 0.0001], dtype=torch.float64)
    numbers: dict[str, list] = {"d": [], "root": [], "slope": [], "bound": [], "residual": [], "sigma": sigmas.tolist()}
    for exponent in EXPONENTS:
        d = 2**exponent
        settings = [th.at_optimum(th.Setting(d, 4, 2, d // 2, sigma, 1.0)) for sigma in sigmas.tolist()]
        draws = torch.tensor(
            [[th.residual_norm(*th.observe_condensed(s, generator)) for s in settings] for _ in range(SLOPE_DRAWS)],
            dtype=torch.float64,
        )
        bounds = torch.tensor([th.bound(s) for s in settings], dtype=torch.float64)
        numbers["d"].append(d)
        numbers["root"].append(settings[0].root)
        numbers["slope"].append(spread([th.log_slope(sigmas, one) for one in draws]))
        numbers["bound"].append(th.log_slope(sigmas, bounds))
        numbers["residual"].append(draws.mean(0).tolist())
    claim = "where sqrt(N/d) << sigma the residual falls as sigma^(3/2) (slope from 0.01 to 0.0001 at d = 2^50)"
    measured = numbers["slope"][-1]["mean"]
    return Check(claim, "paper", "not met: N >= p, eps <= 1, C sqrt(N log N)", measured, "=", 1.5, 0.05, numbers)


def nontrivial_regime(generator: torch.Generator) -> Check:
    """The smallest value of the remark's bound that the assumption allows."""
    # N >= p and K p = d give N / d >= 1 / K, so sqrt(N / d) <= sigma needs sigma >= K^(-1/2)
    rows = {K: th.asymptotic_bound(K, K**-0.5) for K in (2, 4, 12, 100, 10**4)}
    claim = "the sigma^(3/2) bound can be non-trivial under the assumption (its smallest value; ||X|| is about 1)"
    return Check(claim, "paper", "met", min(rows.values()), "<=", 1.0, numbers={"least bound by K": rows})


def _search(values: Tensor, function: object) -> float:
    found = torch.tensor([function(v) for v in values.tolist()], dtype=torch.float64)  # type: ignore[operator]
    return float(values[found.argmin()])


def optimal_epsilon(generator: torch.Generator) -> Check:
    """The remark's epsilon against a search over epsilon, for each bound and for the residual."""
    rows, gaps = [], []
    for sigma in (0.3, 0.1, 0.01):
        setting = replace(th.BASE, sigma=sigma)
        formula = th.optimal_epsilon(setting)
        fine = formula * 10 ** torch.linspace(-1, 1, 4001, dtype=torch.float64)
        coarse = formula * 10 ** torch.linspace(-1, 1, 25, dtype=torch.float64)
        simplified = _search(fine, lambda e, s=setting: th.simplified_bound(replace(s, epsilon=e)))
        full = _search(fine, lambda e, s=setting: th.bound(replace(s, epsilon=e)))
        seed = int(torch.randint(2**31, (), generator=generator))
        residual = _search(
            coarse,
            lambda e, s=setting, seed=seed: th.residual_norm(
                replace(s, epsilon=e), th.observe(s, torch.Generator().manual_seed(seed))
            ),
        )
        rows.append(
            {"sigma": sigma, "formula": formula, "simplified": simplified, "full bound": full, "residual": residual}
        )
        gaps.append(abs(simplified / formula - 1))
    claim = "the remark's eps^2 minimises its bound (largest relative gap to a search)"
    return Check(claim, "paper", "met", max(gaps), "<=", 1e-3, numbers={"rows": rows})


def _factors(d: int, sigma: float, generator: torch.Generator) -> tuple[th.Setting, list[th.Measurement]]:
    setting = th.at_optimum(th.Setting(d, 16, 4, d // 4, sigma, 1.0))
    return setting, [th.measure(setting, generator) for _ in range(DRAWS)]


def _against(
    factor: str, predicted: Callable[[th.Setting], float], generator: torch.Generator
) -> tuple[float, dict[str, Any]]:
    """The largest gap over sigma between the measured factor of the signal and its formula, and all numbers."""
    rows, gaps = [], []
    for sigma in (0.1, 0.03, 0.01):
        setting, found = _factors(2**14, sigma, generator)
        measured = spread([getattr(one, factor) for one in found])
        rows.append({"sigma": sigma, "measured": measured, "predicted": predicted(setting)})
        gaps.append(abs(measured["mean"] - predicted(setting)))
    return max(gaps), {"rows": rows}


def signal_shrinkage(generator: torch.Generator) -> Check:
    """<Z^+, X> / <X, X> after a step on R^c, against ``theorems.shrinkage``."""
    gap, numbers = _against("signal_factor", th.shrinkage, generator)
    claim = "a step on R^c scales the signal by (1 + 1/beta - step)/(1 + 1/beta) (largest gap, N/d = 0.001)"
    return Check(claim, "paper", "not met: N >= p", gap, "<=", 0.005, numbers=numbers)


def rate_reduction_factor(generator: torch.Generator) -> Check:
    """The same after a step on Delta R, against ``theorems.rate_reduction_growth``."""
    gap, numbers = _against("rate_reduction_factor", th.rate_reduction_growth, generator)
    claim = "a step on Delta R scales the signal by 1 + step [1/(1+1/(K beta)) - 1/(1+1/beta)] (largest gap)"
    return Check(claim, "code", "-", gap, "<=", 0.005, numbers=numbers)


def no_shrinkage(generator: torch.Generator) -> Check:
    """The same after a step on Delta R, against the remark's factor of 1."""
    setting, found = _factors(2**14, 0.1, generator)
    measured = spread([one.rate_reduction_factor - 1 for one in found])
    numbers = {"factor - 1": measured, "predicted": th.rate_reduction_growth(setting) - 1}
    claim = "a step on Delta R does not change the size of the signal (factor - 1, sigma 0.1, N/d = 0.001)"
    tolerance = max(3 * measured["std"], 1e-3)
    return Check(claim, "paper", "not met: N >= p", measured["mean"], "=", 0.0, tolerance, numbers)
