"""``crate-mae inspect``: measure, draw, write."""

import json
import math
import time
from dataclasses import fields, is_dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from rich.console import Console

from crate_mae.models.image_model import ImageModel
from crate_mae.models.zoo import load
from crate_mae.reports.inspect_measurements import Inspection, Settings, inspect
from crate_mae.reports.inspect_page import write_report

PICTURES = {"attended", "coloured", "panels"}
"""Fields of an inspection that hold images of the data set; they are not written to inspect.json."""


def run(checkpoint: str | Path, settings: Settings, out: Path, device: torch.device, console: Console) -> None:
    """Inspect a checkpoint and write report.html, its figures and inspect.json to ``out``."""
    start = time.monotonic()
    model = load(checkpoint).to(device)
    out.mkdir(parents=True, exist_ok=True)
    found = inspect(model, settings, console)
    report = write_report(out, model, str(checkpoint), found, console)
    (out / "inspect.json").write_text(json.dumps(numbers(model, found), indent=1, allow_nan=False) + "\n")
    seconds = time.monotonic() - start
    console.print(f"{found.images} images, {seconds:.0f} s.", highlight=False)
    console.print(f"Numbers: {out / 'inspect.json'}", highlight=False, soft_wrap=True)
    console.print(f"Report:  {report}", highlight=False, soft_wrap=True)


def numbers(model: ImageModel, found: Inspection) -> dict[str, Any]:
    """Every number of an inspection as plain values for JSON.

    The measurements of the model's layers are at the top level, those of the untrained model under ``untrained``.
    """
    parts = {part.name: plain(getattr(found, part.name)) for part in fields(found) if part.name not in PICTURES}
    layers = parts.pop("layers")
    shown = [{"errors": panels.errors} for panels in found.panels]
    return {"model": model.kind, "config": model.config.to_dict(), **layers, **parts, "shown_completions": shown}


def plain(value: Any) -> Any:
    """Dataclasses, arrays and paths as dicts, lists and strings; NaN and infinity as None."""
    if is_dataclass(value):
        return {part.name: plain(getattr(value, part.name)) for part in fields(value)}
    if isinstance(value, dict):
        return {name: plain(part) for name, part in value.items()}
    if isinstance(value, list | tuple):
        return [plain(part) for part in value]
    if isinstance(value, np.ndarray):
        return plain(value.tolist())
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return str(value) if isinstance(value, Path) else value
