"""The time of a training step against depth, tokens and batch: it should be proportional to the FLOP count.

A line through zero is fitted to the points (FLOPs, seconds) of a sweep, with the least relative error. The result is
the largest relative distance of a point from this line: for the medians over the rounds, with quartiles over single
rounds.
"""

from collections.abc import Iterator
from dataclasses import dataclass, replace

from rich.console import Console

from crate_mae.allocator import freed_memory_kept
from crate_mae.bench.contestants import Work, ours
from crate_mae.bench.harness import Run, Spread, race
from crate_mae.bench.table import Row, at_most
from crate_mae.models.architectures import model_config
from crate_mae.models.config import ModelConfig

MIDDLE = model_config("crate_mae_tiny", depth=6)


@dataclass(frozen=True)
class Sizes:
    """The points of the three sweeps."""

    config: ModelConfig = MIDDLE
    """The point that the sweeps go through: d 384, 6 + 6 layers, 197 tokens."""
    batch: int = 16
    depths: tuple[int, ...] = (2, 4, 8, 12, 24)
    """Layers of the encoder, and as many of the decoder."""
    sides: tuple[int, ...] = (7, 10, 14, 20, 28)
    """Patches across and down: 50 to 785 tokens with the class token."""
    batches: tuple[int, ...] = (8, 16, 32, 64, 128)
    rounds: int = 3


WHOLE, QUICK = Sizes(), Sizes(depths=(2, 6), sides=(7, 14), batches=(4, 8), rounds=1)


def rows(sizes: Sizes, console: Console) -> Iterator[Row]:
    """A row for each sweep: over depth, tokens and batch."""
    patch = sizes.config.patch_size[0]
    sweeps = {
        "depth": {
            depth: Work(replace(sizes.config, depth=depth, decoder_depth=depth), sizes.batch) for depth in sizes.depths
        },
        "tokens": {
            1 + side**2: Work(replace(sizes.config, image_size=(side * patch, side * patch)), sizes.batch)
            for side in sizes.sides
        },
        "batch": {batch: Work(sizes.config, batch) for batch in sizes.batches},
    }
    for name, works in sweeps.items():
        contestants: dict[str, Run] = {str(point): ours(work) for point, work in works.items()}
        with freed_memory_kept():  # as a run does
            laps = race(f"cost against {name}", contestants, sizes.rounds, console)
        per_flop = {
            point: [seconds / work.step_flops for seconds in laps.seconds[str(point)]] for point, work in works.items()
        }
        middle = {point: Spread.of(values).middle for point, values in per_flop.items()}
        farthest = 100 * distance_from_linear(list(middle.values()))
        each = Spread.of([100 * distance_from_linear(list(values)) for values in zip(*per_flop.values(), strict=True)])
        yield Row(
            f"cost against {name}",
            f"cost against {name} {min(works)} to {max(works)}, d {sizes.config.dim}",
            "the FLOP count",
            Spread(farthest, min(farthest, each.low), max(farthest, each.high)),
            unit="%",
            goal=at_most(15),
            note="farthest from linear; GFLOP/s: "
            + ", ".join(f"{point}: {1e-9 / value:.0f}" for point, value in middle.items()),
            seconds=laps.spreads(),
            details={"step_flops": {str(point): work.step_flops for point, work in works.items()}},
        )


def distance_from_linear(per_flop: list[float]) -> float:
    """The largest relative distance from the best line through zero: min over c of max_i |t_i / (c f_i) - 1|.

    With r_i = t_i / f_i the best c is midway between the extremes, and the result (max r - min r) / (max r + min r).
    """
    return (max(per_flop) - min(per_flop)) / (max(per_flop) + min(per_flop))
