"""Every group of rows at a tiny size: it runs, and its numbers are plausible."""

import io
import json
import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from rich.console import Console

import crate_mae
from benchmarks import pages
from crate_mae import UserError, from_vit_mae
from crate_mae.bench import (
    coding_rate,
    command,
    contestants,
    data_parallel,
    encoding,
    image_pipeline,
    machine,
    own_process,
    peak_memory,
    probe_sweep,
    profiling,
    quality,
    row_names,
    scaling,
    start,
    steps,
)
from crate_mae.bench.contestants import LISTING, OURS, TRANSFORMERS, Trainee, Work, he_mae, transformers_model
from crate_mae.bench.harness import Laps, Run
from crate_mae.bench.machine import SGEMM, Sgemm
from crate_mae.bench.table import Row, on_terminal
from crate_mae.cli.bench import bench as bench_verb
from crate_mae.evaluation.linear_probe import PAPER_STRENGTHS
from crate_mae.models.autoencoder import MaskedAutoencoder
from crate_mae.models.shipped import DEFAULT
from crate_mae.theory.rates import project
from tests.bench.tiny import CONFIG


@contextmanager
def here(task: own_process.Task, name: str, work: Work) -> Iterator[Run]:
    """``own_process`` without the process."""
    with torch.set_grad_enabled(task == "training"):
        run = own_process.TASKS[task][name](work)
    yield torch.set_grad_enabled(task == "training")(run)


@pytest.fixture(autouse=True)
def _small_and_quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(machine, "SIDES", (32, 64))
    monkeypatch.setattr(own_process, "own_process", here)


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
    assert (missing.result, missing.note) == (None, "not run: pip install 'crate-mae[bench]' installs transformers")


def test_the_model_that_comes_with_the_package() -> None:
    """Its shape is that of the shipped checkpoint, and transformers' has the same encoder and decoder."""
    shipped = crate_mae.load(DEFAULT).config
    assert replace(steps.DESK_WHOLE.config, mean=shipped.mean, std=shipped.std) == shipped
    theirs = transformers_model(shipped, seed=0).config
    assert (theirs.hidden_size, theirs.num_hidden_layers) == (shipped.dim, shipped.depth)
    assert (theirs.decoder_hidden_size, theirs.decoder_num_hidden_layers, theirs.decoder_num_attention_heads) == (
        shipped.decoder_dim,
        shipped.decoder_depth,
        shipped.decoder_heads,
    )
    tiny = replace(shipped, dim=24, heads=3, decoder_dim=12, decoder_heads=3, image_size=(16, 16), patch_size=(4, 4))
    rows = list(steps.rows(replace(steps.DESK_WHOLE, config=tiny, batches=(2,), rounds=1, sgemm_seconds=0.01), quiet()))
    check(rows, 3)
    assert "5 of 17 tokens" in rows[0].what


def a_race(path: Path, ours: list[list[float]], theirs: list[list[float]]) -> Path:
    """A record of two curves."""
    results = [
        {"data": "cifar10", "contestant": name, "seed": 0, "curve": curve}
        for name, curve in (("CRATE-MAE", ours), ("ViT-MAE", theirs))
    ]
    path.write_text(json.dumps({"command": "it", "machine": {"commit": "0" * 40}, "results": results}))
    return path


def test_seconds_to_the_same_loss(tmp_path: Path) -> None:
    """The loss is the higher of the two last ones, so it may be either's; lines join the points of a curve."""
    fast, slow = [[60.0, 0.8], [120.0, 0.4], [180.0, 0.3]], [[60.0, 0.9], [120.0, 0.7], [180.0, 0.6]]
    record = a_race(tmp_path / "race.json", fast, slow)
    (row,) = quality.rows((tmp_path / "none.json", record), quiet())
    check([row], 1)
    assert row.result.middle == pytest.approx(90 / 180)
    (row,) = quality.rows((a_race(record, slow, fast),), quiet())
    assert row.result.middle == pytest.approx(180 / 90)
    (row,) = quality.rows((tmp_path / "none.json",), quiet())
    assert (row.result, row.note.startswith("not run: crate-mae bench --race")) == (None, True)
    assert quality.RECORDS[1] == pages.RECORDS / "race.json"


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
    found = peak_memory.peak(Trainee(lambda: (x @ weight).square().sum(), torch.optim.AdamW([weight], fused=True)))
    size = 4 * 10**6
    assert found.state == pytest.approx(4 * size, abs=100)
    # The product, its square, and in the backward pass the gradients of both.
    assert 6 * size <= found.above <= 13 * size
    assert found.resident > found.above + found.state


def test_memory(no_transformers: None, monkeypatch: pytest.MonkeyPatch) -> None:
    """One contestant in its own process gives the same numbers as in this one."""
    work = Work(CONFIG, 2)
    apart = peak_memory.in_a_process_of_its_own(OURS, work)
    here = peak_memory.peak(contestants.ours(work))
    assert apart.above == pytest.approx(here.above, rel=0.02)
    sizes = [parameter.numel() for parameter in work.model().parameters()]
    assert apart.state == 16 * sum(sizes) + 4 * len(sizes)  # and each parameter's count of steps
    monkeypatch.setattr(
        peak_memory, "in_a_process_of_its_own", lambda name, work: peak_memory.peak(contestants.TRAINEES[name](work))
    )
    row, missing = peak_memory.rows(peak_memory.Sizes(CONFIG, (2,)), quiet())
    check([row], 1)
    assert row.peak_bytes.keys() == {OURS, LISTING}
    assert row.result.middle == row.peak_bytes[OURS] / row.peak_bytes[LISTING]
    assert missing.note == "not run: pip install 'crate-mae[bench]' installs transformers"


def test_rates() -> None:
    sizes = coding_rate.Sizes(batch=2, tokens=20, dim=24, subspaces=3, rounds=2)
    check(list(coding_rate.rows(sizes, quiet())), 2)
    W = project(*coding_rate.tokens_and_bases(sizes))
    for side in coding_rate.SIDES.values():
        torch.testing.assert_close(side(W), coding_rate.small_side(W), rtol=2e-3, atol=2e-3)


def test_the_profile_knows_every_kind_by_torchs_own_names() -> None:
    found = list(profiling.rows(profiling.Sizes(((CONFIG, 2),), rounds=1), quiet()))
    check(found, len(profiling.KINDS) + 1)
    assert sum(row.result.middle for row in found if row.result) == pytest.approx(100)
    assert all(row.result.middle > 0 for row in found if row.result)


def test_the_probe_reports_convergence_and_accuracy_on_both_sides() -> None:
    (row,) = probe_sweep.rows(probe_sweep.Sizes(600, 12), quiet())
    check([row], 1)
    assert row.details["fits"].keys() == {"sweep", "scikit-learn"}
    for side in row.details["fits"].values():
        assert [fit["C"] for fit in side] == list(PAPER_STRENGTHS)
        assert all(fit["converged"] and fit["accuracy"] > 15 for fit in side)
    assert "all fits converged on both sides" in row.note
    data = probe_sweep.made(600, 12)
    assert not all(fit.converged for fit in probe_sweep.separate(data, max_iter=1))
    np.testing.assert_allclose(data.train.std(0), 1, rtol=1e-3)


def test_the_image_pipeline() -> None:
    sizes = image_pipeline.Sizes(images=4, width=40, height=30, size=16, batch=2, workers=(0,), rounds=2)
    check(list(image_pipeline.rows(sizes, quiet())), 1)


def test_a_photo_has_the_spectrum_of_photographs() -> None:
    pixels = np.asarray(image_pipeline.photo(0, 256, 256), dtype=float).mean(-1)
    power = np.abs(np.fft.fft2(pixels - pixels.mean())) ** 2
    low, high = (power[0, [k, -k]].mean() + power[[k, -k], 0].mean() for k in (4, 32))
    frequencies = np.hypot(*np.meshgrid(np.fft.fftfreq(256), np.fft.fftfreq(256)))
    near, far = (power[(frequencies > f) & (frequencies < 1.2 * f)].mean() for f in (0.02, 0.16))
    assert near / far == pytest.approx(64, rel=0.4)  # amplitude as 1 / f, so power as 1 / f^2
    assert low > high


@pytest.mark.skipif(len(os.sched_getaffinity(0)) < 2, reason="needs two cores")
def test_processes(monkeypatch: pytest.MonkeyPatch) -> None:
    sizes = data_parallel.Sizes(CONFIG, batch=4, steps=1, rounds=2)
    assert 0 < data_parallel.start(sizes, sorted(os.sched_getaffinity(0))[:2]) < 60
    monkeypatch.setattr(data_parallel, "ATTEMPTS", 1)
    with pytest.raises(UserError, match=r"failed: .*Error: .*Invalid argument"):
        data_parallel.start(sizes, [2**15])  # there is no such core
    monkeypatch.setattr(data_parallel, "start", lambda sizes, cores: 2 / len(cores))
    (row,) = data_parallel.rows(sizes, quiet())
    check([row], 1)
    assert row.result.middle == 2


def test_scaling() -> None:
    sizes = scaling.Sizes(CONFIG, batch=2, depths=(1, 2), sides=(2, 3), batches=(1, 2), rounds=2)
    check(list(scaling.rows(sizes, quiet())), 3)


def test_the_distance_from_linear_is_that_of_the_best_line() -> None:
    assert scaling.distance_from_linear([2.0, 2.0]) == 0
    per_flop = [1.0, 1.3, 1.1]
    lines = np.linspace(0.9, 1.4, 5001)
    best = min(max(abs(value / line - 1) for value in per_flop) for line in lines)
    assert scaling.distance_from_linear(per_flop) == pytest.approx(best, abs=1e-3)


def test_start(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(start, "COMMANDS", {name: ["-c", "pass"] for name in start.COMMANDS})
    check(list(start.rows(start.Sizes(rounds=1), quiet())), 3)


@torch.no_grad()
def test_our_vit_mae_is_transformers_with_the_same_weights() -> None:
    """The same loss under the same masks, and the same features."""
    config = replace(CONFIG, dim=24)
    theirs = transformers_model(config, seed=0).eval()
    ours = MaskedAutoencoder(replace(he_mae(config), norm_eps=1e-12, final_norm_eps=1e-12)).eval()  # theirs
    ours.load_state_dict(from_vit_mae(theirs).state_dict())
    work = Work(config, 3)
    loss = theirs(work.images, noise=work.masks.float()).loss  # it keeps the patches with the lowest noise
    torch.testing.assert_close(ours(work.images, work.masks).loss, loss)
    theirs.config.mask_ratio = 0.0
    tokens = theirs.vit(work.images).last_hidden_state
    torch.testing.assert_close(ours.features(work.images, pool="mean"), tokens[:, 1:].mean(1))


def test_what_is_written(tmp_path: Path) -> None:
    groups = {"small": command.Group(steps.rows, None, SMALL)}
    console = Console(file=io.StringIO(), width=80)
    words = "crate-mae bench --quick"
    rows = command.run(tmp_path / "new", groups, quick=True, verbose=False, command=words, console=console)
    lines = console.file.getvalue().splitlines()  # type: ignore[attr-defined]
    table = lines[[line.startswith("what ") for line in lines].index(True) :]
    assert [line.split("  ")[0] for line in table[1 : 1 + len(rows)]] == [row.name for row in rows]
    content = json.loads((tmp_path / "new" / "bench.json").read_text())
    assert content.keys() == {"command", "machine", "seconds", "rows"}
    assert content["machine"].keys() >= {"cpu", "cores", "threads", "torch", "commit"}
    fields = {"group", "name", "what", "against", "result", "unit", "goal", "met", "note", "sgemm_share", "seconds"}
    for row in content["rows"]:
        assert row.keys() == fields | {"peak_bytes", "details"}
        assert row["result"].keys() == {"middle", "low", "high"}
    text = (tmp_path / "new" / "bench.md").read_text()
    assert "`crate-mae bench --quick` at commit" in text
    assert text.count("\n|") == 2 + len(content["rows"])


@pytest.mark.parametrize("row", pages.record("bench")["rows"], ids=lambda row: f"{row['name']}, {row['against']}")
def test_a_row_is_one_line_of_80_columns(row: dict[str, Any]) -> None:
    console = Console(file=io.StringIO(), width=80)
    console.print(on_terminal([Row.from_dict(row)]))
    head, line = console.file.getvalue().splitlines()  # type: ignore[attr-defined]
    assert len(line) <= 80
    for heading, cell in zip(
        ("against", "result", "goal", "met"), [*Row.from_dict(row).cells()[1:3], "", ""], strict=True
    ):
        assert line[head.index(heading) :].startswith(cell)


def test_details_are_printed_when_asked_for(tmp_path: Path) -> None:
    console = Console(file=io.StringIO(), width=80)
    groups = {"small": command.Group(steps.rows, None, SMALL)}
    command.run(tmp_path, groups, quick=True, verbose=True, command="", console=console)
    assert "quartiles" in console.file.getvalue()  # type: ignore[attr-defined]


def test_rows_by_name() -> None:
    assert f"these rows: {', '.join(command.GROUPS)};" in " ".join(bench_verb.__doc__.split())
    explained = (Path(__file__).parents[2] / "docs" / "performance.md").read_text()
    assert all(f"| `{name}` |" in explained for name in command.GROUPS)
    assert row_names.chosen(("start", "base")) == ("start", "base")
    assert row_names.chosen(()) == tuple(command.GROUPS)
    with pytest.raises(UserError, match="there is no row strat; did you mean start"):
        row_names.chosen(("strat",))
