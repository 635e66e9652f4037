"""A short run on digits learns: the loss falls, and what is read off the features rises."""

from pathlib import Path

import numpy as np
import torch
from sklearn.linear_model import LogisticRegression
from sklearn.preprocessing import StandardScaler

import crate_mae
from crate_mae.cli import main
from crate_mae.data.named_layouts import split_digits
from crate_mae.models.image_model import ImageModel
from crate_mae.recipes import DIGITS_SHAPE
from tests.training.runs import metrics, words


def probe(model: ImageModel) -> float:
    """The share of test digits that logistic regression on the features gets right."""
    digits = split_digits()
    mean, std = DIGITS_SHAPE["mean"][0], DIGITS_SHAPE["std"][0]
    with torch.no_grad():
        train, test = (
            model.features(torch.from_numpy((pictures - mean) / std)[:, None], pool="mean").numpy()
            for pictures in (digits.train.astype(np.float32), digits.test.astype(np.float32))
        )
    scaler = StandardScaler().fit(train)
    regression = LogisticRegression(max_iter=200).fit(scaler.transform(train), digits.train_labels)
    return float(regression.score(scaler.transform(test), digits.test_labels))


def test_the_loss_falls_and_the_probe_rises(tmp_path: Path) -> None:
    settings = {"batch": 32, "evaluate_every": 300, "checkpoint_every": 300, "learning_rate": 3e-3}
    before, after = tmp_path / "before", tmp_path / "after"
    main(words(before, steps=1, **settings | {"learning_rate": 0.0}))
    main(words(after, steps=300, **settings))
    losses = [line["val_loss"] for line in metrics(after) if "val_loss" in line]
    assert losses[-1] < 0.3 * losses[0]
    assert probe(crate_mae.load(after)) > probe(crate_mae.load(before)) + 0.015
