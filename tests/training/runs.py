"""A run that takes a second, and what must be the same of two runs."""

import json
import warnings
from pathlib import Path
from typing import Any

import torch
import torch.distributed.checkpoint as dcp
from safetensors.torch import load_file
from torch import Tensor
from torch.distributed.checkpoint import FileSystemReader

from crate_mae.training.training_state import checkpoints_in

TIMES = ("images_per_second", "seconds")
SMALL = {
    "model.dim": 24,
    "model.heads": 3,
    "batch": 8,
    "steps": 40,
    "evaluation_images": 40,
    "pictures": 0,
    "log_every": 7,
    "evaluate_every": 15,
    "checkpoint_every": 10,
}
"""``digits_paper``, smaller; the lines of metrics and the checkpoints fall on different steps."""


def words(out: Path, *more: str, task: str = "pretrain", **settings: Any) -> list[str]:
    """The command line of a small run; ``model__dim`` stands for ``model.dim``."""
    recipe = "digits_paper" if task == "pretrain" else "finetune_digits"
    known = {name: value for name, value in SMALL.items() if task == "pretrain" or name != "pictures"}
    chosen = known | {name.replace("__", "."): value for name, value in settings.items()}
    sets = [word for name, value in chosen.items() for word in ("--set", f"{name}={value}")]
    return [task, "--recipe", recipe, "--out", str(out), *sets, *more]


def weights(checkpoint: Path) -> dict[str, Tensor]:
    return load_file(checkpoint / "model.safetensors")


def moments(checkpoint: Path) -> dict[str, Tensor]:
    """AdamW's, whole, whatever number of processes wrote them."""
    folder = checkpoint / "optimiser"
    about = FileSystemReader(folder).read_metadata().state_dict_metadata
    found = {name: torch.empty(item.size, dtype=item.properties.dtype) for name, item in about.items()}
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="torch.distributed is disabled")
        dcp.load(found, checkpoint_id=folder, no_dist=True)
    return found


def metrics(run: Path) -> list[dict[str, float]]:
    """Every line, without the times."""
    lines = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    return [{name: value for name, value in line.items() if name not in TIMES} for line in lines]


def assert_same(run: Path, other: Path, tolerance: float | None = None) -> None:
    """The last weights, the moments, the metrics and the best weights are equal: bit for bit without a tolerance."""
    ends = checkpoints_in(run / "checkpoints")[-1], checkpoints_in(other / "checkpoints")[-1]
    assert ends[0].name == ends[1].name
    best = run / "checkpoints" / "best", other / "checkpoints" / "best"
    for first, second in (map(weights, ends), map(moments, ends), map(weights, best)):
        assert first.keys() == second.keys()
        for name in first:
            _close(first[name], second[name], tolerance, name)
    lines, others = metrics(run), metrics(other)
    assert [list(line) for line in lines] == [list(line) for line in others]
    for line, expected in zip(lines, others, strict=True):
        _close(torch.tensor(list(line.values())), torch.tensor(list(expected.values())), tolerance, str(line))
    assert not list(run.rglob("*.part"))


def _close(value: Tensor, expected: Tensor, tolerance: float | None, name: str) -> None:
    assert value.dtype == expected.dtype
    if tolerance is None:
        assert torch.equal(value, expected), name
    else:
        # Relative to the largest: of an entry near zero no more can be asked.
        assert (value - expected).abs().max() <= tolerance * expected.abs().max().clamp(min=1e-3), name
