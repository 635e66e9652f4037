"""Plans against the models themselves, and against what torch spends on a step."""

import json
import os
import re
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from PIL import Image

from crate_mae import recipes
from crate_mae.cli import main
from crate_mae.data.named import NAMED
from crate_mae.data.open import find_images
from crate_mae.errors import UserError
from crate_mae.models.classifier import Classifier
from crate_mae.models.zoo import create_model
from crate_mae.planning.hardware import GB, Hardware, hardware, product_speed
from crate_mae.planning.memory_check import check_memory
from crate_mae.planning.plan import Plan, plan, table
from crate_mae.training.config import RunConfig, override
from crate_mae.training.optim import optimiser_flops
from tests.conftest import small_model

EVERY = {**recipes.PRETRAIN, **recipes.FINETUNE}
A100 = hardware("a100", "bfloat16")


def planned(recipe: str, *settings: str, memory: float = 80, devices: int = 8, shard: bool = False) -> Plan:
    config: RunConfig = override(EVERY[recipe](), settings)
    return plan(config, replace(A100, memory=memory * GB), devices, shard)


def test_the_images_and_classes_of_a_named_set_are_known() -> None:
    made = planned("finetune_digits", "batch=64", devices=1)
    assert (made.images_in_set, made.classes) == (NAMED["digits"].images, NAMED["digits"].classes) == (1347, 10)
    assert planned("crate_mae_small_imagenet").images_in_set == NAMED["imagenet"].images


@pytest.mark.parametrize("recipe", recipes.PRETRAIN)
def test_parameters_of_pretraining(recipe: str) -> None:
    config = recipes.PRETRAIN[recipe]()
    with torch.device("meta"):
        model = create_model(config.model, config.preset, **config.model_settings)
    made = planned(recipe)
    assert made.parameters == model.num_parameters
    assert made.checkpoint_bytes == 3 * 4 * sum(weight.numel() for weight in model.parameters())


def test_parameters_of_a_classifier_from_a_checkpoint(tmp_path) -> None:  # type: ignore[no-untyped-def]
    folder = small_model("crate_mae_tiny").save(tmp_path / "checkpoint")
    made = planned("finetune_cifar100", f"checkpoint={folder}", "image_size=24,48")
    larger = small_model("crate_mae_tiny", image_size=(24, 48)).config
    assert made.parameters == Classifier(larger, [str(n) for n in range(100)]).num_parameters
    assert made.model == str(folder)


def test_the_images_and_classes_of_a_folder_are_counted(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for number in range(30):
        path = tmp_path / "photos" / f"class {number % 3}" / f"{number}.png"
        path.parent.mkdir(parents=True, exist_ok=True)
        Image.new("L", (8, 8)).save(path)
    training = len(find_images(tmp_path / "photos").split("train"))
    for recipe, classes in (("digits", None), ("finetune_digits", 3)):
        main(["plan", "--recipe", recipe, "--data", str(tmp_path / "photos"), "--device", "a100", "--json"])
        made = json.loads(capsys.readouterr().out)
        assert (made["images_in_set"], made["classes"]) == (training, classes)
        assert made["epochs"] == made["steps"] * made["batch"] / training
    with pytest.raises(SystemExit):
        main(["plan", "--recipe", "digits", "--data", str(tmp_path / "none")])
    assert "there is no folder" in capsys.readouterr().err


def test_the_speed_of_a_busy_machine_agrees_with_itself() -> None:
    """While other programs use every core."""
    busy = [subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(2 * (os.cpu_count() or 1))]
    try:
        speeds = [product_speed(torch.device("cpu"), "float32") for _ in range(3)]
    finally:
        for process in busy:
            process.kill()
            process.wait()
    assert max(speeds) < 1.2 * min(speeds)


def test_memory_is_checked_by_the_planner_s_own_estimate(monkeypatch: pytest.MonkeyPatch) -> None:
    config = override(recipes.digits(), ["batch=4096"])
    need = plan(config, A100).memory.total  # an upper bound: a GPU's estimate is not below a CPU's
    monkeypatch.setattr("crate_mae.planning.memory_check.machine_memory", lambda: 4 * need)
    check_memory(config, torch.device("cpu"))
    monkeypatch.setattr("crate_mae.planning.memory_check.machine_memory", lambda: need / 4)
    with pytest.raises(UserError, match=r"micro-batches of 4,096 images need about .* images fit") as refused:
        check_memory(config, torch.device("cpu"))
    fit = int(re.search(r"at most ([\d,]+) images", str(refused.value))[1].replace(",", ""))
    check_memory(replace(config, batch=fit), torch.device("cpu"))
    with pytest.raises(UserError):
        check_memory(replace(config, batch=fit + 1), torch.device("cpu"))
    monkeypatch.setattr("crate_mae.planning.memory_check.machine_memory", lambda: 1000)
    with pytest.raises(UserError, match="not even one image fits"):
        check_memory(config, torch.device("cpu"))


def test_an_unknown_set_is_said_to_be_unknown() -> None:
    made = planned("finetune_cifar10", "data=/photos")
    assert made.epochs is None
    assert "size is not known" in table(made)
    assert "1,000 classes (assumed)" in table(made)


def test_numbers_of_the_paper() -> None:
    made = planned("crate_mae_base_imagenet")
    assert made.parameters == 43_890_432
    assert made.epochs == pytest.approx(800, abs=0.01)
    # By hand: six products with 768 x 768 matrices per token and pair of layers, 768 x 768 at both ends, attention.
    products = 197 * 12 * 6 * 768**2 + 2 * 196 * 768 * 768 + 24 * 2 * 197**2 * 768
    assert made.image_flops == pytest.approx(2 * (products + 12 * 768**3 / 512), rel=1e-12)
    assert made.step_seconds == pytest.approx(made.step_flops / (8 * 312e12 * 0.4))


def test_sharding_divides_what_can_be_divided() -> None:
    whole, shared = planned("vit_mae_base_imagenet"), planned("vit_mae_base_imagenet", shard=True)
    assert whole.memory.weights == whole.memory.gradients == whole.memory.moments / 2 == 4 * whole.parameters
    assert shared.memory.moments == whole.memory.moments / 8
    assert shared.memory.activations == whole.memory.activations
    assert shared.memory.total < whole.memory.total
    # Over several parts gradients are summed whole.
    in_parts = planned("vit_mae_base_imagenet", "accumulation=2", shard=True)
    assert in_parts.memory.gradients == pytest.approx(4 * whole.parameters * (1 + 1 / 8))


@pytest.mark.parametrize("memory", [0.6, 0.9, 2.0, 7.5, 24.0])
@pytest.mark.parametrize("recipe", ["crate_mae_base_imagenet", "vit_mae_small_imagenet"])
def test_a_remedy_makes_it_fit_and_less_does_not(recipe: str, memory: float) -> None:
    made = planned(recipe, memory=memory)
    assert not made.fits
    assert made.remedies
    assert "It does not fit: use --" in table(made)
    for words in made.remedies:
        settings = re.findall(r"--set (\S+)", words)
        assert planned(recipe, *settings, memory=memory, shard="--shard" in words).fits
        if words.startswith("--set accumulation="):
            parts = int(words.removeprefix("--set accumulation="))
            fewer = max(n for n in range(1, parts) if 512 % n == 0)
            assert not planned(recipe, f"accumulation={fewer}", memory=memory).fits


def test_numbers_for_people_have_no_exponent() -> None:
    made = replace(planned("digits", "batch=64", devices=1), step_seconds=1.66, run_seconds=119.0, epochs=19_200.4)
    text = table(made)
    assert "1.66 s per step, 119 s in total" in text
    assert "19,200 epochs of" in text
    assert "e+" not in text


def test_the_largest_micro_batch_fits_and_one_more_image_does_not() -> None:
    largest = planned("crate_mae_base_imagenet").largest_micro_batch
    for images, fits in [(largest, True), (largest + 1, False)]:
        assert planned("crate_mae_base_imagenet", f"batch={8 * images}").fits is fits


def test_where_nothing_helps_it_says_so() -> None:
    made = planned("vit_mae_base_imagenet", memory=0.1)
    assert (made.largest_micro_batch, made.remedies) == (0, [])
    assert "more devices, more memory or a smaller model" in table(made)


def test_gradient_checkpointing_takes_time_and_gives_memory() -> None:
    plain, again = planned("vit_mae_base_imagenet"), planned("vit_mae_base_imagenet", "gradient_checkpointing=true")
    assert 1.2 < again.step_flops / plain.step_flops < 4 / 3
    assert again.memory.activations < 0.3 * plain.memory.activations


def test_parts_change_memory_and_hardly_time() -> None:
    one, four = planned("crate_mae_small_imagenet"), planned("crate_mae_small_imagenet", "accumulation=4")
    assert (four.micro_batch, four.micro_batches) == (128, 4)
    assert four.memory.activations < 0.26 * one.memory.activations
    assert one.step_flops < four.step_flops < 1.02 * one.step_flops  # dictionaries are folded for each part


def test_every_device_does_the_products_of_muon() -> None:
    for devices, accumulation in [(1, 1), (4, 1), (4, 2)]:
        settings = (f"accumulation={accumulation}", "batch=64")
        adamw, muon = (planned("digits", f"optimiser={kind}", *settings, devices=devices) for kind in ("adamw", "muon"))
        config = recipes.digits()
        with torch.device("meta"):
            model = create_model(config.model, config.preset, **config.model_settings)
        assert muon.step_flops - adamw.step_flops == devices * optimiser_flops(model, "muon") > 0
        assert muon.step_seconds / adamw.step_seconds == pytest.approx(muon.step_flops / adamw.step_flops)


def test_speed_of_products_here() -> None:
    size = 512
    a = torch.ones(size, size)
    start = time.process_time()
    for _ in range(3):
        a @ a
    slowest = 0.1 * 3 * 2 * size**3 / (time.process_time() - start)
    assert slowest < product_speed(torch.device("cpu"), "float32", 0.05) < 1e14


def test_auto_is_planned_in_bfloat16_on_a_gpu() -> None:
    auto, bfloat16 = (replace(recipes.PRETRAIN["digits"](), precision=precision) for precision in ("auto", "bfloat16"))
    assert hardware("a100", "auto") == A100
    assert plan(auto, A100) == plan(bfloat16, A100)


@pytest.mark.parametrize(
    ("word", "change"),
    [
        ("--device-memory", {"memory": 0.0}),
        ("--device-memory", {"memory": float("nan")}),
        ("--device-tflops", {"flops": -1.0}),
        ("--utilisation", {"utilisation": 1.5}),
    ],
)
def test_impossible_hardware(word: str, change: dict[str, float]) -> None:
    with pytest.raises(UserError, match=word):
        plan(recipes.digits(), replace(A100, **change))


@pytest.mark.parametrize("recipe", EVERY)
def test_the_command_plans_every_recipe(recipe: str, capsys: pytest.CaptureFixture[str]) -> None:
    main(["plan", "--recipe", recipe, "--devices", "4", "--device-memory", "80"])
    printed = capsys.readouterr().out
    assert f"{planned(recipe, devices=4).parameters:,}" in printed
    assert "4 x A100 (assumed), 80 GB" in printed


def test_the_command_plans_for_this_machine(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("crate_mae.planning.hardware.product_speed", lambda *_: 1e11)
    main(["plan", "--recipe", "digits", "--set", "steps=10", "--set", "batch=32"])
    printed = capsys.readouterr().out
    assert "10 of 32 images" in printed
    assert "100 GFLOP/s" in printed


def test_json_says_what_the_table_says(capsys: pytest.CaptureFixture[str]) -> None:
    words = ["plan", "--recipe", "vit_mae_base_imagenet", "--device", "h100", "--devices", "8", "--shard"]
    main([*words, "--device-tflops", "500", "--utilisation", "0.3", "--json"])
    said = json.loads(capsys.readouterr().out)
    config = recipes.vit_mae_base_imagenet()
    expected = plan(config, Hardware("H100 SXM", 80 * GB, 500e12, 0.3, is_gpu=True), 8, shard=True)
    assert said["run_seconds"] == expected.run_seconds
    assert said["memory"]["activations"] == expected.memory.activations


ERRORS = {
    "recipe": (["--recipe", "crate_mae_bas_imagenet"], "did you mean crate_mae_base_imagenet?"),
    "setting": (["--recipe", "digits", "--set", "step=3"], "did you mean steps?"),
    "no devices": (["--recipe", "digits", "--devices", "0"], "--devices is 0"),
    "fewer than none": (["--recipe", "digits", "--devices", "-2"], "--devices is -2"),
    "uneven": (["--recipe", "digits", "--devices", "3"], "multiple of 3"),
    "shards of one": (["--recipe", "digits", "--shard", "--device", "a100"], "--devices"),
    "no memory": (["--recipe", "digits", "--device-memory", "-1"], "--device-memory"),
    "no checkpoint": (["--recipe", "finetune_digits", "--checkpoint", "nowhere"], "no checkpoint"),
    "no checkpoint to pretrain": (["--recipe", "digits", "--checkpoint", "nowhere"], "no checkpoint"),
    "device": (["--recipe", "digits", "--device", "abacus"], "abacus"),
}


@pytest.mark.parametrize("case", ERRORS)
def test_bad_input_gets_one_sentence(case: str, capsys: pytest.CaptureFixture[str]) -> None:
    words, expected = ERRORS[case]
    with pytest.raises(SystemExit) as stop:
        main(["plan", *words])
    assert stop.value.code == 2
    printed = capsys.readouterr()
    assert expected in printed.err + printed.out
