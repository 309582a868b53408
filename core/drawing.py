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


def shown_ops(ops: list[str], n_layer: int, whole: int = 3) -> set[str]:
    """Ids of the ops whose values are kept: all of a small model; of a deep one those outside its
    blocks, each block's output, and every op of `whole` blocks, evenly spread.
    """
    if n_layer <= 2 * whole:
        return set(ops)
    opened = tuple(f"blocks.{i}." for i in evenly(n_layer, whole).tolist())
    return {
        op
        for op in ops
        if not op.startswith("blocks.") or op.endswith(".mlp.add") or op.startswith(opened)
    }
