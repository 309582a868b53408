"""Memory of a step of many models at once: `core.memory`'s walk, as columns.

A layer of a kind is written once and its repeats are put together: n layers that each add D bytes
and rise by at most M above where they began rise by max(M, (n − 1) D + M) together.

Checked: the walk over the whole table, 0 off (tests/core/test_columns.py).
"""

import itertools
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np

from core.architecture import ModelShape
from core.columns import basis, coefficients, highest, starts, tables
from core.memory import in_order
from core.ops import Op, Prefill, Train, Workload
from core.units import FP32, DType


@dataclass(frozen=True, slots=True, kw_only=True)
class _Segment:
    """Ops that run one after the other, as often as there are layers of the kind."""

    repeat: int
    phase: str
    ops: tuple[str, ...]  # id of each op
    n_moves: tuple[int, ...]  # of each op
    moves: np.ndarray  # (n, 6)
    saved: np.ndarray  # (n_ops, 6): kept for backward, and let go as backward passes
    grads: np.ndarray  # (n_ops,): numbers whose gradients come to life
    of_logits: tuple[bool, ...]  # whether an op makes or reads the logits


def _segments(shape: ModelShape, workload: Callable[[int, int], Workload]) -> Iterator[_Segment]:
    """The step in order; a layer of a kind stands once."""
    made = tables(shape, workload)
    once = [tuple(replace(op, repeat=1) for op in table) for table in made]
    repeats = {op.id.replace("{i}", "0"): op.repeat for op in made[0]}
    orders = [list(in_order(table)) for table in once]

    def segment(row: tuple[int, tuple[str, Op, tuple[int, ...]]]) -> tuple[str, str, int]:
        _, (phase, op, _) = row
        layer = op.id.rsplit(".", 2)[0] if ".0." in op.id else ""
        turn = "backward" if phase == "recompute" else phase
        return turn, layer, repeats[op.id]

    rows = enumerate(orders[0])
    for (phase, _, repeat), group in itertools.groupby(rows, segment):
        items = list(group)
        moves, saved, grads, ids, counts, logits = [], [], [], [], [], []
        for i, (turn, op, own) in items:
            seen = [order[i] for order in orders]
            assert all(len(m) == len(own) for _, _, m in seen), op.id
            moves += list(zip(*(m for _, _, m in seen), strict=True))
            kept = turn in ("forward", "loss", "backward")
            saved.append([o.saved_bytes * kept for _, o, _ in seen])
            grads.append(op.n_params if turn == "backward" else 0)
            ids.append(op.id)
            counts.append(len(own))
            logits.append(op.id == "head" or op.kind == "loss")
        if not moves:  # sums over nothing are none: one move of nothing
            moves, counts[-1] = [[0] * len(orders)], 1
        yield _Segment(
            repeat=repeat,
            phase=phase,
            ops=tuple(ids),
            n_moves=tuple(counts),
            moves=coefficients(np.array(moves, float).reshape(-1, 6)),
            saved=coefficients(np.array(saved, float)),
            grads=np.array(grads, float),
            of_logits=tuple(logits),
        )


PHASES = ("forward", "loss", "backward", "update")


class _Walk:
    """The moves of many models, ready for any batch and length."""

    def __init__(
        self, shapes: Sequence[ModelShape], workload: Callable[[int, int], Workload]
    ) -> None:
        per_model = [list(_segments(shape, workload)) for shape in shapes]
        segments = [s for model in per_model for s in model]
        self.n_params = np.array([sum(s.repeat * s.grads.sum() for s in m) for m in per_model])
        self.moves = np.concatenate([s.moves for s in segments])
        self.saved = np.concatenate([s.saved for s in segments])
        self.grads = np.concatenate([s.grads for s in segments])
        self.repeat = np.array([s.repeat for s in segments], float)
        self.phase = np.array([PHASES.index(s.phase) for s in segments])
        self.op_ids = [op for s in segments for op in s.ops]
        self.of_logits = np.array([x for s in segments for x in s.of_logits])
        n_ops = [len(s.ops) for s in segments]
        self.segment_of_op = np.repeat(np.arange(len(segments)), n_ops)
        self.first_op = starts(n_ops)
        self.op_of_move = np.repeat(
            np.arange(len(self.op_ids)), [n for s in segments for n in s.n_moves]
        )
        self.first_move = starts([sum(s.n_moves) for s in segments])
        self.move_sizes = np.array([sum(s.n_moves) for s in segments])
        self.first_segment = starts([len(m) for m in per_model])
        self.sizes = np.array([len(m) for m in per_model])
        self.model_of_segment = np.repeat(np.arange(len(shapes)), self.sizes)
        self.forward = np.isin(self.phase, (0, 1))[self.segment_of_op]

    def peaks(
        self, x: np.ndarray, given_away: float = 0.0
    ) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Of each segment: bytes above the step's beginning at its highest, its change, and the
        move at which it is highest. `given_away`: bytes of each gradient that leave the device once
        its layer is done.
        """
        moves = self.moves @ x
        total = np.cumsum(moves)
        before = np.concatenate([[0.0], total])[self.first_move]
        rise = total - np.repeat(before, self.move_sizes)
        change = total[self.first_move + self.move_sizes - 1] - before
        change -= given_away * np.add.reduceat(self.grads, self.first_op)
        top, top_move = highest(rise, self.first_move, self.move_sizes)
        n = self.repeat
        after = np.cumsum(n * change)
        begin = np.concatenate([[0.0], after])[:-1]
        begin -= np.repeat(begin[self.first_segment], self.sizes)
        return begin + np.maximum(top, 0) + np.maximum((n - 1) * change, 0), change, top_move

    def most(self, per_segment: np.ndarray) -> np.ndarray:
        """(n models,): the greatest of a model's segments."""
        return np.maximum.reduceat(per_segment, self.first_segment)

    def _sum(self, per_op: np.ndarray, chosen: np.ndarray) -> np.ndarray:
        """(n models,): over the ops that are chosen, as often as their layers stand."""
        weighed = np.where(chosen, per_op, 0.0) * self.repeat[self.segment_of_op]
        return np.add.reduceat(weighed, self.first_op[self.first_segment])

    def kept(self, saved: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        return (
            self._sum(saved, self.forward & ~self.of_logits),
            self._sum(saved, self.forward & self.of_logits),
        )

    def alive(
        self, saved: np.ndarray, at: np.ndarray, op: np.ndarray, layers_before: np.ndarray
    ) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Activations, logits, and parameters with a gradient, while an op runs.

        `at`: the segment of each model; `layers_before`: how often it has run already.
        """
        model = self.model_of_segment[self.segment_of_op]
        now, here = op[model], at[model]
        order = np.arange(len(self.op_ids))
        times = self.repeat[self.segment_of_op]
        ran = np.where(order <= now, 1.0, 0.0)
        same = self.segment_of_op == here
        runs = np.where(same, layers_before[model] + ran, ran * times)
        was_made = np.where(self.forward, runs, -np.where(order < now, runs, runs * ~same))
        # What an op keeps goes when backward has passed it: counted until then.
        made = saved * was_made
        firsts = self.first_op[self.first_segment]
        acts = np.add.reduceat(np.where(self.of_logits, 0.0, made), firsts)
        logits = np.add.reduceat(np.where(self.of_logits, made, 0.0), firsts)
        grads = np.add.reduceat(np.where(self.forward, 0.0, self.grads * runs), firsts)
        return np.maximum(acts, 0), np.maximum(logits, 0), grads


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """Bytes of one training step of each of n models, beside what is held all the time.

    Arrays are (n,): bytes, or numbers of parameters.
    """

    activations: np.ndarray  # kept at the end of forward, without the logits and the loss
    logits: np.ndarray  # of them and the loss, kept at the end of forward
    peak: np.ndarray  # highest, above what is held all the time
    peak_activations: np.ndarray  # of the peak
    peak_logits: np.ndarray
    peak_gradients: np.ndarray
    peak_rest: np.ndarray
    phase_peaks: dict[str, np.ndarray]  # highest in each phase
    phase: tuple[str, ...]
    op: tuple[str, ...]  # in which the peak falls; layers counted as one


class TrainColumns:
    """Training steps of many models in one number format, ready for any batch and length."""

    def __init__(self, shapes: Sequence[ModelShape], step: Train) -> None:
        """`step`: format, autocast and checkpointing; its batch and length are not looked at."""
        self.wide = step.dtype.n_bytes
        self._walk = _Walk(shapes, lambda b, t: replace(step, batch_size=b, seq_len=t))
        self.n_params = self._walk.n_params

    def at(self, batch_size: int, seq_len: int) -> Step:
        """Bytes at a workload."""
        walk, x = self._walk, basis(batch_size, seq_len)
        peaks, change, top_move = walk.peaks(x)
        saved = walk.saved @ x
        gradients = self.n_params * self.wide
        by_phase = {
            name: walk.most(np.where(walk.phase == i, peaks, 0.0))
            for i, name in enumerate(PHASES[:3])
        }
        by_phase["update"] = gradients
        peak, at = highest(peaks, walk.first_segment, walk.sizes)
        in_update = gradients > peak
        layers_before = np.where(change[at] > 0, walk.repeat[at] - 1, 0)
        op = walk.op_of_move[top_move[at]]

        acts, logits, made = walk.alive(saved, at, op, layers_before)
        kept_acts, kept_logits = walk.kept(saved)
        peak = np.maximum(peak, gradients)
        acts = np.where(in_update, 0.0, acts)
        made = np.where(in_update, gradients, made * self.wide)
        acts = np.minimum(acts, np.maximum(peak - made, 0))
        others = peak - made - acts
        near_logits = walk.of_logits[op] & ~in_update
        return Step(
            activations=kept_acts,
            logits=kept_logits,
            peak=peak,
            peak_activations=acts,
            peak_logits=np.where(near_logits, others, np.minimum(logits, others) * ~in_update),
            peak_gradients=made,
            peak_rest=np.where(near_logits, 0.0, others - np.minimum(logits, others) * ~in_update),
            phase_peaks=by_phase,
            phase=tuple(
                "update" if late else PHASES[walk.phase[i]]
                for late, i in zip(in_update, at, strict=True)
            ),
            op=tuple(
                "optimizer.step" if late else walk.op_ids[i].replace(".0.", ".")
                for late, i in zip(in_update, op, strict=True)
            ),
        )

    def sharded_peak(self, batch_size: int, seq_len: int, ranks: int) -> np.ndarray:
        """(n,) bytes: as `Step.peak`, where each layer's gradients are split among `ranks` devices
        once they are there. They are whole while their layer is in backward.
        """
        walk, wide = self._walk, self.wide
        peaks, _, _ = walk.peaks(basis(batch_size, seq_len), wide * (1 - 1 / ranks))
        return np.maximum(walk.most(peaks), self.n_params * wide / ranks)


class AnswerColumns:
    """What answers of many models hold for a moment, beside weights and cache."""

    def __init__(self, shapes: Sequence[ModelShape], dtype: DType) -> None:
        self._walk = _Walk(shapes, lambda b, t: Prefill(batch_size=b, seq_len=t, dtype=dtype))
        self._vocab = np.array([shape.vocab_size for shape in shapes], float)

    def at(self, batch_size: int, n_tokens: int) -> np.ndarray:
        """(n,) bytes: the fullest moment of reading `n_tokens` tokens at once, logits of the last
        token of each of `batch_size` sequences in fp32 included.
        """
        walk = self._walk
        peaks, _, _ = walk.peaks(basis(1, n_tokens))
        # The table's head gives logits of every token; an answer needs the last one's.
        inside = np.ones(len(walk.repeat), bool)
        inside[walk.segment_of_op[walk.of_logits]] = False
        return walk.most(np.where(inside, peaks, 0.0)) + batch_size * self._vocab * FP32.n_bytes
