"""The probe's sweep over six C against six separate scikit-learn fits with the same features, tol and max_iter.

Standardised float32 features of ten Gaussian classes with a flat spectrum: the case that is easiest for scikit-learn.
"""

import warnings
from collections.abc import Iterator
from dataclasses import asdict, dataclass

import numpy as np
from jaxtyping import Float, Int
from rich.console import Console
from sklearn.exceptions import ConvergenceWarning
from sklearn.linear_model import LogisticRegression
from sklearn.preprocessing import StandardScaler

from crate_mae.bench.harness import race
from crate_mae.bench.table import Row, at_most
from crate_mae.evaluation.linear_probe import PAPER_STRENGTHS
from crate_mae.evaluation.logistic_path import MAX_ITER, TOL, logistic_path

APART = 0.1
"""Points by which accuracies may differ; otherwise the two sides did not fit the same model."""

CLASSES = 10
SWEEP, SEPARATE = "sweep", "scikit-learn"


@dataclass(frozen=True)
class Sizes:
    """Samples and dimensions of the features."""

    samples: int = 50_000
    dim: int = 768
    rounds: int = 1


WHOLE = Sizes(rounds=3)
QUICK = Sizes(samples=5_000, dim=192)


@dataclass(frozen=True)
class Data:
    """Features and labels of training and test samples."""

    train: Float[np.ndarray, "n d"]
    train_labels: Int[np.ndarray, " n"]
    test: Float[np.ndarray, "m d"]
    test_labels: Int[np.ndarray, " m"]


@dataclass(frozen=True)
class Fitted:
    """The fit of one C on one side."""

    C: float
    iterations: int
    converged: bool
    accuracy: float
    """On the test images, in per cent."""


def rows(sizes: Sizes, console: Console) -> Iterator[Row]:
    """One row: the time of the sweep relative to the separate fits."""
    data = made(sizes.samples, sizes.dim)
    fits: dict[str, list[Fitted]] = {}
    contestants = {
        SWEEP: lambda: fits.update({SWEEP: sweep(data)}),
        SEPARATE: lambda: fits.update({SEPARATE: separate(data)}),
    }
    laps = race("probe sweep", contestants, sizes.rounds, console, warm_up=0)
    apart = max(abs(a.accuracy - b.accuracy) for a, b in zip(fits[SWEEP], fits[SEPARATE], strict=True))
    cut = {name: [fit.C for fit in side if not fit.converged] for name, side in fits.items()}
    words = "; ".join(f"{name} not converged at C {values}" for name, values in cut.items() if values)
    yield Row(
        "probe, sweep over six C",
        f"probe sweep over six C, {sizes.samples:,} x {sizes.dim}",
        "scikit-learn",
        laps.speedup(SEPARATE, SWEEP) if apart <= APART else None,
        goal=at_most(0.4),
        note=f"accuracies at most {apart:.2f} points apart; {words or 'all fits converged on both sides'}",
        seconds=laps.spreads(),
        details={"fits": {name: [asdict(fit) for fit in side] for name, side in fits.items()}},
    )


def separate(data: Data, tol: float = TOL, max_iter: int = MAX_ITER) -> list[Fitted]:
    """Six independent fits."""
    found = []
    for C in PAPER_STRENGTHS:
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always", ConvergenceWarning)
            model = LogisticRegression(C=C, tol=tol, max_iter=max_iter).fit(data.train, data.train_labels)
        accuracy = 100 * model.score(data.test, data.test_labels)
        found.append(Fitted(C, int(model.n_iter_[0]), not caught, accuracy))
    return found


def sweep(data: Data, tol: float = TOL, max_iter: int = MAX_ITER) -> list[Fitted]:
    """The same six along one path."""
    path = logistic_path(data.train, data.train_labels, PAPER_STRENGTHS, tol, max_iter)
    return [
        Fitted(fit.C, fit.iterations, fit.converged, 100 * fit.model.score(data.test, data.test_labels)) for fit in path
    ]


def made(samples: int, dim: int) -> Data:
    """Samples of Gaussian classes, and a fifth as many for testing."""
    rng = np.random.default_rng(0)
    labels = rng.integers(0, CLASSES, samples + samples // 5)
    means = 3 / dim**0.5 * rng.normal(size=(CLASSES, dim)).astype(np.float32)
    values = rng.standard_normal((len(labels), dim), dtype=np.float32)
    values += means[labels]
    scaler = StandardScaler().fit(values[:samples])
    train, test = scaler.transform(values[:samples]), scaler.transform(values[samples:])
    return Data(train, labels[:samples], test, labels[samples:])
