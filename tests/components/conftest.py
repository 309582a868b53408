"""Settings shared by the tests of components."""

import os

import pytest
from hypothesis import settings

os.environ["KINETO_LOG_LEVEL"] = "99"  # torch's profiler writes to stderr below that

# The same examples on every machine, and no deadline: a busy machine is not a wrong answer.
settings.register_profile("components", deadline=None, derandomize=True, max_examples=100)
settings.load_profile("components")


@pytest.fixture(autouse=True, scope="session")
def one_thread() -> None:
    """As the worker has it: small models are faster so, on a busy machine by far."""
    import torch

    torch.set_num_threads(1)
