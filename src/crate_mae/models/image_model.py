"""What every model here does with images: tokens, features, attention maps, pictures, files."""

from abc import ABC
from collections.abc import Callable
from pathlib import Path
from typing import Any, ClassVar

import torch
from jaxtyping import Float
from PIL import Image
from torch import Tensor, nn

from crate_mae import images as pictures
from crate_mae.errors import UserError
from crate_mae.models.checkpoint import write_checkpoint
from crate_mae.models.config import Family, ModelConfig
from crate_mae.models.crate import CrateDecoderBlock, CrateEncoderBlock
from crate_mae.models.embedding import PatchEmbedding
from crate_mae.models.initialise import initialise
from crate_mae.models.stack import Block, Stack, Tokens
from crate_mae.models.vit import ViTBlock
from crate_mae.tokens import patchify

ENCODER_BLOCKS: dict[Family, Callable[[ModelConfig], Block]] = {
    "crate": CrateEncoderBlock,
    "vit": lambda config: ViTBlock(config.dim, config.heads, config),
}
DECODER_BLOCKS: dict[Family, Callable[[ModelConfig], Block]] = {
    "crate": CrateDecoderBlock,
    "vit": lambda config: ViTBlock(config.decoder_dim, config.decoder_heads, config),
}


class ImageModel(nn.Module, ABC):
    """A patch embedding and an encoder; the autoencoder and the classifier add what they need."""

    kind: ClassVar[str]
    """The name under which a checkpoint records this class."""

    def __init__(self, config: ModelConfig, masks: bool):
        super().__init__()
        self.config = config
        self.embedding = PatchEmbedding(config, masks)
        blocks = (ENCODER_BLOCKS[config.family](config) for _ in range(config.depth))
        self.encoder = Stack(blocks, final_norm(config, config.dim))

    @property
    def num_patches(self) -> int:
        """N, the patches of an image."""
        return self.config.num_patches

    @property
    def num_parameters(self) -> int:
        """Trainable parameters."""
        return sum(parameter.numel() for parameter in self.parameters())

    @property
    def device(self) -> torch.device:
        """Where the weights are."""
        return self.embedding.class_token.device

    def stacks(self) -> list[Stack]:
        """The encoder, and the decoder where there is one."""
        return [module for module in self.children() if isinstance(module, Stack)]

    def adopt_encoder(self, other: "ImageModel") -> None:
        """Copy the weights of another model's embedding and encoder."""
        for own, given in ((self.embedding, other.embedding), (self.encoder, other.encoder)):
            weights = given.state_dict()
            own.load_state_dict({name: weights[name] for name in own.state_dict()})

    # --- representations ---

    def patches(self, images: Tensor) -> Float[Tensor, "b N pixels"]:
        """X: the images, checked, cut into patches."""
        shape, dtype = (self.config.channels, *self.config.image_size), self.embedding.class_token.dtype
        fits = images.ndim == 4 and images.shape[1:] == shape and images.shape[0] > 0
        if not fits or not images.is_floating_point() or (images.dtype != dtype and not torch.is_autocast_enabled()):
            raise UserError(
                f"the model takes normalised images, {dtype} of shape (batch, {', '.join(map(str, shape))}), not "
                f"{images.dtype} of {tuple(images.shape)}; model.preprocess makes them, load(..., image_size=) resizes."
            )
        return patchify(images, self.config.patch_size)

    def embed(self, images: Tensor) -> Tokens:
        """Z^1, what enters the first layer: the class token, then the patches."""
        return self.embedding(self.patches(images))

    def encode(self, images: Tensor) -> Tokens:
        """Z, (B, 1 + N, d) with the class token first, after the final norm if there is one. Nothing is masked."""
        return self.encoder(self.embed(images))

    def features(self, images: Tensor, layer: int = -1, pool: str = "cls") -> Tensor:
        """Representations for downstream use.

        Layer 0 is the embedding, l the output of block l, and -1 the same as ``encode``; -2, -3, .. count on from the
        last block but one. ``cls`` gives the class token (B, d), ``mean`` the mean over the patches without it (B, d),
        ``grid`` the patches in their places (B, d, h, w).
        """
        tokens = self.encode(images) if layer == -1 else self._layer_output(images, layer)
        match pool:
            case "cls":
                return tokens[:, 0]
            case "mean":
                return tokens[:, 1:].mean(1)
            case "grid":
                return tokens[:, 1:].mT.unflatten(-1, self.config.grid)
        raise UserError(f"pool is {pool!r}; choose from 'cls', 'mean', 'grid'.")

    def _layer_output(self, images: Tensor, layer: int) -> Tokens:
        depth = self.config.depth
        if not -depth - 1 <= layer <= depth:
            raise UserError(f"there is no layer {layer} in {depth}; choose from {-depth - 1} to {depth}.")
        tokens = self.embed(images)
        for block in self.encoder.blocks[: layer % (depth + 1)]:
            tokens = block(tokens)
        return tokens

    def attention(self, images: Tensor, layer: int = -1) -> Float[Tensor, "b heads n n"]:
        """The attention maps of an encoder layer (0 is the first), the class token in row and column 0."""
        return self.encoder.attention(self.embed(images), layer)

    # --- pictures ---

    def preprocess(self, image: Image.Image | str | Path) -> Float[Tensor, "c H W"]:
        """A picture, or a file with one, as the model takes it: resized and normalised."""
        config = self.config
        pixels = pictures.to_tensor(pictures.read(image), config.channels, config.image_size)
        mean, std = pictures.statistics(config.mean, config.std, pixels)
        return (pixels - mean) / std

    def to_image(self, image: Tensor) -> Image.Image:
        """The inverse of ``preprocess`` but for size and rounding: one image (C, H, W) as a picture."""
        mean, std = pictures.statistics(self.config.mean, self.config.std, image)
        return pictures.from_tensor(image.detach() * std + mean)

    # --- files ---

    def extras(self) -> dict[str, Any]:
        """What the checkpoint records beyond the configuration."""
        return {}

    def save(self, path: str | Path) -> Path:
        """Write a checkpoint folder: ``model.safetensors`` and a readable ``config.json``."""
        return write_checkpoint(path, self.kind, self.config, self.state_dict(), self.extras())


class ImageEncoder(ImageModel):
    """The encoder alone."""

    kind = "encoder"

    def __init__(self, config: ModelConfig, generator: torch.Generator | None = None):
        super().__init__(config, masks=False)
        initialise(self, generator)

    def forward(self, images: Tensor) -> Tokens:
        return self.encode(images)


def final_norm(config: ModelConfig, dim: int) -> nn.Module | None:
    """The norm after a whole stack, where the configuration has one."""
    return nn.LayerNorm(dim, eps=config.final_norm_eps) if config.final_norms else None
