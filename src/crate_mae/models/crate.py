"""The white-box layers: the encoder's compresses, then sparsifies; the decoder's does the opposite in reverse order."""

from jaxtyping import Float
from torch import Tensor, nn

from crate_mae.models.config import ModelConfig
from crate_mae.models.stack import Block, Present, Step, Tokens
from crate_mae.operators import ISTA, MSSA, project


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
    Z^{l+1}   = ISTA(LN Z^{l+1/2} | D^l)
    """

    def __init__(self, config: ModelConfig):
        super().__init__()
        self.norm_mssa = nn.LayerNorm(config.dim, eps=config.norm_eps)
        self.mssa = MSSA(config.dim, config.heads, _epsilon(config))
        self.norm_ista = nn.LayerNorm(config.dim, eps=config.norm_eps)
        self.ista = ISTA(config.dim, config.eta, config.lambda_)

    def step(self, tokens: Tokens, present: Present = None) -> Step:
        half = tokens + self.mssa(self.norm_mssa(tokens), present)
        return Step(half, self.ista(self.norm_ista(half)))

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
        return Step(half, (half if self.raw_skip else normed) - self.mssa(normed, present))

    def attended(self, tokens: Tokens) -> Tokens:
        return self.norm_mssa(self.rotation(self.norm_rotation(tokens)))

    def normed_half(self, half: Tokens) -> Tokens:
        return self.norm_mssa(half)


def _epsilon(config: ModelConfig) -> float | None:
    return config.epsilon if config.mssa == "tied" else None
