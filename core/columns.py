"""The op tables of many models at once, as columns of numbers that a workload is put into.

Every figure of a row is a polynomial of the workload: of batch size b and tokens T it is
k₀ + k₁T + k₂T² + b (k₃ + k₄T + k₅T²). The six coefficients are found by making the table at six
small workloads, exactly, so that no formula stands here that does not stand in the table. Then a
workload is a product of a matrix and six numbers, and a slider's move through all models is a few
thousand additions in NumPy.

Ignores: an extra copy in explicit attention that torch makes for more than one sequence, which the
coefficients, found at two and three sequences, charge one sequence too.
Checked: tests/core/test_columns.py.
"""

from collections.abc import Callable, Sequence

import numpy as np

from core.architecture import ModelShape
from core.ops import Op, Workload
from core.transformer import model_ops

BATCHES, TOKENS = (2, 3), (2, 3, 4)  # at which tables are made


def basis(batch_size: float, tokens: float) -> np.ndarray:
    """(6,): what the coefficients are multiplied by."""
    powers = np.array([1.0, tokens, tokens**2])
    return np.concatenate([powers, batch_size * powers])


_INVERSE = np.linalg.inv(np.array([basis(b, t) for b in BATCHES for t in TOKENS]))


def coefficients(values: np.ndarray) -> np.ndarray:
    """(n, 6) figures at the six workloads -> (n, 6) coefficients, whole where they are."""
    found = values @ _INVERSE.T
    near = np.rint(found * 2) / 2  # halves come from RoPE's pairs of channels
    return np.where(np.abs(found - near) < 1e-3 * np.maximum(1, np.abs(found) * 1e-6), near, found)


def tables(
    shape: ModelShape, workload: Callable[[int, int], Workload]
) -> tuple[tuple[Op, ...], ...]:
    """The op table at each of the six workloads."""
    return tuple(model_ops(shape, workload(b, t)) for b in BATCHES for t in TOKENS)


def starts(lengths: Sequence[int]) -> np.ndarray:
    return np.concatenate([[0], np.cumsum(lengths)[:-1]]).astype(int)


def highest(
    values: np.ndarray, firsts: np.ndarray, sizes: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """The greatest of each run of values, and where it stands first."""
    most = np.maximum.reduceat(values, firsts)
    hits = np.flatnonzero(values == np.repeat(most, sizes))
    group = np.repeat(np.arange(len(firsts)), sizes)[hits]
    first = hits[np.searchsorted(group, np.arange(len(firsts)))]
    return most, first
