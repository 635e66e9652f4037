"""``crate-mae demo``: pretrain a small CRATE-MAE on scikit-learn's digits and write a report, in a minute or two."""

import json
import time
from dataclasses import replace
from pathlib import Path

from rich.console import Console

from crate_mae import recipes
from crate_mae.device import Device
from crate_mae.models.locate import BEST
from crate_mae.models.zoo import load_autoencoder
from crate_mae.reports.demo_measurements import measure
from crate_mae.reports.demo_page import summary, write_report
from crate_mae.training.pretrain import pretrain
from crate_mae.training.run_folder import Run


def run(out: Path, steps: int, seed: int, device: Device, console: Console) -> None:
    """Pretrain (or resume the run in ``out``), measure, draw, and write everything to ``out``."""
    start = time.monotonic()
    config = replace(recipes.digits(), steps=steps, seed=seed).evaluated_every(max(steps // 5, 1))
    if not pretrain(config, out, resume=True, device=device, console=console).finished:
        return
    model = load_autoencoder(out)
    found = measure(model, config, Run(out))
    report = write_report(out, model, config, found)
    numbers = {
        "seed": seed,
        "steps": steps,
        "parameters": model.num_parameters,
        "mask_ratio": config.mask_ratio,
        **found.numbers(),
        "seconds": round(time.monotonic() - start, 1),
    }
    (out / "numbers.json").write_text(json.dumps(numbers, indent=2) + "\n")
    for line in summary(found.error, found.mean_patch, found.probes):
        console.print(line, highlight=False)
    console.print(f"Checkpoint: {out / BEST}", highlight=False, soft_wrap=True)
    console.print(f"Report:     {report}", highlight=False, soft_wrap=True)
