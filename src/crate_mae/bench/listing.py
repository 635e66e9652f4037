"""CRATE-MAE as the paper's listing has it (appendix B.2), in plain PyTorch: the fast forms are compared with it.

Names and lines are the paper's. What the listing leaves out (embedding, mask, loss) is its appendix B.1 written as
plainly. It computes the same function as ``MaskedAutoencoder`` with the ``paper`` preset and takes its weights.
"""

import torch
import torch.nn.functional as F
from einops import rearrange
from jaxtyping import Bool, Float
from torch import Tensor, nn

from crate_mae.models.autoencoder import MaskedAutoencoder
from crate_mae.models.config import ModelConfig
from crate_mae.models.stack import Tokens


class ISTA(nn.Module):
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
    def __init__(self, dim: int, heads: int, step_size: float, lambd: float):
        super().__init__()
        self.ln1, self.attn = nn.LayerNorm(dim), MSSA(dim, heads)
        self.ln2, self.ff = nn.LayerNorm(dim), ISTA(dim, step_size, lambd)

    def forward(self, x: Tokens) -> Tokens:
        x_ = self.attn(self.ln1(x)) + x
        return self.ff(self.ln2(x_))


class DecoderLayer(nn.Module):
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
        p, q = self.config.patch_size
        return rearrange(images, "b c (h p) (w q) -> b (h w) (p q c)", p=p, q=q)

    def encode(self, patches: Float[Tensor, "b N pixels"]) -> Tokens:
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


NAMES = {
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
"""Parts of our parameters' names and the listing's for them."""


def listing_name(name: str) -> str:
    """What the listing calls a parameter of ours."""
    for ours, theirs in NAMES.items():
        name = name.replace(ours, theirs)
    return name.replace("norm_mssa", "ln1" if name.startswith("encoder") else "ln2")


def listing_of(model: MaskedAutoencoder) -> Listing:
    """The listing with a copy of the weights of a model that has the ``paper`` preset."""
    listing = Listing(model.config).to(model.embedding.class_token)  # its precision
    listing.load_state_dict({listing_name(name): tensor.clone() for name, tensor in model.state_dict().items()})
    return listing
