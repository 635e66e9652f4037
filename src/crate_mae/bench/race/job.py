"""One contestant with one seed, in a process of its own on a core of its own: trained, then measured.

Every step leaves a JSON file in the job's folder, and a step whose file is there is not run again.
"""

import json
import os
import signal
import sys
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import IO, Any

import torch

from crate_mae.atomic_write import atomic_write
from crate_mae.bench.race.images import load
from crate_mae.bench.race.measurements import FINETUNE, Pretrained, measurements
from crate_mae.bench.race.recipes import Course, Recipe
from crate_mae.bench.race.training import Report, Stopped, train
from crate_mae.errors import UserError
from crate_mae.models.zoo import load_autoencoder

TRAINING = "training"
SETTINGS = "settings.json"


@dataclass(frozen=True)
class Job:
    """What to train and to measure, and where its files are."""

    contestant: str
    course: Course
    recipe: Recipe
    seed: int
    seconds: float
    """Of processor time."""
    out: Path
    """The race's folder."""

    @property
    def name(self) -> str:
        return f"{self.course.data}, {self.contestant}, seed {self.seed}"

    @property
    def folder(self) -> Path:
        return self.out / self.course.data / self.contestant / f"seed-{self.seed}"

    @property
    def images(self) -> Path:
        return self.out / "images" / self.course.data

    @property
    def steps(self) -> list[str]:
        return [TRAINING, *measurements(self.course, self.contestant)]

    def file(self, step: str) -> Path:
        return self.folder / f"{step}.json"

    @property
    def rounds(self) -> list[list[str]]:
        """The steps in groups: training and what is measured at once, then each fine-tuning by itself."""
        tuned = [step for step in self.steps if step.startswith(FINETUNE)]
        return [[step for step in self.steps if step not in tuned], *([step] for step in tuned)]

    def missing(self, steps: Iterable[str]) -> list[str]:
        """Those of the steps that are not done."""
        return [step for step in steps if not self.file(step).is_file()]

    def results(self) -> dict[str, Any]:
        """The numbers of all steps that are done."""
        found: dict[str, Any] = {}
        for step in self.steps:
            if self.file(step).is_file():
                found |= json.loads(self.file(step).read_text())
        return found

    def settings(self) -> dict[str, Any]:
        """All that decides the results, and the place; as JSON gives it back."""
        return json.loads(json.dumps(asdict(self), default=str))

    def check(self) -> None:
        """Refuse a folder in which a job with other settings was begun."""
        file = self.folder / SETTINGS
        if not file.is_file():
            self.folder.mkdir(parents=True, exist_ok=True)
            wanted = {key: value for key, value in self.settings().items() if key != "out"}
            file.write_text(json.dumps(wanted, indent=1) + "\n")
            return
        try:
            begun = Job.from_settings(json.loads(file.read_text()) | {"out": self.out})
            same = begun.settings() == self.settings()  # a field that was added since has its default
        except (AttributeError, KeyError, TypeError, ValueError):  # the file is damaged, or lacks a field
            same = False
        if not same:
            raise UserError(
                f"{self.folder} holds results of other settings (see {SETTINGS} there); choose another --out."
            )

    @staticmethod
    def from_settings(settings: dict[str, Any]) -> "Job":
        course = settings["course"]
        steps = {int(percent): count for percent, count in course["finetune_steps"].items()}
        recipe = Recipe(**settings["recipe"] | {"betas": tuple(settings["recipe"]["betas"])})
        return Job(
            **settings
            | {"course": Course(**course | {"finetune_steps": steps}), "recipe": recipe, "out": Path(settings["out"])}
        )


def run(job: Job, steps: Iterable[str], tell: "Tell") -> None:
    """Do these steps; all but the training need its weights."""
    images = load(job.images)
    weights, checkpoint = job.folder / "model", job.folder / "checkpoint.pt"
    if TRAINING in steps:
        model, state = train(
            job.course,
            job.recipe,
            images,
            seconds=job.seconds,
            seed=job.seed,
            checkpoint=checkpoint,
            report=tell.about(TRAINING),
        )
        model.save(weights)
        numbers = {
            "parameters": sum(p.numel() for p in model.parameters() if p.requires_grad),
            "images_per_second": state.step * job.recipe.batch / state.used,
            "steps": state.step,
            "processor_seconds": state.used,
            "curve": state.curve,
        }
        tell.finished(job, TRAINING, numbers)
        checkpoint.unlink(missing_ok=True)
    it = Pretrained(load_autoencoder(weights).eval(), job.course, job.recipe, images, job.seed)
    for name, measure in measurements(job.course, job.contestant).items():
        if name in steps:
            torch.manual_seed(job.seed)
            tell.finished(job, name, measure(it, tell.about(name)))


class Tell:
    """What the process says to the one that started it: a line of JSON for each message."""

    def __init__(self, answers: IO[str]):
        self.answers = answers
        self.step = ""
        self.stopped = False
        self.last = -1

    def about(self, step: str) -> Report:
        """For progress within a step, in per cent."""
        self.step = step

        def report(share: float, note: str) -> None:
            if self.stopped:
                raise Stopped
            if (percent := int(100 * share)) != self.last:
                self.last = percent
                self._say({"step": step, "percent": percent, "note": note})

        return report

    def finished(self, job: Job, step: str, numbers: dict[str, Any]) -> None:
        """Write a step's file, whole or not at all."""
        with atomic_write(job.file(step)) as temporary:
            temporary.write_text(json.dumps(numbers, indent=1) + "\n")
        self._say({"step": step, "numbers": numbers})

    def _say(self, message: dict[str, Any]) -> None:
        self.answers.write(json.dumps(message) + "\n")
        self.answers.flush()

    def stop(self, *_: object) -> None:
        """A training ends after its step, and saves; a measurement ends at once."""
        self.stopped = True
        if self.step != TRAINING:
            raise Stopped


def main(settings: dict[str, Any], steps: list[str], core: int | None) -> None:
    if core is not None:
        os.sched_setaffinity(0, {core})
    torch.set_num_threads(1)
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # what a library prints is no message
    tell = Tell(answers)
    signal.signal(signal.SIGTERM, tell.stop)
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the process that started this one passes it on
    with suppress(Stopped):
        run(Job.from_settings(settings), steps, tell)


if __name__ == "__main__":
    asked = json.loads(sys.argv[1])
    main(**asked)
