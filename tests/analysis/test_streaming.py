"""Statistics of a stream against the same at once, and against another way to compute them."""

import numpy as np
import pytest
import torch

from crate_mae import UserError
from crate_mae.analysis.streaming import LinearCKA, Moments


def rows(n: int, k: int, seed: int = 0) -> torch.Tensor:
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(n, k, generator=generator, dtype=torch.float64)


@pytest.mark.parametrize("batch", [1, 3, 10, 50])
def test_mean_and_deviation_do_not_depend_on_the_batches(batch: int) -> None:
    values = 1e6 + rows(50, 4) * torch.tensor([1e-3, 1.0, 10.0, 0.0])  # far from zero, where squares would cancel
    moments = Moments()
    for part in values.split(batch):
        moments.add(part)
    curve = moments.curve()
    np.testing.assert_allclose(curve.mean, values.numpy().mean(0), rtol=1e-14)
    np.testing.assert_allclose(curve.spread, values.numpy().std(0), rtol=1e-6, atol=1e-8)
    assert moments.count == 50


def slow_alignment(X: np.ndarray, Y: np.ndarray) -> float:
    """By the n x n kernels, centred on both sides: HSIC(K, L) / sqrt(HSIC(K, K) HSIC(L, L))."""
    n = len(X)
    centring = np.eye(n) - 1 / n
    K, L = (centring @ (M @ M.T) @ centring for M in (X, Y))
    return float((K * L).sum() / np.sqrt((K * K).sum() * (L * L).sum()))


@pytest.mark.parametrize("batch", [1, 7, 40])
def test_alignment_against_the_kernels(batch: int) -> None:
    X = 3 + rows(40, 5)
    Y = torch.cat([X @ rows(5, 4, 1) + rows(40, 4, 2), rows(40, 2, 3) - 5], 1)
    stream = LinearCKA()
    for x, y in zip(X.split(batch), Y.split(batch), strict=True):
        stream.add(x, y)
    assert stream.value() == pytest.approx(slow_alignment(X.numpy(), Y.numpy()), rel=1e-10)


def test_alignment_is_blind_to_rotation_scale_and_shift() -> None:
    X = rows(60, 6)
    rotation = torch.linalg.qr(rows(6, 6, 1)).Q
    turned, other = LinearCKA(), LinearCKA()
    turned.add(X, 0.01 * X @ rotation + 7)
    other.add(X, rows(60, 6, 9))
    assert turned.value() == pytest.approx(1)
    assert other.value() < 0.3


def test_a_constant_is_aligned_with_nothing() -> None:
    stream = LinearCKA()
    stream.add(rows(10, 3), torch.ones(10, 2, dtype=torch.float64))
    assert stream.value() == 0


def test_no_image_is_an_error() -> None:
    for empty in (Moments().curve, LinearCKA().value):
        with pytest.raises(UserError, match="no image"):
            empty()
