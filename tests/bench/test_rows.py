"""Every group of rows at a tiny size: it runs, and its numbers are of the right kind."""

import io
import json
from pathlib import Path

import pytest
import torch
from rich.console import Console

from crate_mae.bench import contestants, encoding, memory, steps
from crate_mae.bench.contestants import LISTING, OURS, TRANSFORMERS, Trainee, Work
from crate_mae.bench.machine import SGEMM, Sgemm
from crate_mae.bench.table import Row
from tests.bench.tiny import CONFIG


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
    for module in (contestants, memory, steps):
        monkeypatch.setattr(module, "has_transformers", lambda: False)


def test_training_steps() -> None:
    rows = list(steps.rows(steps.Sizes(CONFIG, (2,), rounds=2, sgemm_seconds=0.01), quiet()))
    check(rows, 3)
    assert [row.against for row in rows[:2]] == [LISTING, TRANSFORMERS]
    for row in rows[:2]:
        assert row.seconds.keys() == {OURS, row.against, SGEMM}
        assert row.sgemm_share == rows[2].result


def test_the_small_model_and_the_forms(no_transformers: None) -> None:
    check(list(steps.small_rows(steps.Sizes(CONFIG, (2,), rounds=1, sgemm_seconds=0.01), quiet())), 2)
    *rows, missing = steps.form_rows(steps.FormSizes(CONFIG, 2, 1), quiet())
    check(rows, 2)
    assert (missing.result, missing.note) == (None, "not run: install transformers")


def test_encoding() -> None:
    check(list(encoding.rows(encoding.Sizes(CONFIG, 2, rounds=1, sgemm_seconds=0.01), quiet())), 2)


def test_the_flops_of_encoding_by_hand() -> None:
    batch, tokens, d = 3, 17, CONFIG.dim
    layer = batch * tokens * 3 * d * d + 2 * batch * tokens**2 * d
    expected = 2 * (CONFIG.depth * layer + batch * 16 * 48 * d)
    assert encoding.encoding_flops(CONFIG, batch) == expected


def test_the_share_of_a_product_that_is_sgemm_itself() -> None:
    from crate_mae.bench.harness import Laps

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


def test_memory_in_a_process_of_its_own(no_transformers: None) -> None:
    rows = list(memory.rows(memory.Sizes(CONFIG, (2,)), quiet()))
    check(rows[:1], 1)
    here = memory.peak(contestants.listing(Work(CONFIG, 2)))
    assert rows[0].peak_bytes[LISTING] == pytest.approx(here.above, rel=0.02)
    assert rows[0].details["peaks"][OURS]["state"] == 16 * sum(
        p.numel() for p in Work(CONFIG, 2).model().parameters()
    ) + 4 * len(list(Work(CONFIG, 2).model().parameters()))
    assert rows[1].note == "not run: install transformers"


def test_what_is_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from crate_mae.bench import command

    monkeypatch.setattr(
        command, "GROUPS", {"small": command.Group(steps.small_rows, None, steps.Sizes(CONFIG, (2,), 1, 0.01))}
    )
    command.run(tmp_path / "new", True, (), "crate-mae bench --quick", quiet())
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
