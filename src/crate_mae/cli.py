"""The command line: a table from verb to typed function. Nothing heavy is imported before a verb runs."""

import os
import sys
import warnings
from collections.abc import Callable, Sequence
from difflib import get_close_matches
from pathlib import Path
from typing import Annotated, Literal

import tyro

from crate_mae.device import Device, pick_device
from crate_mae.errors import UserError


def demo(out: Path = Path("runs/demo"), steps: int = 2500, seed: int = 0, device: Device = "auto") -> None:
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
    run(out, steps, _seed(seed), device, Console())


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


def complete(
    image: tyro.conf.Positional[Path],
    checkpoint: Path,
    out: Path,
    mask_ratio: float = 0.75,
    seed: int = 0,
    device: Device = "auto",
) -> None:
    """Mask a picture, complete it, and draw masked, completed and original side by side.

    Args:
        image: The picture; it is resized to the model's size.
        checkpoint: A checkpoint folder, or a run folder.
        out: Where to write the PNG.
        mask_ratio: Share of the patches to mask.
        seed: Seed of the mask.
        device: Where to compute; auto takes a GPU where there is one.
    """
    import torch

    from crate_mae import figures
    from crate_mae.analysis.completion import completion_panels
    from crate_mae.models.zoo import load_autoencoder
    from crate_mae.tokens import random_mask

    target = pick_device(device)
    model = load_autoencoder(checkpoint).to(target)
    pixels = model.preprocess(image)[None].to(target)
    mask = random_mask(1, model.num_patches, mask_ratio, generator=torch.Generator().manual_seed(_seed(seed)))
    panels = completion_panels(model, pixels, mask)
    masked = int(mask.sum())
    title = "\n".join(filter(None, [f"{masked} of {model.num_patches} patches masked", panels.caption]))
    figure = figures.completions(panels.masked, panels.completed, panels.original, panels.errors, title)
    try:
        out.parent.mkdir(parents=True, exist_ok=True)
        figures.save(figure, out)
    except ValueError as error:
        raise UserError(f"{out} could not be written ({error}); choose another --out.") from None
    print(f"Wrote {out}: {masked} of {model.num_patches} patches masked, error {panels.errors[0]:.4f}.")


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

    settings = Settings(data, data_root, split, images, mask_ratio, layer, threshold, _seed(seed))
    run(checkpoint, settings, out, pick_device(device), Console())


def theory(out: Path = Path("runs/theory"), seed: int = 0) -> None:
    """Check the paper's theory claim by claim: a table, theory.json and figures, in a minute or two.

    A claim that does not hold as the text states it is a finding and is printed as one.

    Args:
        out: Folder for theory.json and the figures.
        seed: Seed of every check.
    """
    from rich.console import Console

    from crate_mae.theory.command import run

    run(out, _seed(seed), Console())


Settings = Annotated[tuple[str, ...], tyro.conf.arg(name="set", metavar="KEY=VALUE"), tyro.conf.UseAppendAction]


def pretrain(
    out: Path,
    recipe: str | None = None,
    data: str | None = None,
    data_root: Path | None = None,
    download: bool = False,
    set_: Settings = (),
    resume: bool = False,
    shard: bool = False,
    tensorboard: bool = False,
    device: Device = "auto",
) -> None:
    """Pretrain a masked autoencoder on images: yours, or a well-known set.

    Alone, or under torchrun --nproc-per-node N -m crate_mae pretrain ... on any number of machines. Ctrl-C finishes the
    step, saves, and prints the command that goes on.

    Args:
        out: Folder of the run.
        recipe: The run's configuration by name: digits, cifar10_cpu, imagenette_cpu, crate_mae_base_imagenet, ..
        data: The images instead of the recipe's: a name, a folder, or tar shards.
        data_root: Where named sets are; data/ unless given.
        download: Fetch a named set that is not there.
        set_: Replace a setting of the recipe, as in --set steps=120 --set model.lambda_=0.1; may be repeated.
        resume: Go on with the run in --out; start it where there is none yet.
        shard: Spread weights, gradients and optimiser over the processes of torchrun (FSDP2).
        tensorboard: Write TensorBoard files too.
        device: Where to compute; auto takes a GPU where there is one.
    """
    from crate_mae.recipes import PRETRAIN, find
    from crate_mae.training.config import PretrainConfig
    from crate_mae.training.pretrain import pretrain as run
    from crate_mae.training.run import Run, configured

    named = find(recipe, PRETRAIN) if recipe else None
    settings = (*_data_settings(data, data_root), *set_)
    config = configured(Run(out), named, settings, PretrainConfig)
    run(
        config,
        out,
        resume=resume,
        device=device,
        shard=shard,
        download=download,
        tensorboard=tensorboard,
    )


def finetune(
    out: Path,
    recipe: str | None = None,
    checkpoint: Path | None = None,
    random: bool = False,
    data: str | None = None,
    data_root: Path | None = None,
    download: bool = False,
    set_: Settings = (),
    resume: bool = False,
    shard: bool = False,
    tensorboard: bool = False,
    device: Device = "auto",
) -> None:
    """Train a whole model to classify, from a pretrained checkpoint or from random weights.

    Args:
        out: Folder of the run.
        recipe: The run's configuration by name: finetune_digits, finetune_cpu, finetune_cifar10, ..
        checkpoint: The pretrained model: a checkpoint folder, or a run folder.
        random: Start from random weights, of the checkpoint's shape where one is given, on the same protocol.
        data: The images instead of the recipe's, with labels: a name, a folder of class folders, or tar shards.
        data_root: Where named sets are; data/ unless given.
        download: Fetch a named set that is not there.
        set_: Replace a setting of the recipe, as in --set steps=120 --set mixup=0.8; may be repeated.
        resume: Go on with the run in --out; start it where there is none yet.
        shard: Spread weights, gradients and optimiser over the processes of torchrun (FSDP2).
        tensorboard: Write TensorBoard files too.
        device: Where to compute; auto takes a GPU where there is one.
    """
    from crate_mae.recipes import FINETUNE, find
    from crate_mae.training.config import FinetuneConfig
    from crate_mae.training.finetune import finetune as run
    from crate_mae.training.run import Run, configured

    named = find(recipe, FINETUNE) if recipe else None
    start = [f"checkpoint={checkpoint}"] if checkpoint else []
    start += ["random=true"] if random else []
    settings = (*start, *_data_settings(data, data_root), *set_)
    config = configured(Run(out), named, settings, FinetuneConfig)
    run(
        config,
        out,
        resume=resume,
        device=device,
        shard=shard,
        download=download,
        tensorboard=tensorboard,
    )


def evaluate(
    checkpoint: tyro.conf.Positional[Path],
    data: str,
    data_root: Path | None = None,
    download: bool = False,
    split: Literal["train", "val", "test", "all"] = "test",
    batch: int = 128,
    workers: int = 0,
    device: Device = "auto",
    out: Path | None = None,
) -> None:
    """How good a fine-tuned classifier is: accuracy with its interval, the worst classes, what is taken for what.

    Args:
        checkpoint: The classifier: a checkpoint folder, or a run folder and then its best checkpoint.
        data: Images with labels: a name, a folder of class folders, or tar shards. Classes are matched by name.
        data_root: Where named sets are; data/ unless given.
        download: Fetch a named set that is not there.
        split: Which images; all takes every one of a folder without splits.
        batch: Images at a time.
        workers: Processes that read images; 0 reads in the same one.
        device: Where to compute; auto takes a GPU where there is one.
        out: Write everything to this JSON file too.
    """
    import json

    from rich.console import Console

    from crate_mae.data.datasets import find_splits, open_dataset, open_whole
    from crate_mae.models.zoo import load_classifier
    from crate_mae.training.evaluate import evaluate

    target = pick_device(device)
    model = load_classifier(checkpoint).to(target)
    if split == "all":
        source = open_whole(data, data_root, download)
    else:
        source = open_dataset(data, split, data_root, download)
        if split != "train" and find_splits(data, data_root).keys() == {"train"}:
            warnings.warn(
                f"{data} has no splits: these are the images that training sets aside for validation; --split all "
                "takes every one.",
                stacklevel=1,
            )
    if out:
        out.parent.mkdir(parents=True, exist_ok=True)
    marks = evaluate(model, source, batch, workers, Console(stderr=True))
    print(f"{checkpoint} on {data}, {split}", *marks.summary(), sep="\n")
    if out:
        asked = {"checkpoint": str(checkpoint), "data": data, "split": split}
        out.write_text(json.dumps(asked | marks.to_dict(), indent=1) + "\n")
        print(f"\nWrote {out}.")


def predict(
    images: tyro.conf.Positional[tuple[Path, ...]],
    checkpoint: Path,
    top: int = 5,
    batch: int = 128,
    workers: int = 0,
    device: Device = "auto",
    out: Path | None = None,
) -> None:
    """What a fine-tuned classifier takes pictures for; exit with code 1 where one can't be read.

    Args:
        images: Pictures, and folders with pictures at any depth.
        checkpoint: The classifier: a checkpoint folder, or a run folder and then its best checkpoint.
        top: So many of the likeliest classes.
        batch: Pictures at a time.
        workers: Processes that read pictures; 0 reads in the same one.
        device: Where to compute; auto takes a GPU where there is one.
        out: Write to this .csv or .json file instead of printing.
    """
    from rich.console import Console

    from crate_mae.data.loader import Bad
    from crate_mae.models.zoo import load_classifier
    from crate_mae.progress import progress
    from crate_mae.training.predict import Listed, Prediction, check_suffix, predict, write_predictions

    source = Listed(images)
    if out:
        check_suffix(out)
        out.parent.mkdir(parents=True, exist_ok=True)
    model = load_classifier(checkpoint).to(pick_device(device))
    results: list[Prediction | Bad] = []
    found = predict(model, source, top, batch, workers)
    if out:
        with progress("predict", len(source), Console(stderr=True)) as advance:
            for each in found:
                results.append(each)
                advance()
        write_predictions([each for each in results if isinstance(each, Prediction)], out)
    else:
        for each in found:
            results.append(each)
            if isinstance(each, Prediction):
                print(each)
    bad = [each.reason for each in results if isinstance(each, Bad)]
    for reason in bad:
        warnings.warn(reason, stacklevel=1)
    if out:
        print(f"Wrote {out}: {len(results) - len(bad)} images.")
    if bad:
        print(f"crate-mae: {len(bad)} of {len(source)} images can't be read.", file=sys.stderr)
        sys.exit(1)


def _data_settings(data: str | None, root: Path | None) -> list[str]:
    return [f"{key}={value}" for key, value in (("data", data), ("data_root", root)) if value is not None]


def data_pack(folder: tyro.conf.Positional[Path], out: Path, shard_size: str = "1GB") -> None:
    """Pack a folder of images into tar shards that --data takes, for sets too large to keep as single files.

    Args:
        folder: The images, with or without class folders, with or without train/, val/ and test/.
        out: Folder for the shards; it must be new or empty.
        shard_size: A shard ends before it would be larger: 500MB, 1GB.
    """
    from rich.console import Console

    from crate_mae.data.packing import pack

    pack(folder, out, shard_size, Console())


def data_check(data: tyro.conf.Positional[str], data_root: Path | None = None, workers: int | None = None) -> None:
    """Read every image of a set and list those that can't be read; exit with code 1 where there are any.

    Args:
        data: A name (digits, cifar10, cifar100, flowers102, oxford_pets, imagenette, imagenet), a folder or shards.
        data_root: Where named sets are; data/ unless given.
        workers: Processes that read; as many as there are processors unless given.
    """
    from rich.console import Console

    from crate_mae.data.checking import check

    if workers is not None and workers < 1:
        raise UserError(f"--workers is {workers}; choose a whole number from 1 up.")
    if check(data, data_root, workers, Console()):
        sys.exit(1)


def probe(
    checkpoint: tyro.conf.Positional[Path],
    data: str,
    data_root: Path | None = None,
    download: bool = False,
    layer: tyro.conf.UseAppendAction[tuple[Literal["all"] | int, ...]] = (),
    pool: Literal["cls", "mean", "both"] = "cls",
    pixels: bool = False,
    out: Path | None = None,
    seed: int = 0,
    batch: int = 256,
    workers: int | None = None,
    device: Device = "auto",
) -> None:
    """Probe a frozen model: logistic regression and nearest neighbours on its features of labelled images.

    C is chosen on a validation split; the paper's protocol, the best C on the test set, stands beside it. Features are
    kept in OUT/features and not computed again.

    Args:
        checkpoint: A checkpoint folder, or a run folder.
        data: A name (digits, cifar10, cifar100, flowers102, oxford_pets, imagenette, imagenet), a folder or shards.
        data_root: Where named sets are; data/ unless given.
        download: Fetch a named set that is not there.
        layer: 0 for the embedding, l for the output of block l, -1 for the last; all for each. May be given again.
        pool: The class token, the mean over the patches, or both.
        pixels: Probe the raw pixels too, at no more than 32 x 32.
        out: Folder for probe.json, the figures and the features; probe/DATA in the checkpoint's folder unless given.
        seed: Seed of the training images that choose C, where the set has no validation split.
        batch: Images at a time.
        workers: Processes that read images; as many as there are processors where a GPU computes, else none.
        device: Where to compute; auto takes a GPU where there is one.
    """
    from rich.console import Console

    from crate_mae.data.checking import processors
    from crate_mae.models.zoo import load
    from crate_mae.training.features import Pool, Reader
    from crate_mae.training.probing import run

    if batch < 1:
        raise UserError(f"--batch is {batch}; choose a whole number from 1 up.")
    if workers is not None and workers < 0:
        raise UserError(f"--workers is {workers}; choose a whole number from 0 up.")
    target = pick_device(device)
    model = load(checkpoint).to(target)
    if workers is None:
        workers = 0 if target.type == "cpu" else processors()
    every = [*range(model.config.depth), -1]
    layers = [number for word in layer or (-1,) for number in (every if word == "all" else [int(word)])]
    pools: tuple[Pool, ...] = ("cls", "mean") if pool == "both" else (pool,)
    folder = out or checkpoint / "probe" / Path(data).resolve().name
    reader = Reader(batch, workers, Console())
    run(model, data, data_root, download, layers, pools, pixels, folder, _seed(seed), reader)


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


def plan(
    recipe: str,
    set_: Annotated[tyro.conf.UseAppendAction[tuple[str, ...]], tyro.conf.arg(name="set", metavar="KEY=VALUE")] = (),
    checkpoint: Path | None = None,
    device: Literal["here", "a100", "h100", "rtx4090"] | None = None,
    devices: int = 1,
    device_memory: float | None = None,
    device_tflops: float | None = None,
    utilisation: float | None = None,
    shard: bool = False,
    json: bool = False,
) -> None:
    """Print the parameters, FLOPs, memory and time of a run before it is started. Nothing is trained or opened.

    Args:
        recipe: The run, a recipe of pretrain or finetune.
        set_: A setting that replaces the recipe's; as often as needed.
        checkpoint: finetune: the pretrained model, in place of the recipe's.
        device: What computes. here measures this machine for half a second, and is the default where nothing is said
            of devices; otherwise it is a100.
        devices: How many of them.
        device_memory: Gigabytes of each, in place of the known ones.
        device_tflops: The most TFLOP/s of each in the run's precision, in place of the known ones.
        utilisation: The share of these that the run reaches.
        shard: Spread weights, gradients and moments over the devices.
        json: Print JSON.
    """
    from dataclasses import asdict, replace
    from json import dumps

    from crate_mae import recipes
    from crate_mae.training.config import RunConfig, override
    from crate_mae.training.hardware import GB, hardware
    from crate_mae.training.plan import plan, table

    every: dict[str, Callable[[], RunConfig]] = {**recipes.PRETRAIN, **recipes.FINETUNE}
    config = override(recipes.find(recipe, every), set_)
    if checkpoint is not None:
        if recipe in recipes.PRETRAIN:
            raise UserError(f"--checkpoint goes with recipes of finetune; {recipe} is one of pretrain.")
        config = override(config, [f"checkpoint={checkpoint}"])
    if device is None and devices == 1 and device_memory is None and device_tflops is None:
        device = "here"
    target = hardware(device or "a100", config.precision)
    if device is None:
        target = replace(target, name=f"{target.name} (assumed)")
    if device_memory is not None:
        target = replace(target, memory=device_memory * GB)
    if device_tflops is not None:
        target = replace(target, flops=device_tflops * 1e12)
    if utilisation is not None:
        target = replace(target, utilisation=utilisation)
    made = plan(config, target, devices, shard)
    print(dumps(asdict(made), indent=2) if json else table(made))


VERBS: dict[str, Callable[..., None]] = {
    "demo": demo,
    "models": models,
    "plan": plan,
    "pretrain": pretrain,
    "probe": probe,
    "finetune": finetune,
    "evaluate": evaluate,
    "predict": predict,
    "inspect": inspect,
    "complete": complete,
    "convert": convert,
    "theory": theory,
    "reproduce": reproduce,
    "data pack": data_pack,
    "data check": data_check,
}


def main(arguments: Sequence[str] | None = None) -> None:
    """Run a verb; bad input prints one sentence and exits with code 2."""
    words = list(sys.argv[1:] if arguments is None else arguments)
    if words == ["--version"]:
        from crate_mae import __version__

        print(f"crate-mae {__version__}")
        return
    about = "Masked completion of images with white-box transformers."
    try:
        words = _check_verb(words)
        with warnings.catch_warnings():
            warnings.filterwarnings("always", category=UserWarning)
            warnings.showwarning = lambda message, *_, **__: print(f"crate-mae: note: {message}", file=sys.stderr)
            tyro.extras.subcommand_cli_from_dict(VERBS, prog="crate-mae", description=about, args=words)
    except UserError as error:
        print(f"crate-mae: error: {error}", file=sys.stderr)
        sys.exit(2)
    except BrokenPipeError:  # the reader, such as head, has seen enough
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(141)  # as a shell has it for SIGPIPE
    except OSError as error:
        print(f"crate-mae: error: {error.filename}: {error.strerror}; choose another place.", file=sys.stderr)
        sys.exit(2)
    except KeyboardInterrupt:
        print("crate-mae: stopped.", file=sys.stderr)
        sys.exit(130)


def _check_verb(words: list[str]) -> list[str]:
    """The words, with a verb of two words as one; a verb that does not exist is an error that suggests one."""
    if not words or words[0].startswith("-") or words[0] in VERBS:
        return words
    verb, length = words[0], 1
    if any(known.startswith(f"{verb} ") for known in VERBS):
        if words[1:2] in (["--help"], ["-h"]):
            return ["--help"]
        verb, length = " ".join(words[:2]), 2
    if verb not in VERBS:
        near = get_close_matches(verb, VERBS, n=1)
        hint = f"did you mean {near[0]}?" if near else f"there are {', '.join(VERBS)}."
        raise UserError(f"there is no command {verb}; {hint}")
    return [verb, *words[length:]]


def _seed(seed: int) -> int:
    if not 0 <= seed < 2**32:
        raise UserError(f"--seed is {seed}; choose a whole number from 0 up to {2**32 - 1}.")
    return seed
