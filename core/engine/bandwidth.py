"""How fast this machine reads memory: what no decode can beat."""

import time
from collections.abc import Callable

import torch

N_MATRICES, WIDTH = 4, 4096  # 268 MB in fp32, more than any cache keeps
REPEATS = 5


def read_gb_s(threads: int) -> float:
    """The most that any of several readings reached, 10⁹ bytes a second.

    Each reads the same 268 MB once: a sum, a matrix-vector product, and one of the transpose. Takes
    about a second. Leaves torch with `threads` threads.
    """
    torch.set_num_threads(threads)
    matrices = [torch.ones(WIDTH, WIDTH) for _ in range(N_MATRICES)]
    x = torch.ones(WIDTH)
    readings: tuple[Callable[[torch.Tensor], torch.Tensor], ...] = (
        torch.sum,
        lambda w: torch.mv(w, x),
        lambda w: torch.mv(w.t(), x),
    )
    least_s = min(_seconds(reading, matrices) for _ in range(REPEATS) for reading in readings)
    return sum(w.nbytes for w in matrices) / least_s / 1e9


def _seconds(
    reading: Callable[[torch.Tensor], torch.Tensor], matrices: list[torch.Tensor]
) -> float:
    began = time.perf_counter()
    for matrix in matrices:
        reading(matrix)
    return time.perf_counter() - began
