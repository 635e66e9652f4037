"""Models that come with the package: loaded by name, listed, described; the default where none is named."""

import json
import logging
import re
import runpy
import shutil
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from huggingface_hub import ModelCard
from PIL import Image
from safetensors import safe_open
from sklearn.datasets import load_sample_image

import crate_mae
from crate_mae import CrateFeatures, ImageModel, UserError
from crate_mae.cli import main
from crate_mae.hub.shipping import form_of, read_training, sample_error
from crate_mae.models import shipped
from crate_mae.models.shipped import DEFAULT, ShippedRecord, shipped_names
from crate_mae.models.zoo import load_autoencoder
from crate_mae.training.run_folder import Run
from tests.conftest import small_model
from tests.hub.recorded import recorded

SCRIPT = Path(__file__).parents[2] / "benchmarks" / "ship.py"
PACKAGED = shipped_names()
PROBE = ["--number", "linear probe on CIFAR-10", "66.1 %", f"crate-mae probe {DEFAULT} --data cifar10"]


def ship(*words: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "argv", ["ship.py", *words])
    runpy.run_path(str(SCRIPT), run_name="__main__")


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty folder of weights in place of the package's, and a working folder."""
    monkeypatch.setattr(shipped, "ROOT", tmp_path / "weights")
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture
def original(place: Path, monkeypatch: pytest.MonkeyPatch) -> crate_mae.MaskedAutoencoder:
    """The model of a run that was shipped as the default."""
    model = small_model("crate_mae_tiny_residual").eval()
    recorded(place / "run", model, learning_rate=0.01)
    ship("run", DEFAULT, *PROBE, monkeypatch=monkeypatch)
    return model


@pytest.fixture
def photo(place: Path) -> Path:
    Image.fromarray(load_sample_image("china.jpg")).resize((96, 64)).save(place / "photo.jpg")
    return place / "photo.jpg"


def test_it_loads_by_name_from_half_precision(original: crate_mae.MaskedAutoencoder) -> None:
    with safe_open(shipped.ROOT / DEFAULT / "model.safetensors", framework="pt") as file:
        assert {file.get_tensor(name).dtype for name in file.keys()} == {torch.float16}  # noqa: SIM118
    for model in (crate_mae.load(DEFAULT), ImageModel.from_pretrained(DEFAULT)):
        assert model.config == original.config
        for name, tensor in model.state_dict().items():
            assert tensor.dtype == torch.float32
            assert torch.equal(tensor, original.state_dict()[name].half().float())


def test_the_record_and_the_card_say_how_it_was_made(original: crate_mae.MaskedAutoencoder) -> None:
    folder = shipped.ROOT / DEFAULT
    assert {file.name for file in folder.iterdir()} == {"model.safetensors", "config.json", "record.json", "README.md"}
    record = ShippedRecord.read(folder)
    assert record.form == "CRATE-MAE, residual form"
    assert record.processor_hours == round(2 * torch.get_num_threads() * 1.0 / 3600, 2)  # recorded: 1 s, 2 processes
    assert record.sample_error == sample_error(load_autoencoder(DEFAULT))
    assert record.parameters == original.num_parameters
    card = ModelCard((folder / "README.md").read_text())
    for words in (
        f'crate_mae.load("{DEFAULT}")',
        "| linear probe on CIFAR-10 | 66.1 % | `crate-mae probe",
        "scikit-learn's handwritten digits",
        "| learning_rate | 0.01 |",
        "| val_loss (mean squared error on the masked patches of validation images), step 20 of 1,500 | 0.5 "
        "| the commands above |",
        "hours of one core",
        "## Not good for",
        "24 x 12 pixels of a picture at a time",
    ):
        assert words in card.text
    assert card.data.license == "mit"


def test_the_card_has_the_commands_of_every_start_that_trained(
    original: crate_mae.MaskedAutoencoder, place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = ["/home/me/bin/crate-mae", "pretrain", "--recipe", "digits", "--out", "/home/me/run", "--set", "steps=9"]
    monkeypatch.setattr(sys, "argv", first)
    run = Run(recorded(place / "resumed", original))
    for step, steps in ((7, 12), (7, 15), (9, 15)):  # the first of these was stopped before its first step
        monkeypatch.setattr(sys, "argv", [*first[:2], "--resume", *first[4:6], "--set", f"steps={steps}"])
        run.note_start(step, 1, torch.device("cpu"))
    ship("resumed", "resumed", monkeypatch=monkeypatch)
    card = (shipped.ROOT / "resumed" / "README.md").read_text()
    assert (
        "| commands, each with `--out RUN --data-root DIR` | `crate-mae pretrain --recipe digits --set steps=9`; "
        "from step 7: `crate-mae pretrain --resume --set steps=15` |"
    ) in card
    assert "/home/me" not in card


def test_the_card_s_python_runs(original: crate_mae.MaskedAutoencoder, photo: Path) -> None:
    text = (shipped.ROOT / DEFAULT / "README.md").read_text()
    exec(compile(text.split("```python\n")[1].split("```")[0], "README.md", "exec"), {})
    assert (photo.parent / "completed.png").is_file()


def test_a_job_of_the_race_is_shipped_too(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    job = place / "job"
    small_model("vit_mae_small").save(job / "model")
    settings = {"contestant": "vit-mae", "course": {"data": "tiny_imagenet"}, "recipe": {"batch": 128}, "seed": 3}
    (job / "settings.json").write_text(json.dumps(settings))
    (job / "training.json").write_text(json.dumps({"steps": 70, "processor_seconds": 9000}))
    (job / "loss.json").write_text(json.dumps({"loss": 0.41, "mean_patch_error": 1.4}))
    assert read_training(job).processor_hours == 2.5
    ship("job", "vit-photos", "--not-good-for", "Portraits.", monkeypatch=monkeypatch)
    record = ShippedRecord.read(shipped.ROOT / "vit-photos")
    assert (record.form, record.data, record.images) == ("ViT-MAE", "Tiny ImageNet", 100_000)
    assert record.recipe == {"contestant": "vit-mae", "seed": 3, "steps": 70, "batch": 128}
    assert record.not_good_for == ("Portraits.",)
    assert [number.value for number in record.numbers] == ["0.41", "1.4"]
    with pytest.raises(UserError, match=f"{DEFAULT} is not in this installation of crate-mae; there are vit-photos"):
        shipped.default_checkpoint()


def test_a_run_that_started_from_a_shipped_model_counts_its_hours_too(
    original: crate_mae.MaskedAutoencoder, place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ship("run", DEFAULT, "--hours", "1.25", monkeypatch=monkeypatch)
    recorded(place / "next", original, checkpoint=DEFAULT)
    assert read_training(place / "next").processor_hours == pytest.approx(1.25, abs=0.01)
    ship("next", "better", monkeypatch=monkeypatch)
    recipe = ShippedRecord.read(shipped.ROOT / "better").recipe
    assert recipe["started from"] == f"{DEFAULT}, after 1.25 hours of one core"
    assert "model" not in recipe
    recorded(place / "other", original, checkpoint="somewhere")
    with pytest.raises(UserError, match="started from somewhere, whose training is not on record"):
        read_training(place / "other")


def test_numbers_too_large_for_half_precision_are_refused(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    model = small_model("crate_mae_tiny")
    with torch.no_grad():
        model.pixels.weight[0, 0] = 1e6
    recorded(place / "run", model)
    with pytest.raises(UserError, match=r"pixels\.weight has numbers that half precision can't hold"):
        ship("run", "x", monkeypatch=monkeypatch)


def test_every_form_has_a_name() -> None:
    for name, words in {"_residual": "residual", "_relaxed": "relaxed", "_alpha": "alpha", "": "paper"}.items():
        assert words in form_of(small_model(f"crate_mae_tiny{name}").config)


def test_models_lists_it(original: crate_mae.MaskedAutoencoder, capsys: pytest.CaptureFixture[str]) -> None:
    main(["models"])
    said = capsys.readouterr().out
    assert said.startswith("Pretrained models that come with crate-mae")
    assert f"{DEFAULT} (the default): CRATE-MAE, residual form, images of 24 x 12 pixels, patches of 6 x 4" in said
    assert f"{original.num_parameters:,} parameters, 0.0 MB; trained on scikit-learn's handwritten digits" in said
    assert "linear probe on CIFAR-10: 66.1 %" in said


# --- the default, and names ---


def test_it_is_the_default_of_commands_and_of_features(
    original: crate_mae.MaskedAutoencoder, photo: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    def same(words: list[str], *outs: str) -> None:
        main([*words, "--out", outs[0]])
        main([*words, "--checkpoint", DEFAULT, "--out", outs[1]])
        first, second = (np.load(out)["features"] if out.endswith("npz") else Path(out).read_bytes() for out in outs)
        assert np.array_equal(first, second)

    same(["complete", "photo.jpg", "--rectangle", "0.3", "0.3", "0.6", "0.6"], "a.png", "b.png")
    Path("images").mkdir()
    shutil.copy(photo, "images/1.jpg")
    shutil.copy(photo, "images/2.jpg")
    same(["embed", "images"], "a.npz", "b.npz")
    main(["inspect", "--data", "images", "--images", "2", "--split", "train", "--out", "report"])
    assert f"Inside {DEFAULT}" in Path("report/report.html").read_text()
    features = CrateFeatures().fit_transform(["photo.jpg"])
    assert np.array_equal(features, CrateFeatures(DEFAULT).fit_transform(["photo.jpg"]))


def test_serve_takes_the_default(original: crate_mae.MaskedAutoencoder, monkeypatch: pytest.MonkeyPatch) -> None:
    served: list[list[str]] = []
    monkeypatch.setattr("crate_mae.web.command.run", lambda checkpoints, *_: served.append(checkpoints))
    main(["serve"])
    main(["serve", DEFAULT, "run"])
    assert served == [[DEFAULT], [DEFAULT, "run"]]


def test_probes_of_a_shipped_model_stay_out_of_the_package(original: crate_mae.MaskedAutoencoder) -> None:
    from crate_mae.cli.evaluate import probe_folder

    assert probe_folder(DEFAULT) == Path("runs/probe") / DEFAULT
    assert probe_folder("run") == Path("run/probe")


@pytest.mark.parametrize(
    "words", ["complete photo.jpg --out x.png", "serve", "inspect --data digits", "embed digits --out x.npz"]
)
def test_without_weights_one_sentence_asks_for_a_checkpoint(
    words: str, photo: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as ended:
        main(words.split())
    assert ended.value.code == 2
    said = capsys.readouterr().err
    assert said == (
        f"crate-mae: error: the default model {DEFAULT} is not in this installation of crate-mae: name a checkpoint.\n"
    )


def test_without_weights_the_list_is_that_of_the_architectures(place: Path, capsys: pytest.CaptureFixture[str]) -> None:
    main(["models"])
    assert capsys.readouterr().out.startswith("Architectures")
    with pytest.raises(UserError, match="name a checkpoint"):
        CrateFeatures().fit(["photo.jpg"])


def test_a_name_comes_before_a_folder_and_a_note_says_so(
    original: crate_mae.MaskedAutoencoder, place: Path, caplog: pytest.LogCaptureFixture
) -> None:
    other = small_model("vit_mae_small")
    other.save(place / DEFAULT)
    with caplog.at_level(logging.INFO, "crate_mae"):
        assert crate_mae.load(DEFAULT).config == original.config
    assert f"write ./{DEFAULT} for the folder" in caplog.text
    caplog.clear()
    for folder in (f"./{DEFAULT}", Path(DEFAULT), place / DEFAULT):
        assert crate_mae.load(folder).config == other.config
    assert not caplog.text


# --- what the package has ---


@pytest.mark.parametrize("name", PACKAGED)
def test_a_model_of_the_package_gives_its_numbers(name: str) -> None:
    model, record = load_autoencoder(name), ShippedRecord.read(shipped.ROOT / name)
    assert sample_error(model) == pytest.approx(record.sample_error, rel=1e-3)
    assert record.parameters == model.num_parameters
    card = (shipped.ROOT / name / "README.md").read_text()
    assert re.search(r"hours? of one core", card)
    assert all(number.value in card and number.command in card for number in record.numbers)


def test_the_weights_of_the_package_are_light() -> None:
    assert sum(file.stat().st_size for file in shipped.ROOT.rglob("*") if file.is_file()) <= 25e6
    assert not PACKAGED or DEFAULT in PACKAGED
