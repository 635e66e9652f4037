"""The white-box layers. The encoder layer compresses, then sparsifies; the decoder layer inverts both."""

import torch
from jaxtyping import Float
from torch import Tensor, nn

from crate_mae.models.config import ModelConfig
from crate_mae.models.stack import Block, Present, Step, Tokens
from crate_mae.operators import ISTA, MSSA, OvercompleteISTA, project


class _CrateBlock(Block):
    mssa: MSSA

    @property
    def bases(self) -> Float[Tensor, "heads d p"]:
        return self.mssa.bases

    def attention(self, tokens: Tokens, present: Present = None) -> Float[Tensor, "b heads n n"]:
        return self.mssa.attention(self.attended(tokens), present)

    def attend(self, attended: Tokens, present: Present = None) -> Tokens:
        return self.mssa(attended, present)

    def queries_and_keys(self, tokens: Tokens) -> tuple[Float[Tensor, "b heads n p"], Float[Tensor, "b heads n p"]]:
        coordinates = project(tokens, self.mssa.subspaces, self.mssa.heads)
        return coordinates, coordinates


class CrateEncoderBlock(_CrateBlock):
    """f^l: compress against the subspaces U, then sparsify in the dictionary D (eq:encoder_layer with norms).

    Z^{l+1/2} = Z^l + MSSA(LN Z^l | U^l)
    A^{l+1}   = ISTA(LN Z^{l+1/2} | D^l)                        the sparse code
    Z^{l+1}   = A^{l+1}                                         encoder_skip="none", the paper
              = (1 - rho) Z^{l+1/2} + rho A^{l+1}               encoder_skip="relaxed"
              = Z^{l+1/2} + A^{l+1}                             encoder_skip="added"

    With ``sparsifier="alpha"`` the code has more entries than a token, and D'^l A^{l+1} takes the place of A^{l+1} in
    the last step.
    """

    def __init__(self, config: ModelConfig):
        super().__init__()
        self.norm_mssa = nn.LayerNorm(config.dim, eps=config.norm_eps)
        self.mssa = MSSA(config.dim, config.heads, _epsilon(config))
        self.norm_ista = nn.LayerNorm(config.dim, eps=config.norm_eps)
        self.ista = (
            ISTA(config.dim, config.eta, config.lambda_)
            if config.sparsifier == "ista"
            else OvercompleteISTA(config.dim, config.overcomplete * config.dim, config.eta, config.lambda_)
        )
        self.skip, self.relaxation = config.encoder_skip, config.relaxation

    @property
    def threshold(self) -> float:
        return self.ista.lambda_

    def step(self, tokens: Tokens, present: Present = None) -> Step:
        half = tokens + self.mssa(self.norm_mssa(tokens), present)
        code = self.ista(self.norm_ista(half))
        sparsified = self.ista.synthesis(code)
        match self.skip:
            case "relaxed":
                return Step(half, code, torch.lerp(half, sparsified.to(half.dtype), self.relaxation))
            case "added":
                return Step(half, code, half + sparsified)
        return Step(half, code, sparsified)

    def attended(self, tokens: Tokens) -> Tokens:
        return self.norm_mssa(tokens)

    def normed_half(self, half: Tokens) -> Tokens:
        return self.norm_ista(half)


class CrateDecoderBlock(_CrateBlock):
    """g^l: rotate back with the dictionary E, then expand against the subspaces V.

    Y^{l+1/2} = E^l LN Y^l
    Y^{l+1}   = LN Y^{l+1/2} - MSSA(LN Y^{l+1/2} | V^l)

    ``decoder_skip="raw"`` keeps Y^{l+1/2} itself in the skip, as the authors' code does.
    """

    def __init__(self, config: ModelConfig):
        super().__init__()
        dim = config.decoder_dim
        self.raw_skip = config.decoder_skip == "raw"
        self.norm_rotation = nn.LayerNorm(dim, eps=config.norm_eps)
        self.rotation = nn.Linear(dim, dim, bias=False)
        self.norm_mssa = nn.LayerNorm(dim, eps=config.norm_eps)
        self.mssa = MSSA(dim, config.decoder_heads, _epsilon(config))

    def step(self, tokens: Tokens, present: Present = None) -> Step:
        half = self.rotation(self.norm_rotation(tokens))
        normed = self.norm_mssa(half)
        expanded = (half if self.raw_skip else normed) - self.mssa(normed, present)
        return Step(half, expanded, expanded)

    def attended(self, tokens: Tokens) -> Tokens:
        return self.norm_mssa(self.rotation(self.norm_rotation(tokens)))

    def normed_half(self, half: Tokens) -> Tokens:
        return self.norm_mssa(half)


def _epsilon(config: ModelConfig) -> float | None:
    return config.epsilon if config.mssa == "tied" else None
