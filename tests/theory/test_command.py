"""The command with a few quick checks: table, JSON, figures; a finding is not a failure."""

import json

import numpy as np
import pytest
import torch
from rich.console import Console

from crate_mae.theory import command, figures
from crate_mae.theory.checks import Check


def spread(*means):
    return [{"mean": m, "std": 0.1 * abs(m), "draws": 3} for m in means]


def made_up_numbers():
    g = np.random.default_rng(0)
    sigma = [0.3, 0.1, 0.03, 0.01]
    cosines = {"cosine": spread(0.9, 0.5, 0.2, 0.1), "selectivity": spread(1, 1, 1, 1)}

    def picture(d):
        fields = {name: g.normal(size=(d, 20)).tolist() for name in ("tokens", "score", "alone", "together")}
        return {**fields, "subspaces": np.eye(d)[:, :, None].tolist()}

    def field(d):
        return {"sigma": sigma, "alone": cosines, "together": cosines, "picture": picture(d)}

    line = spread(0.9, 0.8, 0.7, 0.6)
    high = {"sigma": sigma, "tokens per subspace": 8, "p": 32, "limit": 0.87, "raw": line, "across": line}
    high = {**high, "raw optimal": line, "across optimal": line}
    pair = {"kernel": {"distance": 0.1, "p_value": 0.5, "null_median": 0.05}}
    both = {"soft-impute": spread(1.0)[0], "known subspaces": spread(0.1)[0]}
    return {
        "equivalence.fields_2d": field(2),
        "equivalence.fields_3d": field(3),
        "equivalence.fields_few_tokens": high,
        "equivalence.fields_many_tokens": high,
        "equivalence.mssa_raw": {"|z| = 1, eps 1": {"raw": spread(-0.5)[0], "beyond the span": spread(0.3)[0]}},
        "theorem.bound_at_base": {"sigma": sigma, "bound": line, "residual": line, "noise_norm": line},
        "theorem.slope_over_d": {"root": [0.1, 0.01], "slope": spread(1, 1.4), "bound": [1.1, 1.5]},
        "diffusion.exact_marginals": {"a": pair},
        "diffusion.printed_signs": {"b": pair},
        "diffusion.structured_marginals": {"c": pair},
        "diffusion.round_trip": {"steps": [8, 16], "euler, twice": {"order": 1.0, "errors": [0.1, 0.05]}},
        "completion.low_rank": {"rank": [1, 2], "error": spread(0.1, 0.2)},
        "completion.union_by_rank": both,
        "completion.whole_tokens": both,
    }


def quick_checks(numbers):
    def of(name):
        def check(generator):
            noise = float(torch.rand((), generator=generator))
            return Check(f"claim [of] {name}", "paper", "met", noise, "<=", -1.0, numbers=numbers[name])

        return check

    return {name: of(name) for name in numbers}


def test_command_writes_table_json_and_figures(tmp_path, monkeypatch, capsys):
    numbers = made_up_numbers()
    monkeypatch.setattr(command, "ALL", quick_checks(numbers))
    threads = torch.get_num_threads()
    command.run(tmp_path / "deep" / "out", 5, Console())
    assert torch.get_num_threads() == threads
    printed = capsys.readouterr().out
    assert "claim [of] completion.low_rank" in printed  # brackets are text, not markup
    assert f"[1/{len(numbers)}] equivalence.fields_2d: does not hold" in printed
    assert f"0 of {len(numbers)} claims of the paper hold as stated; {len(numbers)} do not (findings)." in printed
    report = json.loads((tmp_path / "deep" / "out" / "theory.json").read_text())
    assert report["seed"] == 5
    row = report["checks"]["completion.low_rank"]
    expected = float(torch.rand((), generator=torch.Generator().manual_seed(5)))
    assert row["measured"] == pytest.approx(expected)
    assert row["holds"] is False
    assert row["seconds"] >= 0
    assert len(list((tmp_path / "deep" / "out").glob("theory-*.png"))) == len(figures.draw_all(numbers)) == 8


def test_a_failed_check_of_the_code_is_named(tmp_path, monkeypatch, capsys):
    numbers = made_up_numbers()
    checks = quick_checks(numbers)
    monkeypatch.setattr(command, "ALL", {**checks, "rates.own": lambda g: Check("own", "code", "-", 1.0, "<=", 0.0)})
    command.run(tmp_path, 0, Console())
    assert "Checks of this code itself fail: rates.own." in capsys.readouterr().out


def test_figures_show_what_they_are_given():
    drawn = figures.draw_all(made_up_numbers())
    slope = drawn["theory-theorem"].axes[1]
    heights = [line.get_ydata() for line in slope.get_lines() if len(line.get_ydata()) == 2]
    assert any(np.allclose(y, [1.1, 1.5]) for y in heights)
    bars = [patch.get_height() for patch in drawn["theory-completion"].axes[1].patches]
    assert bars == pytest.approx([1.0, 1.0, 0.1, 0.1])
    assert "equivalence holds" in drawn["theory-fields-2d"].get_supxlabel()
