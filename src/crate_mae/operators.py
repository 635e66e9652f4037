"""MSSA and ISTA, the two white-box operators: pure functions first, then thin Modules.

Tokens are rows here (``n d``) and columns in the paper (``d x N``), so the paper's ``U_k^T Z`` reads ``Z U_k``.
The K subspaces are stored in one matrix ``[U_1 .. U_K]^T`` of shape (K p, d); its rows ``k p .. (k + 1) p`` are
``U_k^T``.

The fast forms are chosen automatically. ``mssa_listing`` and ``ista_listing`` are the paper's pseudocode (appendix B.2)
line by line, as the reference for them.
"""

from typing import Any

import torch
import torch.nn.functional as F
from jaxtyping import Bool, Float
from torch import Tensor, nn

from crate_mae.mssa_cpu import SubspaceAttention, fits_in_cache

# --- MSSA: compress towards the subspaces ---------------------------------------------------------------------------


def project(
    tokens: Float[Tensor, "*b n d"], subspaces: Float[Tensor, "d_out d"], heads: int
) -> Float[Tensor, "*b heads n p"]:
    """W_k = U_k^T Z for every k: the tokens' coordinates in each of the K subspaces."""
    return F.linear(tokens, subspaces).unflatten(-1, (heads, -1)).transpose(-3, -2)


def merge(heads: Float[Tensor, "*b heads n p"]) -> Float[Tensor, "*b n d_out"]:
    """Stack the K heads' coordinates on top of each other, [W_1; ..; W_K]."""
    return heads.transpose(-3, -2).flatten(-2)


def attend(
    w: Float[Tensor, "*b heads n p"], scale: float, present: Bool[Tensor, "*b n"] | None = None
) -> Float[Tensor, "*b heads n p"]:
    """W softmax(scale W^T W) in each head, without keeping large n x n maps.

    Training on a CPU uses ``SubspaceAttention``, everything else torch's fused attention: each is the faster one there.
    Tokens where ``present`` is False are padding: no token attends to them.
    """
    if present is None and fits_in_cache(w.shape[-2]) and _trains_on_a_cpu(w):
        return SubspaceAttention.apply(w.reshape(-1, *w.shape[-3:]), scale).view(w.shape)
    return fused_attention(w, w, w, scale, present)


def fused_attention(
    queries: Float[Tensor, "*b heads n p"],
    keys: Float[Tensor, "*b heads n p"],
    values: Float[Tensor, "*b heads n p"],
    scale: float | None = None,
    present: Bool[Tensor, "*b n"] | None = None,
) -> Float[Tensor, "*b heads n p"]:
    """torch's fused attention; the scale is 1 / sqrt p by default.

    Under autocast on a CPU it stays in float32: there torch's kernel takes ten times as long in bfloat16.
    """
    allowed = attendable(present)
    if not _rounded_on_a_cpu(queries):
        return F.scaled_dot_product_attention(queries, keys, values, attn_mask=allowed, scale=scale)
    with torch.autocast("cpu", enabled=False):
        return F.scaled_dot_product_attention(
            queries.float(), keys.float(), values.float(), attn_mask=allowed, scale=scale
        )


def _rounded_on_a_cpu(w: Tensor) -> bool:
    """Whether autocast has rounded a tensor on a CPU to bfloat16."""
    return w.device.type == "cpu" and w.dtype == torch.bfloat16 and torch.is_autocast_enabled("cpu")


def _trains_on_a_cpu(w: Tensor) -> bool:
    known = w.device.type == "cpu" and (w.dtype in (torch.float32, torch.float64) or _rounded_on_a_cpu(w))
    transformed = torch.compiler.is_compiling() or torch._C._functorch.is_functorch_wrapped_tensor(w)
    return known and w.requires_grad and torch.is_grad_enabled() and not transformed


def attendable(present: Bool[Tensor, "*b n"] | None) -> Bool[Tensor, "*b 1 1 n"] | None:
    """The tokens that may be attended to, as a mask that broadcasts over heads and queries."""
    return None if present is None else present[..., None, None, :]


def attention_map(
    queries: Float[Tensor, "*b heads n p"],
    keys: Float[Tensor, "*b heads n p"],
    scale: float,
    present: Bool[Tensor, "*b n"] | None = None,
) -> Float[Tensor, "*b heads n n"]:
    """softmax(scale Q K^T), for visualisation: row i is how token i attends to all tokens. MSSA has Q = K = W^T."""
    logits = scale * queries @ keys.mT
    allowed = attendable(present)
    return (logits if allowed is None else logits.masked_fill(~allowed, float("-inf"))).softmax(-1)


def mssa(
    tokens: Float[Tensor, "*b n d"],
    subspaces: Float[Tensor, "d_out d"],
    output: Float[Tensor, "d d_out"] | None,
    bias: Float[Tensor, " d"] | None,
    heads: int,
    present: Bool[Tensor, "*b n"] | None = None,
) -> Float[Tensor, "*b n d"]:
    """Multi-head subspace self-attention as the paper's listing has it.

        MSSA(Z | U) = O [W_1 softmax(W_1^T W_1 / sqrt p); ..; W_K softmax(W_K^T W_K / sqrt p)] + o,   W_k = U_k^T Z

    Differs from the paper's equation by a free linear map (O, o) in place of p / (N eps^2) [U_1 .. U_K], and by the
    scale 1 / sqrt p inside the softmax; ``mssa_tied`` is the equation. ``output`` is None for a single head.
    """
    w = project(tokens, subspaces, heads)
    mixed = merge(attend(w, w.shape[-1] ** -0.5, present))
    return mixed if output is None else F.linear(mixed, output, bias)


def mssa_tied(
    tokens: Float[Tensor, "*b n d"],
    subspaces: Float[Tensor, "d_out d"],
    heads: int,
    epsilon: float,
    present: Bool[Tensor, "*b n"] | None = None,
) -> Float[Tensor, "*b n d"]:
    """Multi-head subspace self-attention as the paper's equation has it (eq:mssa).

        MSSA(Z | U) = p / (N eps^2) [U_1 .. U_K] [W_1 softmax(W_1^T W_1); ..; W_K softmax(W_K^T W_K)],   W_k = U_k^T Z

    N counts every present token, including the class token.
    """
    w = project(tokens, subspaces, heads)
    mixed = merge(attend(w, 1.0, present))
    precise = torch.promote_types(mixed.dtype, torch.float32)
    count = tokens.shape[-2] if present is None else present.sum(-1)[..., None, None].to(precise)
    return w.shape[-1] / (count * epsilon**2) * (mixed @ subspaces)


def mssa_listing(
    tokens: Float[Tensor, "*b n d"],
    subspaces: Float[Tensor, "d_out d"],
    output: Float[Tensor, "d d_out"] | None,
    bias: Float[Tensor, " d"] | None,
    heads: int,
) -> Float[Tensor, "*b n d"]:
    """The listing of appendix B.2 line by line: the reference for ``mssa``."""
    w = F.linear(tokens, subspaces)
    w = w.reshape(*w.shape[:-1], heads, -1).transpose(-3, -2)
    dots = torch.matmul(w, w.transpose(-1, -2)) * w.shape[-1] ** -0.5
    out = torch.matmul(torch.softmax(dots, dim=-1), w)
    out = out.transpose(-3, -2).reshape(*tokens.shape[:-1], -1)
    return out if output is None else F.linear(out, output, bias)


class MSSA(nn.Module):
    """``mssa`` with its parameters, or ``mssa_tied`` where an ``epsilon`` is given."""

    def __init__(self, dim: int, heads: int, epsilon: float | None = None):
        super().__init__()
        self.heads = heads
        self.epsilon = epsilon
        self.subspaces = nn.Parameter(torch.empty(dim, dim))
        self.output = nn.Linear(dim, dim) if epsilon is None and heads > 1 else None

    @property
    def bases(self) -> Float[Tensor, "heads d p"]:
        """U_1, .., U_K as the paper writes them; learned, so not orthonormal."""
        return self.subspaces.unflatten(0, (self.heads, -1)).mT

    def forward(
        self, tokens: Float[Tensor, "b n d"], present: Bool[Tensor, "b n"] | None = None
    ) -> Float[Tensor, "b n d"]:
        if self.epsilon is not None:
            return mssa_tied(tokens, self.subspaces, self.heads, self.epsilon, present)
        weight, bias = (None, None) if self.output is None else (self.output.weight, self.output.bias)
        return mssa(tokens, self.subspaces, weight, bias, self.heads, present)

    def attention(
        self, tokens: Float[Tensor, "b n d"], present: Bool[Tensor, "b n"] | None = None
    ) -> Float[Tensor, "b heads n n"]:
        """The maps that ``forward`` mixes the tokens with."""
        w = project(tokens, self.subspaces, self.heads)
        return attention_map(w, w, w.shape[-1] ** -0.5 if self.epsilon is None else 1.0, present)

    def extra_repr(self) -> str:
        form = "listing" if self.epsilon is None else f"tied, epsilon={self.epsilon}"
        return f"dim={self.subspaces.shape[1]}, heads={self.heads}, {form}"


# --- ISTA: sparsify in the dictionary -------------------------------------------------------------------------------


def ista(
    tokens: Float[Tensor, "*b n d"], dictionary: Float[Tensor, "d d"], eta: float, lambda_: float
) -> Float[Tensor, "*b n d"]:
    """One proximal gradient step on a non-negative LASSO (eq:ista).

        ISTA(z | D) = relu(z + eta D^T (z - D z) - eta lambda)

    is the step from y = z on 1/2 ||z - D y||^2 + lambda ||y||_1 over y >= 0. For z >= 0 and eta <= 1 / ||D||^2 it does
    not increase that objective. For signed z the starting point y = z is infeasible, and the objective can rise.

    As written it takes two products per token. With more tokens than d it takes one, with P = eta D^T (I - D) computed
    once.
    """
    if tokens.shape[:-1].numel() > tokens.shape[-1]:
        return ista_folded(tokens, fold(dictionary, eta), eta, lambda_)
    residual = tokens - F.linear(tokens, dictionary)
    return torch.relu(tokens + eta * (residual @ dictionary) - eta * lambda_)


def fold(dictionary: Float[Tensor, "d d"], eta: float) -> Float[Tensor, "d d"]:
    """P^T = eta (D - D^T D), where I + P = I + eta D^T (I - D) is ISTA's linear map."""
    return eta * (dictionary - _Gram.apply(dictionary))


class _Gram(torch.autograd.Function):
    """D^T D, with its gradient D (G + G^T) in one product; autograd would take two, D G and D G^T."""

    generate_vmap_rule = True

    @staticmethod
    def forward(dictionary: Float[Tensor, "d d"]) -> Float[Tensor, "d d"]:
        return dictionary.mT @ dictionary

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Tensor], output: Tensor) -> None:
        ctx.save_for_backward(*inputs)

    @staticmethod
    def backward(ctx: Any, gradient: Float[Tensor, "d d"]) -> Float[Tensor, "d d"]:
        (dictionary,) = ctx.saved_tensors
        return dictionary.to(gradient.dtype) @ (gradient + gradient.mT)


def ista_folded(
    tokens: Float[Tensor, "*b n d"], folded: Float[Tensor, "d d"], eta: float, lambda_: float
) -> Float[Tensor, "*b n d"]:
    """relu(z + P z - eta lambda): ISTA, given P^T = ``fold(D, eta)``.

    The identity is not part of P: adding z rounds less than multiplying it by a matrix close to I, at the same speed.
    """
    rows = tokens.reshape(-1, tokens.shape[-1])
    return torch.addmm(rows, rows, folded).sub_(eta * lambda_).relu_().view(tokens.shape)


def ista_listing(
    tokens: Float[Tensor, "*b n d"], dictionary: Float[Tensor, "d d"], eta: float, lambda_: float
) -> Float[Tensor, "*b n d"]:
    """The listing of appendix B.2 line by line, three products per token: the reference for ``ista``."""
    x1 = F.linear(tokens, dictionary, bias=None)
    grad_1 = F.linear(x1, dictionary.t(), bias=None)
    grad_2 = F.linear(tokens, dictionary.t(), bias=None)
    grad_update = eta * (grad_2 - grad_1) - eta * lambda_
    return F.relu(tokens + grad_update)


def lasso(
    signal: Float[Tensor, "*b n d"],
    code: Float[Tensor, "*b n m"],
    dictionary: Float[Tensor, "d m"],
    lambda_: float,
) -> Float[Tensor, "*b n"]:
    """1/2 ||z - D y||^2 + lambda ||y||_1 per token, the objective that ISTA steps on (signal z, code y)."""
    residual = signal - F.linear(code, dictionary)
    return 0.5 * residual.square().sum(-1) + lambda_ * code.abs().sum(-1)


class ISTA(nn.Module):
    """``ista`` with its dictionary D; threshold lambda and step eta are fixed numbers."""

    def __init__(self, dim: int, eta: float, lambda_: float):
        super().__init__()
        self.eta = eta
        self.lambda_ = lambda_
        self.dictionary = nn.Parameter(torch.empty(dim, dim))
        self._kept: tuple[Tensor, Tensor] | None = None

    def forward(self, tokens: Float[Tensor, "b n d"]) -> Float[Tensor, "b n d"]:
        # On a GPU, folding is cheap and the comparison below would synchronise; a compiler can't trace it.
        if torch.is_grad_enabled() or tokens.device.type != "cpu" or torch.compiler.is_compiling():
            return ista(tokens, self.dictionary, self.eta, self.lambda_)
        return ista_folded(tokens, self._fold_once(), self.eta, self.lambda_)

    def synthesis(self, code: Float[Tensor, "b n d"]) -> Float[Tensor, "b n d"]:
        """The identity: in the paper's form the code itself is the layer's output."""
        return code

    def _fold_once(self) -> Float[Tensor, "d d"]:
        # At inference P is cached. The dictionary is compared with the cached one (d^2 operations, against d^3 for
        # folding), because edits through `.data` do not change its version counter.
        if self._kept is None or not _identical(self._kept[0], self.dictionary):
            self._kept = (self.dictionary.detach().clone(), fold(self.dictionary, self.eta))
        return self._kept[1]

    def __getstate__(self) -> dict[str, Any]:
        return self.__dict__ | {"_kept": None}  # copies and pickles fold again

    def extra_repr(self) -> str:
        return f"dim={self.dictionary.shape[0]}, eta={self.eta}, lambda={self.lambda_}"


def ista_overcomplete(
    tokens: Float[Tensor, "*b n d"], dictionary: Float[Tensor, "d m"], eta: float, lambda_: float
) -> Float[Tensor, "*b n m"]:
    """Two proximal gradient steps from zero on a non-negative LASSO with m > d atoms, as CRATE-alpha has them.

        A_1 = relu(eta D^T z - eta lambda)
        A_2 = relu(A_1 - eta D^T (D A_1 - z) - eta lambda)

    (Yang et al., "Scaling White-Box Transformers for Vision", 2024.) Zero is feasible, so for eta <= 1 / ||D||^2 the
    objective ``lasso`` never rises.
    """
    first = torch.relu(eta * (tokens @ dictionary) - eta * lambda_)
    residual = F.linear(first, dictionary) - tokens
    return torch.relu(first - eta * (residual @ dictionary) - eta * lambda_)


class OvercompleteISTA(nn.Module):
    """``ista_overcomplete`` with its dictionary D, and a second dictionary D' that maps the code back to tokens.

    CRATE-alpha calls D and D' decoupled: with D' = D the map back would be the LASSO's own reconstruction D A.
    """

    def __init__(self, dim: int, atoms: int, eta: float, lambda_: float):
        super().__init__()
        self.eta = eta
        self.lambda_ = lambda_
        self.dictionary = nn.Parameter(torch.empty(dim, atoms))
        self.decoupled = nn.Parameter(torch.empty(dim, atoms))

    def forward(self, tokens: Float[Tensor, "b n d"]) -> Float[Tensor, "b n m"]:
        return ista_overcomplete(tokens, self.dictionary, self.eta, self.lambda_)

    def synthesis(self, code: Float[Tensor, "b n m"]) -> Float[Tensor, "b n d"]:
        """D' A: tokens from their codes."""
        return F.linear(code, self.decoupled)

    def extra_repr(self) -> str:
        dim, atoms = self.dictionary.shape
        return f"dim={dim}, atoms={atoms}, eta={self.eta}, lambda={self.lambda_}"


def _identical(a: Tensor, b: Tensor) -> bool:
    return a.dtype == b.dtype and a.device == b.device and torch.equal(a, b)
