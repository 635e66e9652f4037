"""Add a trained model to the package: weights in half precision, a record of its training, a card."""

import json
import shlex
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise, zip_longest
from pathlib import Path
from typing import Any

import torch
from huggingface_hub import ModelCard, ModelCardData
from PIL import Image
from sklearn.datasets import load_sample_images

from crate_mae.data.named import NAMED
from crate_mae.errors import UserError
from crate_mae.hub.card import FAMILIES, KINDS, MEANINGS, model_rows, table
from crate_mae.hub.run_record import read_record
from crate_mae.models import shipped
from crate_mae.models.autoencoder import MaskedAutoencoder
from crate_mae.models.checkpoint import write_checkpoint
from crate_mae.models.config import ModelConfig
from crate_mae.models.pretrained import CARD
from crate_mae.models.shipped import RECORD, Measured, ShippedRecord
from crate_mae.models.zoo import load_autoencoder
from crate_mae.tokens import random_mask
from crate_mae.training.config import UNLISTED
from crate_mae.training.run_folder import read_lines

MASKED, SEED = 0.75, 0
"""Mask ratio and seed of the error on the sample photographs."""
FORMS = {
    ("ista", "none"): "CRATE-MAE, the paper's form",
    ("ista", "added"): "CRATE-MAE, residual form",
    ("ista", "relaxed"): "CRATE-MAE, relaxed form",
    ("alpha", "none"): "CRATE-alpha",
    ("alpha", "added"): "CRATE-alpha",
    ("alpha", "relaxed"): "CRATE-alpha, relaxed form",
}
LIMITS = (
    "Fine detail, text and faces: it sees {size} pixels of a picture at a time, and fills in colour and structure.",
    "Recovery of what was really there: a masked region is filled with likely content, blurred where much is possible.",
    "Classification as it is: it gives features; crate-mae finetune trains a classifier on them.",
    "Images unlike photographs (drawings, medical images, satellite images): it has not been measured on them.",
)


@dataclass(frozen=True)
class Training:
    """The record of a finished training."""

    model: MaskedAutoencoder
    data: str
    images: int
    recipe: dict[str, Any]
    processor_hours: float
    numbers: tuple[Measured, ...]


def read_training(folder: Path) -> Training:
    """A run folder of ``crate-mae pretrain``, or the folder of one job of ``crate-mae bench --race``."""
    return _race_job(folder) if (folder / "training.json").is_file() else _run(folder)


def _run(folder: Path) -> Training:
    """The best checkpoint of a run."""
    record = read_record(folder)
    config = record.config
    starts = read_lines(folder / "starts.jsonl")
    seconds = max((line["seconds"] for line in read_lines(folder / "metrics.jsonl") if "seconds" in line), default=0.0)
    cores = max((start.get("processes", 1) * start.get("threads", 1) for start in starts), default=1)
    recipe = {name: value for name, value in config.to_dict().items() if name not in config.marked(UNLISTED)}
    before = 0.0
    shape: dict[str, Any] = {"model": config.model, **config.model_settings}
    if config.checkpoint:
        if config.checkpoint not in shipped.shipped_names():
            raise UserError(f"{folder} started from {config.checkpoint}, whose training is not on record here.")
        before = ShippedRecord.read(shipped.ROOT / config.checkpoint).processor_hours
        shape = {"started from": f"{config.checkpoint}, after {before:.3g} hours of one core"}
    commands = "; ".join(_commands(starts, config.task))
    recipe = {"recipe": config.recipe, **shape, **recipe, "commit": record.commit, "commands": commands}
    numbers = [
        Measured(
            f"{name} ({MEANINGS[config.task, name]}), step {record.step:,} of {config.steps:,}",
            f"{value:.4g}",
            "the commands above",
        )
        for name, value in record.numbers.items()
    ]
    model = load_autoencoder(folder)
    hours = before + cores * seconds / 3600
    return Training(model, title_of(config.data), record.images, recipe, hours, tuple(numbers))


def _commands(starts: Sequence[Mapping[str, Any]], task: str) -> Iterator[str]:
    """The command of each start of a run that trained, without the user's private paths; the same one only once."""
    ends, last = [start["step"] for start in starts[1:]], None
    for start, end in zip_longest(starts, ends):
        words = shlex.split(start["command"])
        kept = ["--resume"] if "--resume" in words else []
        for option, value in pairwise(words):
            if option in ("--recipe", "--checkpoint", "--set"):
                kept += [option, value]
        if kept != last and (end is None or end > start["step"]):
            last = kept
            when = f"from step {start['step']:,}: " if start["step"] else ""
            yield f"{when}`{shlex.join(['crate-mae', task, *kept])}`"


def _race_job(folder: Path) -> Training:
    settings, training = (json.loads((folder / f"{name}.json").read_text()) for name in ("settings", "training"))
    course, recipe = settings["course"], dict(settings["recipe"])
    recipe = {"contestant": settings["contestant"], "seed": settings["seed"], "steps": training["steps"], **recipe}
    data = NAMED.get(course["data"])
    command = f"crate-mae bench --race --only {settings['contestant']}"
    found = json.loads((folder / "loss.json").read_text()) if (folder / "loss.json").is_file() else {}
    words = {
        "loss": "error on the masked patches of held-out images",
        "mean_patch_error": "the same for the mean patch of the training images",
    }
    numbers = [Measured(words[name], f"{found[name]:.4g}", command) for name in words if name in found]
    model = load_autoencoder(folder / "model")
    hours = training["processor_seconds"] / 3600
    return Training(model, title_of(course["data"]), data.images if data else 0, recipe, hours, tuple(numbers))


def title_of(data: str) -> str:
    """The title of a named set; any other name as it is."""
    return NAMED[data].title if data in NAMED else data


def form_of(config: ModelConfig) -> str:
    """The family and form of a model's layers."""
    return "ViT-MAE" if config.family == "vit" else FORMS[config.sparsifier, config.encoder_skip]


@torch.no_grad()
def sample_error(model: MaskedAutoencoder) -> float:
    """The error on the masked patches of scikit-learn's two photographs, three quarters masked."""
    images = torch.stack([model.preprocess(Image.fromarray(photo)) for photo in load_sample_images().images])
    masks = random_mask(len(images), model.num_patches, MASKED, torch.Generator().manual_seed(SEED))
    return model(images, masks).loss.item()


def ship(training: Training, name: str, numbers: tuple[Measured, ...] = (), not_good_for: tuple[str, ...] = ()) -> Path:
    """Write a model into the package: weights in half precision, record and card. ``numbers`` come first."""
    model = training.model
    halves = {key: tensor.half() for key, tensor in model.state_dict().items()}
    for key, tensor in halves.items():
        if not tensor.isfinite().all():
            raise UserError(f"{key} has numbers that half precision can't hold; this model can't be shipped.")
    folder = write_checkpoint(shipped.ROOT / name, model.kind, model.config, halves, model.extras())
    (height, width), patch = model.config.image_size, model.config.patch_size
    record = ShippedRecord(
        form=form_of(model.config),
        shape=f"images of {width} x {height} pixels, patches of {patch[1]} x {patch[0]}",
        data=training.data,
        images=training.images,
        recipe=training.recipe,
        processor_hours=round(training.processor_hours, 2),
        numbers=(*numbers, *training.numbers),
        not_good_for=not_good_for or tuple(limit.format(size=f"{width} x {height}") for limit in LIMITS),
        parameters=model.num_parameters,
        sample_error=sample_error(load_autoencoder(folder)),
    )
    (folder / RECORD).write_text(record.to_json())
    card(model, name, record).save(folder / CARD)
    return folder


def _quoted(command: str) -> str:
    return f"`{command}`" if command.startswith("crate-mae") else command


def card(model: MaskedAutoencoder, name: str, record: ShippedRecord) -> ModelCard:
    """The card of a model that comes with the package."""
    metadata = ModelCardData(
        license="mit",
        library_name="crate-mae",
        pipeline_tag="image-feature-extraction",
        tags=["crate-mae", model.config.family, model.kind, "masked-autoencoder", "safetensors"],
    )
    titles = {"commands": "commands, each with `--out RUN --data-root DIR`"}
    recipe = {titles.get(key, key): value for key, value in record.recipe.items() if value is not None}
    parts = [
        f"# {name}",
        f"{record.form}. {KINDS[model.kind]} {FAMILIES[model.config.family]} It comes with crate-mae:",
        f"""```python
import crate_mae

model = crate_mae.load("{name}")
image = model.preprocess("photo.jpg")[None]
mask = crate_mae.random_mask(1, model.num_patches, 0.75)
model.to_image(model.complete(image, mask)[0]).save("completed.png")
features = model.features(image, pool="mean")  # (1, {model.config.dim})
```""",
        f"`crate-mae complete photo.jpg --checkpoint {name} --rectangle 0.3 0.3 0.6 0.6 --out filled.png` fills a "
        "region of a photograph at its own size.",
        table(["model", ""], model_rows(model)),
        "## Data",
        f"{record.data}; {record.images:,} training images, without their labels.",
        "## Recipe",
        f"{record.processor_hours:.3g} {'hour' if record.processor_hours == 1 else 'hours'} of one core. The weights "
        "are stored in half precision.",
        table(["setting", ""], list(recipe.items())),
        "## Numbers",
        table(
            ["", "value", "command"],
            [(number.what, number.value, _quoted(number.command)) for number in record.numbers],
        ),
        "## Not good for",
        "\n".join(f"- {limit}" for limit in record.not_good_for),
        "The licence is that of these weights; the training images have terms of their own.",
    ]
    return ModelCard(f"---\n{metadata.to_yaml()}\n---\n\n" + "\n\n".join(parts) + "\n")
