"""A stack of layers that can be watched while it runs."""

from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

import torch
from jaxtyping import Bool, Float
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from crate_mae.errors import UserError

Tokens = Float[Tensor, "b n d"]
Present = Bool[Tensor, "b n"] | None  # False where a token is padding; None where none is


class Step(NamedTuple):
    """What one layer makes of its tokens: after its first half, and after the whole."""

    half: Tokens
    full: Tokens


class Block(nn.Module, ABC):
    """What a layer of any family offers."""

    @abstractmethod
    def step(self, tokens: Tokens, present: Present = None) -> Step:
        """Both halves of the layer."""

    @abstractmethod
    def attention(self, tokens: Tokens, present: Present = None) -> Float[Tensor, "b heads n n"]:
        """The attention maps that ``step`` mixes the tokens with."""

    @abstractmethod
    def attended(self, tokens: Tokens) -> Tokens:
        """What the layer's attention is given: the layer's tokens on their way, after the norm before it."""

    @abstractmethod
    def attend(self, attended: Tokens, present: Present = None) -> Tokens:
        """What the layer's attention makes of that."""

    @abstractmethod
    def normed_half(self, half: Tokens) -> Tokens:
        """``Step.half`` after the norm that follows it."""

    @abstractmethod
    def queries_and_keys(self, tokens: Tokens) -> tuple[Float[Tensor, "b heads n p"], Float[Tensor, "b heads n p"]]:
        """The layer's queries and keys of any tokens, taken as they are."""

    @property
    def bases(self) -> Float[Tensor, "heads d p"] | None:
        """The subspaces that the layer compresses against; None in a family that has none."""
        return None

    def forward(self, tokens: Tokens, present: Present = None) -> Tokens:
        return self.step(tokens, present).full


class Stack(nn.Module):
    """Layers one after the other, and a final norm if there is one."""

    def __init__(self, blocks: Iterable[Block], norm: nn.Module | None):
        super().__init__()
        self.blocks: Sequence[Block] = nn.ModuleList(blocks)  # type: ignore[assignment]
        self.norm = norm or nn.Identity()
        self.recompute = False
        """Keep only what enters each layer for the backward pass, and compute the rest of it again."""

    def steps(self, tokens: Tokens, present: Present = None) -> Iterator[Step]:
        """Yield each layer's ``(half, full)``; ``forward`` is the last ``full`` after the final norm."""
        for block in self.blocks:
            step = block.step(tokens, present)
            yield step
            tokens = step.full

    def forward(self, tokens: Tokens, present: Present = None) -> Tokens:
        for block in self.blocks:
            if self.recompute and torch.is_grad_enabled():
                tokens = checkpoint(block, tokens, present, use_reentrant=False)
            else:
                tokens = block(tokens, present)
        return self.norm(tokens)

    def entering(self, tokens: Tokens, layer: int, present: Present = None) -> Tokens:
        """Z^l: what enters one layer (0 is the first, -1 the last)."""
        depth = len(self.blocks)
        if not -depth <= layer < depth:
            raise UserError(f"there is no layer {layer} in a stack of {depth}; choose from {-depth} to {depth - 1}.")
        for block in self.blocks[: layer % depth]:
            tokens = block(tokens, present)
        return tokens

    def attention(self, tokens: Tokens, layer: int = -1, present: Present = None) -> Float[Tensor, "b heads n n"]:
        """The attention maps of one layer (0 is the first), as that layer uses them."""
        entering = self.entering(tokens, layer, present)
        return self.blocks[layer].attention(entering, present)
