"""Models of a named architecture, and models from checkpoints."""

import logging
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from crate_mae.errors import UserError, brief
from crate_mae.models.architectures import model_config
from crate_mae.models.autoencoder import MaskedAutoencoder
from crate_mae.models.checkpoint import Checkpoint, read_checkpoint
from crate_mae.models.classifier import Classifier
from crate_mae.models.config import ModelConfig, Preset, pair
from crate_mae.models.image_model import ImageEncoder, ImageModel
from crate_mae.models.locate import BEST
from crate_mae.settings import Size
from crate_mae.tokens import interpolate_table

log = logging.getLogger("crate_mae")


def create_model(
    name: str, preset: Preset | None = None, *, generator: torch.Generator | None = None, **overrides: Any
) -> MaskedAutoencoder:
    """A new masked autoencoder with random weights.

    ``name`` is one of ``ZOO``; ``preset`` is ``paper`` or ``official`` (None: the name's own);
    ``overrides`` are fields of ``ModelConfig``. The weights come from ``generator``, or from torch's own.
    """
    return MaskedAutoencoder(model_config(name, preset, **overrides), generator)


def untrained(model: ImageModel, seed: int) -> ImageModel:
    """A model of the same architecture with random weights, as a reference: what differs from it was learned.

    An autoencoder for an autoencoder, else the encoder alone; on the same device.
    """
    make = MaskedAutoencoder if isinstance(model, MaskedAutoencoder) else ImageEncoder
    return make(model.config, torch.Generator().manual_seed(seed)).to(model.device).eval()


def parameter_counts(name: str) -> tuple[ModelConfig, int, int | None]:
    """A named model's configuration, its trainable parameters, and the count in the authors' layout if they have one.

    Their layout adds the two fixed position tables of every model, and for the white-box family parameters that the
    forward pass never uses; there the count is that of the ``official`` preset.
    """
    with torch.device("meta"):
        model = create_model(name)
        own = model.num_parameters
        if model.config.family == "crate":
            fits = model.config.encoder_sees == "all" and model.config.encoder_skip == "none"
            theirs = create_model(name, "official").to_official().values() if fits else ()
            return model.config, own, sum(tensor.numel() for tensor in theirs) or None
    tables = (model.num_patches + 1) * (model.config.dim + model.config.decoder_dim)
    return model.config, own, own + tables


def load(path: str | Path, image_size: int | Size | None = None, **hub: Any) -> ImageModel:
    """A model in eval mode and float32: one that comes with the package, or from a checkpoint folder, a run folder (its
    best checkpoint) or the Hub.

    ``crate-mae models`` lists the names of those that come with the package; Path("NAME") or "./NAME" is the folder. A
    model on the Hub is named owner/name; ``hub`` are arguments of its ``snapshot_download``, such as ``revision``.
    With ``image_size`` the positions are interpolated to that size. Loading is strict and runs no code from a file.
    """
    checkpoint = read_checkpoint(path, **hub)
    if checkpoint.path == Path(path).expanduser() / BEST and checkpoint.step is not None:
        level = logging.INFO if checkpoint.step else logging.WARNING
        untrained = "" if checkpoint.step else " Its weights are the initial ones: it was not evaluated since."
        log.log(level, "%s: step %s of %s.%s", path, f"{checkpoint.step:,}", f"{checkpoint.steps:,}", untrained)
    try:
        return build(checkpoint, image_size).eval()
    except UserError as error:
        raise UserError(f"the checkpoint {checkpoint.path} can't be used: {error}") from None


def load_autoencoder(path: str | Path, image_size: int | Size | None = None) -> MaskedAutoencoder:
    """``load``, for a masked autoencoder only."""
    model = load(path, image_size)
    if not isinstance(model, MaskedAutoencoder):
        raise UserError(
            f"{path} holds a {model.kind}, which has no decoder and can't complete images; choose an autoencoder."
        )
    return model


def load_classifier(path: str | Path, image_size: int | Size | None = None) -> Classifier:
    """``load``, for a classifier only."""
    model = load(path, image_size)
    if not isinstance(model, Classifier):
        raise UserError(
            f"{path} holds an {model.kind}, which has no classes; crate-mae finetune trains a classifier from it."
        )
    return model


def build(checkpoint: Checkpoint, image_size: int | Size | None = None) -> ImageModel:
    """The model that a checkpoint describes, with its weights in float32."""
    config, tensors = checkpoint.config, checkpoint.tensors
    _check_scale(checkpoint)
    if image_size is not None:
        check_tensors(_skeleton(checkpoint, config), tensors)
        config, tensors = resize(config, tensors, image_size)
    model = _skeleton(checkpoint, config)
    adopt(model, tensors)
    return model


def _check_scale(checkpoint: Checkpoint) -> None:
    """Compare the sizes that a file claims with its tensors, before anything of these sizes is allocated."""
    config, tensors, layers = checkpoint.config, checkpoint.tensors, checkpoint.config.depth
    rows = config.num_patches + (config.positions == "fixed")
    shapes = {
        "embedding.projection.weight": (config.dim, config.patch_pixels),
        "embedding.positions.table": (rows, config.dim),
    }
    if checkpoint.kind == MaskedAutoencoder.kind:
        shapes["pixels.weight"] = (config.patch_pixels, config.decoder_dim)
        layers += config.decoder_depth
    for name, shape in shapes.items():
        if name not in tensors or tensors[name].shape != shape:
            raise UserError(
                f"it has no {name} of the size {shape} that its configuration states: weights and configuration differ."
            )
    if layers > len(tensors):
        raise UserError(f"its configuration has {layers} layers and its file {len(tensors)} tensors.")


def adopt(model: torch.nn.Module, tensors: dict[str, Tensor]) -> None:
    """Give a model on the meta device its weights, in float32, after a strict comparison."""
    check_tensors(model, tensors)
    model.load_state_dict({name: tensor.detach().float().clone() for name, tensor in tensors.items()}, assign=True)


def _skeleton(checkpoint: Checkpoint, config: ModelConfig) -> ImageModel:
    """The model without its weights, on the meta device."""
    with torch.device("meta"):
        match checkpoint.kind, checkpoint.extras.get("class_names"):
            case MaskedAutoencoder.kind, None:
                return MaskedAutoencoder(config)
            case ImageEncoder.kind, None:
                return ImageEncoder(config)
            case Classifier.kind, [*names] if all(isinstance(name, str) for name in names):
                # Before format version 2 a classifier always read the class token.
                return Classifier(config, names, pool=checkpoint.extras.get("pool", "cls"))
    raise UserError(f"it holds a {brief(checkpoint.kind)}, which this crate-mae does not know.")


FLOATS = (torch.float16, torch.bfloat16, torch.float32, torch.float64)


def check_tensors(model: torch.nn.Module, tensors: dict[str, Tensor]) -> None:
    """Refuse tensors that differ from a model's own, with a sentence on the first difference."""
    expected = model.state_dict()
    for adjective, names in [("lacks", expected.keys() - tensors), ("has unknown", tensors.keys() - expected)]:
        if names:
            raise UserError(
                f"it {adjective} {len(names)} tensors, {min(names)} among them: it does not match this model."
            )
    for name, tensor in tensors.items():
        if tensor.shape != expected[name].shape or tensor.dtype not in FLOATS:
            raise UserError(
                f"{name} is {tensor.dtype} of {tuple(tensor.shape)} and must be floating point of "
                f"{tuple(expected[name].shape)}: it does not match this model."
            )


def resize(
    config: ModelConfig, tensors: dict[str, Tensor], image_size: int | Size
) -> tuple[ModelConfig, dict[str, Tensor]]:
    """The configuration and weights for another image size: position tables interpolated, the rest unchanged."""
    resized = replace(config, image_size=pair(image_size))
    class_rows = 0 if config.positions == "learned" else 1
    tables = {
        name: torch.cat([table[:class_rows], interpolate_table(table[class_rows:], config.grid, resized.grid)])
        for name, table in tensors.items()
        if name.endswith("positions.table") and len(table) == config.num_patches + class_rows
    }
    return resized, tensors | tables
