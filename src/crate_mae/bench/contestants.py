"""The contestants: this project, the paper's listing, and transformers' models, each with the same images."""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property
from importlib.util import find_spec
from typing import Any

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from crate_mae import torchvision_fix  # noqa: F401  before transformers
from crate_mae.bench.listing import listing_of
from crate_mae.models.architectures import model_config
from crate_mae.models.autoencoder import MaskedAutoencoder
from crate_mae.models.config import ModelConfig
from crate_mae.models.stack import Tokens
from crate_mae.planning.cost import Pass
from crate_mae.recipes import tiny_imagenet_cpu
from crate_mae.tokens import masked_count, random_mask
from crate_mae.training.objectives import Completing
from crate_mae.training.optim import adamw

OURS, LISTING, TRANSFORMERS = "crate-mae", "listing", "transformers"
MISSING = "not run: pip install 'crate-mae[bench]' installs transformers"


@dataclass(frozen=True)
class Work:
    """A model's shape, and images and masks of it: the same for every contestant."""

    config: ModelConfig
    batch: int
    mask_ratio: float = 0.75

    def __str__(self) -> str:
        c = self.config
        tokens = f"{1 + c.num_patches} tokens"
        if c.encoder_sees == "visible":
            tokens = f"{1 + c.num_patches - masked_count(c.num_patches, self.mask_ratio)} of {tokens}"
        return f"d {c.dim}, {c.depth}+{c.decoder_depth} layers, {tokens}, batch {self.batch}"

    def to_dict(self) -> dict[str, Any]:
        """For another process, which calls ``from_dict``."""
        return {"config": self.config.to_dict(), "batch": self.batch, "mask_ratio": self.mask_ratio}

    @staticmethod
    def from_dict(asked: Mapping[str, Any]) -> "Work":
        """The inverse of ``to_dict``."""
        return Work(ModelConfig.from_dict(asked["config"]), asked["batch"], asked["mask_ratio"])

    @cached_property
    def images(self) -> Float[Tensor, "b c H W"]:
        """Standard normal images."""
        shape = (self.batch, self.config.channels, *self.config.image_size)
        return torch.randn(shape, generator=torch.Generator().manual_seed(0))

    @cached_property
    def masks(self) -> Bool[Tensor, "b N"]:
        """A random mask for each image."""
        generator = torch.Generator().manual_seed(1)
        return random_mask(self.batch, self.config.num_patches, self.mask_ratio, generator)

    @property
    def step_flops(self) -> int:
        """FLOPs of the matrix products of one training step with ISTA folded, forward and backward."""
        return Pass(self.config, self.batch, self.mask_ratio).step_flops(gradient_checkpointing=False)

    def model(self) -> MaskedAutoencoder:
        """Our model with random weights; the same at every call."""
        return MaskedAutoencoder(self.config, torch.Generator().manual_seed(2))


BASE = model_config("crate_mae_base")
SHALLOW = model_config("crate_mae_base", depth=4, decoder_depth=4)
"""Base with a third of its layers, for --quick."""
CPU_SIZED = model_config("crate_mae_tiny", dim=192, depth=6, heads=6, image_size=(32, 32), patch_size=(4, 4))
"""d 192, 6 + 6 layers, 65 tokens."""
DESK_RUN = tiny_imagenet_cpu()
"""The run that trained crate-photos, the model that comes with the package."""


@dataclass(frozen=True)
class Trainee:
    """A training step: forward, backward, AdamW."""

    loss: Callable[[], Tensor]
    optimiser: torch.optim.Optimizer

    def __call__(self) -> None:
        self.loss().backward()
        self.optimiser.step()
        self.optimiser.zero_grad()


def ours(work: Work) -> Trainee:
    """A training step of this project's runs."""
    objective = Completing(work.model())
    given = work.images, work.masks
    optimiser = adamw(objective.model, learning_rate=1e-4, weight_decay=0.05)
    return Trainee(lambda: objective(*given), optimiser)


def listing(work: Work) -> Trainee:
    """The listing as a reader would train it: PyTorch's AdamW with default options."""
    model, given = listing_of(work.model()), (work.images, work.masks)
    optimiser = torch.optim.AdamW(model.parameters(), lr=1e-4, betas=(0.9, 0.95), weight_decay=0.05)
    return Trainee(lambda: model(*given), optimiser)


def transformers_model(c: ModelConfig, seed: int, mask_ratio: float = 0.75) -> Any:
    """transformers' ViTMAE for the same images, of the shape of ``he_mae``."""
    from transformers import ViTMAEConfig, ViTMAEForPreTraining

    he = he_mae(c)
    config = ViTMAEConfig(
        **_shape(c),
        decoder_hidden_size=he.decoder_dim,
        decoder_num_hidden_layers=he.decoder_depth,
        decoder_num_attention_heads=he.decoder_heads,
        decoder_intermediate_size=4 * he.decoder_dim,
        mask_ratio=mask_ratio,
    )
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        return ViTMAEForPreTraining(config).train()


def _shape(c: ModelConfig) -> dict[str, Any]:
    """The images and the encoder in transformers' terms."""
    return {
        "hidden_size": c.dim,
        "num_hidden_layers": c.depth,
        "num_attention_heads": c.heads,
        "intermediate_size": 4 * c.dim,
        "image_size": c.image_size[0],
        "patch_size": c.patch_size[0],
        "num_channels": c.channels,
    }


def he_mae(config: ModelConfig) -> ModelConfig:
    """Our ViT-MAE for the same images, with an encoder of the same shape.

    The decoder has the configuration's decoder sizes if these differ from the encoder's. If they are equal, as in the
    paper, it is two thirds as wide and as deep as the encoder; at Base that is He et al.'s decoder.
    """
    dim = 2 * config.dim // 3
    decoder: dict[str, Any] = {
        "decoder_dim": dim,
        "decoder_depth": max(2 * config.depth // 3, 1),
        "decoder_heads": config.heads if dim % 16 else 16,
    }
    if (config.decoder_dim, config.decoder_depth) != (config.dim, config.depth):
        decoder = {name: getattr(config, name) for name in decoder}
    return model_config(
        "vit_mae_base_he",
        dim=config.dim,
        depth=config.depth,
        heads=config.heads,
        **decoder,
        **{name: getattr(config, name) for name in ("image_size", "patch_size", "channels", "mean", "std")},
    )


def transformers_mae(work: Work) -> Trainee:
    """transformers' ViTMAE with the fused AdamW, the default of its Trainer."""
    model, images = transformers_model(work.config, 2, work.mask_ratio), work.images
    optimiser = torch.optim.AdamW(model.parameters(), lr=1e-4, betas=(0.9, 0.95), weight_decay=0.05, fused=True)
    return Trainee(lambda: model(images).loss, optimiser)


TRAINEES: dict[str, Callable[[Work], Trainee]] = {OURS: ours, LISTING: listing, TRANSFORMERS: transformers_mae}


def has_transformers() -> bool:
    """Whether transformers is installed."""
    return find_spec("transformers") is not None


def installed(names: Iterable[str]) -> list[str]:
    """The contestants whose packages are installed."""
    return [name for name in names if name != TRANSFORMERS or has_transformers()]


def our_encoder(work: Work) -> Callable[[], Tokens]:
    """From images to the encoder's tokens, for features."""
    model = work.model().eval()
    return lambda: model.encode(work.images)


def listing_encoder(work: Work) -> Callable[[], Tokens]:
    """The same by the listing."""
    model = listing_of(work.model()).eval()
    return lambda: model.encode(model.patchify(work.images))


def transformers_encoder(work: Work) -> Callable[[], Tokens]:
    """The same by transformers' ViT of this shape."""
    from transformers import ViTConfig, ViTModel

    model = ViTModel(ViTConfig(**_shape(work.config)), add_pooling_layer=False).eval()
    return lambda: model(work.images).last_hidden_state


ENCODERS: dict[str, Callable[[Work], Callable[[], Tokens]]] = {
    OURS: our_encoder,
    LISTING: listing_encoder,
    TRANSFORMERS: transformers_encoder,
}
