"""One thread for these tests, as in the command: the factorisations are too small for several."""

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
    """Turn off the shape checks of the test run, so that a wrong shape gets as far as a user's would."""
    config.update("jaxtyping_disable", True)
    yield
    config.update("jaxtyping_disable", False)
