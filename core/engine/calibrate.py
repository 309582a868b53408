"""What this machine does in a second, measured in two: the figures that latency is predicted from.

A small model of the usual shape answers in one weight format, and every op of its trips is timed.
Its layers are copies of one, each in memory of its own: so many that a trip reads 8, 32 or 128 MB,
more than the caches hold. The lower quartile is taken of each op by itself, so that a moment given
to another process spoils one op and not the trip.

Three traps. Layers that share their weights are read from the cache, several times too fast. A bare
loop over matrices misses what other ops cost once the weights have pushed them out of the caches.
And the whole trip's time hides which part would grow with another model.
"""

import copy
import time
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import mean, median

import numpy as np
import torch

from core.answers import answer_ops, held_bytes
from core.engine import kernels, sampling
from core.engine.decoder import Decoder
from core.engine.kernels import Matrix, RawBlocks
from core.engine.measured_run import MeasuredRun
from core.engine.measuring import alone
from core.engine.models import Transformer
from core.events import Event, Sample, Scalar
from core.latency import Calibration, Pace, fingerprint, keep
from core.machines import host
from core.ops import Decode, Op, Prefill, expand, kv_cache_bytes
from core.shapes import TransformerShape
from core.specs import CalibrationSpec
from core.units import GROUP

SHAPE = TransformerShape(  # a layer of SmolLM2-135M, with a smaller vocabulary
    vocab_size=1024,
    n_layer=1,
    d_model=576,
    n_head=9,
    n_kv_head=3,
    d_ff=1536,
    max_seq_len=2048,
    norm="rmsnorm",
    mlp="swiglu",
    positions="rope",
    bias=False,
)
OTHER = TransformerShape(  # for the kinds of op that the other has not
    vocab_size=256, n_layer=2, d_model=64, n_head=4, n_kv_head=4, d_ff=256, max_seq_len=64
)
WORKING_SETS = (8e6, 32e6, 128e6)  # bytes
WIDTHS = (2, 4, 8, 32, 128, 512)  # vectors multiplied at once
WIDTH_FLOPS = 4e9  # about the most of one trip of many tokens
N_SWEEPS = 3
TRIPS_S = 0.04  # for one trip again and again in one sweep, or as many as
LEAST_TRIPS, MOST_TRIPS = 2, 12
MOST_S = 8.0  # for all trips
MOST_SPREAD = 3.0  # median of a trip, by what its ops take when nobody disturbs them
HEAD_ROWS = 16_384
EMPTY = 16  # tokens in a cache that is as good as empty
LEAST_PROMPT = 32  # tokens, to tell how fast attention over a whole prompt is
N_LOGITS = 49_152

Ops = tuple[Op, ...]
Timed = tuple[Ops, np.ndarray]  # seconds of each


class Unsteady(RuntimeError):
    """The machine is too busy to be calibrated: several threads that wait for each other on cores
    that others use take a hundred times as long as alone.
    """


def calibrate(weight_format: str, threads: int) -> Calibration:
    """2 to 4 s. Raises: Unsteady."""
    before = torch.get_num_threads()
    torch.set_num_threads(threads)
    try:
        return _measured(weight_format, threads)
    finally:
        torch.set_num_threads(before)


def _measured(weight_format: str, threads: int) -> Calibration:
    machine = host()
    began, unix_s = time.perf_counter(), time.time()
    base = _decoder(SHAPE, weight_format)
    other = _decoder(OTHER, weight_format)
    depths = _depths(base)
    deepest = _deepened(base, depths[-1])
    with_head = _with_head(deepest)

    token, full = torch.tensor([[7]]), deepest.context - 1
    tasks = {"other": Task(decoder=other, tokens=token, start=EMPTY)}
    tasks["head"] = Task(decoder=with_head, tokens=token, start=EMPTY)
    for n in depths:
        decoder = _shallow(deepest, n)
        tasks[f"empty {n}"] = Task(decoder=decoder, tokens=token, start=EMPTY)
        tasks[f"full {n}"] = Task(decoder=decoder, tokens=token, start=full)
    for width in WIDTHS:
        decoder = _shallow(deepest, _depth_of_width(width, depths[-1]))
        tokens = torch.arange(width)[None] % SHAPE.vocab_size
        tasks[f"width {width}"] = Task(decoder=decoder, tokens=tokens, start=0)
    timed = _timed(tasks)

    others = _by_kind(*timed["other"])
    paces = [_pace(timed[f"empty {n}"], timed[f"full {n}"], others) for n in depths]
    head_share = _head_rate(*timed["head"], paces[-1]) / paces[-1].read_bytes_per_s
    paces = [replace(p, head_bytes_per_s=p.read_bytes_per_s * head_share) for p in paces]
    rates = [_rates(*timed[f"width {width}"], paces[-1]) for width in WIDTHS]
    long = [(w, r) for w, r in zip(WIDTHS, rates, strict=True) if w >= LEAST_PROMPT]
    return Calibration(
        weight_format=weight_format,
        threads=threads,
        machine=fingerprint(),
        cpu=machine["cpu"],
        measured_unix_s=unix_s,
        took_s=time.perf_counter() - began,
        load_1min=machine["load_1min"],
        paces=tuple(paces),
        product_flops_per_s=tuple(
            (float(w), r["linear"]) for w, r in zip(WIDTHS, rates, strict=True)
        ),
        attention_flops_per_s=tuple((float(w), r["flash"]) for w, r in long),
        moved_bytes_per_s=long[-1][1]["rest"],
        pick_s_per_logit=_pick_s() / N_LOGITS,
    )


# -- the model ----------------------------------------------------------------------------------


def _decoder(shape: TransformerShape, weight_format: str) -> Decoder:
    """With random weights; those of a file in blocks that say nothing."""
    state = Transformer(shape, torch.Generator().manual_seed(1)).state_dict()
    raw = {name: _blocks(name, t) for name, t in state.items()} if weight_format == "file" else None
    return Decoder(shape, state, weight_format, context=shape.max_seq_len, raw=raw)


def _blocks(name: str, weight: torch.Tensor) -> RawBlocks:
    """As SmolLM2's file has them: Q4_1 in the blocks, Q8_0 for the embedding."""
    n_rows, n_columns = weight.shape if weight.dim() == 2 else (1, weight.shape[0])
    n_groups = n_rows * n_columns // GROUP
    scale = torch.tensor([0.01, -0.08], dtype=torch.float16).view(torch.uint8)
    if name.startswith("blocks."):
        kind, codes, head = "Q4_1", GROUP // 2, scale
    else:
        kind, codes, head = "Q8_0", GROUP, scale[:2]
    numbers = torch.randint(0, 256, (n_groups, codes), dtype=torch.uint8)
    blocks = torch.cat([head.expand(n_groups, -1), numbers], dim=1)
    return RawBlocks(type=kind, raw=blocks.reshape(n_rows, -1), shape=(n_rows, n_columns))


def _deepened(decoder: Decoder, n_layer: int) -> Decoder:
    """The first layer n times, each time in memory of its own."""
    other = copy.copy(decoder)
    other.shape = replace(decoder.shape, n_layer=n_layer)
    first = decoder._layers[0]
    other._layers = [
        replace(
            first,
            qkv=_elsewhere(first.qkv),
            out=_elsewhere(first.out),
            up=_elsewhere(first.up),
            down=_elsewhere(first.down),
            keys_BKSE=torch.zeros_like(first.keys_BKSE),
            values_BKSE=torch.zeros_like(first.values_BKSE),
        )
        for _ in range(n_layer)
    ]
    return other


def _elsewhere(matrix: Matrix) -> Matrix:
    """The same matrix in memory of its own, of the kind that `kernels.make` takes."""
    other = copy.copy(matrix)
    copies: dict[int, torch.Tensor] = {}
    for name, value in vars(matrix).items():
        if isinstance(value, torch.Tensor):
            storage = value.untyped_storage()
            whole = value.as_strided((storage.nbytes() // value.element_size(),), (1,), 0)
            made = copies.setdefault(storage._cdata, kernels._PAGES.copy(whole))
            view = made.as_strided(value.shape, value.stride(), value.storage_offset())
            setattr(other, name, view)
        elif isinstance(value, Matrix):
            setattr(other, name, _elsewhere(value))
        elif isinstance(value, list):
            setattr(other, name, [_elsewhere(part) for part in value])
    return other


def _shallow(decoder: Decoder, n_layer: int) -> Decoder:
    """Its first layers."""
    other = copy.copy(decoder)
    other.shape = replace(decoder.shape, n_layer=n_layer)
    other._layers = decoder._layers[:n_layer]
    return other


def _depths(base: Decoder) -> list[int]:
    """How many layers make each working set."""
    # What is written out before it is multiplied is never read at the speed of memory.
    real = all(matrix.real for matrix in base.matrices)
    one, two = (held_bytes(replace(base.shape, n_layer=n), base.weight_format) for n in (1, 2))
    sizes = WORKING_SETS if real else WORKING_SETS[:1]
    return sorted({1 + max(0, round((size - one) / (two - one))) for size in sizes})


def _depth_of_width(width: int, most: int) -> int:
    """How many layers so many tokens are read by."""
    shape = replace(SHAPE, vocab_size=1)
    flops = 2 * width * (shape.n_params - 2 * shape.d_model)
    return min(most, max(1, int(WIDTH_FLOPS / flops)))


def _with_head(decoder: Decoder) -> Decoder:
    """The same layers under a head of the size that vocabularies give it."""
    other = copy.copy(decoder)
    other.shape = replace(decoder.shape, vocab_size=HEAD_ROWS)
    thin = replace(other.shape, n_layer=1, d_ff=32)
    other._head = _decoder(thin, decoder.weight_format)._head
    return other


# -- trips --------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class Task:
    """A trip to be timed, again and again."""

    decoder: Decoder
    tokens: torch.Tensor
    start: int  # tokens in the cache before

    @property
    def ops(self) -> Ops:
        batch_size, n_new = self.tokens.shape
        workload: Prefill | Decode = Prefill(batch_size=batch_size, seq_len=n_new)
        if n_new == 1:
            workload = Decode(batch_size=batch_size, context=self.start + 1)
        return _rows(self.decoder, workload)


def _timed(tasks: dict[str, Task]) -> dict[str, Timed]:
    """The ops of every task's trip, and the lower quartile of each op's seconds.

    All tasks are gone through several times: a moment in which others use the machine then spoils
    some of the trips of each task, and not all of one. Raises: Unsteady.
    """
    clock = time.perf_counter
    limit = clock() + MOST_S
    for task in tasks.values():
        _trip(task)  # the first pays for what later ones find ready
    trips: dict[str, list[np.ndarray]] = {name: [] for name in tasks}
    for _ in range(N_SWEEPS):
        for name, task in tasks.items():
            deadline = clock() + TRIPS_S
            for i in range(MOST_TRIPS):
                if clock() > (limit if i < LEAST_TRIPS else min(deadline, limit)):
                    break
                trips[name].append(_trip(task))
    if not all(trips.values()):
        raise Unsteady(f"trips that take moments were not done after {MOST_S:g} s")
    quartiles = {name: np.percentile(found, 25, axis=0) for name, found in trips.items()}
    spreads = [
        np.median(np.sum(found, axis=1)) / quartiles[name].sum() for name, found in trips.items()
    ]
    if (spread := median(spreads)) > MOST_SPREAD:
        raise Unsteady(f"the same trip took {spread:.1f} times as long as its ops do")
    return {name: (task.ops, quartiles[name]) for name, task in tasks.items()}


def _trip(task: Task) -> np.ndarray:
    """Seconds of every op, shape (ops,)."""
    clock = time.perf_counter
    ends: list[float] = []
    task.decoder.length = task.start
    began = clock()
    task.decoder.trip(task.tokens, lambda _: ends.append(clock()))
    return np.diff([began, *ends])


def _rows(decoder: Decoder, workload: Prefill | Decode) -> Ops:
    return expand(answer_ops(decoder.shape, workload, decoder.weight_format))


# -- figures ------------------------------------------------------------------------------------


def _by_kind(ops: Ops, seconds: np.ndarray) -> dict[str, float]:
    """Median seconds of an op of each kind."""
    found: dict[str, list[float]] = {}
    for op, s in zip(ops, seconds, strict=True):
        found.setdefault(op.kind, []).append(float(s))
    return {kind: median(values) for kind, values in found.items()}


def _pace(empty: Timed, full: Timed, others: dict[str, float]) -> Pace:
    """From decodes with a nearly empty cache, and with a full one."""
    ops, seconds = empty
    matrices = [(op, s) for op, s in zip(ops, seconds, strict=True) if op.kind == "linear"]
    dispatch_s, rate = _line([(op.read_bytes, s) for op, s in matrices if op.id != "head"])
    kinds = _by_kind(ops, seconds)
    n_layer = sum(op.kind == "flash" for op in ops)
    more_s = n_layer * (_by_kind(*full)["flash"] - kinds["flash"])
    more_bytes = kv_cache_bytes(full[0]) - kv_cache_bytes(ops)
    return Pace(
        working_set_bytes=sum(op.read_bytes for op, _ in matrices),
        dispatch_s=others | kinds | {"linear": dispatch_s},
        read_bytes_per_s=rate,
        head_bytes_per_s=rate,
        cache_bytes_per_s=more_bytes / max(more_s, 1e-9),
    )


def _line(points: list[tuple[int, float]]) -> tuple[float, float]:
    """Seconds at no bytes, not below 0, and bytes per further second: the straight line with the
    least relative errors.
    """
    n_bytes, seconds = np.array(points, dtype=np.float64).T
    rows = np.stack([1 / seconds, n_bytes / seconds], axis=1)
    (constant, per_byte), *_ = np.linalg.lstsq(rows, np.ones(len(points)), rcond=None)
    if constant < 0 or per_byte <= 0:
        constant, per_byte = 0.0, float((seconds / n_bytes).mean())
    return float(constant), float(1 / per_byte)


def _head_rate(ops: Ops, seconds: np.ndarray, pace: Pace) -> float:
    """Bytes per second of a head of the size that vocabularies give it."""
    return ops[-1].read_bytes / _beyond(seconds[-1], pace.dispatch_s["linear"])


def _rates(ops: Ops, seconds: np.ndarray, pace: Pace) -> dict[str, float]:
    """FLOP/s of the products and of attention, and bytes per second of everything else."""
    work = {"linear": 0.0, "flash": 0.0, "rest": 0.0}
    time_s = dict(work)
    for op, s in zip(ops[:-1], seconds[:-1], strict=True):  # the head's product is with one vector
        kind = op.kind if op.kind in work else "rest"
        work[kind] += op.read_bytes + op.written_bytes if kind == "rest" else op.forward_flops
        time_s[kind] += _beyond(s, pace.dispatch_s[op.kind])
    return {kind: work[kind] / time_s[kind] for kind in work}


def _beyond(seconds: float, dispatch_s: float) -> float:
    """What an op takes besides being called; a tenth of all where noise leaves nothing."""
    return float(max(seconds - dispatch_s, 0.1 * seconds))


def _pick_s() -> float:
    """Seconds from logits to a token."""
    logits_BV = torch.randn(1, N_LOGITS, generator=torch.Generator().manual_seed(1))
    generator = torch.Generator()
    found = []
    for _ in range(20):
        began = time.perf_counter()
        probs_BV = sampling.probabilities(logits_BV, 0.0)
        sampling.draw(probs_BV, 0.0, 0, 1.0, generator)
        found.append(time.perf_counter() - began)
    return median(found)


# -- as a run -----------------------------------------------------------------------------------


class Calibrating(MeasuredRun):
    """Driven like a training run; a tick calibrates one format, `step` counts those done."""

    def __init__(self, spec: CalibrationSpec) -> None:
        super().__init__()
        self.spec = spec
        self._found: list[Calibration] = []

    @property
    def summary(self) -> str:
        return f"{len(self._found)} weight formats"

    @property
    def done(self) -> bool:
        return self.step >= len(self.spec.weight_formats)

    def tick(self) -> None:
        weight_format = self.spec.weight_formats[self.step]
        self._latest.append(Sample(step=self.step, name="weight_format", text=weight_format))
        try:
            with alone() as found:
                calibration = calibrate(weight_format, self.spec.threads)
        except Unsteady as why:
            said = f"this machine was too busy ({why}); try again, or with one thread"
            self._latest.append(Sample(step=self.step, name="unsteady", text=said))
        else:
            self._found.append(calibration)
            self._latest += _told(self.step, calibration, contended=found.contended)
        self._done += 1

    def keep(self, folder: Path) -> None:
        """Beside the runs, for every prediction on this machine."""
        for calibration in self._found:
            keep(folder.parent.parent, calibration)

    def checkpoint(self) -> dict[str, np.ndarray]:
        return {"step": np.array(0)}  # of a measurement half done nothing is kept

    def restore(self, saved: dict[str, np.ndarray]) -> None:
        self._done = int(saved["step"])


def _told(step: int, calibration: Calibration, *, contended: bool) -> Iterator[Event]:
    last = calibration.paces[-1]
    told = {
        "read_bytes_per_s": last.read_bytes_per_s,
        "cache_bytes_per_s": last.cache_bytes_per_s,
        "op_s": mean(last.dispatch_s.values()),
        "product_flops_per_s": calibration.product_flops_per_s[-1][1],
        "took_s": calibration.took_s,
        "contended": float(contended),
    }
    for name, value in told.items():
        yield Scalar(step=step, name=name, value=value)
