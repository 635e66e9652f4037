"""MSSA's attention for training on a CPU. Queries, keys and values are one matrix, which saves a product."""

from collections.abc import Iterator
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor
from torch.autograd.function import once_differentiable

CHUNK = 2**18
"""Entries of the attention maps that each thread computes at a time: 1 MB in float32, which stays in its cache."""
KEPT = 2**22
"""Largest number of entries in a layer's attention maps that are kept for the backward pass (16 MB in float32). Larger
maps are computed again."""


class SubspaceAttention(torch.autograd.Function):
    """softmax(scale W W^T) W in each head, with tokens as rows.

    With A = softmax(scale W W^T) and dO the gradient of the result,

        dW = A^T dO + scale (dS + dS^T) W,   dS = A * (dA - rowsum(A * dA)),   dA = dO W^T

    A fused kernel does not know that Q = K = V: it computes one more product, and three gradients that must be added.
    Here the maps of a few heads are computed together, so that they are still in the cache when they are used. Under
    autocast it computes in float32: products of such small matrices gain nothing in bfloat16.
    """

    @staticmethod
    @torch.amp.custom_fwd(device_type="cpu", cast_inputs=torch.float32)
    def forward(ctx: Any, w: Float[Tensor, "b heads n p"], scale: float) -> Float[Tensor, "b heads n p"]:
        maps = w.new_empty(*w.shape[:3], w.shape[2]) if keeps_maps(*w.shape[:3]) else None
        out = _empty_like(w)
        for part, buffers in _chunks(w, buffers=0 if maps is not None else 1):
            w_ = _heads(w[part])
            a = _attention(w_, scale, _heads(maps[part]) if maps is not None else buffers[0])
            out[part] = torch.bmm(a, w_).view(w[part].shape)
        ctx.save_for_backward(w, maps)
        ctx.scale = scale
        return out

    @staticmethod
    @torch.amp.custom_bwd(device_type="cpu")
    @once_differentiable
    def backward(ctx: Any, d_out: Float[Tensor, "b heads n p"]) -> tuple[Float[Tensor, "b heads n p"], None]:
        """dW, by the formula above."""
        w, maps = ctx.saved_tensors
        d_w = _empty_like(w)
        for part, (d_s, both, *buffers) in _chunks(w, buffers=2 if maps is not None else 3):
            w_, d_out_ = _heads(w[part]), _heads(d_out[part])
            a = _heads(maps[part]) if maps is not None else _attention(w_, ctx.scale, buffers[0])
            torch.bmm(d_out_, w_.mT, out=d_s)  # dA
            torch._softmax_backward_data(d_s, a, -1, a.dtype, grad_input=d_s)
            torch.add(d_s, d_s.mT, out=both)
            d_w_ = torch.bmm(a.mT, d_out_)
            d_w[part] = torch.baddbmm(d_w_, both, w_, alpha=ctx.scale, out=d_w_).view(w[part].shape)
        return d_w, None


def fits_in_cache(tokens: int) -> bool:
    """Whether a cache holds the map of a head. If not, fused attention, which splits maps, is faster."""
    return tokens**2 <= CHUNK


def keeps_maps(images: int, heads: int, tokens: int) -> bool:
    """Whether the attention maps of a layer are small enough to be kept for the backward pass."""
    return images * heads * tokens**2 <= KEPT


def _attention(w: Float[Tensor, "k n p"], scale: float, out: Float[Tensor, "k n n"]) -> Float[Tensor, "k n n"]:
    torch.baddbmm(out, w, w.mT, beta=0, alpha=scale, out=out)
    return torch.softmax(out, -1, out=out)


def _empty_like(w: Float[Tensor, "b heads n p"]) -> Float[Tensor, "b heads n p"]:
    """An uninitialised tensor in which the heads of a token are adjacent, so that merging them needs no copy."""
    b, heads, n, p = w.shape
    return w.new_empty(b, n, heads, p).transpose(1, 2)


def _heads(part: Float[Tensor, "b heads n m"]) -> Float[Tensor, "k n m"]:
    return part.reshape(-1, *part.shape[2:])


def chunk_size(images: int, heads: int, tokens: int) -> tuple[int, int]:
    """Images and heads whose maps are computed together: several images with all heads, or several heads of one."""
    maps = max(1, CHUNK * torch.get_num_threads() // tokens**2)
    return min(images, max(1, maps // heads)), min(heads, maps)


def _chunks(
    w: Float[Tensor, "b heads n p"], buffers: int
) -> Iterator[tuple[tuple[slice, slice], Float[Tensor, "buffers k n n"]]]:
    """The images and heads of each chunk, and scratch buffers for its maps."""
    b, heads, n, _ = w.shape
    images_, heads_ = chunk_size(b, heads, n)
    scratch = w.new_empty(buffers, images_ * heads_, n, n)
    for i in range(0, b, images_):
        for j in range(0, heads, heads_):
            part = slice(i, min(i + images_, b)), slice(j, min(j + heads_, heads))
            yield part, scratch[:, : (part[0].stop - i) * (part[1].stop - j)]
