"""docs/performance.md says what the bench on record wrote."""

import json
import re
from pathlib import Path

from crate_mae.bench.harness import Spread
from crate_mae.bench.profiling import KINDS, REST
from crate_mae.bench.table import Goal, Row, markdown

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "performance.md").read_text()
RECORD = json.loads((ROOT / "benchmarks" / "bench.json").read_text())


def row(found: dict) -> Row:
    fields = {name: value for name, value in found.items() if name not in ("group", "met")}
    for name in ("result", "sgemm_share"):
        fields[name] = fields[name] and Spread(**fields[name])
    return Row(**fields | {"goal": fields["goal"] and Goal(**fields["goal"])})


def test_the_table_is_that_of_the_record() -> None:
    rows = [row(found) for found in RECORD["rows"] if found["group"] != "profile"]
    assert len(rows) > 25
    for line in markdown(rows, RECORD["machine"], RECORD["command"]).splitlines():
        assert line in PAGE, line


def test_the_profile_is_that_of_the_record() -> None:
    shares = [found["result"]["middle"] for found in RECORD["rows"] if found["group"] == "profile"]
    kinds = [*KINDS, REST]
    assert len(shares) == 2 * len(kinds)
    table = re.findall(r"^\| .* \| ([\d.]+) % \| ([\d.]+) % \|$", PAGE, re.MULTILINE)
    expected = [
        (f"{base:.1f}", f"{small:.1f}") for base, small in zip(shares[: len(kinds)], shares[len(kinds) :], strict=True)
    ]
    assert table == expected
