"""A checkpoint and run folders that crate-mae 0.1.0 wrote load and resume, for ever."""

import json
import shutil
from pathlib import Path

import pytest
import torch
from safetensors import safe_open
from torch import Tensor

import crate_mae
from crate_mae.cli import main
from crate_mae.hub.run_record import read_record
from crate_mae.training.run_folder import Run
from tests.training.runs import metrics

OLD = Path(__file__).parent / "fixtures" / "version_0_1_0"
with safe_open(OLD / "expected.safetensors", framework="pt") as file:
    MACHINE = file.metadata()
    EXPECTED = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118 (no mapping)


def assert_as_then(value: Tensor, expected: Tensor) -> None:
    """Bit for bit where torch and the CPU's instructions are those of then; up to rounding elsewhere."""
    if {"torch": torch.__version__, "cpu": torch.backends.cpu.get_cpu_capability()} == MACHINE:
        assert torch.equal(value, expected)
    else:
        torch.testing.assert_close(value, expected, rtol=1e-4, atol=1e-5)


def test_a_checkpoint_gives_what_it_gave() -> None:
    model = crate_mae.load(OLD / "checkpoint")
    assert isinstance(model, crate_mae.MaskedAutoencoder)
    with torch.no_grad():
        assert_as_then(model(EXPECTED["images"], EXPECTED["mask"]).prediction, EXPECTED["prediction"])
        assert_as_then(model.encode(EXPECTED["images"]), EXPECTED["tokens"])


def test_a_checkpoint_says_the_same_when_it_is_saved_again(tmp_path: Path) -> None:
    old = json.loads((OLD / "checkpoint" / "config.json").read_text())
    crate_mae.load(OLD / "checkpoint").save(tmp_path)
    new = json.loads((tmp_path / "config.json").read_text())
    assert all(new["model"][name] == value for name, value in old["model"].items())
    assert crate_mae.load(tmp_path).config == crate_mae.load(OLD / "checkpoint").config


def test_a_run_resumes_to_what_it_gave(tmp_path: Path) -> None:
    run = Path(shutil.copytree(OLD / "pretrain", tmp_path / "run"))
    expected = metrics(run)
    main(["pretrain", "--out", str(run), "--resume", "--device", "cpu"])
    lines = metrics(run)
    for line in lines:
        line.pop("mean_patch_error", None)  # 0.1.0 did not measure it
    assert [list(line) for line in lines] == [list(line) for line in expected]
    for line, then in zip(lines, expected, strict=True):
        assert_as_then(torch.tensor(list(line.values())), torch.tensor(list(then.values())))
    stored = json.loads((run / "config.json").read_text())
    assert stored["format_version"] == 4
    assert stored["settings"]["evaluators"] == {"reconstruction": 6, "representation": 6}
    assert json.loads((run / "checkpoints" / "best" / "config.json").read_text())["step"] == 12


def test_the_record_of_a_run_is_read() -> None:
    for task, images in (("pretrain", 1276), ("finetune", 1276)):
        record = read_record(OLD / task)
        assert (record.config.task, record.config.steps, record.images) == (task, 12, images)
    stored = Run(OLD / "finetune").stored()
    assert stored is not None
    assert stored.config.evaluators == {"accuracy": 6}
    assert isinstance(crate_mae.load(OLD / "finetune"), crate_mae.Classifier)
    assert crate_mae.load(OLD / "finetune").generate_model_card(run=OLD / "finetune").data.metrics == ["accuracy"]


@pytest.mark.parametrize("task", ["pretrain", "finetune"])
def test_a_setting_that_nobody_knows_is_one_sentence(
    task: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run = Path(shutil.copytree(OLD / task, tmp_path / "run"))
    stored = json.loads((run / "config.json").read_text())
    stored["settings"]["momentum"] = 0.9
    (run / "config.json").write_text(json.dumps(stored))
    with pytest.raises(SystemExit) as ended:
        main([task, "--out", str(run), "--resume"])
    assert ended.value.code == 2
    said = capsys.readouterr().err
    assert "a run has no setting momentum" in said
    assert said.count("\n") == 1
