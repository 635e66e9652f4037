"""What docs/web-page.md does over HTTP runs against a server, and its tables are what the code says."""

import inspect
import re
from pathlib import Path

import pytest

from crate_mae import cli
from crate_mae.image_files import SCANS
from crate_mae.web.limits import FORMATS, MILLION, Limits
from tests.web.conftest import app_of, photo, serving

TEXT = (Path(__file__).parents[2] / "docs" / "web-page.md").read_text()


@pytest.fixture
def user(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    photo().save(tmp_path / "photo.jpg")
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_the_python_over_http_runs(user: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (over_http,) = re.findall(r"```py\n(.*?)```", TEXT, re.DOTALL)
    with serving(app_of()) as address:
        exec(compile(over_http.replace("http://127.0.0.1:8000", address), "web-page.md", "exec"), {})
    assert capsys.readouterr().out.startswith("1 ")


def test_the_limits_are_the_codes() -> None:
    limits, given = Limits(), {name: one.default for name, one in inspect.signature(cli.serve).parameters.items()}
    assert (given["max_upload_mb"], given["max_megapixels"]) == (limits.upload / MILLION, limits.pixels / MILLION)
    assert (given["max_seconds"], given["max_waiting"]) == (limits.seconds, limits.waiting)
    assert given["workers"] == limits.workers
    for words in ("| 10 MB | `--max-upload-mb`", "| 32 million | `--max-megapixels`", "| 20 s | `--max-seconds`"):
        assert words in TEXT
    assert "| 64 | `--max-waiting`" in TEXT
    for words in (
        f"| {limits.side:,}; {limits.aspect:g} |",
        f"| {limits.memory / 1000 / MILLION:.1f} GB, {limits.decoding:g} s; {SCANS} |",
        f"| {limits.seconds:g} s; {limits.idle:g} s |",
        f"| {limits.uploads / MILLION:g} MB |",
        f"| {limits.header:g} s | | closed |",
        f"| {limits.connections} | | 503 |",
    ):
        assert words in TEXT
    assert "| 2 | `--workers`" in TEXT
    assert all(kind.lower() in TEXT.lower() for kind in FORMATS)
