"""A stack of layers whose intermediate results can be observed."""

from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

import torch
from jaxtyping import Bool, Float
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from crate_mae.errors import UserError

Tokens = Float[Tensor, "b n d"]
Present = Bool[Tensor, "b n"] | None  # False where a token is padding; None if there is no padding


class Step(NamedTuple):
    """What one layer computes from its tokens."""

    half: Tokens
    """Z^{l+1/2}, after the first half of the layer."""
    code: Float[Tensor, "b n m"]
    """The sparse code of a white-box encoder layer; the output of the second half in every other layer."""
    tokens: Tokens
    """Z^{l+1}, what enters the next layer. In the paper's form the code itself."""


class Block(nn.Module, ABC):
    """The interface of a layer, whatever its family."""

    @abstractmethod
    def step(self, tokens: Tokens, present: Present = None) -> Step:
        """Both halves of the layer."""

    @abstractmethod
    def attention(self, tokens: Tokens, present: Present = None) -> Float[Tensor, "b heads n n"]:
        """The attention maps that ``step`` mixes the tokens with."""

    @abstractmethod
    def attended(self, tokens: Tokens) -> Tokens:
        """The input of the layer's attention, after the norm before it, from the tokens that enter the layer."""

    @abstractmethod
    def attend(self, attended: Tokens, present: Present = None) -> Tokens:
        """The output of the layer's attention for such an input."""

    @abstractmethod
    def normed_half(self, half: Tokens) -> Tokens:
        """``Step.half`` after the norm that follows it."""

    @abstractmethod
    def queries_and_keys(self, tokens: Tokens) -> tuple[Float[Tensor, "b heads n p"], Float[Tensor, "b heads n p"]]:
        """The layer's queries and keys of any tokens; no norm is applied."""

    @property
    def bases(self) -> Float[Tensor, "heads d p"] | None:
        """The subspaces that the layer compresses against; None if the family has none."""
        return None

    @property
    def threshold(self) -> float | None:
        """lambda of the layer's sparsification; None if the layer has none."""
        return None

    def forward(self, tokens: Tokens, present: Present = None) -> Tokens:
        return self.step(tokens, present).tokens


class Stack(nn.Module):
    """Layers in sequence, then a final norm if there is one."""

    def __init__(self, blocks: Iterable[Block], norm: nn.Module | None):
        super().__init__()
        self.blocks: Sequence[Block] = nn.ModuleList(blocks)  # type: ignore[assignment]
        self.norm = norm or nn.Identity()
        self.recompute = False
        """Gradient checkpointing: keep only the input of each layer and recompute the rest in the backward pass."""

    def steps(self, tokens: Tokens, present: Present = None) -> Iterator[Step]:
        """Yield each layer's ``(half, code, tokens)``; ``forward`` is the last ``tokens`` after the final norm."""
        for block in self.blocks:
            step = block.step(tokens, present)
            yield step
            tokens = step.tokens

    def forward(self, tokens: Tokens, present: Present = None) -> Tokens:
        for block in self.blocks:
            if self.recompute and torch.is_grad_enabled():
                tokens = checkpoint(block, tokens, present, use_reentrant=False)
            else:
                tokens = block(tokens, present)
        return self.norm(tokens)

    def entering(self, tokens: Tokens, layer: int, present: Present = None) -> Tokens:
        """Z^l: what enters layer l, from 1 to L; -1 is the last."""
        for block in self.blocks[: self.index(layer)]:
            tokens = block(tokens, present)
        return tokens

    def attention(self, tokens: Tokens, layer: int = -1, present: Present = None) -> Float[Tensor, "b heads n n"]:
        """The attention maps of one layer, from 1 to L, as that layer uses them; -1 is the last."""
        entering = self.entering(tokens, layer, present)
        return self.blocks[self.index(layer)].attention(entering, present)

    def index(self, layer: int) -> int:
        """The index in ``blocks`` of layer 1 to L; -1 is the last, -2 the one before it."""
        depth = len(self.blocks)
        if not (1 <= layer <= depth or -depth <= layer <= -1):
            raise UserError(f"there is no layer {layer}; choose from 1 to {depth}, or -1 for the last.")
        return layer - 1 if layer > 0 else layer + depth
