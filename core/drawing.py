"""Which numbers of a large tensor are recorded to be drawn: evenly spaced ones."""

import numpy as np

SHOWN = 32  # rows and columns at most


def evenly(n: int, at_most: int = SHOWN) -> np.ndarray:
    """Indices of all of `n`, or of `at_most` of them from the first to the last, rounded."""
    return np.linspace(0, n - 1, min(n, at_most)).round().astype(int)


def block(values: np.ndarray) -> np.ndarray:
    """The evenly spaced part of an array, along each of its last two axes."""
    for axis in range(max(0, values.ndim - 2), values.ndim):
        values = values.take(evenly(values.shape[axis]), axis=axis)
    return values
