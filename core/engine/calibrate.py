"""What this machine does in a second, measured in two: the figures that latency is predicted from.

A small model of the usual shape answers in one weight format, and every op of its trips is timed.
Its layers are copies of one, each in memory of its own: so many that a trip reads 8, 32 or 128 MB,
more than the caches hold. Medians are taken of each op by itself, so that a moment given to another
process spoils one op and not the trip.

Three traps. Layers that share their weights are read from the cache, several times too fast. A bare
loop over matrices misses what other ops cost once the weights have pushed them out of the caches.
And the whole trip's time hides which part would grow with another model.
"""

import copy
import math
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from pathlib import Path
from statistics import mean, median

import numpy as np
import torch

from core.answers import answer_ops, held_bytes
from core.engine import kernels, sampling
from core.engine.decoder import Decoder
from core.engine.kernels import Matrix, RawBlocks
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
WIDTH_FLOPS = 5e9  # most of one trip of many tokens
TRIP_S = 0.25  # for the trips of one figure, or as many as
LEAST_TRIPS, MOST_TRIPS = 3, 30
HEAD_ROWS = 16_384
N_LOGITS = 49_152

Ops = tuple[Op, ...]


def calibrate(weight_format: str, threads: int) -> Calibration:
    """1 to 3 s."""
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
    layer_bytes = held_bytes(replace(SHAPE, n_layer=2), weight_format)
    layer_bytes -= held_bytes(SHAPE, weight_format)
    rest = held_bytes(SHAPE, weight_format) - layer_bytes
    # What is written out before it is multiplied is never read at the speed of memory.
    real = all(matrix.real for matrix in base.matrices)
    sizes = WORKING_SETS if real else WORKING_SETS[:1]
    depths = sorted({max(1, round((size - rest) / layer_bytes)) for size in sizes})
    deepest = _deepened(base, depths[-1])
    others = _dispatch(_decoder(OTHER, weight_format), OTHER)
    paces = [_pace(_shallow(deepest, n), others) for n in depths]
    head_share = _head_rate(deepest, paces[-1]) / paces[-1].read_bytes_per_s
    paces = [replace(p, head_bytes_per_s=p.read_bytes_per_s * head_share) for p in paces]
    products, attention, moved = _whole_prompts(deepest, paces[-1])
    return Calibration(
        weight_format=weight_format,
        threads=threads,
        machine=fingerprint(),
        cpu=machine["cpu"],
        measured_unix_s=unix_s,
        took_s=time.perf_counter() - began,
        load_1min=machine["load_1min"],
        paces=tuple(paces),
        product_flops_per_s=products,
        attention_flops_per_s=attention,
        moved_bytes_per_s=moved,
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


# -- trips --------------------------------------------------------------------------------------


def _op_s(decoder: Decoder, tokens: torch.Tensor, start: int) -> np.ndarray:
    """Seconds of every op of a trip, the median of several; shape (ops,)."""
    trips: list[np.ndarray] = []
    clock = time.perf_counter
    deadline = math.inf
    for i in range(MOST_TRIPS + 1):
        decoder.length = start
        ends: list[float] = []
        began = clock()
        decoder.trip(tokens, lambda _: ends.append(clock()))  # noqa: B023: called at once
        if i == 0:  # the first pays for what later ones find ready
            deadline = clock() + TRIP_S
            continue
        trips.append(np.diff([began, *ends]))
        if i >= LEAST_TRIPS and clock() > deadline:
            break
    return np.percentile(trips, 25, axis=0)


def _pace(decoder: Decoder, others: dict[str, float]) -> Pace:
    """Decodes with a nearly empty cache, and with a full one."""
    shape, token = decoder.shape, torch.tensor([[7]])
    empty, full = 16, decoder.context - 1
    ops = _rows(decoder, Decode(batch_size=1, context=empty + 1))
    seconds = _op_s(decoder, token, empty)
    matrices = [
        (op, s) for op, s in zip(ops, seconds, strict=True) if op.kind == "linear"
    ]
    dispatch_s, rate = _line([(op.read_bytes, s) for op, s in matrices if op.id != "head"])
    dispatch = others | _by_kind(ops, seconds) | {"linear": dispatch_s}
    more_s = _flash_s(decoder, token, full) - _flash_s(decoder, token, empty)
    more_bytes = kv_cache_bytes(_rows(decoder, Decode(batch_size=1, context=full - empty)))
    return Pace(
        working_set_bytes=sum(op.read_bytes for op, _ in matrices),
        dispatch_s=dispatch,
        read_bytes_per_s=rate,
        head_bytes_per_s=rate,
        cache_bytes_per_s=more_bytes / max(more_s * shape.n_layer, 1e-9),
    )


def _head_rate(decoder: Decoder, pace: Pace) -> float:
    """Bytes per second of a larger head."""
    other = copy.copy(decoder)
    other.shape = replace(decoder.shape, vocab_size=HEAD_ROWS)
    part = _decoder(replace(other.shape, n_layer=1, d_ff=32), decoder.weight_format)
    other._head = part._head
    seconds = _op_s(other, torch.tensor([[7]]), 16)[-1] - pace.dispatch_s["linear"]
    return _rows(other, _ONE)[-1].read_bytes / float(seconds)


def _rows(decoder: Decoder, workload: Prefill | Decode) -> Ops:
    return expand(answer_ops(decoder.shape, workload, decoder.weight_format))


def _flash_s(decoder: Decoder, token: torch.Tensor, start: int) -> float:
    """Seconds of attention in one layer."""
    ops = _rows(decoder, Decode(batch_size=1, context=start + 1))
    return _by_kind(ops, _op_s(decoder, token, start))["flash"]


def _by_kind(ops: Iterable[Op], seconds: Iterable[float]) -> dict[str, float]:
    found: dict[str, list[float]] = {}
    for op, s in zip(ops, seconds, strict=True):
        found.setdefault(op.kind, []).append(float(s))
    return {kind: median(values) for kind, values in found.items()}


def _dispatch(decoder: Decoder, shape: TransformerShape) -> dict[str, float]:
    """Of a model so small that nothing but dispatch takes time."""
    return _by_kind(
        _rows(decoder, Decode(batch_size=1, context=17)), _op_s(decoder, torch.tensor([[7]]), 16)
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


def _whole_prompts(
    decoder: Decoder, pace: Pace
) -> tuple[tuple[tuple[float, float], ...], tuple[tuple[float, float], ...], float]:
    """FLOP/s of products and of attention at several widths, bytes per second of the rest."""
    products: list[tuple[float, float]] = []
    attention: list[tuple[float, float]] = []
    moved: list[float] = []
    layer_numbers = sum(op.n_params for op in _rows(_shallow(decoder, 1), _ONE)[1:])
    for width in WIDTHS:
        n_layer = min(len(decoder._layers), max(1, int(WIDTH_FLOPS / (2 * width * layer_numbers))))
        part = _shallow(decoder, n_layer)
        ops = _rows(part, Prefill(batch_size=1, seq_len=width))
        tokens = torch.arange(width)[None] % SHAPE.vocab_size
        work: dict[str, list[float]] = {"linear": [0, 0], "flash": [0, 0], "rest": [0, 0]}
        for op, s in zip(ops, _op_s(part, tokens, 0), strict=True):
            kind = op.kind if op.kind in work else "rest"
            if op.id == "head":  # of one vector
                continue
            own = op.read_bytes + op.written_bytes if kind == "rest" else op.forward_flops
            work[kind][0] += own
            work[kind][1] += max(float(s) - pace.dispatch_s[op.kind], 0.1 * float(s))
        rates = {kind: amount / seconds for kind, (amount, seconds) in work.items()}
        products.append((float(width), rates["linear"]))
        if width >= 32:
            attention.append((float(width), rates["flash"]))
            moved.append(rates["rest"])
    return tuple(products), tuple(attention), moved[-1]


_ONE = Decode(batch_size=1, context=1)


def _pick_s() -> float:
    """From logits to a token."""
    logits_BV = torch.randn(1, N_LOGITS, generator=torch.Generator().manual_seed(1))
    generator = torch.Generator()

    def pick() -> None:
        probs_BV = sampling.probabilities(logits_BV, 0.0)
        sampling.draw(probs_BV, 0.0, 0, 1.0, generator)

    pick()
    return median(_seconds(pick) for _ in range(20))


def _seconds(work: Callable[[], object]) -> float:
    began = time.perf_counter()
    work()
    return time.perf_counter() - began


# -- as a run -----------------------------------------------------------------------------------


class Calibrating:
    """Driven like a training run; a tick calibrates one format, `step` counts those done."""

    def __init__(self, spec: CalibrationSpec) -> None:
        self.spec = spec
        self.step = 0
        self._found: list[Calibration] = []
        self._latest: list[Event] = []

    @property
    def epoch(self) -> int:
        return self.step

    @property
    def summary(self) -> str:
        return f"{self.step} weight formats"

    @property
    def moment(self) -> int:
        """Changes whenever there is something new to tell."""
        return self.step

    @property
    def done(self) -> bool:
        return self.step >= len(self.spec.weight_formats)

    @property
    def last_tick_is_next(self) -> bool:
        return False

    def tick(self) -> None:
        with alone() as found:
            calibration = calibrate(self.spec.weight_formats[self.step], self.spec.threads)
        self._found.append(calibration)
        self._latest += _told(self.step, calibration, contended=found.contended)
        self.step += 1

    def opening(self) -> Iterator[Event]:
        yield from ()

    def recorded_step(self) -> Iterator[Event]:
        yield from ()

    def wants_frame(self, ticks_per_s: float = math.inf) -> bool:
        return True

    def frame(self) -> Iterator[Event]:
        yield from self._latest
        self._latest = []

    def keep(self, folder: Path) -> None:
        """Beside the runs, for every prediction on this machine."""
        for calibration in self._found:
            keep(folder.parent.parent, calibration)

    def checkpoint(self) -> dict[str, np.ndarray]:
        return {"step": np.array(0)}  # of a measurement half done nothing is kept

    def restore(self, saved: dict[str, np.ndarray]) -> None:
        self.step = int(saved["step"])


def _told(step: int, calibration: Calibration, *, contended: bool) -> Iterator[Event]:
    yield Sample(step=step, name="weight_format", text=calibration.weight_format)
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
