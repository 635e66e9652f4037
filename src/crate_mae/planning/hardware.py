"""Devices: a few well-known GPUs by their data sheets, and this machine by measurement."""

import os
import time
from dataclasses import dataclass
from typing import Literal

import torch

from crate_mae.device import multiplies_bfloat16
from crate_mae.training.config import Precision, chosen_precision

Known = Literal["here", "a100", "h100", "rtx4090"]
GB = 10**9
USABLE = 0.9
"""The fraction of a device's memory that a run can use; driver, workspaces and fragmentation take the rest."""


@dataclass(frozen=True)
class Hardware:
    """One device of a run."""

    name: str
    """For messages."""
    memory: float
    """Bytes."""
    flops: float
    """Peak operations per second in the run's precision."""
    utilisation: float
    """The fraction of the peak that a run reaches."""
    is_gpu: bool

    @property
    def fast_bfloat16(self) -> bool:
        """Whether it multiplies bfloat16 fast; a CPU is always that of this machine."""
        return self.is_gpu or multiplies_bfloat16(torch.device("cpu"))

    @property
    def usable(self) -> float:
        """Bytes that a run can use."""
        return USABLE * self.memory


# Peak TFLOP/s without sparsity. float32 is that of PyTorch's default, which uses no TF32.
_SHEETS: dict[str, tuple[str, float, dict[Precision, float]]] = {
    "a100": ("A100", 80 * GB, {"bfloat16": 312, "float32": 19.5, "float64": 19.5}),
    "h100": ("H100 SXM", 80 * GB, {"bfloat16": 989, "float32": 67, "float64": 67}),
    "rtx4090": ("RTX 4090", 24 * GB, {"bfloat16": 165, "float32": 82.6, "float64": 1.3}),
}
GPU_UTILISATION = 0.4
"""The fraction of the data sheet's peak: an assumption. Large transformers reach 0.3 to 0.5 if images load fast."""
MEASURED_UTILISATION = 0.45
"""The fraction of the measured speed of large matrix products; docs/planning.md has the check."""


def hardware(device: Known, precision: Precision) -> Hardware:
    """A device by its name; ``here`` takes about a second to measure the GPU, or else the CPU, of this machine."""
    if device != "here":
        name, memory, peaks = _SHEETS[device]
        return Hardware(name, memory, peaks[chosen_precision(precision, True)] * 1e12, GPU_UTILISATION, is_gpu=True)
    on_gpu = torch.cuda.is_available()
    precision = chosen_precision(precision, on_gpu or multiplies_bfloat16(torch.device("cpu")))
    if on_gpu:
        properties = torch.cuda.get_device_properties(0)
        speed = product_speed(torch.device("cuda"), precision)
        return Hardware(properties.name, properties.total_memory, speed, MEASURED_UTILISATION, is_gpu=True)
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    name = f"this CPU, {torch.get_num_threads()} thread{'s' if torch.get_num_threads() > 1 else ''}"
    return Hardware(name, memory, product_speed(torch.device("cpu"), precision), MEASURED_UTILISATION, is_gpu=False)


def product_speed(device: torch.device, precision: Precision, seconds: float = 1.0) -> float:
    """Operations per second in products of square matrices: the best of those made in ``seconds``.

    On a CPU, one thread is measured, and its speed is multiplied by the number of threads. The products are short
    enough to fit between the time slices of other programs. Several threads together, which wait for each other on a
    busy machine, gave anything from a tenth of the speed to all of it.
    """
    if device.type == "cuda":
        return _best_product(device, precision, 4096, seconds)
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        return threads * _best_product(device, precision, 256, seconds)
    finally:
        torch.set_num_threads(threads)


def _best_product(device: torch.device, precision: Precision, size: int, seconds: float) -> float:
    a, b = torch.ones(2, size, size, device=device, dtype=getattr(torch, precision))
    best, end = 0.0, time.perf_counter() + seconds
    while True:
        start = time.perf_counter()
        (a @ b)[0, 0].item()  # waits until the device is done
        best = max(best, 2 * size**3 / (time.perf_counter() - start))
        if time.perf_counter() > end:
            return best
