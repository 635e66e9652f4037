"""Several processes as one: torchrun starts them, DDP or FSDP2 joins them. The models contain no distributed code."""

import os
import warnings
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import torch
import torch.distributed as dist
from jaxtyping import Float, Shaped
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
    """This process among all processes of the run."""

    rank: int
    world: int
    device: torch.device
    shard: bool = False
    """Weights, gradients and moments are sharded over the processes (FSDP2), not replicated on each (DDP)."""

    @property
    def is_main(self) -> bool:
        """The process that writes files and prints."""
        return self.rank == 0

    def mean(self, values: Float[Tensor, "*shape"]) -> Float[Tensor, "*shape"]:
        """The mean of a tensor over all processes; on the CPU."""
        values = values.detach().cpu()
        if self.world > 1:
            dist.all_reduce(values)
        return values / self.world

    def gather(self, rows: Shaped[Tensor, "n ..."], total: int) -> Shaped[Tensor, "total ..."]:
        """The ``total`` rows of all processes in order, on the CPU; each process has every ``world``-th row."""
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
        """Whether the flag is set in any process; the answer is the same in all."""
        return bool(self.mean(torch.tensor(float(flag))) > 0)

    def main_first(self, function: Callable[[], Result]) -> Result:
        """Call it in all processes, first in the main one, which may download something for the others."""
        if not self.is_main:
            self.wait()
        result = function()
        if self.is_main:
            self.wait()
        return result

    def wait(self) -> None:
        """Wait until all processes are here."""
        self.any(False)


@contextmanager
def joined(device: Device, shard: bool = False) -> Iterator[Processes]:
    """This process alone, or, if torchrun started it, as a rank of its process group."""
    global _group
    if "WORLD_SIZE" not in os.environ:
        if shard:
            raise UserError("--shard distributes a run over processes; start it with torchrun --nproc-per-node N.")
        yield Processes(0, 1, pick_device(device))
        return
    target = pick_device(device)
    if target.type == "cuda":
        target = torch.device("cuda", int(os.environ["LOCAL_RANK"]))
        torch.cuda.set_device(target)
    # Small tensors (a flag, a loss) are exchanged by gloo on the CPU and never wait for the device.
    backend = "cpu:gloo,cuda:nccl" if target.type == "cuda" else "gloo"
    store, rank, world = next(dist.rendezvous("env://"))
    if os.environ.get("GROUP_WORLD_SIZE", "1") == "1":
        # On one machine torchrun keeps its store over restarts: what earlier processes left there must not be read.
        store = dist.PrefixStore(f"start {os.environ.get('TORCHELASTIC_RESTART_COUNT', '0')}", store)
    dist.init_process_group(backend, store=store, rank=rank, world_size=world)
    # Kept after its end: DDP holds the group too. If it were the last to release it, it would wait for gloo's threads
    # while holding Python's GIL, which one of them may need to release the last tensor.
    _group = dist.group.WORLD
    try:
        yield Processes(rank, world, target, shard)
    except RuntimeError as error:
        if not lost_another(error):
            raise
        raise UserError("another process of this run has stopped; its own message says why.") from None
    finally:
        dist.destroy_process_group()


def lost_another(error: BaseException) -> bool:
    """Whether this is how gloo or NCCL says that another process has ended: in any exchange, DDP's among them."""
    return isinstance(error, dist.DistError) or (isinstance(error, RuntimeError) and "gloo" in str(error).lower())


def join(objective: nn.Module, processes: Processes) -> nn.Module:
    """The objective as all processes compute it together: gradients are means over the processes."""
    if processes.shard:
        # A layer may return a view; torch warns, since it would matter if the view were changed in place.
        warnings.filterwarnings("ignore", message="FSDP2-wrapped module")
        mesh = dist.init_device_mesh(processes.device.type, (processes.world,))
        for block in [module for module in objective.modules() if isinstance(module, Block)]:
            fully_shard(block, mesh=mesh)
        fully_shard(objective, mesh=mesh)  # in place
        return objective
    if processes.world > 1:
        return DistributedDataParallel(objective, gradient_as_bucket_view=True)
    return objective


def micro_batch(joined: nn.Module, last: bool) -> AbstractContextManager[None]:
    """A context for the backward pass of one micro-batch: gradients are exchanged after the last one only."""
    match joined:
        case FSDPModule():
            joined.set_requires_gradient_sync(last)
        case DistributedDataParallel() if not last:
            return joined.no_sync()
    return nullcontext()


def full_weights(model: ImageModel) -> dict[str, Any]:
    """The model's unsharded weights, on every process."""
    return get_model_state_dict(model, options=StateDictOptions(full_state_dict=True))


def whole(model: ImageModel, processes: Processes) -> ImageModel:
    """The model itself, or an unsharded copy of a sharded one: to evaluate, draw and save."""
    if not processes.shard:
        return model
    weights = full_weights(model)
    copy = build(Checkpoint(Path(), model.kind, model.config, model.extras(), weights))
    copy.to(processes.device, next(iter(weights.values())).dtype).load_state_dict(weights)  # it is built in float32
    return copy
