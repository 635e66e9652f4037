"""The race at a tiny size: equal processor time, what is measured, and what is not run twice."""

import io
import json
import queue
import signal
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image
from rich.console import Console

from crate_mae import UserError
from crate_mae.bench.race import command, images, job, measurements, training
from crate_mae.bench.race.images import batch
from crate_mae.bench.race.job import SETTINGS, Job, Tell
from crate_mae.bench.race.measurements import Pretrained, labelled
from crate_mae.bench.race.recipes import COURSES, CRATE_MAE, RECIPES, VIT_MAE, Course, chosen
from crate_mae.bench.race.table import comparisons, markdown
from crate_mae.cli import main

SMALL = {"dim": 16, "heads": 2, "depth": 1, "decoder_dim": 16, "decoder_depth": 1, "decoder_heads": 2}
COURSE = Course("toys", 8, 2, stored_size=10, finetune_steps={10: 2}, finetune_batch=4)
CRATE = replace(CRATE_MAE, settings={**CRATE_MAE.settings, **SMALL}, batch=8)
VIT = replace(VIT_MAE, settings=SMALL, batch=8)


def quiet() -> Console:
    return Console(file=io.StringIO())


@pytest.fixture(scope="module")
def data_root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Bright and dark images in class folders."""
    root = tmp_path_factory.mktemp("data")
    rng = np.random.default_rng(0)
    for split, count in (("train", 60), ("test", 20)):
        for number in range(count):
            pixels = rng.integers(0, 128, (12, 16, 3)) + 127 * (number % 2)
            path = root / "toys" / split / ("dark", "bright")[number % 2] / f"{number}.png"
            path.parent.mkdir(parents=True, exist_ok=True)
            Image.fromarray(pixels.astype(np.uint8)).save(path)
    return root


@pytest.fixture
def out(tmp_path: Path, data_root: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A race's folder with the images in it. The set is a folder, whose name serves as that of a named set."""
    monkeypatch.chdir(data_root)
    images.prepare(COURSE, None, tmp_path / "images" / "toys", quiet())
    return tmp_path


def a_job(out: Path, **changes: Any) -> Job:
    return replace(Job("crate-mae", COURSE, CRATE, 0, 0.3, out), **changes)


def done(job_: Job) -> list[dict[str, Any]]:
    """Run what is missing of a job here; its messages."""
    job_.check()
    answers = io.StringIO()
    job.run(job_, job_.missing(job_.steps), Tell(answers))
    return [json.loads(line) for line in answers.getvalue().splitlines()]


def test_images_are_squares_in_memory_and_some_are_held_out(out: Path) -> None:
    found = images.load(out / "images" / "toys")
    assert found.train.shape == (60, 10, 10, 3)
    assert found.test.shape == (20, 10, 10, 3)
    assert 1 <= found.held_out.sum() < 20
    assert found.class_names == ("bright", "dark")
    bright = found.test_labels == 0
    assert found.test[bright].mean() > 150 > found.test[~bright].mean()


def test_a_batch_is_the_middle_or_a_shifted_crop() -> None:
    config = replace(COURSE.config(CRATE), mean=(0.0,) * 3, std=(1.0,) * 3)
    pixels = np.arange(2 * 10 * 10 * 3, dtype=np.uint8).reshape(2, 10, 10, 3)
    middle = batch(pixels, np.array([1]), config)
    expected = torch.from_numpy(pixels[1, 1:9, 1:9].copy()).permute(2, 0, 1)[None] / 255
    torch.testing.assert_close(middle, expected)
    shifted = batch(pixels, np.array([1] * 200), config, torch.Generator().manual_seed(0))
    middles = [any(torch.equal(one, other) for other in (expected[0], expected[0].flip(-1))) for one in shifted]
    assert 0 < sum(middles) < 20  # one shift in 81
    flat = {tuple(one.flatten().tolist()) for one in shifted}
    assert len(flat) > 60


def test_processor_time_and_not_the_clock_decides(out: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A process that sleeps between its steps trains for as many seconds of its own."""
    used = iter(range(10**6))
    monkeypatch.setattr(training.time, "process_time", lambda: next(used) / 64)  # for each step
    slept = []

    def report(share: float, note: str) -> None:
        slept.append(share)
        time.sleep(0.002)

    found = images.load(out / "images" / "toys")
    _, state = training.train(
        COURSE, CRATE, found, seconds=20 / 64, seed=0, checkpoint=out / "checkpoint.pt", report=report
    )
    assert state.step == len(slept) == 20
    assert state.used == 20 / 64
    assert slept[-1] == pytest.approx(1.0)
    assert [used for used, _ in state.curve] == [step / 64 for step in range(1, 21)]


@pytest.mark.parametrize("averaging", [0, 0.5])
def test_a_stopped_training_continues_bit_for_bit(averaging: float, out: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    found = images.load(out / "images" / "toys")

    def trained(stop_at: int | None, name: str) -> dict[str, torch.Tensor]:
        clock = iter(range(10**6))
        monkeypatch.setattr(training.time, "process_time", lambda: next(clock) / 64)
        steps = 0

        def report(share: float, note: str) -> None:
            nonlocal steps
            steps += 1
            if steps == stop_at:
                raise training.Stopped

        recipe = replace(CRATE, averaging=averaging)
        model, _ = training.train(
            COURSE, recipe, found, seconds=10 / 64, seed=3, checkpoint=out / f"{name}.pt", report=report
        )
        return model.state_dict()

    whole = trained(None, "whole")
    with pytest.raises(training.Stopped):
        trained(4, "parts")
    assert (out / "parts.pt").is_file()
    for name, value in trained(None, "parts").items():
        assert torch.equal(value, whole[name]), name


def test_weights_are_averaged_over_the_steps(out: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A = 0.9 A + 0.1 W after each step, from the first step's weights on; the training itself is the same."""
    found, weights = images.load(out / "images" / "toys"), []

    def dictionary(model: Any) -> torch.Tensor:
        return model.encoder.blocks[0].ista.dictionary.detach().clone()

    def watched(model: Any, *_: object) -> float:
        weights.append(dictionary(model))
        return 0.0

    def trained(averaging: float) -> torch.Tensor:
        clock = iter(range(10**6))
        monkeypatch.setattr(training.time, "process_time", lambda: next(clock) / 64)
        recipe = replace(CRATE, averaging=averaging)
        model, _ = training.train(
            COURSE, recipe, found, seconds=5 / 64, seed=0, checkpoint=out / f"{averaging}.pt", report=lambda *_: None
        )
        return dictionary(model)

    monkeypatch.setattr(training, "masked_error", watched)
    trained(0)
    assert len(weights) == 5  # the curve has a point for each of so few steps
    expected = [weights[0]]
    for weight in weights[1:]:
        expected.append(0.9 * expected[-1] + 0.1 * weight)
    weights.clear()
    torch.testing.assert_close(trained(0.9), expected[-1])
    torch.testing.assert_close(weights, expected)  # the curve is that of the averaged model


def test_a_job_trains_measures_and_is_not_run_again(out: Path) -> None:
    one = a_job(out)
    messages = done(one)
    finished = [message["step"] for message in messages if "numbers" in message]
    assert finished == one.steps == ["training", "loss", "features", "layers", "finetune-10", "finetune-10-random"]
    assert one.missing(one.steps) == []
    results = one.results()
    assert results["processor_seconds"] >= 0.3
    assert 0 < results["loss"] < 2
    assert results["mean_patch_error"] > 0
    for name in ("probe", "knn", "finetune_10", "finetune_10_random"):
        assert 0 <= results[name] <= 100
    assert results["probe"] > 90  # bright and dark
    assert done(one) == []
    one.file("loss").unlink()
    assert [message["step"] for message in done(one) if "numbers" in message] == ["loss"]


def test_all_contestants_are_trained_before_one_is_fine_tuned(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    jobs = [a_job(tmp_path, contestant=name) for name in ("crate-mae", "vit-mae")]
    for one in jobs:
        one.check()
    jobs[0].file("finetune-10").write_text("{}")
    monkeypatch.setattr(command, "cores", lambda: [None])
    ran = []

    def run_part(slot: command.Slot, part: command.Part) -> None:
        ran.append((part.job.contestant, part.steps))

    monkeypatch.setattr(command.Slot, "run_part", run_part)
    command.carry_out(tmp_path, {}, jobs, quiet())
    first = ["training", "loss", "features", "layers"]
    assert ran == [
        ("crate-mae", first),
        ("vit-mae", first),
        ("vit-mae", ["finetune-10"]),
        ("crate-mae", ["finetune-10-random"]),
        ("vit-mae", ["finetune-10-random"]),
    ]


def test_a_probe_may_use_some_of_the_training_images_and_layers_may_be_left_out(out: Path) -> None:
    one = a_job(out, course=replace(COURSE, probe_images=20, finetune_steps={}, by_layer=False))
    done(one)
    assert one.results()["probe"] > 90
    assert "layers" not in one.results()


@pytest.mark.parametrize("fast", [False, True])
def test_products_are_in_bfloat16_where_the_processor_multiplies_it(
    out: Path, monkeypatch: pytest.MonkeyPatch, fast: bool
) -> None:
    monkeypatch.setattr(training, "multiplies_bfloat16", lambda device: fast)
    monkeypatch.setattr(command, "multiplies_bfloat16", lambda device: fast)
    seen = set()
    hook = torch.nn.modules.module.register_module_forward_hook(
        lambda module, _, output: seen.add(output.dtype) if isinstance(module, torch.nn.Linear) else None
    )
    one = a_job(out)
    try:
        training.train(
            one.course,
            one.recipe,
            images.load(one.images),
            seconds=0.01,
            seed=0,
            checkpoint=out / "checkpoint.pt",
            report=lambda share, note: None,
        )
    finally:
        hook.remove()
    assert (torch.bfloat16 in seen) == fast
    assert f"in {'bfloat16' if fast else 'float32'}." in command.protocol([one])[0]


def test_other_settings_need_another_folder(out: Path) -> None:
    a_job(out).check()
    a_job(out).check()
    with pytest.raises(UserError, match="choose another --out"):
        a_job(out, seconds=0.4).check()


def test_a_folder_of_before_a_setting_was_added_can_be_continued(out: Path) -> None:
    one = a_job(out)
    one.check()
    file = one.folder / SETTINGS
    begun = json.loads(file.read_text())
    assert begun["recipe"].pop("averaging") == 0
    file.write_text(json.dumps(begun))
    one.check()
    with pytest.raises(UserError, match="choose another --out"):
        a_job(out, recipe=replace(CRATE, averaging=0.9)).check()
    file.write_text("{")
    with pytest.raises(UserError, match="choose another --out"):
        one.check()


def test_a_job_survives_its_way_to_another_process(out: Path) -> None:
    one = a_job(out)
    assert Job.from_settings(one.settings()).settings() == one.settings()


def test_the_mean_patch_error_by_hand(out: Path) -> None:
    found = images.load(out / "images" / "toys")
    model = a_job(out).course.config(CRATE)
    it = Pretrained(measurements.MaskedAutoencoder(model).eval(), COURSE, CRATE, found, 0)
    numbers = measurements.loss(it, lambda share, note: None)
    held_out = batch(found.train, np.flatnonzero(found.held_out), model)
    mean = batch(found.train, np.flatnonzero(~found.held_out), model).mean(0)
    assert numbers["mean_patch_error"] == pytest.approx((held_out - mean).square().mean().item(), rel=0.2)


def test_labels_are_the_same_share_of_each_class() -> None:
    labels = np.array([0] * 300 + [1] * 100)
    some = labelled(labels, 10, seed=0)
    assert np.bincount(labels[some]).tolist() == [30, 10]
    assert len(set(some)) == 40
    assert set(labelled(labels, 10, seed=1)) != set(some)
    assert np.bincount(labels[labelled(labels, 1, seed=0)]).tolist() == [3, 1]


@pytest.mark.slow
def test_a_whole_race_in_processes(tmp_path: Path, data_root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(data_root)
    console = quiet()
    options: dict[str, Any] = {"seconds": 0.2, "seeds": 2, "console": console, "command": "crate-mae bench --race"}
    options |= {"recipes": {"toys": {"crate-mae": CRATE, "vit-mae": VIT}}, "courses": {"toys": COURSE}}
    record = json.loads(command.race(tmp_path, None, **options).read_text())
    assert [(one["contestant"], one["seed"]) for one in record["results"]] == [
        ("CRATE-MAE", 0),
        ("ViT-MAE", 0),
        ("CRATE-MAE", 1),
        ("ViT-MAE", 1),
    ]
    assert record["results"][0]["layers"].keys() == {"trained", "untrained"}
    text = (tmp_path / "race.md").read_text()
    assert "| toys | CRATE-MAE, untrained | non-zero entries of the code |" in text
    assert "| toys | ViT-MAE |" in text
    assert "toys: CRATE-MAE against ViT-MAE:" in text
    assert text in console.file.getvalue()  # type: ignore[attr-defined]
    began = time.monotonic()
    command.race(tmp_path, None, **options)
    assert time.monotonic() - began < 2  # no process is started


def test_a_process_that_is_told_to_end_keeps_its_state(out: Path) -> None:
    one = a_job(out, seconds=600.0)
    one.check()
    asked = json.dumps({"settings": one.settings(), "steps": one.steps, "core": None})
    words = [sys.executable, "-m", "crate_mae.bench.race.job", asked]
    with subprocess.Popen(words, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert json.loads(process.stdout.readline())["step"] == "training"
        process.send_signal(signal.SIGTERM)
        assert process.wait(60) == 0
    assert (one.folder / "checkpoint.pt").is_file()
    assert not one.file("training").exists()


def test_what_fails_in_a_process_is_said(tmp_path: Path) -> None:
    one = a_job(tmp_path)  # without images
    one.check()
    with pytest.raises(UserError, match="toys, crate-mae, seed 0 failed: FileNotFoundError"):
        command.carry_out(tmp_path, {}, [one], quiet())


def test_a_process_that_ends_within_a_message_ends_the_race(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    real, program = subprocess.Popen, "print('[1', end=''); raise SystemExit('killed')"

    def other(words: list[str], **options: Any) -> "subprocess.Popen[str]":
        return real([sys.executable, "-c", program], **options)

    monkeypatch.setattr(command.subprocess, "Popen", other)
    one = a_job(tmp_path)
    one.check()
    with pytest.raises(UserError, match="toys, crate-mae, seed 0 failed: killed"):
        command.carry_out(tmp_path, {}, [one], quiet())


def test_no_process_starts_after_stop(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    waiting: queue.SimpleQueue[command.Part] = queue.SimpleQueue()
    slot = command.Slot(None, waiting, queue.SimpleQueue())
    slot.stop()
    monkeypatch.setattr(command.subprocess, "Popen", lambda *_, **__: pytest.fail("a process was started"))
    one = a_job(tmp_path)
    slot.run_part(command.Part(one, one.steps))


def test_the_table_compares_over_seeds() -> None:
    def result(contestant: str, seed: int, probe: float, curve: list[tuple[float, float]]) -> dict[str, Any]:
        numbers = {
            "parameters": 10**6 * (1 + (contestant == "B")),
            "probe": probe,
            "loss": curve[-1][1],
            "curve": curve,
        }
        return {"data": "toys", "contestant": contestant, "seed": seed, **numbers}

    results = [
        result("A", 0, 50, [(10, 0.6), (20, 0.4)]),
        result("A", 1, 52, [(10, 0.5), (20, 0.4)]),
        result("B", 0, 47, [(10, 0.7), (20, 0.5)]),
        result("B", 1, 47, [(10, 0.7), (20, 0.3)]),
    ]
    machine = {"commit": "c", "cpu": "a CPU", "torch": "2"}
    text = markdown({"command": "crate-mae", "machine": machine, "results": results, "protocol": ["How."]})
    assert "| toys | A | 1.00 M | 0.400 ± 0.000 | 51.0 ± 1.4 |" in text
    words = "0.50 x the parameters, probe +4.0 points, loss +0.000, reaches the other's last validation loss after 20 s"
    assert f"- toys: A against B: {words} on average in 1 of 2 seeds." in text
    assert "- How." in text


def test_the_table_compares_every_two_contestants_by_seed() -> None:
    def result(contestant: str, seed: int, curve: list[tuple[float, float]]) -> dict[str, Any]:
        return {"data": "toys", "contestant": contestant, "seed": seed, "parameters": 10**6, "curve": curve}

    results = [result("A", 0, [(10, 0.9)]), result("A", 1, [(20, 0.5)]), result("B", 1, [(30, 0.5)])]
    lines = comparisons({("toys", name): [one for one in results if one["contestant"] == name] for name in "AB"})
    assert lines == [
        "toys: A against B: 1.00 x the parameters, reaches the other's last validation loss after 20 s on average in 1 "
        "of 1 seeds."
    ]
    groups = {("toys", name): [result(name, 0, [(10, 0.9)])] for name in "ABC"}
    assert [line.split(":")[1] for line in comparisons(groups)] == [" A against B", " A against C", " B against C"]


def test_recipes_fit_their_courses() -> None:
    for course, recipes in RECIPES.items():
        for recipe in recipes.values():
            assert COURSES[course].config(recipe).num_patches == 64


def test_words_on_the_command_line() -> None:
    assert list(chosen(("vit-mae",))["cifar10"]) == ["vit-mae"]
    assert list(chosen(("imagenette",))) == ["imagenette"]
    with pytest.raises(UserError, match="there is no vit in the race; choose from cifar10, imagenette, crate-mae"):
        chosen(("vit",))
    for words in (["--quick"], ["--seconds", "0"], ["--seeds", "0"], ["--only", "base"]):
        with pytest.raises(SystemExit) as stop:
            main(["bench", "--race", *words])
        assert stop.value.code == 2
