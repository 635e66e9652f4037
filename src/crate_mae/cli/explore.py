"""Verbs that show what a model does: demo, inspect, serve."""

from importlib.util import find_spec
from pathlib import Path
from typing import Annotated, Literal

import tyro

from crate_mae.cli.arguments import CheckpointOrDefault, Data, checked_seed
from crate_mae.device import Device, pick_device
from crate_mae.errors import UserError, check_at_least
from crate_mae.models.shipped import default_checkpoint


def demo(out: Path = Path("runs/demo"), steps: int = 1500, seed: int = 0, device: Device = "auto") -> None:
    """Complete photographs with the default model, train a small one on digits, and write a report on both.

    The photographs and the digits are scikit-learn's: no download, a minute or two.

    Args:
        out: Folder for the checkpoint, the figures and report.html.
        steps: Number of training steps.
        seed: Seed of the weights, the batches, the masks and the split.
        device: Device to compute on; auto takes a GPU if there is one.
    """
    check_at_least("--steps", steps, 1)
    checked_seed(seed)

    from rich.console import Console

    from crate_mae.reports.demo_command import run

    run(out, steps, seed, device, Console())


def inspect(
    data: Data,
    checkpoint: tyro.conf.Positional[CheckpointOrDefault] = None,
    *,
    data_root: Path | None = None,
    split: Literal["train", "val", "test"] | None = None,
    images: int = 256,
    mask_ratio: float = 0.75,
    layer: int | None = None,
    threshold: float = 0.5,
    seed: int = 0,
    out: Path = Path("runs/inspect"),
    device: Device = "auto",
) -> None:
    """Measure every layer of a model: rates, sparsity, angles, subspaces, attention, components, completions.

    Args:
        data_root: The folder of the named sets; data/ by default.
        split: Split to take images from; by default the test split, or all images of a folder without splits.
        images: Number of images, drawn at random.
        mask_ratio: Fraction of the patches that is masked for the measurements of the decoder.
        layer: Encoder layer of the attention maps and the components, from 1; by default the one before the last.
        threshold: Background threshold of the first component, in root mean squares of that component.
        seed: Seed of the choice of images, the masks and the untrained model.
        out: Folder for report.html, its figures and inspect.json.
        device: Device to compute on; auto takes a GPU if there is one.
    """
    checkpoint = checkpoint or default_checkpoint()
    check_at_least("--images", images, 1)
    if not threshold >= 0:
        raise UserError(f"--threshold is {threshold}; choose a number from 0 up.")
    checked_seed(seed)

    from rich.console import Console

    from crate_mae.reports.inspect_command import run
    from crate_mae.reports.inspect_measurements import Settings

    settings = Settings(data, data_root, split, images, mask_ratio, layer, threshold, seed)
    run(checkpoint, settings, out, pick_device(device), Console())


def serve(
    checkpoint: tyro.conf.Positional[CheckpointOrDefault] = None,
    second: Annotated[tyro.conf.Positional[str | None], tyro.conf.arg(metavar="SECOND")] = None,
    host: str = "127.0.0.1",
    *,
    port: int = 8000,
    open: bool = False,
    max_upload_mb: float = 10,
    max_megapixels: float = 32,
    max_seconds: float = 20,
    max_waiting: int = 64,
    workers: int = 2,
    device: Device = "auto",
) -> None:
    """Open a local page: mask a picture, see it completed, and look inside every layer; one model, or two side by side.

    Args:
        second: A second model to compare with; it must have the same grid of patches.
        host: Address to listen on; 0.0.0.0 lets other machines in.
        port: Port to listen on; 0 takes any free one.
        open: Open the page in a browser.
        max_upload_mb: Largest upload in MB.
        max_megapixels: Largest picture in millions of pixels.
        max_seconds: Longest time for an upload to arrive, and again from then to the answer, including waiting.
        max_waiting: Requests that may wait; further ones are refused, with the advice to try again.
        workers: Requests worked on at once; the processor's cores are shared among them.
        device: Device to compute on; auto takes a GPU if there is one.
    """
    checkpoint = checkpoint or default_checkpoint()
    if not all(map(find_spec, ("fastapi", "uvicorn"))):
        raise UserError("the page needs the extra web; pip install 'crate-mae[web]' installs it.")
    if not 0 <= port < 2**16:
        raise UserError(f"--port is {port}; choose a number from 1 to 65535, or 0 for any free port.")
    from crate_mae.web.limits import MILLION, Limits

    limits = Limits(max_upload_mb * MILLION, max_megapixels * MILLION, max_seconds, max_waiting, workers)

    from rich.console import Console

    from crate_mae.web.command import run

    checkpoints = [checkpoint] if second is None else [checkpoint, second]
    run(checkpoints, limits, host, port, open, pick_device(device), Console())
