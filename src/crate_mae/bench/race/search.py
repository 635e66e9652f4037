"""The search behind the desk recipes: short trainings on CIFAR-10, as many for ViT-MAE as for CRATE-MAE.

    python -m crate_mae.bench.race.search --round 1 --data-root DIR --out runs/search-1

Every trial changes a few settings of its family's base and trains for the same processor time. Trials run as the race
does: one core each, two side by side, resumable. A copy of ``runs/search-1/race.json`` is ``benchmarks/search-1.json``,
from which ``make pages`` writes the table of docs/log.md.
"""

import argparse
from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Any

from rich.console import Console

from crate_mae.bench.race import recipes
from crate_mae.bench.race.command import race
from crate_mae.bench.race.recipes import DECODER, Course, Recipe

FAMILIES = ("CRATE-MAE", "ViT-MAE")
COURSE = Course(
    "cifar10", image_size=32, patch_size=4, stored_size=32, finetune_steps={}, probe_images=10_000, by_layer=False
)
LARGER_STEP = {"eta": 0.5, "lambda_": 0.1}  # the threshold eta lambda stays 0.05
CRATE_MAE = Recipe(
    "CRATE-MAE", "crate_mae_tiny_residual", {"dim": 256, "heads": 8, "depth": 4, **DECODER}, learning_rate=2e-3
)
VIT_MAE = Recipe("ViT-MAE", "vit_mae_small", {"dim": 192, "heads": 6, "depth": 4, **DECODER}, learning_rate=1e-3)


@dataclass(frozen=True)
class Round:
    """Trials of the same length, as many for each family."""

    seconds: float
    """Of processor time, for each trial."""
    bases: tuple[Recipe, ...]
    """One for each family."""
    trials: Mapping[str, list[dict[str, Any]]]
    """What each trial of a family changes: fields of ``Recipe``, and of ``ModelConfig``."""


ROUNDS = {
    1: Round(
        150,
        (CRATE_MAE, VIT_MAE),
        {
            "CRATE-MAE": [
                {},
                LARGER_STEP,
                {"dim": 384, "heads": 12},
                {"learning_rate": 4e-3},
                {"norm_pix_loss": True},
                {"dim": 384, "heads": 12, "depth": 2, **LARGER_STEP},
                {"decoder_depth": 1, **LARGER_STEP},
                {"batch": 64, **LARGER_STEP},
            ],
            "ViT-MAE": [
                {},
                {"learning_rate": 2e-3},
                {"dim": 256, "heads": 8},
                {"dim": 128, "heads": 4, "learning_rate": 2e-3},
                {"norm_pix_loss": True},
                {"decoder_depth": 1},
                {"depth": 3},
                {"batch": 64},
            ],
        },
    ),
    2: Round(
        300,
        (
            replace(CRATE_MAE, settings={**CRATE_MAE.settings, **LARGER_STEP}, batch=64),
            replace(VIT_MAE, settings={**VIT_MAE.settings, "decoder_depth": 1}, batch=64),
        ),
        {
            "CRATE-MAE": [
                {},
                {"mask_ratio": 0.85},
                {"dim": 384, "heads": 12, "depth": 3},
                {"batch": 32, "learning_rate": 1.5e-3},
            ],
            "ViT-MAE": [
                {},
                {"mask_ratio": 0.85},
                {"dim": 256, "heads": 8},
                {"batch": 32, "learning_rate": 0.7e-3},
            ],
        },
    ),
    3: Round(
        120,
        (
            replace(CRATE_MAE, settings={**CRATE_MAE.settings, **LARGER_STEP}, batch=64),
            replace(VIT_MAE, settings={**VIT_MAE.settings, "decoder_depth": 1}, batch=64),
        ),
        {
            "CRATE-MAE": [
                {},
                {"optimiser": "muon", "learning_rate": 2e-3},
                {"optimiser": "muon", "learning_rate": 4e-3},
                {"optimiser": "muon", "learning_rate": 4e-3, "norm_pix_loss": True},
            ],
            "ViT-MAE": [
                {},
                {"optimiser": "muon", "learning_rate": 2e-3},
                {"optimiser": "muon", "learning_rate": 4e-3},
                {"optimiser": "muon", "learning_rate": 4e-3, "norm_pix_loss": True},
            ],
        },
    ),
    4: Round(
        120,
        (
            replace(
                CRATE_MAE,
                settings={"dim": 384, "heads": 6, "depth": 4, **LARGER_STEP, **DECODER, "decoder_heads": 2},
                batch=64,
                optimiser="muon",
                learning_rate=4e-3,
            ),
            replace(
                VIT_MAE,
                settings={"dim": 256, "heads": 4, "depth": 4, **DECODER, "decoder_depth": 1, "decoder_heads": 2},
                batch=64,
                optimiser="muon",
                learning_rate=4e-3,
            ),
        ),
        {
            "CRATE-MAE": [
                {},
                {"dim": 256, "heads": 4},
                {"batch": 128},
                {"norm_pix_loss": True},
            ],
            "ViT-MAE": [
                {},
                {"dim": 192, "heads": 3},
                {"batch": 128},
                {"norm_pix_loss": True},
            ],
        },
    ),
    5: Round(
        120,
        (recipes.CRATE_MAE, recipes.VIT_MAE),
        {
            family: [
                {},
                {"warmup": 0.02},
                {"warmup": 0.25},
                {"positions": "learned"},
                {"averaging": 0.998},
                {"mask_ratio": 0.6},
            ]
            for family in FAMILIES
        },
    ),
}


def trial(base: Recipe, changes: Mapping[str, Any]) -> Recipe:
    """The base with these changes, which are also its title; ``lambda_`` is written lambda."""
    of_recipe = {field.name for field in fields(Recipe)} & changes.keys()
    settings = {**base.settings, **{name: value for name, value in changes.items() if name not in of_recipe}}
    words = ", ".join(f"{name.strip('_')} {value}" for name, value in changes.items()) or "base"
    return replace(
        base,
        title=f"{base.title}: {words}",
        settings=settings,
        **{name: changes[name] for name in of_recipe},
    )


def table(record: Mapping[str, Any]) -> str:
    """A line for each trial, the best probe first within each family."""
    lines = ["| family | changes to the base | parameters | images/s | loss | probe, % | 20-NN, % |"]
    lines.append("|---|---|---:|---:|---:|---:|---:|")
    for family in FAMILIES:
        of_family = [result for result in record["results"] if result["contestant"].startswith(f"{family}:")]
        for one in sorted(of_family, key=lambda result: -result["probe"]):
            changes = one["contestant"].removeprefix(f"{family}: ")
            loss = f"{one['loss']:.3f}" + (" (normalised)" if "norm_pix_loss" in changes else "")
            lines.append(
                f"| {family} | {changes} | {one['parameters'] / 1e6:.2f} M | {one['images_per_second']:.0f} | {loss} "
                f"| {one['probe']:.1f} | {one['knn']:.1f} |"
            )
    return "\n".join([*lines, ""])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--round", type=int, choices=ROUNDS, required=True)
    parser.add_argument("--data-root", type=Path, help="the folder that holds cifar10")
    parser.add_argument("--out", type=Path, default=Path("runs/search"))
    given = parser.parse_args()
    chosen = ROUNDS[given.round]
    trials = [trial(base, changes) for base in chosen.bases for changes in chosen.trials[base.title]]
    race(
        given.out,
        given.data_root,
        seconds=chosen.seconds,
        seeds=1,
        console=Console(),
        command=f"python -m crate_mae.bench.race.search --round {given.round}",
        recipes={"cifar10": {one.title: one for one in trials}},
        courses={"cifar10": COURSE},
    )


if __name__ == "__main__":
    main()
