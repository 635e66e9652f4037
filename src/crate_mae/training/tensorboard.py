"""Metrics as TensorBoard files, on request."""

from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import Any

from crate_mae.errors import missing_extra


class TensorBoard:
    """Writes ``RUN/tensorboard`` if it is on."""

    def __init__(self, run: Path, step: int, on: bool):
        self.writer: Any = None
        if on:
            try:
                from torch.utils.tensorboard import SummaryWriter
            except ImportError:
                raise missing_extra("--tensorboard", "tensorboard") from None
            # Hides what was written about steps that a kill has undone.
            self.writer = SummaryWriter(str(run / "tensorboard"), purge_step=step + 1 if step else 0)

    def write(self, step: int, values: Mapping[str, float]) -> None:
        """One point for each value."""
        if self.writer:
            for name, value in values.items():
                self.writer.add_scalar(name, value, step)

    def __enter__(self) -> "TensorBoard":
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        if self.writer:
            self.writer.close()
