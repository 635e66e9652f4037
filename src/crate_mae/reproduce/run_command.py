"""Train a configuration, in this process or with torchrun on all GPUs; and the command that does the same."""

import subprocess
import sys
from dataclasses import fields
from pathlib import Path
from typing import Any

from rich.console import Console

from crate_mae.device import Device
from crate_mae.errors import UserError
from crate_mae.recipes import FINETUNE, PRETRAIN
from crate_mae.training.config import FinetuneConfig, RunConfig
from crate_mae.training.finetune import finetune
from crate_mae.training.pretrain import pretrain


def train(config: RunConfig, folder: Path, device: Device, console: Console) -> None:
    """Train or resume. A training that was interrupted raises KeyboardInterrupt, so that everything stops."""
    import torch

    gpus = torch.cuda.device_count() if device in ("auto", "cuda") else 0
    if gpus > 1:
        launcher = [sys.executable, "-m", "torch.distributed.run", "--standalone", f"--nproc-per-node={gpus}"]
        if subprocess.run([*launcher, "-m", "crate_mae", *command(config, folder)]).returncode:
            raise UserError(f"the run {folder} stopped; see its messages above. The same command resumes it.")
        return
    run: Any = finetune if isinstance(config, FinetuneConfig) else pretrain
    if not run(config, folder, resume=True, device=device, console=console).finished:
        raise KeyboardInterrupt


GROUPS = {"model_settings": "model", "evaluators": "evaluators"}
"""Fields of several settings, and what ``--set`` writes before the dot."""


def command(config: RunConfig, folder: Path) -> list[str]:
    """The arguments of ``crate-mae`` that start or resume this run."""
    recipe: Any = {**PRETRAIN, **FINETUNE}[config.recipe]()
    words = [config.task, "--recipe", config.recipe, "--out", str(folder), "--resume"]
    for item in fields(config):
        value, usual = getattr(config, item.name), getattr(recipe, item.name)
        if group := GROUPS.get(item.name):
            changed = {f"{group}.{key}": part for key, part in value.items() if usual.get(key, ...) != part}
        else:
            changed = {} if value == usual else {item.name: value}
        for key, part in changed.items():
            words += ["--set", f"{key}={_word(part)}"]
    return words


def _word(value: Any) -> str:
    if isinstance(value, tuple | list):
        return ",".join(map(_word, value))
    return str(value).lower() if value is None or isinstance(value, bool) else str(value)
