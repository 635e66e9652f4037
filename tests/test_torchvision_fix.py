"""torchvision's import, mended only where it needs it."""

import subprocess
import sys
import textwrap
from pathlib import Path


def run(tmp_path: Path, torchvision: str) -> subprocess.CompletedProcess[str]:
    """Import crate_mae.torchvision_fix with a fake torchvision in place of the real one."""
    package = tmp_path / "torchvision"
    package.mkdir()
    (package / "__init__.py").write_text(textwrap.dedent(torchvision))
    lines = ["from crate_mae.torchvision_fix import torch, torchvision as t"]
    lines += ["print(t.name, hasattr(torch.ops.torchvision, 'nms'))"]
    environment = {"PYTHONPATH": str(tmp_path), "PATH": "", "OMP_NUM_THREADS": "1"}
    return subprocess.run(
        [sys.executable, "-c", "\n".join(lines)], env=environment, capture_output=True, text=True, check=False
    )


def test_a_sound_torchvision_is_imported_the_ordinary_way(tmp_path: Path) -> None:
    assert run(tmp_path, "name = 'sound'").stdout.split() == ["sound", "False"]


def test_the_missing_operators_are_declared_and_the_import_tried_again(tmp_path: Path) -> None:
    torchvision = """
        import torch
        if not hasattr(torch.ops.torchvision, "nms"):
            raise RuntimeError("operator torchvision::nms does not exist")
        torch.ops.torchvision.qnms
        name = "mended"
    """
    assert run(tmp_path, torchvision).stdout.split() == ["mended", "True"]


def test_any_other_error_stands(tmp_path: Path) -> None:
    result = run(tmp_path, "raise RuntimeError('operator torchvision::roi_align does not exist')")
    assert result.returncode == 1
    assert "roi_align" in result.stderr


def test_the_real_one_works_here() -> None:
    script = "from crate_mae.torchvision_fix import torchvision; import torchvision.datasets, torchvision.transforms.v2"
    subprocess.run([sys.executable, "-c", script], check=True)
