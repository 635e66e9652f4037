"""Everything about a model that its weights don't tell."""

from dataclasses import dataclass
from typing import Annotated, Any, ClassVar, Literal

from crate_mae.errors import UserError
from crate_mae.settings import ONE_FOR_BOTH, Range, Settings, Since, Size

Family = Literal["crate", "vit"]
Preset = Literal["paper", "official"]
Sees = Literal["all", "visible"]
Pool = Literal["mean", "cls"]
"""How an image's tokens are pooled: the mean over the patches, or the class token."""

LARGEST = 1_000_000  # a larger size is a mistake, or a file made to fill the memory
Count = Annotated[int, Range(least=1, most=LARGEST)]
CountOr0 = Annotated[int, Range(least=0, most=LARGEST)]
Positive = Annotated[float, Range(above=0, most=LARGEST)]
PixelSize = Annotated[Size, ONE_FOR_BOTH, Range(least=1, most=LARGEST)]

IMAGENET_MEAN = (0.485, 0.456, 0.406)
IMAGENET_STD = (0.229, 0.224, 0.225)
MOST_PATCHES = 2**18
"""The largest number of patches in an image. A position table of that size takes 1 GB for every 1,000 dimensions."""


@dataclass(frozen=True)
class ModelConfig(Settings):
    """The shape of a masked autoencoder and the points on which the paper and the authors' code differ.

    ``PRESETS`` sets those points for the white-box family; docs/paper-and-code.md has the table.
    """

    subject: ClassVar[str] = "a model"

    family: Family
    """Blocks of the white-box transformer (``crate``) or of the ordinary one (``vit``)."""
    dim: Count
    """d, the width of a token in the encoder."""
    depth: Count
    """L, the number of encoder layers."""
    heads: Count
    """K, the number of subspaces, or of attention heads; each has d / K dimensions."""
    decoder_dim: CountOr0 = 0
    """The decoder's width; 0 for the encoder's, as in the paper."""
    decoder_depth: CountOr0 = 0
    """The decoder's number of layers; 0 for the encoder's."""
    decoder_heads: CountOr0 = 0
    """The decoder's number of heads; 0 for the encoder's."""
    image_size: PixelSize = (224, 224)
    """Height and width of an image in pixels; one number for a square."""
    patch_size: PixelSize = (16, 16)
    """Height and width of a patch in pixels; one number for a square."""
    channels: Count = 3
    """Channels of an image."""
    encoder_sees: Sees = "all"
    """``all`` tokens, with the masked patches replaced (the paper), or only the ``visible`` ones (He et al.)."""
    masked_patch: Literal["zero", "token"] = "zero"
    """What an encoder that sees all tokens gets for a masked patch: zero pixels or a learned token."""
    embed_bias: bool = False
    """Whether the patch embedding W^pre has a bias."""
    pixel_bias: bool = False
    """Whether the map back to pixels W^post has a bias."""
    positions: Literal["learned", "fixed"] = "learned"
    """A learned position for each patch, or a fixed table (sine-cosine by default, or imported)."""
    decoder_map: bool = False
    """A linear map between encoder and decoder even if their widths are equal."""
    final_norms: bool = False
    """A layer norm after the encoder and one after the decoder."""
    norm_eps: Positive = 1e-5
    """Epsilon of the layer norms in the blocks."""
    final_norm_eps: Positive = 1e-6
    """Epsilon of the two final layer norms."""
    sparsifier: Annotated[Literal["ista", "alpha"], Since(2, before="ista")] = "ista"
    """crate: one ISTA step in a square dictionary (the paper), or CRATE-alpha's two steps in an overcomplete one."""
    overcomplete: Annotated[Count, Since(2, before=4)] = 4
    """crate: atoms of the dictionary divided by d; only the ``alpha`` sparsifier uses it."""
    encoder_skip: Annotated[Literal["none", "relaxed", "added"], Since(2, before="none")] = "none"
    """crate: what the encoder layer keeps of its half step h beside the sparsified tokens s: nothing (the paper, s),
    a relaxed step ((1 - rho) h + rho s), or the sum (h + s)."""
    relaxation: Annotated[float, Range(above=0, most=1), Since(2, before=0.5)] = 0.5
    """crate: rho of the relaxed step; only ``encoder_skip="relaxed"`` uses it."""
    decoder_skip: Literal["normed", "raw"] = "normed"
    """crate: the decoder layer's skip, ``LN(x) - MSSA(LN(x))`` or ``x - MSSA(LN(x))``."""
    mssa: Literal["listing", "tied"] = "listing"
    """crate: MSSA with a free output map as in the paper's listing, or tied as in its equation."""
    epsilon: Positive = 1.0
    """crate: the quantisation scale in p / (N epsilon^2); only the tied MSSA uses it."""
    lambda_: Annotated[float, Range(least=0, most=LARGEST)] = 0.5
    """crate: ISTA's threshold."""
    eta: Positive = 0.1
    """crate: ISTA's step size."""
    mlp_ratio: Positive = 4.0
    """vit: hidden width of the MLP divided by d."""
    qkv_bias: bool = True
    """vit: whether queries, keys and values have a bias."""
    norm_pix_loss: bool = False
    """Targets are patches minus their own mean, divided by their own standard deviation."""
    # Normalised pixels (x - mean) / std and their squares stay finite in float32.
    mean: Annotated[tuple[float, ...], Range(least=-LARGEST, most=LARGEST)] = ()
    """Mean of each channel, subtracted from the images; ImageNet's by default for 3 channels, 0.5 otherwise."""
    std: Annotated[tuple[float, ...], Range(least=1 / LARGEST, most=LARGEST)] = ()
    """Standard deviation of each channel, by which they are divided; ImageNet's by default for 3 channels, else 0.5."""
    preset: Preset | None = None
    """crate: the preset that this configuration started from."""

    def __post_init__(self) -> None:
        super().__post_init__()
        three = self.channels == 3
        derived = {
            "decoder_dim": self.decoder_dim or self.dim,
            "decoder_depth": self.decoder_depth or self.depth,
            "decoder_heads": self.decoder_heads or self.heads,
            "mean": self.mean or (IMAGENET_MEAN if three else (0.5,) * self.channels),
            "std": self.std or (IMAGENET_STD if three else (0.5,) * self.channels),
        }
        for name, value in derived.items():
            object.__setattr__(self, name, value)
        self._check_sizes()

    def _check_sizes(self) -> None:
        for side, of_image, of_patch in zip(("height", "width"), self.image_size, self.patch_size, strict=True):
            if of_image % of_patch:
                raise UserError(
                    f"an image {side} of {of_image} pixels can't be cut into patches of {of_patch}; "
                    f"choose an image size that the patch size divides."
                )
        if self.num_patches > MOST_PATCHES:
            raise UserError(
                f"an image size of {self.image_size} makes {self.num_patches:,} patches; choose a size that makes at "
                f"most {MOST_PATCHES:,}."
            )
        for dim, heads, where in [(self.dim, self.heads, ""), (self.decoder_dim, self.decoder_heads, "decoder_")]:
            if dim % heads:
                raise UserError(f"{where}heads={heads} does not divide {where}dim={dim}; choose a number that does.")
        for name in ("mean", "std"):
            if len(getattr(self, name)) != self.channels:
                raise UserError(f"{name} has {len(getattr(self, name))} numbers for {self.channels} channels.")
        if self.norm_pix_loss and self.patch_pixels < 2:
            raise UserError("norm_pix_loss needs patches of more than one number; choose a larger patch_size.")

    @property
    def grid(self) -> Size:
        """Patches down and across."""
        return self.image_size[0] // self.patch_size[0], self.image_size[1] // self.patch_size[1]

    @property
    def num_patches(self) -> int:
        """N."""
        return self.grid[0] * self.grid[1]

    @property
    def patch_pixels(self) -> int:
        """D, the numbers in a patch."""
        return self.patch_size[0] * self.patch_size[1] * self.channels


def pair(size: int | Size) -> Size:
    """Height and width; one number stands for both."""
    return ModelConfig.all()["image_size"].convert(size)


PRESETS: dict[Preset, dict[str, Any]] = {
    "paper": {
        "masked_patch": "zero",
        "embed_bias": False,
        "pixel_bias": False,
        "positions": "learned",
        "decoder_skip": "normed",
        "final_norms": False,
        "mssa": "listing",
    },
    "official": {
        "masked_patch": "token",
        "embed_bias": True,
        "pixel_bias": True,
        "positions": "fixed",
        "decoder_skip": "raw",
        "final_norms": True,
        "mssa": "listing",
    },
}
"""The white-box family's two readings: the paper's text, and the authors' public code."""
