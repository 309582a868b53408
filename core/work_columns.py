"""Work of a prefill, a decode or a training step of many models at once: operations and bytes, row
by row, for any batch and length.

Checked: sums over each model's own table, 0 off (tests/core/test_columns.py).
"""

import functools
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from core.architecture import ModelShape
from core.columns import basis, coefficients, tables
from core.ops import Decode, Op, Prefill, Train, Workload
from core.units import DType

WORKS = ("prefill", "decode", "train")


@dataclass(frozen=True, slots=True, kw_only=True)
class Work:
    """Rows of n ops: arrays are (n,), each of all layers of its kind.

    Weights are counted in numbers, since their format is another matter.
    """

    forward_flops: np.ndarray
    flops: np.ndarray  # in training with backward and recompute, as executed
    weights: np.ndarray  # numbers of matrices that are read: of experts, of those that are met
    moved_bytes: np.ndarray  # inputs, outputs, keys and values, without weights; forward only
    cache_bytes: np.ndarray  # of them, keys, values and states of the tokens before


class WorkColumns:
    """Op tables of many models under one kind of work."""

    def __init__(
        self,
        shapes: Sequence[ModelShape],
        work: str,
        dtype: DType,
        *,
        autocast: DType | None = None,
        checkpointing: bool = False,
    ) -> None:
        """`dtype`: of what ops hand to each other, and of the cache.

        Raises: ValueError if `work` is none of WORKS.
        """
        if work not in WORKS:
            raise ValueError(f"work={work!r} is unknown; choose {', '.join(WORKS)}")
        make = functools.partial(
            _workload, work, dtype, autocast=autocast, checkpointing=checkpointing
        )
        per_model = [tables(shape, make) for shape in shapes]
        rows = [row for made in per_model for row in zip(*made, strict=True)]
        first = [row[0] for row in rows]
        self.ids = [op.id.replace(".{i}", "") for op in first]
        self.kinds = [op.kind for op in first]
        self.model = np.repeat(np.arange(len(shapes)), [len(made[0]) for made in per_model])
        self.repeat = np.array([op.repeat for op in first], float)
        self.decode, self.train = work == "decode", work == "train"
        self._window = np.array([op.window for op in first], float)
        self._n_experts = np.array([op.n_experts for op in first], float)
        self._per_token = np.array([op.experts_per_token for op in first], float)
        self._flops = _figures(rows, lambda op: op.forward_flops)
        self._executed = _figures(
            rows, lambda op: op.forward_flops + op.recompute_flops + op.backward_flops
        )
        self._moved = _figures(rows, lambda op: op.read_bytes + op.written_bytes)
        self._cache = _figures(rows, lambda op: op.cache_bytes)
        # What multiplies tokens: two operations a number and token, of experts those met.
        per_token = self._flops[:, 3] if self.decode else self._flops[:, 4]
        is_matrix = np.isin(self.kinds, ("linear", "experts", "recurrent"))
        numbers = np.where(is_matrix, per_token / 2, 0.0)
        self.matrices = numbers * self._n_experts / self._per_token
        held = np.array([op.n_params for op in first], float) * dtype.n_bytes
        # The table reads every parameter of a row once, in its own format.
        tied = is_matrix & (held == 0)
        self._own_weights = np.where(tied, self.matrices * dtype.n_bytes, held)

    def at(self, batch_size: int, tokens: int) -> Work:
        """`tokens`: of each sequence, read at once; in decoding, the context."""
        x = basis(batch_size, tokens)
        near = np.where(self._window > 0, np.minimum(self._window, tokens), tokens)
        flops, executed, moved = (
            self._put(c, x, batch_size, tokens, near)
            for c in (self._flops, self._executed, self._moved)
        )
        # What is cached grows with the tokens that are seen, however many are read at once.
        cache = _in_sight(self._cache, batch_size, near)
        n_tokens = batch_size * (1 if self.decode else tokens)
        met = distinct_experts(self._n_experts, self._per_token, n_tokens)
        return Work(
            forward_flops=flops * self.repeat,
            flops=executed * self.repeat,
            weights=self.matrices * met / self._n_experts * self.repeat,
            moved_bytes=np.maximum(moved - self._own_weights, 0) * self.repeat,
            cache_bytes=cache * self.repeat,
        )

    def _put(
        self,
        coefs: np.ndarray,
        x: np.ndarray,
        batch_size: int,
        tokens: int,
        near: np.ndarray,
    ) -> np.ndarray:
        """The figures, with no more of the tokens before than a window lets through."""
        plain = coefs @ x
        if not np.any(self._window):
            return plain
        if self.decode:
            seen = _in_sight(coefs, batch_size, near)
        else:
            powers = np.stack([np.ones_like(near), np.full_like(near, tokens), tokens * near], 1)
            seen = _dot(coefs, batch_size, powers)
        return np.where(self._window > 0, seen, plain)

    def per_model(self, figures: np.ndarray) -> np.ndarray:
        """(n models,): sums over each model's rows."""
        return np.bincount(self.model, figures)


def _in_sight(coefs: np.ndarray, batch_size: int, near: np.ndarray) -> np.ndarray:
    """Polynomials of the tokens that each row sees."""
    return _dot(coefs, batch_size, np.stack([np.ones_like(near), near, near**2], axis=1))


def _dot(coefs: np.ndarray, batch_size: int, powers: np.ndarray) -> np.ndarray:
    return (coefs * np.concatenate([powers, batch_size * powers], axis=1)).sum(axis=1)


def distinct_experts(
    n_experts: np.ndarray | float, per_token: np.ndarray | float, n_tokens: int
) -> np.ndarray:
    """How many experts a batch meets where each token is sent to `per_token` of them by chance.

    E (1 − (1 − k/E)^T). Source: the balls-and-bins mean; vLLM PR 54228 counts the same bytes.
    """
    n = np.asarray(n_experts, float)
    return n * (1 - (1 - np.asarray(per_token, float) / n) ** n_tokens)


def _workload(
    work: str,
    dtype: DType,
    batch_size: int,
    tokens: int,
    *,
    autocast: DType | None,
    checkpointing: bool,
) -> Workload:
    if work == "prefill":
        return Prefill(batch_size=batch_size, seq_len=tokens, dtype=dtype)
    if work == "decode":
        return Decode(batch_size=batch_size, context=tokens, dtype=dtype)
    return Train(
        batch_size=batch_size,
        seq_len=tokens,
        dtype=dtype,
        autocast=autocast,
        checkpointing=checkpointing,
    )


def _figures(rows: Sequence[Sequence[Op]], figure) -> np.ndarray:  # noqa: ANN001
    return coefficients(np.array([[figure(op) for op in row] for row in rows], float))
