"""Masked autoencoding of a set of images."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from matplotlib.figure import Figure

from crate_mae import figures
from crate_mae.analysis.completed_images import completion_panels
from crate_mae.data.loader import evaluation_batches
from crate_mae.data.masked import MaskedSamples
from crate_mae.data.source import ImageSource
from crate_mae.models.autoencoder import MaskedAutoencoder
from crate_mae.models.image_model import ImageModel
from crate_mae.models.zoo import load_autoencoder
from crate_mae.training.config import PretrainConfig
from crate_mae.training.distributed import Processes
from crate_mae.training.evaluators import evaluators, evenly_spaced, masked_as_evaluated
from crate_mae.training.launch import augmentation, launch
from crate_mae.training.loop import Job, Outcome
from crate_mae.training.objectives import Completing


def pretrain(config: PretrainConfig, out: str | Path, **options: Any) -> Outcome:
    """Pretrain a masked autoencoder in the run folder ``out``; the options are those of ``launch``."""
    return launch(pretraining, config, out, **options)


def pretraining(config: PretrainConfig, training: ImageSource, validation: ImageSource, processes: Processes) -> Job:
    """A masked autoencoder, new or from a checkpoint, its objective, samples and evaluators."""
    if config.checkpoint is None:
        model = MaskedAutoencoder(config.model_config(), torch.Generator().manual_seed(config.seed))
    else:
        model = load_autoencoder(config.checkpoint)
    samples = {
        split: masked_as_evaluated(evenly_spaced(source, config.evaluation_images), model.config, config.mask_ratio)
        for split, source in (("train", training), ("val", validation))
    }
    drawn = evenly_spaced(validation, config.pictures) if config.pictures else None
    return Job(
        config,
        Completing(model, config.detail),
        MaskedSamples(training, augmentation(config, model.config), model.num_patches, config.mask_ratio, config.seed),
        evaluators(config, samples, processes),
        draw=Completions(masked_as_evaluated(drawn, model.config, config.mask_ratio)) if drawn else None,
    )


@dataclass(frozen=True)
class Completions:
    """Draws a few images masked, completed and original, with the same images and masks each time."""

    samples: MaskedSamples

    def __call__(self, model: ImageModel) -> Figure:
        assert isinstance(model, MaskedAutoencoder)
        batch = next(evaluation_batches(self.samples, len(self.samples)))
        dtype = model.embedding.class_token.dtype
        panels = completion_panels(model, batch.images.to(model.device, dtype), batch.masks.to(model.device))
        return figures.completions(panels.masked, panels.completed, panels.original, panels.errors, panels.caption)
