"""Models that come with the package, by name: no network, half precision on disk.

Nothing heavy is imported here, so that the command line can check a name before it imports torch.
"""

import json
import logging
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from crate_mae.errors import UserError

ROOT = Path(__file__).parents[1] / "weights"
DEFAULT = "crate-photos"
"""The model that commands and classes use by default."""
RECORD = "record.json"

log = logging.getLogger("crate_mae")


@dataclass(frozen=True)
class Measured:
    """A number of a model, and the command that measures it."""

    what: str
    value: str
    command: str


@dataclass(frozen=True)
class ShippedRecord:
    """How a shipped model was trained, and how good it is: ``record.json``, from which its card is written."""

    form: str
    """The family and form of its layers, in a few words."""
    shape: str
    """The size of its images and patches, in words."""
    data: str
    """The training images, in words."""
    images: int
    """How many."""
    recipe: dict[str, Any]
    """The settings of its training."""
    processor_hours: float
    """Hours of one core, for the training alone."""
    numbers: tuple[Measured, ...]
    """The first two are in the list of models."""
    not_good_for: tuple[str, ...]
    parameters: int
    sample_error: float
    """Mean squared error on the masked patches of scikit-learn's two photographs; a test checks it."""

    def to_json(self) -> str:
        """The content of ``record.json``."""
        return json.dumps(asdict(self), indent=2) + "\n"

    @staticmethod
    def read(folder: Path) -> "ShippedRecord":
        """The record in the folder of a shipped model."""
        found = json.loads((folder / RECORD).read_text())
        numbers = tuple(Measured(**number) for number in found.pop("numbers"))
        return ShippedRecord(**found | {"numbers": numbers, "not_good_for": tuple(found["not_good_for"])})


def shipped_names() -> list[str]:
    """The models that come with this installation."""
    return sorted(path.parent.name for path in ROOT.glob("*/config.json"))


def shipped_folder(name: str | Path) -> Path | None:
    """The folder of a shipped model; None if the name is not a shipped model's.

    The rule for names and paths, here and for sets of images: a name comes before a folder of the same name, and
    ./NAME, or a ``Path`` in Python, is always the folder.
    """
    if not isinstance(name, str) or name not in shipped_names():
        return None
    if Path(name).exists():
        log.info("%s is the model that comes with crate-mae; write ./%s for the folder of that name.", name, name)
    return ROOT / name


def default_checkpoint() -> str:
    """The name of the default model; an error if this installation has none."""
    if DEFAULT in shipped_names():
        return DEFAULT
    there = f"; there are {', '.join(shipped_names())}" if shipped_names() else ""
    raise UserError(f"the default model {DEFAULT} is not in this installation of crate-mae{there}: name a checkpoint.")
