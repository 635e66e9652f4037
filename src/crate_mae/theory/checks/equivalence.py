"""Compression against denoising as vector fields, and MSSA against the gradient that it approximates."""

import math
from dataclasses import replace

import torch
from jaxtyping import Float
from torch import Tensor

from crate_mae.theory import equivalence as eq
from crate_mae.theory import mixture as mx
from crate_mae.theory.checks.check import Check, spread
from crate_mae.theory.theorems import BASE, at_optimum

SIGMAS = (0.3, 0.1, 0.03, 0.01, 0.003, 0.001)
MSSA_DRAWS = 2


def lines_2d() -> Float[Tensor, "2 2 1"]:
    """Two orthogonal lines in the plane."""
    a = math.radians(20)
    rotation = torch.tensor([[math.cos(a), -math.sin(a)], [math.sin(a), math.cos(a)]], dtype=torch.float64)
    return rotation.T[:, :, None]


def plane_and_line_3d() -> Float[Tensor, "2 3 2"]:
    """A plane and the line orthogonal to it; the line's second column is zero, so that both bases are 3 x 2."""
    return torch.tensor([[[1, 0], [0, 1], [0, 0]], [[0, 0], [0, 0], [1, 0]]], dtype=torch.float64)


def picture(U: Float[Tensor, "K d p"], sigma: float, count: int, generator: torch.Generator) -> dict[str, list]:
    """Tokens and three fields to draw: the score, compression of each token alone, compression of all together."""
    model = mx.codebook(U, sigma)
    Z = mx.sample(model, (count,), generator).tokens
    fields = {
        "subspaces": U,
        "tokens": Z,
        "score": mx.score(model, Z),
        "alone": eq.compression_field_alone(Z, U, sigma),
        "together": eq.compression_field(Z, U, sigma),
    }
    return {name: field.tolist() for name, field in fields.items()}


def _low_dimension(U: Tensor, claim: str, generator: torch.Generator) -> Check:
    alone, together = [], []
    for sigma in SIGMAS:
        model = mx.codebook(U, sigma)
        draws = [mx.sample(model, (300,), generator) for _ in range(5)]
        single = [eq.agreement(model, one, eq.compression_field_alone(one.tokens, U, sigma)) for one in draws]
        joint = [eq.agreement(model, one, eq.compression_field(one.tokens, U, sigma)) for one in draws]
        alone.append([spread([a.raw for a in single]), spread([a.selectivity for a in single])])
        together.append([spread([a.raw for a in joint]), spread([a.selectivity for a in joint])])
    numbers = {
        "sigma": list(SIGMAS),
        "alone": {"cosine": [a for a, _ in alone], "selectivity": [b for _, b in alone]},
        "together": {"cosine": [a for a, _ in together], "selectivity": [b for _, b in together]},
        "picture": picture(U, 0.15, 60, generator),
    }
    # 300 tokens: far more per subspace than its dimension p
    hypotheses = "not met: fewer tokens per subspace than p"
    return Check(claim, "paper", hypotheses, together[-1][0]["mean"], ">=", 0.9, numbers=numbers)


def fields_2d(generator: torch.Generator) -> Check:
    """The cosine of -grad R^c with the score, for two lines in the plane."""
    claim = "2-D: -grad R^c of 300 tokens on two lines points along the score (mean cosine at sigma 0.001)"
    return _low_dimension(lines_2d(), claim, generator)


def fields_3d(generator: torch.Generator) -> Check:
    """The same for a plane and a line in space."""
    claim = "3-D: -grad R^c of 300 tokens on a plane and a line points along the score (mean cosine at sigma 0.001)"
    return _low_dimension(plane_and_line_3d(), claim, generator)


def fields_alone(generator: torch.Generator) -> Check:
    """The same for tokens that are coded one at a time."""
    least = 1.0
    for U in (lines_2d(), plane_and_line_3d()):
        for sigma in (0.01, 0.001):
            model = mx.codebook(U, sigma)
            one = mx.sample(model, (1000,), generator)
            field = eq.compression_field_alone(one.tokens, U, sigma)
            least = min(least, eq.agreement(model, one, field).raw)
    claim = "2-D and 3-D: -grad R^c of a token coded alone points along the score (smallest mean cosine, eps = sigma)"
    return Check(claim, "paper", "met", least, ">=", 0.9, numbers={"cosine": least})


def _high_dimension(N: int, generator: torch.Generator) -> dict[str, list[dict]]:
    # 6 subspaces of dimension 32: smaller than CRATE-Base, so that there can be several draws
    rows: dict[str, list[dict]] = {name: [] for name in ("raw", "across", "raw optimal", "across optimal")}
    for sigma in SIGMAS:
        found: dict[str, list[float]] = {name: [] for name in rows}
        for _ in range(3):
            U = mx.orthogonal_bases(192, 6, 32, generator)
            model = mx.formal_model(U, sigma)
            drawn = mx.sample(model, (N,), generator)
            optimum = at_optimum(replace(BASE, d=192, N=N, K=6, p=32, sigma=sigma)).epsilon
            for epsilon, suffix in ((sigma, ""), (optimum, " optimal")):
                a = eq.agreement(model, drawn, eq.compression_field(drawn.tokens, U, epsilon))
                found["raw" + suffix].append(a.raw)
                found["across" + suffix].append(a.across)
        for name, values in found.items():
            rows[name].append(spread(values))
    return rows


def fields_few_tokens(generator: torch.Generator) -> Check:
    """The same in 192 dimensions, with fewer tokens per subspace than p."""
    N = 48
    rows = _high_dimension(N, generator)
    expected = math.sqrt(1 - N / 192)
    numbers = {"sigma": list(SIGMAS), "tokens per subspace": N / 6, "p": 32, "limit": expected, **rows}
    claim = "d 192, 8 tokens per subspace of dimension 32, eps = sigma: mean cosine with the score is sqrt(1 - N/d)"
    return Check(claim, "paper", "met", rows["raw"][-1]["mean"], "=", expected, 0.03, numbers)


def fields_many_tokens(generator: torch.Generator) -> Check:
    """The same in 192 dimensions, with more tokens per subspace than p."""
    N = 480
    rows = _high_dimension(N, generator)
    numbers = {"sigma": list(SIGMAS), "tokens per subspace": N / 6, "p": 32, **rows}
    claim = (
        "d 192, 80 tokens per subspace of dimension 32: -grad R^c points along the score (mean cosine at sigma 0.001)"
    )
    hypotheses = "not met: d >= N, fewer tokens per subspace than p"
    return Check(claim, "paper", hypotheses, rows["raw"][-1]["mean"], ">=", 0.9, numbers=numbers)


def informal_theorem(generator: torch.Generator) -> Check:
    """The cosine of -grad R^c with the direction to the nearest subspace, at Base's sizes."""
    setting = at_optimum(replace(BASE, sigma=0.001))
    found = []
    for _ in range(2):
        U = mx.orthogonal_bases(768, 12, 64, generator)
        drawn = mx.sample(mx.formal_model(U, setting.sigma), (196,), generator)
        Z = drawn.tokens
        towards = mx.project_to_nearest(U, Z) - Z
        found.append(float(eq.cosine(eq.compression_field(Z, U, setting.epsilon), towards).mean()))
    claim = (
        "thm:informal at Base: -grad R^c points from z_i to the nearest U_k (mean cosine, remark's eps, sigma 0.001)"
    )
    return Check(claim, "paper", "not met: see the assumption", spread(found)["mean"], ">=", 0.9, numbers=spread(found))


def _mssa(generator: torch.Generator) -> dict[str, dict]:
    rows = {}
    for scale, name in ((1.0, "|z| = 1"), (4.0, "|z| = 4"), (math.sqrt(768), "|z| = sqrt d, as a layer norm makes it")):
        for epsilon in (1.0, 0.5, 0.1):
            pairs = []
            for _ in range(MSSA_DRAWS):
                U = mx.orthogonal_bases(768, 12, 64, generator)
                Z = scale * mx.sample(mx.formal_model(U, 0.1), (196,), generator).tokens
                pairs.append(eq.mssa_cosines(Z, U, epsilon))
            rows[f"{name}, eps {epsilon}"] = {
                "raw": spread([raw for raw, _ in pairs]),
                "beyond the span": spread([rest for _, rest in pairs]),
                "angles": [math.degrees(math.acos(mean)) for mean in torch.tensor(pairs).mean(0).tolist()],
            }
    return rows


def mssa_raw(generator: torch.Generator) -> Check:
    """The best cosine of MSSA(Z) with -grad R^c(Z) over several scales of Z and epsilon."""
    rows = _mssa(generator)
    best = max(row["raw"]["mean"] for row in rows.values())
    claim = "MSSA(Z) is about -kappa grad R^c(Z) (best cosine over 9 pairs of scale and epsilon at Base's sizes)"
    return Check(claim, "paper", "-", best, ">=", 0.5, numbers=rows)


def mssa_beyond_the_span(generator: torch.Generator) -> Check:
    """The same after removing the span of {U_k U_k^T Z} from both."""
    rows = _mssa(generator)
    best = max(row["beyond the span"]["mean"] for row in rows.values())
    claim = "the same after removing the projection onto span{U_k U_k^T Z} from both (best cosine)"
    return Check(claim, "paper", "-", best, ">=", 0.5, numbers=rows)
