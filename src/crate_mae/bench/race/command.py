"""``crate-mae bench --race``: jobs on all cores, two at most side by side; race.json and race.md of what is done."""

import json
import os
import queue
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

import torch
from rich.console import Console

from crate_mae.analysis.layerwise import EPSILON
from crate_mae.bench.machine import machine
from crate_mae.bench.race.images import prepare
from crate_mae.bench.race.job import Job
from crate_mae.bench.race.layers import MEASURED, PROBED
from crate_mae.bench.race.recipes import COURSES, RECIPES, Course, Recipe
from crate_mae.bench.race.table import layers_markdown, markdown
from crate_mae.data.checking import processors
from crate_mae.device import multiplies_bfloat16
from crate_mae.errors import UserError
from crate_mae.progress import Board
from crate_mae.training.config import Optimiser

SIDE_BY_SIDE = 2
TITLES: dict[Optimiser, str] = {"adamw": "AdamW", "muon": "Muon"}


def race(
    out: Path,
    data_root: Path | None,
    *,
    seconds: float,
    seeds: int,
    console: Console,
    command: str,
    recipes: dict[str, dict[str, Recipe]] = RECIPES,
    courses: dict[str, Course] = COURSES,
) -> Path:
    """Run what is not done yet, write race.json and race.md to ``out``, and print the table."""
    jobs = [
        Job(name, courses[course], recipe, seed, seconds, out)
        for course in recipes
        for seed in range(seeds)
        for name, recipe in recipes[course].items()
    ]
    for job in jobs:
        job.check()
    for course in recipes:
        prepare(courses[course], data_root, out / "images" / courses[course].data, console)
    about = {"command": command, "machine": machine() | {"threads": 1}, "protocol": protocol(jobs)}
    write(out, about, jobs)
    carry_out(out, about, jobs, console)
    console.print((out / "race.md").read_text(), highlight=False, markup=False, soft_wrap=True)
    console.print(f"Wrote {out / 'race.json'} and {out / 'race.md'}.", soft_wrap=True)
    return out / "race.json"


def carry_out(out: Path, about: dict[str, Any], jobs: list[Job], console: Console) -> None:
    """What is not done of all jobs, round by round: all of them are trained before the first is fine-tuned."""
    with Board("race", sum(len(job.missing(job.steps)) for job in jobs), console) as board:
        try:
            for number in range(max(len(job.rounds) for job in jobs)):
                parts = [Part(job, job.missing(job.rounds[number])) for job in jobs if number < len(job.rounds)]
                for message in side_by_side([part for part in parts if part.steps]):
                    if "error" in message.content:
                        raise UserError(f"{message.job.name} failed: {message.content['error']}")
                    if "numbers" in message.content:
                        board.finish(message.label, in_words(message.content["numbers"]))
                        write(out, about, jobs)
                    else:
                        board.show(message.label, message.content["percent"] / 100, message.content["note"])
        except KeyboardInterrupt:
            console.print("Stopped; the same command continues from here.")
            raise


@dataclass(frozen=True)
class Part:
    """Steps of a job that one process does."""

    job: Job
    steps: list[str]


def side_by_side(parts: list[Part]) -> Iterator["Message"]:
    """The messages of these parts, each in a process of its own, as many at a time as there are cores for."""
    waiting: queue.SimpleQueue[Part] = queue.SimpleQueue()
    for part in parts:
        waiting.put(part)
    messages: queue.SimpleQueue[Message | None] = queue.SimpleQueue()
    slots = [Slot(core, waiting, messages) for core in cores()[: len(parts)]]
    for slot in slots:
        slot.start()
    running = len(slots)
    try:
        while running:
            if message := messages.get():
                yield message
            else:
                running -= 1
    finally:
        for slot in slots:
            slot.stop()
        for slot in slots:
            slot.join()


def cores() -> list[int | None]:
    """One for each job that runs at the same time; None where the system does not let a process choose its core."""
    if hasattr(os, "sched_getaffinity"):
        return list(sorted(os.sched_getaffinity(0))[:SIDE_BY_SIDE])
    return [None] * min(SIDE_BY_SIDE, processors())


@dataclass(frozen=True)
class Message:
    """From a job's process: progress, numbers or an error."""

    job: Job
    content: dict[str, Any]

    @property
    def label(self) -> str:
        return f"{self.job.name}: {self.content['step']}"


class Slot(threading.Thread):
    """A core: its thread runs one part after another, and puts None into the queue when there are no more."""

    def __init__(
        self, core: int | None, waiting: "queue.SimpleQueue[Part]", messages: "queue.SimpleQueue[Message | None]"
    ) -> None:
        super().__init__(daemon=True)
        self.core, self.waiting, self.messages = core, waiting, messages
        self.process: subprocess.Popen[str] | None = None
        self._stopped = False
        self._starting = threading.Lock()
        """No process starts after ``stop``."""

    def run(self) -> None:
        try:
            while not self._stopped:
                try:
                    part = self.waiting.get_nowait()
                except queue.Empty:
                    break
                self.run_part(part)
        finally:
            self.messages.put(None)

    def run_part(self, part: Part) -> None:
        job = part.job
        asked = json.dumps({"settings": job.settings(), "steps": part.steps, "core": self.core})
        words = [sys.executable, "-m", "crate_mae.bench.race.job", asked]
        with tempfile.TemporaryFile("w+") as errors:
            process = self._start(words, errors)
            if process is None:
                return
            with process:
                assert process.stdout is not None
                for line in process.stdout:
                    if line.endswith("\n"):  # the last line of a process that was killed may be cut
                        self.messages.put(Message(job, json.loads(line)))
            if process.returncode and not self._stopped:
                errors.seek(0)
                said = errors.read().strip().splitlines() or [f"it ended with code {process.returncode}"]
                self.messages.put(Message(job, {"error": said[-1]}))

    def _start(self, words: Sequence[str], errors: IO[str]) -> "subprocess.Popen[str] | None":
        """The process; None after ``stop``."""
        environment = os.environ | {"OMP_NUM_THREADS": "1"}
        with self._starting:
            if not self._stopped:
                self.process = subprocess.Popen(
                    words, stdout=subprocess.PIPE, stderr=errors, text=True, env=environment
                )
                return self.process
        return None

    def stop(self) -> None:
        """Ask the running job to save and end."""
        with self._starting:
            self._stopped = True
        if self.process is not None and self.process.poll() is None:
            self.process.terminate()


def in_words(numbers: dict[str, Any]) -> str:
    """Single numbers, such as ``loss 0.47``."""
    return ", ".join(f"{name} {value:.4g}" for name, value in numbers.items() if isinstance(value, int | float))


def write(out: Path, about: dict[str, Any], jobs: list[Job]) -> None:
    """race.json and race.md of all that is done so far."""
    results = [
        {"data": job.course.data, "contestant": job.recipe.title, "seed": job.seed, **numbers}
        for job in jobs
        if (numbers := job.results())
    ]
    settings: dict[str, dict[str, Any]] = {}
    for job in jobs:
        settings.setdefault(job.course.data, {})[job.recipe.title] = job.settings()["recipe"]
    record = about | {"recipes": settings, "results": results}
    tables = f"{markdown(record)}\nLayer by layer. {layers_markdown(record)}"
    for name, text in (("race.json", json.dumps(record, indent=1) + "\n"), ("race.md", tables)):
        (out / name).write_text(text)


def protocol(jobs: Sequence[Job]) -> list[str]:
    """How it was done, for people."""
    seconds, seeds, course = jobs[0].seconds, 1 + max(job.seed for job in jobs), jobs[0].course
    spread = f"Up to {seeds} seeds, mean ± standard deviation." if seeds > 1 else "One seed."
    fitted = "all" if course.probe_images is None else f"{course.probe_images:,}"
    products = "bfloat16" if multiplies_bfloat16(torch.device("cpu")) else "float32"
    shapes = "; ".join(f"{job.recipe.title} on {job.course.data}: {shape(job)}" for job in jobs if job.seed == 0)
    lines = [
        f"Each contestant trains for {seconds:g} s of processor time in a process of one thread on a core of its own, "
        "at most two side by side. Only training steps with their batches count; the learning rate follows the used "
        f"share. Products are computed in {products}. {spread}",
        f"Recipes. {shapes}.",
        "Images are kept in memory as bytes; a training crop is shifted by up to 4 pixels and mirrored at random. 5 % "
        "of the training images are held out.",
        "loss: mean squared error on the masked patches of the held-out images, pixels normalised; mean-patch error: "
        "that of the mean training patch. images/s: in a second of processor time.",
        f"probe: logistic regression on the mean of patches of the last layer, fitted to {fitted} training images, C "
        "chosen on the held-out ones. 20-NN: the same features, cosine similarity.",
        f"layer by layer: on {MEASURED} test images, nothing masked, eps^2 = {EPSILON**2:g}; docs/look-inside.md has "
        "the definitions. probe: a ridge regression on the mean of patches of the layer's output, fitted to "
        f"{PROBED:,} training images. untrained: the same architecture with random weights.",
    ]
    if course.finetune_steps:
        tuned = " and ".join(f"{count} steps on {percent} %" for percent, count in course.finetune_steps.items())
        lines.append(
            f"some of the labels: test accuracy after fine-tuning all weights, {tuned}, batch "
            f"{course.finetune_batch}; random weights: the same without pretraining."
        )
    return lines


def shape(job: Job) -> str:
    """A recipe in a line."""
    c, r = job.course.config(job.recipe), job.recipe
    ista = f"eta {c.eta:g}, lambda {c.lambda_:g}, " if c.family == "crate" else ""
    averaged = f", running mean of the weights {r.averaging:g}" if r.averaging else ""
    tuned = f", fine-tuned at {r.finetune_rate:g}, layer decay {r.layer_decay:g}" if job.course.finetune_steps else ""
    return (
        f"{c.image_size[0]} px, patch {c.patch_size[0]}, d {c.dim}, {c.heads} heads, {c.depth} layers, {ista}decoder "
        f"{c.decoder_depth} x {c.decoder_dim}, {c.decoder_heads} heads, {TITLES[r.optimiser]} {r.learning_rate:g}, "
        f"warm-up {r.warmup:.0%}, betas {r.betas[0]}/{r.betas[1]}, decay {r.weight_decay:g}, clip {r.clip:g}, batch "
        f"{r.batch}, {r.mask_ratio:.0%} masked{averaged}{tuned}"
    )
