"""Where the time of a training step goes: the fraction of time in each kind of operator, by torch's profiler."""

from collections.abc import Iterator
from dataclasses import dataclass

from rich.console import Console
from torch.profiler import ProfilerActivity, profile

from crate_mae.allocator import freed_memory_kept
from crate_mae.bench.contestants import BASE, CPU_SIZED, DESK_RUN, SHALLOW, Trainee, Work, ours
from crate_mae.bench.harness import Spread
from crate_mae.bench.table import Row
from crate_mae.models.config import ModelConfig
from crate_mae.progress import progress

KINDS: dict[str, tuple[str, ...]] = {
    "matrix products": ("aten::mm", "aten::addmm"),
    "attention's products": ("aten::bmm", "aten::baddbmm"),
    "attention's softmax": ("aten::_softmax", "aten::_softmax_backward_data"),
    "layer norms": ("aten::native_layer_norm", "aten::native_layer_norm_backward"),
    "AdamW, fused": ("aten::_fused_adamw_",),
}
DESK = DESK_RUN.model_config(), DESK_RUN.batch
REST = "all else"
"""Sums, thresholds, copies and so on."""


@dataclass(frozen=True)
class Sizes:
    """The steps that are profiled."""

    works: tuple[tuple[ModelConfig, int], ...] = ((BASE, 16), DESK, (CPU_SIZED, 128))
    """Models and batches."""
    rounds: int = 3


WHOLE, QUICK = Sizes(), Sizes(works=((SHALLOW, 2), DESK, (CPU_SIZED, 32)), rounds=1)


def shares(step: Trainee) -> dict[str, float]:
    """Per cent of one step's time in each kind of operator, forward and backward together."""
    with profile(activities=[ProfilerActivity.CPU]) as seen:
        step()
    spent = {event.key: event.self_cpu_time_total for event in seen.key_averages()}
    whole = sum(spent.values())
    found = {kind: 100 * sum(spent.get(name, 0.0) for name in names) / whole for kind, names in KINDS.items()}
    return found | {REST: 100 - sum(found.values())}


def rows(sizes: Sizes, console: Console) -> Iterator[Row]:
    """A row for each model and each kind of operator."""
    for config, batch in sizes.works:
        work = Work(config, batch)
        step, what = ours(work), f"training step, {work}"
        found = []
        with freed_memory_kept(), progress(f"profile, {what}", 1 + sizes.rounds, console) as advance:
            step()  # warm-up
            advance()
            for _ in range(sizes.rounds):
                found.append(shares(step))
                advance()
        for kind in (*KINDS, REST):
            yield Row(
                f"d {config.dim}: {kind}",
                f"{kind}, {what}",
                "the whole step",
                Spread.of([each[kind] for each in found]),
                unit="%",
            )
