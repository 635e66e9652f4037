"""Weights of other projects: the authors' CRATE-MAE, He et al.'s MAE, and transformers' ViTMAE."""

import argparse
import re
import warnings
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from crate_mae.errors import UserError
from crate_mae.json_files import read_json
from crate_mae.models.architectures import model_config
from crate_mae.models.autoencoder import MaskedAutoencoder
from crate_mae.models.checkpoint import read_tensors
from crate_mae.models.config import ModelConfig, pair
from crate_mae.models.image_model import ImageEncoder, ImageModel
from crate_mae.models.layouts import UNUSED, Pair, Weights, mae_pairs, official_pairs
from crate_mae.models.zoo import adopt, resize
from crate_mae.settings import Size
from crate_mae.tokens import sine_cosine_table, square_grid

Source = str | Path | dict[str, Tensor] | nn.Module
OFFICIAL_HEADS = {384: 6, 576: 12, 768: 12, 1024: 16}
"""Heads of the authors' sizes, which a state dict does not record."""


# --- reading --------------------------------------------------------------------------------------------------------


def read_weights(source: Source) -> Weights:
    """The state dict in a file, a training checkpoint, a dict or a model; never runs code from a file."""
    contents: Any = source.state_dict() if isinstance(source, nn.Module) else source
    contents = _read_file(Path(contents)) if isinstance(contents, str | Path) else contents
    while isinstance(contents, dict) and (inner := [k for k in WRAPPERS if isinstance(contents.get(k), dict)]):
        contents = contents[inner[0]]
    if not isinstance(contents, dict) or not contents or not all(map(_is_weight, contents.items())):
        raise UserError(
            f"{_name(source)} contains no state dict (a mapping from names to tensors, at the top level or as 'model')."
        )
    return {name.removeprefix("module."): tensor for name, tensor in contents.items()}


WRAPPERS = ("model", "state_dict")


def _is_weight(item: tuple[object, object]) -> bool:
    name, tensor = item
    return isinstance(name, str) and isinstance(tensor, Tensor) and tensor.layout == torch.strided


def _read_file(path: Path) -> Any:
    if path.is_dir():
        names = [name for name in ("model.safetensors", "pytorch_model.bin") if (path / name).is_file()]
        if not names:
            raise UserError(f"the folder {path} has neither model.safetensors nor pytorch_model.bin.")
        path = path / names[0]
    if not path.is_file():
        raise UserError(f"there is no file {path}.")
    if path.suffix == ".safetensors":
        return read_tensors(path)
    try:
        # He et al.'s training checkpoints contain their arguments; nothing else but tensors is accepted.
        with torch.serialization.safe_globals([argparse.Namespace]), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return torch.load(path, map_location="cpu", weights_only=True)
    except Exception:  # a damaged or hostile pickle can raise anything
        raise UserError(
            f"{path} is truncated, not a PyTorch checkpoint, or contains Python objects other than tensors and "
            f"arguments; no code in it was run."
        ) from None


def _name(source: Source) -> str:
    return str(source) if isinstance(source, str | Path) else "the source"


def _layers(weights: Weights, pattern: str) -> int:
    layers = {int(found[1]) for name in weights if (found := re.match(pattern, name))}
    # A forged number in a name must not create more layers than there are tensors.
    return min(max(layers, default=-1) + 1, len(weights))


def _shape(weights: Weights, name: str, dims: int, source: Source) -> torch.Size:
    tensor = weights.get(name)
    if tensor is None or tensor.ndim != dims:
        raise UserError(f"{_name(source)} does not match this model: it has no {name} of {dims} dimensions.")
    return tensor.shape


def _sizes(table: Tensor, patch: Size, image_size: int | Size | None) -> tuple[Size, Size | None]:
    """The image size of a position table (1, 1 + N, d), and the requested size if it differs."""
    asked = None if image_size is None else pair(image_size)
    num_patches = table.shape[1] - 1
    square = square_grid(num_patches)
    if asked is not None:
        grid = asked[0] // patch[0], asked[1] // patch[1]
        if grid[0] * grid[1] == num_patches and (square is None or grid == square or _is_of_grid(table[0, 1:], grid)):
            return asked, None
    if square is None:
        raise UserError(
            f"the positions are for {num_patches} patches, not a square number; give image_size=(height, width)."
        )
    return (square[0] * patch[0], square[1] * patch[1]), asked


def _is_of_grid(table: Tensor, grid: Size) -> bool:
    """Whether a table is the sine-cosine table of an oblong grid whose number of patches happens to be a square."""
    return table.shape[1] % 4 == 0 and torch.allclose(table.float(), sine_cosine_table(grid, table.shape[1]), atol=1e-4)


def _import(
    weights: Weights, pairs: list[Pair], config: ModelConfig, asked: Size | None, whole: bool, source: Source
) -> ImageModel:
    """Rename, check strictly and load."""
    tensors = {pair.ours: pair.into(weights[pair.theirs], config) for pair in pairs if pair.theirs in weights}
    unknown = weights.keys() - {pair.theirs for pair in pairs} - UNUSED
    if unknown:
        raise UserError(
            f"{_name(source)} does not match this model: it has {len(unknown)} unknown tensors such as {min(unknown)}."
        )
    try:
        if asked is not None:
            config, tensors = resize(config, tensors, asked)
        with torch.device("meta"):
            model = MaskedAutoencoder(config) if whole else ImageEncoder(config)
        expected = model.state_dict()
        adopt(model, tensors if whole else {name: value for name, value in tensors.items() if name in expected})
    except UserError as error:
        raise UserError(f"{_name(source)} can't be imported: {error}") from None
    if not whole:
        warnings.warn(
            f"{_name(source)} contains an encoder without a decoder: the model encodes images but can't complete them.",
            stacklevel=3,
        )
    return model


# --- the authors' CRATE-MAE -----------------------------------------------------------------------------------------


def from_official(
    source: Source,
    image_size: int | Size | None = None,
    heads: int | None = None,
    lambda_: float = 0.5,
    eta: float = 0.1,
    norm_pix_loss: bool = False,
) -> ImageModel:
    """The authors' CRATE-MAE, from a file, a training checkpoint or a state dict.

    Their files record neither lambda nor eta nor the number of heads: the defaults are those of their code. A square
    image is assumed; an ``image_size`` that differs from the file's interpolates the positions. A file without a
    decoder gives an encoder and a warning.
    """
    weights = read_weights(source)
    dim, channels, *patch = _shape(weights, "patch_embed.proj.weight", 4, source)
    whole = any(name.startswith("decoder_blocks.") for name in weights)
    positions = "decoder_pos_embed" if "decoder_pos_embed" in weights else "pos_embed"
    _shape(weights, positions, 3, source)
    size, asked = _sizes(weights[positions], (patch[0], patch[1]), image_size)
    if heads is None:
        heads = OFFICIAL_HEADS.get(dim) if "blocks.0.layers.0.0.fn.to_out.0.weight" in weights else 1
    if heads is None:
        raise UserError(f"the file does not record how many heads a model with dim {dim} has; give heads=.")
    config = model_config(
        "crate_mae_base",
        "official",
        dim=dim,
        depth=_layers(weights, r"blocks\.(\d+)\."),
        decoder_depth=_layers(weights, r"decoder_blocks\.(\d+)\."),
        heads=heads,
        channels=channels,
        image_size=size,
        patch_size=(patch[0], patch[1]),
        lambda_=lambda_,
        eta=eta,
        norm_pix_loss=norm_pix_loss,
    )
    return _import(weights, official_pairs(config, positions), config, asked, whole, source)


# --- He et al.'s MAE and transformers' ViTMAE -----------------------------------------------------------------------


def from_vit_mae(
    source: Source,
    image_size: int | Size | None = None,
    heads: int | None = None,
    decoder_heads: int | None = None,
    norm_eps: float | None = None,
    norm_pix_loss: bool | None = None,
) -> ImageModel:
    """A ViT-MAE of He et al. or of transformers: a file, a training checkpoint, a state dict, a transformers model or
    the folder where one was saved.

    Settings that the weights don't determine come from the transformers configuration if there is one, otherwise from
    He et al.'s code: heads of 64 dimensions in the encoder, 16 heads in the decoder, epsilon of the norms 1e-6 (1e-12
    in transformers' layout). A file without a decoder gives an encoder and a warning.
    """
    weights = read_weights(source)
    said = _transformers_config(source)
    if any(".layernorm_before." in name for name in weights):
        weights = _from_transformers(weights)
        said.setdefault("layer_norm_eps", 1e-12)
    dim, channels, *patch = _shape(weights, "patch_embed.proj.weight", 4, source)
    _shape(weights, "pos_embed", 3, source)
    size, asked = _sizes(weights["pos_embed"], (patch[0], patch[1]), image_size)
    if said.get("hidden_act", "gelu") != "gelu":
        raise UserError(f"{_name(source)} has the activation {said['hidden_act']}; only gelu is supported.")
    eps = said.get("layer_norm_eps", 1e-6) if norm_eps is None else norm_eps
    whole = any(name.startswith("decoder_blocks.") for name in weights)
    decoder_dim = _shape(weights, "decoder_embed.weight", 2, source)[0] if whole else 0
    config = model_config(
        "vit_mae_base_he",
        dim=dim,
        depth=_layers(weights, r"blocks\.(\d+)\."),
        heads=said.get("num_attention_heads", max(dim // 64, 1)) if heads is None else heads,
        decoder_dim=decoder_dim,
        decoder_depth=_layers(weights, r"decoder_blocks\.(\d+)\."),
        decoder_heads=_decoder_heads(said, whole) if decoder_heads is None else decoder_heads,
        decoder_map=whole,
        channels=channels,
        image_size=size,
        patch_size=(patch[0], patch[1]),
        mlp_ratio=_shape(weights, "blocks.0.mlp.fc1.weight", 2, source)[0] / dim,
        qkv_bias="blocks.0.attn.qkv.bias" in weights,
        norm_eps=eps,
        final_norm_eps=eps,
        norm_pix_loss=said.get("norm_pix_loss", False) if norm_pix_loss is None else norm_pix_loss,
    )
    return _import(weights, mae_pairs(config), config, asked, whole, source)


def _decoder_heads(said: dict[str, Any], whole: bool) -> int:
    return said.get("decoder_num_attention_heads", 16) if whole else 0


def _transformers_config(source: Source) -> dict[str, Any]:
    if isinstance(source, nn.Module):
        return getattr(getattr(source, "module", source), "config", argparse.Namespace(to_dict=dict)).to_dict()
    if isinstance(source, dict):
        return {}
    path = Path(source) if Path(source).is_dir() else Path(source).parent
    try:
        said = read_json(path / "config.json")
    except (OSError, ValueError):
        return {}
    return said if isinstance(said, dict) and said.get("model_type") == "vit_mae" else {}


_TRANSFORMERS_NAMES = [
    (r"^(vit|decoder)\.", ""),
    (r"^embeddings\.cls_token", "cls_token"),
    (r"^embeddings\.position_embeddings", "pos_embed"),
    (r"^embeddings\.patch_embeddings\.projection\.", "patch_embed.proj."),
    (r"^(encoder\.layer|layers)\.", "blocks."),
    (r"^decoder_(layers|encoder\.layer)\.", "decoder_blocks."),
    (r"^layernorm\.", "norm."),
    (r"\.layernorm_before\.", ".norm1."),
    (r"\.layernorm_after\.", ".norm2."),
    (r"\.attention\.(attention\.)?(query|q_proj)\.", ".attn.q."),
    (r"\.attention\.(attention\.)?(key|k_proj)\.", ".attn.k."),
    (r"\.attention\.(attention\.)?(value|v_proj)\.", ".attn.v."),
    (r"\.attention\.(output\.dense|o_proj)\.", ".attn.proj."),
    (r"\.(intermediate\.dense|mlp\.fc1)\.", ".mlp.fc1."),
    (r"\.(output\.dense|mlp\.fc2)\.", ".mlp.fc2."),
]
"""From transformers' names (major versions 4 and 5) to He et al.'s, applied in this order."""


def _from_transformers(weights: Weights) -> Weights:
    """transformers' weights in He et al.'s layout, with queries, keys and values in one matrix."""
    renamed = {}
    for name, tensor in weights.items():
        for pattern, replacement in _TRANSFORMERS_NAMES:
            name = re.sub(pattern, replacement, name)
        renamed[name] = tensor
    for query in [name for name in renamed if ".attn.q." in name]:
        parts = [query.replace(".attn.q.", f".attn.{part}.") for part in "qkv"]
        if all(part in renamed for part in parts):
            renamed[query.replace(".attn.q.", ".attn.qkv.")] = torch.cat([renamed.pop(part) for part in parts])
    return renamed
