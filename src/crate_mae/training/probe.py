"""Linear probing: logistic regression on frozen features."""

import warnings
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from jaxtyping import Float, Int
from sklearn.exceptions import ConvergenceWarning
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import train_test_split
from sklearn.preprocessing import StandardScaler


@dataclass(frozen=True)
class Probe:
    """What a linear classifier makes of features."""

    accuracy: float
    """On the test set, in per cent, with C chosen on a validation split of the training set and refitted on all."""
    C: float
    """The inverse strength of regularisation that was chosen."""


def linear_probe(
    train: Float[np.ndarray, "n d"],
    train_labels: Int[np.ndarray, " n"],
    test: Float[np.ndarray, "m d"],
    test_labels: Int[np.ndarray, " m"],
    strengths: Sequence[float],
    seed: int = 0,
) -> Probe:
    """Standardise, choose C on a fifth of the training set, refit on all of it, score on the test set."""
    scaler = StandardScaler().fit(train)
    train, test = scaler.transform(train), scaler.transform(test)
    fit, validate, fit_labels, validate_labels = train_test_split(
        train, train_labels, test_size=0.2, random_state=seed, stratify=train_labels
    )
    scores = [_fit(fit, fit_labels, C).score(validate, validate_labels) for C in strengths]
    best = strengths[int(np.argmax(scores))]
    return Probe(100 * float(_fit(train, train_labels, best).score(test, test_labels)), best)


def _fit(features: np.ndarray, labels: np.ndarray, C: float) -> LogisticRegression:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)  # at weak regularisation the last digits don't matter here
        return LogisticRegression(C=C, max_iter=300).fit(features, labels)
