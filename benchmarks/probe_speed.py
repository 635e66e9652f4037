"""The probe's sweep over six C against six separate scikit-learn fits with the same features, tol and max_iter.

    python benchmarks/probe_speed.py [--quick] [--samples 50000] [--dim 768] [--repeats 1] [--features FILE.npz]

Standardised float32 features, ten classes. The made ones have the spectrum of a network's features (variances that
fall as i^-1.6) and, as the case that is easiest for scikit-learn, a flat one. With --features it is a file that
crate-mae probe left in OUT/features; a fifth of it is for testing. Both sides are timed in turn in one run and the
medians compared; the time of the processor stands beside that of the clock, which other work on the machine lengthens.
"""

import argparse
import statistics
import time
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from sklearn.exceptions import ConvergenceWarning
from sklearn.linear_model import LogisticRegression
from sklearn.preprocessing import StandardScaler

from crate_mae.training.features import read_features
from crate_mae.training.logistic import MAX_ITER, TOL, logistic_path
from crate_mae.training.probe import STRENGTHS, stratified

CLASSES = 10


@dataclass(frozen=True)
class Data:
    train: np.ndarray
    train_labels: np.ndarray
    test: np.ndarray
    test_labels: np.ndarray


@dataclass(frozen=True)
class Line:
    """What one C gave on one side."""

    C: float
    seconds: float
    processor: float
    """Seconds of all threads together."""
    iterations: int
    converged: bool
    accuracy: float


class Stopwatch:
    def __init__(self) -> None:
        self.start = time.perf_counter(), time.process_time()

    def spent(self) -> tuple[float, float]:
        return time.perf_counter() - self.start[0], time.process_time() - self.start[1]


def made(samples: int, dim: int, decay: float, distance: float) -> Data:
    """Gaussian classes in a random basis, with variances that fall as i^-decay, and a fifth more for testing."""
    rng = np.random.default_rng(0)
    labels = rng.integers(0, CLASSES, samples + samples // 5)
    means = distance * rng.normal(size=(CLASSES, dim)).astype(np.float32)
    values = rng.standard_normal((len(labels), dim), dtype=np.float32)
    values += means[labels]
    values *= np.arange(1, dim + 1, dtype=np.float32) ** (-decay / 2)
    basis = np.linalg.qr(rng.normal(size=(dim, dim)))[0].astype(np.float32)
    return split(values @ basis, labels, np.arange(len(labels)) >= samples)


def split(values: np.ndarray, labels: np.ndarray, held_out: np.ndarray) -> Data:
    scaler = StandardScaler().fit(values[~held_out])
    train, test = scaler.transform(values[~held_out]), scaler.transform(values[held_out])
    return Data(train, labels[~held_out], test, labels[held_out])


def separate(data: Data, tol: float, max_iter: int) -> list[Line]:
    """Six fits that know nothing of each other."""
    lines = []
    for C in STRENGTHS:
        start = Stopwatch()
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always", ConvergenceWarning)
            model = LogisticRegression(C=C, tol=tol, max_iter=max_iter).fit(data.train, data.train_labels)
        spent = start.spent()
        accuracy = 100 * model.score(data.test, data.test_labels)
        lines.append(Line(C, *spent, int(model.n_iter_[0]), not caught, accuracy))
    return lines


def path(data: Data, tol: float, max_iter: int) -> list[Line]:
    """The same six along one path; the first line has the cost of its preparation."""
    lines, start = [], Stopwatch()
    for fit in logistic_path(data.train, data.train_labels, STRENGTHS, tol, max_iter):
        spent = start.spent()
        accuracy = 100 * fit.model.score(data.test, data.test_labels)
        lines.append(Line(fit.C, *spent, fit.iterations, fit.converged, accuracy))
        start = Stopwatch()
    return lines


def compare(name: str, data: Data, repeats: int, tol: float, max_iter: int) -> None:
    sides: dict[str, Callable[[Data, float, int], list[Line]]] = {"scikit-learn": separate, "path": path}
    runs: dict[str, list[list[Line]]] = {side: [] for side in sides}
    for _ in range(repeats):
        for side, function in sides.items():
            runs[side].append(function(data, tol, max_iter))
    n, d = data.train.shape
    print(f"{name}: {n} x {d}, {len(np.unique(data.train_labels))} classes, tol {tol:g}, max_iter {max_iter}")
    print(f"  {'C':>8} | {'six fits: s':>12} {'iterations':>12} {'test, %':>8} | {'path: s':>8} ", end="")
    print(f"{'iterations':>12} {'test, %':>8}")
    for theirs, ours in zip(runs["scikit-learn"][0], runs["path"][0], strict=True):
        cut = ["" if line.converged else " (cut)" for line in (theirs, ours)]
        print(f"  {ours.C:>8g} | {theirs.seconds:>12.2f} {f'{theirs.iterations}{cut[0]}':>12} ", end="")
        print(
            f"{theirs.accuracy:>8.2f} | {ours.seconds:>8.2f} {f'{ours.iterations}{cut[1]}':>12} {ours.accuracy:>8.2f}"
        )
    clock = [statistics.median(sum(line.seconds for line in lines) for lines in runs[side]) for side in sides]
    processor = [statistics.median(sum(line.processor for line in lines) for lines in runs[side]) for side in sides]
    pairs = list(zip(runs["scikit-learn"][0], runs["path"][0], strict=True))
    apart = max(abs(theirs.accuracy - ours.accuracy) for theirs, ours in pairs)
    best = [max(line.accuracy for line in side) for side in zip(*pairs, strict=True)]
    for name, (slow, quick) in (("clock", clock), ("processor", processor)):
        print(f"  {name}: {slow:.2f} s and {quick:.2f} s, {quick / slow:.3f} x the time")
    print(f"  accuracy: at most {apart:.2f} points apart; the best {best[0]:.2f} and {best[1]:.2f} %", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--quick", action="store_true", help="5,000 x 192")
    parser.add_argument("--samples", type=int, default=50_000)
    parser.add_argument("--dim", type=int, default=768)
    parser.add_argument("--repeats", type=int, default=1)
    parser.add_argument("--tol", type=float, default=TOL)
    parser.add_argument("--max-iter", type=int, default=MAX_ITER)
    parser.add_argument("--features", type=Path, default=None)
    options = parser.parse_args()
    samples, dim = (5_000, 192) if options.quick else (options.samples, options.dim)
    if options.features:
        features = read_features(options.features)
        if features is None:
            parser.error(f"{options.features} holds no features")
        data = {options.features.name: split(features.values, features.labels, stratified(features.labels, 0))}
    else:
        data = {
            "flat spectrum": made(samples, dim, 0.0, 3 / dim**0.5),
            "spectrum i^-1.6": made(samples, dim, 1.6, 3 / dim**0.5),
        }
    for name, part in data.items():
        compare(name, part, options.repeats, options.tol, options.max_iter)


if __name__ == "__main__":
    main()
