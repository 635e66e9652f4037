"""What a run minimises: a module from a batch to a scalar, which the loop may distribute or compile."""

from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from jaxtyping import Bool, Float, Int, Shaped
from torch import Tensor, nn

from crate_mae.errors import UserError
from crate_mae.models.autoencoder import MaskedAutoencoder
from crate_mae.models.classifier import Classifier
from crate_mae.models.image_model import ImageModel


class Objective(nn.Module, ABC):
    """A model and its loss."""

    model: ImageModel
    measures: str
    """The loss of an evaluation in words, for the axis of a figure."""
    added: str = ""
    """What the loss of a training batch has on top of that, in words."""

    @abstractmethod
    def forward(self, images: Float[Tensor, "b c H W"], given: Shaped[Tensor, "b ..."]) -> Float[Tensor, ""]:
        """The mean loss over the batch, from its images and what is ``given`` with them (labels or masks)."""


class Completing(Objective):
    """The error of the completion on the masked patches, plus ``detail`` times the completion's ``detail_error``."""

    measures = "mean squared error on masked patches"

    def __init__(self, model: MaskedAutoencoder, detail: float = 0.0):
        super().__init__()
        self.model: MaskedAutoencoder = model
        self.detail = detail
        if detail:
            if model.config.patch_pixels < 2:
                raise UserError("detail needs patches of more than one number; choose a larger patch_size.")
            self.added = f"{detail:g} x detail error"

    def forward(self, images: Float[Tensor, "b c H W"], given: Bool[Tensor, "b n"]) -> Float[Tensor, ""]:
        completion = self.model(images, given)
        return completion.loss + self.detail * completion.detail_error if self.detail else completion.loss


class Classifying(Objective):
    """Cross entropy, with label smoothing and mixup if they are above 0.

    Mixup (Zhang et al., 2018): x = a x_i + (1 - a) x_j and the same for the labels, with a ~ Beta(mixup, mixup) drawn
    once for a batch, and j a permutation of it.
    """

    measures = "cross entropy, nats"

    def __init__(self, model: Classifier, mixup: float = 0.0, label_smoothing: float = 0.0):
        super().__init__()
        self.model: Classifier = model
        self.mixup, self.label_smoothing = mixup, label_smoothing

    def forward(self, images: Float[Tensor, "b c H W"], given: Int[Tensor, " b"]) -> Float[Tensor, ""]:
        labels = given.to(images.device, non_blocking=True)
        if not self.training or self.mixup == 0:
            return self._loss(self.model(images), labels)
        share = torch.distributions.Beta(self.mixup, self.mixup).sample().item()
        partner = torch.randperm(len(images)).to(images.device)
        scores = self.model(share * images + (1 - share) * images[partner])
        return share * self._loss(scores, labels) + (1 - share) * self._loss(scores, labels[partner])

    def _loss(self, scores: Float[Tensor, "b classes"], labels: Int[Tensor, " b"]) -> Float[Tensor, ""]:
        smoothing = self.label_smoothing if self.training else 0.0
        return F.cross_entropy(scores, labels, label_smoothing=smoothing)


def drop_path(model: ImageModel, rate: float) -> None:
    """Stochastic depth: while training, a sample skips encoder layer l of L with probability ``rate`` l / L.

    z' = z + (f(z) - z) b / (1 - p) with b ~ Bernoulli(1 - p) for each sample: f(z) on average. It is a hook around the
    layer, so that it works for every family of layers.
    """
    if rate == 0:
        return
    depth = len(model.encoder.blocks)
    for number, block in enumerate(model.encoder.blocks, start=1):
        block.register_forward_hook(_skip(rate * number / depth))


def _skip(rate: float) -> Callable[[nn.Module, tuple[Any, ...], Tensor], Tensor]:
    def hook(block: nn.Module, inputs: tuple[Any, ...], output: Tensor) -> Tensor:
        if not block.training:
            return output
        tokens = inputs[0]
        keep = (torch.rand(len(output), 1, 1) >= rate).to(output) / (1 - rate)
        return tokens + (output - tokens) * keep  # not lerp: under autocast a layer may change the precision

    return hook
