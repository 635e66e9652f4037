"""Run folders as training leaves them, written by its own words but without any training."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch

from crate_mae import recipes
from crate_mae.data.source import ArrayImages
from crate_mae.models.image_model import ImageModel
from crate_mae.training.config import RunConfig
from crate_mae.training.run_folder import Run

PRETRAINED = [
    {"step": 0, "train_loss": 1.9, "val_loss": 2.0, "knn_accuracy": 20.0, "probe_accuracy": 50.0},
    {"step": 10, "loss": 1.5, "seconds": 1.0},
    {"step": 20, "train_loss": 0.4, "val_loss": 0.5, "knn_accuracy": 70.0, "probe_accuracy": 80.0},
    {"step": 40, "train_loss": 0.3, "val_loss": 0.6, "knn_accuracy": 75.0, "probe_accuracy": 85.0},
]
FINETUNED = [
    {"step": 0, "val_accuracy": 10.0, "val_loss": 0.1},
    {"step": 20, "val_accuracy": 92.5, "val_loss": 0.3},
    {"step": 40, "val_accuracy": 90.0, "val_loss": 0.2},
]


IMAGES = ArrayImages("black", np.zeros((7, 8, 8), dtype=np.uint8), np.arange(7), [str(n) for n in range(7)])


def recorded(path: Path, model: ImageModel, **settings: Any) -> Path:
    """The folder of a run of which a model is the best checkpoint: a fine-tuning for a classifier."""
    tuned = model.num_classes > 0
    recipe: RunConfig = recipes.finetune_digits() if tuned else recipes.digits()
    config = replace(recipe, **settings)
    run = Run(path)
    run.begin(config, model.config, IMAGES)
    model.save(run.best)
    run.note_start(0, 2, torch.device("cpu"))
    for line in FINETUNED if tuned else PRETRAINED:
        run.write(int(line["step"]), {name: value for name, value in line.items() if name != "step"})
    return path
