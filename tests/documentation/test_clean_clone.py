"""Every command of the README runs whole, in a clean clone, as a reader would give them."""

import os
import shutil
import subprocess
from pathlib import Path

import pytest
from PIL import Image
from sklearn.datasets import load_sample_image

from tests.documentation.pages import ROOT, blocks
from tests.documentation.world import write_mae


@pytest.mark.slow
def test_every_command_runs_whole_in_a_clean_clone(tmp_path: Path) -> None:
    clone = tmp_path / "clone"
    subprocess.run(["git", "clone", "--quiet", str(ROOT), str(clone)], check=True)
    Image.fromarray(load_sample_image("flower.jpg")).save(clone / "photo.jpg")
    write_mae(clone / "mae_pretrain_vit_base.pth")
    environment = {name: value for name, value in os.environ.items() if not name.startswith(("VIRTUAL_ENV", "PYTHON"))}
    environment["PIP_CONSTRAINT"] = str(clone / "constraints.txt")  # the tested builds, not the newest
    environment["PATH"] = f"{clone / '.venv' / 'bin'}{os.pathsep}{environment['PATH']}"
    lines = [line for block in blocks(ROOT / "README.md") if block.language == "sh" for line in block.text.splitlines()]
    for command in lines:
        if command.startswith("crate-mae serve"):  # it never ends
            continue
        if command == "python -m venv .venv":
            shutil.rmtree(clone / ".venv", ignore_errors=True)
        subprocess.run(["bash", "-c", command], cwd=clone, env=environment, check=True, timeout=1500)
    assert (clone / "runs" / "demo" / "report.html").is_file()
    assert (clone / "completed.png").is_file()
