"""Reads the optimiser's moments of a checkpoint without running code from it.

The format of torch.distributed.checkpoint describes its tensors in a pickle, which can name any function to call. Here
it may name what such a description of tensors is made of, and nothing else: other items would be further pickles.
"""

import io
import pickle
import pickletools
from typing import Any

from torch.distributed.checkpoint import FileSystemReader
from torch.distributed.checkpoint.metadata import Metadata, StorageMeta

MOST = 256 * 2**20
"""Bytes of the description: some hundred for each tensor."""
KNOWN = {
    "torch.distributed.checkpoint.metadata": {
        "ChunkStorageMetadata",
        "Metadata",
        "MetadataIndex",
        "StorageMeta",
        "TensorProperties",
        "TensorStorageMetadata",
        "_MEM_FORMAT_ENCODING",
    },
    "torch.distributed.checkpoint.filesystem": {"_StorageInfo"},
    "torch.serialization": {"_get_layout"},
    "torch": {"Size", "float32", "float64", "bfloat16", "float16"},
    "pathlib": {"PosixPath", "PurePosixPath"},
}
"""By module, the names that torch writes into the description of tensors."""


class MomentsReader(FileSystemReader):
    """torch's reader of one folder, with a description that can hold tensors alone."""

    def read_metadata(self, *arguments: Any, **options: Any) -> Metadata:
        """The description of the tensors; ValueError if it is damaged or names anything else."""
        with open(self._get_metadata_path(options.get("rank")), "rb") as file:
            content = file.read(MOST + 1)
        if len(content) > MOST:
            raise ValueError("the description of its moments is too long")
        try:
            _check_places(content)
            found = _Description(io.BytesIO(content)).load()
            if not isinstance(found, Metadata):
                raise TypeError(f"it holds a {type(found).__name__}")
        except Exception as error:  # a damaged pickle can raise anything
            raise ValueError(f"the description of its moments is damaged ({error})") from None
        found.storage_meta = StorageMeta(load_id=self.load_id)
        return found


def _check_places(content: bytes) -> None:
    """Refuse a pickle that keeps an object under a number beyond its length: Python makes a list of twice as many."""
    for operation, value, _ in pickletools.genops(content):
        if operation.name in ("PUT", "BINPUT", "LONG_BINPUT") and int(value or 0) > len(content):
            raise ValueError(f"it claims {value:,} objects in {len(content):,} bytes")


class _Description(pickle.Unpickler):
    def find_class(self, module: str, name: str) -> Any:
        if name not in KNOWN.get(module, ()):
            raise ValueError(f"it names {module}.{name}")
        return super().find_class(module, name)
