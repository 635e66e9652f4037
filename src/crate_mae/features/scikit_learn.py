"""A model's features as a step of a scikit-learn pipeline."""

from pathlib import Path
from typing import Any, Self, get_args

import numpy as np
import torch
from jaxtyping import Float
from PIL import Image
from rich.console import Console
from sklearn.base import BaseEstimator, ClassNamePrefixFeaturesOutMixin, TransformerMixin
from sklearn.utils.validation import check_array, check_is_fitted, validate_data

from crate_mae.device import Device, pick_device
from crate_mae.errors import UserError
from crate_mae.image_files import MODES
from crate_mae.models.config import ModelConfig, Pool
from crate_mae.models.image_model import ImageModel
from crate_mae.models.shipped import default_checkpoint
from crate_mae.progress import progress

ImageInput = Image.Image | str | Path


class CrateFeatures(ClassNamePrefixFeaturesOutMixin, TransformerMixin, BaseEstimator):
    """Images to features (n, d) by a frozen model: ``model.preprocess``, then ``model.features``.

    ``X`` is one of these; images of any size, gray or in colour, are converted for the model:

    - a list of Pillow images, paths, or both (also a column of a table with paths);
    - an array (n, H, W) of gray images, or (n, H, W, C) of 1, 3 or 4 channels;
    - an array (n, pixels) of images of the model's own size, flattened from (H, W) or (H, W, C).

    An array's values are uint8 from 0 to 255 or floats from 0 to 1, rounded to 8 bits as in an image file. Anything
    else is ambiguous and an error.

    ``checkpoint`` is a model that comes with the package (None for the default one), a checkpoint folder, a run folder
    or a name on the Hugging Face Hub; ``layer`` and ``pool`` are those of ``model.features``. ``fit`` loads the model
    and learns nothing. A pickle holds the weights.
    """

    def __init__(
        self,
        checkpoint: str | Path | None = None,
        *,
        layer: int = -1,
        pool: Pool = "mean",
        batch_size: int = 64,
        device: Device = "auto",
        verbose: bool = False,
    ):
        self.checkpoint = checkpoint
        self.layer = layer
        self.pool = pool
        self.batch_size = batch_size
        self.device = device
        self.verbose = verbose

    def fit(self, X: Any, y: Any = None) -> Self:
        """Load the model and check ``X``; nothing is computed from it."""
        if self.pool not in get_args(Pool):
            raise UserError(f"pool is {self.pool!r}; choose from {', '.join(map(repr, get_args(Pool)))}.")
        if not isinstance(self.batch_size, int | np.integer) or self.batch_size < 1:
            raise UserError(f"batch_size is {self.batch_size!r}; choose a whole number from 1 up.")
        if self.device not in get_args(Device):
            raise UserError(f"device is {self.device!r}; choose from {', '.join(map(repr, get_args(Device)))}.")
        model = ImageModel.from_pretrained(default_checkpoint() if self.checkpoint is None else self.checkpoint)
        if not isinstance(self.layer, int | np.integer):
            raise UserError(f"there is no layer {self.layer!r}; choose a whole number.")
        model.layer_from_the_front(int(self.layer))
        self._images(X, model.config, reset=True)
        self.model_ = model
        return self

    def transform(self, X: Any) -> Float[np.ndarray, "n d"]:
        """The features of every image, in order."""
        check_is_fitted(self)
        images = self._images(X, self.model_.config, reset=False)
        console = Console(quiet=not self.verbose)
        starts = range(0, len(images), self.batch_size)
        device = pick_device(self.device)
        try:
            model = self.model_.to(device)
            with torch.inference_mode(), progress("features", len(starts), console) as advance:
                parts = []
                for start in starts:
                    batch = torch.stack([model.preprocess(each) for each in images[start : start + self.batch_size]])
                    parts.append(model.features(batch.to(device), int(self.layer), self.pool).cpu().numpy())
                    advance(f"{min(start + self.batch_size, len(images))} images")
        finally:
            self.model_.to("cpu")  # between calls, so that a pickle loads on any machine
        return np.concatenate(parts)

    @property
    def _n_features_out(self) -> int:
        return self.model_.num_features

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.three_d_array = True
        tags.input_tags.string = True
        tags.transformer_tags.preserves_dtype = []  # always float32
        tags.requires_fit = True
        return tags

    def _images(self, X: Any, config: ModelConfig, reset: bool) -> list[ImageInput]:
        """One image or path for each image of ``X``, checked; ``reset`` stores the columns of a table of pixels."""
        if (listed := _listed(X)) is not None:
            return listed
        is_table = np.asarray(X).ndim == 2  # to scikit-learn, the columns of a table are features
        array = (
            validate_data(self, X, reset=reset, dtype=None) if is_table else check_array(X, allow_nd=True, dtype=None)
        )
        return [Image.fromarray(each) for each in _eight_bits(_in_places(array, config))]


def _listed(X: Any) -> list[ImageInput] | None:
    """``X`` as a list of images and paths; None if it holds numbers."""
    if isinstance(X, ImageInput):
        raise UserError("X is one image; give a list of images.")
    items = list(X) if isinstance(X, list | tuple) else list(np.asarray(X).ravel()) if _has_words(X) else []
    if not items or not any(isinstance(item, ImageInput) for item in items):
        return None
    for item in items:
        if not isinstance(item, ImageInput):
            raise UserError(f"X holds images or paths and also {type(item).__name__}; give only images and paths.")
    return items


def _has_words(X: Any) -> bool:
    """Whether ``X`` is an array, or a column of a table, of paths or images."""
    array = np.asarray(X)
    return array.dtype.kind in "OUT" and array.ndim > 0 and array.size == len(array)


def _in_places(array: np.ndarray, config: ModelConfig) -> np.ndarray:
    """An array as (n, H, W) or (n, H, W, C)."""
    height, width = config.image_size
    shape, last = array.shape, array.shape[-1]
    if array.ndim == 2:
        shapes = {height * width: (height, width), height * width * config.channels: (height, width, config.channels)}
        if last not in shapes:
            raise UserError(
                f"X has {last} values a row, and the model's images of {height} x {width} have "
                f"{' or '.join(map(str, shapes))}; reshape X to (n, H, W) or (n, H, W, C)."
            )
        array = array.reshape(-1, *shapes[last])
        return array[..., 0] if array.shape[3:] == (1,) else array
    if array.ndim == 3 and last in MODES:
        raise UserError(
            f"X of shape {shape} may be one image, or {len(array)} of {shape[1]} x {last} pixels; give X[None] for the "
            "first and X[..., None] for the second."
        )
    if array.ndim == 4 and last not in MODES:
        places = " with the channels last, X.transpose(0, 2, 3, 1)" if shape[1] in MODES else ""
        raise UserError(f"X of shape {shape} has {last} channels; give 1, 3 or 4{places}.")
    if array.ndim not in (3, 4):
        raise UserError(f"X has shape {shape}; give (n, H, W), (n, H, W, C), (n, pixels), or a list of images.")
    return array[..., 0] if array.shape[3:] == (1,) else array


def _eight_bits(array: np.ndarray) -> np.ndarray:
    """Values from 0 to 255 in uint8; an error if the scale of the values is ambiguous."""
    if array.dtype == np.uint8:
        return array
    if array.dtype.kind != "f":
        raise UserError(f"X has values of {array.dtype}; give uint8 from 0 to 255, or floats from 0 to 1.")
    low, high = array.min(), array.max()
    if low < 0 or high > 1:
        raise UserError(
            f"X has floats from {low:g} to {high:g}; give floats from 0 to 1 (divide by the largest that a pixel can "
            "be), or uint8 from 0 to 255."
        )
    return (array * 255).round().astype(np.uint8)
