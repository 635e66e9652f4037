"""The verbs plan, pretrain and finetune."""

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import tyro

from crate_mae.cli.arguments import Checkpoint, Settings, given
from crate_mae.device import Device, pick_device

if TYPE_CHECKING:
    from crate_mae.planning.hardware import Hardware, Known
    from crate_mae.planning.plan import SetSize
    from crate_mae.training.config import Precision, RunConfig


def plan(
    recipe: str,
    *,
    set_: Annotated[tyro.conf.UseAppendAction[tuple[str, ...]], tyro.conf.arg(name="set", metavar="KEY=VALUE")] = (),
    data: str | None = None,
    data_root: Path | None = None,
    checkpoint: Checkpoint | None = None,
    device: Literal["here", "a100", "h100", "rtx4090"] | None = None,
    devices: int = 1,
    device_memory: float | None = None,
    device_tflops: float | None = None,
    utilisation: float | None = None,
    shard: bool = False,
    json: bool = False,
) -> None:
    """Print the parameters, FLOPs, memory and time of a run before it is started. Nothing is trained.

    Args:
        recipe: A recipe of pretrain or finetune.
        set_: Replace a setting of the recipe, as in --set batch=512; may be repeated.
        data: The images instead of the recipe's; those of a folder or of shards are counted.
        data_root: The folder of the named sets; data/ by default.
        checkpoint: The model to start from, in place of the recipe's.
        device: The kind of device. here measures this machine for a second; it is the default if no option is
            about devices, otherwise a100 is.
        devices: The number of devices.
        device_memory: Gigabytes of each device, in place of the data sheet's.
        device_tflops: Peak TFLOP/s of each device in the run's precision, in place of the data sheet's.
        utilisation: The fraction of the peak that the run reaches.
        shard: Shard weights, gradients and moments over the devices.
        json: Print JSON.
    """
    from dataclasses import asdict, replace
    from json import dumps

    from crate_mae import recipes
    from crate_mae.data.named import NAMED
    from crate_mae.training.config import RunConfig, override

    every: dict[str, Callable[[], RunConfig]] = {**recipes.PRETRAIN, **recipes.FINETUNE}
    options = given(data=data, data_root=data_root, checkpoint=checkpoint)
    config = override(replace(recipes.find(recipe, every), **options), set_, scale_intervals=True)

    from crate_mae.planning.plan import plan, table

    if device is None and devices == 1 and device_memory is None and device_tflops is None:
        device = "here"
    target = _hardware(device, config.precision, device_memory, device_tflops, utilisation)
    # A recipe's own data may be on another machine.
    counted = config.data not in NAMED and (data is not None or Path(config.data).exists())
    made = plan(config, target, devices, shard, set_size(config.data) if counted else None)
    print(dumps(asdict(made), indent=2) if json else table(made))


def _hardware(
    device: "Known | None",
    precision: "Precision",
    memory: float | None,
    tflops: float | None,
    utilisation: float | None,
) -> "Hardware":
    """A device by name, an A100 by default, with the values that are given in place of its own."""
    from dataclasses import replace

    from crate_mae.planning.hardware import GB, hardware

    target = hardware(device or "a100", precision)
    if device is None:
        target = replace(target, name=f"{target.name} (assumed)")
    if memory is not None:
        target = replace(target, memory=memory * GB)
    if tflops is not None:
        target = replace(target, flops=tflops * 1e12)
    if utilisation is not None:
        target = replace(target, utilisation=utilisation)
    return target


def set_size(data: str) -> "SetSize":
    """The number of training images and of classes in a folder or in shards."""
    from crate_mae.data.open import find_images
    from crate_mae.planning.plan import SetSize

    training = find_images(data).split("train")
    return SetSize(len(training), len(training.class_names) if training.class_names else None)


def pretrain(
    out: Path,
    *,
    recipe: str | None = None,
    checkpoint: Checkpoint | None = None,
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

    In one process, or with torchrun --nproc-per-node N -m crate_mae pretrain ... on any number of machines. Ctrl-C
    finishes the step, saves, and prints the command that resumes the run.

    Args:
        out: Folder of the run.
        recipe: The run's configuration by name: digits, cifar10_cpu, imagenette_cpu, crate_mae_base_imagenet, ..
        checkpoint: Start from this model's weights, in place of the recipe's model with random weights: a name that
            crate-mae models lists, a checkpoint folder, a run folder, or owner/name on the Hub.
        data: The images instead of the recipe's: a name, a folder, or tar shards.
        data_root: The folder of the named sets; data/ by default.
        download: Download a named set that is missing.
        set_: Replace a setting of the recipe, as in --set steps=120 --set model.lambda_=0.1; may be repeated.
        resume: Resume the run in --out, or start it if there is none yet.
        shard: Shard weights, gradients and optimiser over the processes of torchrun (FSDP2).
        tensorboard: Write TensorBoard files too.
        device: The device to compute on; auto takes a GPU if there is one.
    """
    from crate_mae.recipes import PRETRAIN, find
    from crate_mae.training.config import PretrainConfig
    from crate_mae.training.run_folder import Run, configured

    named = find(recipe, PRETRAIN) if recipe else None
    options = given(checkpoint=checkpoint, data=data, data_root=data_root)
    config = configured(Run(out), named, PretrainConfig, options, set_)

    from crate_mae.training.pretrain import pretrain as run

    _check_memory_of_new_run(config, out, device, shard)
    run(config, out, resume=resume, device=device, shard=shard, download=download, tensorboard=tensorboard)


def finetune(
    out: Path,
    *,
    recipe: str | None = None,
    checkpoint: Checkpoint | None = None,
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
        checkpoint: The pretrained model: a name that crate-mae models lists, a checkpoint folder, a run folder, or
            owner/name on the Hub.
        random: Start from random weights, of the checkpoint's shape if one is given, with the same protocol.
        data: The images instead of the recipe's, with labels: a name, a folder of class folders, or tar shards.
        data_root: The folder of the named sets; data/ by default.
        download: Download a named set that is missing.
        set_: Replace a setting of the recipe, as in --set steps=120 --set mixup=0.8; may be repeated.
        resume: Resume the run in --out, or start it if there is none yet.
        shard: Shard weights, gradients and optimiser over the processes of torchrun (FSDP2).
        tensorboard: Write TensorBoard files too.
        device: The device to compute on; auto takes a GPU if there is one.
    """
    from crate_mae.recipes import FINETUNE, find
    from crate_mae.training.config import FinetuneConfig
    from crate_mae.training.run_folder import Run, configured

    named = find(recipe, FINETUNE) if recipe else None
    options = given(checkpoint=checkpoint, random=random, data=data, data_root=data_root)
    config = configured(Run(out), named, FinetuneConfig, options, set_)

    from crate_mae.training.finetune import finetune as run

    _check_memory_of_new_run(config, out, device, shard)
    run(config, out, resume=resume, device=device, shard=shard, download=download, tensorboard=tensorboard)


def _check_memory_of_new_run(config: "RunConfig", out: Path, device: Device, shard: bool) -> None:
    from crate_mae.planning.memory_check import check_memory
    from crate_mae.training.run_folder import Run

    if not Run(out).config.exists():
        check_memory(config, pick_device(device), shard)
