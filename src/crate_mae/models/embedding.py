"""Patches to tokens, and the encoder's tokens to the decoder's."""

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor, nn

from crate_mae.models.config import ModelConfig
from crate_mae.models.stack import Tokens
from crate_mae.tokens import Mask, sine_cosine_table


class Positions(nn.Module):
    """A position vector for each token, the class token's first.

    Learned: for the patches only, as in the paper. Fixed: a buffer, initially the sine-cosine table with zeros for the
    class token; an imported table is kept bit for bit.
    """

    table: Tensor

    def __init__(self, config: ModelConfig, dim: int):
        super().__init__()
        self.learned = config.positions == "learned"
        if self.learned:
            self.table = nn.Parameter(torch.empty(config.num_patches, dim))
        else:
            table = with_class_row(sine_cosine_table(config.grid, dim))
            self.register_buffer("table", table.to(torch.get_default_device()))

    def forward(self) -> Float[Tensor, "n d"]:
        return with_class_row(self.table) if self.learned else self.table


def with_class_row(table: Float[Tensor, "n d"]) -> Float[Tensor, "n+1 d"]:
    """The table with a row of zeros for the class token in front."""
    return F.pad(table, (0, 0, 1, 0))


class PatchEmbedding(nn.Module):
    """f^pre(X) = [z_cls, W^pre X + E^pos], with masked patches set to zero, replaced by a token, or left out."""

    def __init__(self, config: ModelConfig, masks: bool):
        super().__init__()
        self.visible_only = config.encoder_sees == "visible"
        self.projection = nn.Linear(config.patch_pixels, config.dim, bias=config.embed_bias)
        self.class_token = nn.Parameter(torch.empty(config.dim))
        self.positions = Positions(config, config.dim)
        learned_blank = masks and not self.visible_only and config.masked_patch == "token"
        self.mask_token = nn.Parameter(torch.empty(config.dim)) if learned_blank else None

    def forward(self, patches: Float[Tensor, "b N pixels"], mask: Mask | None = None) -> Tokens:
        positions = self.positions()
        tokens = self._patches(patches, positions[1:], mask)
        class_token = (self.class_token + positions[0]).expand(patches.shape[0], 1, -1)
        return torch.cat([class_token.to(tokens.dtype), tokens], 1)

    def _patches(self, patches: Tensor, positions: Float[Tensor, "N d"], mask: Mask | None) -> Tokens:
        if mask is None:
            return self.projection(patches) + positions
        if self.visible_only:
            return self.projection(mask.take(patches)) + mask.take(positions.expand(patches.shape[0], -1, -1))
        if self.mask_token is None:
            return self.projection(mask.replace(patches, patches.new_zeros(()))) + positions
        return mask.replace(self.projection(patches), self.mask_token) + positions


class Handover(nn.Module):
    """The encoder's tokens to the decoder's, with a linear map if the widths differ or the configuration asks for one.

    If the encoder saw only the visible patches, a learned token is inserted for each masked patch, and the decoder's
    own positions are added. If it saw all patches, their positions are already in the tokens.
    """

    def __init__(self, config: ModelConfig):
        super().__init__()
        dim = config.decoder_dim
        fills = config.encoder_sees == "visible"
        maps = config.decoder_map or config.dim != dim
        self.map = nn.Linear(config.dim, dim) if maps else nn.Identity()
        self.mask_token = nn.Parameter(torch.empty(dim)) if fills else None
        self.positions = Positions(config, dim) if fills else None

    def forward(self, latent: Tokens, mask: Mask) -> Float[Tensor, "b m d_dec"]:
        tokens = self.map(latent)
        if self.mask_token is None or self.positions is None:
            return tokens
        patches = mask.put(tokens[:, 1:], self.mask_token)
        return torch.cat([tokens[:, :1], patches], 1) + self.positions()
