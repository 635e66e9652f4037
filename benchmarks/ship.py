"""Put a trained model into the package: ``python benchmarks/ship.py FOLDER NAME --number WHAT VALUE COMMAND ...``.

FOLDER is a run folder of crate-mae pretrain, or the folder of one job of crate-mae bench --race. The weights go to
src/crate_mae/weights/NAME in half precision, with record.json (how it was trained, its numbers) and a card made from
it. Give the numbers that people ask for first: the first two stand in the list of ``crate-mae models``. Run it from a
checkout whose package is installed with pip install -e, look at the card, and commit the folder.
"""

import argparse
from dataclasses import replace
from pathlib import Path

from crate_mae.hub.shipping import read_training, ship
from crate_mae.models.shipped import Measured


def main(words: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("name")
    parser.add_argument("--number", nargs=3, action="append", default=[], metavar=("WHAT", "VALUE", "COMMAND"))
    parser.add_argument("--not-good-for", action="append", default=[], metavar="SENTENCE", help="replaces the defaults")
    parser.add_argument("--hours", type=float, help="processor hours of the training, where it shared a core")
    given = parser.parse_args(words)
    training = read_training(given.folder)
    if given.hours is not None:
        training = replace(training, processor_hours=given.hours)
    numbers = tuple(Measured(*number) for number in given.number)
    folder = ship(training, given.name, numbers, tuple(given.not_good_for))
    print(f"Wrote {folder}: {sum(file.stat().st_size for file in folder.iterdir()) / 1e6:.1f} MB.")


if __name__ == "__main__":
    main()
