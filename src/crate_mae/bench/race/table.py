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
    notes = [*comparisons(groups), *record["protocol"]]
    return "\n".join([place, "", *lines, "", *(f"- {line}" for line in notes), ""])


def comparisons(groups: Mapping[tuple[str, str], Sequence[Mapping[str, Any]]]) -> list[str]:
    """For each set, the first contestant against each other one, where both are measured."""
    lines = []
    for data in dict.fromkeys(data for data, _ in groups):
        first, *others = [name for of, name in groups if of == data]
        for other in others:
            a, b = groups[data, first], groups[data, other]
            words = [f"{a[0]['parameters'] / b[0]['parameters']:.2f} x the parameters"]
            if (points := _difference(a, b, "probe")) is not None:
                words.append(f"probe {points:+.1f} points")
            if (error := _difference(a, b, "loss")) is not None:
                words.append(f"loss {error:+.3f}")
            if times := [time for one, two in zip(a, b, strict=False) if (time := _seconds_to_the_loss_of(two, one))]:
                reached = f"{statistics.fmean(times):.0f} s on average in {len(times)} of {len(b)} seeds"
                words.append(f"reaches the other's last validation loss after {reached}")
            lines.append(f"{data}: {first} against {other}: {', '.join(words)}.")
    return lines


def _difference(a: Sequence[Mapping[str, Any]], b: Sequence[Mapping[str, Any]], name: str) -> float | None:
    own, theirs = ([result[name] for result in results if name in result] for results in (a, b))
    return statistics.fmean(own) - statistics.fmean(theirs) if own and theirs else None


def _seconds_to_the_loss_of(other: Mapping[str, Any], one: Mapping[str, Any]) -> float | None:
    """Processor seconds after which ``one``'s validation loss is that of ``other`` at its end; None if it never is."""
    if not other.get("curve") or not one.get("curve"):
        return None
    return next((used for used, loss in one["curve"] if loss <= other["curve"][-1][1]), None)


def _over_seeds(values: Sequence[float], name: str) -> str:
    form = COLUMNS[name][1]
    if not values:
        return "-"
    spread = f" ± {form.format(statistics.stdev(values))}" if len(values) > 1 else ""
    return form.format(statistics.fmean(values)) + spread


def _line(cells: Sequence[str]) -> str:
    return f"| {' | '.join(cells)} |"
