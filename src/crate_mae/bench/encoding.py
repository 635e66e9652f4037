"""Encoding images without gradients, for features: against the listing and transformers' ViT encoder."""

from collections.abc import Iterator
from dataclasses import dataclass

from rich.console import Console

from crate_mae.bench.contestants import BASE, ENCODERS, LISTING, MISSING, OURS, SHALLOW, TRANSFORMERS, Work, installed
from crate_mae.bench.machine import SGEMM, sgemm
from crate_mae.bench.own_process import race_in_processes
from crate_mae.bench.steps import share
from crate_mae.bench.table import Row, at_least
from crate_mae.models.config import ModelConfig
from crate_mae.planning.cost import Layers


@dataclass(frozen=True)
class Sizes:
    """Model and batch of the measurement."""

    config: ModelConfig = BASE
    batch: int = 16
    rounds: int = 9
    sgemm_seconds: float = 0.5


WHOLE, QUICK = Sizes(), Sizes(SHALLOW, batch=2, rounds=1, sgemm_seconds=0.2)


def rows(sizes: Sizes, console: Console) -> Iterator[Row]:
    """A row against each other encoder."""
    work = Work(sizes.config, sizes.batch)
    what, label = f"encoding, {work}", f"encoding, batch {sizes.batch}"
    best = sgemm(sizes.sgemm_seconds)
    contestants = {name: (name, work) for name in installed(ENCODERS)}
    laps = race_in_processes("encoding", what, contestants, sizes.rounds, console, {SGEMM: best})
    flops = encoding_flops(sizes.config, sizes.batch)
    for other, goal in {LISTING: at_least(1.5), TRANSFORMERS: at_least(3.3)}.items():
        if other not in laps.seconds:
            yield Row(label, what, "transformers' ViT", None, goal=goal, note=MISSING)
            continue
        yield Row(
            label,
            what,
            "transformers' ViT" if other == TRANSFORMERS else other,
            laps.speedup(OURS, other),
            goal=goal,
            note=", ".join(f"{name} {sizes.batch / laps.spread(name).middle:.1f} images/s" for name in (OURS, other)),
            sgemm_share=share(laps, OURS, flops, best),
            seconds={name: laps.spread(name) for name in (OURS, other, SGEMM)},
            details={"flops": flops},
        )


def encoding_flops(config: ModelConfig, batch: int) -> int:
    """FLOPs of the embedding and the encoder's layers, with ISTA folded beforehand."""
    layers = Layers(config, decodes=False, images=batch, tokens=1 + config.num_patches)
    folding = layers.count * config.dim**3 if layers.folds else 0
    embedding = 2 * batch * config.num_patches * config.patch_pixels * config.dim
    return layers.products().forward_flops - 2 * folding + embedding
