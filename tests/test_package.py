"""The package installs into a clean environment, with all of its files."""

import os
import subprocess
import sys
import tomllib
import venv
import zipfile
from importlib.metadata import distributions
from pathlib import Path

import pytest
from packaging.specifiers import SpecifierSet
from packaging.utils import canonicalize_name

from crate_mae.errors import missing_extra

ROOT = Path(__file__).parents[1]
TRY = "import crate_mae; print(crate_mae.create_model('crate_mae_tiny', depth=1, image_size=32).num_parameters)"


def test_a_missing_extra_is_named_in_one_sentence() -> None:
    assert str(missing_extra("--tensorboard", "tensorboard")) == (
        "--tensorboard needs packages that are not installed; pip install 'crate-mae[tensorboard]' installs them."
    )


def test_the_pinned_packages_take_every_python_that_this_one_takes() -> None:
    """One that does not sends pip through all versions of all others, for ever."""
    pins = [line.split("==")[0] for line in (ROOT / "constraints.txt").read_text().splitlines() if "==" in line]
    pinned = {canonicalize_name(name) for name in pins}
    least = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["requires-python"].removeprefix(">=")
    installed = [one for one in distributions() if canonicalize_name(one.metadata["Name"]) in pinned]
    assert len(installed) > 50
    refused = [
        one.metadata["Name"]
        for one in installed
        if f"{least}.0" not in SpecifierSet(one.metadata.get("Requires-Python", ""))
    ]
    assert refused == []


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The wheel of a clean copy: what lies about in build/ must not get in."""
    folder = tmp_path_factory.mktemp("wheel")
    subprocess.run(["git", "clone", "--quiet", str(ROOT), str(folder / "clone")], check=True)
    pip = [sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "--wheel-dir", str(folder)]
    subprocess.run([*pip, str(folder / "clone")], check=True)
    (made,) = folder.glob("crate_mae-*.whl")
    return made


@pytest.mark.slow
def test_the_wheel_has_every_file_of_the_package(wheel: Path) -> None:
    listed = subprocess.run(["git", "ls-files", "src"], cwd=ROOT, capture_output=True, text=True, check=True).stdout
    packed = set(zipfile.ZipFile(wheel).namelist())
    assert {name.removeprefix("src/") for name in listed.split()} <= packed
    assert wheel.stat().st_size <= 30e6


@pytest.mark.slow
@pytest.mark.parametrize("from_wheel", [True, False], ids=["wheel", "source"])
def test_it_installs_into_a_clean_environment(from_wheel: bool, wheel: Path, tmp_path: Path) -> None:
    venv.create(tmp_path / "env", with_pip=True)
    environment = {name: value for name, value in os.environ.items() if not name.startswith("PYTHON")}
    python, command = tmp_path / "env/bin/python", tmp_path / "env/bin/crate-mae"
    what = wheel if from_wheel else wheel.parent / "clone"
    pip = [python, "-m", "pip", "install", "--quiet", "-c", ROOT / "constraints.txt", what]
    subprocess.run(pip, env=environment, check=True, timeout=1500)

    def said(*words: str | Path) -> subprocess.CompletedProcess[str]:
        return subprocess.run(words, cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=300)

    assert said(command, "--version").stdout.startswith("crate-mae ")
    assert int(said(python, "-c", TRY).stdout) > 0
    assert "crate_mae_base" in said(command, "models").stdout
    without = said(command, "pretrain", "--recipe", "digits", "--out", "run", "--tensorboard", "--set", "steps=1")
    assert without.returncode == 2
    assert "pip install 'crate-mae[tensorboard]'" in without.stderr.splitlines()[-1]
