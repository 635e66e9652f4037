"""From a configuration to a running training: what pretraining and fine-tuning have in common."""

import logging
import os
import shlex
from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path

from rich.console import Console

from crate_mae import figures
from crate_mae.allocator import freed_memory_kept
from crate_mae.data.checking import processors
from crate_mae.data.open import find_images
from crate_mae.data.source import ImageSource
from crate_mae.data.transforms import Augmentation
from crate_mae.device import Device, multiplies_bfloat16
from crate_mae.errors import UserError
from crate_mae.models.config import ModelConfig
from crate_mae.training.config import Config, RunConfig
from crate_mae.training.distributed import Processes, joined
from crate_mae.training.loop import Job, Outcome, train
from crate_mae.training.run_folder import Run
from crate_mae.training.training_state import PREFIX, checkpoints_in

log = logging.getLogger("crate_mae")

Prepare = Callable[[Config, ImageSource, ImageSource, Processes], Job]
"""From a configuration, training and validation images to a job."""


def launch(
    prepare: Prepare[Config],
    config: Config,
    out: str | Path,
    *,
    resume: bool = False,
    device: Device = "auto",
    shard: bool = False,
    download: bool = False,
    tensorboard: bool = False,
    console: Console | None = None,
) -> Outcome:
    """Start a run in the folder ``out``, or resume the run in it, and train until it ends or is stopped."""
    run = Run(Path(out))
    with joined(device, shard) as processes:
        console = console or Console()
        if not processes.is_main:
            console = Console(quiet=True)
        config = config.concrete(multiplies_bfloat16(processes.device))
        run.admit(config, resume)
        check_steps(run, config)
        training, validation = processes.main_first(lambda: open_splits(config, download))
        job = prepare(replace(config, workers=capped(config.workers)), training, validation, processes)
        with run.held() if processes.is_main else nullcontext():
            if processes.is_main:
                run.begin(config, job.objective.model.config, training)
            processes.wait()
            _say(console, heading(job, processes))
            with freed_memory_kept():
                outcome = train(job, run, processes, console, tensorboard)
            if processes.is_main:
                draw_curves(run, job)
        again = shlex.join(command(run, config.task, processes, device, tensorboard))
        _say(console, ending(outcome, run, config, again))
        return outcome


def check_steps(run: Run, config: RunConfig) -> None:
    """Refuse to resume a run to fewer steps than it has done."""
    done = max((int(path.name.removeprefix(PREFIX)) for path in checkpoints_in(run.checkpoints)), default=0)
    if config.steps < done:
        raise UserError(
            f"{run.path} has done {done:,} steps, more than steps={config.steps}; set steps to {done} or more, or "
            "choose another --out."
        )


def capped(workers: int) -> int:
    """At most one worker for each processor of this process; a note says so if this lowers the number."""
    if workers > (most := processors()):
        log.info("workers is %d, and this machine has %d processors: %d are used.", workers, most, most)
    return min(workers, most)


def open_splits(config: RunConfig, download: bool) -> tuple[ImageSource, ImageSource]:
    """The training images and the validation images."""
    images = find_images(config.data, Path(config.data_root) if config.data_root else None, download)
    return images.split("train"), images.split("val")


def augmentation(config: RunConfig, model: ModelConfig) -> Augmentation:
    """The run's augmentation of its training images."""
    return Augmentation(
        model.image_size,
        model.channels,
        model.mean,
        model.std,
        crop_area=config.crop_area,
        flip=config.flip,
        randaugment=config.randaugment,
    )


def heading(job: Job, processes: Processes) -> str:
    """The first line that a run prints."""
    config, images = job.config, len(job.samples)
    where = str(processes.device)
    if processes.world > 1:
        where = f"{processes.world} processes on {processes.device.type}{', sharded' if processes.shard else ''}"
    return (
        f"{config.task} {config.recipe}: {job.parameters:,} parameters, {images:,} images of {config.data}, "
        f"{config.steps:,} steps of {config.batch} ({config.steps * config.batch / images:.1f} epochs), {where}."
    )


def command(run: Run, task: str, processes: Processes, device: Device, tensorboard: bool) -> list[str]:
    """The command that resumes a run as it was started; everything else is in its folder."""
    words = ["crate-mae"]
    if "LOCAL_WORLD_SIZE" in os.environ:
        machines = os.environ.get("GROUP_WORLD_SIZE", "1")
        words = ["torchrun", "--nnodes", machines] if machines != "1" else ["torchrun"]
        words += ["--nproc-per-node", os.environ["LOCAL_WORLD_SIZE"], "-m", "crate_mae"]
    words += [task, "--out", str(run.path), "--resume"]
    words += ["--shard"] if processes.shard else []
    words += ["--tensorboard"] if tensorboard else []
    return words + (["--device", device] if device != "auto" else [])


def ending(outcome: Outcome, run: Run, config: RunConfig, again: str) -> str:
    """The last line that a run prints: how it ended, and how to resume it."""
    best = f"Best checkpoint: {run.best} (step {run.best_step()})"
    if run.best_step() == 0:
        best += ", the initial weights: no evaluation since was better"
    if outcome.finished:
        return f"Done: {outcome.step:,} steps. {best}"
    how = f"Stopped after step {outcome.step:,} of {config.steps:,}; nothing is lost."
    return f"{how} {best}\nResume it with: {again}"


def draw_curves(run: Run, job: Job) -> None:
    """The run's losses and accuracies, in ``curves.png``."""
    names = {
        name: words
        for name, words in {
            "val_loss": "validation",
            "train_loss": "training images, not augmented",
            "knn_accuracy": "nearest neighbours",
            "probe_accuracy": "ridge regression",
            "val_accuracy": "classifier",
        }.items()
        if run.series(name)
    }
    losses, accuracies = (
        {words: run.series(name) for name, words in names.items() if name.endswith(kind)}
        for kind in ("loss", "accuracy")
    )
    mean_patch = run.series("mean_patch_error")  # the same at every evaluation
    level = ("mean patch", mean_patch[max(mean_patch)]) if mean_patch else None
    axis, added = job.objective.measures, job.objective.added
    figure = figures.run_curves(run.series("loss"), losses, accuracies, axis, level, added)
    run.draw(figure, "curves.png")


def _say(console: Console, text: str) -> None:
    console.print(text, highlight=False, soft_wrap=True, markup=False)
