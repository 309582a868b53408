"""What this machine does in a second, measured in two: the figures that latency is predicted from.

Small models answer in one weight format, one after another, and every op of their trips is timed.
Their layers are copies of one, each in memory of its own: so many that all together read 1 MB,
which a cache holds, to 320 MB, which none does; layers of several widths, because a narrow matrix
is read slower than a wide one. About the median is taken of each op by itself, so that a moment
given to another process spoils one op and not the trip.

Three traps. Layers that share their weights are read from the cache, several times too fast. A bare
loop over matrices misses what other ops cost once the weights have pushed them out of the caches.
And the whole trip's time hides which part would grow with another model.
"""

import copy
import time
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import mean, median

import numpy as np
import torch

from core.answers import answer_ops, held_bytes
from core.engine import kernels, sampling
from core.engine.calibrate_step import calibrate_step
from core.engine.decoder import Decoder, Norm
from core.engine.kernels import Matrix, RawBlocks
from core.engine.measured_run import MeasuredRun
from core.engine.measuring import alone
from core.engine.models import Transformer
from core.engine.threads import threads as using
from core.events import Event, Sample, Scalar
from core.ladder import head_width, layer_shape
from core.latency import Calibration, Curve, Pace, StepCosts, fingerprint, keep, op_name, width_of
from core.machines import host
from core.ops import Decode, Op, Prefill, expand, kv_cache_bytes
from core.shapes import TransformerShape
from core.specs import MIXED_PRECISIONS, WEIGHT_FORMATS, CalibrationSpec
from core.units import GROUP

CONTEXT = 640
USUAL = 512  # the width at which any number of vectors is multiplied
OTHER = TransformerShape(  # for the kinds of op that the other has not
    vocab_size=256, n_layer=2, d_model=64, n_head=4, n_kv_head=4, d_ff=256, max_seq_len=64
)
STACKS = (  # bytes that a trip reads of weights, and of layers of which widths
    (1e6, (64, 128)),
    (4e6, (64, 128)),
    (12e6, (128, 256)),
    (40e6, (256, 384, 512)),
    (160e6, (384, 512, 1024)),
    (320e6, (512, 1024)),
)
LEAST_LAYERS = 2  # the first of them comes after another model, and its time is not used
VECTORS = (2, 8, 32, 128, 512)  # multiplied at once
SIZES_AT = 128  # vectors at which matrices of every width are compared
VECTORS_FLOPS = 1e9  # about the most of one trip of many tokens
LEAST_SWEEPS, N_SWEEPS = 2, 3
SWEEPS_S = 2.5  # no sweep but the least of them begins later
TRIPS_S = 0.02  # for one trip again and again in one sweep, or as many as
LEAST_TRIPS, MOST_TRIPS = 2, 12
PERCENTILE = 40  # of an op's seconds: near the median, and fewer of them from busy moments
MOST_S = 8.0  # for all trips
MOST_SPREAD = 3.0  # median of a trip, by what its ops take when nobody disturbs them
HEAD_ROWS = 16_384
EMPTY = 16  # tokens in a cache that is as good as empty
FILLED = (128, CONTEXT)  # tokens at which reading keys and values is timed
LEAST_PROMPT = 32  # tokens, to tell how fast attention over a whole prompt is
N_LOGITS = 49_152
TRAINED = set(MIXED_PRECISIONS) & set(WEIGHT_FORMATS)

Ops = tuple[Op, ...]
Timed = tuple[Ops, np.ndarray]  # seconds of each


class Unsteady(RuntimeError):
    """The machine is too busy to be calibrated: several threads that wait for each other on cores
    that others use take a hundred times as long as alone.
    """


def calibrate(weight_format: str, threads: int) -> Calibration:
    """2 to 4 s. Raises: Unsteady."""
    with using(threads):
        return _measured(weight_format, threads)


def _measured(weight_format: str, threads: int) -> Calibration:
    machine = host()
    began, unix_s = time.perf_counter(), time.time()
    stacks = _stacks(weight_format)
    widths = {decoder.shape.d_model: decoder for stack in stacks for decoder in stack}
    usual = widths.get(USUAL) or stacks[-1][-1]

    tasks = {"other": Task(decoders=(random_decoder(OTHER, weight_format),), start=EMPTY)}
    tasks["head"] = Task(decoders=(*stacks[-1], _with_head(usual)), start=EMPTY)
    for i, stack in enumerate(stacks):
        tasks[f"empty {i}"] = Task(decoders=stack, start=EMPTY)
        for n in FILLED:
            tasks[f"filled {i} {n}"] = Task(decoders=stack, start=n - 1)
    for n in VECTORS:
        tasks[f"vectors {n}"] = _of_many(usual, n)
    for d, decoder in widths.items():
        tasks[f"width {d}"] = _of_many(decoder, SIZES_AT)
    timed = _timed(tasks)

    others = _by_name(zip(*timed["other"], strict=True))
    start_s = min(float(s) for op, s in zip(*timed["empty 0"], strict=True) if op.kind == "linear")
    (head_bytes, head_s) = timed["head"][0][-1].read_bytes, float(timed["head"][1][-1])
    paces = [
        _pace(
            timed[f"empty {i}"],
            {n: timed[f"filled {i} {n}"] for n in FILLED},
            others | {"linear": ((0.0, start_s),)},
            (head_bytes, head_s),
        )
        for i in range(len(stacks))
    ]
    many = {n: timed[f"vectors {n}"] for n in VECTORS}
    by_size = _by_size([timed[f"width {d}"] for d in widths], start_s)
    usual_rate = _product_rate(*timed[f"width {usual.shape.d_model}"], start_s)
    n_head_numbers = usual.shape.d_head
    return Calibration(
        weight_format=weight_format,
        threads=threads,
        machine=fingerprint(),
        cpu=machine["cpu"],
        measured_unix_s=unix_s,
        took_s=time.perf_counter() - began,
        load_1min=machine["load_1min"],
        paces=tuple(paces),
        product_flops_per_s=tuple((float(n), _product_rate(*many[n], start_s)) for n in VECTORS),
        size_share=tuple((size, rate / usual_rate) for size, rate in by_size),
        scores_per_s=tuple(
            (float(n), _score_rate(*many[n], n_head_numbers, paces[-1]))
            for n in VECTORS
            if n >= LEAST_PROMPT
        ),
        moved=_moved([*many.values(), *(timed[f"width {d}"] for d in widths)]),
        pick_s_per_logit=_pick_s() / N_LOGITS,
    )


# -- the model ----------------------------------------------------------------------------------


def random_decoder(
    shape: TransformerShape, weight_format: str, *, context: int | None = None
) -> Decoder:
    """One layer of a shape, however many it has, with random weights; those of a file in blocks
    that say nothing.
    """
    state = Transformer(replace(shape, n_layer=1), torch.Generator().manual_seed(1)).state_dict()
    raw = {name: _blocks(name, t) for name, t in state.items()} if weight_format == "file" else None
    one = replace(shape, n_layer=1)
    return Decoder(one, state, weight_format, context=context or shape.max_seq_len, raw=raw)


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


def deepened(decoder: Decoder, n_layer: int) -> Decoder:
    """The first layer n times, each time in memory of its own."""
    other = copy.copy(decoder)
    other.shape = replace(decoder.shape, n_layer=n_layer)
    first = decoder._layers[0]
    other._layers = [
        replace(
            first,
            attn_norm=_norm_elsewhere(first.attn_norm),
            mlp_norm=_norm_elsewhere(first.mlp_norm),
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


def _norm_elsewhere(norm: Norm) -> Norm:
    weight, bias = norm
    return weight.clone(), None if bias is None else bias.clone()


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


def _of_width(d_model: int) -> TransformerShape:
    """A layer of the ladder, with about its vocabulary."""
    return replace(
        layer_shape(d_model, head_width(d_model), n_layer=1, vocab_size=4 * d_model),
        max_seq_len=CONTEXT,
    )


def _stacks(weight_format: str) -> list[tuple[Decoder, ...]]:
    """Models that are run through one after another, so that a trip reads each working set."""
    found: dict[int, Decoder] = {}
    for d in sorted({d for _, widths in STACKS for d in widths}):
        found[d] = random_decoder(_of_width(d), weight_format)
    # What is written out before it is multiplied is never read at the speed of memory.
    real = all(matrix.real for decoder in found.values() for matrix in decoder.matrices)
    stacks: list[tuple[Decoder, ...]] = []
    deepest: dict[int, Decoder] = {}
    for n_bytes, widths in reversed(STACKS if real else STACKS[:3]):
        stack = []
        for d in widths:
            one, two = (held_bytes(replace(_of_width(d), n_layer=n), weight_format) for n in (1, 2))
            more = round((n_bytes / len(widths) - one) / (two - one))
            n_layer = max(LEAST_LAYERS, 1 + more)
            if n_layer > (deepest[d].shape.n_layer if d in deepest else 0):
                deepest[d] = deepened(found[d], n_layer)
            stack.append(_shallow(deepest[d], n_layer))
        stacks.append(tuple(stack))
    return stacks[::-1]


def _of_many(decoder: Decoder, n_tokens: int) -> "Task":
    """So many tokens through as many of its layers as a moment allows."""
    shape = replace(decoder.shape, n_layer=1, vocab_size=1)
    flops = 2 * n_tokens * (shape.n_params - 2 * shape.d_model)
    n_layer = min(decoder.shape.n_layer, max(1, int(VECTORS_FLOPS / flops)))
    return Task(decoders=(_shallow(decoder, n_layer),), n_tokens=n_tokens, start=0)


def _with_head(decoder: Decoder) -> Decoder:
    """The same layers under a head of the size that vocabularies give it."""
    other = copy.copy(decoder)
    other.shape = replace(decoder.shape, vocab_size=HEAD_ROWS)
    thin = replace(other.shape, n_layer=1, d_ff=32)
    other._head = random_decoder(thin, decoder.weight_format)._head
    return other


# -- trips --------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class Task:
    """A trip to be timed, again and again: through one model after another."""

    decoders: tuple[Decoder, ...]
    n_tokens: int = 1
    start: int  # tokens in the cache before

    @property
    def tokens(self) -> torch.Tensor:
        return torch.arange(self.n_tokens)[None] % self.decoders[0].shape.vocab_size

    @property
    def ops(self) -> Ops:
        workload: Prefill | Decode = Prefill(batch_size=1, seq_len=self.n_tokens)
        if self.n_tokens == 1:
            workload = Decode(batch_size=1, context=self.start + 1)
        return tuple(op for decoder in self.decoders for op in _rows(decoder, workload))


def _timed(tasks: dict[str, Task]) -> dict[str, Timed]:
    """The ops of every task's trip, and about the median of each op's seconds.

    All tasks are gone through several times: a moment in which others use the machine then spoils
    some of the trips of each task, and not all of one. Raises: Unsteady.
    """
    clock = time.perf_counter
    limit = clock() + MOST_S
    for task in tasks.values():
        _trip(task)  # the first pays for what later ones find ready
    trips: dict[str, list[np.ndarray]] = {name: [] for name in tasks}
    for sweep in range(N_SWEEPS):
        if sweep >= LEAST_SWEEPS and clock() > limit - MOST_S + SWEEPS_S:
            break
        for name, task in tasks.items():
            deadline = clock() + TRIPS_S
            if not (trips[name] and trips[name][-1].sum() > TRIPS_S):
                _trip(task)  # others have used the caches meanwhile
            for i in range(MOST_TRIPS):
                if clock() > (limit if i < LEAST_TRIPS else min(deadline, limit)):
                    break
                trips[name].append(_trip(task))
    if not all(trips.values()):
        raise Unsteady(f"trips that take moments were not done after {MOST_S:g} s")
    usual = {name: np.percentile(found, PERCENTILE, axis=0) for name, found in trips.items()}
    spreads = [
        np.median(np.sum(found, axis=1)) / np.min(found, axis=0).sum() for found in trips.values()
    ]
    if (spread := median(spreads)) > MOST_SPREAD:
        raise Unsteady(f"the same trip took {spread:.1f} times as long as its ops do")
    return {name: (task.ops, usual[name]) for name, task in tasks.items()}


def _trip(task: Task) -> np.ndarray:
    """Seconds of every op, shape (ops,)."""
    clock = time.perf_counter
    tokens = task.tokens
    seconds = []
    for decoder in task.decoders:
        ends: list[float] = []
        decoder.length = task.start
        began = clock()
        decoder.trip(tokens, lambda _, ends=ends: ends.append(clock()))
        seconds.append(np.diff([began, *ends]))
    return np.concatenate(seconds)


def _rows(decoder: Decoder, workload: Prefill | Decode) -> Ops:
    return expand(answer_ops(decoder.shape, workload, decoder.weight_format))


# -- figures ------------------------------------------------------------------------------------


def _first_layer(op: Op) -> bool:
    return op.id.startswith("blocks.0.")


def _by_name(timed: Iterable[tuple[Op, float]]) -> dict[str, Curve]:
    """Median seconds of an op of each name, by the numbers it gives for a token."""
    found: dict[str, list[tuple[float, float]]] = {}
    for op, s in timed:
        found.setdefault(op_name(op), []).append((width_of(op), float(s)))
    return {name: _curve(points) for name, points in found.items()}


def _curve(points: Iterable[tuple[float, float]]) -> Curve:
    """The median of all points at each x."""
    found: dict[float, list[float]] = {}
    for x, y in points:
        found.setdefault(float(x), []).append(y)
    return tuple((x, median(found[x])) for x in sorted(found))


def _pace(
    empty: Timed,
    filled: dict[int, Timed],
    others: dict[str, Curve],
    large_head: tuple[float, float],
) -> Pace:
    """From decodes with a nearly empty cache, and with so many tokens in it."""
    ops, seconds = empty
    settled = [(op, float(s)) for op, s in zip(*empty, strict=True) if not _first_layer(op)]
    matrices = [(op, s) for op, s in settled if op.kind == "linear"]
    names = _by_name(settled)
    attention = [i for i, op in enumerate(ops) if op.kind == "flash"]
    rates = [
        (float(n), kv_cache_bytes(of_n) / max(sum(s[i] - seconds[i] for i in attention), 1e-9))
        for n, (of_n, s) in filled.items()
    ]
    heads = [(op.read_bytes, s) for op, s in matrices if op.id == "head"]
    return Pace(
        working_set_bytes=sum(op.read_bytes for op in ops if op.kind == "linear"),
        ops=names | others | {name: names[name] for name in names.keys() - {"linear"}},
        products=_curve((op.read_bytes, s) for op, s in matrices if op.id != "head"),
        heads=_curve([*heads, large_head]),
        cache_bytes_per_s=tuple(rates),
    )


def _product_rate(ops: Ops, seconds: np.ndarray, start_s: float) -> float:
    """FLOP/s of the layers' products."""
    products = [
        (op.forward_flops, _beyond(s, start_s))
        for op, s in zip(ops, seconds, strict=True)
        if op.kind == "linear" and op.id != "head"  # the head's is with one vector
    ]
    flops, took = zip(*products, strict=True)
    return sum(flops) / sum(took)


def _by_size(timed: Sequence[Timed], start_s: float) -> Curve:
    """FLOP/s of products with several vectors at once, by the matrix's numbers."""
    return _curve(
        (op.n_params, op.forward_flops / _beyond(s, start_s))
        for ops, seconds in timed
        for op, s in zip(ops, seconds, strict=True)
        if op.kind == "linear" and op.id != "head"
    )


def _score_rate(ops: Ops, seconds: np.ndarray, d_head: int, pace: Pace) -> float:
    """Scores per second of attention over a whole prompt."""
    found = [(op, s) for op, s in zip(ops, seconds, strict=True) if op.kind == "flash"]
    scores = sum(op.forward_flops for op, _ in found) / (4 * d_head)
    return scores / sum(_beyond(s, pace.op_s(op)) for op, s in found)


def _moved(timed: Iterable[Timed]) -> dict[str, Curve]:
    """Seconds of what is no product over several tokens, by name, by the bytes it moves."""
    found: dict[str, list[tuple[float, float]]] = {}
    for ops, seconds in timed:
        for op, s in zip(ops, seconds, strict=True):
            if op.kind not in ("linear", "flash"):
                n_bytes = float(op.read_bytes + op.written_bytes)
                found.setdefault(op_name(op), []).append((n_bytes, float(s)))
    return {name: _curve(points) for name, points in found.items()}


def _beyond(seconds: float, start_s: float) -> float:
    """What an op takes besides being started; a tenth of all where noise leaves nothing."""
    return float(max(seconds - start_s, 0.1 * seconds))


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
    """Driven like a training run; a tick calibrates one format, `step` counts those done. With a
    format that models are trained in, training steps are timed too.
    """

    def __init__(self, spec: CalibrationSpec) -> None:
        super().__init__()
        self.spec = spec
        self._found: list[Calibration] = []
        self._steps: list[StepCosts] = []

    @property
    def summary(self) -> str:
        n_steps = f", {len(self._steps)} precisions of training" if self._steps else ""
        return f"{len(self._found)} weight formats{n_steps}"

    @property
    def done(self) -> bool:
        return self.step >= len(self.spec.weight_formats)

    def tick(self) -> None:
        weight_format = self.spec.weight_formats[self.step]
        self._latest.append(Sample(step=self.step, name="weight_format", text=weight_format))
        try:
            with alone() as found:
                calibration = calibrate(weight_format, self.spec.threads)
                if weight_format in TRAINED:
                    self._steps.append(calibrate_step(weight_format, self.spec.threads))
        except Unsteady as why:
            said = f"this machine was too busy ({why}); try again, or with one thread"
            self._latest.append(Sample(step=self.step, name="unsteady", text=said))
        else:
            self._found.append(calibration)
            self._latest += _told(self.step, calibration, contended=found.contended)
        self._done += 1

    def keep(self, folder: Path) -> None:
        """Beside the runs, for every prediction on this machine."""
        for calibration in (*self._found, *self._steps):
            keep(folder.parent.parent, calibration)

    def checkpoint(self) -> dict[str, np.ndarray]:
        return {"step": np.array(0)}  # of a measurement half done nothing is kept

    def restore(self, saved: dict[str, np.ndarray]) -> None:
        self._done = int(saved["step"])


def _told(step: int, calibration: Calibration, *, contended: bool) -> Iterator[Event]:
    last = calibration.paces[-1]
    told = {
        "read_bytes_per_s": last.read_bytes_per_s,
        "cache_bytes_per_s": last.cache_bytes_per_s[-1][1],
        "op_s": mean(curve[0][1] for curve in last.ops.values()),
        "product_flops_per_s": calibration.product_flops_per_s[-1][1],
        "took_s": calibration.took_s,
        "contended": float(contended),
    }
    for name, value in told.items():
        yield Scalar(step=step, name=name, value=value)
