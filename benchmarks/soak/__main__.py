"""``make soak``: every row of docs/reliability.md in turn, each for its share of the time.

    python -m benchmarks.soak --seconds 3600 --out runs/soak
    python -m benchmarks.soak --rows images arguments --seconds 120
    python -m benchmarks.soak --join runs/a/soak.json runs/b/soak.json
    python -m benchmarks.soak --replay runs/soak/failures/images/0001

The record is OUT/soak.json; with ``--record`` also the one in benchmarks/ that the page's table is made from. Every
case that fails is kept in OUT/failures.
"""

import argparse
import json
import sys
import threading
import time
from pathlib import Path
from types import ModuleType
from typing import Any

from benchmarks.soak import arguments, checkpoints, disks, images, kills, page, torchrun
from benchmarks.soak.record import Budget, Row, markdown, timed, to_json
from crate_mae.atomic_write import atomic_write
from crate_mae.bench.machine import cpu_name
from crate_mae.data.checking import processors
from crate_mae.training.code_version import commit

ROWS: dict[str, tuple[ModuleType, float]] = {
    "kills": (kills, 0.36),
    "torchrun": (torchrun, 0.08),
    "disks": (disks, 0.09),
    "checkpoints": (checkpoints, 0.10),
    "images": (images, 0.10),
    "arguments": (arguments, 0.10),
    "page": (page, 0.17),
}
"""Each row's module and share of the time; what a row does not need goes to those after it."""
RECORD = Path(__file__).parents[1] / "soak.json"
LINE_SECONDS = 20.0


class Progress:
    """Prints a line of a row; the count now and then, whoever counts."""

    def __init__(self, name: str, row: Row):
        self.name, self.row, self.ended = name, row, threading.Event()
        threading.Thread(target=self._watch, daemon=True).start()

    def __call__(self, line: str) -> None:
        print(f"{self.name:<12} {line}", flush=True)

    def _watch(self) -> None:
        while not self.ended.wait(LINE_SECONDS):
            self(f"{self.row.count:,} {self.row.unit}, {len(self.row.findings)} failures")


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.soak", description=(__doc__ or "").split("\n\n")[0])
    parser.add_argument("--seconds", type=float, default=3600.0)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--rows", nargs="+", choices=list(ROWS), default=list(ROWS))
    parser.add_argument("--out", type=Path, default=Path("runs/soak"))
    parser.add_argument("--record", action="store_true", help="write benchmarks/soak.json too")
    parser.add_argument("--replay", type=Path, help="the folder of a failure")
    parser.add_argument(
        "--join", nargs="+", type=Path, help="records of soaks of some rows each, for benchmarks/soak.json"
    )
    given = parser.parse_args()
    if given.join:
        RECORD.write_text(join([json.loads(path.read_text()) for path in given.join]))
        return
    if given.replay:
        sys.exit(replay(given.replay))
    rows = soak(given.rows, given.seconds, given.seed, given.out, given.record)
    sys.exit(any(row.findings for row in rows))


def soak(names: list[str], seconds: float, seed: int, out: Path, record: bool) -> list[Row]:
    """Run these rows and write the record after each of them."""
    about = {
        "command": f"python -m benchmarks.soak --rows {' '.join(names)} --seconds {seconds:g} --seed {seed}",
        "commit": commit(),
        "machine": f"{cpu_name()}, {processors()} processors",
        "seed": seed,
    }
    end = time.monotonic() + seconds
    rows: list[Row] = []
    for place, name in enumerate(names):
        module, share = ROWS[name]
        row: Row = module.row()
        rows.append(row)
        shares = sum(ROWS[each][1] for each in names[place:])
        until = time.monotonic() + max(end - time.monotonic(), 0.0) * share / shares
        say = Progress(name, row)
        with timed(row):
            module.run(Budget(row, seed, until, out / "failures" / name, say))
        say.ended.set()
        say(f"{row.count:,} {row.unit}, {len(row.findings)} failures, {row.seconds:.0f} s")
        made = to_json(rows, about)
        for path in [out / "soak.json", *([RECORD] if record else [])]:
            path.parent.mkdir(parents=True, exist_ok=True)
            with atomic_write(path) as temporary:
                temporary.write_text(made)
    print(markdown(json.loads(made)))
    return rows


def join(records: list[dict[str, Any]]) -> str:
    """One record of several, with the rows in their order."""
    order = [module.row().test for module, _ in ROWS.values()]
    rows = sorted((row for record in records for row in record["rows"]), key=lambda row: order.index(row["test"]))
    commands = "; ".join(record["command"] for record in records)
    commits = ", ".join(sorted({str(record["commit"]) for record in records}))
    return json.dumps(records[0] | {"command": commands, "commit": commits, "rows": rows}, indent=1) + "\n"


def replay(folder: Path) -> int:
    """Run one kept case again; 1 if it still fails."""
    about = json.loads((folder / "case.json").read_text())
    module = next(module for module, _ in ROWS.values() if module.row().test == about["row"])
    if not hasattr(module, "replay"):
        print(about["what"])
        print(f"It depends on time: run its row again with --seed {about['seed']}; its files are in {folder}.")
        return 1
    content = folder / "content"
    problem = module.replay(about, content.read_bytes() if content.exists() else b"")
    print(problem or "It does not fail any more.")
    return problem is not None


if __name__ == "__main__":
    main()
