"""The race's record as a Markdown table: mean and standard deviation over the seeds, and the protocol."""

import statistics
from collections.abc import Mapping, Sequence
from typing import Any

COLUMNS = {
    "images_per_second": ("images/s", "{:.0f}"),
    "loss": ("loss", "{:.3f}"),
    "mean_patch_error": ("mean-patch error", "{:.3f}"),
    "probe": ("probe, %", "{:.1f}"),
    "knn": ("20-NN, %", "{:.1f}"),
    "finetune_1": ("1 % of labels, %", "{:.1f}"),
    "finetune_1_random": ("1 %, random weights, %", "{:.1f}"),
    "finetune_10": ("10 % of labels, %", "{:.1f}"),
    "finetune_10_random": ("10 %, random weights, %", "{:.1f}"),
}
"""Measurements in the record, their titles and formats; the table has those that were made."""


def markdown(record: Mapping[str, Any]) -> str:
    """A line for each set and contestant.

    ``results`` of the record has an entry for each set, contestant and seed: ``data``, ``contestant``, ``seed``,
    ``parameters``, and a number for each measurement that is done.
    """
    groups: dict[tuple[str, str], list[Mapping[str, Any]]] = {}
    for result in record["results"]:
        groups.setdefault((result["data"], result["contestant"]), []).append(result)
    measured = [name for name in COLUMNS if any(name in result for result in record["results"])]
    head = ["data", "model", "parameters", *(COLUMNS[name][0] for name in measured)]
    lines = [_line(head), _line(["---", "---", *["---:"] * (len(head) - 2)])]
    for (data, contestant), results in groups.items():
        cells = [_over_seeds([result[name] for result in results if name in result], name) for name in measured]
        lines.append(_line([data, contestant, f"{results[0]['parameters'] / 1e6:.2f} M", *cells]))
    machine = record["machine"]
    place = f"`{record['command']}` at commit {machine['commit']} on {machine['cpu']}, torch {machine['torch']}."
    return "\n".join([place, "", *lines, "", *(f"- {line}" for line in record["protocol"]), ""])


def _over_seeds(values: Sequence[float], name: str) -> str:
    form = COLUMNS[name][1]
    if not values:
        return "-"
    spread = f" ± {form.format(statistics.stdev(values))}" if len(values) > 1 else ""
    return form.format(statistics.fmean(values)) + spread


def _line(cells: Sequence[str]) -> str:
    return f"| {' | '.join(cells)} |"
