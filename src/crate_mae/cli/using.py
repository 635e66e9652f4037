"""Verbs that put a trained model to use: exporting it, embedding images, completing pictures."""

from pathlib import Path
from typing import Literal

import tyro

from crate_mae.errors import UserError


def export(
    checkpoint: tyro.conf.Positional[Path],
    onnx: Path | None = None,
    torch: Path | None = None,
    part: Literal["encoder", "autoencoder", "classifier"] | None = None,
    image_size: int | tuple[int, int] | None = None,
) -> None:
    """Write a model for programs without crate-mae: ONNX, or PyTorch's exported program; any batch size.

    Inputs and outputs, by part: encoder from images to tokens, the class token first; autoencoder from images and mask
    to completed images and the prediction of every patch; classifier from images to scores. Images are normalised by
    the mean and std in the file's metadata, where the image size, the patch size and the class names are too. The file
    is compared with the model before it takes its name.

    Args:
        checkpoint: A checkpoint folder, or a run folder.
        onnx: Write this ONNX file.
        torch: Write this .pt2 file, for torch.export.load.
        part: The encoder alone, or all of the checkpoint (the default).
        image_size: Another image size than the checkpoint's, with the positions interpolated.
    """
    from crate_mae.export import OPSET, to_onnx, to_torch
    from crate_mae.models.zoo import load

    if onnx is None and torch is None:
        raise UserError("say what to write: --onnx FILE.onnx, --torch FILE.pt2, or both.")
    model = load(checkpoint, image_size)
    what = part or model.kind
    if onnx:
        difference = to_onnx(model, onnx, part)
        print(f"Wrote {onnx}: the {what}, opset {OPSET}; in onnxruntime it differs by at most {difference:.1e}.")
    if torch:
        difference = to_torch(model, torch, part)
        print(f"Wrote {torch}: the {what}; loaded again it differs by at most {difference:.1e}.")
