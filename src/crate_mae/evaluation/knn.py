"""Two cheap measures of features, for use during training; neither has anything to tune, nor anything random."""

import torch
from jaxtyping import Float, Int
from torch import Tensor

K = 20
TEMPERATURE = 0.07
RIDGE = 1e-2
TOGETHER = 1024
"""Test images that are compared with all training images at a time."""


def nearest_neighbours(
    train: Float[Tensor, "n d"],
    train_labels: Int[Tensor, " n"],
    test: Float[Tensor, "m d"],
    test_labels: Int[Tensor, " m"],
    k: int = K,
    temperature: float = TEMPERATURE,
) -> float:
    """Accuracy, in per cent, of a vote of the k nearest training images by cosine similarity.

    Neighbour j of image i votes for its class with weight exp(cos(x_i, x_j) / temperature), as is usual for features
    learned without labels; an infinite temperature gives every neighbour the same weight. Ties go to the first class.
    """
    k = min(k, len(train))
    classes = int(max(train_labels.max(), test_labels.max())) + 1
    train, test = (torch.nn.functional.normalize(part.float(), dim=1) for part in (train, test))
    right = 0
    for images, labels in zip(test.split(TOGETHER), test_labels.split(TOGETHER), strict=True):
        similarity, nearest = (images @ train.T).topk(k, dim=1)
        weights = (similarity / temperature).exp()
        votes = weights.new_zeros(len(images), classes).scatter_add_(1, train_labels[nearest], weights)
        right += int((votes.argmax(1) == labels).sum())
    return 100 * right / len(test)


def quick_probe(
    train: Float[Tensor, "n d"],
    train_labels: Int[Tensor, " n"],
    test: Float[Tensor, "m d"],
    test_labels: Int[Tensor, " m"],
    ridge: float = RIDGE,
) -> float:
    """Accuracy, in per cent, of ridge regression on the classes, in closed form.

    W = (X^T X / n + ridge I)^-1 X^T Y / n, with the standardised columns of X and the centred one-hot labels Y; the
    class with the largest score is taken. One Cholesky factorisation, where the full linear probe takes twelve fits.
    """
    train, test = train.double(), test.double()
    std, mean = torch.std_mean(train, dim=0, correction=0)
    std = torch.where(std > 0, std, 1.0)
    X, X_test = (train - mean) / std, (test - mean) / std
    classes = int(max(train_labels.max(), test_labels.max())) + 1
    Y = torch.nn.functional.one_hot(train_labels, classes).double()
    share = Y.mean(0)
    gram = X.T @ X / len(X) + ridge * torch.eye(X.shape[1], dtype=X.dtype, device=X.device)
    W = torch.cholesky_solve(X.T @ (Y - share) / len(X), torch.linalg.cholesky(gram))
    guesses = (X_test @ W + share).argmax(1)
    return 100 * (guesses == test_labels).double().mean().item()
