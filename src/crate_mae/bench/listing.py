"""CRATE-MAE as the paper's listing has it (appendix B.2), in plain PyTorch: the fast forms are compared with it.

Names and lines are the paper's. What the listing leaves out (embedding, mask, loss) follows appendix B.1, in the same
plain style. It computes the same function as ``MaskedAutoencoder`` with the ``paper`` preset and takes its weights.
``ResidualListing`` is the same for the residual form, which the shipped model has.
"""

import torch
import torch.nn.functional as F
from einops import rearrange
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn

from crate_mae.models.autoencoder import MaskedAutoencoder
from crate_mae.models.config import ModelConfig
from crate_mae.models.stack import Tokens


class ISTA(nn.Module):
    """relu(x + eta D^T x - eta D^T D x - eta lambda)."""

    def __init__(self, dim: int, step_size: float, lambd: float):
        super().__init__()
        self.weight = nn.Parameter(torch.empty(dim, dim))
        self.step_size = step_size
        self.lambd = lambd

    def forward(self, x: Tokens) -> Tokens:
        x1 = F.linear(x, self.weight, bias=None)
        grad_1 = F.linear(x1, self.weight.t(), bias=None)
        grad_2 = F.linear(x, self.weight.t(), bias=None)
        grad_update = self.step_size * (grad_2 - grad_1) - self.step_size * self.lambd
        return F.relu(x + grad_update)


class MSSA(nn.Module):
    """O [W_1 softmax(W_1^T W_1 / sqrt p); ..; W_K softmax(W_K^T W_K / sqrt p)] + o, with W_k = U_k^T Z."""

    def __init__(self, dim: int, heads: int):
        super().__init__()
        self.heads = heads
        self.scale = (dim // heads) ** -0.5
        self.attend = nn.Softmax(dim=-1)
        self.qkv = nn.Linear(dim, dim, bias=False)
        self.to_out = nn.Linear(dim, dim) if heads > 1 else nn.Identity()

    def forward(self, x: Tokens) -> Tokens:
        w = rearrange(self.qkv(x), "b n (h d) -> b h n d", h=self.heads)
        dots = torch.matmul(w, w.transpose(-1, -2)) * self.scale
        attn = self.attend(dots)
        out = torch.matmul(attn, w)
        out = rearrange(out, "b h n d -> b n (h d)")
        return self.to_out(out)


class EncoderLayer(nn.Module):
    """x_ = MSSA(LN x) + x; ISTA(LN x_)."""

    def __init__(self, dim: int, heads: int, step_size: float, lambd: float):
        super().__init__()
        self.ln1, self.attn = nn.LayerNorm(dim), MSSA(dim, heads)
        self.ln2, self.ff = nn.LayerNorm(dim), ISTA(dim, step_size, lambd)

    def forward(self, x: Tokens) -> Tokens:
        x_ = self.attn(self.ln1(x)) + x
        return self.ff(self.ln2(x_))


class DecoderLayer(nn.Module):
    """x_ = E LN x; LN x_ - MSSA(LN x_)."""

    def __init__(self, dim: int, heads: int):
        super().__init__()
        self.ln1, self.f_linear = nn.LayerNorm(dim), nn.Linear(dim, dim, bias=False)
        self.ln2, self.attn = nn.LayerNorm(dim), MSSA(dim, heads)

    def forward(self, x: Tokens) -> Tokens:
        x_ = self.f_linear(self.ln1(x))
        return self.ln2(x_) - self.attn(self.ln2(x_))


class Listing(nn.Module):
    """The masked autoencoder of these layers."""

    def __init__(self, config: ModelConfig):
        super().__init__()
        self.config = config
        dim, heads = config.dim, config.heads
        self.embed = nn.Linear(config.patch_pixels, dim, bias=False)
        self.cls_token = nn.Parameter(torch.empty(dim))
        self.pos_embed = nn.Parameter(torch.empty(config.num_patches, dim))
        encoder = (EncoderLayer(dim, heads, config.eta, config.lambda_) for _ in range(config.depth))
        self.encoder = nn.Sequential(*encoder)
        self.decoder = nn.Sequential(*(DecoderLayer(dim, heads) for _ in range(config.decoder_depth)))
        self.pixels = nn.Linear(dim, config.patch_pixels, bias=False)

    def patchify(self, images: Float[Tensor, "b c H W"]) -> Float[Tensor, "b N pixels"]:
        """Images cut into patches, pixels in the order (row, column, channel)."""
        p, q = self.config.patch_size
        return rearrange(images, "b c (h p) (w q) -> b (h w) (p q c)", p=p, q=q)

    def encode(self, patches: Float[Tensor, "b N pixels"]) -> Tokens:
        """The tokens after all encoder layers, the class token first."""
        z = self.embed(patches) + self.pos_embed
        z = torch.cat([self.cls_token.expand(len(z), 1, -1), z], dim=1)
        return self.encoder(z)

    def forward(self, images: Float[Tensor, "b c H W"], masks: Bool[Tensor, "b N"]) -> Float[Tensor, ""]:
        """The mean squared error over the masked patches, whose pixels are zero before the embedding."""
        patches = self.patchify(images)
        latent = self.encode(patches * ~masks[..., None])
        prediction = self.pixels(self.decoder(latent)[:, 1:])
        loss = ((prediction - patches) ** 2).mean(dim=-1)
        return (loss * masks).sum() / masks.sum()


class ResidualEncoderLayer(EncoderLayer):
    """x_ = MSSA(LN x) + x; ISTA(LN x_) + x_."""

    def forward(self, x: Tokens) -> Tokens:
        x_ = self.attn(self.ln1(x)) + x
        return self.ff(self.ln2(x_)) + x_


class RawDecoderLayer(DecoderLayer):
    """x_ = E LN x; x_ - MSSA(LN x_)."""

    def forward(self, x: Tokens) -> Tokens:
        x_ = self.f_linear(self.ln1(x))
        return x_ - self.attn(self.ln2(x_))


class ResidualListing(Listing):
    """The same with a residual around ISTA, biases, fixed positions and final norms.

    The encoder sees only the visible patches, and the decoder may be narrower; both as in He et al.'s code.
    """

    decoder_pos_embed: Tensor

    def __init__(self, config: ModelConfig):
        nn.Module.__init__(self)
        self.config = config
        dim, narrow, tokens = config.dim, config.decoder_dim, 1 + config.num_patches
        self.embed = nn.Linear(config.patch_pixels, dim)
        self.cls_token = nn.Parameter(torch.empty(dim))
        self.register_buffer("pos_embed", torch.empty(tokens, dim))
        encoder = (ResidualEncoderLayer(dim, config.heads, config.eta, config.lambda_) for _ in range(config.depth))
        self.encoder = nn.Sequential(*encoder)
        self.encoder_norm = nn.LayerNorm(dim, eps=config.final_norm_eps)
        self.decoder_embed = nn.Linear(dim, narrow)
        self.mask_token = nn.Parameter(torch.empty(narrow))
        self.register_buffer("decoder_pos_embed", torch.empty(tokens, narrow))
        decoder = (RawDecoderLayer(narrow, config.decoder_heads) for _ in range(config.decoder_depth))
        self.decoder = nn.Sequential(*decoder)
        self.decoder_norm = nn.LayerNorm(narrow, eps=config.final_norm_eps)
        self.pixels = nn.Linear(narrow, config.patch_pixels)

    def encode(self, patches: Float[Tensor, "b N pixels"], keep: Int[Tensor, "b n"] | None = None) -> Tokens:
        """The tokens of the patches at the indices ``keep``, or of all, after the final norm; the class token first."""
        z = self.embed(patches) + self.pos_embed[1:]
        if keep is not None:
            z = torch.gather(z, 1, keep[..., None].expand(-1, -1, z.shape[-1]))
        cls_token = (self.cls_token + self.pos_embed[:1]).expand(len(z), 1, -1)
        return self.encoder_norm(self.encoder(torch.cat([cls_token, z], dim=1)))

    def forward(self, images: Float[Tensor, "b c H W"], masks: Bool[Tensor, "b N"]) -> Float[Tensor, ""]:
        """The mean squared error over the masked patches; every image has the same number of them."""
        patches = self.patchify(images)
        order = masks.int().argsort(dim=1, stable=True)  # the visible ones first
        keep = order[:, : masks.shape[1] - int(masks[0].sum())]
        y = self.decoder_embed(self.encode(patches, keep))
        mask_tokens = self.mask_token.expand(len(y), masks.shape[1] - keep.shape[1], -1)
        y_ = torch.cat([y[:, 1:], mask_tokens], dim=1)
        y_ = torch.gather(y_, 1, order.argsort(dim=1)[..., None].expand(-1, -1, y.shape[-1]))
        y = torch.cat([y[:, :1], y_], dim=1) + self.decoder_pos_embed
        prediction = self.pixels(self.decoder_norm(self.decoder(y))[:, 1:])
        loss = ((prediction - patches) ** 2).mean(dim=-1)
        return (loss * masks).sum() / masks.sum()


NAMES = {
    "encoder.norm": "encoder_norm",
    "decoder.norm": "decoder_norm",
    "handover.map": "decoder_embed",
    "handover.mask_token": "mask_token",
    "handover.positions.table": "decoder_pos_embed",
    "embedding.projection": "embed",
    "embedding.class_token": "cls_token",
    "embedding.positions.table": "pos_embed",
    ".blocks": "",
    "mssa.subspaces": "attn.qkv.weight",
    "mssa.output": "attn.to_out",
    "ista.dictionary": "ff.weight",
    "norm_ista": "ln2",
    "norm_rotation": "ln1",
    "rotation": "f_linear",
}
"""Parts of our parameter names, and the listing's names for them."""


def listing_name(name: str) -> str:
    """What the listing calls a parameter of ours."""
    for ours, theirs in NAMES.items():
        name = name.replace(ours, theirs)
    return name.replace("norm_mssa", "ln1" if name.startswith("encoder") else "ln2")


def listing_of(model: MaskedAutoencoder) -> Listing:
    """The listing with a copy of the weights of a model: of the ``paper`` preset, or visible-only and residual."""
    kind = ResidualListing if model.config.encoder_sees == "visible" else Listing
    listing = kind(model.config).to(model.embedding.class_token)  # in its precision, on its device
    listing.load_state_dict({listing_name(name): tensor.clone() for name, tensor in model.state_dict().items()})
    return listing
