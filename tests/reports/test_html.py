import base64
import re
from html.parser import HTMLParser
from io import StringIO
from pathlib import Path

import numpy as np
import pytest
from PIL import Image
from rich.console import Console

from crate_mae import figures
from crate_mae.progress import progress
from crate_mae.reports.html import Report


def test_a_report_is_one_file_that_loads_nothing(tmp_path: Path) -> None:
    Image.new("RGB", (4, 4), "red").save(tmp_path / "red.png")
    report = Report("Title <b>", "Lead & more")
    report.section("Heading", "a < b", "second")
    report.table(["name", "value"], [["<x>", "1"]])
    report.picture(tmp_path / "red.png", "Caption", 'A "red" square')
    page = report.write(tmp_path / "report.html").read_text()
    HTMLParser().feed(page)
    assert "Title &lt;b&gt;" in page
    assert "a &lt; b" in page
    assert "&lt;x&gt;" in page
    sources = re.findall(r'(?:src|href)="([^"]*)"', page)
    assert sources
    assert all(source.startswith("data:") for source in sources)
    data = next(source for source in sources if source.startswith("data:image/png")).split(",")[1]
    assert base64.b64decode(data) == (tmp_path / "red.png").read_bytes()
    assert "http" not in page


def test_without_a_terminal_there_are_ten_plain_lines() -> None:
    output = StringIO()
    with progress("working", 35, Console(file=output)) as advance:
        for step in range(35):
            advance(f"loss {step}")
    lines = output.getvalue().splitlines()
    assert len(lines) == 10
    assert lines[-1].startswith("working 35/35  loss 34")
    assert "\x1b" not in output.getvalue()


def test_on_a_terminal_there_is_a_bar() -> None:
    output = StringIO()
    with progress("working", 5, Console(file=output, force_terminal=True, width=100)) as advance:
        for _ in range(5):
            advance("loss 1")
    assert "\x1b" in output.getvalue()
    assert "5/5" in output.getvalue()


def test_figures_draw_the_given_data(tmp_path: Path) -> None:
    image = np.zeros((4, 4, 3))
    figure = figures.completions([image], [image], [image], [0.5], "title")
    assert [ax.get_title() for ax in figure.axes] == ["masked", "completed", "original"]
    assert figure.axes[1].get_xlabel() == "error 0.500"
    several = figures.completions([image] * 2, [image] * 2, [image] * 2, [0.5, 0.25])
    assert [ax.get_ylabel() for ax in several.axes] == ["masked", "", "completed", "", "original", ""]
    assert [ax.get_xlabel() for ax in several.axes][4:] == ["error 0.500", "error 0.250"]
    curve = figures.training_curve({1: 1.0, 2: 0.9}, {1: 1.0, 3: 0.5}, ("mean patch", 0.7))
    assert "mean patch (0.700)" in [text.get_text() for text in curve.axes[0].get_legend().get_texts()]
    run = figures.run_curves({10: 2.0, 20: 1.0}, {"validation": {0: 9.0, 30: 1.5}}, {"nearest": {0: 10.0}}, "loss")
    assert run.axes[0].get_xlim()[1] >= 30  # also where validation goes beyond the last logged step
    assert [ax.get_ylabel() for ax in run.axes] == ["loss", "accuracy on validation images, %"]
    assert run.axes[0].get_ylim()[1] == pytest.approx(2.2)  # the value at the start lies far above
    layers = figures.layer_curves([figures.LayerPanel(label, {"": (np.ones(3), np.zeros(3))}) for label in "ab"])
    assert [ax.get_ylabel() for ax in layers.axes] == ["a", "b"]
    bars = figures.bars({"one": 10.0, "two": 20.0}, "accuracy, %")
    assert [patch.get_width() for patch in bars.axes[0].patches] == [10.0, 20.0]
    for name, made in {"completions": figure, "curve": curve, "layers": layers, "bars": bars}.items():
        with Image.open(figures.save(made, tmp_path / f"{name}.png")) as drawn:
            assert drawn.size[0] > 300
