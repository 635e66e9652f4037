"""Everything that a model's weights alone don't say."""

import math
from dataclasses import asdict, dataclass, fields
from difflib import get_close_matches
from typing import Any, Literal, get_args

from crate_mae.errors import UserError
from crate_mae.tokens import Size

Family = Literal["crate", "vit"]
Preset = Literal["paper", "official"]
Sees = Literal["all", "visible"]

LARGEST = 1_000_000  # of any size: beyond it lies a mistake, or a file made to fill the memory
IMAGENET_MEAN = (0.485, 0.456, 0.406)
IMAGENET_STD = (0.229, 0.224, 0.225)


@dataclass(frozen=True)
class ModelConfig:
    """The shape of a masked autoencoder and the points on which the paper and the authors' code differ.

    ``PRESETS`` sets those points for the white-box family; docs/paper-and-code.md has the table.
    """

    family: Family
    """Blocks of the white-box transformer (``crate``) or of the ordinary one (``vit``)."""
    dim: int
    """d, the width of a token in the encoder."""
    depth: int
    """L, the number of encoder layers."""
    heads: int
    """K, the number of subspaces, or of attention heads; each has d / K dimensions."""
    decoder_dim: int = 0
    """The decoder's width; 0 for the encoder's, as in the paper."""
    decoder_depth: int = 0
    """The decoder's number of layers; 0 for the encoder's."""
    decoder_heads: int = 0
    """The decoder's number of heads; 0 for the encoder's."""
    image_size: Size = (224, 224)
    """Height and width of an image in pixels; one number for a square."""
    patch_size: Size = (16, 16)
    """Height and width of a patch in pixels; one number for a square."""
    channels: int = 3
    """Channels of an image."""
    encoder_sees: Sees = "all"
    """``all`` tokens, with the masked ones blanked (the paper), or only the ``visible`` ones (He et al.)."""
    masked_patch: Literal["zero", "token"] = "zero"
    """What an encoder that sees all tokens gets for a masked patch: zero pixels or a learned token."""
    embed_bias: bool = False
    """Whether the patch embedding W^pre has a bias."""
    pixel_bias: bool = False
    """Whether the map back to pixels W^post has a bias."""
    positions: Literal["learned", "fixed"] = "learned"
    """A learned position for each patch, or a fixed table (sine-cosine unless imported)."""
    decoder_map: bool = False
    """A linear map between encoder and decoder even where their widths are equal."""
    final_norms: bool = False
    """A layer norm after the encoder and one after the decoder."""
    norm_eps: float = 1e-5
    """Epsilon of the layer norms in the blocks."""
    final_norm_eps: float = 1e-6
    """Epsilon of the two final layer norms."""
    sparsifier: Literal["ista", "alpha"] = "ista"
    """crate: one ISTA step in a square dictionary (the paper), or CRATE-alpha's two steps in an overcomplete one."""
    overcomplete: int = 4
    """crate: atoms of the dictionary over d; read by the ``alpha`` sparsifier alone."""
    encoder_skip: Literal["none", "relaxed", "added"] = "none"
    """crate: what the encoder layer keeps of its half step h beside the sparsified tokens s: nothing (the paper, s),
    a relaxed step ((1 - rho) h + rho s), or the sum (h + s)."""
    relaxation: float = 0.5
    """crate: rho of the relaxed step; read by ``encoder_skip="relaxed"`` alone."""
    decoder_skip: Literal["normed", "raw"] = "normed"
    """crate: the decoder layer's skip, ``LN(x) - MSSA(LN(x))`` or ``x - MSSA(LN(x))``."""
    mssa: Literal["listing", "tied"] = "listing"
    """crate: MSSA with a free output map as in the paper's listing, or tied as in its equation."""
    epsilon: float = 1.0
    """crate: the quantisation scale in p / (N epsilon^2); read by the tied MSSA alone."""
    lambda_: float = 0.5
    """crate: ISTA's threshold."""
    eta: float = 0.1
    """crate: ISTA's step."""
    mlp_ratio: float = 4.0
    """vit: hidden width of the MLP over d."""
    qkv_bias: bool = True
    """vit: whether queries, keys and values have a bias."""
    norm_pix_loss: bool = False
    """Targets are patches less their own mean over their own deviation."""
    mean: tuple[float, ...] = ()
    """Mean colour that was subtracted from the images; ImageNet's by default for 3 channels, 0.5 otherwise."""
    std: tuple[float, ...] = ()
    """Deviation by which the images were divided; ImageNet's by default for 3 channels, 0.5 otherwise."""
    preset: Preset | None = None
    """crate: the preset that this configuration started from."""

    def __post_init__(self) -> None:
        self._check_kinds()
        three = self.channels == 3
        settle = {
            "image_size": pair(self.image_size),
            "patch_size": pair(self.patch_size),
            "decoder_dim": self.decoder_dim or self.dim,
            "decoder_depth": self.decoder_depth or self.depth,
            "decoder_heads": self.decoder_heads or self.heads,
            "mean": tuple(self.mean) or (IMAGENET_MEAN if three else (0.5,) * self.channels),
            "std": tuple(self.std) or (IMAGENET_STD if three else (0.5,) * self.channels),
        }
        for name, value in settle.items():
            object.__setattr__(self, name, value)
        self._check_sizes()

    def _check_kinds(self) -> None:
        for name, kind in KINDS.items():
            value = getattr(self, name)
            if not isinstance(value, kind) or (isinstance(value, bool) and kind is not bool):
                raise UserError(f"{name} is {value!r}, which is not of the right kind.")
        for name, choices in CHOICES.items():
            if getattr(self, name) not in choices:
                raise UserError(f"{name} is {getattr(self, name)!r}; choose from {', '.join(map(repr, choices))}.")
        for name in ("dim", "depth", "heads", "channels"):
            if not 1 <= getattr(self, name) <= LARGEST:
                raise UserError(f"{name} is {getattr(self, name)}; choose a whole number from 1 up to {LARGEST:,}.")
        for name in ("decoder_dim", "decoder_depth", "decoder_heads"):
            if not 0 <= getattr(self, name) <= LARGEST:
                raise UserError(f"{name} is {getattr(self, name)}; choose 0 (the encoder's) or up to {LARGEST:,}.")
        for name in ("norm_eps", "final_norm_eps", "epsilon", "eta", "mlp_ratio", "relaxation", "overcomplete"):
            if not 0 < getattr(self, name) <= LARGEST:
                raise UserError(f"{name} is {getattr(self, name)}; choose a number above 0.")
        if not 0 <= self.lambda_ <= LARGEST:
            raise UserError(f"lambda_ is {self.lambda_}; choose a number from 0 up.")
        if self.relaxation > 1:
            raise UserError(f"relaxation is {self.relaxation}; choose a number above 0, and 1 at most.")
        for name in ("mean", "std"):
            if not all(isinstance(value, float | int) and math.isfinite(value) for value in getattr(self, name)):
                raise UserError(f"{name} is {getattr(self, name)!r}; give one finite number for each channel.")

    def _check_sizes(self) -> None:
        for side, of_image, of_patch in zip(("height", "width"), self.image_size, self.patch_size, strict=True):
            if of_patch < 1 or of_image % of_patch:
                raise UserError(
                    f"an image {side} of {of_image} pixels can't be cut into patches of {of_patch}; "
                    f"choose an image size that the patch size divides."
                )
        for dim, heads, where in [(self.dim, self.heads, ""), (self.decoder_dim, self.decoder_heads, "decoder_")]:
            if dim % heads:
                raise UserError(f"{where}heads={heads} does not divide {where}dim={dim}; choose a number that does.")
        for name in ("mean", "std"):
            if len(getattr(self, name)) != self.channels:
                raise UserError(f"{name} has {len(getattr(self, name))} numbers for {self.channels} channels.")
        if not all(value > 0 for value in self.std):
            raise UserError(f"std is {self.std}; every number in it must be above 0.")
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

    def to_dict(self) -> dict[str, Any]:
        """Plain values for JSON."""
        return {name: list(value) if isinstance(value, tuple) else value for name, value in asdict(self).items()}

    @classmethod
    def from_dict(cls, values: dict[str, Any]) -> "ModelConfig":
        """The inverse of ``to_dict``; missing and unknown fields are errors."""
        check_fields(values)
        if missing := KINDS.keys() - values:
            raise UserError(f"the model configuration lacks {', '.join(sorted(missing))}.")
        plain: dict[str, Any] = {name: tuple(v) if isinstance(v, list) else v for name, v in values.items()}
        return cls(**plain)


def check_fields(values: dict[str, Any]) -> None:
    """Reject a name that is no field of ``ModelConfig``, suggesting the one that was meant."""
    for name in values:
        if name not in KINDS:
            near = get_close_matches(name, KINDS, n=1)
            hint = f"did you mean {near[0]}?" if near else f"there are {', '.join(sorted(KINDS))}."
            raise UserError(f"a model has no setting {name}; {hint}")


def pair(size: int | Size) -> Size:
    """Height and width; one number stands for both."""
    sides = size if isinstance(size, tuple | list) else (size, size)
    if len(sides) != 2 or not all(isinstance(side, int) and 1 <= side <= LARGEST for side in sides):
        raise UserError(f"a size is one whole number or two (height, width), from 1 up to {LARGEST:,}, not {size!r}.")
    return sides[0], sides[1]


def _kind(annotation: Any) -> tuple[type, ...] | type:
    # A checkpoint's JSON and a person's words both come without types.
    if annotation is float:
        return (float, int)
    if annotation in (int, bool):
        return annotation
    if annotation in (Size, tuple[float, ...]):
        return (tuple, list, int) if annotation == Size else (tuple, list)
    return (str, type(None)) if type(None) in get_args(annotation) else str


KINDS = {field.name: _kind(field.type) for field in fields(ModelConfig)}
CHOICES = {
    field.name: tuple(choice for part in get_args(field.type) for choice in (get_args(part) or (part,)))
    for field in fields(ModelConfig)
    if field.type not in (Size, tuple[float, ...]) and get_args(field.type)
}
CHOICES["preset"] = ("paper", "official", None)

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
