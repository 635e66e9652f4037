"""Supervised training of a whole model, from a checkpoint or, with the same protocol, from random weights."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import torch

from crate_mae.data.loader import LabelledSamples
from crate_mae.data.source import ImageSource, relabel
from crate_mae.errors import UserError
from crate_mae.models.classifier import Classifier
from crate_mae.models.zoo import load
from crate_mae.training.config import FinetuneConfig
from crate_mae.training.distributed import Processes
from crate_mae.training.evaluators import as_evaluated, evaluators, evenly_spaced
from crate_mae.training.launch import augmentation, launch
from crate_mae.training.loop import Job, Outcome
from crate_mae.training.objectives import Classifying, drop_path


def finetune(config: FinetuneConfig, out: str | Path, **options: Any) -> Outcome:
    """Train a classifier in the run folder ``out``; the options are those of ``launch``."""
    return launch(finetuning, config, out, **options)


def finetuning(config: FinetuneConfig, training: ImageSource, validation: ImageSource, processes: Processes) -> Job:
    """A classifier, its objective, samples and evaluators."""
    if not training.class_names or not validation.class_names:
        raise UserError(
            f"fine-tuning needs a label for every image, and some of {config.data} have none; sort them into class "
            "folders, or give each image in the shards a .cls file."
        )
    validation = relabel(validation, training.class_names)
    model = starting_model(config, training.class_names)
    drop_path(model, config.drop_path)
    held_out = as_evaluated(evenly_spaced(validation, config.evaluation_images), model.config)
    return Job(
        config,
        Classifying(model, config.mixup, config.label_smoothing),
        LabelledSamples(training, augmentation(config, model.config), config.seed),
        evaluators(config, {"val": held_out}, processes),
        layer_decay=config.layer_decay,
    )


def starting_model(config: FinetuneConfig, class_names: tuple[str, ...]) -> Classifier:
    """A classifier with the checkpoint's weights, or with random weights of the same shape."""
    generator = torch.Generator().manual_seed(config.seed)
    if config.checkpoint is None:
        if not config.random:
            raise UserError("choose the initial weights: --checkpoint RUN, or --random.")
        shape = config.model_config()
        if config.image_size:
            shape = replace(shape, image_size=config.image_size)
        return Classifier(shape, class_names, generator, config.pool)
    pretrained = load(config.checkpoint, config.image_size)
    if config.random:
        return Classifier(pretrained.config, class_names, generator, config.pool)
    return Classifier.on(pretrained, class_names, generator, config.pool)
