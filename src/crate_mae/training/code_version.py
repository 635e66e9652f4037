"""The version of the running code, for records."""

import subprocess
from pathlib import Path


def commit() -> str | None:
    """The commit of the running code, with + where files differ from it; None where it is no checkout.

    Code installed inside another project's repository, such as in its .venv, has no commit of that repository.
    """

    def git(*words: str) -> str:
        command = ["git", "-C", str(Path(__file__).parent), *words]
        return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()

    try:
        git("ls-files", "--error-unmatch", Path(__file__).name)
        return git("describe", "--always", "--abbrev=40", "--dirty=+", "--exclude=*") or None
    except (OSError, subprocess.CalledProcessError):
        return None
