"""Several processes as one: torchrun starts them, DDP or FSDP2 joins them. Nothing of it is known to the models."""

import os
import warnings
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed.checkpoint.state_dict import StateDictOptions, get_model_state_dict
from torch.distributed.fsdp import FSDPModule, fully_shard
from torch.nn.parallel import DistributedDataParallel

from crate_mae.device import Device, pick_device
from crate_mae.errors import UserError
from crate_mae.models.checkpoint import Checkpoint
from crate_mae.models.image_model import ImageModel
from crate_mae.models.stack import Block
from crate_mae.models.zoo import build

Result = TypeVar("Result")
_group: dist.ProcessGroup | None = None


@dataclass(frozen=True)
class Processes:
    """This process among all that work on the run."""

    rank: int
    world: int
    device: torch.device
    shard: bool = False
    """Weights, gradients and moments lie in parts on the processes (FSDP2), not whole on each (DDP)."""

    @property
    def is_main(self) -> bool:
        """The one that writes files and talks."""
        return self.rank == 0

    def mean(self, values: Tensor) -> Tensor:
        """The mean over the processes of a tensor that each has; on the CPU."""
        values = values.detach().cpu()
        if self.world > 1:
            try:
                dist.all_reduce(values)
            except RuntimeError:
                raise UserError("another process of this run has stopped; its own words say why.") from None
        return values / self.world

    def gather(self, rows: Tensor, total: int) -> Tensor:
        """The ``total`` rows of all processes, of which each has every ``world``-th, in their order; on the CPU."""
        rows = rows.detach().cpu()
        if self.world == 1:
            return rows
        longest = -(-total // self.world)
        padded = rows.new_zeros(longest, *rows.shape[1:])
        padded[: len(rows)] = rows
        parts = [torch.empty_like(padded) for _ in range(self.world)]
        dist.all_gather(parts, padded)
        return torch.stack(parts, 1).flatten(0, 1)[:total]

    def any(self, flag: bool) -> bool:
        """Whether any process says yes: so all of them do the same."""
        return bool(self.mean(torch.tensor(float(flag))) > 0)

    def main_first(self, function: Callable[[], Result]) -> Result:
        """Call it in all processes, but first in the main one, which may fetch something for the others."""
        if not self.is_main:
            self.wait()
        result = function()
        if self.is_main:
            self.wait()
        return result

    def wait(self) -> None:
        """Until all are here."""
        self.any(False)


@contextmanager
def joined(device: Device, shard: bool = False) -> Iterator[Processes]:
    """This process alone, or, where torchrun started it, one of its group."""
    global _group
    if "WORLD_SIZE" not in os.environ:
        if shard:
            raise UserError("--shard spreads a run over processes; start it with torchrun --nproc-per-node N.")
        yield Processes(0, 1, pick_device(device))
        return
    target = pick_device(device)
    if target.type == "cuda":
        target = torch.device("cuda", int(os.environ["LOCAL_RANK"]))
        torch.cuda.set_device(target)
    # Small things (a flag, a loss) go by gloo on the CPU and never wait for the device.
    backend = "cpu:gloo,cuda:nccl" if target.type == "cuda" else "gloo"
    store, rank, world = next(dist.rendezvous("env://"))
    if os.environ.get("GROUP_WORLD_SIZE", "1") == "1":
        # On one machine torchrun keeps its store over restarts: what the processes before left there must not be read.
        store = dist.PrefixStore(f"start {os.environ.get('TORCHELASTIC_RESTART_COUNT', '0')}", store)
    dist.init_process_group(backend, store=store, rank=rank, world_size=world)
    # Kept beyond its end: DDP has the group too, and were it the last to let go, it would wait for gloo's threads with
    # Python's lock in hand, while one of them may need that lock to let go of the last tensor.
    _group = dist.group.WORLD
    try:
        yield Processes(rank, world, target, shard)
    finally:
        dist.destroy_process_group()


def join(objective: nn.Module, processes: Processes) -> nn.Module:
    """The objective as all processes compute it together: gradients are the mean over them."""
    if processes.shard:
        # A layer may return a view, of which torch warns: it would matter if something were done to it in place.
        warnings.filterwarnings("ignore", message="FSDP2-wrapped module")
        mesh = dist.init_device_mesh(processes.device.type, (processes.world,))
        for block in [module for module in objective.modules() if isinstance(module, Block)]:
            fully_shard(block, mesh=mesh)
        fully_shard(objective, mesh=mesh)  # in place
        return objective
    if processes.world > 1:
        return DistributedDataParallel(objective, gradient_as_bucket_view=True)
    return objective


def part_of_a_step(joined: nn.Module, last: bool) -> AbstractContextManager[None]:
    """Around the backward pass of one part of a batch: the processes exchange gradients after the last alone."""
    match joined:
        case FSDPModule():
            joined.set_requires_gradient_sync(last)
        case DistributedDataParallel() if not last:
            return joined.no_sync()
    return nullcontext()


def full_weights(model: ImageModel) -> dict[str, Any]:
    """The model's weights, whole, on every process."""
    return get_model_state_dict(model, options=StateDictOptions(full_state_dict=True))


def whole(model: ImageModel, processes: Processes) -> ImageModel:
    """The model itself, or a whole copy of one that lies in parts: to evaluate, draw and export."""
    if not processes.shard:
        return model
    weights = full_weights(model)
    copy = build(Checkpoint(Path(), model.kind, model.config, model.extras(), weights))
    copy.to(processes.device, next(iter(weights.values())).dtype).load_state_dict(weights)  # it is built in float32
    return copy
