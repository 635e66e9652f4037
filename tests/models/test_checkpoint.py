import json
import pickle
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file

import crate_mae
from crate_mae import ImageEncoder, UserError
from crate_mae.models.checkpoint import write_checkpoint
from crate_mae.models.zoo import load_autoencoder
from tests.conftest import small_model


@pytest.fixture
def checkpoint(tmp_path: Path) -> Path:
    return small_model("crate_mae_tiny", norm_pix_loss=True, lambda_=0.3, mean=(0.1, 0.2, 0.3)).save(tmp_path / "model")


def test_the_config_is_readable_and_complete(checkpoint: Path) -> None:
    assert {path.name for path in checkpoint.iterdir()} == {"model.safetensors", "config.json"}
    description = json.loads((checkpoint / "config.json").read_text())
    assert description["format_version"] == 4
    model = description["model"]
    assert (model["lambda_"], model["eta"], model["preset"], model["norm_pix_loss"]) == (0.3, 0.1, "paper", True)
    assert (model["mean"], model["image_size"]) == ([0.1, 0.2, 0.3], [12, 24])


def test_a_run_folder_gives_its_best(checkpoint: Path, tmp_path: Path) -> None:
    run = tmp_path / "run"
    model = crate_mae.load(checkpoint)
    model.save(run / "checkpoints" / "best")
    assert crate_mae.load(run).config == model.config


def test_a_model_is_loaded_to_be_used(checkpoint: Path) -> None:
    for model in (crate_mae.load(checkpoint), crate_mae.ImageModel.from_pretrained(checkpoint)):
        assert not any(module.training for module in model.modules())
        assert {parameter.dtype for parameter in model.parameters()} == {torch.float32}


def test_load_says_which_step_of_a_run_it_took(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    model = small_model("crate_mae_tiny")
    best = tmp_path / "checkpoints" / "best"
    write_checkpoint(best, model.kind, model.config, model.state_dict(), {"step": 1500, "steps": 3000})
    with caplog.at_level("INFO", logger="crate_mae"):
        for load in (crate_mae.load, crate_mae.ImageModel.from_pretrained):
            load(tmp_path)
            assert caplog.messages == [f"{tmp_path}: step 1,500 of 3,000."]
            caplog.clear()
        crate_mae.load(model.save(tmp_path / "saved"))
    assert not caplog.messages


def test_saving_again_replaces(checkpoint: Path) -> None:
    other = small_model("vit_mae_base")
    other.save(checkpoint)
    assert crate_mae.load(checkpoint).config == other.config
    assert {path.name for path in checkpoint.iterdir()} == {"model.safetensors", "config.json"}


def test_an_encoder_alone_loads_and_can_t_complete(tmp_path: Path) -> None:
    encoder = ImageEncoder(small_model("crate_mae_tiny").config)
    path = encoder.save(tmp_path / "encoder")
    images = torch.randn(1, 3, 12, 24)
    assert torch.equal(crate_mae.load(path).encode(images), encoder.encode(images))
    with pytest.raises(UserError, match="no decoder"):
        load_autoencoder(path)


def edit(**changes: Any) -> Callable[[Path], None]:
    def apply(path: Path) -> None:
        description = json.loads((path / "config.json").read_text())
        description["model"] |= changes
        (path / "config.json").write_text(json.dumps(description))

    return apply


def drop(name: str) -> Callable[[Path], None]:
    def apply(path: Path) -> None:
        description = json.loads((path / "config.json").read_text())
        del description["model"][name]
        (path / "config.json").write_text(json.dumps(description))

    return apply


def top(**changes: Any) -> Callable[[Path], None]:
    def apply(path: Path) -> None:
        (path / "config.json").write_text(json.dumps(json.loads((path / "config.json").read_text()) | changes))

    return apply


def weights(change: Callable[[dict[str, torch.Tensor]], object]) -> Callable[[Path], None]:
    def apply(path: Path) -> None:
        tensors = load_file(path / "model.safetensors")
        change(tensors)
        save_file(tensors, path / "model.safetensors")

    return apply


def truncate(path: Path) -> None:
    data = (path / "model.safetensors").read_bytes()
    (path / "model.safetensors").write_bytes(data[: len(data) // 2])


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (truncate, "truncated"),
        (lambda path: (path / "model.safetensors").write_bytes(pickle.dumps({"x": 1})), "no safetensors"),
        (lambda path: (path / "model.safetensors").unlink(), "no checkpoint"),
        (lambda path: (path / "config.json").unlink(), "no checkpoint"),
        (lambda path: (path / "config.json").write_text("{"), "JSON"),
        (lambda path: (path / "config.json").write_text("[]"), "not written by crate-mae"),
        (lambda path: (path / "config.json").write_bytes(b"\xff\xfe\x00"), "JSON"),
        (lambda path: (path / "config.json").write_text("[" * 100_000), "JSON"),
        (top(format="other"), "not written by crate-mae"),
        (top(format_version=5), "format version 5 and this crate-mae reads versions 1 to 4"),
        (top(format_version=0), "format version 0"),
        (top(format_version="1"), "format version '1'"),
        (top(format_version=None), "format version None"),
        (top(step=3), "needs whole numbers for step and steps"),
        (top(step="3", steps=4), "needs whole numbers for step and steps"),
        (top(kind="generator"), "'generator'"),
        (top(kind="x" * 10**5), "it holds a 'xxx"),
        (top(kind="classifier", class_names=["a"], pool=list(range(10**4))), "pool is .* reads 'mean'"),
        (top(kind=None), "damaged"),
        (top(class_names=["a"]), "does not know"),
        (edit(dim=32), "weights and configuration differ"),
        (edit(decoder_dim=32), "weights and configuration differ"),
        (edit(depth=3), "lacks"),
        (edit(depth=1), "unknown"),
        (edit(depth=10**5), "100003 layers"),
        (edit(decoder_dim=10**5, decoder_heads=1), "no pixels.weight"),
        (edit(depth=10**9), "from 1 to 1,000,000"),
        (edit(dim=2**62), "from 1 to 1,000,000"),
        (edit(dim=1e30), "dim is 1e\\+30; choose a whole number"),
        (edit(channels=10**15, mean=[], std=[]), "from 1 to 1,000,000"),
        (edit(image_size=[400_000, 600_000], positions="fixed"), "makes 10,000,000,000 patches"),
        (edit(mlp_ratio=float("inf")), "mlp_ratio"),
        (edit(lambda_=float("nan")), "lambda_"),
        (edit(mean=[float("nan")] * 3), "finite"),
        (edit(mean=["a", "b", "c"]), "mean is .*; choose several numbers"),
        (edit(mean=[10**400]), "mean is .*; choose several numbers"),
        (edit(mean=[1e300] * 3), "mean is .*; choose several numbers"),
        (edit(std=[1e-46] * 3), "std is .*; choose several numbers from 1e-06"),
        (drop("lambda_"), "lacks lambda_"),
        (top(surplus=1), "unknown fields surplus"),
        (
            weights(lambda t: t.update({"embedding.positions.table": torch.tensor(1.0)})),
            "weights and configuration differ",
        ),
        (edit(image_size=[24, 24]), "weights and configuration differ"),
        (edit(family="vit"), "does not match this model"),
        (edit(surplus=1), "no setting surplus"),
        (edit(dim="16"), "dim is '16'; choose a whole number"),
        (edit(heads=3), "does not divide"),
        (edit(final_norms=1), "final_norms is 1; choose true or false"),
        (weights(lambda t: t.pop("decoder.blocks.0.rotation.weight")), "lacks 1 tensors, decoder.blocks.0.rotation"),
        (weights(lambda t: t.pop("pixels.weight")), "no pixels.weight"),
        (weights(lambda t: t.update(surplus=torch.zeros(1))), "unknown 1 tensors, surplus"),
        (weights(lambda t: t.update({"pixels.weight": torch.zeros(2, 2)})), "pixels.weight"),
        (weights(lambda t: t.update({"pixels.weight": t["pixels.weight"].long()})), "floating"),
        (weights(lambda t: t.update({"embedding.class_token": torch.zeros(3)})), "embedding.class_token"),
    ],
)
def test_damage_gets_one_sentence(checkpoint: Path, damage: Callable[[Path], object], message: str) -> None:
    damage(checkpoint)
    with pytest.raises(UserError, match=message) as caught:
        crate_mae.load(checkpoint)
    assert "\n" not in str(caught.value)
    assert len(str(caught.value)) < 500 + len(str(checkpoint))


def test_paths_that_are_none_get_one_sentence(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="no checkpoint"):
        crate_mae.load(tmp_path / "missing")
    file = tmp_path / "file"
    file.touch()
    with pytest.raises(UserError, match="no checkpoint"):
        crate_mae.load(file)
    with pytest.raises(UserError, match="is a file"):
        small_model("crate_mae_tiny").save(file)
    with pytest.raises(UserError, match="could not be written"):
        small_model("crate_mae_tiny").save(file / "below")


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float64])
def test_weights_of_another_precision_load_in_float32(dtype: torch.dtype, tmp_path: Path) -> None:
    model = small_model("vit_mae_base").to(dtype)
    loaded = crate_mae.load(model.save(tmp_path))
    for name, tensor in loaded.state_dict().items():
        assert tensor.dtype == torch.float32
        torch.testing.assert_close(tensor, model.state_dict()[name].float())
    assert loaded.encode(torch.randn(1, 3, 12, 24)).isfinite().all()


def test_a_checkpoint_that_can_t_be_written_gets_one_sentence(tmp_path: Path) -> None:
    (tmp_path / "model.safetensors").mkdir()
    with pytest.raises(UserError, match="could not be written"):
        small_model("crate_mae_tiny").save(tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == ["model.safetensors"]


def test_classes_have_words_for_names() -> None:
    for names in (["one"], [1, 2], [], ["\udcff", "not UTF-8"]):
        with pytest.raises(UserError, match="at least two classes as text"):
            crate_mae.Classifier.on(small_model("crate_mae_tiny"), names)


def test_a_size_that_does_not_fit_gets_one_sentence(checkpoint: Path) -> None:
    with pytest.raises(UserError, match="patches of 6"):
        crate_mae.load(checkpoint, image_size=(12, 25))
    with pytest.raises(UserError, match="whole number"):
        crate_mae.load(checkpoint, image_size=32.0)
