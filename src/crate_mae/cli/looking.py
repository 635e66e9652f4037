"""Verbs that show: the demo, the models, what is inside them, the theory, the paper's tables and figures."""

from pathlib import Path
from typing import Annotated, Literal

import tyro

from crate_mae.cli.words import checked_seed
from crate_mae.device import Device, pick_device
from crate_mae.errors import UserError


def demo(out: Path = Path("runs/demo"), steps: int = 1500, seed: int = 0, device: Device = "auto") -> None:
    """Pretrain a small CRATE-MAE on scikit-learn's digits and write a report: no download, a minute or two.

    Args:
        out: Folder for the checkpoint, the pictures and report.html.
        steps: Training steps.
        seed: Seed of the weights, the batches, the masks and the split.
        device: Where to compute; auto takes a GPU where there is one.
    """
    from rich.console import Console

    from crate_mae.demo import run

    if steps < 1:
        raise UserError(f"--steps is {steps}; choose a whole number from 1 up.")
    run(out, steps, checked_seed(seed), device, Console())


def models() -> None:
    """List the models by name, with their sizes and parameters."""
    from crate_mae.models.zoo import ZOO, parameter_counts

    line = "{:<24}{:<11}{:<11}{:<8}{:>12}{:>13}".format
    print(line("model", "encoder", "decoder", "sees", "parameters", "authors'"))
    for name in ZOO:
        config, own, theirs = parameter_counts(name)
        encoder = f"{config.dim}x{config.depth}/{config.heads}"
        decoder = f"{config.decoder_dim}x{config.decoder_depth}/{config.decoder_heads}"
        print(line(name, encoder, decoder, config.encoder_sees, f"{own:,}", f"{theirs:,}" if theirs else "-"))
    print(
        "\nencoder, decoder: dim x depth / heads. sees: what the encoder sees of a masked image.\n"
        "parameters: all trainable, all used. authors': the count in the authors' layout (Table 1), which adds fixed\n"
        "position tables and, for CRATE, the official preset's biases, norms and a map that is never used."
    )


def inspect(
    checkpoint: tyro.conf.Positional[Path],
    data: str,
    data_root: Path | None = None,
    split: Literal["train", "val", "test"] = "test",
    images: int = 256,
    mask_ratio: float = 0.75,
    layer: int | None = None,
    threshold: float = 0.5,
    seed: int = 0,
    out: Path = Path("runs/inspect"),
    device: Device = "auto",
) -> None:
    """Look inside every layer of a model: rates, sparsity, angles, subspaces, attention, components, completions.

    Args:
        checkpoint: A checkpoint folder, or a run folder.
        data: A name (digits, cifar10, cifar100, flowers102, oxford_pets, imagenette, imagenet), a folder or shards.
        data_root: Where named sets are; data/ unless given.
        split: Which images.
        images: How many of them, drawn at random.
        mask_ratio: Share of the patches masked where the decoder is measured.
        layer: Encoder layer of the attention maps and the components, from 1; the last but one unless given.
        threshold: Patches below it in the first component are background; in root mean squares of that component.
        seed: Seed of the choice of images and of the masks.
        out: Folder for report.html, its pictures and inspect.json.
        device: Where to compute; auto takes a GPU where there is one.
    """
    from rich.console import Console

    from crate_mae.inspection.command import run
    from crate_mae.inspection.measure import Settings

    settings = Settings(data, data_root, split, images, mask_ratio, layer, threshold, checked_seed(seed))
    run(checkpoint, settings, out, pick_device(device), Console())


def convert(
    file: tyro.conf.Positional[Path],
    from_: Annotated[Literal["official", "mae"], tyro.conf.arg(name="from")],
    out: Path,
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
        image_size: Height and width where they are not equal; another size than the file's interpolates the positions.
        heads: Heads of the encoder, where the size alone does not tell.
        decoder_heads: mae: heads of the decoder.
        lambda_: official: ISTA's threshold (0.5 in the authors' code).
        eta: official: ISTA's step (0.1 in the authors' code).
        norm_eps: mae: epsilon of the norms.
        norm_pix_loss: Whether the model was trained on normalised targets, where its configuration does not tell.
    """
    from crate_mae.models.convert import from_official, from_vit_mae

    own = {"official": {"lambda": lambda_, "eta": eta}, "mae": {"decoder-heads": decoder_heads, "norm-eps": norm_eps}}
    other: Literal["official", "mae"] = "mae" if from_ == "official" else "official"
    for name, value in own[other].items():
        if value is not None:
            raise UserError(f"--{name} goes with --from {other}, not with --from {from_}.")
    if from_ == "official":
        scales = {"lambda_": lambda_, "eta": eta}
        given = {name: value for name, value in scales.items() if value is not None}
        model = from_official(file, image_size, heads, norm_pix_loss=bool(norm_pix_loss), **given)
    else:
        model = from_vit_mae(file, image_size, heads, decoder_heads, norm_eps, norm_pix_loss)
    print(f"Wrote {model.save(out)}: an {model.kind} of {model.num_parameters:,} parameters.")


def theory(out: Path = Path("runs/theory"), seed: int = 0) -> None:
    """Check the paper's theory claim by claim: a table, theory.json and figures, in a minute or two.

    A claim that does not hold as the text states it is a finding and is printed as one.

    Args:
        out: Folder for theory.json and the figures.
        seed: Seed of every check.
    """
    from rich.console import Console

    from crate_mae.theory.command import run

    run(out, checked_seed(seed), Console())


def reproduce(
    what: tyro.conf.Positional[str],
    scale: Literal["desk", "full"] = "desk",
    data_root: Path | None = None,
    seeds: int = 3,
    out: Path = Path("runs/reproduce"),
    processes: int | None = None,
    device: Device = "auto",
) -> None:
    """Make a table or a figure of the paper: its numbers and ours side by side.

    What has to be trained is trained once, kept in OUT/models, and shared by all tables and figures. Stop it at any
    time: the same command goes on from there.

    Args:
        what: table1 .. table6, figure1 .. figure11, all; or list, which names them.
        scale: desk for small models on a CPU, full for the paper's recipe on a cluster.
        data_root: Where cifar10, cifar100, flowers102, oxford_pets and imagenet are; digits are always there.
        seeds: Models of each kind; mean and spread are over them.
        out: Folder for the models and for CSV, JSON, Markdown and PNG of each item.
        processes: Trainings side by side, of one thread each; one for each processor, or just one on a GPU.
        device: Where to compute; auto takes a GPU where there is one.
    """
    from rich.console import Console

    from crate_mae.reproduce.command import run
    from crate_mae.reproduce.models import SCALES
    from crate_mae.reproduce.tasks import Place

    if seeds < 1:
        raise UserError(f"--seeds is {seeds}; choose a whole number from 1 up.")
    if processes is not None and processes < 1:
        raise UserError(f"--processes is {processes}; choose a whole number from 1 up.")
    run(what, Place(out, SCALES[scale](), data_root, device), seeds, processes, Console())
