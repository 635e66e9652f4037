"""Everything that is to be known about a model, from one pass over some images."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from rich.console import Console
from torch import Tensor

from crate_mae.analysis.attention import AttentionMaps, attention_maps, penultimate
from crate_mae.analysis.completed_images import Panels, Ratios, RatioWatch, completions_at, pictures
from crate_mae.analysis.components import THRESHOLD, Components, components
from crate_mae.analysis.layerwise import LayerCurves, LayerWatch
from crate_mae.analysis.subspaces import Incoherence, incoherence
from crate_mae.analysis.undoing import Undoing, UndoingWatch, why_not_undoing
from crate_mae.data.loader import Samples, evaluation_batches
from crate_mae.data.named import Split
from crate_mae.data.open import open_dataset
from crate_mae.data.source import ImageSource, Part
from crate_mae.data.transforms import Evaluation, sample_generator
from crate_mae.errors import UserError
from crate_mae.models.autoencoder import MaskedAutoencoder
from crate_mae.models.image_model import ImageModel
from crate_mae.progress import progress

BATCH = 16
ATTENDED, OF_A_CLASS, COMPLETED = 3, 8, 6
NO_DECODER = "the checkpoint holds no decoder"


@dataclass(frozen=True)
class Settings:
    """What to look at, and how."""

    data: str
    """A name, a folder or shards."""
    data_root: Path | None = None
    """Where named sets are."""
    split: Split = "test"
    images: int = 256
    """So many, drawn at random; all where there are no more."""
    mask_ratio: float = 0.75
    """Share of the patches masked where the decoder is measured."""
    layer: int | None = None
    """Encoder layer of the attention maps and the components, from 1 to L; the last but one unless given."""
    threshold: float = THRESHOLD
    """Of the components' first step, see ``components``."""
    seed: int = 0
    """Of the choice of images and of the masks."""


@dataclass(frozen=True)
class Inspection:
    """What was found. A word in place of a result is the reason why there is none."""

    settings: Settings
    images: int
    """How many were measured."""
    available: int
    """How many the split has."""
    encoder: LayerCurves
    decoder: LayerCurves | str
    encoder_subspaces: Incoherence | str
    decoder_subspaces: Incoherence | str
    undoing: Undoing | str
    completion: Ratios | str
    attention: AttentionMaps
    attention_authors: AttentionMaps
    attended: list[np.ndarray]
    """The images of the attention maps."""
    components: Components | str
    coloured: list[np.ndarray]
    """The images of the components."""
    class_name: str | None
    """The class of these; None where the images have no labels."""
    panels: list[Panels]
    """Completions at each ratio of ``completion``; none without a decoder."""


def inspect(model: ImageModel, settings: Settings, console: Console) -> Inspection:
    """One pass over the images, and a second look at a few of them."""
    layer = _layer(model, settings.layer)
    if settings.images < 1:
        raise UserError(f"--images is {settings.images}; choose a whole number from 1 up.")
    if not settings.threshold >= 0:
        raise UserError(f"--threshold is {settings.threshold}; choose a number from 0 up.")
    source = open_dataset(settings.data, settings.split, settings.data_root)
    order = torch.randperm(len(source), generator=sample_generator(settings.seed)).numpy()
    chosen = order[: settings.images]
    decoder = model if isinstance(model, MaskedAutoencoder) else None

    encoder_watch = LayerWatch(model.encoder)
    decoder_watch = LayerWatch(decoder.decoder) if decoder else None
    not_undoing = why_not_undoing(decoder) if decoder else NO_DECODER
    undoing_watch = UndoingWatch(decoder) if decoder and not not_undoing else None
    ratio_watch = RatioWatch(decoder, settings.seed) if decoder else None
    steps = -(-len(chosen) // BATCH)
    with progress("looking inside", steps, console) as advance, torch.no_grad():
        for batch in evaluation_batches(_samples(model, Part(source, chosen), settings), BATCH):
            images, masks = batch.images.to(model.device), batch.masks.to(model.device)
            embedded = model.embed(images)
            encoder_watch.add(embedded)
            if decoder and decoder_watch and ratio_watch:
                decoder_watch.add(decoder.hand_over(decoder.encode(images, masks), masks))
                ratio_watch.add(images)
            if undoing_watch:
                undoing_watch.add(embedded)
            advance(f"{len(images)} images")

    first = _images(model, source, chosen[: max(ATTENDED, COMPLETED)], settings)
    attended = first[:ATTENDED]
    class_name, members = one_class(source, chosen, order)
    coloured = _images(model, source, members, settings)
    return Inspection(
        settings,
        len(chosen),
        len(source),
        encoder_watch.curves(),
        decoder_watch.curves() if decoder_watch else NO_DECODER,
        incoherence(model.encoder),
        incoherence(decoder.decoder) if decoder else NO_DECODER,
        undoing_watch.undoing() if undoing_watch else str(not_undoing),
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
    source: ImageSource, chosen: Sequence[int] | np.ndarray, order: np.ndarray
) -> tuple[str | None, np.ndarray]:
    """The class that most of the chosen images have, and a few images of it; any images where there are no labels."""
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
        raise UserError(f"--layer is {layer}; this encoder has the layers 1 to {depth}.")
    return layer


def _samples(model: ImageModel, source: ImageSource, settings: Settings) -> Samples:
    return Samples(source, Evaluation.of(model.config), model.num_patches, settings.mask_ratio, settings.seed)


def _images(model: ImageModel, source: ImageSource, indices: np.ndarray, settings: Settings) -> Tensor:
    batches = evaluation_batches(_samples(model, Part(source, indices), settings), len(indices))
    return next(iter(batches)).images.to(model.device)
