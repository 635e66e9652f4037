"""The model card that goes with a checkpoint to the Hugging Face Hub: what is known about a model, and what is not."""

from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from huggingface_hub import ModelCard, ModelCardData

from crate_mae.data.named import NAMED, NamedSet
from crate_mae.errors import UserError
from crate_mae.hub.run_record import Record, read_record
from crate_mae.models.checkpoint import read_checkpoint
from crate_mae.training.config import UNLISTED, FinetuneConfig

if TYPE_CHECKING:
    from crate_mae.models.image_model import ImageModel


TITLES = {"crate": "CRATE-MAE", "vit": "ViT-MAE"}
KINDS = {
    "autoencoder": "A masked autoencoder: it completes images of which some patches are masked, and gives features.",
    "encoder": "The encoder of a masked autoencoder: it gives features of images.",
    "classifier": "A classifier of images, on the encoder of a masked autoencoder.",
}
USES = {
    "autoencoder": """mask = crate_mae.random_mask(1, model.num_patches, 0.75)
model.to_image(model.complete(image, mask)[0]).save("completed.png")
features = model.features(image, pool="mean")  # (1, {dim})""",
    "encoder": 'features = model.features(image, pool="mean")  # (1, {dim})',
    "classifier": "print(model.class_names[model(image).argmax()])",
}
FAMILIES = {
    "crate": "White-box: each encoder layer compresses the tokens against subspaces (MSSA), then sparsifies them in a "
    "dictionary (ISTA), after *Masked Completion via Structured Diffusion with White-Box Transformers* (ICLR 2024).",
    "vit": "The ordinary transformer, after *Masked Autoencoders Are Scalable Vision Learners* (CVPR 2022).",
}
MEANINGS = {
    ("pretrain", "train_loss"): "mean squared error on the masked patches of training images",
    ("pretrain", "val_loss"): "mean squared error on the masked patches of validation images",
    ("pretrain", "mean_patch_error"): "the same of filling in the mean training patch, without a model",
    ("pretrain", "knn_accuracy"): "per cent of validation images, by a vote of the k nearest training images",
    ("pretrain", "probe_accuracy"): "per cent of validation images, by a quick linear probe",
    ("finetune", "val_accuracy"): "per cent of validation images",
    ("finetune", "val_loss"): "cross entropy on validation images",
}


def model_card(
    model: "ImageModel", run: str | Path | None = None, license: str = "mit", repo_id: str | None = None
) -> ModelCard:
    """A card with the Hub's metadata, a description of the model, its recipe, data, numbers and limits.

    Recipe, data and numbers are those recorded in ``run``, whose best checkpoint the model must be. Without ``run`` the
    card says that they are not known.
    """
    record = None if run is None else _of_this_model(model, Path(run))
    config, kind = model.config, model.kind
    data = NAMED.get(record.config.data) if record else None
    metadata = ModelCardData(
        license=license,
        library_name="crate-mae",
        pipeline_tag="image-classification" if model.num_classes else "image-feature-extraction",
        tags=["crate-mae", config.family, kind, "masked-autoencoder", "safetensors"],
        datasets=[data.hub_id] if data and data.hub_id else None,
        metrics=["accuracy"] if record and "val_accuracy" in record.numbers else None,
    )
    use = USES[kind].format(dim=config.dim)
    name = repo_id or "owner/name"
    parts = [
        f"# {TITLES[config.family]} {kind}, {config.dim} x {config.depth}",
        f"{KINDS[kind]} {FAMILIES[config.family]}",
        f"""```python
import crate_mae

model = crate_mae.ImageModel.from_pretrained("{name}")  # or the folder with these files
image = model.preprocess("photo.jpg")[None]
{use}
```""",
        table(["model", ""], model_rows(model)),
        "## Recipe",
        _recipe(record),
        "## Data",
        _data(record, data),
        "## Numbers",
        _numbers(record),
        "## Limits",
        "\n".join(f"- {limit}" for limit in _limits(model, record)),
    ]
    return ModelCard(f"---\n{metadata.to_yaml()}\n---\n\n" + "\n\n".join(parts) + "\n")


def _of_this_model(model: "ImageModel", run: Path) -> Record:
    """The record of a run; the model must be its best checkpoint, since the numbers hold for that one only."""
    record = read_record(run)
    best = read_checkpoint(run)
    own = model.state_dict()
    same = model.config == best.config and own.keys() == best.tensors.keys()
    if not same or not all(
        torch.equal(own[name].cpu(), tensor.to(own[name].dtype)) for name, tensor in best.tensors.items()
    ):
        raise UserError(f"the model is not the best checkpoint of {run}, so its record does not apply; leave run out.")
    return record


def _layers(number: int) -> str:
    return "1 layer" if number == 1 else f"{number} layers"


def model_rows(model: "ImageModel") -> list[tuple[str, Any]]:
    """The shape of a model, for a card."""
    config = model.config
    rows: list[tuple[str, Any]] = [
        ("kind", model.kind),
        ("parameters", f"{model.num_parameters:,}"),
        ("image", f"{_by(config.image_size)} pixels, channels: {config.channels}"),
        ("patch", f"{_by(config.patch_size)} pixels, {config.num_patches} patches"),
        ("encoder", f"{_layers(config.depth)} of width {config.dim}, {config.heads} heads"),
    ]
    if model.kind == "autoencoder":
        shape = f"{_layers(config.decoder_depth)} of width {config.decoder_dim}, {config.decoder_heads} heads"
        rows += [("decoder", shape), ("the encoder sees", config.encoder_sees)]
    if config.family == "crate":
        rows += [("preset", config.preset or "none"), ("lambda, eta", f"{config.lambda_:g}, {config.eta:g}")]
    return rows


def _recipe(record: Record | None) -> str:
    if record is None:
        return "Not known: no run folder was given when this card was written."
    config = record.config
    step = "not on record" if record.step is None else record.step
    code = (
        "not on record" if record.commit is None else f"`{record.commit}`" + ", changed" * record.commit.endswith("+")
    )
    rows: list[tuple[str, Any]] = [
        ("task", config.task),
        ("recipe", config.recipe),
        ("step of this checkpoint", f"{step}, chosen by {config.best_by}"),
        ("code", code),
        ("ran on", "; ".join(record.machines) or "not on record"),
    ]
    if config.checkpoint:
        random = isinstance(config, FinetuneConfig) and config.random
        weights = "random weights of its shape" if random else "its weights"
        rows.append(("started from", f"another checkpoint, which is not on record here: {weights}"))
    else:
        rows += [("model", config.model), ("preset", config.preset)]
        rows += [(f"model.{name}", value) for name, value in config.model_settings.items()]
    for name in [name for name in config.all() if name not in config.marked(UNLISTED)]:
        value = getattr(config, name)
        rows += [(f"{name}.{key}", of) for key, of in value.items()] if isinstance(value, dict) else [(name, value)]
    rows = [(name, value) for name, value in rows if value is not None]
    return table(["setting", ""], rows)


def _data(record: Record | None, data: NamedSet | None) -> str:
    if record is None:
        return "Not known."
    what = data.title if data else "Images of the publisher's own, which this card does not describe"
    return f"{what}; {record.images:,} training images."


def _numbers(record: Record | None) -> str:
    if record is None or not record.numbers:
        return "Not known: no evaluation is on record."
    rows = [
        (name, f"{value:.4g}", MEANINGS.get((record.config.task, name), "")) for name, value in record.numbers.items()
    ]
    count = record.config.evaluation_images
    note = f"On at most {count} images of a split, which also chose the checkpoint; no test set's number is on record."
    return f"{table(['', 'value', 'what it is'], rows)}\n\n{note}"


def _limits(model: "ImageModel", record: Record | None) -> list[str]:
    config = model.config
    limits = [
        f"It takes images of {_by(config.image_size)} pixels; others are resized without keeping their aspect ratio.",
        "How good it is on images unlike its training images has not been measured, nor which biases it has from them.",
        "The licence is that of these weights; the training images have terms of their own.",
    ]
    if record is None:
        limits.append("How it was trained, and whether it was at all, is not known from these files.")
    if model.kind == "autoencoder" and config.norm_pix_loss:
        limits.append(
            "It completes patches up to a mean and a standard deviation, which come from the rest of the image."
        )
    if model.kind == "classifier":
        limits.append(f"It tells {model.num_classes} classes apart and gives one of them for any image.")
    return limits


def table(head: list[str], rows: list[Any]) -> str:
    """A Markdown table."""
    lines = [head, ["---"] * len(head), *([str(cell) for cell in row] for row in rows)]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def _by(size: tuple[int, int]) -> str:
    return f"{size[0]} x {size[1]}"
