"""``python -m crate_mae`` is ``crate-mae``."""

from crate_mae.cli import main

main()
