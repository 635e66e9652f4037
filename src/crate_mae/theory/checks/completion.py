"""Where masked completion behaves like matrix completion, and where it does not."""

import torch

from crate_mae.theory import completion as cp
from crate_mae.theory import mixture as mx
from crate_mae.theory.checks.check import Check, spread

D, N, RATIO, DRAWS = 60, 120, 0.5, 2
RANKS = (2, 5, 10, 20, 40)


def low_rank(generator: torch.Generator) -> Check:
    """Soft-impute on tokens of rank 2 to 40, with half of the entries masked."""
    errors = []
    for rank in RANKS:
        found = []
        for _ in range(DRAWS):
            X = torch.randn(D, rank, generator=generator, dtype=torch.float64) @ torch.randn(
                rank, N, generator=generator, dtype=torch.float64
            )
            visible = cp.mask_entries(D, N, RATIO, generator)
            found.append(cp.masked_error(X, cp.soft_impute(X, visible), visible))
        errors.append(spread(found))
    claim = "soft-impute completes tokens of rank 5 in 60 dimensions from half of their entries (relative error)"
    numbers = {"rank": list(RANKS), "error": errors}
    return Check(claim, "paper", "met", errors[1]["mean"], "<=", 0.05, numbers=numbers)


def _union(mask: str, generator: torch.Generator) -> dict[str, list[float]]:
    found: dict[str, list[float]] = {"soft-impute": [], "known subspaces": []}
    for _ in range(DRAWS):
        U = mx.orthogonal_bases(D, 12, 5, generator)
        X = mx.sample(mx.codebook(U, 0.0), (N,), generator).signal
        draw = cp.mask_entries if mask == "entries" else cp.mask_tokens
        visible = draw(D, N, RATIO, generator)
        found["soft-impute"].append(cp.masked_error(X, cp.soft_impute(X, visible), visible))
        found["known subspaces"].append(cp.masked_error(X, cp.complete_on_subspaces(X, visible, U), visible))
    return found


def union_by_rank(generator: torch.Generator) -> Check:
    """Soft-impute on a union of subspaces, with half of the entries masked."""
    rows = {name: spread(values) for name, values in _union("entries", generator).items()}
    claim = "soft-impute completes tokens on 12 subspaces of dimension 5 that fill R^60 (relative error)"
    hypotheses = "not met: low rank"
    return Check(claim, "paper", hypotheses, rows["soft-impute"]["mean"], "<=", 0.05, numbers=rows)


def union_by_subspaces(generator: torch.Generator) -> Check:
    """Completion on the known subspaces of such a union."""
    rows = {name: spread(values) for name, values in _union("entries", generator).items()}
    claim = "tokens on these 12 subspaces are completed if the subspaces are known (relative error)"
    return Check(claim, "paper", "met", rows["known subspaces"]["mean"], "<=", 0.05, numbers=rows)


def whole_tokens(generator: torch.Generator) -> Check:
    """Both methods with half of the tokens masked as a whole."""
    rows = {name: spread(values) for name, values in _union("tokens", generator).items()}
    best = min(row["mean"] for row in rows.values())
    claim = "whole masked tokens, as in the autoencoder, are completed if independent (smaller error of both methods)"
    hypotheses = "not met: entries visible in each token"
    return Check(claim, "paper", hypotheses, best, "<=", 0.05, numbers=rows)
