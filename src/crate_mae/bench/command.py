"""``crate-mae bench``: all groups of rows, or the chosen ones."""

import json
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rich.console import Console

from crate_mae.bench import (
    coding_rate,
    data_parallel,
    encoding,
    image_pipeline,
    peak_memory,
    probe_sweep,
    profiling,
    quality,
    scaling,
    start,
    steps,
)
from crate_mae.bench.machine import machine
from crate_mae.bench.table import Row, details, markdown, on_terminal


@dataclass(frozen=True)
class Group:
    """Rows that are measured together."""

    rows: Callable[[Any, Console], Iterator[Row]]
    whole: Any
    """The sizes of the complete measurement."""
    quick: Any
    """The sizes of the quick one."""


GROUPS: dict[str, Group] = {
    "base": Group(steps.rows, steps.BASE_WHOLE, steps.BASE_QUICK),
    "memory": Group(peak_memory.rows, peak_memory.WHOLE, peak_memory.QUICK),
    "encoding": Group(encoding.rows, encoding.WHOLE, encoding.QUICK),
    "desk": Group(steps.rows, steps.DESK_WHOLE, steps.DESK_QUICK),
    "small": Group(steps.rows, steps.SMALL_WHOLE, steps.SMALL_QUICK),
    "profile": Group(profiling.rows, profiling.WHOLE, profiling.QUICK),
    "forms": Group(steps.form_rows, steps.FORMS_WHOLE, steps.FORMS_QUICK),
    "rates": Group(coding_rate.rows, coding_rate.WHOLE, coding_rate.QUICK),
    "probe": Group(probe_sweep.rows, probe_sweep.WHOLE, probe_sweep.QUICK),
    "pipeline": Group(image_pipeline.rows, image_pipeline.WHOLE, image_pipeline.QUICK),
    "processes": Group(data_parallel.rows, data_parallel.WHOLE, data_parallel.QUICK),
    "scaling": Group(scaling.rows, scaling.WHOLE, scaling.QUICK),
    "start": Group(start.rows, start.WHOLE, start.QUICK),
    "quality": Group(quality.rows, quality.RECORDS, quality.RECORDS),
}
"""The groups by their names for --only, which ``row_names`` lists."""


def run(
    out: Path, groups: dict[str, Group], *, quick: bool, verbose: bool, command: str, console: Console
) -> list[Row]:
    """Measure, print the table, and write bench.json and bench.md to the folder ``out``."""
    out.mkdir(parents=True, exist_ok=True)
    place, found, spent = machine(), {}, {}
    console.print(", ".join(f"{name} {value}" for name, value in place.items()), highlight=False, soft_wrap=True)
    for name, group in groups.items():
        began = time.perf_counter()
        found[name] = list(group.rows(group.quick if quick else group.whole, console))
        spent[name] = round(time.perf_counter() - began, 1)
        write(out, found, spent, place, command)  # results so far are kept if a later row fails
    rows = [row for group in found.values() for row in group]
    console.print(on_terminal(rows))
    if verbose:
        for paragraph in details(rows):
            console.print(paragraph, highlight=False, markup=False)
    minutes, seconds = divmod(round(sum(spent.values())), 60)
    console.print(f"{minutes} min {seconds} s. Wrote {out / 'bench.json'} and {out / 'bench.md'}.", soft_wrap=True)
    return rows


def write(out: Path, found: dict[str, list[Row]], spent: dict[str, float], place: dict[str, Any], command: str) -> None:
    """Everything as JSON, and the table as Markdown."""
    rows = [{"group": name, **row.to_dict()} for name, group in found.items() for row in group]
    content = {"command": command, "machine": place, "seconds": spent, "rows": rows}
    (out / "bench.json").write_text(json.dumps(content, indent=1) + "\n")
    (out / "bench.md").write_text(markdown([row for group in found.values() for row in group], place, command))
