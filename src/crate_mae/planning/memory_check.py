"""Refuse a run that this machine's memory can't hold, before a worker fills it."""

import os
from pathlib import Path

import torch

from crate_mae.errors import UserError
from crate_mae.planning.hardware import Hardware
from crate_mae.planning.plan import fitting_of, in_bytes
from crate_mae.training.config import RunConfig

LIMIT = Path("/sys/fs/cgroup/memory.max")
"""The memory limit of a container or of a cluster's job."""
PREFETCHED = 2
"""Batches that each worker loads ahead: torch's default."""


def machine_memory() -> int:
    """Bytes of memory that this machine, or the container on it, has."""
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    try:
        return min(memory, int(LIMIT.read_text()))
    except (OSError, ValueError):  # no container, or "max"
        return memory


def check_memory(config: RunConfig, device: torch.device, shard: bool = False) -> None:
    """Refuse a new run that needs more than all memory of the machine, or of the GPU, by the planner's estimate.

    Processes of torchrun on this machine share its memory.
    """
    world, here = (int(os.environ.get(name, "1")) for name in ("WORLD_SIZE", "LOCAL_WORLD_SIZE"))
    if config.batch % (world * config.accumulation):
        return  # for the loader to refuse
    host = machine_memory() / here
    is_gpu = device.type == "cuda"
    memory = torch.cuda.get_device_properties(device).total_memory if is_gpu else host
    hardware = Hardware("", memory, 1.0, 1.0, is_gpu)
    fitting = fitting_of(config, hardware, world, shard and world > 1)
    shape = fitting.model.config
    image = 4 * shape.channels * shape.image_size[0] * shape.image_size[1]

    def needs(images: int) -> tuple[float, float]:
        """Bytes on the device, and of images that are loaded on the machine."""
        loaded = float(image * images * (1 + PREFETCHED * config.workers))
        return fitting.memory(images).total + (0 if is_gpu else loaded), loaded

    def fits(images: int) -> bool:
        on_device, loaded = needs(images)
        return on_device <= memory and loaded <= host

    if fits(fitting.micro_batch):
        return
    low, high = 0, fitting.micro_batch
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if fits(middle) else (low, middle)
    where = "the GPU" if is_gpu and needs(fitting.micro_batch)[0] > memory else "this machine"
    need = max(needs(fitting.micro_batch))
    if not low:
        raise UserError(
            f"not even one image fits: the run needs {in_bytes(needs(1)[0])} of memory and {where} has "
            f"{in_bytes(memory)}; choose a smaller model."
        )
    raise UserError(
        f"micro-batches of {fitting.micro_batch:,} images need about {in_bytes(need)} of memory and {where} has "
        f"{in_bytes(memory)}; at most {low:,} images fit: choose a smaller batch or a larger --set accumulation=."
    )
