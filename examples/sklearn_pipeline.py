"""A model's features in a scikit-learn pipeline: layer and C chosen together by cross-validation.

    python examples/sklearn_pipeline.py                 # a tiny model with random weights
    python examples/sklearn_pipeline.py runs/demo       # a run, a checkpoint folder, or a name on the Hub

``memory`` caches the features of each layer, so that only the first C has to compute them.
"""

import sys
from pathlib import Path
from tempfile import TemporaryDirectory

import torch
from sklearn.datasets import load_digits
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import GridSearchCV, train_test_split
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

import crate_mae


def main(checkpoint: str | None) -> None:
    digits = load_digits()
    images, labels = digits.images[:400] / 16, digits.target[:400]  # (n, 8, 8), from 0 to 1
    train, test, train_labels, test_labels = train_test_split(images, labels, random_state=0, stratify=labels)
    with TemporaryDirectory() as folder:
        features = crate_mae.CrateFeatures(checkpoint or tiny_model().save(Path(folder) / "tiny"), pool="mean")
        classifier = LogisticRegression(max_iter=1000)
        pipeline = make_pipeline(features, StandardScaler(), classifier, memory=str(Path(folder) / "memory"))
        choices = {"cratefeatures__layer": [1, -1], "logisticregression__C": [0.01, 0.1]}
        search = GridSearchCV(pipeline, choices, cv=2).fit(train, train_labels)
        print("chosen", search.best_params_)
        print(f"test accuracy {100 * search.score(test, test_labels):.1f} %")


def tiny_model() -> crate_mae.MaskedAutoencoder:
    """Two layers with random weights, for 8 x 8 gray images."""
    shape = {"image_size": 8, "patch_size": 2, "channels": 1, "dim": 48, "depth": 2, "heads": 4}
    return crate_mae.create_model("crate_mae_tiny", generator=torch.Generator().manual_seed(0), **shape)


if __name__ == "__main__":
    main(sys.argv[1] if len(sys.argv) > 1 else None)
