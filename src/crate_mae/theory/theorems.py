"""The main theorem (lem:inverse-term): what one gradient step on R^c does to noisy tokens near orthogonal subspaces.

Everything is computed in coordinates where U_k holds the axes k p .. (k + 1) p of R^d. This loses no generality, since
the model and the theorem are invariant under rotations, and it allows d so large that d x p bases would not fit into
memory. Where even d x N does not fit, ``observe_condensed`` draws the tokens up to a rotation within each subspace.
"""

import math
from dataclasses import dataclass, field, replace

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor

from crate_mae.errors import UserError
from crate_mae.theory.rates import coding_rate_gradient, projected_compression_rate_and_gradient


@dataclass(frozen=True)
class Setting:
    """The sizes and scales of the theorem."""

    d: int
    N: int
    K: int
    p: int
    sigma: float
    """Noise level: each entry of Delta is N(0, sigma^2 / d)."""
    epsilon: float
    """Precision of the code."""
    step: float | None = None
    """Step size eta; the default is 1 / beta, as in the remark."""

    def __post_init__(self) -> None:
        if self.N < 1:
            raise UserError(f"N = {self.N} tokens; give at least one.")
        if min(self.K, self.p) < 1 or self.K * self.p > self.d:
            raise UserError(
                f"K = {self.K} orthogonal subspaces of dimension p = {self.p} do not fit into d = {self.d}."
            )
        if not (self.sigma >= 0 and self.epsilon > 0):
            raise UserError(f"sigma = {self.sigma} and epsilon = {self.epsilon}; give sigma >= 0 and epsilon > 0.")

    @property
    def beta(self) -> float:
        """p / (N eps^2)."""
        return self.p / (self.N * self.epsilon**2)

    @property
    def eta(self) -> float:
        """The step size; 1 / beta by default."""
        return 1 / self.beta if self.step is None else self.step

    @property
    def root(self) -> float:
        """sqrt(N / d), the order of the difference between A_k^T A_k and I."""
        return math.sqrt(self.N / self.d)

    def blocks(self, M: Float[Tensor, "d N"]) -> Float[Tensor, "K p N"]:
        """U_k^T M for every k."""
        return M[: self.K * self.p].unflatten(0, (self.K, self.p))

    def unblocks(self, W: Float[Tensor, "K p N"]) -> Float[Tensor, "d N"]:
        """sum_k U_k W_k."""
        return torch.nn.functional.pad(W.flatten(0, 1), (0, 0, 0, self.d - self.K * self.p))


BASE = Setting(d=768, N=196, K=12, p=64, sigma=0.1, epsilon=0.5)
"""CRATE-Base's sizes."""


@dataclass(frozen=True)
class Observation:
    """Z = X + Delta drawn from mu(K, p, sigma^2)   (eq:signal-model-vector-form)."""

    signal: Float[Tensor, "d N"]
    noise: Float[Tensor, "d N"]
    memberships: Int[Tensor, " N"]

    @property
    def tokens(self) -> Float[Tensor, "d N"]:
        """Z = X + Delta."""
        return self.signal + self.noise


def observe(setting: Setting, generator: torch.Generator) -> Observation:
    """Draw tokens, float64: alpha_i ~ N(0, I / p) in a uniformly random subspace, noise N(0, sigma^2 / d I)."""
    s, device = setting, generator.device
    members = torch.randint(s.K, (s.N,), generator=generator, device=device)
    alpha = torch.randn(s.p, s.N, generator=generator, dtype=torch.float64, device=device) / math.sqrt(s.p)
    own = members == torch.arange(s.K, device=device)[:, None]
    signal = s.unblocks(alpha * own[:, None, :])
    noise = torch.randn(s.d, s.N, generator=generator, dtype=torch.float64, device=device)
    return Observation(signal, s.sigma / math.sqrt(s.d) * noise, members)


def observe_condensed(setting: Setting, generator: torch.Generator) -> tuple[Setting, Observation]:
    """Draw tokens for very large d with only 2 N rows per subspace; their inner products have the exact distribution.

    In each subspace the coordinates of signal and noise are a p x 2 N standard normal matrix G with scaled columns, and
    the theorem is invariant under rotations of G. So G may be replaced by its triangular factor: independent N(0, 1)
    above the diagonal, and chi variables with p, p - 1, .. degrees of freedom on it (Bartlett). The setting returned
    has the same beta, eta, sigma, K and N, and the condensed sizes. Needs K p = d and p >= 2 N.
    """
    s, rows = setting, 2 * setting.N
    if s.K * s.p != s.d or s.p < rows:
        raise UserError("condensing needs K p = d and p >= 2 N; use observe for other settings.")
    condensed = replace(s, d=s.K * rows, p=rows, epsilon=math.sqrt(rows / (s.N * s.beta)), step=s.eta)
    device = generator.device
    factor = torch.randn(s.K, rows, rows, generator=generator, dtype=torch.float64, device=device).triu(1)
    source = np.random.default_rng(int(torch.randint(2**62, (), generator=generator, device=device)))
    diagonal = np.sqrt(source.chisquare(float(s.p) - np.arange(rows), size=(s.K, rows)))
    factor = factor + torch.diag_embed(torch.from_numpy(diagonal).to(device))
    members = torch.randint(s.K, (s.N,), generator=generator, device=device)
    own = members == torch.arange(s.K, device=device)[:, None]
    signal = condensed.unblocks(factor[..., : s.N] * own[:, None, :]) / math.sqrt(s.p)
    noise = condensed.unblocks(factor[..., s.N :]) * (s.sigma / math.sqrt(s.d))
    return condensed, Observation(signal, noise, members)


# --- the step and its predicted form --------------------------------------------------------------------------------


def compression_step(setting: Setting, Z: Float[Tensor, "d N"]) -> Float[Tensor, "d N"]:
    """Z^+ = Z - eta grad R^c(Z | U_[K])   (eq:tokens-compressed)."""
    _, inner = projected_compression_rate_and_gradient(setting.blocks(Z), setting.epsilon)
    return Z - setting.eta * setting.unblocks(inner)


def rate_reduction_step(setting: Setting, Z: Float[Tensor, "d N"]) -> Float[Tensor, "d N"]:
    """Z + eta grad Delta R(Z | U_[K]): the step that shrinks nothing, according to the remark after the theorem."""
    return compression_step(setting, Z) + setting.eta * coding_rate_gradient(Z, setting.epsilon)


def apply_projection(setting: Setting, seen: Observation) -> Float[Tensor, "d N"]:
    """P_{U_[K]}(Delta Pi^*) Pi, block by block   (eq:proj-defn-1, eq:proj-defn-2).

    P_k = sum_{k' != k} U_k' (I - A_k' (beta^-1 I + A_k'^T A_k')^-1 A_k'^T) U_k'^T acts on the noise of the tokens of
    subspace k. Replacing A_k' by U_k'^T X only adds zero columns and lets all k' act on all tokens at once; the
    contribution of a token's own subspace is dropped at the end.
    """
    signal, noise = setting.blocks(seen.signal), setting.blocks(seen.noise)
    _, inverse = projected_compression_rate_and_gradient(signal, setting.epsilon)  # A (beta^-1 I + A^T A)^-1
    kept = noise - inverse @ (signal.mT @ noise)
    other = seen.memberships != torch.arange(setting.K, device=seen.memberships.device)[:, None]
    return setting.unblocks(kept * other[:, None, :])


def predicted_step(setting: Setting, seen: Observation) -> Float[Tensor, "d N"]:
    """(Delta - eta P_{U_[K]}(beta Delta Pi^*) Pi) + (1 + beta^-1 - eta) / (1 + beta^-1) X   (lem:inverse-term)."""
    moved = seen.noise - setting.eta * setting.beta * apply_projection(setting, seen)
    return moved + shrinkage(setting) * seen.signal


def shrinkage(setting: Setting) -> float:
    """(1 + 1/beta - eta) / (1 + 1/beta): the factor by which a step on R^c scales the signal   (lem:inverse-term)."""
    return 1 - setting.eta / (1 + 1 / setting.beta)


def rate_reduction_growth(setting: Setting) -> float:
    """1 + eta [1 / (1 + 1/(K beta)) - 1 / (1 + 1/beta)]: the factor by which a step on Delta R scales the signal.

    The paper claims a factor of 1. This one is derived like ``shrinkage``, from grad R = Z (alpha^-1 I + Z^T Z)^-1 with
    alpha = d / (N eps^2) = K beta and Z^T Z near I. It is a growth, of order eta / beta where beta is large.
    """
    s = setting
    return 1 + s.eta * (1 / (1 + 1 / (s.d / s.p * s.beta)) - 1 / (1 + 1 / s.beta))


# --- the bound ------------------------------------------------------------------------------------------------------


def bound(setting: Setting) -> float:
    """K eta (sigma^2 beta^2 + sigma (1 + r) + sqrt(K) beta sigma^2 (1 + r) + r), r = sqrt(N / d), with C_5 = 1."""
    s = setting
    inner = (s.sigma * s.beta) ** 2 + s.sigma * (1 + s.root)
    return s.K * s.eta * (inner + math.sqrt(s.K) * s.beta * s.sigma**2 * (1 + s.root) + s.root)


def simplified_bound(setting: Setting) -> float:
    """K^{3/2} sigma^2 + sigma^2 d / (N eps^2) + N K^2 / d (sigma + r) eps^2: the remark's bound, eta = 1 / beta."""
    s = setting
    middle = s.sigma**2 * s.d / (s.N * s.epsilon**2)
    return s.K**1.5 * s.sigma**2 + middle + s.N * s.K**2 / s.d * (s.sigma + s.root) * s.epsilon**2


def optimal_epsilon(setting: Setting) -> float:
    """eps^2 = sigma d / (N K sqrt(sigma + sqrt(N / d))), which minimises ``simplified_bound`` (remark)."""
    s = setting
    return math.sqrt(s.sigma * s.d / (s.N * s.K * math.sqrt(s.sigma + s.root)))


def asymptotic_bound(K: int, sigma: float) -> float:
    """K sigma^{3/2} (1 + sqrt(K sigma)): the remark's bound at the optimal epsilon if sqrt(N / d) << sigma."""
    return K * sigma**1.5 * (1 + math.sqrt(K * sigma))


def at_optimum(setting: Setting) -> Setting:
    """The setting with the remark's epsilon and step eta = 1 / beta."""
    return replace(setting, epsilon=optimal_epsilon(setting), step=None)


# --- the hypotheses -------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Constants:
    """The universal constants in the hypotheses; 1 where nothing is known about them."""

    binomial: float = 1.0
    """C_1 of prop:binom_concentration. Hoeffding's inequality gives sqrt(3/2), which k = 2 needs for large n."""
    covariance: float = 1.0
    """C_3 of prop:gaussian_covariance_concentration_opnorm."""
    gram: float = 1.0
    """C_1 of prop:xktxk_concentration_opnorm."""
    neumann: float = 1.0
    """C_1 of the theorem: ||Xi_k D_k^-1|| <= C_1 beta sigma."""


def hypotheses(setting: Setting, constants: Constants | None = None) -> dict[str, bool]:
    """Each hypothesis of ass:parameter_config and lem:inverse-term, and whether it holds for these constants.

    The bases are orthogonal by construction. The relation with log N is false for a single token, where log N = 0.
    """
    s, c = setting, constants or Constants()
    return {
        "eps <= 1": s.epsilon <= 1,
        "d >= N": s.d >= s.N,
        "N >= p": s.p <= s.N,
        "p >= K": s.p >= s.K,
        "K >= 2": s.K >= 2,
        "K p = d": s.K * s.p == s.d,
        "C sqrt(N log N) <= N / (2 K)": s.N > 1 and c.binomial * math.sqrt(s.N * math.log(s.N)) <= s.N / (2 * s.K),
        "6 C^2 N <= d": 6 * c.covariance**2 * s.N <= s.d,
        "2 C^2 N <= d": 2 * c.gram**2 * s.N <= s.d,
        "sigma <= 1": s.sigma <= 1,
        "C beta sigma <= 1/2": c.neumann * s.beta * s.sigma <= 0.5,
    }


def unmet(setting: Setting, constants: Constants | None = None) -> list[str]:
    """The hypotheses that do not hold."""
    return [name for name, met in hypotheses(setting, constants).items() if not met]


# --- one draw, measured ---------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Measurement:
    """The theorem on one draw of tokens."""

    residual: float
    """||Z^+ - predicted form||, operator norm."""
    bound: float
    """The bound with its constant set to 1."""
    ratio: float
    """residual / bound: the constant that this draw needs."""
    noise_norm: float
    """||Delta||."""
    relative: float
    """residual / ||Delta||; above 1 the predicted form says nothing beyond the size of the noise."""
    signal_factor: float
    """<Z^+, X> / <X, X> after a step on R^c."""
    rate_reduction_factor: float
    """<Z + eta grad Delta R, X> / <X, X>."""
    hypotheses: dict[str, bool]
    """Each hypothesis and whether it holds with all constants set to 1."""
    stepped: Float[Tensor, "d N"] = field(compare=False, repr=False)
    """Z^+, the exact step."""
    predicted: Float[Tensor, "d N"] = field(compare=False, repr=False)
    """Z^+ as predicted by the theorem."""


def measure(setting: Setting, generator: torch.Generator) -> Measurement:
    """Draw tokens and measure every quantity of the theorem."""
    seen = observe(setting, generator)
    Z, X = seen.tokens, seen.signal
    stepped, predicted = compression_step(setting, Z), predicted_step(setting, seen)
    residual = operator_norm(stepped - predicted)
    noise_norm, limit = operator_norm(seen.noise), bound(setting)
    energy = X.square().sum()
    return Measurement(
        residual,
        limit,
        residual / limit,
        noise_norm,
        residual / noise_norm if noise_norm else math.inf,
        float((stepped * X).sum() / energy),
        float((rate_reduction_step(setting, Z) * X).sum() / energy),
        hypotheses(setting),
        stepped,
        predicted,
    )


def residual_norm(setting: Setting, seen: Observation) -> float:
    """||Z^+ - predicted form||, operator norm."""
    return operator_norm(compression_step(setting, seen.tokens) - predicted_step(setting, seen))


def operator_norm(M: Float[Tensor, "r c"]) -> float:
    """The largest singular value, from the smaller Gram matrix; the largest one loses no accuracy by squaring."""
    gram = M @ M.mT if M.shape[0] <= M.shape[1] else M.mT @ M
    return float(torch.linalg.eigvalsh(gram)[-1].clamp(min=0).sqrt())


def log_slope(x: Float[Tensor, " n"], y: Float[Tensor, " n"]) -> float:
    """The least-squares slope of log y against log x."""
    x, y = x.log() - x.log().mean(), y.log() - y.log().mean()
    return float((x * y).sum() / x.square().sum())
