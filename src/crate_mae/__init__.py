"""Masked completion of images with white-box transformers.

The names below are all that most users need; each is imported when it is first used, so that ``import crate_mae`` and
``crate-mae --help`` are quick.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    __version__: str
    from crate_mae.errors import UserError as UserError
    from crate_mae.features.scikit_learn import CrateFeatures as CrateFeatures
    from crate_mae.models.autoencoder import Completion as Completion
    from crate_mae.models.autoencoder import MaskedAutoencoder as MaskedAutoencoder
    from crate_mae.models.classifier import Classifier as Classifier
    from crate_mae.models.config import ModelConfig as ModelConfig
    from crate_mae.models.convert import from_official as from_official
    from crate_mae.models.convert import from_vit_mae as from_vit_mae
    from crate_mae.models.image_model import ImageEncoder as ImageEncoder
    from crate_mae.models.image_model import ImageModel as ImageModel
    from crate_mae.models.zoo import create_model as create_model
    from crate_mae.models.zoo import load as load
    from crate_mae.tokens import random_mask as random_mask

_HOMES = {
    "Classifier": "models.classifier",
    "Completion": "models.autoencoder",
    "CrateFeatures": "features.scikit_learn",
    "ImageEncoder": "models.image_model",
    "ImageModel": "models.image_model",
    "MaskedAutoencoder": "models.autoencoder",
    "ModelConfig": "models.config",
    "UserError": "errors",
    "create_model": "models.zoo",
    "from_official": "models.convert",
    "from_vit_mae": "models.convert",
    "load": "models.zoo",
    "random_mask": "tokens",
}

__all__ = ["__version__", *(name for name in _HOMES if name != "CrateFeatures")]
"""The names that ``from crate_mae import *`` imports. CrateFeatures is imported by name only: it needs scikit-learn,
which takes as long to import as torch."""


def __getattr__(name: str) -> Any:
    if name == "__version__":
        from importlib.metadata import version

        return version("crate-mae")
    if name not in _HOMES:
        raise AttributeError(f"module 'crate_mae' has no attribute {name!r}")
    return getattr(import_module(f"crate_mae.{_HOMES[name]}"), name)


def __dir__() -> list[str]:
    return sorted({*__all__, *_HOMES})
