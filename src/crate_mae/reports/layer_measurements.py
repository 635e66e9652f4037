"""What every layer of one model does, measured batch by batch."""

from dataclasses import dataclass

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from crate_mae.analysis.layerwise import LayerCurves, LayerWatch
from crate_mae.analysis.subspaces import Incoherence, incoherence
from crate_mae.analysis.undoing import Undoing, UndoingWatch, why_not_undoing
from crate_mae.models.autoencoder import MaskedAutoencoder
from crate_mae.models.image_model import ImageModel

NO_DECODER = "the checkpoint holds no decoder"


@dataclass(frozen=True)
class LayerMeasurements:
    """Measurements of every layer; a string in place of one says why it is missing."""

    encoder: LayerCurves
    decoder: LayerCurves | str
    encoder_subspaces: Incoherence | str
    decoder_subspaces: Incoherence | str
    undoing: Undoing | str


class LayerMeter:
    """Gathers the ``LayerMeasurements`` of a model, one batch at a time."""

    def __init__(self, model: ImageModel):
        self.model = model
        self.autoencoder = model if isinstance(model, MaskedAutoencoder) else None
        self._encoder = LayerWatch(model.encoder)
        self._decoder = LayerWatch(self.autoencoder.decoder) if self.autoencoder else None
        self._not_undoing = why_not_undoing(self.autoencoder) if self.autoencoder else NO_DECODER
        self._undoing = UndoingWatch(self.autoencoder) if self.autoencoder and not self._not_undoing else None

    @torch.no_grad()
    def add(self, images: Float[Tensor, "b c H W"], masks: Bool[Tensor, "b N"]) -> None:
        """A batch of normalised images, and the masks with which the decoder is measured."""
        embedded = self.model.embed(images)
        self._encoder.add(embedded)
        if self.autoencoder and self._decoder:
            self._decoder.add(self.autoencoder.hand_over(self.autoencoder.encode(images, masks), masks))
        if self._undoing:
            self._undoing.add(embedded)

    def result(self) -> LayerMeasurements:
        """The measurements over all batches so far."""
        return LayerMeasurements(
            self._encoder.curves(),
            self._decoder.curves() if self._decoder else NO_DECODER,
            incoherence(self.model.encoder),
            incoherence(self.autoencoder.decoder) if self.autoencoder else NO_DECODER,
            self._undoing.undoing() if self._undoing else str(self._not_undoing),
        )
