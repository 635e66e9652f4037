"""Every command and every line of Python in the README runs.

Smallest forms in ``make test``; whole in ``make test-all``. A command that is new in the README and not here is an
error.
"""

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from PIL import Image
from sklearn.datasets import load_sample_image

import crate_mae
from crate_mae.cli import main
from crate_mae.models.layouts import mae_pairs

ROOT = Path(__file__).parents[1]
README = (ROOT / "README.md").read_text()
BLOCKS = re.findall(r"^```(\w+)\n(.*?)^```$", README, re.DOTALL | re.MULTILINE)
COMMANDS = [
    line.split("#")[0].strip()
    for language, block in BLOCKS
    if language == "sh"
    for line in block.splitlines()
    if line.split("#")[0].strip()
]
PYTHON = [block for language, block in BLOCKS if language == "python"]


def make_prints(target: str, expected: str) -> None:
    """The make target comes down to a command, installed already or not."""
    printed = subprocess.run(["make", "-n", "-B", target], cwd=ROOT, capture_output=True, text=True, check=True).stdout
    assert expected in printed


def test_the_readme_has_commands_and_python() -> None:
    assert len(COMMANDS) >= 6
    assert len(PYTHON) >= 1


@pytest.fixture
def user(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A user's folder: a photo, a demo of three steps, and a small file in He et al.'s layout."""
    monkeypatch.chdir(tmp_path)
    Image.fromarray(load_sample_image("flower.jpg")).save("photo.jpg")
    main(["demo", "--steps", "3", "--out", "runs/demo"])
    write_mae(tmp_path / "mae_pretrain_vit_base.pth", depth=1, decoder_depth=1, image_size=32)
    return tmp_path


def write_mae(path: Path, **overrides: Any) -> None:
    """Random weights in He et al.'s layout: their file can't be fetched by a test."""
    model = crate_mae.create_model("vit_mae_base_he", **overrides)
    own = model.state_dict()
    weights = {pair.theirs: pair.out(own[pair.ours], model.config) for pair in mae_pairs(model.config)}
    torch.save({"model": weights}, path)


SMALL = {
    "make demo": lambda: make_prints("demo", "crate-mae demo --out runs/demo"),
    "make test": lambda: make_prints("test", '-m "not slow"'),
    "make test-all": lambda: make_prints("test-all", "python -m pytest"),
    "make lint": lambda: make_prints("lint", "mypy"),
    "make install": lambda: make_prints("install", "pip install"),
    "python -m venv .venv": lambda: None,
    ". .venv/bin/activate": lambda: None,
    "pip install torch torchvision": lambda: make_prints("install", "-c constraints.txt"),
    "pip install -e .": lambda: subprocess.run(
        [sys.executable, "-m", "pip", "install", "--dry-run", "--no-deps", "--no-build-isolation", str(ROOT)],
        check=True,
        capture_output=True,
    ),
}


SHORT = ["--set", "steps=2", "--set", "evaluation_images=50", "--set", "pictures=2"]


def test_every_command_runs_in_its_smallest_form(user: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("uvicorn.Server.run", lambda self, sockets: None)  # it would serve until stopped
    monkeypatch.setattr("webbrowser.open", lambda address: None)
    for command in COMMANDS:
        words = command.split()
        if words[0] == "crate-mae":
            main(words[1:] + {"pretrain": SHORT, "finetune": SHORT[:-2], "serve": ["--port", "0"]}.get(words[1], []))
        else:
            assert command in SMALL, f"the README's {command!r} has no test"
            SMALL[command]()


def test_every_line_of_python_runs(user: Path) -> None:
    for block in PYTHON:
        exec(compile(block, "README.md", "exec"), {})


@pytest.mark.slow
def test_every_command_runs_whole_in_a_clean_clone(tmp_path: Path) -> None:
    clone = tmp_path / "clone"
    subprocess.run(["git", "clone", "--quiet", str(ROOT), str(clone)], check=True)
    Image.fromarray(load_sample_image("flower.jpg")).save(clone / "photo.jpg")
    environment = {name: value for name, value in os.environ.items() if not name.startswith(("VIRTUAL_ENV", "PYTHON"))}
    environment["PIP_CONSTRAINT"] = str(clone / "constraints.txt")  # the tested builds, not the newest
    environment["PATH"] = f"{clone / '.venv' / 'bin'}{os.pathsep}{environment['PATH']}"
    for command in COMMANDS:
        if command == "make test-all":  # that is this run
            continue
        if "mae_pretrain_vit_base.pth" in command:
            write_mae(clone / "mae_pretrain_vit_base.pth")
        if command == "python -m venv .venv":
            shutil.rmtree(clone / ".venv", ignore_errors=True)
        if command.startswith("crate-mae serve"):
            command = f"timeout --preserve-status --signal=INT 60 {command}"
        subprocess.run(["bash", "-c", command], cwd=clone, env=environment, check=True, timeout=1500)
    assert (clone / "runs" / "demo" / "report.html").is_file()
    assert (clone / "completed.png").is_file()
