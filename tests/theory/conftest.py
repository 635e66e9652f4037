"""One thread for these tests, as the command has it: the factorisations are too small to share."""

import pytest
import torch
from jaxtyping import config


@pytest.fixture(scope="module", autouse=True)
def one_thread():
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.fixture
def as_a_user():
    """Without the shape annotations that the test run enforces: what a user's wrong shape meets."""
    config.update("jaxtyping_disable", True)
    yield
    config.update("jaxtyping_disable", False)
