"""Architectures by name, without torch: the command line checks a run's settings before it is imported."""

from typing import Any

from crate_mae.errors import UserError, did_you_mean
from crate_mae.models.config import PRESETS, ModelConfig, Preset

_CRATE_SIZES: dict[str, dict[str, Any]] = {
    "tiny": {"dim": 384, "depth": 12, "heads": 6},
    "small": {"dim": 576, "depth": 12, "heads": 12},
    "base": {"dim": 768, "depth": 12, "heads": 12},
    "large": {"dim": 1024, "depth": 24, "heads": 16},
}
_RESIDUAL = {"family": "crate", "preset": "official", "encoder_sees": "visible", "encoder_skip": "added"}
_CRATE_FORMS: dict[str, dict[str, Any]] = {
    "": {"family": "crate"},
    "_visible": {"family": "crate", "encoder_sees": "visible"},
    "_residual": _RESIDUAL,
    "_relaxed": _RESIDUAL | {"encoder_skip": "relaxed"},
    "_alpha": _RESIDUAL | {"sparsifier": "alpha", "lambda_": 0.1},
}
"""The paper's form; with an encoder that sees visible patches only; with a skip around ISTA; CRATE-alpha."""
_HE_DECODER = {"decoder_dim": 512, "decoder_depth": 8, "decoder_heads": 16}
_VIT: dict[str, Any] = {
    "family": "vit",
    "encoder_sees": "visible",
    "embed_bias": True,
    "pixel_bias": True,
    "positions": "fixed",
    "final_norms": True,
    "norm_eps": 1e-6,
}
_VIT_BASE: dict[str, Any] = _VIT | {"dim": 768, "depth": 12, "heads": 12}

ZOO: dict[str, dict[str, Any]] = {
    **{
        f"crate_mae_{size}{form}": fields | shape
        for form, fields in _CRATE_FORMS.items()
        for size, shape in _CRATE_SIZES.items()
    },
    "vit_mae_small": _VIT | {"dim": 384, "depth": 12, "heads": 6} | _HE_DECODER,
    # The paper's Table 1: the encoder sees all tokens, and a linear map of equal width precedes the decoder.
    "vit_mae_base": _VIT_BASE
    | {"encoder_sees": "all", "masked_patch": "token", "decoder_map": True, "qkv_bias": False}
    | {"decoder_dim": 768, "decoder_depth": 8, "decoder_heads": 16},
    "vit_mae_base_he": _VIT_BASE | _HE_DECODER,
}
"""Settings by name; for the white-box family a preset adds the rest."""


def model_config(name: str, preset: Preset | None = None, **overrides: Any) -> ModelConfig:
    """The configuration of a named model, with any field replaced."""
    if name not in ZOO:
        raise UserError(f"there is no model {name}; {did_you_mean(name, ZOO)}")
    ModelConfig.check_names(overrides)
    settings = dict(ZOO[name])
    if settings["family"] == "crate":
        preset = preset or settings.get("preset", "paper")
        if preset not in PRESETS:
            raise UserError(f"there is no preset {preset}; {did_you_mean(str(preset), PRESETS)}")
        settings = PRESETS[preset] | settings | {"preset": preset}
    elif preset is not None:
        raise UserError(f"only CRATE models have presets; leave preset out for {name}.")
    return ModelConfig(**(settings | overrides))
