"""Training steps, and the fraction of the machine's own rate that they reach.

For Base at 224 px, for the model that comes with the package, and for a CPU-sized model of the paper's form.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace

from rich.console import Console

from crate_mae.bench.contestants import (
    BASE,
    CPU_SIZED,
    DESK_RUN,
    LISTING,
    MISSING,
    OURS,
    SHALLOW,
    TRANSFORMERS,
    Work,
    he_mae,
    installed,
)
from crate_mae.bench.harness import Laps, Spread
from crate_mae.bench.machine import SGEMM, Sgemm, sgemm
from crate_mae.bench.own_process import race_in_processes
from crate_mae.bench.table import Goal, Row, at_least
from crate_mae.models.config import ModelConfig

VISIBLE, OWN_VIT = "crate-mae, visible", "own ViT-MAE"


@dataclass(frozen=True)
class Sizes:
    """A model, its batches and its goals."""

    title: str
    """The model's name in the table."""
    config: ModelConfig
    batches: tuple[int, ...]
    rounds: int
    against: Mapping[str, Goal]
    """The other contestants, and how many times as fast as each this project should be."""
    share: Goal | None = None
    """The goal for the share of sgemm's rate."""
    sgemm_seconds: float = 0.5
    mask_ratio: float = 0.75


BASE_WHOLE = Sizes(
    "Base",
    BASE,
    (16, 32),
    rounds=4,
    against={LISTING: at_least(1.35), TRANSFORMERS: at_least(1.1)},
    share=at_least(0.92),
)
BASE_QUICK = replace(BASE_WHOLE, title="Base, a third", config=SHALLOW, batches=(2,), rounds=1, sgemm_seconds=0.2)
DESK_WHOLE = Sizes(
    "desk model",
    DESK_RUN.model_config(),
    (DESK_RUN.batch,),
    rounds=15,
    against={LISTING: at_least(1.8), TRANSFORMERS: at_least(3.0)},
    share=at_least(0.8),
    mask_ratio=DESK_RUN.mask_ratio,
)
DESK_QUICK = replace(DESK_WHOLE, rounds=1, sgemm_seconds=0.2)
SMALL_WHOLE = Sizes("CPU-sized", CPU_SIZED, (128,), rounds=15, against={LISTING: at_least(1.5)})
SMALL_QUICK = replace(SMALL_WHOLE, rounds=1, sgemm_seconds=0.2)


def share(laps: Laps, name: str, flops: float, best: Sgemm) -> Spread:
    """The rate of a contestant with this FLOP count over the rate of the machine's products, within each round."""
    own, machine = laps.seconds[name], laps.seconds[SGEMM]
    return Spread.of([(flops / a) / (best.flops / b) for a, b in zip(own, machine, strict=True)])


def rows(sizes: Sizes, console: Console) -> Iterator[Row]:
    """For each batch size, a step against the others', and its share of sgemm's rate."""
    best = sgemm(sizes.sgemm_seconds)
    for batch in sizes.batches:
        work = Work(sizes.config, batch, sizes.mask_ratio)
        wanted = {name: (name, work) for name in installed((OURS, *sizes.against))}
        what, label = f"training step, {work}", f"{sizes.title}, batch {batch}"
        laps = race_in_processes("training", what, wanted, sizes.rounds, console, {SGEMM: best})
        reached = share(laps, OURS, work.step_flops, best)
        for other, goal in sizes.against.items():
            if other not in laps.seconds:
                yield Row(f"step, {label}", what, other, None, goal=goal, note=MISSING)
                continue
            speeds = {name: batch / laps.spread(name).middle for name in (OURS, other)}
            yield Row(
                f"step, {label}",
                what,
                other,
                laps.speedup(OURS, other),
                goal=goal,
                note=", ".join(f"{name} {speed:.1f} images/s" for name, speed in speeds.items()),
                sgemm_share=reached,
                seconds={name: laps.spread(name) for name in (OURS, other, SGEMM)},
                details={"step_flops": work.step_flops},
            )
        yield Row(
            f"sgemm share, {label}",
            f"share of sgemm's rate, {what}",
            "the machine's own",
            reached,
            unit="",
            goal=sizes.share,
            note=f"{work.step_flops / 1e9:.0f} GFLOP a step; sgemm {best.side} at "
            f"{best.flops / laps.spread(SGEMM).middle / 1e9:.0f} GFLOP/s",
            seconds={name: laps.spread(name) for name in (OURS, SGEMM)},
            details={"step_flops": work.step_flops, "sgemm_flops": best.flops, "sgemm_side": best.side},
        )


@dataclass(frozen=True)
class FormSizes:
    """The model and batch for the comparison of forms."""

    config: ModelConfig
    batch: int
    rounds: int


FORMS_WHOLE = FormSizes(BASE, batch=16, rounds=4)
FORMS_QUICK = FormSizes(SHALLOW, batch=2, rounds=1)


def form_rows(sizes: FormSizes, console: Console) -> Iterator[Row]:
    """The visible-only form beside the paper's form and ViT-MAE, ours and transformers'."""
    work = Work(sizes.config, sizes.batch)
    seen = replace(work, config=replace(sizes.config, encoder_sees="visible"))
    own_vit = replace(work, config=he_mae(sizes.config))
    everyone = {VISIBLE: (OURS, seen), OURS: (OURS, work), OWN_VIT: (OURS, own_vit), TRANSFORMERS: (TRANSFORMERS, work)}
    what, label = f"training step of the visible-only form, {work}", f"visible-only step, batch {sizes.batch}"
    laps = race_in_processes(
        "training", what, {name: everyone[name] for name in installed(everyone)}, sizes.rounds, console
    )
    words = {OURS: "the paper's form", OWN_VIT: "our ViT-MAE", TRANSFORMERS: TRANSFORMERS}
    for other, name in words.items():
        if other not in laps.seconds:
            yield Row(label, what, name, None, note=MISSING)
            continue
        yield Row(
            label,
            what,
            name,
            laps.speedup(VISIBLE, other),
            goal=at_least(1.5) if other == OURS else None,
            note=", ".join(f"{who} {sizes.batch / laps.spread(who).middle:.1f} images/s" for who in (VISIBLE, other)),
            seconds={who: laps.spread(who) for who in (VISIBLE, other)},
        )
