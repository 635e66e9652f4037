import json
import re
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import torch
from huggingface_hub import ModelCard, constants

import crate_mae
from crate_mae import Classifier, ImageEncoder, ImageModel, MaskedAutoencoder, UserError
from crate_mae.cli import main
from crate_mae.hub.run_record import read_record, run_of
from tests.conftest import small_model
from tests.hub.fake_hub import FakeHub, as_the_hub
from tests.hub.recorded import FINETUNED, PRETRAINED, recorded


def autoencoder() -> MaskedAutoencoder:
    return small_model("crate_mae_tiny", norm_pix_loss=True)


KINDS: dict[str, Callable[[], ImageModel]] = {
    "autoencoder": autoencoder,
    "encoder": lambda: ImageEncoder(small_model("vit_mae_base").config),
    "classifier": lambda: Classifier.on(autoencoder(), ["cat", "dog", "hen"]),
}


def same(model: ImageModel, other: ImageModel) -> bool:
    own, others = model.state_dict(), other.state_dict()
    return (
        type(model) is type(other)
        and model.config == other.config
        and model.extras() == other.extras()
        and own.keys() == others.keys()
        and all(torch.equal(own[name], others[name]) for name in own)
    )


@pytest.mark.parametrize("kind", KINDS)
def test_a_folder_is_that_of_save_and_a_card(kind: str, tmp_path: Path) -> None:
    model = KINDS[kind]()
    saved = model.save(tmp_path / "saved")
    assert model.save_pretrained(tmp_path / "pretrained") is None
    files = {file.name: file.read_bytes() for file in (tmp_path / "pretrained").iterdir()}
    card = files.pop("README.md").decode()
    assert files == {file.name: file.read_bytes() for file in saved.iterdir()}

    metadata = ModelCard(card).data.to_dict()
    task = "image-classification" if kind == "classifier" else "image-feature-extraction"
    assert (metadata["library_name"], metadata["license"], metadata["pipeline_tag"]) == ("crate-mae", "mit", task)
    assert {kind, "crate-mae", model.config.family} <= set(metadata["tags"])
    assert "datasets" not in metadata
    for part in ("Recipe", "Data", "Numbers"):
        assert f"## {part}\n\nNot known" in card

    for folder in ("saved", "pretrained"):
        assert same(crate_mae.load(tmp_path / folder), model)
        taken = ImageModel.from_pretrained(tmp_path / folder)
        assert same(taken, model)
        assert not taken.training
        assert same(type(model).from_pretrained(str(tmp_path / folder)), model)


def test_a_kind_takes_its_own_kind_alone(tmp_path: Path) -> None:
    autoencoder().save(tmp_path)
    with pytest.raises(UserError, match="kind autoencoder; ImageModel"):
        Classifier.from_pretrained(tmp_path)
    assert MaskedAutoencoder.from_pretrained(tmp_path, image_size=(24, 24)).config.image_size == (24, 24)


def test_the_card_s_python_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    small_model("crate_mae_tiny").to_image(torch.rand(3, 12, 24)).save("photo.jpg")
    for kind, make in KINDS.items():
        make().save_pretrained(tmp_path / "owner" / kind, model_card_kwargs={"repo_id": f"owner/{kind}"})
        text = (tmp_path / "owner" / kind / "README.md").read_text()
        code = text.split("```python\n")[1].split("```")[0]
        names: dict = {}
        exec(compile(code, "README.md", "exec"), names)
        if kind != "classifier":
            assert names["features"].shape == (1, 16)


def test_a_card_that_is_there_stays(tmp_path: Path) -> None:
    (tmp_path / "README.md").write_text("my own words")
    autoencoder().save_pretrained(tmp_path)
    assert (tmp_path / "README.md").read_text() == "my own words"
    (tmp_path / "file").touch()
    with pytest.raises(UserError, match="is a file"):
        autoencoder().save_pretrained(tmp_path / "file")


# --- what a run folder says ---


@pytest.fixture
def runs(tmp_path: Path) -> Path:
    """A pretraining, and a fine-tuning of what came of it."""
    recorded(tmp_path / "run", small_model("crate_mae_tiny"), learning_rate=0.01)
    recorded(tmp_path / "tuned", KINDS["classifier"](), checkpoint=str(tmp_path / "run"))
    return tmp_path


def test_the_record_is_that_of_the_best_checkpoint(runs: Path) -> None:
    pretrained, tuned = read_record(runs / "run"), read_record(runs / "tuned")
    assert {"step": pretrained.step, **pretrained.numbers} == PRETRAINED[2]  # the least val_loss
    assert {"step": tuned.step, **tuned.numbers} == FINETUNED[1]  # the largest val_accuracy
    assert (pretrained.images, pretrained.machines) == (7, [f"2 x cpu, torch {torch.__version__}"])


def test_the_card_says_what_the_run_folder_says(runs: Path) -> None:
    run = runs / "run"
    card = ImageModel.from_pretrained(run).generate_model_card(run=run, license="cc-by-4.0")
    assert card.data.license == "cc-by-4.0"
    for line in [
        "| recipe | digits |",
        "| learning_rate | 0.01 |",
        "| evaluators.reconstruction | 500 |",
        "| mask_ratio | 0.75 |",
        "| model | crate_mae_tiny_residual |",
        "| model.patch_size | ",
        "| step of this checkpoint | 20, chosen by val_loss |",
        "| val_loss | 0.5 | mean squared error on the masked patches of validation images |",
        "| probe_accuracy | 80 | per cent",
        "handwritten digits, 8 x 8 pixels; 7 training images.",
    ]:
        assert line in card.text, line
    assert "Not known" not in card.text
    assert str(runs) not in str(card)

    tuned = ImageModel.from_pretrained(runs / "tuned").generate_model_card(run=runs / "tuned")
    assert tuned.data.metrics == ["accuracy"]
    assert "| val_accuracy | 92.5 | per cent of validation images |" in tuned.text
    assert "| started from | another checkpoint, which is not on record here: its weights |" in tuned.text
    assert (
        "| model | crate_mae_tiny_residual |" not in tuned.text
    )  # a fine-tuning from a checkpoint does not read that setting
    assert str(runs) not in str(tuned)

    recorded(runs / "cifar", small_model("crate_mae_tiny"), data="cifar10")
    assert crate_mae.load(runs / "cifar").generate_model_card(run=runs / "cifar").data.datasets == ["uoft-cs/cifar10"]


def test_a_run_s_numbers_go_with_its_own_weights_alone(runs: Path, tmp_path: Path) -> None:
    model = crate_mae.load(runs / "run")
    with torch.no_grad():
        model.embedding.class_token += 1
    for run in ("run", "tuned"):
        with pytest.raises(UserError, match="not the best checkpoint of"):
            model.save_pretrained(tmp_path / "changed", model_card_kwargs={"run": runs / run})
    assert not (tmp_path / "changed").exists()
    with pytest.raises(UserError, match="no run folder"):
        model.generate_model_card(run=tmp_path)


def test_a_record_with_gaps_says_so(tmp_path: Path) -> None:
    model = autoencoder()
    run = recorded(tmp_path, model, data="/home/someone/photos")
    for name in ("metrics.jsonl", "starts.jsonl"):
        (run / name).unlink()
    stored = json.loads((run / "config.json").read_text())
    (run / "config.json").write_text(json.dumps(stored | {"commit": None}))
    card = str(model.generate_model_card(run=run))
    assert "## Numbers\n\nNot known: no evaluation is on record." in card
    assert "| code | not on record |" in card
    assert "| ran on | not on record |" in card
    assert "| step of this checkpoint | not on record" in card
    assert "publisher's own" in card
    assert "someone" not in card


def test_a_checkpoint_s_run_is_found(runs: Path, tmp_path: Path) -> None:
    run = (runs / "run").resolve()
    assert run_of(run) == run_of(run / "checkpoints" / "best") == run
    assert run_of(autoencoder().save(run / "checkpoints" / "step-00000010")) is None
    assert run_of(autoencoder().save(tmp_path / "a" / "checkpoints" / "best")) is None
    assert run_of(tmp_path / "a") is None


# --- the Hub ---


@pytest.fixture
def hub(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[FakeHub]:
    with as_the_hub(monkeypatch, tmp_path / "cache") as served:
        yield served


def test_what_is_pushed_comes_back(
    hub: FakeHub, runs: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    model = KINDS["classifier"]()
    assert model.push_to_hub("me/birds", private=True).startswith(f"{hub.address}/me/birds/commit/")
    model.save_pretrained(tmp_path / "model", model_card_kwargs={"repo_id": "me/birds"})
    assert hub.repos["me/birds"] == {file.name: file.read_bytes() for file in (tmp_path / "model").iterdir()}
    assert hub.private == {"me/birds": True}
    assert same(ImageModel.from_pretrained("me/birds"), model)
    assert same(crate_mae.load("me/birds"), model)
    assert same(crate_mae.load(Path("me/birds")), model)

    main(["push", str(runs / "run"), "me/digits", "--license", "cc0-1.0"])
    assert "Pushed http" in capsys.readouterr().out
    card = ModelCard(hub.repos["me/digits"]["README.md"].decode())
    assert card.data.license == "cc0-1.0"
    assert "| recipe | digits |" in card.text
    assert 'from_pretrained("me/digits")' in card.text


def test_what_the_hub_does_not_give_gets_one_sentence(hub: FakeHub, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(UserError, match=r"no folder no/such, and the Hugging Face Hub gave no model") as caught:
        ImageModel.from_pretrained("no/such")
    assert "\n" not in str(caught.value)
    for folder in ("a/b/c", "./crate-photos", "../crate-photos"):
        with pytest.raises(UserError, match=re.escape(f"{Path(folder)} is no checkpoint")):
            crate_mae.load(folder)
    with pytest.raises(UserError, match="a/b/c is no checkpoint"):
        ImageModel.from_pretrained("a/b/c")
    monkeypatch.setenv("HF_TOKEN", "another")
    with pytest.raises(UserError, match="me/birds could not be pushed") as caught:
        autoencoder().push_to_hub("me/birds")
    assert "\n" not in str(caught.value)
    with pytest.raises(UserError, match="no run folder"):
        autoencoder().push_to_hub("me/birds", model_card_kwargs={"run": "nowhere"})
    assert hub.repos == {}


def test_without_a_network_there_is_one_sentence(hub: FakeHub, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(constants, "ENDPOINT", "http://127.0.0.1:9")  # where nobody listens
    with pytest.raises(UserError, match="no folder me/birds") as caught:
        ImageModel.from_pretrained("me/birds")
    assert "\n" not in str(caught.value)
    with pytest.raises(UserError, match="could not be pushed"):
        autoencoder().push_to_hub("me/birds")


def test_importing_the_package_imports_neither_torch_nor_the_hub() -> None:
    heavy = "{'torch', 'huggingface_hub', 'sklearn', 'httpx'} & sys.modules.keys()"
    subprocess.run([sys.executable, "-c", f"import sys, crate_mae; sys.exit(bool({heavy}))"], check=True)
