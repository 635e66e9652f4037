"""Tasks whose trainings are ordinary runs of a number of steps.

Models are run folders in ``OUT/models``. Their names have a hash of their configuration, so that every table and figure
that needs a model finds the same one.
"""

import hashlib
import json
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from crate_mae.data.named import Split
from crate_mae.data.open import find_images, open_dataset
from crate_mae.device import pick_device
from crate_mae.evaluation.linear_probe import PAPER_STRENGTHS
from crate_mae.evaluation.probe_model import ProbeSettings
from crate_mae.evaluation.probe_model import run as probe
from crate_mae.features.extraction import Reader
from crate_mae.models.zoo import load, load_autoencoder
from crate_mae.reproduce.run_command import train
from crate_mae.reproduce.scales import Kinds
from crate_mae.reproduce.tasks import (
    QUIET,
    FinetuneTask,
    Place,
    PretrainTask,
    ProbeTask,
    ReconstructTask,
    Task,
    write_numbers,
)
from crate_mae.training.config import HOW_IT_RUNS, FinetuneConfig, PretrainConfig, RunConfig
from crate_mae.training.distributed import Processes
from crate_mae.training.evaluators import Accuracy, Reconstruction, as_evaluated, masked_as_evaluated
from crate_mae.training.run_folder import Run
from crate_mae.training.training_state import PREFIX, checkpoints_in


def folder(place: Place, name: str, config: RunConfig) -> Path:
    """The run folder of a configuration; it does not depend on where the data are or how it is run."""
    without_effect = config.marked(HOW_IT_RUNS)
    identity = {key: value for key, value in config.to_dict().items() if key not in without_effect}
    if identity.get("checkpoint"):
        identity["checkpoint"] = Path(identity["checkpoint"]).name
    digest = hashlib.blake2b(json.dumps(identity, sort_keys=True).encode(), digest_size=4).hexdigest()
    return place.out / "models" / f"{name}-{digest}"


def _finished(path: Path, config: RunConfig) -> bool:
    there = checkpoints_in(Run(path).checkpoints)
    return bool(there) and int(there[-1].name.removeprefix(PREFIX)) >= config.steps


def _share_of_steps(path: Path, config: RunConfig) -> float:
    """The fraction of a training that is done, from the last line of its metrics."""
    try:
        lines = Run(path).metrics.read_text().splitlines()
        return json.loads(lines[-1])["step"] / config.steps
    except (OSError, IndexError, ValueError, KeyError):  # none yet, or a line that is being written
        return 0.0


@dataclass(frozen=True)
class Pretrained(PretrainTask):
    """A pretrained model."""

    def config(self, place: Place) -> PretrainConfig:
        """The run's configuration."""
        return _at(place, place.scale.pretraining(self.model))

    def folder(self, place: Place) -> Path:
        return folder(place, self.model.name, self.config(place))

    def is_done(self, place: Place) -> bool:
        return _finished(self.folder(place), self.config(place))

    def share_done(self, place: Place) -> float:
        return _share_of_steps(self.folder(place), self.config(place))

    def run(self, place: Place) -> None:
        train(self.config(place), self.folder(place), place.device, QUIET)


@dataclass(frozen=True)
class Finetuned(FinetuneTask):
    """A fine-tuned model, and its accuracy on all test images."""

    @property
    def before(self) -> tuple[Task, ...]:
        return () if self.random else (Pretrained(self.model),)

    def config(self, place: Place) -> FinetuneConfig:
        """The run's configuration, with the weights to start from."""
        config = _at(place, place.scale.finetuning(self.model, self.data))
        if self.random:
            return replace(config, random=True)
        return replace(config, checkpoint=str(Pretrained(self.model).folder(place)))

    def folder(self, place: Place) -> Path:
        """The run folder."""
        return folder(place, f"{self.model.name}-{self.kind}-{self.data}", self.config(place))

    def file(self, place: Place) -> Path:
        return self.folder(place) / "test.json"

    def share_done(self, place: Place) -> float:
        return _share_of_steps(self.folder(place), self.config(place))

    def run(self, place: Place) -> None:
        config, path = self.config(place), self.folder(place)
        if not _finished(path, config):
            train(config, path, place.device, QUIET)
        model = load(path).to(pick_device(place.device)).eval()
        test = as_evaluated(open_dataset(self.data, "test", place.data_root), model.config)
        accuracy = Accuracy({"test": test}, Processes(0, 1, model.device), config.workers)
        write_numbers(self.file(place), dict(accuracy(model)))


@dataclass(frozen=True)
class Probed(ProbeTask):
    """Linear probes on all images of a set, as ``crate-mae probe`` fits them."""

    @property
    def before(self) -> tuple[Task, ...]:
        return (Pretrained(self.model),)

    def file(self, place: Place) -> Path:
        return Pretrained(self.model).folder(place) / "probe" / self.data / "probe.json"

    def run(self, place: Place) -> None:
        model = load(Pretrained(self.model).folder(place)).to(pick_device(place.device)).eval()
        out = self.file(place).parent
        workers = place.scale.finetuning(self.model, self.data).workers
        reader = Reader(workers=workers, console=QUIET)
        settings = ProbeSettings(
            self.data,
            place.data_root,
            pools=("cls", "mean"),
            untrained=False,
            strengths=PAPER_STRENGTHS,
            seed=self.model.seed,
        )
        probe(model, settings, out, reader)


@dataclass(frozen=True)
class Reconstructed(ReconstructTask):
    """The error of completions, as the evaluator of pretraining measures it."""

    @property
    def before(self) -> tuple[Task, ...]:
        return (Pretrained(self.model),)

    def file(self, place: Place) -> Path:
        return Pretrained(self.model).folder(place) / "reconstruction.json"

    def run(self, place: Place) -> None:
        made = Pretrained(self.model)
        model = load_autoencoder(made.folder(place)).to(pick_device(place.device)).eval()
        splits: dict[str, Split] = {"train": "train", "val": "test"}
        images = find_images(self.model.data, place.data_root)
        sources = {name: images.split(split) for name, split in splits.items()}
        samples = {name: masked_as_evaluated(of, model.config, self.model.mask_ratio) for name, of in sources.items()}
        evaluator = Reconstruction(samples, Processes(0, 1, model.device), made.config(place).workers)
        write_numbers(self.file(place), dict(evaluator(model)))


RUN_FOLDERS = Kinds(Pretrained, Finetuned, Probed, Reconstructed)
"""Tasks whose trainings are ordinary runs."""


def _at(place: Place, config: Any) -> Any:
    return replace(config, data_root=None if place.data_root is None else str(place.data_root))
