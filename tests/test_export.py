"""Exported files against their model; onnxruntime is the other library."""

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest
import torch

import crate_mae
from crate_mae import export
from crate_mae.cli import main
from crate_mae.errors import UserError
from tests.conftest import MAKES, small_model, unusable_paths

QUICK = [
    "crate, official",
    "crate, visible, tied, wider decoder",
    "crate, visible, residual",
    "vit, visible, normalised targets",
]
"""Both families, both views of the encoder, both presets, both forms of MSSA, a residual form, both kinds of target."""


def lively(model: torch.nn.Module) -> Any:
    """Add noise to every parameter, so that zero biases and unit norms can't hide a mistake."""
    generator = torch.Generator().manual_seed(2)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter += 0.1 * torch.randn(parameter.shape, generator=generator)
    return model.eval()


def session(path: Path) -> onnxruntime.InferenceSession:
    return onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"])


@torch.no_grad()
def completes_as_the_model(model: crate_mae.MaskedAutoencoder, run: Callable[..., Any]) -> None:
    """On several batch sizes, with masks that leave different numbers of patches visible."""
    for batch, ratios in [(1, [0.75]), (2, [0.5, 0.5]), (5, [0.1, 0.3, 0.5, 0.75, 0.95])]:
        images = torch.randn(batch, 3, 12, 24)
        mask = torch.cat([crate_mae.random_mask(1, model.num_patches, ratio) for ratio in ratios])
        expected = model(images, mask)
        completed, prediction = run(images, mask)
        torch.testing.assert_close(completed, expected.completed, atol=1e-4, rtol=0)
        torch.testing.assert_close(prediction, expected.prediction, atol=1e-4, rtol=0)


def makes(*quick: str) -> list[Any]:
    """Every make of model; those not in ``quick`` only in ``make test-all``."""
    return [name if name in quick else pytest.param(name, marks=pytest.mark.slow) for name in MAKES]


@pytest.mark.parametrize("make", makes(*QUICK))
def test_an_autoencoder_completes_alike_in_onnxruntime(make: str, tmp_path: Path) -> None:
    model = lively(MAKES[make](depth=1, decoder_depth=1))
    assert export.to_onnx(model, tmp_path / "model.onnx") < 1e-4
    onnx_session = session(tmp_path / "model.onnx")

    def by_onnx(images: torch.Tensor, mask: torch.Tensor) -> list[torch.Tensor]:
        given = {"images": images.numpy(), "mask": mask.numpy()}
        return [torch.from_numpy(array) for array in onnx_session.run(["completed", "prediction"], given)]

    completes_as_the_model(model, by_onnx)


@pytest.mark.parametrize("make", makes("crate, visible, paper"))
def test_an_autoencoder_completes_alike_as_an_exported_program(make: str, tmp_path: Path) -> None:
    model = lively(MAKES[make](depth=1, decoder_depth=1))
    assert export.to_torch(model, tmp_path / "model.pt2") < 1e-5
    completes_as_the_model(model, torch.export.load(tmp_path / "model.pt2").module())


@pytest.fixture(scope="module")
def classifier(tmp_path_factory: pytest.TempPathFactory) -> tuple[crate_mae.Classifier, Path]:
    """A classifier and its checkpoint."""
    names = ["cat", 'a "dog", ünder', "gnu"]
    model = lively(crate_mae.Classifier.on(small_model("crate_mae_tiny", depth=1, mean=(0.1, 0.2, 0.3)), names))
    return model, model.save(tmp_path_factory.mktemp("classifier") / "checkpoint")


def test_a_file_names_its_classes_and_the_normalisation(
    classifier: tuple[crate_mae.Classifier, Path], tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    model, checkpoint = classifier
    file = tmp_path / "new" / "model.onnx"
    main(["export", str(checkpoint), "--onnx", str(file)])
    printed = capfd.readouterr()
    assert printed.out.startswith(f"Wrote {file}: the classifier, opset {export.OPSET}; in onnxruntime it differs by")
    assert printed.out.count("\n") == 1
    assert printed.err == ""
    assert [path.name for path in file.parent.iterdir()] == ["model.onnx"]
    stored = onnx.load(file)
    onnx.checker.check_model(stored, full_check=True)
    assert [(each.domain, each.version) for each in stored.opset_import] == [("", export.OPSET)]
    for value in (*stored.graph.input, *stored.graph.output):
        assert value.type.tensor_type.shape.dim[0].dim_param == "batch"
    assert str(Path(crate_mae.__file__).parent).encode() not in file.read_bytes()  # nothing of this machine
    said = session(file).get_modelmeta().custom_metadata_map
    assert said["format"] == "crate-mae classifier"
    facts = {name: json.loads(value) for name, value in said.items() if name != "format"}
    assert facts["class_names"] == list(model.class_names)
    assert (facts["image_size"], facts["mean"], facts["std"]) == ([12, 24], [0.1, 0.2, 0.3], [0.229, 0.224, 0.225])
    assert crate_mae.ModelConfig.from_dict(facts["model"]) == model.config
    images = torch.randn(4, 3, 12, 24)
    with torch.no_grad():
        np.testing.assert_allclose(session(file).run(None, {"images": images.numpy()})[0], model(images), atol=1e-4)


def test_the_encoder_of_any_model_gives_its_tokens_and_has_no_head(
    classifier: tuple[crate_mae.Classifier, Path], tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    _, checkpoint = classifier
    words = ["--torch", str(tmp_path / "model.pt2"), "--part", "encoder", "--image-size", "8", "12"]
    main(["export", str(checkpoint), *words])
    printed = capfd.readouterr()
    assert "the encoder" in printed.out
    assert printed.err == ""
    described = {"description.json": ""}
    program = torch.export.load(tmp_path / "model.pt2", extra_files=described)
    assert json.loads(described["description.json"])["image_size"] == "[8, 12]"
    assert not any("head" in name for name in program.state_dict)
    resized = crate_mae.load(checkpoint, image_size=(8, 12))
    images = torch.randn(3, 3, 8, 12)
    torch.testing.assert_close(program.module()(images), resized.encode(images), atol=1e-5, rtol=0)


def test_a_file_that_differs_is_not_kept(
    classifier: tuple[crate_mae.Classifier, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(export, "fold", lambda dictionary, eta: 1.1 * eta * dictionary)
    (tmp_path / "model.pt2").write_text("what was there before")
    with pytest.raises(UserError, match="tokens differ by"):
        export.to_torch(classifier[0], tmp_path / "model.pt2", "encoder")
    assert [path.name for path in tmp_path.iterdir()] == ["model.pt2"]
    assert (tmp_path / "model.pt2").read_text() == "what was there before"


def test_an_impossible_export_gets_one_sentence(
    classifier: tuple[crate_mae.Classifier, Path],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    _, checkpoint = classifier
    file = ["--onnx", str(tmp_path / "model.onnx")]
    monkeypatch.setitem(sys.modules, "onnxscript", None)
    cases = [
        ([str(checkpoint)], "--onnx FILE.onnx, --torch FILE.pt2, or both"),
        ([str(tmp_path), *file], "no checkpoint"),
        ([str(checkpoint), "--part", "autoencoder", "--torch", "x.pt2"], "holds a classifier and no autoencoder"),
        ([str(checkpoint), *file], "ONNX needs packages that are not installed; pip install 'crate-mae[export]'"),
        ([str(checkpoint), "--torch", str(checkpoint / "config.json" / "x.pt2")], "choose another place"),
        ([str(checkpoint), "--torch", "photo.png"], "--torch photo.png must be the name of a file that ends in .pt2"),
        ([str(checkpoint), "--onnx", "model.pt2"], "--onnx model.pt2 must be the name of a file that ends in .onnx"),
    ]
    for words, expected in cases:
        with pytest.raises(SystemExit) as stop:
            main(["export", *words])
        printed = capsys.readouterr()
        assert stop.value.code == 2
        assert expected in printed.err
        assert printed.err.count("\n") == 1
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("option", ["--onnx", "--torch"])
def test_an_unusable_file_name_gets_one_sentence(
    option: str,
    classifier: tuple[crate_mae.Classifier, Path],
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    for reason, path in unusable_paths(tmp_path).items():
        with pytest.raises(SystemExit) as stop:
            main(["export", str(classifier[1]), option, path])
        printed = capsys.readouterr()
        assert stop.value.code == 2
        assert reason in printed.err
        assert printed.err.count("\n") == 1
    assert [path.name for path in tmp_path.iterdir()] == ["loop"]


@pytest.mark.slow
def test_a_real_process_says_one_line(classifier: tuple[crate_mae.Classifier, Path], tmp_path: Path) -> None:
    """Without pytest, which captures warnings and logs."""
    words = ["export", str(classifier[1]), "--onnx", str(tmp_path / "model.onnx"), "--part", "encoder"]
    command = [sys.executable, "-m", "crate_mae", *words]
    result = subprocess.run(command, capture_output=True, text=True, check=True)
    assert result.stdout.startswith("Wrote ")
    assert result.stdout.count("\n") == 1
    assert result.stderr == ""
