"""``crate-mae theory``: run every check, print the table, write JSON and figures."""

import json
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path

import torch
from rich.console import Console
from rich.markup import escape
from rich.progress import Progress
from rich.table import Table

from crate_mae.theory.checks import ALL, Check

FINDING = "does not hold"


def run(out: Path, seed: int, console: Console) -> None:
    """Run every check, print the table, and write theory.json and the figures to ``out``."""
    from crate_mae.theory.figures import draw_all

    out.mkdir(parents=True, exist_ok=True)
    start = time.perf_counter()
    with _one_thread():
        results = dict(_run(console, seed))
    wide = console if console.is_terminal else Console(width=220)
    wide.print(_table(results))
    report = {
        "seed": seed,
        "checks": {
            name: {**asdict(check), "holds": check.holds, "seconds": seconds}
            for name, (check, seconds) in results.items()
        },
    }
    (out / "theory.json").write_text(json.dumps(report, indent=1))
    numbers = {name: check.numbers for name, (check, _) in results.items()}
    for name, figure in draw_all(numbers).items():
        figure.savefig(out / f"{name}.png", dpi=100)
    _summary(console, results, out, time.perf_counter() - start)


@contextmanager
def _one_thread() -> Iterator[None]:
    # Batches of small factorisations: a second thread mostly waits for the first.
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)


def _run(console: Console, seed: int) -> Iterator[tuple[str, tuple[Check, float]]]:
    with Progress(console=console, transient=True, disable=not console.is_terminal) as progress:
        task = progress.add_task("checks", total=len(ALL))
        for number, (name, function) in enumerate(ALL.items(), 1):
            progress.update(task, description=name)
            start = time.perf_counter()
            check = function(torch.Generator().manual_seed(seed))
            seconds = time.perf_counter() - start
            progress.advance(task)
            if not console.is_terminal:
                print(
                    f"[{number}/{len(ALL)}] {name}: {'holds' if check.holds else FINDING} ({seconds:.1f} s)", flush=True
                )
            yield name, (check, seconds)


def _table(results: dict[str, tuple[Check, float]]) -> Table:
    table = Table("claim", "hypotheses", "measured", "bound or exact value", "holds", "seconds")
    for check, seconds in results.values():
        margin = f" +- {check.tolerance:.2g}" if check.relation == "=" and check.tolerance else ""
        table.add_row(
            escape(check.claim),
            escape(check.hypotheses),
            f"{check.measured:.4g}",
            f"{check.relation} {check.expected:.4g}{margin}",
            "[green]yes" if check.holds else "[red]no",
            f"{seconds:.1f}",
        )
    return table


def _summary(console: Console, results: dict[str, tuple[Check, float]], out: Path, seconds: float) -> None:
    checks = [check for check, _ in results.values()]
    findings = sum(not check.holds for check in checks if check.about == "paper")
    broken = [name for name, (check, _) in results.items() if check.about == "code" and not check.holds]
    papers = sum(check.about == "paper" for check in checks)
    console.print(f"{papers - findings} of {papers} claims of the paper hold as stated; {findings} do not (findings).")
    if broken:
        console.print(f"Checks of this code itself fail: {', '.join(broken)}. Please report it.")
    console.print(f"{out / 'theory.json'} and figures written, {seconds:.0f} s.")
