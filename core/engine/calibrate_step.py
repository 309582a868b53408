"""What this machine does in a second of training, measured in two or three: the figures that a
step's time is predicted from.

Small models of several widths, of Llama's kind and of GPT-2's, take real updates, and every op of
them is timed, forward and backward. For each kind of op the seconds are then explained by what it
has to do: how often it starts, its floating-point operations, its weights, its bytes; none of them
below 0, and so that relative errors are least.
"""

import itertools
import time
from collections.abc import Iterable
from dataclasses import dataclass, replace

import numpy as np
import torch

from core.engine.model_step import Ready
from core.engine.models import Transformer
from core.engine.threads import threads as using
from core.engine.train_torch import AUTOCAST
from core.latency import Cost, StepCosts, fingerprint
from core.machines import host
from core.memory import TorchStep
from core.ops import Op, Train, expand
from core.shapes import TransformerShape
from core.step_latency import update_bytes, work_of
from core.units import DTYPES

SHAPE = TransformerShape(
    vocab_size=1024,
    n_layer=2,
    d_model=256,
    n_head=16,
    n_kv_head=4,
    d_ff=704,
    max_seq_len=128,
    norm="rmsnorm",
    mlp="swiglu",
    positions="rope",
    bias=False,
)
EXPLICIT = replace(  # every kind of op that the other has not
    SHAPE,
    n_head=4,
    norm="layernorm",
    mlp="gelu",
    positions="learned",
    bias=True,
    attention="explicit",
    dropout=0.1,
    n_layer=1,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Probe:
    """A model and the tokens of its step."""

    shape: TransformerShape
    batch_size: int
    seq_len: int = 128

    def step(self, precision: str) -> TorchStep:
        autocast = DTYPES[precision] if precision in AUTOCAST else None
        workload = Train(batch_size=self.batch_size, seq_len=self.seq_len, autocast=autocast)
        return TorchStep(shape=self.shape, workload=workload, optimizer="adamw")


def _wide(shape: TransformerShape, d_model: int, d_head: int, **more: int) -> TransformerShape:
    return replace(
        shape,
        d_model=d_model,
        d_head=d_head,
        n_head=d_model // d_head,
        n_kv_head=max(1, d_model // d_head // 4),
        d_ff=-(-8 * d_model // 3 // 64) * 64,
        **more,
    )


PROBES = (
    Probe(shape=_wide(SHAPE, 64, 16, vocab_size=256), batch_size=4),
    Probe(shape=_wide(SHAPE, 128, 16, vocab_size=8192), batch_size=4),
    Probe(shape=_wide(SHAPE, 256, 16), batch_size=4),
    Probe(shape=_wide(SHAPE, 256, 64), batch_size=1, seq_len=64),
    Probe(shape=_wide(SHAPE, 512, 32, vocab_size=2048, n_layer=1), batch_size=4),
    Probe(shape=_wide(SHAPE, 768, 64, n_layer=1), batch_size=2),
    Probe(shape=_wide(EXPLICIT, 64, 16), batch_size=4),
    Probe(shape=_wide(EXPLICIT, 256, 64), batch_size=2),
)
WARM_UP = 1  # makes the optimizer's state
PERCENTILE = 30  # of an op's seconds: fewer of them from busy moments
LEAST_SWEEPS, N_SWEEPS = 2, 4
MOST_S = 1.8  # no sweep begins later

_Features = tuple[float, float, float]  # operations, numbers, bytes
_Points = dict[str, list[tuple[_Features, float]]]  # by phase and kind: what was done, seconds


def calibrate_step(precision: str, threads: int) -> StepCosts:
    """2 to 3 s. All models take turns, so that a busy moment spoils some updates of each."""
    with using(threads):
        return _measured(precision, threads)


def _measured(precision: str, threads: int) -> StepCosts:
    machine = host()
    began, unix_s = time.perf_counter(), time.time()
    readies = [
        ready_step(probe.shape, precision, probe.batch_size, probe.seq_len) for probe in PROBES
    ]
    for ready in readies:
        for _ in range(WARM_UP):
            _timed(ready)
    found: list[list[dict[tuple[str, str], float]]] = [[] for _ in PROBES]
    deadline = time.perf_counter() + MOST_S
    for sweep in range(N_SWEEPS):
        if sweep < LEAST_SWEEPS or time.perf_counter() < deadline:
            for i, ready in enumerate(readies):
                found[i].append(_timed(ready))
    points: _Points = {}
    update: list[tuple[_Features, float]] = []
    for probe, updates in zip(PROBES, found, strict=True):
        step = probe.step(precision)
        seconds = {
            key: float(np.percentile([u.get(key, 0.0) for u in updates], PERCENTILE))
            for key in updates[0]
        }
        _explain(expand(step.ops), probe.shape, seconds, points)
        n_params = sum(op.repeat * op.n_params for op in step.ops)
        n_tensors = sum(op.repeat * op.n_param_tensors for op in step.ops)
        moved = update_bytes(n_params, step.optimizer)
        took = sum(s for (phase, _), s in seconds.items() if phase == "update")
        update.append(((0.0, float(n_tensors), float(moved)), took))
    return StepCosts(
        precision=precision,
        threads=threads,
        machine=fingerprint(),
        cpu=machine["cpu"],
        measured_unix_s=unix_s,
        took_s=time.perf_counter() - began,
        load_1min=machine["load_1min"],
        ops={name: fitted(of_kind) for name, of_kind in points.items()},
        update=fitted(update),
    )


def ready_step(shape: TransformerShape, precision: str, batch_size: int, seq_len: int) -> Ready:
    """A model with random weights, fused AdamW and one batch of random tokens."""
    generator = torch.Generator().manual_seed(1)
    model = Transformer(shape, generator).train()
    size = (batch_size, seq_len)
    tokens, targets = (torch.randint(shape.vocab_size, size, generator=generator) for _ in range(2))
    return Ready(
        model=model,
        optimizer=torch.optim.AdamW(model.parameters(), fused=True),
        batches=[(tokens, targets)],
        autocast=AUTOCAST.get(precision),
    )


def _timed(ready: Ready) -> dict[tuple[str, str], float]:
    """Seconds of every op of one update, by phase and op."""
    clock = time.perf_counter
    marks: list[tuple[str, str, float]] = []
    ready.run(lambda phase, op: marks.append((phase, op, clock())))
    seconds: dict[tuple[str, str], float] = {}
    for (phase, op, begins), (_, _, ends) in itertools.pairwise(marks):
        if op:
            seconds[phase, op] = seconds.get((phase, op), 0.0) + ends - begins
    return seconds


def _explain(
    ops: Iterable[Op],
    shape: TransformerShape,
    seconds: dict[tuple[str, str], float],
    points: _Points,
) -> None:
    """Sort the seconds of one update under the kinds of its ops."""
    for op in ops:
        for phase in ("forward", "backward"):
            told = "loss" if phase == "forward" and op.kind == "loss" else phase
            took = seconds.get((told, op.id))
            if took:
                work = work_of(op, phase, shape)
                features = (float(work.flops), float(work.numbers), float(work.n_bytes))
                points.setdefault(f"{phase} {op.kind}", []).append((features, took))


def fitted(points: Iterable[tuple[_Features, float]]) -> Cost:
    """The cost with the least squares of relative errors, none of its parts below 0.

    Of four parts there are so few that every choice of those that are not 0 is tried.
    """
    features, seconds = zip(*points, strict=True)
    took = np.array(seconds)
    all_rows = np.column_stack([np.ones(len(took)), np.array(features)]) / took[:, None]
    scale = np.maximum(all_rows.max(axis=0), 1e-30)
    rows = all_rows / scale
    best, least = np.zeros(4), np.inf
    for n in range(1, 5):
        for columns in itertools.combinations(range(4), n):
            found, *_ = np.linalg.lstsq(rows[:, columns], np.ones(len(took)), rcond=None)
            error = float(((rows[:, columns] @ found - 1) ** 2).sum())
            if (found >= 0).all() and error < least - 1e-12:
                best, least = np.zeros(4), error
                best[list(columns)] = found
    start_s, flop_s, number_s, byte_s = (best / scale).tolist()
    return Cost(start_s=start_s, flop_s=flop_s, number_s=number_s, byte_s=byte_s)
