"""The lemmas and concentration propositions of the appendix, each as the constant that one random draw needs.

Each inequality reads `quantity <= C x scale`, or has an additive C. A function returns the smallest C for which it
holds on one draw; the maximum or a quantile over many draws is the constant that simulation supports.
"""

import math
from collections.abc import Sequence

import torch
from jaxtyping import Float
from torch import Tensor

from crate_mae.errors import UserError
from crate_mae.theory.theorems import Observation, Setting, observe, operator_norm


def noise_constant(setting: Setting, seen: Observation) -> float:
    """C with ||Delta|| = sigma (C + sqrt(N / d))   (prop:delta_concentration_opnorm)."""
    _needs_noise(setting)
    return operator_norm(seen.noise) / setting.sigma - setting.root


def signal_constants(setting: Setting, seen: Observation) -> dict[str, float]:
    """The constants of all statements about A_k alone: the maximum over k.

    ||A_k|| = 1 + C r (prop:xk_concentration_opnorm); ||A_k^T A_k - I|| = C r (prop:xktxk_concentration_opnorm);
    ||(beta^-1 I + A_k^T A_k)^-1 - c I|| = C c r and ||A_k (beta^-1 I + A_k^T A_k)^-1 - c A_k|| = C c r with
    c = 1 / (1 + beta^-1) (lem:blockwise-pinv). All four follow from the singular values of A_k; r = sqrt(N / d).
    """
    c, floor = 1 / (1 + 1 / setting.beta), 1 / setting.beta
    found: dict[str, list[float]] = {"norm": [], "gram": [], "inverse": [], "pseudo-inverse": []}
    blocks = setting.blocks(seen.signal)
    for k in range(setting.K):
        A = blocks[k][:, seen.memberships == k]
        if A.shape[1] == 0:
            continue
        squares = torch.linalg.eigvalsh(A.mT @ A).clamp(min=0)
        inverse = 1 / (floor + squares)
        found["norm"].append(float(squares[-1].sqrt() - 1) / setting.root)
        found["gram"].append(float((squares - 1).abs().max()) / setting.root)
        found["inverse"].append(float((inverse - c).abs().max()) / (c * setting.root))
        found["pseudo-inverse"].append(float((squares.sqrt() * (inverse - c)).abs().max()) / (c * setting.root))
    return {name: max(values) for name, values in found.items()}


def neumann_norms(setting: Setting, seen: Observation) -> list[float]:
    """||Xi_k D_k^-1|| for each k; below 1 the Neumann series converges   (eq:xik-defn, lem:neumann-op-norm).

    Xi_k = W_k^T W_k - A_k^T A_k for W_k = U_k^T Z and D_k = beta^-1 I + A_k^T A_k. The tokens stay in their own order,
    since a permutation does not change the norm.
    """
    noisy, clean = setting.blocks(seen.tokens), setting.blocks(seen.signal)
    gram = clean.mT @ clean
    excess = noisy.mT @ noisy - gram
    scaled = gram + torch.eye(setting.N, dtype=gram.dtype, device=gram.device) / setting.beta
    # Xi D^-1 = (D^-1 Xi)^T, since Xi and D are symmetric
    return [operator_norm(torch.linalg.solve(scaled[k], excess[k])) for k in range(setting.K)]


def neumann_constant(setting: Setting, seen: Observation) -> float:
    """C with max_k ||Xi_k D_k^-1|| = C beta [sigma^2 + sigma (1 + sqrt(N / d))]   (lem:neumann-op-norm)."""
    _needs_noise(setting)
    s = setting
    return max(neumann_norms(s, seen)) / (s.beta * (s.sigma**2 + s.sigma * (1 + s.root)))


def _needs_noise(setting: Setting) -> None:
    if setting.sigma == 0:
        raise UserError("sigma is 0, which makes both sides of the inequality 0; give a noise level above 0.")


def gaussian_constants(q: int, n: int, generator: torch.Generator) -> tuple[float, float]:
    """For a standard normal M of shape (q, n): C in ||M|| = sqrt q + C sqrt n, and in ||M^T M - q I|| = C sqrt(n q).

    prop:gaussian_concentration_opnorm and prop:gaussian_covariance_concentration_opnorm (its C_2^2 C_3).
    """
    M: Float[Tensor, "q n"] = torch.randn(q, n, generator=generator, dtype=torch.float64, device=generator.device)
    squares = torch.linalg.eigvalsh(M.mT @ M).clamp(min=0)
    difference = float((squares - q).abs().max())
    return float(squares[-1].sqrt() - math.sqrt(q)) / math.sqrt(n), difference / math.sqrt(n * q)


def binomial_constant(n: int, k: int) -> float:
    """The smallest C with P(|B - n/k| >= C sqrt(n log n)) <= 2 / n^3 for B ~ Bin(n, 1/k), from the exact distribution.

    This is the constant of prop:binom_concentration. Hoeffding's inequality gives C = sqrt(3/2) for all n and k.
    """
    if n < 2 or k < 2:
        raise UserError(f"n = {n} and k = {k}; the proposition needs two or more of each.")
    b = torch.arange(n + 1, dtype=torch.float64)
    total = torch.tensor(float(n), dtype=torch.float64)
    log_choose = torch.lgamma(total + 1) - torch.lgamma(b + 1) - torch.lgamma(total - b + 1)
    mass = torch.exp(log_choose + b * math.log(1 / k) + (total - b) * math.log1p(-1 / k))
    distance, order = (b - n / k).abs().sort(descending=True)
    tail = mass[order].cumsum(0)
    # the threshold may lie just above the largest distance at which the tail is too heavy
    return float(distance[(tail > 2 / n**3).nonzero()[0, 0]]) / math.sqrt(n * math.log(n))


STATEMENTS = ("noise", "norm", "gram", "inverse", "pseudo-inverse", "neumann")
"""The statements about Delta and A_k."""


def monte_carlo(
    setting: Setting, trials: int, generator: torch.Generator, names: Sequence[str] = STATEMENTS
) -> dict[str, Float[Tensor, " trials"]]:
    """The constant of each of these statements, for each of ``trials`` draws."""
    rows = []
    for _ in range(trials):
        seen = observe(setting, generator)
        rows.append([_constant(name, setting, seen) for name in names])
    columns = torch.tensor(rows, dtype=torch.float64).mT
    return dict(zip(names, columns, strict=True))


def _constant(name: str, setting: Setting, seen: Observation) -> float:
    match name:
        case "noise":
            return noise_constant(setting, seen)
        case "neumann":
            return neumann_constant(setting, seen)
    return signal_constants(setting, seen)[name]
