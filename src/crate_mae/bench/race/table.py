"""The race's record as a Markdown table: mean and standard deviation over the seeds, and the protocol."""

import statistics
from collections.abc import Iterator, Mapping, Sequence
from itertools import combinations
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
LAYER_ROWS = {
    "compression": ("R^c of the half step", "{:.0f}"),
    "compression_normed": ("R^c after the norm", "{:.0f}"),
    "compression_step": ("change of R^c by MSSA", "{:+.1f}"),
    "objective_step": ("change of the objective", "{:+.1f}"),
    "sparsity": ("non-zero entries of the code", "{:.3f}"),
    "probe": ("probe, %", "{:.1f}"),
}
"""The same for what is measured at each layer; ``sparsity`` is left out where a layer has no code."""


def markdown(record: Mapping[str, Any]) -> str:
    """A line for each set and contestant.

    ``results`` of the record has an entry for each set, contestant and seed: ``data``, ``contestant``, ``seed``,
    ``parameters``, and a number for each measurement that is done.
    """
    groups = _groups(record)
    measured = [name for name in COLUMNS if any(name in result for result in record["results"])]
    head = ["data", "model", "parameters", *(COLUMNS[name][0] for name in measured)]
    lines = [_line(head), _line(["---", "---", *["---:"] * (len(head) - 2)])]
    for (data, contestant), results in groups.items():
        cells = [
            _over_seeds([result[name] for result in results if name in result], COLUMNS[name][1]) for name in measured
        ]
        lines.append(_line([data, contestant, f"{results[0]['parameters'] / 1e6:.2f} M", *cells]))
    notes = [*comparisons(groups), *record["protocol"]]
    return "\n".join([_place(record), "", *lines, "", *(f"- {line}" for line in notes), ""])


def layers_markdown(record: Mapping[str, Any]) -> str:
    """Layer by layer: a line for each quantity of each set and contestant, trained and untrained."""
    rows = []
    for (data, contestant), results in _groups(record).items():
        of_seeds = [result["layers"] for result in results if "layers" in result]
        for weights, model in (("trained", contestant), ("untrained", f"{contestant}, untrained")):
            rows += [[data, model, *cells] for cells in _layer_cells([layers[weights] for layers in of_seeds])]
    if not rows:
        return "Not measured yet.\n"
    depth = max(map(len, rows)) - 4
    head = ["data", "model", "what", *(f"layer {layer}" for layer in range(1, depth + 1)), "last - first"]
    rule = ["---"] * 3 + ["---:"] * (depth + 1)
    return "\n".join([_place(record), "", *map(_line, [head, rule, *rows]), ""])


def _layer_cells(of_seeds: Sequence[Mapping[str, Sequence[float]]]) -> Iterator[list[str]]:
    """For each quantity its title, its value at each layer, and how it changes from the first to the last."""
    for name, (title, form) in LAYER_ROWS.items():
        curves = [of[name] for of in of_seeds if name in of]
        if not curves or (name == "sparsity" and min(curves[0]) > 0.999):  # a ViT has no code
            continue
        signed = form if "+" in form else form.replace(":", ":+")
        change = _over_seeds([curve[-1] - curve[0] for curve in curves], signed)
        yield [title, *(_over_seeds(of_layer, form) for of_layer in zip(*curves, strict=True)), change]


def _groups(record: Mapping[str, Any]) -> dict[tuple[str, str], list[Mapping[str, Any]]]:
    """The results of all seeds, by set and contestant."""
    groups: dict[tuple[str, str], list[Mapping[str, Any]]] = {}
    for result in record["results"]:
        groups.setdefault((result["data"], result["contestant"]), []).append(result)
    return groups


def _place(record: Mapping[str, Any]) -> str:
    machine = record["machine"]
    return f"`{record['command']}` at commit {machine['commit']} on {machine['cpu']}, torch {machine['torch']}."


def comparisons(groups: Mapping[tuple[str, str], Sequence[Mapping[str, Any]]]) -> list[str]:
    """For each set, every two contestants, where both are measured."""
    lines = []
    for data in dict.fromkeys(data for data, _ in groups):
        for first, second in combinations([name for of, name in groups if of == data], 2):
            a, b = groups[data, first], groups[data, second]
            words = [f"{a[0]['parameters'] / b[0]['parameters']:.2f} x the parameters"]
            if (points := _difference(a, b, "probe")) is not None:
                words.append(f"probe {points:+.1f} points")
            if (error := _difference(a, b, "loss")) is not None:
                words.append(f"loss {error:+.3f}")
            pairs = [(one, two) for one in a for two in b if one["seed"] == two["seed"]]
            if times := [time for one, two in pairs if (time := _seconds_to_the_loss_of(two, one))]:
                reached = f"{statistics.fmean(times):.0f} s on average in {len(times)} of {len(pairs)} seeds"
                words.append(f"reaches the other's last validation loss after {reached}")
            lines.append(f"{data}: {first} against {second}: {', '.join(words)}.")
    return lines


def _difference(a: Sequence[Mapping[str, Any]], b: Sequence[Mapping[str, Any]], name: str) -> float | None:
    own, theirs = ([result[name] for result in results if name in result] for results in (a, b))
    return statistics.fmean(own) - statistics.fmean(theirs) if own and theirs else None


def _seconds_to_the_loss_of(other: Mapping[str, Any], one: Mapping[str, Any]) -> float | None:
    """Processor seconds after which ``one``'s validation loss is that of ``other`` at its end; None if it never is."""
    if not other.get("curve") or not one.get("curve"):
        return None
    return next((used for used, loss in one["curve"] if loss <= other["curve"][-1][1]), None)


def _over_seeds(values: Sequence[float], form: str) -> str:
    if not values:
        return "-"
    spread = f" ± {form.replace('+', '').format(statistics.stdev(values))}" if len(values) > 1 else ""
    return form.format(statistics.fmean(values)) + spread


def _line(cells: Sequence[str]) -> str:
    return f"| {' | '.join(cells)} |"
