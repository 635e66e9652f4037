import warnings
from itertools import pairwise

import numpy as np
import pytest
import torch
from sklearn.linear_model import LogisticRegression
from sklearn.preprocessing import StandardScaler

from crate_mae.evaluation.logistic_path import (
    TOGETHER,
    Fit,
    Pair,
    _inverse_hessian,
    _is_curved,
    logistic_path,
    mean_loss,
)

STRENGTHS = (1e-2, 1.0, 1e2)


def noisy(classes: int, samples: int = 400, dim: int = 12) -> tuple[np.ndarray, np.ndarray]:
    """Classes that overlap, in standardised features whose covariance has eigenvalues over four orders of magnitude."""
    rng = np.random.default_rng(0)
    labels = rng.integers(0, classes, samples)
    values = rng.normal(size=(samples, dim)) + 0.7 * rng.normal(size=(classes, dim))[labels]
    values = values * np.logspace(0, -2, dim) @ np.linalg.qr(rng.normal(size=(dim, dim)))[0]
    return StandardScaler().fit_transform(values), labels


@pytest.mark.parametrize("classes", [2, 3, 7])
def test_the_minimum_is_scikit_learns(classes: int) -> None:
    features, labels = noisy(classes)
    for fit in logistic_path(features, 10 * labels, STRENGTHS, tol=1e-9):
        oracle = LogisticRegression(C=fit.C, solver="newton-cg", tol=1e-10, max_iter=1000).fit(features, 10 * labels)
        assert fit.converged
        np.testing.assert_allclose(fit.model.coef_, oracle.coef_, atol=1e-5, rtol=1e-4)
        # The intercepts of several classes are free up to a common constant.
        centred = [model.intercept_ - model.intercept_.mean() * (classes > 2) for model in (fit.model, oracle)]
        np.testing.assert_allclose(*centred, atol=1e-5, rtol=1e-4)
        np.testing.assert_allclose(fit.model.predict_proba(features), oracle.predict_proba(features), atol=1e-5)
        assert (fit.model.predict(features) == oracle.predict(features)).all()


@pytest.mark.parametrize("classes", [2, 5])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_scikit_learn_fitted_on_takes_no_step(classes: int, dtype: type) -> None:
    features, labels = noisy(classes)
    features = features.astype(dtype)
    for fit in logistic_path(features, labels, STRENGTHS):
        model = fit.model.set_params(warm_start=True)
        before = model.coef_.copy()
        model.fit(features, labels)
        assert model.n_iter_[0] == 0
        np.testing.assert_allclose(model.coef_, before, rtol=1e-6)


def test_loss_and_gradient_are_autograds() -> None:
    rng = np.random.default_rng(1)
    features, targets = rng.normal(size=(2 * TOGETHER + 7, 5)), rng.integers(0, 4, 2 * TOGETHER + 7)
    weights = rng.normal(size=(4, 6))
    found = mean_loss(features, targets, weights)
    W = torch.from_numpy(weights).requires_grad_()
    logits = torch.from_numpy(features) @ W[:, :-1].T + W[:, -1]
    loss = torch.nn.functional.cross_entropy(logits, torch.from_numpy(targets))
    loss.backward()
    p = logits.softmax(1)
    assert found.loss == pytest.approx(loss.item(), rel=1e-12)
    np.testing.assert_allclose(found.gradient, W.grad, atol=1e-14)
    assert found.curvature == pytest.approx((p * (1 - p)).mean().item(), rel=1e-12)


def test_large_logits_don_t_overflow() -> None:
    features = np.array([[1e4], [-1e4]], dtype=np.float32)
    found = mean_loss(features, np.array([0, 1]), np.array([[1.0, 0.0], [-1.0, 0.0]]))
    assert found.loss == 0
    assert np.isfinite(found.gradient).all()


def test_the_path_takes_fewer_steps_than_separate_fits() -> None:
    features, labels = noisy(4, samples=1500, dim=40)
    strengths = (1.0, 1e1, 1e2, 1e3)
    together = list(logistic_path(features, labels, strengths))
    alone = [next(logistic_path(features, labels, [C])) for C in strengths]
    plain = [LogisticRegression(C=C, max_iter=1000).fit(features, labels) for C in strengths]

    def steps(fits: list[Fit]) -> int:
        return sum(fit.iterations for fit in fits)

    assert steps(together) < 0.7 * steps(alone)  # the warm start and the memory
    assert steps(together) < 0.4 * sum(int(model.n_iter_[0]) for model in plain)  # and the preconditioner
    assert all(a.C < b.C for a, b in pairwise(together))


def test_a_fit_that_is_cut_short_says_so() -> None:
    features, labels = noisy(3)
    cut = list(logistic_path(features, labels, STRENGTHS, tol=1e-8, max_iter=3))
    assert not any(fit.converged for fit in cut)
    assert [fit.iterations for fit in cut] == [3, 3, 3]
    with pytest.warns(Warning, match="failed to converge"):
        LogisticRegression(tol=1e-8, max_iter=3).fit(features, labels)


def test_separable_and_degenerate_features_converge() -> None:
    labels = np.arange(60) % 3
    apart = np.eye(3)[labels] * 10 + np.random.default_rng(0).normal(size=(60, 3))
    constant = np.zeros((60, 4), dtype=np.float32)
    wide = np.random.default_rng(0).normal(size=(60, 200)).astype(np.float32)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for features in (apart, constant, wide):
            fits = list(logistic_path(features, labels, (1.0, 1e5)))
            assert all(fit.converged for fit in fits)
            assert np.isfinite(fits[-1].model.coef_).all()
    assert fits[-1].model.score(wide, labels) == 1


def test_the_inverse_hessian_maps_the_last_change_to_its_step() -> None:
    """The secant equation, which every L-BFGS matrix obeys; without pairs it is the first guess itself."""
    rng = np.random.default_rng(2)
    basis, hessian = np.linalg.qr(rng.normal(size=(5, 5)))[0], rng.uniform(0.1, 2, 6)
    curved = rng.normal(size=(6, 6))
    curved = curved @ curved.T + np.eye(6)
    steps = rng.normal(size=(4, 3, 6))
    pairs = [Pair(step, step @ curved) for step in steps]
    np.testing.assert_allclose(_inverse_hessian(pairs[-1].change, pairs, hessian, basis), steps[-1], atol=1e-10)
    whole = np.block([[basis, np.zeros((5, 1))], [np.zeros((1, 5)), np.ones((1, 1))]])
    guess = np.linalg.inv(whole @ np.diag(hessian) @ whole.T)
    np.testing.assert_allclose(_inverse_hessian(steps[0], [], hessian, basis), steps[0] @ guess, atol=1e-10)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_features_without_curvature_do_no_harm(dtype: type) -> None:
    """The class token of layer 0 is the same for every image: standardised, it is all zeros but for rounding."""
    _, labels = noisy(classes=3)
    features = np.full((len(labels), 4), 1e-20, dtype=dtype)
    with np.errstate(divide="raise", invalid="raise"):
        fits = list(logistic_path(features, labels, (1e-2, 1e-1, *STRENGTHS, 1e5)))
    assert all(fit.converged and np.isfinite(fit.model.coef_).all() for fit in fits)


def test_a_pair_without_curvature_is_left_out() -> None:
    step = np.ones((2, 3))
    assert _is_curved(Pair(step, 0.1 * step))
    assert not _is_curved(Pair(step, 0 * step))
    assert not _is_curved(Pair(step, -step))
    assert not _is_curved(Pair(0 * step, 0 * step))
