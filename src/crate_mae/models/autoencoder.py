"""The masked autoencoder, for any family of blocks; the encoder sees all patches or the visible ones."""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property

import torch
from jaxtyping import Float
from torch import Tensor, nn

from crate_mae.errors import UserError
from crate_mae.models.config import ModelConfig
from crate_mae.models.embedding import Handover
from crate_mae.models.image_model import DECODER_BLOCKS, ImageModel, Images, final_norm
from crate_mae.models.initialise import initialise
from crate_mae.models.layouts import Weights, official_weights
from crate_mae.models.stack import Present, Stack, Step, Tokens
from crate_mae.tokens import Mask, MaskTensor, normalise_patches, patch_statistics, unpatchify


class MaskedAutoencoder(ImageModel):
    """g(f(Mask(X))), and its error on the masked patches (eq:mae_loss_unreg, restricted to them as in appendix B.1)."""

    kind = "autoencoder"

    def __init__(self, config: ModelConfig, generator: torch.Generator | None = None):
        super().__init__(config, masks=True)
        self.handover = Handover(config)
        blocks = (DECODER_BLOCKS[config.family](config) for _ in range(config.decoder_depth))
        self.decoder = Stack(blocks, final_norm(config, config.decoder_dim))
        self.pixels = nn.Linear(config.decoder_dim, config.patch_pixels, bias=config.pixel_bias)
        initialise(self, generator)

    def forward(self, images: Images, mask: MaskTensor | Mask) -> "Completion":
        """Complete normalised images whose patches are masked where ``mask``, (N,) or (B, N), is True."""
        patches = self.patches(images)
        checked = self._check(mask, images)
        latent = self.encoder(self.embedding(patches, checked), self._present(checked))
        prediction = self.decode(latent, checked)
        errors = (prediction - _targets(patches, self.config)).square().mean(-1)
        return Completion(checked.mean_over_masked(errors), errors, prediction, patches, checked, self.config)

    def embed(self, images: Images, mask: MaskTensor | None = None) -> Tokens:
        """Z^1, the input of the first layer: the class token, then all patches or the visible ones."""
        return self._enter(images, mask)[0]

    def encoder_steps(self, images: Images, mask: MaskTensor | None = None) -> Iterator[Step]:
        """``encoder.steps`` on images, masked or not."""
        return self.encoder.steps(*self._enter(images, mask))

    def decoder_steps(self, images: Images, mask: MaskTensor) -> Iterator[Step]:
        """``decoder.steps`` on the encoding of masked images."""
        return self.decoder.steps(self.hand_over(self.encode(images, mask), mask))

    def attention(
        self, images: Images, layer: int = -1, mask: MaskTensor | None = None
    ) -> Float[Tensor, "b heads n n"]:
        """The attention maps of encoder layer 1 to L (-1 is the last), the class token in row and column 0."""
        tokens, present = self._enter(images, mask)
        return self.encoder.attention(tokens, layer, present)

    def encode(self, images: Images, mask: MaskTensor | None = None) -> Tokens:
        """Z, (B, 1 + N, d) with the class token first, after the final norm if there is one.

        With a mask, the decoder's input: all tokens, or the class token and the visible patches in patch order. Images
        with fewer visible patches than others in the batch are padded.
        """
        return self.encoder(*self._enter(images, mask))

    def decode(self, latent: Tokens, mask: MaskTensor | Mask) -> Float[Tensor, "b N pixels"]:
        """g: the encoder's tokens back to the pixels of all patches; the class token is dropped at the end."""
        return self.pixels(self.decoder(self.hand_over(latent, mask))[:, 1:])

    def hand_over(self, latent: Tokens, mask: MaskTensor | Mask) -> Float[Tensor, "b m d_dec"]:
        """Y^0, the input of the decoder's first layer: all tokens, with mask tokens where the encoder saw no patch."""
        checked = self._check(mask, latent)
        seen = checked.index.shape[1] if self.config.encoder_sees == "visible" else self.num_patches
        if latent.shape[1] != 1 + seen:
            raise UserError(
                f"{latent.shape[1]} tokens do not fit this mask, which leaves {1 + seen} with the class token."
            )
        return self.handover(latent, checked)

    def complete(self, images: Images, mask: MaskTensor, original_known: bool = True) -> Float[Tensor, "b c H W"]:
        """The images with their masked patches filled in.

        A model trained on normalised targets predicts patches up to their mean and standard deviation. Both are taken
        from the masked patches in ``images``. With ``original_known=False`` these are not used: both are taken from the
        visible patches.
        """
        completion = self(images, mask)
        return completion.completed if original_known else completion.completed_blind

    def to_official(self) -> Weights:
        """A state dict that the authors' strict load accepts; an error if their layout can't represent this model."""
        return official_weights(self.config, self.state_dict())

    def _enter(self, images: Images, mask: MaskTensor | None) -> tuple[Tokens, Present]:
        checked = None if mask is None else self._check(mask, images)
        return self.embedding(self.patches(images), checked), self._present(checked)

    def _present(self, mask: Mask | None) -> Present:
        if mask is None or self.config.encoder_sees == "all" or mask.present is None:
            return None
        return nn.functional.pad(mask.present, (1, 0), value=True)

    def _check(self, mask: MaskTensor | Mask, batch: Tensor) -> Mask:
        return mask if isinstance(mask, Mask) else Mask.of(mask, batch.shape[0], self.num_patches, batch.device)


SMOOTH = 0.01
"""Added to a patch's variance, so that a patch of one colour has no infinite weight in ``detail_error``."""


@dataclass(frozen=True)
class Completion:
    """The autoencoder's output for masked images."""

    loss: Float[Tensor, ""]
    """Mean squared error over the masked patches; zero if none is masked."""
    errors: Float[Tensor, "b N"]
    """Mean squared error of every patch, against its target."""
    prediction: Float[Tensor, "b N pixels"]
    """The decoder's output for every patch, pixels in the order (row, column, channel)."""
    patches: Float[Tensor, "b N pixels"]
    """Every patch of the input."""
    mask: Mask
    config: ModelConfig

    @property
    def targets(self) -> Float[Tensor, "b N pixels"]:
        """What is predicted: the patches, normalised if the model is trained on normalised ones."""
        return _targets(self.patches, self.config)

    @property
    def image_errors(self) -> Float[Tensor, " b"]:
        """Mean squared error over the masked patches of each image; zero if none is masked."""
        return self.mask.mean_over_masked(self.errors, dim=-1)

    @property
    def detail_error(self) -> Float[Tensor, ""]:
        """The mean over the masked patches of |r - mean(r)|^2 / (var(x) + 0.01), with r the error of patch x.

        What is left of the error without the patch's mean colour, as a share of what there is to predict: a smooth
        patch counts as much as one of high contrast. Targets of ``norm_pix_loss`` do the same, but a model that is
        trained on them can't complete an image without its original.
        """
        error = self.prediction - self.targets
        share = error.var(-1, correction=0) / (self.targets.var(-1) + SMOOTH)
        return self.mask.mean_over_masked(share)

    @cached_property
    def completed(self) -> Float[Tensor, "b c H W"]:
        """The images with visible patches kept and masked ones predicted.

        Normalised predictions are rescaled with the mean and standard deviation of the original patches.
        """
        if not self.config.norm_pix_loss:
            return self._filled(self.prediction)
        mean, std = patch_statistics(self.patches)
        return self._filled(self.prediction * std + mean)

    @cached_property
    def completed_blind(self) -> Float[Tensor, "b c H W"]:
        """The same without using the masked patches: normalised predictions are rescaled with the average mean and
        standard deviation of each image's visible patches."""
        if not self.config.norm_pix_loss:
            return self.completed
        masked = self.mask.masked[..., None]
        mean, std = (
            torch.where(masked, 0, value).sum(1, keepdim=True) / (~masked).sum(1, keepdim=True)
            for value in patch_statistics(self.patches)
        )
        return self._filled(self.prediction * std + mean)

    @property
    def caption(self) -> str:
        """How ``completed`` was computed, if a caption should say so."""
        if not self.config.norm_pix_loss:
            return ""
        return "normalised predictions, rescaled with the mean and standard deviation of the original patches"

    def _filled(self, prediction: Float[Tensor, "b N pixels"]) -> Float[Tensor, "b c H W"]:
        filled = self.mask.replace(self.patches, prediction)
        return unpatchify(filled, self.config.patch_size, self.config.grid)


def _targets(patches: Float[Tensor, "b N pixels"], config: ModelConfig) -> Float[Tensor, "b N pixels"]:
    return normalise_patches(patches) if config.norm_pix_loss else patches
