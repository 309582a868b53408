"""How many threads torch computes with, for a while."""

import contextlib
from collections.abc import Iterator

import torch


@contextlib.contextmanager
def threads(n: int) -> Iterator[None]:
    """So many within the block; as many as before after it."""
    before = torch.get_num_threads()
    torch.set_num_threads(n)
    try:
        yield
    finally:
        torch.set_num_threads(before)
