"""Attention whose queries, keys and values are one matrix, as MSSA's are: forward and backward for a CPU."""

from collections.abc import Iterator
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor
from torch.autograd.function import once_differentiable

AT_A_TIME = 2**18
"""Numbers in the maps that each thread has before it at a time: 1 MB in float32, which stays in its cache."""
KEPT = 2**22
"""Numbers in the maps of a layer that are kept for the way back, 16 MB in float32; more than that are made again."""


class OneMatrixAttention(torch.autograd.Function):
    """softmax(scale W W^T) W with tokens as rows, in each head.

    With A = softmax(scale W W^T) and dO the gradient of the result,

        dW = A^T dO + scale (dS + dS^T) W,   dS = A * (dA - rowsum(A * dA)),   dA = dO W^T

    A fused kernel, which can't know that Q = K = V, makes one product more and gives three gradients to be added. Here
    the maps of some heads are made together, so that they are still in the cache when they are needed next.
    """

    @staticmethod
    def forward(ctx: Any, w: Float[Tensor, "b heads n p"], scale: float) -> Float[Tensor, "b heads n p"]:
        maps = w.new_empty(*w.shape[:3], w.shape[2]) if keeps_maps(*w.shape[:3]) else None
        out = _like(w)
        for part, room in _parts(w, rooms=0 if maps is not None else 1):
            w_ = _heads(w[part])
            a = _attention(w_, scale, _heads(maps[part]) if maps is not None else room[0])
            out[part] = torch.bmm(a, w_).view(w[part].shape)
        ctx.save_for_backward(w, maps)
        ctx.scale = scale
        return out

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, d_out: Float[Tensor, "b heads n p"]) -> tuple[Float[Tensor, "b heads n p"], None]:
        w, maps = ctx.saved_tensors
        d_w = _like(w)
        for part, (d_s, both, *room) in _parts(w, rooms=2 if maps is not None else 3):
            w_, d_out_ = _heads(w[part]), _heads(d_out[part])
            a = _heads(maps[part]) if maps is not None else _attention(w_, ctx.scale, room[0])
            torch.bmm(d_out_, w_.mT, out=d_s)  # dA
            torch._softmax_backward_data(d_s, a, -1, a.dtype, grad_input=d_s)
            torch.add(d_s, d_s.mT, out=both)
            d_w_ = torch.bmm(a.mT, d_out_)
            d_w[part] = torch.baddbmm(d_w_, both, w_, alpha=ctx.scale, out=d_w_).view(w[part].shape)
        return d_w, None


def suits(tokens: int) -> bool:
    """Whether it is the fastest way: where a cache can hold the map of a head. Fused attention divides maps."""
    return tokens**2 <= AT_A_TIME


def keeps_maps(images: int, heads: int, tokens: int) -> bool:
    """Whether the attention maps of a layer are few enough to be kept for the way back."""
    return images * heads * tokens**2 <= KEPT


def _attention(w: Float[Tensor, "k n p"], scale: float, out: Float[Tensor, "k n n"]) -> Float[Tensor, "k n n"]:
    torch.baddbmm(out, w, w.mT, beta=0, alpha=scale, out=out)
    return torch.softmax(out, -1, out=out)


def _like(w: Float[Tensor, "b heads n p"]) -> Float[Tensor, "b heads n p"]:
    """Room for as much, where the heads of a token lie side by side: to merge them is then no copy."""
    b, heads, n, p = w.shape
    return w.new_empty(b, n, heads, p).transpose(1, 2)


def _heads(part: Float[Tensor, "b heads n m"]) -> Float[Tensor, "k n m"]:
    return part.reshape(-1, *part.shape[2:])


def at_a_time(images: int, heads: int, tokens: int) -> tuple[int, int]:
    """Images and heads whose maps are worked on together: some images with all heads, or some heads of one."""
    maps = max(1, AT_A_TIME * torch.get_num_threads() // tokens**2)
    return min(images, max(1, maps // heads)), min(heads, maps)


def _parts(
    w: Float[Tensor, "b heads n p"], rooms: int
) -> Iterator[tuple[tuple[slice, slice], Float[Tensor, "rooms k n n"]]]:
    """Images and heads to work on together, part by part; and so many rooms for the maps of a part."""
    b, heads, n, _ = w.shape
    images_, heads_ = at_a_time(b, heads, n)
    room = w.new_empty(rooms, images_ * heads_, n, n)
    for i in range(0, b, images_):
        for j in range(0, heads, heads_):
            part = slice(i, min(i + images_, b)), slice(j, min(j + heads_, heads))
            yield part, room[:, : (part[0].stop - i) * (part[1].stop - j)]
