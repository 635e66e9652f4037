"""The commands and the Python of docs/web-page.md run, and its tables are what the code says."""

import inspect
import re
import shlex
from pathlib import Path

import pytest

from crate_mae import cli
from crate_mae.cli import main
from crate_mae.web import command
from crate_mae.web.limits import MILLION, Limits
from crate_mae.web.uploads import FORMATS
from tests.inspection.test_measure import for_digits
from tests.web.conftest import app_of, photo, serving

TEXT = (Path(__file__).parents[2] / "docs" / "web-page.md").read_text()


@pytest.fixture
def user(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    for name, make in {"demo": "crate_mae_tiny", "crate": "crate_mae_tiny", "vit": "vit_mae_base_he"}.items():
        for_digits(make).save(tmp_path / "runs" / name / "checkpoints" / "best")
    photo().save(tmp_path / "photo.jpg")
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_the_commands_run(user: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(command.uvicorn.Server, "run", lambda self, sockets: None)
    monkeypatch.setattr(command, "bind", lambda host, port, bind=command.bind: bind(host, 0))
    commands = re.findall(r"^```sh\n(.*?)\n```$", TEXT, re.DOTALL | re.MULTILINE)
    assert len(commands) == 2
    for line in commands:
        main(shlex.split(line)[1:])
    assert "vit: ViT-MAE" in capsys.readouterr().out


def test_the_python_runs(user: Path, capsys: pytest.CaptureFixture[str]) -> None:
    over_http, own = re.findall(r"```python\n(.*?)```", TEXT, re.DOTALL)
    with serving(app_of()) as address:
        exec(compile(over_http.replace("http://127.0.0.1:8000", address), "web-page.md", "exec"), {})
    exec(compile(own, "web-page.md", "exec"), {})
    printed = capsys.readouterr().out.splitlines()
    assert printed[0].startswith("1 ")
    assert printed[2].startswith("8 ")


def test_the_limits_are_the_codes() -> None:
    limits, given = Limits(), {name: one.default for name, one in inspect.signature(cli.serve).parameters.items()}
    assert (given["max_upload_mb"], given["max_megapixels"]) == (limits.upload / MILLION, limits.pixels / MILLION)
    assert (given["max_seconds"], given["max_waiting"]) == (limits.seconds, limits.waiting)
    assert given["workers"] == limits.workers
    for words in ("| 10 MB | `--max-upload-mb`", "| 32 million | `--max-megapixels`", "| 20 s | `--max-seconds`"):
        assert words in TEXT
    assert "| 64 | `--max-waiting`" in TEXT
    assert "| 2 | `--workers`" in TEXT
    assert all(kind.lower() in TEXT.lower() for kind in FORMATS)
