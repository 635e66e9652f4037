"""Every group of rows at a tiny size: it runs, and its numbers are of the right kind."""

import io
import json
import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from rich.console import Console

from crate_mae import UserError, from_vit_mae
from crate_mae.bench import (
    apart,
    command,
    contestants,
    encoding,
    machine,
    memory,
    pictures,
    probing,
    processes,
    profiling,
    race,
    rates,
    scaling,
    start,
    steps,
)
from crate_mae.bench.contestants import LISTING, OURS, TRANSFORMERS, Trainee, Work, he_mae
from crate_mae.bench.harness import Laps, Run
from crate_mae.bench.machine import SGEMM, Sgemm
from crate_mae.bench.table import Row
from crate_mae.cli.bench import bench as bench_verb
from crate_mae.evaluation.linear_probe import STRENGTHS
from crate_mae.theory.rates import project
from tests.bench.tiny import CONFIG


@contextmanager
def here(task: apart.Task, name: str, work: Work) -> Iterator[Run]:
    """``apart`` without the process."""
    with torch.set_grad_enabled(task == "training"):
        run = apart.TASKS[task][name](work)
    yield torch.set_grad_enabled(task == "training")(run)


@pytest.fixture(autouse=True)
def _small_and_quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(machine, "SIDES", (32, 64))
    monkeypatch.setattr(apart, "apart", here)


SMALL = replace(steps.SMALL_WHOLE, config=CONFIG, batches=(2,), rounds=1, sgemm_seconds=0.01)


def quiet() -> Console:
    return Console(file=io.StringIO())


def check(rows: list[Row], count: int) -> None:
    assert len(rows) == count
    for row in rows:
        assert row.result is not None, row.note
        assert row.result.low <= row.result.middle <= row.result.high
        assert json.loads(json.dumps(row.to_dict()))["what"] == row.what


@pytest.fixture
def no_transformers(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(contestants, "has_transformers", lambda: False)


def test_training_steps() -> None:
    rows = list(
        steps.rows(replace(steps.BASE_WHOLE, config=CONFIG, batches=(2,), rounds=2, sgemm_seconds=0.01), quiet())
    )
    check(rows, 3)
    assert [row.against for row in rows[:2]] == [LISTING, TRANSFORMERS]
    for row in rows[:2]:
        assert row.seconds.keys() == {OURS, row.against, SGEMM}
        assert row.sgemm_share == rows[2].result


def test_the_small_model_and_the_forms(no_transformers: None) -> None:
    check(list(steps.rows(SMALL, quiet())), 2)
    *rows, missing = steps.form_rows(steps.FormSizes(CONFIG, 2, 1), quiet())
    check(rows, 2)
    assert (missing.result, missing.note) == (None, "not run: pip install 'crate-mae[bench]' brings transformers")


def test_encoding() -> None:
    check(list(encoding.rows(encoding.Sizes(CONFIG, 2, rounds=1, sgemm_seconds=0.01), quiet())), 2)


def test_the_flops_of_encoding_by_hand() -> None:
    batch, tokens, d = 3, 17, CONFIG.dim
    layer = batch * tokens * 3 * d * d + 2 * batch * tokens**2 * d
    expected = 2 * (CONFIG.depth * layer + batch * 16 * 48 * d)
    assert encoding.encoding_flops(CONFIG, batch) == expected


def test_the_share_of_a_product_that_is_sgemm_itself() -> None:
    laps = Laps({"it": [2.0, 4.0], SGEMM: [1.0, 2.0]})
    assert steps.share(laps, "it", 2 * Sgemm(64, 3).flops, Sgemm(64, 3)).middle == 1


def test_peak_memory_by_hand() -> None:
    """A linear map whose step is known: a result, a gradient of it, a gradient of the weight, Adam's temporaries."""
    weight = torch.nn.Parameter(torch.zeros(1000, 1000))
    x = torch.ones(3000, 1000)
    found = memory.peak(Trainee(lambda: (x @ weight).square().sum(), torch.optim.AdamW([weight], fused=True)))
    size = 4 * 10**6
    assert found.state == pytest.approx(4 * size, abs=100)
    # Product, its square, and on the way back the gradient of the square and of the product.
    assert 6 * size <= found.above <= 13 * size
    assert found.resident > found.above + found.state


def test_memory(no_transformers: None, monkeypatch: pytest.MonkeyPatch) -> None:
    """One contestant in a process of its own, which finds what this one finds."""
    work = Work(CONFIG, 2)
    apart = memory.in_a_process_of_its_own(OURS, work)
    here = memory.peak(contestants.ours(work))
    assert apart.above == pytest.approx(here.above, rel=0.02)
    sizes = [parameter.numel() for parameter in work.model().parameters()]
    assert apart.state == 16 * sum(sizes) + 4 * len(sizes)  # and each parameter's count of steps
    monkeypatch.setattr(
        memory, "in_a_process_of_its_own", lambda name, work: memory.peak(contestants.TRAINEES[name](work))
    )
    row, missing = memory.rows(memory.Sizes(CONFIG, (2,)), quiet())
    check([row], 1)
    assert row.peak_bytes.keys() == {OURS, LISTING}
    assert row.result.middle == row.peak_bytes[OURS] / row.peak_bytes[LISTING]
    assert missing.note == "not run: pip install 'crate-mae[bench]' brings transformers"


def test_rates() -> None:
    sizes = rates.Sizes(batch=2, tokens=20, dim=24, subspaces=3, rounds=2)
    check(list(rates.rows(sizes, quiet())), 2)
    W = project(*rates.tokens_and_bases(sizes))
    for side in rates.SIDES.values():
        torch.testing.assert_close(side(W), rates.small_side(W), rtol=2e-3, atol=2e-3)


def test_the_profile_knows_every_kind_by_torchs_own_names() -> None:
    found = list(profiling.rows(profiling.Sizes(((CONFIG, 2),), rounds=1), quiet()))
    check(found, len(profiling.KINDS) + 1)
    assert sum(row.result.middle for row in found if row.result) == pytest.approx(100)
    assert all(row.result.middle > 0 for row in found if row.result)


def test_the_probe_reports_convergence_and_accuracy_on_both_sides() -> None:
    (row,) = probing.rows(probing.Sizes(600, 12), quiet())
    check([row], 1)
    assert row.details["fits"].keys() == {"sweep", "scikit-learn"}
    for side in row.details["fits"].values():
        assert [fit["C"] for fit in side] == list(STRENGTHS)
        assert all(fit["converged"] and fit["accuracy"] > 15 for fit in side)
    assert "all fits converged on both sides" in row.note
    data = probing.made(600, 12)
    assert not all(fit.converged for fit in probing.separate(data, max_iter=1))
    np.testing.assert_allclose(data.train.std(0), 1, rtol=1e-3)


def test_pictures() -> None:
    sizes = pictures.Sizes(pictures=4, width=40, height=30, size=16, batch=2, workers=(0,), rounds=2)
    check(list(pictures.rows(sizes, quiet())), 1)


def test_a_photo_has_the_spectrum_of_photographs() -> None:
    pixels = np.asarray(pictures.photo(0, 256, 256), dtype=float).mean(-1)
    power = np.abs(np.fft.fft2(pixels - pixels.mean())) ** 2
    low, high = (power[0, [k, -k]].mean() + power[[k, -k], 0].mean() for k in (4, 32))
    frequencies = np.hypot(*np.meshgrid(np.fft.fftfreq(256), np.fft.fftfreq(256)))
    near, far = (power[(frequencies > f) & (frequencies < 1.2 * f)].mean() for f in (0.02, 0.16))
    assert near / far == pytest.approx(64, rel=0.4)  # amplitude as 1 / f, so power as 1 / f^2
    assert low > high


@pytest.mark.skipif(len(os.sched_getaffinity(0)) < 2, reason="needs two cores")
def test_processes(monkeypatch: pytest.MonkeyPatch) -> None:
    sizes = processes.Sizes(CONFIG, batch=4, steps=1, rounds=2)
    assert 0 < processes.start(sizes, sorted(os.sched_getaffinity(0))[:2]) < 60
    monkeypatch.setattr(processes, "start", lambda sizes, cores: 2 / len(cores))
    (row,) = processes.rows(sizes, quiet())
    check([row], 1)
    assert row.result.middle == 2


def test_scaling() -> None:
    sizes = scaling.Sizes(CONFIG, batch=2, depths=(1, 2), sides=(2, 3), batches=(1, 2), rounds=2)
    check(list(scaling.rows(sizes, quiet())), 3)


def test_the_deviation_from_linear_is_that_of_the_best_line() -> None:
    assert scaling.deviation([2.0, 2.0]) == 0
    per_flop = [1.0, 1.3, 1.1]
    lines = np.linspace(0.9, 1.4, 5001)
    best = min(max(abs(value / line - 1) for value in per_flop) for line in lines)
    assert scaling.deviation(per_flop) == pytest.approx(best, abs=1e-3)


def test_start(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(start, "COMMANDS", {name: ["-c", "pass"] for name in start.COMMANDS})
    check(list(start.rows(start.Sizes(rounds=1), quiet())), 3)


def test_the_race() -> None:
    course = replace(race.DIGITS, config=replace(race.DIGITS.config, dim=24, heads=3, decoder_dim=24, decoder_heads=3))
    sizes = race.Sizes((course,), seconds=0.2, seeds=2, evaluated=60)
    rows = list(race.rows(sizes, quiet()))
    check(rows, 3)
    for row in rows:
        assert all(len(finishes) == 2 for finishes in row.details.values())
        for finish in (finish for finishes in row.details.values() for finish in finishes):
            assert finish["loss"] > 0
            assert 0 <= finish["probe"] <= 100


def test_a_race_without_its_data_is_not_run(tmp_path: Path) -> None:
    (row,) = race.rows(race.Sizes((race.CIFAR,), data_root=tmp_path), quiet())
    assert row.result is None
    assert row.note.startswith("not run: data missing")


def test_racers_with_the_same_weights_are_the_same() -> None:
    """transformers' ViTMAE and our own: the same loss under the same masks, and the same features."""
    config = replace(CONFIG, dim=24)
    theirs = race.theirs(config, seed=0)
    ours = race.own(replace(he_mae(config), norm_eps=1e-12, final_norm_eps=1e-12), seed=0)  # theirs
    work = Work(config, 3)
    copied = from_vit_mae(theirs.module)
    ours.module.load_state_dict(copied.state_dict())
    for racer in (ours, theirs):
        racer.module.eval()
    torch.testing.assert_close(ours.loss(work.images, work.masks), theirs.loss(work.images, work.masks))
    torch.testing.assert_close(ours.features(work.images), theirs.features(work.images))


def test_what_is_written(tmp_path: Path) -> None:
    groups = {"small": command.Group(steps.rows, None, SMALL)}
    command.run(tmp_path / "new", True, groups, "crate-mae bench --quick", quiet())
    content = json.loads((tmp_path / "new" / "bench.json").read_text())
    assert content.keys() == {"command", "machine", "seconds", "rows"}
    assert content["machine"].keys() >= {"cpu", "cores", "threads", "torch", "commit"}
    fields = {"group", "what", "against", "result", "unit", "goal", "met", "note", "sgemm_share", "seconds"}
    for row in content["rows"]:
        assert row.keys() == fields | {"peak_bytes", "details"}
        assert row["result"].keys() == {"middle", "low", "high"}
    text = (tmp_path / "new" / "bench.md").read_text()
    assert "`crate-mae bench --quick` at commit" in text
    assert text.count("\n|") == 2 + len(content["rows"])


def test_rows_by_name() -> None:
    assert f"alone: {', '.join(command.GROUPS)}." in " ".join(bench_verb.__doc__.split())
    explained = (Path(__file__).parents[2] / "docs" / "performance.md").read_text()
    assert all(f"| `{name}` |" in explained for name in command.GROUPS)
    assert list(command.chosen(("start", "base"))) == ["start", "base"]
    assert list(command.chosen(())) == list(command.GROUPS)
    with pytest.raises(UserError, match="there is no row strat; choose from base"):
        command.chosen(("strat",))
