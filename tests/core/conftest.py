"""Settings shared by the tests of core."""

import os

import pytest
from hypothesis import settings

os.environ["KINETO_LOG_LEVEL"] = "99"  # torch's profiler writes to stderr below that

# derandomize: the same examples on every machine, so that a red run means a changed program.
# No deadline: a busy machine is not a wrong answer.
settings.register_profile("core", deadline=None, derandomize=True, max_examples=100)
settings.load_profile("core")


@pytest.fixture(autouse=True, scope="session")
def one_thread() -> None:
    """Sums are repeatable to the bit at a fixed number of threads, and small ones are faster."""
    import torch

    torch.set_num_threads(1)
