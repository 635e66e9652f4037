import math

import numpy as np
import pytest
import torch
from sklearn.linear_model import RidgeClassifier
from sklearn.neighbors import KNeighborsClassifier
from sklearn.preprocessing import StandardScaler
from torch import Tensor

from crate_mae.evaluation.knn import TOGETHER, nearest_neighbours, quick_probe

Split = tuple[Tensor, Tensor, Tensor, Tensor]


@pytest.fixture
def split() -> Split:
    """Four classes that overlap; more test images than are compared at once."""
    generator = torch.Generator().manual_seed(0)
    labels = torch.randint(4, (300 + TOGETHER + 50,), generator=generator)
    values = torch.randn(len(labels), 8, generator=generator) + torch.randn(4, 8, generator=generator)[labels]
    values *= torch.rand(len(labels), 1, generator=generator) + 0.5  # the length must not matter
    return values[:300], labels[:300], values[300:], labels[300:]


@pytest.mark.parametrize("k", [1, 7, 20, 1000])
def test_with_equal_weights_the_vote_is_scikit_learns(split: Split, k: int) -> None:
    train, train_labels, test, test_labels = split
    k = min(k, len(train))
    oracle = KNeighborsClassifier(k, metric="cosine", algorithm="brute").fit(train.numpy(), train_labels.numpy())
    ours = nearest_neighbours(*split, k=k, temperature=math.inf)
    assert ours == pytest.approx(100 * oracle.score(test.numpy(), test_labels.numpy()), abs=0.1)


@pytest.mark.parametrize("temperature", [0.07, 0.5])
def test_the_weighted_vote_is_that_of_a_loop(split: Split, temperature: float) -> None:
    train, train_labels, test, test_labels = (part.numpy() for part in split)
    right = 0
    for image, label in zip(test[:200], test_labels[:200], strict=True):
        cosines = train @ image / np.linalg.norm(train, axis=1) / np.linalg.norm(image)
        votes = np.zeros(4)
        for place in np.argsort(-cosines)[:20]:
            votes[train_labels[place]] += math.exp(cosines[place] / temperature)
        right += votes.argmax() == label
    ours = nearest_neighbours(split[0], split[1], split[2][:200], split[3][:200], temperature=temperature)
    assert ours == pytest.approx(right / 2)


def test_a_class_that_was_not_trained_on_is_never_guessed(split: Split) -> None:
    train, train_labels, test, _ = split
    strange = torch.full((len(test),), 9)
    assert nearest_neighbours(train, train_labels, test, strange) == 0
    assert quick_probe(train, train_labels, test, strange) == 0


def test_the_quick_probe_is_ridge_regression_on_the_classes(split: Split) -> None:
    train, train_labels, test, test_labels = (part.numpy() for part in split)
    scaler = StandardScaler().fit(train.astype(np.float64))
    for ridge in (0.01, 10.0):
        oracle = RidgeClassifier(alpha=ridge * len(train)).fit(scaler.transform(train), train_labels)
        ours = quick_probe(*split, ridge=ridge)
        assert ours == pytest.approx(100 * oracle.score(scaler.transform(test), test_labels))


def test_the_quick_probe_bears_constant_and_repeated_columns(split: Split) -> None:
    train, train_labels, test, test_labels = split
    plain = quick_probe(*split)

    def doubled(part: Tensor) -> Tensor:
        return torch.cat([part, part, torch.ones(len(part), 2)], 1)

    again = quick_probe(doubled(train), train_labels, doubled(test), test_labels)
    assert again == pytest.approx(plain, abs=0.5)
    assert plain == quick_probe(*split)
