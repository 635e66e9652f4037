"""Features of a whole set of images by a frozen model, computed once and cached on disk."""

import hashlib
import json
from collections.abc import Callable, Hashable, Iterable, Mapping
from dataclasses import dataclass
from functools import partial
from itertools import chain
from pathlib import Path
from typing import NamedTuple, TypeVar

import numpy as np
import torch
from jaxtyping import Float, Int
from rich.console import Console
from torch import Tensor

from crate_mae.allocator import freed_memory_kept
from crate_mae.atomic_write import atomic_write
from crate_mae.data.loader import LabelledSamples, evaluation_batches
from crate_mae.data.source import ImageSource, fingerprint
from crate_mae.data.transforms import Evaluation, Transform
from crate_mae.models.config import Pool
from crate_mae.models.image_model import ImageModel
from crate_mae.progress import progress


class Which(NamedTuple):
    """Which features of an image."""

    layer: int
    """0 is the embedding, l the output of block l, -1 the encoder's output, after the final norm if there is one."""
    pool: Pool = "mean"


@dataclass(frozen=True)
class Features:
    """Those of every image of a set, in its order."""

    values: Float[np.ndarray, "n d"]
    labels: Int[np.ndarray, " n"]
    """-1 if an image has none. An unreadable image has the features and the label of the one that replaces it."""


Key = TypeVar("Key", bound=Hashable)
Describe = Callable[[Tensor], Mapping[Key, Tensor]]
"""From normalised images (B, C, H, W) to any number of features (B, d), each with its key."""


@dataclass(frozen=True)
class Reader:
    """How images are loaded."""

    batch: int = 256
    workers: int = 0
    console: Console | None = None


def model_features(
    model: ImageModel,
    source: ImageSource,
    wanted: Iterable[Which],
    *,
    cache: Path | None = None,
    reader: Reader = Reader(),  # noqa: B008 (frozen)
    label: str = "features",
) -> dict[Which, Features]:
    """Features of every image, all kinds in one pass over the images.

    Nothing is masked. With a ``cache`` folder, features that are there are not computed again: a file's name is a hash
    of the model's weights and configuration, of ``Which``, and of the set's ``fingerprint``. A damaged file is
    computed again.
    """
    keys = list(dict.fromkeys(Which(canonical(model, layer), pool) for layer, pool in wanted))
    files = {} if cache is None else _files(cache, model, source, keys)
    found = {which: features for which, file in files.items() if (features := read_features(file))}
    if missing := [which for which in keys if which not in found]:
        computed = extract(source, Evaluation.of(model.config), partial(describe, model, missing), reader, label)
        for which, features in computed.items():
            if files:
                write_features(files[which], features)
        found |= computed
    return {which: found[which] for which in keys}


def canonical(model: ImageModel, layer: int) -> int:
    """A layer's number from 0 to L, except -1, which is the output after the final norm."""
    index = model.layer_from_the_front(layer)
    return layer if layer == -1 else index


def extract(
    source: ImageSource, transform: Transform, describe: Describe[Key], reader: Reader, label: str
) -> dict[Key, Features]:
    """What ``describe`` returns for every image, batch by batch, without gradients."""
    values: dict[Key, list[np.ndarray]] = {}
    labels: list[np.ndarray] = []
    batches = evaluation_batches(LabelledSamples(source, transform), reader.batch, workers=reader.workers)
    first = next(batches)  # the workers start before the progress bar's thread does
    total = -(-len(source) // reader.batch)
    with freed_memory_kept(), progress(label, total, reader.console) as advance, torch.inference_mode():
        for batch in chain([first], batches):
            for key, features in describe(batch.images).items():
                values.setdefault(key, []).append(features.float().cpu().numpy())
            labels.append(batch.labels.numpy())
            advance(f"{sum(map(len, labels))} images")
    return {key: Features(np.concatenate(parts), np.concatenate(labels)) for key, parts in values.items()}


def describe(
    model: ImageModel, wanted: Iterable[Which], images: Float[Tensor, "b c H W"]
) -> dict[Which, Float[Tensor, "b d"]]:
    """``model.features`` for each of these, in one pass through the encoder."""
    was_training = model.training
    model.eval()
    try:
        layers = model.layer_tokens(images.to(model.device), {which.layer for which in wanted})
    finally:
        model.train(was_training)
    return {which: model.pooled(layers[which.layer], which.pool) for which in wanted}


def model_digest(model: ImageModel) -> "hashlib.blake2b":
    """A hash of a model's configuration and weights."""
    digest = hashlib.blake2b(digest_size=16)
    digest.update(json.dumps(model.config.to_dict(), sort_keys=True).encode())
    for name, tensor in sorted(model.state_dict().items()):
        digest.update(name.encode())
        digest.update(tensor.detach().float().cpu().contiguous().numpy())
    return digest


def _files(cache: Path, model: ImageModel, source: ImageSource, keys: Iterable[Which]) -> dict[Which, Path]:
    digest = model_digest(model)
    digest.update(fingerprint(source).encode())
    common = digest.hexdigest()
    return {which: cache / f"{common}-layer{which.layer}-{which.pool}.npz" for which in keys}


def read_features(file: Path) -> Features | None:
    """Features from a cache file; None if there is none, or it is damaged."""
    try:
        with file.open("rb") as opened, np.load(opened, allow_pickle=False) as stored:
            return Features(stored["values"], stored["labels"])
    except Exception:  # a damaged file can raise anything in its decoder; its checksums find the rest
        return None


def write_features(file: Path, features: Features) -> None:
    """Write a cache file atomically."""
    file.parent.mkdir(parents=True, exist_ok=True)
    with atomic_write(file) as temporary, temporary.open("wb") as opened:
        np.savez(opened, values=features.values, labels=features.labels)
