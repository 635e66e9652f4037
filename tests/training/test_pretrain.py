"""Pretraining that starts from the weights of another model."""

from pathlib import Path

import pytest
import torch

import crate_mae
from crate_mae.cli import main
from crate_mae.models.classifier import Classifier
from crate_mae.training.run_folder import Run
from tests.training.runs import assert_same, metrics, words


@pytest.fixture
def pretrained(tmp_path: Path) -> Path:
    """A run whose last checkpoint is its best."""
    main(words(tmp_path / "pretrained", steps=12))
    return tmp_path / "pretrained"


def test_it_starts_with_the_checkpoint_s_weights_and_shape(pretrained: Path, tmp_path: Path) -> None:
    main(
        words(
            tmp_path / "run", "--checkpoint", str(pretrained), steps=4, learning_rate=0, weight_decay=0, model__dim=36
        )
    )
    before, after = crate_mae.load(pretrained), crate_mae.load(tmp_path / "run")
    assert after.config == before.config
    for name, tensor in before.state_dict().items():
        assert torch.equal(after.state_dict()[name], tensor)
    assert metrics(tmp_path / "run")[0]["val_loss"] == metrics(pretrained)[-1]["val_loss"]


def test_it_resumes_to_the_same_weights(pretrained: Path, tmp_path: Path) -> None:
    start = ["--checkpoint", str(pretrained)]
    main(words(tmp_path / "whole", *start, steps=20))
    main(words(tmp_path / "resumed", *start, steps=20))
    for checkpoint in (tmp_path / "resumed" / "checkpoints").glob("step-00000020"):
        (checkpoint / "model.safetensors").unlink()
    main(["pretrain", "--out", str(tmp_path / "resumed"), "--resume"])
    assert_same(tmp_path / "resumed", tmp_path / "whole")
    assert Run(tmp_path / "resumed").stored().config.checkpoint == str(pretrained)  # type: ignore[union-attr]


def test_a_classifier_is_no_start(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    model = crate_mae.create_model("crate_mae_tiny", image_size=8, patch_size=2, channels=1, dim=24, heads=3)
    Classifier.on(model, ["x", "y"]).save(tmp_path / "classifier")
    with pytest.raises(SystemExit) as ended:
        main(words(tmp_path / "run", "--checkpoint", str(tmp_path / "classifier")))
    assert ended.value.code == 2
    assert "autoencoder" in capsys.readouterr().err
