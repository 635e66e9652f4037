"""What every model does with images: tokens, features, attention maps, preprocessing, files."""

from abc import ABC
from collections.abc import Callable, Collection, Sequence
from pathlib import Path
from typing import Any, ClassVar

import torch
from jaxtyping import Float
from PIL import Image
from torch import Tensor, nn

from crate_mae import image_files, image_tensors
from crate_mae.errors import UserError
from crate_mae.models.checkpoint import write_checkpoint
from crate_mae.models.config import Family, ModelConfig
from crate_mae.models.crate import CrateDecoderBlock, CrateEncoderBlock
from crate_mae.models.embedding import PatchEmbedding
from crate_mae.models.initialise import initialise
from crate_mae.models.pretrained import HubModel
from crate_mae.models.stack import Block, Stack, Tokens
from crate_mae.models.vit import ViTBlock
from crate_mae.tokens import patchify

Images = Tensor
"""A user's normalised images, Float[Tensor, "b c H W"].

The shape is not enforced by the annotation, since ``ImageModel.patches`` refuses another one in a sentence.
"""

ENCODER_BLOCKS: dict[Family, Callable[[ModelConfig], Block]] = {
    "crate": CrateEncoderBlock,
    "vit": lambda config: ViTBlock(config.dim, config.heads, config),
}
DECODER_BLOCKS: dict[Family, Callable[[ModelConfig], Block]] = {
    "crate": CrateDecoderBlock,
    "vit": lambda config: ViTBlock(config.decoder_dim, config.decoder_heads, config),
}


class ImageModel(nn.Module, HubModel, ABC):
    """A patch embedding and an encoder; the autoencoder adds a decoder, the classifier a head."""

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
        """The device of the weights."""
        return self.embedding.class_token.device

    def stacks(self) -> list[Stack]:
        """The encoder, and the decoder if there is one."""
        return [module for module in self.children() if isinstance(module, Stack)]

    def adopt_encoder(self, other: "ImageModel") -> None:
        """Copy the weights of another model's embedding and encoder."""
        for own, given in ((self.embedding, other.embedding), (self.encoder, other.encoder)):
            weights = given.state_dict()
            own.load_state_dict({name: weights[name] for name in own.state_dict()})

    # --- representations ---

    def patches(self, images: Images) -> Float[Tensor, "b N pixels"]:
        """X: the images, checked, cut into patches."""
        shape, dtype = (self.config.channels, *self.config.image_size), self.embedding.class_token.dtype
        fits = images.ndim == 4 and images.shape[1:] == shape and images.shape[0] > 0
        if not fits or not images.is_floating_point() or (images.dtype != dtype and not torch.is_autocast_enabled()):
            raise UserError(
                f"the model takes normalised images, {dtype} of shape (batch, {', '.join(map(str, shape))}), not "
                f"{images.dtype} of {tuple(images.shape)}; model.preprocess makes them, load(..., image_size=) resizes."
            )
        return patchify(images, self.config.patch_size)

    def embed(self, images: Images) -> Tokens:
        """Z^1, the input of the first layer: the class token, then the patches."""
        return self.embedding(self.patches(images))

    def encode(self, images: Images) -> Tokens:
        """Z, (B, 1 + N, d) with the class token first, after the final norm if there is one. Nothing is masked."""
        return self.encoder(self.embed(images))

    def features(self, images: Images, layer: int = -1, pool: str = "mean") -> Float[Tensor, "b d *grid"]:
        """Representations for downstream use.

        Layer 0 is the embedding, l the output of block l, and -1 the same as ``encode``; -2 is the output of the block
        before the last, and so on. ``pool`` is that of ``pooled``.
        """
        return self.pooled(self.layer_tokens(images, [layer])[layer], pool)

    def layer_tokens(self, images: Images, layers: Collection[int]) -> dict[int, Tokens]:
        """The tokens (B, 1 + N, d) of these layers of ``features``, in one pass that ends at the last of them."""
        places = {layer: self.layer_from_the_front(layer) for layer in layers}
        tokens = self.embed(images)
        found: dict[int, Tokens] = {}
        for number in range(max(places.values()) + 1):
            if number > 0:
                tokens = self.encoder.blocks[number - 1](tokens)
            found |= {layer: tokens for layer, place in places.items() if place == number}
        if -1 in found:
            found[-1] = self.encoder.norm(found[-1])
        return found

    def pooled(self, tokens: Tokens, pool: str = "mean") -> Float[Tensor, "b d *grid"]:
        """The mean over the patches without the class token (B, d), the class token with ``cls`` (B, d), or the patches
        in their places with ``grid`` (B, d, h, w)."""
        match pool:
            case "mean":
                return tokens[:, 1:].mean(1)
            case "cls":
                return tokens[:, 0]
            case "grid":
                return tokens[:, 1:].mT.unflatten(-1, self.config.grid)
        raise UserError(f"pool is {pool!r}; choose from 'mean', 'cls', 'grid'.")

    def layer_from_the_front(self, layer: int) -> int:
        """The layer number of ``features`` as 0 (the embedding) to L; an error if there is no such layer."""
        depth = self.config.depth
        if not -depth - 1 <= layer <= depth:
            raise UserError(f"there is no layer {layer} in {depth}; choose from {-depth - 1} to {depth}.")
        return layer % (depth + 1)

    def attention(self, images: Images, layer: int = -1) -> Float[Tensor, "b heads n n"]:
        """The attention maps of encoder layer 1 to L (-1 is the last), the class token in row and column 0."""
        return self.encoder.attention(self.embed(images), layer)

    # --- timm's verbs ---

    @property
    def num_features(self) -> int:
        """d, the width of a token."""
        return self.config.dim

    @property
    def num_classes(self) -> int:
        """Number of classes of the head; 0 if there is no head."""
        return 0

    def forward_features(self, images: Images) -> Tokens:
        """``encode``: all tokens, the class token first, after the final norm if there is one."""
        return self.encode(images)

    def forward_head(self, tokens: Tokens, pre_logits: bool = False) -> Float[Tensor, "b d"]:
        """The head applied to ``forward_features``; without a head, or with ``pre_logits``, the input of a head."""
        return self.pooled(tokens)

    def forward_intermediates(
        self,
        images: Images,
        indices: int | Sequence[int] | None = None,
        return_prefix_tokens: bool = False,
        norm: bool = False,
        stop_early: bool = False,
        output_fmt: str = "NCHW",
        intermediates_only: bool = False,
    ) -> Any:
        """``(forward_features, intermediates)``, or ``intermediates`` alone: the outputs of blocks, as timm gives them.

        ``indices`` are blocks counted from 0 or from the end, or a number n for the last n, or None for all; the
        output of block i is ``features``' layer i + 1. Each is the patches alone, (B, d, h, w) or for ``NLC``
        (B, N, d), and with ``return_prefix_tokens`` a pair of these and the class token (B, 1, d). ``norm`` applies the
        encoder's final norm to each. With ``stop_early`` no block runs after the last requested one, and the first
        element of the pair is the output of that block, after the final norm.
        """
        if output_fmt not in ("NCHW", "NLC"):
            raise UserError(f"output_fmt is {output_fmt!r}; choose from 'NCHW', 'NLC'.")
        layers = [index + 1 for index in sorted(_blocks(indices, self.config.depth))]
        found = self.layer_tokens(images, layers if stop_early else [*layers, -1])
        last = self.encoder.norm(found[layers[-1]]) if stop_early else found[-1]
        taken = [self.encoder.norm(found[layer]) if norm else found[layer] for layer in layers]
        patches = [self.pooled(each, "grid") if output_fmt == "NCHW" else each[:, 1:] for each in taken]
        pairs = [(places, each[:, :1]) for places, each in zip(patches, taken, strict=True)]
        intermediates = pairs if return_prefix_tokens else patches
        return intermediates if intermediates_only else (last, intermediates)

    def get_classifier(self) -> nn.Module:
        """The head; the identity if there is none."""
        return nn.Identity()

    def reset_classifier(self, num_classes: int) -> None:
        """A new head with random weights; only a classifier has one."""
        if num_classes != 0:
            raise UserError(
                f"an {self.kind} has no head to reset; crate_mae.Classifier.on(model, class_names) adds one."
            )

    def no_weight_decay(self) -> set[str]:
        """The parameters without weight decay: all except matrices, and position tables."""
        return {
            name
            for name, parameter in self.named_parameters()
            if parameter.ndim < 2 or name.endswith("positions.table")
        }

    # --- pictures ---

    def preprocess(self, image: Image.Image | str | Path) -> Float[Tensor, "c H W"]:
        """An image or an image file as the model's input: resized and normalised."""
        config = self.config
        pixels = image_tensors.planes(image_files.read(image), config.channels, config.image_size)
        image_tensors.normalise(pixels, config.mean, config.std, into=(result := torch.empty(pixels.shape)))
        return result

    def to_image(self, image: Tensor) -> Image.Image:
        """The inverse of ``preprocess`` up to size and rounding: a tensor (C, H, W) as a PIL image."""
        mean, std = image_tensors.statistics(self.config.mean, self.config.std, image)
        return image_tensors.from_tensor(image.detach() * std + mean)

    # --- files ---

    def extras(self) -> dict[str, Any]:
        """What the checkpoint records in addition to the configuration."""
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

    def forward(self, images: Images) -> Tokens:
        return self.encode(images)


def _blocks(indices: int | Sequence[int] | None, depth: int) -> set[int]:
    """Zero-based block indices from the forms that timm accepts."""
    if isinstance(indices, int):
        indices = range(depth - indices, depth) if 1 <= indices <= depth else [depth]
    wanted = range(depth) if indices is None else indices
    if not wanted or not all(-depth <= index < depth for index in wanted):
        raise UserError(
            f"indices is {indices!r}; this encoder has blocks {-depth} to {depth - 1}: give a list of them, a number n "
            f"for the last n, or None for all."
        )
    return {index % depth for index in wanted}


def final_norm(config: ModelConfig, dim: int) -> nn.Module | None:
    """The norm after the last layer of a stack, if the configuration has one."""
    return nn.LayerNorm(dim, eps=config.final_norm_eps) if config.final_norms else None
