"""scikit-learn's logistic regression along a path of C: each fit starts where the one before it ended.

The objective of ``LogisticRegression`` for features x_i, labels y_i and K classes is

    F(W, b) = 1/n sum_i [logsumexp(z_i) - z_{i, y_i}] + |W|^2 / (2 C n),    z_i = W^T x_i + b.

Its Hessian is about s S + I / (C n) for each class, with S = X^T X / n and s the mean of p (1 - p). The eigenvalues of
S lie orders of magnitude apart for the features of a network, which is why L-BFGS takes hundreds of steps. Here L-BFGS
moves in V, where W = T V and T = Q (s diag(sigma) + I / (C n))^(-1/2) for S = Q diag(sigma) Q^T: there the Hessian is
about I. F itself, penalty included, is the one above, so it has the same minimum.

The last word is scikit-learn's: its own lbfgs starts from W, with the iterations that are left, and so takes none where
W already meets its criterion max |dF| <= tol. What comes out is its estimator, and its verdict on convergence.
"""

import warnings
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from jaxtyping import Float, Int
from scipy.optimize import minimize
from sklearn.exceptions import ConvergenceWarning
from sklearn.linear_model import LogisticRegression

TOL = 1e-4
"""Where a fit stops: the largest entry of the gradient of F; scikit-learn's default."""
MAX_ITER = 1000
TOGETHER = 1024
"""Rows that stay in the processor's cache between the two products that need them."""


@dataclass(frozen=True)
class Fit:
    """One fit of the path."""

    C: float
    """The inverse strength of regularisation."""
    model: LogisticRegression
    iterations: int
    """Ours and scikit-learn's."""
    converged: bool
    """What scikit-learn says."""


def logistic_path(
    features: Float[np.ndarray, "n d"],
    labels: Int[np.ndarray, " n"],
    strengths: Sequence[float],
    tol: float = TOL,
    max_iter: int = MAX_ITER,
) -> Iterator[Fit]:
    """A fit for each C, from the least on. Features should be standardised; their dtype is computed in."""
    objective = Objective(features, labels)
    spectrum, basis = np.linalg.eigh((features.T @ features).astype(np.float64) / len(features))
    weights = np.zeros((objective.features.shape[1] + 1, objective.classes))
    for C in sorted(strengths):
        # scikit-learn fits two classes by the one vector w = w_1 - w_0, whose penalty is twice that of -w/2 and w/2.
        penalty = (2 if objective.classes == 2 else 1) / (C * len(features))
        weights, used = _descend(objective, weights, penalty, spectrum.clip(0), basis, tol, max_iter)
        yield _finish(features, labels, weights, C, used, tol, max_iter)


class Value(NamedTuple):
    """The mean loss at some weights, its gradient, and the mean of p (1 - p)."""

    loss: float
    gradient: Float[np.ndarray, "d_1 k"]
    curvature: float


class Objective:
    """F without its penalty; the last row of the weights is b."""

    def __init__(self, features: Float[np.ndarray, "n d"], labels: Int[np.ndarray, " n"]):
        self.features = features
        names, self.targets = np.unique(labels, return_inverse=True)
        self.classes = len(names)

    def __call__(self, weights: Float[np.ndarray, "d_1 k"]) -> Value:
        W, b = weights[:-1].astype(self.features.dtype), weights[-1].astype(self.features.dtype)
        loss, curvature, gradient = 0.0, 0.0, np.zeros_like(weights)
        for start in range(0, len(self.features), TOGETHER):
            x, y = self.features[start : start + TOGETHER], self.targets[start : start + TOGETHER]
            rows = np.arange(len(y))
            p = x @ W + b
            p -= p.max(1, keepdims=True)
            loss -= p[rows, y].sum(dtype=np.float64)
            np.exp(p, out=p)
            total = p.sum(1, keepdims=True)
            loss += np.log(total).sum(dtype=np.float64)
            p /= total
            curvature += (p * (1 - p)).sum(dtype=np.float64)
            p[rows, y] -= 1
            gradient[:-1] += x.T @ p
            gradient[-1] += p.sum(0)
        n = len(self.features)
        return Value(float(loss / n), gradient / n, float(curvature / (n * self.classes)))


def _descend(
    objective: Objective,
    weights: Float[np.ndarray, "d_1 k"],
    penalty: float,
    spectrum: Float[np.ndarray, " d"],
    basis: Float[np.ndarray, "d d"],
    tol: float,
    max_iter: int,
) -> tuple[Float[np.ndarray, "d_1 k"], int]:
    """L-BFGS in V from these weights until max |dF| <= tol: the weights that it ends in, and its iterations."""
    curvature = objective(weights).curvature
    stretch = np.sqrt(curvature * spectrum + penalty)[:, None]
    of_intercept = np.sqrt(curvature + penalty)
    largest = np.inf  # |dF| at the point that was evaluated last

    def to_weights(v: np.ndarray) -> np.ndarray:
        V = v.reshape(weights.shape)
        return np.vstack([basis @ (V[:-1] / stretch), V[-1:] / of_intercept])

    def value(v: np.ndarray) -> tuple[float, np.ndarray]:
        nonlocal largest
        W = to_weights(v)
        loss, gradient, _ = objective(W)
        gradient[:-1] += penalty * W[:-1]
        largest = np.abs(gradient).max()
        in_V = np.vstack([(basis.T @ gradient[:-1]) / stretch, gradient[-1:] / of_intercept])
        return loss + penalty / 2 * np.square(W[:-1]).sum(), in_V.ravel()

    def stop_when_flat(v: np.ndarray) -> None:
        if largest <= tol:
            raise StopIteration

    start = np.vstack([(basis.T @ weights[:-1]) * stretch, weights[-1:] * of_intercept]).ravel()
    value(start)
    if largest <= tol:
        return weights, 0
    options = {"maxiter": max_iter, "maxls": 50, "gtol": 0.0, "ftol": 64 * np.finfo(float).eps}  # as scikit-learn
    found = minimize(value, start, jac=True, method="L-BFGS-B", callback=stop_when_flat, options=options)
    return to_weights(found.x), found.nit


def _finish(
    features: np.ndarray, labels: np.ndarray, weights: np.ndarray, C: float, used: int, tol: float, max_iter: int
) -> Fit:
    model = LogisticRegression(C=C, tol=tol, max_iter=max(max_iter - used, 1), warm_start=True)
    start = (weights[:, 1:] - weights[:, :1] if weights.shape[1] == 2 else weights).astype(features.dtype)
    model.coef_, model.intercept_ = start[:-1].T, start[-1]
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always", ConvergenceWarning)
        model.fit(features, labels)
    converged = not any(issubclass(warning.category, ConvergenceWarning) for warning in caught)
    return Fit(C, model, used + int(model.n_iter_[0]), converged)
