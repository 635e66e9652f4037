"""crate-mae inspect, from the command line to the page in a browser."""

import contextlib
import dataclasses
import inspect
import json
import re
import shlex
from html import escape
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from crate_mae import ImageEncoder, cli
from crate_mae.analysis.quantities import QUANTITIES
from crate_mae.cli import main
from crate_mae.reports.html import Report
from crate_mae.reports.inspect_command import plain
from crate_mae.reports.inspect_measurements import Settings
from tests.conftest import unusable_paths
from tests.reports.test_inspect_measurements import for_digits

DOCS = Path(__file__).parents[2] / "docs" / "look-inside.md"


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The report that the command of docs/look-inside.md makes of a small autoencoder."""
    (command,) = re.findall(r"^```sh\n(.*?)\n```$", DOCS.read_text(), re.DOTALL | re.MULTILINE)
    verb, *words = shlex.split(command)
    assert verb == "crate-mae"
    folder = tmp_path_factory.mktemp("inspect")
    for_digits().save(folder / "runs" / "demo" / "checkpoints" / "best")
    with contextlib.chdir(folder):
        main(words)
    return folder / "runs" / "inspect"


def test_it_writes_a_page_its_figures_and_every_number(folder: Path) -> None:
    found = json.loads((folder / "inspect.json").read_text())
    page = (folder / "report.html").read_text()
    assert found["images"] == 64
    for stack in ("encoder", "decoder"):
        measured = {name for name, quantity in QUANTITIES.items() if stack == "encoder" or not quantity.needs_threshold}
        assert found[stack]["curves"].keys() == measured
        for curve in found[stack]["curves"].values():
            assert len(curve["mean"]) == len(curve["spread"]) == 2
        untrained = found["untrained"][stack]["curves"]
        assert untrained.keys() == measured
        assert untrained["compression"]["mean"] != found[stack]["curves"]["compression"]["mean"]
    assert f"{found['untrained']['encoder']['curves']['compression']['mean'][0]:.4g}" in page
    assert np.array(found["untrained"]["encoder_subspaces"]["orthonormal"]).shape == (2, 4, 4)
    assert len(found["untrained"]["undoing"]["alignment"]) == 2
    assert np.array(found["encoder_subspaces"]["orthonormal"]).shape == (2, 4, 4)
    assert np.array(found["attention"]["maps"]).sum((-2, -1)) == pytest.approx(1)
    assert len(found["shown_completions"]) == 4
    for quantity in QUANTITIES.values():
        assert escape(quantity.title) in page
    value = found["encoder"]["curves"]["compression"]["mean"][0]
    assert f"{value:.4g}" in page
    error = found["completion"]["error"]["mean"][2]
    assert f"{error:.4g}" in page
    assert "64 of the 450 images of digits" in page
    assert "not orthonormal" in page
    assert "Left out" not in page
    pictures = sorted(file.name for file in folder.glob("*.png"))
    assert len(pictures) == page.count("data:image/png;base64,") == 11


def test_a_page_says_what_it_leaves_out(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    config = for_digits("vit_mae_base_he", depth=1).config
    checkpoint = ImageEncoder(config).save(tmp_path / "checkpoint")
    out = tmp_path / "out"
    main(["inspect", str(checkpoint), "--data", "digits", "--images", "5", "--threshold", "0.1", "--out", str(out)])
    page = (out / "report.html").read_text()
    left_out = page.split("Left out")[1].split("<h2>")[0]
    assert "completions: the checkpoint holds no decoder." in left_out
    assert "compression, raw: it needs the subspaces U of a white-box layer" in left_out
    assert json.loads((out / "inspect.json").read_text())["decoder"] == "the checkpoint holds no decoder"
    printed = capsys.readouterr().out
    assert "5 images" in printed
    assert str(out / "report.html") in printed.replace("\n", "")


def test_an_unusable_checkpoint_gets_one_sentence(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for reason, path in unusable_paths(tmp_path).items():
        with pytest.raises(SystemExit) as stop:
            main(["inspect", path, "--data", "digits", "--images", "4", "--out", str(tmp_path / "out")])
        printed = capsys.readouterr()
        assert stop.value.code == 2
        assert reason in printed.err
        assert printed.err.count("\n") == 1
    assert [path.name for path in tmp_path.iterdir()] == ["loop"]


@pytest.mark.parametrize("width", [1366, 390])
def test_the_page_opens_in_a_browser_without_a_request_or_an_error(folder: Path, browser: Any, width: int) -> None:
    page = browser.new_page(viewport={"width": width, "height": 768})
    requests, complaints = [], []
    page.on("request", lambda request: requests.append(request.url))
    page.on("console", lambda message: complaints.append(message.text))
    page.on("pageerror", lambda error: complaints.append(str(error)))
    address = (folder / "report.html").as_uri()
    page.goto(address, wait_until="networkidle")
    assert [url for url in requests if not url.startswith("data:")] == [address]
    assert not complaints
    sizes = page.evaluate("[...document.images].map(image => [image.complete, image.naturalWidth, image.width])")
    assert len(sizes) == 11
    assert all(complete and natural > 400 and shown <= width for complete, natural, shown in sizes)
    assert page.evaluate("document.documentElement.scrollWidth") <= width
    page.close()


def test_a_long_name_does_not_widen_the_page(tmp_path: Path, browser: Any) -> None:
    report = Report("Inside /" + "folder/" * 40 + "x" * 200, "Measured.")
    page = browser.new_page(viewport={"width": 390, "height": 768})
    page.goto(report.write(tmp_path / "report.html").as_uri())
    assert page.evaluate("document.documentElement.scrollWidth") <= 390
    page.close()


def test_plain_values_for_json() -> None:
    found = plain({"a": np.array([1.0, np.nan]), "b": (Path("x"), float("inf")), "c": 3})
    assert found == {"a": [1.0, None], "b": ["x", None], "c": 3}


def test_the_commands_defaults_are_the_librarys() -> None:
    command = {name: one.default for name, one in inspect.signature(cli.inspect).parameters.items()}
    for field in dataclasses.fields(Settings):
        if field.name != "data":
            assert command[field.name] == field.default, field.name
