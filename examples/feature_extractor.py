"""A model as a feature extractor in the manner of transformers: a processor, a model, ``last_hidden_state``.

    python examples/feature_extractor.py photo.jpg                 # a tiny model with random weights
    python examples/feature_extractor.py photo.jpg runs/demo       # a run, a checkpoint folder, or a name on the Hub

Code written for transformers' ViT needs these two classes; transformers itself is not used.
"""

import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

import torch
from PIL import Image
from torch import Tensor, nn

import crate_mae


@dataclass(frozen=True)
class Processor:
    """Images to ``pixel_values``, like ViTImageProcessor."""

    model: crate_mae.ImageModel

    def __call__(self, images: Image.Image | str | Path | Sequence, return_tensors: str = "pt") -> dict[str, Tensor]:
        several = images if isinstance(images, list | tuple) else [images]
        return {"pixel_values": torch.stack([self.model.preprocess(image) for image in several])}


@dataclass(frozen=True)
class Output:
    """Like BaseModelOutputWithPooling."""

    last_hidden_state: Tensor
    """(B, 1 + N, d), the class token first."""
    pooler_output: Tensor
    """(B, d), the mean over the patches."""
    hidden_states: tuple[Tensor, ...] | None
    """What enters the first layer, and what each layer gives."""


class Extractor(nn.Module):
    """The encoder of any model of this package, like ViTModel."""

    def __init__(self, model: crate_mae.ImageModel):
        super().__init__()
        self.model = model

    @classmethod
    def from_pretrained(cls, name_or_path: str | Path) -> "Extractor":
        return cls(crate_mae.ImageModel.from_pretrained(name_or_path))

    def forward(self, pixel_values: Tensor, output_hidden_states: bool = False) -> Output:
        last, layers = self.model.forward_intermediates(pixel_values, output_fmt="NLC", return_prefix_tokens=True)
        states = (self.model.embed(pixel_values), *(torch.cat([prefix, patches], 1) for patches, prefix in layers))
        return Output(last, self.model.forward_head(last, pre_logits=True), states if output_hidden_states else None)


def main(photo: str, checkpoint: str | None) -> None:
    with TemporaryDirectory() as folder:
        if checkpoint is None:
            tiny = crate_mae.create_model("crate_mae_tiny", image_size=32, patch_size=8, depth=4)
            tiny.save_pretrained(folder)
        extractor = Extractor.from_pretrained(checkpoint or folder)
    processor = Processor(extractor.model)
    with torch.no_grad():
        output = extractor(**processor(Image.open(photo), return_tensors="pt"), output_hidden_states=True)
    print("last_hidden_state", tuple(output.last_hidden_state.shape))
    print("pooler_output", tuple(output.pooler_output.shape))
    print("hidden_states", len(output.hidden_states), "of", tuple(output.hidden_states[0].shape))


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2] if len(sys.argv) > 2 else None)
