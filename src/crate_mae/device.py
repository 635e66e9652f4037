"""The device to compute on."""

from typing import TYPE_CHECKING, Literal

from crate_mae.errors import UserError

if TYPE_CHECKING:
    import torch

Device = Literal["auto", "cpu", "cuda", "mps"]


def pick_device(name: Device) -> "torch.device":
    """The device of that name; ``auto`` takes a GPU if there is one."""
    import torch

    there = {"cuda": torch.cuda.is_available(), "mps": torch.backends.mps.is_available(), "cpu": True}
    if name == "auto":
        return torch.device(next(device for device, is_there in there.items() if is_there))
    if not there[name]:
        raise UserError(f"this PyTorch finds no {name} device; use --device auto or cpu.")
    return torch.device(name)


def multiplies_bfloat16(device: "torch.device") -> bool:
    """Whether the device has instructions for products in bfloat16: a GPU, or a CPU with AVX512-BF16.

    With them such products are several times as fast as in float32; a CPU without them is much slower.
    """
    import torch

    if device.type != "cpu":
        return device.type == "cuda"
    return bool(getattr(torch.cpu, "_is_avx512_bf16_supported", lambda: False)())
