"""Verbs for models and their files: list, convert, export, push."""

from pathlib import Path
from typing import Annotated, Literal

import tyro

from crate_mae.cli.arguments import Checkpoint
from crate_mae.errors import UserError

SHOWN = 2
"""Numbers of a shipped model in the list."""


def models() -> None:
    """List the models that come with the package, and the architectures by name, with sizes and parameters."""
    from crate_mae.models.architectures import ZOO
    from crate_mae.models.zoo import parameter_counts

    list_shipped()
    print("Architectures, for crate_mae.create_model and --set model=, with random weights:\n")
    line = "{:<25}{:<11}{:<11}{:<8}{:>12}{:>13}".format
    print(line("model", "encoder", "decoder", "sees", "parameters", "authors'"))
    for name in ZOO:
        config, own, theirs = parameter_counts(name)
        encoder = f"{config.dim}x{config.depth}/{config.heads}"
        decoder = f"{config.decoder_dim}x{config.decoder_depth}/{config.decoder_heads}"
        print(line(name, encoder, decoder, config.encoder_sees, f"{own:,}", f"{theirs:,}" if theirs else "-"))
    print(
        "\nencoder, decoder: dim x depth / heads. sees: what the encoder sees of a masked image.\n"
        "parameters: all are trainable and used. authors': the count in the authors' layout (Table 1), which adds\n"
        "fixed position tables and, for CRATE, the official preset's biases and norms and a layer that is never used."
    )


def list_shipped() -> None:
    """Print the models that come with the package."""
    from crate_mae.models.locate import WEIGHTS
    from crate_mae.models.shipped import DEFAULT, ROOT, ShippedRecord, shipped_names

    if not shipped_names():
        return
    print("Pretrained models that come with crate-mae, for crate_mae.load and --checkpoint:\n")
    for name in shipped_names():
        record, size = ShippedRecord.read(ROOT / name), (ROOT / name / WEIGHTS).stat().st_size
        print(f"{name}{' (the default)' if name == DEFAULT else ''}: {record.form}, {record.shape}")
        print(f"    {record.parameters:,} parameters, {size / 1e6:.1f} MB; trained on {record.data}")
        for number in record.numbers[:SHOWN]:
            print(f"    {number.what}: {number.value}")
    print()


def convert(
    file: tyro.conf.Positional[Path],
    from_: Annotated[Literal["official", "mae"], tyro.conf.arg(name="from")],
    out: Path,
    *,
    image_size: int | tuple[int, int] | None = None,
    heads: int | None = None,
    decoder_heads: int | None = None,
    lambda_: Annotated[float | None, tyro.conf.arg(name="lambda")] = None,
    eta: float | None = None,
    norm_eps: float | None = None,
    norm_pix_loss: bool | None = None,
) -> None:
    """Turn another project's weights into a checkpoint folder.

    Args:
        file: The weights: .pth, .pt, .bin or .safetensors, a training checkpoint, or a transformers folder.
        from_: official for the authors' CRATE-MAE, mae for He et al.'s or transformers' ViT-MAE.
        out: Folder for the checkpoint.
        image_size: One number, or height and width; positions are interpolated if it is not the file's size.
        heads: Heads of the encoder, if they don't follow from the model's size.
        decoder_heads: mae: heads of the decoder.
        lambda_: official: ISTA's threshold (0.5 in the authors' code).
        eta: official: ISTA's step size (0.1 in the authors' code).
        norm_eps: mae: epsilon of the layer norms.
        norm_pix_loss: Whether the model was trained on normalised targets, if the file does not say.
    """
    own = {"official": {"lambda": lambda_, "eta": eta}, "mae": {"decoder-heads": decoder_heads, "norm-eps": norm_eps}}
    other: Literal["official", "mae"] = "mae" if from_ == "official" else "official"
    for name, value in own[other].items():
        if value is not None:
            raise UserError(f"--{name} goes with --from {other}, not with --from {from_}.")

    from crate_mae.models.convert import from_official, from_vit_mae

    if from_ == "official":
        scales = {"lambda_": lambda_, "eta": eta}
        given = {name: value for name, value in scales.items() if value is not None}
        model = from_official(file, image_size, heads, norm_pix_loss=bool(norm_pix_loss), **given)
    else:
        model = from_vit_mae(file, image_size, heads, decoder_heads, norm_eps, norm_pix_loss)
    print(f"Wrote {model.save(out)}: an {model.kind} of {model.num_parameters:,} parameters.")


def export(
    checkpoint: tyro.conf.Positional[Checkpoint],
    onnx: Path | None = None,
    torch: Path | None = None,
    part: Literal["encoder", "autoencoder", "classifier"] | None = None,
    image_size: int | tuple[int, int] | None = None,
) -> None:
    """Write a model for programs without crate-mae: ONNX, or PyTorch's exported program; any batch size.

    Inputs and outputs, by part: encoder from images to tokens, the class token first; autoencoder from images and mask
    to completed images and the prediction of every patch; classifier from images to scores. Images are normalised by
    the mean and std in the file's metadata, which also has the image size, the patch size and the class names. The file
    is compared with the model before it is renamed to its final name.

    Args:
        onnx: Write this ONNX file.
        torch: Write this .pt2 file, for torch.export.load.
        part: The encoder alone, or all of the checkpoint (the default).
        image_size: Export for this image size in place of the checkpoint's; positions are interpolated.
    """
    if onnx is None and torch is None:
        raise UserError("say what to write: --onnx FILE.onnx, --torch FILE.pt2, or both.")
    for option, path, suffix in (("--onnx", onnx, ".onnx"), ("--torch", torch, ".pt2")):
        if path is not None and (path.suffix.lower() != suffix or path.is_dir()):
            raise UserError(f"{option} {path} must be the name of a file that ends in {suffix}.")

    from crate_mae.export import OPSET, to_onnx, to_torch
    from crate_mae.models.zoo import load

    model = load(checkpoint, image_size)
    what = part or model.kind
    if onnx:
        difference = to_onnx(model, onnx, part)
        print(f"Wrote {onnx}: the {what}, opset {OPSET}; in onnxruntime it differs by at most {difference:.1e}.")
    if torch:
        difference = to_torch(model, torch, part)
        print(f"Wrote {torch}: the {what}; loaded again it differs by at most {difference:.1e}.")


def push(
    checkpoint: tyro.conf.Positional[Checkpoint],
    name: tyro.conf.Positional[str],
    private: bool = False,
    license: str = "mit",
) -> None:
    """Upload a model to the Hugging Face Hub, with a model card made from its run folder.

    The token is the one that `hf auth login` stores, or HF_TOKEN.

    Args:
        name: Its name on the Hub, as owner/name; an existing repository gets a new commit, with a new card.
        private: Make a new repository private.
        license: The licence of the weights, by the Hub's short name.
    """
    from crate_mae.hub.run_record import run_of
    from crate_mae.models.zoo import load

    about = {"run": run_of(checkpoint), "license": license}
    print(f"Pushed {load(checkpoint).push_to_hub(name, private=private, model_card_kwargs=about)}")
