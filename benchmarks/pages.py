"""``make pages``: fill the tables of the documentation from the records in this folder.

A page marks the place of a table; what stands between the marks is replaced:

    <!-- table: NAME -->
    <!-- end -->
"""

import json
import re
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

from benchmarks.soak import record as soak_record
from crate_mae.bench import table
from crate_mae.bench.profiling import KINDS, REST
from crate_mae.bench.race import search as race_search
from crate_mae.bench.race import table as race_table
from crate_mae.models import shipped
from crate_mae.reproduce import comparison_table
from crate_mae.reproduce import pattern as paper_pattern

RECORDS = Path(__file__).parent
PAGES = [
    RECORDS.parent / "docs" / name
    for name in (
        "log.md",
        "models.md",
        "performance.md",
        "reliability.md",
        "residual-form.md",
        "results.md",
        "results-digits.md",
    )
]
MARKED = re.compile(r"(?<=<!-- table: )(\S+)( -->\n)(?:.*?)(?=<!-- end -->)", re.DOTALL)


def record(name: str) -> dict[str, Any]:
    return json.loads((RECORDS / f"{name}.json").read_text())


def bench() -> str:
    """Every row of the whole bench but the profile's."""
    found = record("bench")
    rows = [table.Row.from_dict(row) for row in found["rows"] if row["group"] != "profile"]
    return table.markdown(rows, found["machine"], found["command"])


def profile() -> str:
    """Shares of a training step, of each model that was profiled."""
    rows = [row for row in record("bench")["rows"] if row["group"] == "profile"]
    kinds = [*KINDS, REST]
    models = [rows[start : start + len(kinds)] for start in range(0, len(rows), len(kinds))]
    titles = [of[0]["what"].partition(", training step, ")[2] for of in models]
    lines = [f"| operation | {' | '.join(titles)} |", f"|---|{'---:|' * len(models)}"]
    for kind, *of_kind in zip(kinds, *models, strict=True):
        shares = [f"{row['result']['middle']:.1f} %" for row in of_kind]
        lines.append(f"| {kind} | {' | '.join(shares)} |")
    return "\n".join([*lines, ""])


def race() -> str:
    return race_table.markdown(record("race"))


def race_layers() -> str:
    """What each layer of the race's models does."""
    return race_table.layers_markdown(record("race"))


def race_float32() -> str:
    """The race on a processor without products in bfloat16."""
    return race_table.markdown(record("race-float32"))


def race_float32_layers() -> str:
    return race_table.layers_markdown(record("race-float32"))


def search(number: int) -> str:
    """The trials of a round behind the desk recipes."""
    return race_search.table(record(f"search-{number}"))


def shipped_models() -> str:
    """The models that come with the package, from their records."""
    asked = {"error": "val_loss", "CIFAR-10": "linear probe on CIFAR-10", "Imagenette": "linear probe on Imagenette"}
    lines = ["| name | form | parameters | size | hours of one core | error | CIFAR-10 | Imagenette |"]
    lines.append("|---|---|---:|---:|---:|---:|---:|---:|")
    for name in shipped.shipped_names():
        folder = shipped.ROOT / name
        found = shipped.ShippedRecord.read(folder)
        size = (folder / "model.safetensors").stat().st_size / 1e6
        values = [next(one.value for one in found.numbers if one.what.startswith(what)) for what in asked.values()]
        lines.append(
            f"| `{name}` | {found.form} | {found.parameters / 1e6:.2f} M | {size:.1f} MB | {found.processor_hours:.2f} "
            f"| {' | '.join(values)} |"
        )
    return "\n".join([*lines, ""])


def soak() -> str:
    """What `make soak` did, found and measured."""
    return soak_record.markdown(record("soak"))


def protocol(scale: str) -> str:
    """How the models of all reproduced tables of a scale were trained."""
    return record(f"{SCALES[scale]}/table2")["protocol"] + "\n"


def reproduced(scale: str, name: str) -> str:
    """A table or figure of the paper; the protocol of all of them is said once."""
    found = record(f"{SCALES[scale]}/{name}")
    notes = [note for note in found["notes"] if note != found["protocol"]]
    return comparison_table.markdown(found | {"notes": notes}, level=3)


SCALES = {"desk": "reproduce", "digits": "reproduce-digits"}
"""Folders of their records."""
TABLES: dict[str, Callable[[], str]] = {
    made.__name__.replace("_", "-"): made
    for made in (bench, profile, race, race_layers, race_float32, race_float32_layers, shipped_models, soak)
}
TABLES |= {f"search-{number}": partial(search, number) for number in (1, 2, 4, 5)}
for scale, folder in SCALES.items():
    TABLES[f"{scale}-protocol"] = partial(protocol, scale)
    for path in (RECORDS / folder).glob("*.json"):
        TABLES[f"{scale}-{path.stem}"] = partial(reproduced, scale, path.stem)


def pattern() -> str:
    """Where the paper's pattern holds on photographs."""
    return paper_pattern.markdown({f"table{number}": record(f"reproduce/table{number}") for number in range(2, 7)})


TABLES["desk-pattern"] = pattern


def filled(page: str) -> str:
    """The page with every marked table as its record has it."""
    return MARKED.sub(lambda mark: f"{mark[1]}{mark[2]}{TABLES[mark[1]]()}", page)


if __name__ == "__main__":
    for path in PAGES:
        path.write_text(filled(path.read_text()))
