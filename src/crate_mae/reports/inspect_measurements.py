"""All measurements of ``crate-mae inspect``, from one pass over some images."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import torch
from jaxtyping import Int
from rich.console import Console
from torch import Tensor

from crate_mae.analysis.attention import AttentionMaps, attention_maps, penultimate
from crate_mae.analysis.completed_images import Panels, Ratios, RatioWatch, completions_at, pictures
from crate_mae.analysis.components import THRESHOLD, Components, components
from crate_mae.data.loader import evaluation_batches
from crate_mae.data.masked import MaskedSamples
from crate_mae.data.named import Split
from crate_mae.data.open import find_images
from crate_mae.data.source import ImageSource, Subset
from crate_mae.data.transforms import Evaluation, sample_generator
from crate_mae.errors import UserError
from crate_mae.models.autoencoder import MaskedAutoencoder
from crate_mae.models.image_model import ImageModel
from crate_mae.models.zoo import untrained
from crate_mae.progress import progress
from crate_mae.reports.layer_measurements import NO_DECODER, LayerMeasurements, LayerMeter

BATCH = 16
ATTENDED, OF_A_CLASS, COMPLETED = 3, 8, 6


@dataclass(frozen=True)
class Settings:
    """What is measured, and on which images."""

    data: str
    """Name of a data set, a folder or shards."""
    data_root: Path | None = None
    """Folder of the named data sets."""
    split: Split | None = None
    """None for the test split, or for all images of a set that has no splits."""
    images: int = 256
    """Number of images, drawn at random; all if the split has fewer."""
    mask_ratio: float = 0.75
    """Fraction of the patches that is masked for the measurements of the decoder."""
    layer: int | None = None
    """Encoder layer of the attention maps and the components, from 1 to L; by default the one before the last."""
    threshold: float = THRESHOLD
    """Threshold that separates foreground from background, see ``components``."""
    seed: int = 0
    """Seed of the choice of images, the masks and the weights of the untrained model."""


@dataclass(frozen=True)
class Inspection:
    """All results; a string in place of one says why it is missing."""

    settings: Settings
    images: int
    """Number of images measured."""
    available: int
    """Number of images in the split."""
    layers: LayerMeasurements
    untrained: LayerMeasurements
    """The same for the same architecture with random weights."""
    completion: Ratios | str
    attention: AttentionMaps
    attention_authors: AttentionMaps
    attended: list[np.ndarray]
    """Images of the attention maps."""
    components: Components | str
    coloured: list[np.ndarray]
    """Images of the components."""
    class_name: str | None
    """Their class; None if the images have no labels."""
    panels: list[Panels]
    """Completions at each ratio of ``completion``; empty without a decoder."""


def inspect(model: ImageModel, settings: Settings, console: Console) -> Inspection:
    """Measure a model and its untrained counterpart on the same images and masks."""
    layer = _layer(model, settings.layer)
    found = find_images(settings.data, settings.data_root)
    if settings.split is None and len(found.own) > 1:
        settings = replace(settings, split="test")
    source = found.split(settings.split) if settings.split else found.whole()
    order = torch.randperm(len(source), generator=sample_generator(settings.seed)).numpy()
    chosen = order[: settings.images]
    decoder = model if isinstance(model, MaskedAutoencoder) else None

    meter, reference = LayerMeter(model), LayerMeter(untrained(model, settings.seed))
    ratio_watch = RatioWatch(decoder, settings.seed) if decoder else None
    steps = -(-len(chosen) // BATCH)
    with progress("measuring", steps, console) as advance, torch.no_grad():
        for batch in evaluation_batches(_samples(model, Subset(source, chosen), settings), BATCH):
            images, masks = batch.images.to(model.device), batch.masks.to(model.device)
            meter.add(images, masks)
            reference.add(images, masks)
            if ratio_watch:
                ratio_watch.add(images)
            advance(f"{len(images)} images")

    first = _images(model, source, chosen[: max(ATTENDED, COMPLETED)], settings)
    attended = first[:ATTENDED]
    class_name, members = one_class(source, chosen, order)
    coloured = _images(model, source, members, settings)
    return Inspection(
        settings,
        len(chosen),
        len(source),
        meter.result(),
        reference.result(),
        ratio_watch.result() if ratio_watch else NO_DECODER,
        attention_maps(model, attended, layer),
        attention_maps(model, attended, layer, "authors"),
        pictures(model, attended),
        _components(model, coloured, layer, settings.threshold),
        pictures(model, coloured),
        class_name,
        completions_at(decoder, first[:COMPLETED], seed=settings.seed) if decoder else [],
    )


def one_class(
    source: ImageSource, chosen: Sequence[int] | Int[np.ndarray, " n"], order: Int[np.ndarray, " images"]
) -> tuple[str | None, Int[np.ndarray, " m"]]:
    """The most frequent class of the chosen images, and its first few images in the order of all images.

    Without labels, the first few chosen images.
    """
    labels = np.array([source.label(int(index)) for index in chosen])
    if source.class_names is None or None in labels:
        return None, np.asarray(chosen)[:OF_A_CLASS]
    label = np.bincount(labels.astype(int)).argmax()
    members = (index for index in order if source.label(int(index)) == label)
    return source.class_names[label], np.array([index for index, _ in zip(members, range(OF_A_CLASS), strict=False)])


def _components(model: ImageModel, images: Tensor, layer: int, threshold: float) -> Components | str:
    try:
        return components(model, images, layer, threshold)
    except UserError as error:
        return str(error)


def _layer(model: ImageModel, layer: int | None) -> int:
    depth = model.config.depth
    if layer is None:
        return penultimate(model)
    if not 1 <= layer <= depth:
        raise UserError(f"--layer is {layer}; this encoder has layers 1 to {depth}.")
    return layer


def _samples(model: ImageModel, source: ImageSource, settings: Settings) -> MaskedSamples:
    return MaskedSamples(source, Evaluation.of(model.config), model.num_patches, settings.mask_ratio, settings.seed)


def _images(model: ImageModel, source: ImageSource, indices: np.ndarray, settings: Settings) -> Tensor:
    batches = evaluation_batches(_samples(model, Subset(source, indices), settings), len(indices))
    return next(iter(batches)).images.to(model.device)
