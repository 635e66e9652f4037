"""A checkpoint's moments are described in a pickle; what it could call is never called."""

import os
import pickle
from pathlib import Path

import pytest
import torch
import torch.distributed.checkpoint as dcp
from torch.distributed.checkpoint.metadata import BytesStorageMetadata

from crate_mae.training.moments_reader import MomentsReader


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    dcp.save({"state": {"a": torch.arange(6.0)}}, checkpoint_id=tmp_path / "optimiser", no_dist=True)
    return tmp_path / "optimiser"


def load(folder: Path) -> torch.Tensor:
    found = {"state": {"a": torch.zeros(6)}}
    dcp.load(found, storage_reader=MomentsReader(folder), no_dist=True)
    return found["state"]["a"]


pytestmark = pytest.mark.filterwarnings("ignore:torch.distributed is disabled")


def test_what_torch_wrote_is_read(folder: Path) -> None:
    assert torch.equal(load(folder), torch.arange(6.0))


class Call:
    def __init__(self, path: Path):
        self.path = path

    def __reduce__(self) -> tuple[object, tuple[str]]:
        return os.mkdir, (str(self.path),)


def test_a_call_in_the_description_is_not_made(folder: Path, tmp_path: Path) -> None:
    (folder / ".metadata").write_bytes(pickle.dumps(Call(tmp_path / "called")))
    with pytest.raises(dcp.api.CheckpointException, match=r"damaged \(it names \w+.mkdir\)"):
        load(folder)
    assert not (tmp_path / "called").exists()


def test_moments_that_are_no_tensors_are_refused(folder: Path) -> None:
    """torch would unpickle them."""
    found = pickle.loads((folder / ".metadata").read_bytes())
    found.state_dict_metadata = {name: BytesStorageMetadata() for name in found.state_dict_metadata}
    (folder / ".metadata").write_bytes(pickle.dumps(found))
    with pytest.raises(dcp.api.CheckpointException, match="BytesStorageMetadata"):
        load(folder)


def test_a_damaged_number_does_not_fill_the_memory(folder: Path) -> None:
    """Found by the soak: 9 GB for a description of 27 kB."""
    (folder / ".metadata").write_bytes(b"\x80\x02Nr" + (2**28).to_bytes(4, "little") + b".")
    with pytest.raises(dcp.api.CheckpointException, match="it claims 268,435,456 objects in 9 bytes"):
        load(folder)


@pytest.mark.parametrize("content", [b"", b"\x80", b"not a pickle", pickle.dumps(3), pickle.dumps(None)])
def test_a_damaged_description_is_named(folder: Path, content: bytes) -> None:
    (folder / ".metadata").write_bytes(content)
    with pytest.raises(dcp.api.CheckpointException, match="the description of its moments is damaged"):
        load(folder)
