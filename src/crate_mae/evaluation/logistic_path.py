"""scikit-learn's logistic regression along a path of C: each fit starts at the solution of the one before.

The objective of ``LogisticRegression`` for features x_i, labels y_i and K classes is

    F(W, b) = 1/n sum_i [logsumexp(z_i) - z_{i, y_i}] + |W|^2 / (2 C n),    z_i = W x_i + b.

It is minimised by L-BFGS, as in scikit-learn, with three differences that change the time and not the minimum:

- The Hessian is about s S + I / (C n) for each class, with S = X^T X / n and s the mean of p (1 - p). For the features
  of a network the eigenvalues of S differ by orders of magnitude, and plain L-BFGS takes hundreds of steps. Here the
  inverse of that matrix is the initial inverse Hessian: one factorisation S = Q diag(sigma) Q^T serves the whole path.
- From one C to the next only the penalty changes, by a known multiple of I. So the pairs (step, change of the gradient)
  of L-BFGS are kept: they stay valid when that multiple of the step is added to the change.
- A fit converges, in scikit-learn's sense, when max |dF| <= tol. A warm start may satisfy this before it has moved from
  the minimum of the last C, so the path continues to 0.3 of tol.

The result is scikit-learn's estimator. Fitted further from there (``warm_start``) it takes no step, as a test shows.
"""

from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from jaxtyping import Float, Int
from sklearn.linear_model import LogisticRegression

TOL = 1e-4
"""A fit has converged when no entry of the gradient of F is larger; scikit-learn's default."""
MAX_ITER = 1000
FURTHER = 0.3
"""The fraction of tol at which the path stops."""
MEMORY = 20
"""Pairs that L-BFGS keeps."""
TOGETHER = 1024
"""Rows that fit in the processor's cache between the two products that use them."""


@dataclass(frozen=True)
class Fit:
    """One fit of the path."""

    C: float
    """The inverse strength of regularisation."""
    model: LogisticRegression
    iterations: int
    converged: bool
    """Whether the fit converged, by scikit-learn's criterion."""


def logistic_path(
    features: Float[np.ndarray, "n d"],
    labels: Int[np.ndarray, " n"],
    strengths: Sequence[float],
    tol: float = TOL,
    max_iter: int = MAX_ITER,
) -> Iterator[Fit]:
    """A fit for each C, in ascending order. Features should be standardised; computations are in their dtype."""
    n, d = features.shape
    classes, targets = np.unique(labels, return_inverse=True)
    spectrum, basis = np.linalg.eigh((features.T @ features).astype(np.float64) / n)
    of_features = np.append(np.ones(d), 0.0)  # b has no penalty
    weights, before = np.zeros((len(classes), d + 1)), 0.0
    loss, gradient, curvature = mean_loss(features, targets, weights)
    pairs: deque[Pair] = deque(maxlen=MEMORY)
    for C in sorted(strengths):
        # scikit-learn fits two classes by the one vector w = w_1 - w_0, whose penalty is twice that of -w/2 and w/2.
        penalty = (2 if len(classes) == 2 else 1) / (C * n)
        for pair in pairs:
            pair.change[:] += (penalty - before) * of_features * pair.step
        pairs = deque(filter(_is_curved, pairs), maxlen=MEMORY)  # a weaker penalty may leave no curvature
        before = penalty
        hessian = curvature * np.append(spectrum.clip(0), 1.0) + penalty
        slope, iterations = gradient + penalty * of_features * weights, 0
        while np.abs(slope).max() > FURTHER * tol and iterations < max_iter:
            direction = -_inverse_hessian(slope, pairs, hessian, basis)
            value = loss + penalty / 2 * np.square(weights * of_features).sum()
            length = 1.0
            while True:
                moved = weights + length * direction
                found = mean_loss(features, targets, moved)
                moved_value = found.loss + penalty / 2 * np.square(moved * of_features).sum()
                if moved_value <= value + 1e-4 * length * np.vdot(direction, slope) or length < 1e-6:
                    break
                length /= 2
            if moved_value > value:  # what is left to gain is below rounding
                break
            moved_slope = found.gradient + penalty * of_features * moved
            if _is_curved(pair := Pair(moved - weights, moved_slope - slope)):
                pairs.append(pair)
            weights, slope, (loss, gradient, curvature) = moved, moved_slope, found
            iterations += 1
        converged = bool(np.abs(slope).max() <= tol)
        yield Fit(C, _estimator(classes, weights, C, tol, max_iter, iterations), iterations, converged)


class Pair(NamedTuple):
    """A step of L-BFGS and how the gradient changed along it."""

    step: Float[np.ndarray, "k d_1"]
    change: Float[np.ndarray, "k d_1"]


def _is_curved(pair: Pair) -> bool:
    """Whether F curves upwards along the step by more than rounding, as L-BFGS needs it."""
    step, change = pair
    return bool(np.vdot(step, change) > 1e-10 * np.linalg.norm(step) * np.linalg.norm(change))


class Loss(NamedTuple):
    """The mean loss at some weights, its gradient, and the mean of p (1 - p)."""

    loss: float
    gradient: Float[np.ndarray, "k d_1"]
    curvature: float


def mean_loss(
    features: Float[np.ndarray, "n d"], targets: Int[np.ndarray, " n"], weights: Float[np.ndarray, "k d_1"]
) -> Loss:
    """F without its penalty; the last column of the weights is b."""
    W, b = (part.astype(features.dtype) for part in np.split(weights, [-1], axis=1))
    n, classes = len(features), len(weights)
    loss, certainty, gradient = 0.0, 0.0, np.zeros_like(weights)
    for start in range(0, n, TOGETHER):
        x, y = features[start : start + TOGETHER], targets[start : start + TOGETHER]
        images = np.arange(len(y))
        p = W @ x.T + b
        p -= p.max(0)
        loss -= p[y, images].sum(dtype=np.float64)
        np.exp(p, out=p)
        total = p.sum(0)
        loss += np.log(total).sum(dtype=np.float64)
        p /= total
        certainty += np.vdot(p, p)
        p[y, images] -= 1
        gradient[:, :-1] += p @ x
        gradient[:, -1] += p.sum(1)
    return Loss(float(loss / n), gradient / n, float(1 - certainty / n) / classes)


def _inverse_hessian(
    slope: Float[np.ndarray, "k d_1"],
    pairs: Sequence[Pair],
    hessian: Float[np.ndarray, " d_1"],
    basis: Float[np.ndarray, "d d"],
) -> Float[np.ndarray, "k d_1"]:
    """L-BFGS's two loops, from the inverse of Q diag(hessian) Q^T, scaled to the last pair."""

    def first_guess(vector: np.ndarray) -> np.ndarray:
        rotated = np.hstack([vector[:, :-1] @ basis, vector[:, -1:]]) / hessian
        return np.hstack([rotated[:, :-1] @ basis.T, rotated[:, -1:]])

    result, shares = slope.copy(), []
    for step, change in reversed(pairs):
        shares.append(np.vdot(step, result) / np.vdot(step, change))
        result -= shares[-1] * change
    result = first_guess(result)
    if pairs:
        step, change = pairs[-1]
        result *= np.vdot(step, change) / np.vdot(change, first_guess(change))
    for (step, change), share in zip(pairs, reversed(shares), strict=True):
        result += (share - np.vdot(change, result) / np.vdot(step, change)) * step
    return result


def _estimator(
    classes: np.ndarray, weights: np.ndarray, C: float, tol: float, max_iter: int, iterations: int
) -> LogisticRegression:
    """scikit-learn's estimator, fitted."""
    model = LogisticRegression(C=C, tol=tol, max_iter=max_iter)
    rows = weights[1:] - weights[:1] if len(classes) == 2 else weights
    model.classes_, model.n_features_in_ = classes, weights.shape[1] - 1
    model.coef_, model.intercept_ = rows[:, :-1].copy(), rows[:, -1].copy()
    model.n_iter_ = np.array([iterations], dtype=np.int32)
    return model
