"""How other projects name and lay out their weights, and the conversion from ours."""

from collections.abc import Callable, Iterator
from typing import NamedTuple

from torch import Tensor

from crate_mae.errors import UserError
from crate_mae.models.config import ModelConfig

Weights = dict[str, Tensor]


class Pair(NamedTuple):
    """A tensor's name here and in the other project, and the layout changes for import and export."""

    ours: str
    theirs: str
    into: Callable[[Tensor, ModelConfig], Tensor] = lambda tensor, config: tensor
    out: Callable[[Tensor, ModelConfig], Tensor] = lambda tensor, config: tensor


UNUSED = {"decoder_embed.weight", "decoder_embed.bias", "pos_embed"}
"""Tensors that the authors' files may contain and their forward pass never uses."""


def _kernel_in(kernel: Tensor, config: ModelConfig) -> Tensor:
    """A convolution's kernel (d, c, p, q) as a linear map on patches whose pixels are in the order (p, q, c)."""
    return kernel.permute(0, 2, 3, 1).flatten(1)


def _kernel_out(weight: Tensor, config: ModelConfig) -> Tensor:
    return weight.unflatten(1, (*config.patch_size, config.channels)).permute(0, 3, 1, 2).contiguous()


def _token_in(token: Tensor, config: ModelConfig) -> Tensor:
    return token.flatten()


def _table_in(table: Tensor, config: ModelConfig) -> Tensor:
    return table.flatten(0, -2)


def _token_out(token: Tensor, config: ModelConfig) -> Tensor:
    return token[None, None]


def _table_out(table: Tensor, config: ModelConfig) -> Tensor:
    return table[None]


def _embedding_pairs(positions: str) -> Iterator[Pair]:
    yield Pair("embedding.projection.weight", "patch_embed.proj.weight", _kernel_in, _kernel_out)
    yield Pair("embedding.projection.bias", "patch_embed.proj.bias")
    yield Pair("embedding.class_token", "cls_token", _token_in, _token_out)
    yield Pair("embedding.positions.table", positions, _table_in, _table_out)


def _affine(ours: str, theirs: str) -> Iterator[Pair]:
    for part in ("weight", "bias"):
        yield Pair(f"{ours}.{part}", f"{theirs}.{part}")


def _ends() -> Iterator[Pair]:
    yield from _affine("encoder.norm", "norm")
    yield from _affine("decoder.norm", "decoder_norm")
    yield from _affine("pixels", "decoder_pred")


def official_pairs(config: ModelConfig, positions: str = "decoder_pos_embed") -> list[Pair]:
    """The authors' CRATE-MAE. Their encoder reads its positions from ``decoder_pos_embed``."""
    pairs = [*_embedding_pairs(positions), *_ends()]
    pairs.append(Pair("embedding.mask_token", "mask_token", _token_in, _token_out))
    for side, layers, depth, mssa in [
        ("encoder", "blocks", config.depth, 0),
        ("decoder", "decoder_blocks", config.decoder_depth, 1),
    ]:
        other, dictionary = (
            ("norm_ista", "ista.dictionary") if side == "encoder" else ("norm_rotation", "rotation.weight")
        )
        for layer in range(depth):
            ours, theirs = f"{side}.blocks.{layer}", f"{layers}.{layer}.layers.0"
            pairs += _affine(f"{ours}.norm_mssa", f"{theirs}.{mssa}.norm")
            pairs += _affine(f"{ours}.mssa.output", f"{theirs}.{mssa}.fn.to_out.0")
            pairs.append(Pair(f"{ours}.mssa.subspaces", f"{theirs}.{mssa}.fn.qkv.weight"))
            pairs += _affine(f"{ours}.{other}", f"{theirs}.{1 - mssa}.norm")
            pairs.append(Pair(f"{ours}.{dictionary}", f"{theirs}.{1 - mssa}.fn.weight"))
    return pairs


def mae_pairs(config: ModelConfig) -> list[Pair]:
    """He et al.'s MAE."""
    pairs = [*_embedding_pairs("pos_embed"), *_ends(), *_affine("handover.map", "decoder_embed")]
    pairs.append(Pair("handover.mask_token", "mask_token", _token_in, _token_out))
    pairs.append(Pair("handover.positions.table", "decoder_pos_embed", _table_in, _table_out))
    for side, layers, depth in [
        ("encoder", "blocks", config.depth),
        ("decoder", "decoder_blocks", config.decoder_depth),
    ]:
        for layer in range(depth):
            ours, theirs = f"{side}.blocks.{layer}", f"{layers}.{layer}"
            pairs += _affine(f"{ours}.norm_attention", f"{theirs}.norm1")
            pairs += _affine(f"{ours}.mixer.qkv", f"{theirs}.attn.qkv")
            pairs += _affine(f"{ours}.mixer.output", f"{theirs}.attn.proj")
            pairs += _affine(f"{ours}.norm_mlp", f"{theirs}.norm2")
            pairs += _affine(f"{ours}.mlp.0", f"{theirs}.mlp.fc1")
            pairs += _affine(f"{ours}.mlp.2", f"{theirs}.mlp.fc2")
    return pairs


OFFICIAL_FIELDS = {
    "family": "crate",
    "channels": 3,
    "encoder_sees": "all",
    "masked_patch": "token",
    "embed_bias": True,
    "pixel_bias": True,
    "positions": "fixed",
    "decoder_map": False,
    "final_norms": True,
    "norm_eps": 1e-5,
    "final_norm_eps": 1e-6,
    "sparsifier": "ista",
    "encoder_skip": "none",
    "decoder_skip": "raw",
    "mssa": "listing",
}
"""Settings that the authors' code fixes."""


def official_weights(config: ModelConfig, own: Weights) -> Weights:
    """A state dict that the authors' strict load accepts: every tensor that the forward pass uses, bit for bit.

    Their forward pass never uses two more: ``pos_embed`` is a copy of the table that it does use, as after their own
    initialisation, and ``decoder_embed`` is zero.
    """
    fixed = OFFICIAL_FIELDS | {
        "image_size": (config.image_size[0],) * 2,
        "patch_size": (config.patch_size[0],) * 2,
        "decoder_dim": config.dim,
        "decoder_heads": config.heads,
    }
    for name, value in fixed.items():
        if getattr(config, name) != value:
            raise UserError(f"the authors' code has no {name}={getattr(config, name)!r}; it needs {value!r} here.")
    weights = {pair.theirs: pair.out(own[pair.ours], config) for pair in official_pairs(config) if pair.ours in own}
    like = own["embedding.class_token"]
    weights["pos_embed"] = weights["decoder_pos_embed"]
    weights["decoder_embed.weight"] = like.new_zeros(config.dim, config.dim)
    weights["decoder_embed.bias"] = like.new_zeros(config.dim)
    return {name: tensor.detach().clone() for name, tensor in weights.items()}
