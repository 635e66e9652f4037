"""Parameters, operations, memory and time of a run before it is started."""

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

CLASSES_ASSUMED = 1_000
"""Of a set that is not a named one."""


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
    """None where the set is not a named one."""
    epochs: float | None
    classes: int | None
    """Of a classifier."""

    device: str
    devices: int
    shard: bool
    part: int
    """Images that one device works on at a time."""
    parts: int
    """Such parts in a step, one after the other."""

    image_flops: float
    """Of the forward pass, for one image."""
    step_flops: int
    """Forward and backward, on all devices together."""
    run_flops: int

    memory: Memory
    device_memory: float
    usable_memory: float
    largest_part: int
    """The most images that fit at a time; 0 where not even one does."""
    fits: bool
    remedies: list[str]
    """Words for the command line that make it fit, where it does not."""

    device_flops: float
    """In a second, at the most."""
    utilisation: float
    step_seconds: float
    run_seconds: float

    checkpoint_bytes: int
    """Weights and moments."""
    disk_bytes: int
    """The last checkpoints, the best one, and one that is being written."""


def plan(config: RunConfig, hardware: Hardware, devices: int = 1, shard: bool = False) -> Plan:
    """The plan of a run on so many devices. No weights are made and no images opened."""
    _check(config, hardware, devices, shard)
    named = NAMED.get(config.data)
    in_set, in_classes = (named.images, named.classes) if named else (None, CLASSES_ASSUMED)
    classes = in_classes if isinstance(config, FinetuneConfig) else None
    name, shape = _model(config)
    with torch.device("meta"):
        model = Classifier(shape, [str(n) for n in range(classes)]) if classes else MaskedAutoencoder(shape)
    fitting = Fitting(config, model, classes, hardware, devices, shard)
    work = fitting.work(fitting.part)
    step_flops = devices * config.accumulation * work.step_flops(config.gradient_checkpointing, hardware.is_gpu)
    step_seconds = step_flops / (devices * hardware.flops * hardware.utilisation)
    images = config.steps * config.batch
    checkpoint = 3 * model.num_parameters * WORD[config.precision]
    fits = fitting.fits(fitting.part)
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
        part=fitting.part,
        parts=config.accumulation,
        image_flops=work.products().forward_flops / fitting.part,
        step_flops=step_flops,
        run_flops=config.steps * step_flops,
        memory=fitting.memory(fitting.part),
        device_memory=hardware.memory,
        usable_memory=hardware.usable,
        largest_part=fitting.largest_part(),
        fits=fits,
        remedies=[] if fits else fitting.remedies(),
        device_flops=hardware.flops,
        utilisation=hardware.utilisation,
        step_seconds=step_seconds,
        run_seconds=config.steps * step_seconds,
        checkpoint_bytes=checkpoint,
        disk_bytes=(config.keep + 2) * checkpoint,
    )


def _check(config: RunConfig, hardware: Hardware, devices: int, shard: bool) -> None:
    if devices < 1:
        raise UserError(f"--devices is {devices}; choose a whole number from 1 up.")
    if shard and devices == 1:
        raise UserError("--shard spreads a run over devices; say how many with --devices.")
    if not 0 < hardware.memory < float("inf"):
        raise UserError(f"--device-memory is {hardware.memory / 1e9:g}; choose a number of gigabytes above 0.")
    if not 0 < hardware.flops < float("inf"):
        raise UserError(f"--device-tflops is {hardware.flops / 1e12:g}; choose a number above 0.")
    if not 0 < hardware.utilisation <= 1:
        raise UserError(f"--utilisation is {hardware.utilisation:g}; choose a share above 0 and up to 1.")
    if config.batch % (devices * config.accumulation):
        raise UserError(
            f"a batch of {config.batch} can't be shared by {devices} devices in {config.accumulation} parts each; use "
            f"--set batch= with a multiple of {devices * config.accumulation}."
        )


def _model(config: RunConfig) -> tuple[str, ModelConfig]:
    """The model's name and configuration; where a checkpoint is given, its own."""
    if not isinstance(config, FinetuneConfig):
        return config.model, config.model_config()
    if config.checkpoint is None:
        name, shape = config.model, config.model_config()
    else:
        name, shape = config.checkpoint, read_checkpoint(config.checkpoint).config
    return name, replace(shape, image_size=config.image_size or shape.image_size)


# --- for people -----------------------------------------------------------------------------------------------------


def table(plan: Plan) -> str:
    """The plan in aligned lines."""
    known = f"{plan.epochs:,.4g} epochs of {plan.images_in_set:,}" if plan.epochs else "the set's size is not known"
    parts = f" in {plan.parts} parts of {plan.part:,}" if plan.parts > 1 else ""
    share = f"{plan.part * plan.parts:,} on each device{parts}" if plan.devices > 1 or parts else "on one device"
    head = f", with a head for {plan.classes:,} classes" if plan.classes else ""
    if plan.classes and plan.images_in_set is None:
        head += " (assumed)"
    memory = [(f"  {item.name}", _bytes(getattr(plan.memory, item.name))) for item in fields(plan.memory)]
    speed = plan.batch / plan.step_seconds
    rate = f"{speed:,.0f}" if speed >= 10 else f"{speed:.2g}"
    lines = [
        ("run", f"{plan.task} {plan.model} on {plan.data}, {plan.precision}"),
        ("devices", f"{plan.devices} x {plan.device}, {_bytes(plan.device_memory)}" + ", sharded" * plan.shard),
        ("parameters", f"{plan.parameters:,}{head}"),
        ("steps", f"{plan.steps:,} of {plan.batch:,} images, {share}"),
        ("images", f"{plan.images:,}: {known}"),
        (
            "FLOPs",
            f"{_si(plan.image_flops)} an image forward, {_si(plan.step_flops)} a step, {_si(plan.run_flops)} in all",
        ),
        (
            "memory",
            f"{_bytes(plan.memory.total)} on each device, of {_bytes(plan.usable_memory)} usable ({USABLE:.0%})",
        ),
        *((name, size) for name, size in memory if size != "0 B"),
        ("most images", f"{plan.largest_part:,} at a time on a device"),
        ("speed", f"{_si(plan.device_flops)}FLOP/s at the most, {plan.utilisation:.0%} of it reached (assumed)"),
        (
            "time",
            f"{_time(plan.step_seconds)} a step, {_time(plan.run_seconds)} in all, at {rate} images a second",
        ),
        ("disk", f"{_bytes(plan.checkpoint_bytes)} a checkpoint, up to {_bytes(plan.disk_bytes)} in all"),
    ]
    text = "\n".join(f"{name:<16}{value}" for name, value in lines)
    if plan.fits:
        return text
    way = f"use {' or '.join(plan.remedies)}" if plan.remedies else "use more devices, more memory or a smaller model"
    return f"{text}\n\nIt does not fit: {way}."


def _bytes(count: float) -> str:
    for unit, size in [("TB", 1e12), ("GB", 1e9), ("MB", 1e6), ("kB", 1e3)]:
        if count >= 0.9995 * size:
            return f"{count / size:.3g} {unit}"
    return f"{count:.0f} B"


def _si(count: float) -> str:
    for prefix, size in [("E", 1e18), ("P", 1e15), ("T", 1e12), ("G", 1e9), ("M", 1e6)]:
        if count >= 0.9995 * size:
            return f"{count / size:,.3g} {prefix}"
    return f"{count:,.0f} "


def _time(seconds: float) -> str:
    for unit, size in [("days", 86_400), ("h", 3_600), ("min", 60), ("s", 1), ("ms", 1e-3)]:
        if seconds >= 2 * size or unit == "ms":
            return f"{seconds / size:,.3g} {unit}"
    raise AssertionError(seconds)
