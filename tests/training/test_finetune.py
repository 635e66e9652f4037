import io
import json
import tarfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from rich.console import Console

import crate_mae
from crate_mae.cli import main
from crate_mae.data.loader import training_batches
from crate_mae.data.open import open_dataset
from crate_mae.data.source import ArrayImages
from crate_mae.errors import UserError
from crate_mae.models.classifier import Classifier
from crate_mae.training.config import FinetuneConfig
from crate_mae.training.distributed import Processes
from crate_mae.training.finetune import finetuning, starting_model
from crate_mae.training.launch import launch
from crate_mae.training.loop import Job
from tests.conftest import small_model
from tests.data.conftest import picture, write

ALONE = Processes(0, 1, torch.device("cpu"))
NAMES = ("cat", "dog", "emu")
FLOOR = 45  # per cent: 60 steps reach 60 on digits, guessing 10


def config(**settings: Any) -> FinetuneConfig:
    plain = {"recipe": "test", "model": "crate_mae_tiny", "data": "set", "steps": 2, "batch": 4, "seed": 5}
    plain |= {"learning_rate": 1e-3, "weight_decay": 0.05, "evaluators": {"accuracy": 1000}}
    return FinetuneConfig(**(plain | settings))


def pictures(labels: list[int], names: tuple[str, ...] = NAMES) -> ArrayImages:
    pixels = np.random.default_rng(0).integers(0, 256, (len(labels), 12, 24, 3), dtype=np.uint8)
    return ArrayImages("set", pixels, np.array(labels), names)


def job(settings: FinetuneConfig, validation: ArrayImages | None = None) -> Job:
    return finetuning(settings, pictures([0, 1, 2] * 4), validation or pictures([0, 1, 2]), ALONE)


@pytest.fixture(params=["crate_mae_tiny", "vit_mae_small"])
def checkpoint(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    return small_model(request.param).save(tmp_path / "pretrained")


def test_random_weights_share_everything_with_pretrained_ones_but_the_encoder(checkpoint: Path) -> None:
    """Table 3: the same shape, the same head, the same batches."""
    pretrained, random = (job(config(checkpoint=str(checkpoint), random=each)) for each in (False, True))
    source = crate_mae.load(checkpoint)
    one, other = (each.objective.model for each in (pretrained, random))
    assert one.config == other.config == source.config
    assert torch.equal(one.head.weight, other.head.weight)
    for name, tensor in source.encoder.state_dict().items():
        assert torch.equal(one.encoder.state_dict()[name], tensor)
    for name in ("projection.weight", "class_token"):
        assert torch.equal(one.embedding.state_dict()[name], source.embedding.state_dict()[name])
        assert not torch.equal(other.embedding.state_dict()[name], source.embedding.state_dict()[name])
    matrices = [name for name, weight in source.encoder.named_parameters() if weight.ndim == 2]
    assert matrices
    for name in matrices:
        assert not torch.equal(other.encoder.state_dict()[name], source.encoder.state_dict()[name])
    for a, b in zip(*(training_batches(each.samples, 4, range(5)) for each in (pretrained, random)), strict=True):
        assert torch.equal(a.images, b.images)
        assert torch.equal(a.labels, b.labels)
    drawn = next(training_batches(job(config(checkpoint=str(checkpoint), seed=6)).samples, 4, range(1)))
    assert not torch.equal(drawn.images, next(training_batches(pretrained.samples, 4, range(1))).images)


@pytest.mark.parametrize("kind", ["autoencoder", "encoder", "classifier"])
def test_any_kind_of_checkpoint_is_a_start(kind: str, tmp_path: Path) -> None:
    autoencoder = small_model("crate_mae_tiny")
    starts = {"autoencoder": autoencoder, "classifier": Classifier.on(autoencoder, ["x", "y"])}
    starts["encoder"] = crate_mae.ImageEncoder(autoencoder.config, torch.Generator().manual_seed(8))
    start = starts[kind]
    start.save(tmp_path / "start")
    tuned = starting_model(config(checkpoint=str(tmp_path / "start")), NAMES)
    images = torch.randn(2, 3, 12, 24)
    assert torch.equal(tuned.encode(images), start.encode(images))
    assert tuned(images).shape == (2, 3)


def test_another_size_interpolates_the_positions(checkpoint: Path) -> None:
    larger = crate_mae.load(checkpoint, (24, 48))
    tuned = starting_model(config(checkpoint=str(checkpoint), image_size=(24, 48)), NAMES)
    assert tuned.config.image_size == (24, 48)
    images = torch.randn(2, 3, 24, 48)
    assert torch.equal(tuned.encode(images), larger.encode(images))
    random = starting_model(config(checkpoint=str(checkpoint), random=True, image_size=(24, 48)), NAMES)
    assert random.config == tuned.config
    samples = job(config(checkpoint=str(checkpoint), image_size=(24, 48))).samples
    assert next(training_batches(samples, 4, range(1))).images.shape == (4, 3, 24, 48)


def test_random_weights_need_no_checkpoint() -> None:
    shape = {"dim": 16, "depth": 2, "heads": 4, "image_size": (8, 8), "patch_size": (4, 4)}
    small = starting_model(config(random=True, model_settings=shape), NAMES)
    assert small.config.num_patches == 4
    larger = starting_model(config(random=True, model_settings=shape, image_size=(16, 8)), NAMES)
    assert larger.config.num_patches == 8
    with pytest.raises(UserError, match="--checkpoint RUN, or --random"):
        starting_model(config(), NAMES)


def test_validation_labels_are_matched_by_name(checkpoint: Path) -> None:
    settings = config(checkpoint=str(checkpoint))
    (judge,) = job(settings, pictures([0, 1, 1], ("emu", "cat"))).evaluators.values()
    assert [label for batch in judge.batches("val", small_model("vit_mae_small")) for label in batch.labels] == [
        2,
        0,
        0,
    ]
    with pytest.raises(UserError, match="no class yak"):
        job(settings, pictures([0, 1], ("cat", "yak")))


def shards(path: Path, labels: list[int | None]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    with tarfile.open(path, "w") as file:
        for number, label in enumerate(labels):
            stored = io.BytesIO()
            picture(number).save(stored, "png")
            members = [(f"{number:03d}.png", stored.getvalue())]
            members += [(f"{number:03d}.cls", str(label).encode())] if label is not None else []
            for name, content in members:
                info = tarfile.TarInfo(name)
                info.size = len(content)
                file.addfile(info, io.BytesIO(content))


@pytest.mark.parametrize("without", ["nothing has one", "one of the training images", "the validation images"])
def test_missing_labels_get_one_sentence(without: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    if without == "nothing has one":
        for number in range(8):
            write(tmp_path / "set" / f"{number}.png", number)
    else:
        shards(tmp_path / "set" / "train" / "0.tar", [0, 1, 0, None if without.startswith("one") else 1])
        shards(tmp_path / "set" / "val" / "0.tar", [None, None] if without.startswith("the") else [0, 1])
    words = ["finetune", "--recipe", "finetune_digits", "--random", "--data", str(tmp_path / "set")]
    with pytest.raises(SystemExit) as stop:
        main([*words, "--out", str(tmp_path / "run")])
    assert stop.value.code == 2
    assert "needs a label for every image" in capsys.readouterr().err
    assert not (tmp_path / "run" / "checkpoints").exists()


def test_class_names_stand_in_every_checkpoint(tmp_path: Path) -> None:
    names = [f"name {number}" for number in range(104)]
    for number, name in enumerate(names):
        for copy in range(2):
            write(tmp_path / "set" / ["train", "val"][copy] / name / f"{copy}.png", number)
    shape = {"dim": 16, "depth": 1, "heads": 4, "image_size": (8, 8), "patch_size": (4, 4)}
    settings = {"random": True, "model_settings": shape, "data": str(tmp_path / "set"), "drop_path": 0.1, "mixup": 0.5}
    launch(finetuning, config(**settings), tmp_path / "run", device="cpu", console=Console(quiet=True))
    for place in ("best", "step-00000002"):
        tuned = crate_mae.load(tmp_path / "run" / "checkpoints" / place)
        assert isinstance(tuned, Classifier)
        assert tuned.class_names == open_dataset(tmp_path / "set", "train").class_names == tuple(sorted(names))


def run(command: str, **settings: Any) -> None:
    """A command with its ``--set`` words."""
    main([*command.split(), *(word for key, value in settings.items() for word in ("--set", f"{key}={value}"))])


def test_from_pretraining_to_prediction(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The commands one after the other, on digits, in a few seconds."""
    monkeypatch.chdir(tmp_path)
    short: dict[str, Any] = {"batch": 32, "evaluation_images": 50, "checkpoint_every": 1000, "evaluate_every": 1000}
    run("pretrain --recipe digits --out pretrained --device cpu", steps=6, pictures=0, **short)
    options = {"layer_decay": 0.9, "drop_path": 0.02, "mixup": 0.05, "label_smoothing": 0.02}
    start = "finetune --recipe finetune_digits --checkpoint pretrained --out tuned --device cpu"
    run(start, steps=60, learning_rate=3e-3, crop_area="1,1", **options, **short)
    assert crate_mae.load("tuned").config == crate_mae.load("pretrained").config
    run("evaluate tuned --data digits --out marks.json")
    judged = json.loads(Path("marks.json").read_text())
    assert judged["images"] == 450
    assert judged["top1"] > FLOOR
    assert judged["top5"] > 80

    test = open_dataset("digits", "test")
    for index in range(40):
        test.read(index).save(f"{index:02d}.png")
    run(f"predict {' '.join(f'{index:02d}.png' for index in range(40))} --checkpoint tuned --out predictions.json")
    found = json.loads(Path("predictions.json").read_text())
    right = sum(each["classes"][0]["class"] == str(test.label(index)) for index, each in enumerate(found))
    assert len(found) == 40
    assert right > 40 * (FLOOR - 15) / 100
