"""Parameters, FLOPs, memory and time of a run, before it is started."""

from dataclasses import dataclass, fields, replace

import torch

from crate_mae.data.named import NAMED
from crate_mae.errors import UserError
from crate_mae.models.autoencoder import MaskedAutoencoder
from crate_mae.models.checkpoint import read_checkpoint
from crate_mae.models.classifier import Classifier
from crate_mae.models.config import ModelConfig
from crate_mae.planning.cost import WORD
from crate_mae.planning.hardware import USABLE, Hardware
from crate_mae.planning.memory_fit import Fitting, Memory
from crate_mae.training.config import FinetuneConfig, RunConfig
from crate_mae.training.optim import optimiser_flops

CLASSES_ASSUMED = 1_000
"""For a set that is not a named one."""


@dataclass(frozen=True)
class Plan:
    """What a run needs. Parameters and FLOPs are exact counts, memory and time estimates."""

    recipe: str
    task: str
    model: str
    data: str
    precision: str
    parameters: int

    steps: int
    batch: int
    images: int
    """In all steps together."""
    images_in_set: int | None
    """Training images; None if the set is not a named one."""
    epochs: float | None
    classes: int | None
    """Classes of a classifier; None for an autoencoder."""

    device: str
    devices: int
    shard: bool
    micro_batch: int
    """Images in a micro-batch on one device."""
    micro_batches: int
    """Micro-batches in a step."""

    image_flops: float
    """FLOPs of the forward pass for one image."""
    step_flops: int
    """Forward, backward and optimiser, on all devices together."""
    run_flops: int

    memory: Memory
    device_memory: float
    usable_memory: float
    largest_micro_batch: int
    """The most images that fit in a micro-batch; 0 if not even one fits."""
    fits: bool
    remedies: list[str]
    """Arguments of the command line that make it fit, if it does not."""

    device_flops: float
    """Peak operations per second."""
    utilisation: float
    step_seconds: float
    run_seconds: float

    checkpoint_bytes: int
    """Weights and moments."""
    disk_bytes: int
    """The last checkpoints, the best one, and one that is being written."""


@dataclass(frozen=True)
class SetSize:
    """How large a set of images is."""

    images: int
    """For training."""
    classes: int | None
    """None if it has no labels."""


def plan(
    config: RunConfig, hardware: Hardware, devices: int = 1, shard: bool = False, size: SetSize | None = None
) -> Plan:
    """The plan of a run on a number of devices. No weights are allocated and no images opened.

    ``size`` is that of the set where it is not a named one.
    """
    _check(config, hardware, devices, shard)
    config = config.concrete(hardware.fast_bfloat16)
    named = NAMED.get(config.data)
    size = SetSize(named.images, named.classes) if named else size
    in_set = size.images if size else None
    fitting = fitting_of(config, hardware, devices, shard, size)
    name, model, classes = _model(config)[0], fitting.model, fitting.classes
    work = fitting.work(fitting.micro_batch)
    passes = config.accumulation * work.step_flops(config.gradient_checkpointing, hardware.is_gpu)
    step_flops = devices * (passes + optimiser_flops(model, config.optimiser))
    step_seconds = step_flops / (devices * hardware.flops * hardware.utilisation)
    images = config.steps * config.batch
    checkpoint = 3 * model.num_parameters * WORD[config.precision]
    fits = fitting.fits(fitting.micro_batch)
    return Plan(
        recipe=config.recipe,
        task=config.task,
        model=name,
        data=config.data,
        precision=config.precision,
        parameters=model.num_parameters,
        steps=config.steps,
        batch=config.batch,
        images=images,
        images_in_set=in_set,
        epochs=images / in_set if in_set else None,
        classes=classes,
        device=hardware.name,
        devices=devices,
        shard=shard,
        micro_batch=fitting.micro_batch,
        micro_batches=config.accumulation,
        image_flops=work.products().forward_flops / fitting.micro_batch,
        step_flops=step_flops,
        run_flops=config.steps * step_flops,
        memory=fitting.memory(fitting.micro_batch),
        device_memory=hardware.memory,
        usable_memory=hardware.usable,
        largest_micro_batch=fitting.largest_micro_batch(),
        fits=fits,
        remedies=[] if fits else fitting.remedies(),
        device_flops=hardware.flops,
        utilisation=hardware.utilisation,
        step_seconds=step_seconds,
        run_seconds=config.steps * step_seconds,
        checkpoint_bytes=checkpoint,
        disk_bytes=(config.keep + 2) * checkpoint,
    )


def fitting_of(
    config: RunConfig, hardware: Hardware, devices: int, shard: bool, size: SetSize | None = None
) -> Fitting:
    """A run's model, without weights, on its devices."""
    config = config.concrete(hardware.fast_bfloat16)
    shape = _model(config)[1]
    if not isinstance(config, FinetuneConfig):
        with torch.device("meta"):
            return Fitting(config, MaskedAutoencoder(shape), None, hardware, devices, shard)
    classes = size.classes if size and size.classes else CLASSES_ASSUMED
    with torch.device("meta"):
        model = Classifier(shape, [str(n) for n in range(classes)])
    return Fitting(config, model, classes, hardware, devices, shard)


def _check(config: RunConfig, hardware: Hardware, devices: int, shard: bool) -> None:
    if devices < 1:
        raise UserError(f"--devices is {devices}; choose a whole number from 1 up.")
    if shard and devices == 1:
        raise UserError("--shard distributes a run over devices; give their number with --devices.")
    if not 0 < hardware.memory < float("inf"):
        raise UserError(f"--device-memory is {hardware.memory / 1e9:g}; choose a number of gigabytes above 0.")
    if not 0 < hardware.flops < float("inf"):
        raise UserError(f"--device-tflops is {hardware.flops / 1e12:g}; choose a number above 0.")
    if not 0 < hardware.utilisation <= 1:
        raise UserError(f"--utilisation is {hardware.utilisation:g}; choose a number above 0, at most 1.")
    if config.batch % (devices * config.accumulation):
        raise UserError(
            f"a batch of {config.batch} can't be divided into {config.accumulation} micro-batches on each of {devices} "
            f"devices; use --set batch= with a multiple of {devices * config.accumulation}."
        )


def _model(config: RunConfig) -> tuple[str, ModelConfig]:
    """The name and configuration of the model, or of the checkpoint if there is one."""
    if config.checkpoint is None:
        name, shape = config.model, config.model_config()
    else:
        name, shape = config.checkpoint, read_checkpoint(config.checkpoint).config
    size = config.image_size if isinstance(config, FinetuneConfig) else None
    return name, replace(shape, image_size=size or shape.image_size)


# --- for people -----------------------------------------------------------------------------------------------------


def table(plan: Plan) -> str:
    """The plan in aligned lines."""
    known = f"{_count(plan.epochs)} epochs of {plan.images_in_set:,}" if plan.epochs else "the set's size is not known"
    micro = f" in {plan.micro_batches} micro-batches of {plan.micro_batch:,}" if plan.micro_batches > 1 else ""
    own = plan.micro_batch * plan.micro_batches
    share = f"{own:,} on each device{micro}" if plan.devices > 1 or micro else "on one device"
    head = f", with a head for {plan.classes:,} classes" if plan.classes else ""
    if plan.classes and plan.images_in_set is None:
        head += " (assumed)"
    memory = [(f"  {item.name}", in_bytes(getattr(plan.memory, item.name))) for item in fields(plan.memory)]
    speed = plan.batch / plan.step_seconds
    rate = f"{speed:,.0f}" if speed >= 10 else f"{speed:.2g}"
    lines = [
        ("run", f"{plan.task} {plan.model} on {plan.data}, {plan.precision}"),
        ("devices", f"{plan.devices} x {plan.device}, {in_bytes(plan.device_memory)}" + ", sharded" * plan.shard),
        ("parameters", f"{plan.parameters:,}{head}"),
        ("steps", f"{plan.steps:,} of {plan.batch:,} images, {share}"),
        ("images", f"{plan.images:,}: {known}"),
        (
            "FLOPs",
            f"{_si(plan.image_flops)} per forward image, {_si(plan.step_flops)} per step, {_si(plan.run_flops)} total",
        ),
        (
            "memory",
            f"{in_bytes(plan.memory.total)} on each device, of {in_bytes(plan.usable_memory)} usable ({USABLE:.0%})",
        ),
        *((name, size) for name, size in memory if size != "0 B"),
        ("micro-batch", f"at most {plan.largest_micro_batch:,} images on a device"),
        ("speed", f"{_si(plan.device_flops)}FLOP/s peak, of which {plan.utilisation:.0%} are reached (assumed)"),
        (
            "time",
            f"{_time(plan.step_seconds)} per step, {_time(plan.run_seconds)} in total, {rate} images per second",
        ),
        ("disk", f"{in_bytes(plan.checkpoint_bytes)} per checkpoint, at most {in_bytes(plan.disk_bytes)} in total"),
    ]
    text = "\n".join(f"{name:<16}{value}" for name, value in lines)
    if plan.fits:
        return text
    way = f"use {' or '.join(plan.remedies)}" if plan.remedies else "use more devices, more memory or a smaller model"
    return f"{text}\n\nIt does not fit: {way}."


def in_bytes(count: float) -> str:
    """A number of bytes for people."""
    for unit, size in [("TB", 1e12), ("GB", 1e9), ("MB", 1e6), ("kB", 1e3)]:
        if count >= 0.9995 * size:
            return f"{count / size:.3g} {unit}"
    return f"{count:.0f} B"


def _si(count: float) -> str:
    for prefix, size in [("E", 1e18), ("P", 1e15), ("T", 1e12), ("G", 1e9), ("M", 1e6)]:
        if count >= 0.9995 * size:
            return f"{count / size:,.3g} {prefix}"
    return f"{count:,.0f} "


def _count(number: float) -> str:
    return f"{number:,.0f}" if number >= 1000 else f"{number:.4g}"


def _time(seconds: float) -> str:
    for unit, size, least in [("days", 86_400, 2), ("h", 3_600, 2), ("min", 60, 2), ("s", 1, 1), ("ms", 1e-3, 0)]:
        if seconds >= least * size:
            return f"{seconds / size:,.3g} {unit}"
    raise AssertionError(seconds)
