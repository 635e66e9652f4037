"""Linear probing: logistic regression on frozen features, C chosen on a validation split."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from jaxtyping import Bool, Float, Int
from sklearn.preprocessing import StandardScaler

from crate_mae.errors import UserError
from crate_mae.evaluation.logistic_path import MAX_ITER, TOL, Fit, logistic_path

PAPER_STRENGTHS = (1.0, 10.0, 100.0, 1e3, 1e4, 1e5)
"""The paper's C (appendix B.1)."""
STRENGTHS = (0.01, 0.1, *PAPER_STRENGTHS)
"""With a few thousand images, the best C is often below the paper's."""
HELD_OUT = 5
"""One in ``HELD_OUT`` training images is held out to choose C if a set has no validation split."""


@dataclass(frozen=True)
class Strength:
    """The result of one C."""

    C: float
    """The inverse strength of regularisation."""
    validation: float
    """Accuracy on the validation split of a fit to the other training images, in per cent."""
    test: float
    """Accuracy on the test set of a fit to all training images, in per cent."""
    converged: bool
    """Whether both fits converged, by scikit-learn's criterion."""
    iterations: int
    """Iterations of the fit to all training images."""


@dataclass(frozen=True)
class Probe:
    """The accuracy of a linear classifier on features, for each C in ascending order."""

    strengths: tuple[Strength, ...]

    @property
    def chosen(self) -> Strength:
        """The best C on the validation split, the smallest if several are; independent of the test set."""
        return max(self.strengths, key=lambda strength: strength.validation)

    @property
    def best_on_test(self) -> Strength:
        """The paper's protocol: the best C on the test set itself, which is optimistic."""
        return max(self.strengths, key=lambda strength: strength.test)

    @property
    def accuracy(self) -> float:
        """On the test set, in per cent, with the C chosen on the validation split."""
        return self.chosen.test

    @property
    def C(self) -> float:
        """The C chosen on the validation split."""
        return self.chosen.C


def linear_probe(
    train: Float[np.ndarray, "n d"],
    train_labels: Int[np.ndarray, " n"],
    test: Float[np.ndarray, "m d"],
    test_labels: Int[np.ndarray, " m"],
    *,
    strengths: Sequence[float] = STRENGTHS,
    seed: int = 0,
    held_out: Bool[np.ndarray, " n"] | None = None,
    tol: float = TOL,
    max_iter: int = MAX_ITER,
    advance: Callable[[str], None] = lambda note: None,
) -> Probe:
    """Standardise the features and run two sweeps over C.

    The first is fitted to the training images that are not ``held_out`` (by default a stratified fifth, drawn by the
    seed) and scored on those that are; the second is fitted to all of them and scored on the test set.
    ``advance`` is called after each of the 2 x ``len(strengths)`` fits.
    """
    if not np.isfinite(train).all() or not np.isfinite(test).all():
        raise UserError("some features are not finite; the model's weights may be damaged.")
    if len(np.unique(train_labels)) < 2:
        raise UserError("the training images are all of one class; a probe needs two or more.")
    held_out = stratified(train_labels, seed) if held_out is None else held_out
    if not held_out.any() or len(np.unique(train_labels[~held_out])) < 2:
        raise UserError(f"{len(train_labels)} training images are too few to hold some out for choosing C; add more.")
    scaler = StandardScaler().fit(train)
    train, test = scaler.transform(train), scaler.transform(test)

    def sweep(fitted: np.ndarray, labels: np.ndarray, scored: np.ndarray, truth: np.ndarray) -> list[tuple[Fit, float]]:
        results = []
        for fit in logistic_path(fitted, labels, strengths, tol, max_iter):
            results.append((fit, 100 * float(fit.model.score(scored, truth))))
            advance(f"C = {fit.C:g}")
        return results

    chosen_on = sweep(train[~held_out], train_labels[~held_out], train[held_out], train_labels[held_out])
    reported = sweep(train, train_labels, test, test_labels)
    return Probe(
        tuple(
            Strength(fit.C, validation, accuracy, part.converged and fit.converged, fit.iterations)
            for (part, validation), (fit, accuracy) in zip(chosen_on, reported, strict=True)
        )
    )


def stratified(labels: Int[np.ndarray, " n"], seed: int) -> Bool[np.ndarray, " n"]:
    """True for one image in ``HELD_OUT`` of each class, up to rounding, drawn by the seed.

    scikit-learn's splitters are not used: they refuse a class with fewer images than folds, or warn (docs/log.md).
    """
    order = np.random.default_rng(seed).permutation(len(labels))
    by_class = order[np.argsort(labels[order], kind="stable")]
    held_out = np.zeros(len(labels), dtype=bool)
    held_out[by_class[::HELD_OUT]] = True
    return held_out
