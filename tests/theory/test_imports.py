"""``crate_mae.theory`` imports no model, and matplotlib only when something is drawn."""

import subprocess
import sys

CODE = """
import sys
import crate_mae.theory.checks, crate_mae.theory.command, crate_mae.theory.figures
loaded = [name for name in sys.modules if name.startswith(("crate_mae.models", "matplotlib", "scipy", "sklearn"))]
print(loaded)
"""


def test_theory_imports_no_model_and_no_drawing():
    found = subprocess.run([sys.executable, "-c", CODE], capture_output=True, text=True, check=True)
    assert found.stdout.strip() == "[]"
