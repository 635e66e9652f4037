"""Completion: the minimum of soft-impute, what known subspaces recover, and what can't be recovered."""

import pytest
import torch

from crate_mae.errors import UserError
from crate_mae.theory import completion as cp
from crate_mae.theory import mixture as mx


def rng(seed=0):
    return torch.Generator().manual_seed(seed)


def low_rank(d, N, rank, seed=0):
    g = rng(seed)
    left = torch.randn(d, rank, generator=g, dtype=torch.float64)
    return left @ torch.randn(rank, N, generator=g, dtype=torch.float64)


def test_soft_impute_completes_low_rank_and_never_reads_what_is_masked():
    X = low_rank(30, 50, 2)
    visible = cp.mask_entries(30, 50, 0.4, rng(1))
    completed = cp.soft_impute(X, visible)
    assert cp.masked_error(X, completed, visible) < 0.02
    spoiled = torch.where(visible, X, float("nan"))
    torch.testing.assert_close(cp.soft_impute(spoiled, visible), completed)


def test_soft_impute_ends_at_the_minimum_of_its_objective():
    X = low_rank(8, 10, 2)
    visible = cp.mask_entries(8, 10, 0.3, rng(1))
    found = cp.soft_impute(X, visible, shrink=0.1, stages=4, iterations=400)
    weight = 0.1 * float(torch.linalg.matrix_norm(torch.where(visible, X, 0.0), 2))

    def objective(M):
        return 0.5 * float(((M - X) * visible).square().sum()) + weight * float(torch.linalg.svdvals(M).sum())

    best = objective(found)
    for seed in range(20):
        step = 1e-3 * torch.randn(8, 10, generator=rng(seed), dtype=torch.float64)
        assert objective(found + step) > best


def test_known_subspaces_recover_tokens_that_rank_cannot():
    U = mx.orthogonal_bases(24, 6, 4, rng())
    X = mx.sample(mx.codebook(U, 0.0), (40,), rng(1)).signal
    visible = cp.mask_entries(24, 40, 0.4, rng(2))
    assert cp.masked_error(X, cp.complete_on_subspaces(X, visible, U), visible) < 1e-8
    assert cp.masked_error(X, cp.soft_impute(X, visible), visible) > 0.5


def test_neither_method_completes_whole_tokens():
    U = mx.orthogonal_bases(24, 6, 4, rng())
    X = mx.sample(mx.codebook(U, 0.0), (40,), rng(1)).signal
    visible = cp.mask_tokens(24, 40, 0.5, rng(2))
    assert int((~visible).all(0).sum()) == 20
    for completed in (cp.complete_on_subspaces(X, visible, U), cp.soft_impute(X, visible)):
        assert cp.masked_error(X, completed, visible) == pytest.approx(1, abs=1e-6)


def test_bad_input_raises_a_clear_error():
    X = low_rank(4, 5, 1)
    nothing = torch.zeros(4, 5, dtype=torch.bool)
    with pytest.raises(UserError, match="every entry is masked"):
        cp.soft_impute(X, nothing)
    with pytest.raises(UserError, match="nothing is masked"):
        cp.masked_error(X, X, ~nothing)


def test_bad_masks_raise_a_clear_error(as_a_user):
    X = torch.ones(4, 3)
    for draw in (cp.mask_entries, cp.mask_tokens):
        with pytest.raises(UserError, match="between 0 and 1"):
            draw(4, 3, 1.5, rng())
    with pytest.raises(UserError, match="the shape d x N"):
        cp.soft_impute(X, torch.ones(4, 2, dtype=torch.bool))
    with pytest.raises(UserError, match="every masked entry is 0"):
        cp.masked_error(0 * X, X, torch.zeros(4, 3, dtype=torch.bool))
    assert cp.complete_on_subspaces(X[:, :0], X[:, :0] > 0, torch.ones(2, 4, 1)).shape == (4, 0)
