"""The authors' CRATE-MAE as a plain function of a state dict in their layout.

Written from the paper's listings and the table of differences in docs/paper-and-code.md, with no code of the package,
in float64: the oracle for imported weights.
"""

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor


def layer_norm(x: Tensor, weights: dict[str, Tensor], name: str, eps: float) -> Tensor:
    centred = x - x.mean(-1, keepdim=True)
    normed = centred / (centred.square().mean(-1, keepdim=True) + eps).sqrt()
    return normed * weights[f"{name}.weight"] + weights[f"{name}.bias"]


def attention(x: Tensor, weights: dict[str, Tensor], name: str, heads: int) -> tuple[Tensor, Tensor]:
    batch, tokens, dim = x.shape
    w = (x @ weights[f"{name}.qkv.weight"].T).reshape(batch, tokens, heads, -1).permute(0, 2, 1, 3)
    maps = torch.softmax(w @ w.transpose(-1, -2) * (dim // heads) ** -0.5, dim=-1)
    out = (maps @ w).permute(0, 2, 1, 3).reshape(batch, tokens, dim)
    return out @ weights[f"{name}.to_out.0.weight"].T + weights[f"{name}.to_out.0.bias"], maps


def run(weights: dict[str, Tensor], images: Tensor, mask: Tensor, config: dict[str, Any]) -> dict[str, Tensor]:
    """Loss, prediction, latent, every layer of the masked pass, and the last layer's maps of the unmasked one."""
    patch = config["patch_size"]
    embedded = F.conv2d(images, weights["patch_embed.proj.weight"], weights["patch_embed.proj.bias"], stride=patch)
    embedded = embedded.flatten(2).transpose(1, 2)
    outputs = _encode(weights, torch.where(mask[..., None], weights["mask_token"], embedded), config, "layer")
    x = outputs["latent"]
    for i in range(config["depth"]):
        name = f"decoder_blocks.{i}.layers.0"
        x = layer_norm(x, weights, f"{name}.0.norm", 1e-5) @ weights[f"{name}.0.fn.weight"].T
        x = x - attention(layer_norm(x, weights, f"{name}.1.norm", 1e-5), weights, f"{name}.1.fn", config["heads"])[0]
    x = layer_norm(x, weights, "decoder_norm", 1e-6)
    outputs["prediction"] = (x @ weights["decoder_pred.weight"].T + weights["decoder_pred.bias"])[:, 1:]
    rows = images.unfold(2, patch, patch).unfold(3, patch, patch)  # b c h w p q
    target = rows.permute(0, 2, 3, 4, 5, 1).reshape(len(images), mask.shape[1], -1)
    if config["norm_pix_loss"]:
        target = (target - target.mean(-1, keepdim=True)) / (target.var(-1, keepdim=True) + 1e-6).sqrt()
    outputs["loss"] = (outputs["prediction"] - target).square().mean(-1)[mask].mean()
    unmasked = _encode(weights, embedded, config, "unmasked_layer")
    outputs["unmasked_features"] = unmasked.pop("latent")
    return outputs | unmasked


def _encode(weights: dict[str, Tensor], x: Tensor, config: dict[str, Any], label: str) -> dict[str, Tensor]:
    x = torch.cat([weights["cls_token"].expand(len(x), 1, -1), x], 1) + weights["decoder_pos_embed"]
    outputs = {}
    for i in range(config["depth"]):
        name = f"blocks.{i}.layers.0"
        normed = layer_norm(x, weights, f"{name}.0.norm", 1e-5)
        mixed, maps = attention(normed, weights, f"{name}.0.fn", config["heads"])
        z = layer_norm(x + mixed, weights, f"{name}.1.norm", 1e-5)
        D = weights[f"{name}.1.fn.weight"]
        gradient = z @ D.T @ D - z @ D
        x = torch.relu(z - config["eta"] * gradient - config["eta"] * config["lambda_"])
        outputs[f"{label}.{i}"] = x
        outputs[f"{label}.attention"] = maps
    return outputs | {"latent": layer_norm(x, weights, "norm", 1e-6)}
