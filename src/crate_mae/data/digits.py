"""scikit-learn's handwritten digits, 8 x 8, three quarters of them for training."""

from typing import NamedTuple

import numpy as np
from jaxtyping import Float, Int
from sklearn.datasets import load_digits
from sklearn.model_selection import train_test_split

SHARE_FOR_TEST = 0.25


class Digits(NamedTuple):
    """Gray values in [0, 1], in steps of 1/16."""

    train: Float[np.ndarray, "n 8 8"]
    train_labels: Int[np.ndarray, " n"]
    test: Float[np.ndarray, "m 8 8"]
    test_labels: Int[np.ndarray, " m"]


def split_digits(seed: int) -> Digits:
    """A stratified split that the seed decides."""
    images, labels = load_digits(return_X_y=True)
    images = (images / 16).astype(np.float32).reshape(-1, 8, 8)
    train, test, train_labels, test_labels = train_test_split(
        images, labels, test_size=SHARE_FOR_TEST, random_state=seed, stratify=labels
    )
    return Digits(train, train_labels, test, test_labels)
