"""How long an answer takes: what was measured of this machine once, times the op table.

A trip of one token reads every weight once and computes little, so its time is that of reading,
plus what each op costs however little it does. A trip of many tokens computes.

Source: the roofline view of inference; Pope et al. 2022, "Efficiently Scaling Transformer
Inference" (arXiv:2211.05102), section 2. Checked: tests/core/test_latency.py, that each figure is a
sum over the op table; how far predictions are off is printed by `python -m core.bench` and told
beside each of them.
"""

import contextlib
import dataclasses
import hashlib
import json
import math
import secrets
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from core import recordings
from core.answers import answer_ops
from core.machines import host
from core.memory import Prediction
from core.ops import Decode, Op, Prefill, kv_cache_bytes
from core.shapes import TransformerShape
from core.specs import GenerateSpec

FOLDER = "calibrations"  # beside the runs
SHIPPED = recordings.FOLDER  # of the machine that made them
LAYOUT = 1  # one more whenever a calibration of before would be read wrongly
OVERHEAD_BOUND_BYTES = 60e6  # with fewer bytes of weights the ops themselves take most of the time

Curve = tuple[tuple[float, float], ...]  # (x, y), x rising


@dataclass(frozen=True, slots=True, kw_only=True)
class Pace:
    """Trips of one token through a model of some size: what does not fit a cache is read slower,
    and costs every op more.
    """

    working_set_bytes: int  # weights that a trip reads
    dispatch_s: dict[str, float]  # of one op, by kind, apart from reading weights and cache
    read_bytes_per_s: float  # of weights in the layers
    head_bytes_per_s: float  # of the head's, which may be stored otherwise
    cache_bytes_per_s: float  # of keys and values

    def op_s(self, kind: str) -> float:
        """Of one op; of a kind that was not measured, what the simplest takes."""
        return self.dispatch_s.get(kind, self.dispatch_s["add"])


@dataclass(frozen=True, slots=True, kw_only=True)
class Calibration:
    """What was measured of one machine in one weight format with so many threads."""

    weight_format: str
    threads: int
    machine: str  # `fingerprint()` of where it was measured
    cpu: str
    measured_unix_s: float
    took_s: float
    load_1min: float  # when it began
    paces: tuple[Pace, ...]  # by rising working set
    product_flops_per_s: Curve  # of matrix products, by vectors at once, 2 or more
    attention_flops_per_s: Curve  # of attention over a whole prompt, by its tokens
    moved_bytes_per_s: float  # of everything else over a whole prompt, read and written
    pick_s_per_logit: float  # from logits to the likeliest token

    def to_json(self) -> dict[str, Any]:
        return {"layout": LAYOUT, **dataclasses.asdict(self)}

    @classmethod
    def from_json(cls, record: dict[str, Any]) -> "Calibration":
        """Raises: ValueError, KeyError or TypeError if it is not one of this layout."""
        values = dict(record)
        if values.pop("layout") != LAYOUT:
            raise ValueError(f"layout={record['layout']!r} is not {LAYOUT}; measure again")
        values["paces"] = tuple(Pace(**pace) for pace in values["paces"])
        for name in ("product_flops_per_s", "attention_flops_per_s"):
            values[name] = tuple((float(x), float(y)) for x, y in values[name])
        return cls(**values)

    def product_rate(self, n_vectors: float) -> float:
        """FLOP/s of matrix products with so many vectors at once."""
        return _rate(self.product_flops_per_s, max(2, n_vectors))

    def pace(self, working_set_bytes: float) -> Pace:
        """Of a model of this size: between those measured, beyond them the last."""
        log = math.log(max(working_set_bytes, 1.0))
        sizes = [math.log(pace.working_set_bytes) for pace in self.paces]

        def between(figure: Callable[[Pace], float]) -> float:
            return _interpolated(zip(sizes, map(figure, self.paces), strict=True), log)

        kinds = self.paces[-1].dispatch_s
        return Pace(
            working_set_bytes=int(working_set_bytes),
            dispatch_s={k: between(lambda p, k=k: p.dispatch_s[k]) for k in kinds},
            # Seconds per byte are what adds up.
            read_bytes_per_s=1 / between(lambda p: 1 / p.read_bytes_per_s),
            head_bytes_per_s=1 / between(lambda p: 1 / p.head_bytes_per_s),
            cache_bytes_per_s=1 / between(lambda p: 1 / p.cache_bytes_per_s),
        )


def _interpolated(points: Iterable[tuple[float, float]], x: float) -> float:
    """On straight lines between points, beyond them the nearest."""
    before: tuple[float, float] | None = None
    for at, y in points:
        if x <= at:
            if before is None:
                return y
            share = (x - before[0]) / (at - before[0])
            return before[1] + share * (y - before[1])
        before = (at, y)
    assert before is not None
    return before[1]


def _rate(curve: Curve, n: float) -> float:
    """FLOP/s at n vectors: seconds per vector interpolated over log n."""
    points = [(math.log(x), 1 / y) for x, y in curve]
    return 1 / _interpolated(points, math.log(max(n, 1)))


# -- keeping ------------------------------------------------------------------------------------


def fingerprint(machine: Mapping[str, Any] | None = None) -> str:
    """Names a machine (this one, or a run's) and what computes on it: another torch is another."""
    machine = machine or host()
    same = {k: machine.get(k) for k in ("cpu", "n_cores", "memory_bytes", "system", "torch")}
    return hashlib.sha256(json.dumps(same, sort_keys=True).encode()).hexdigest()[:12]


def stored(
    runs: Path, weight_format: str, threads: int, machine: Mapping[str, Any] | None = None
) -> Calibration | None:
    """The calibration of a machine (this one, or a run's) that is kept beside the runs, else the
    one that was shipped with the recordings, if there is one.
    """
    named = fingerprint(machine)
    for place in (runs, SHIPPED):
        path = _path(place, named, weight_format, threads)
        with contextlib.suppress(OSError, ValueError, KeyError, TypeError, AttributeError):
            return Calibration.from_json(json.loads(path.read_text()))
    return None


def keep(runs: Path, calibration: Calibration) -> Path:
    """Keep it in place of the one before, all or nothing. Raises: OSError."""
    path = _path(runs, calibration.machine, calibration.weight_format, calibration.threads)
    path.parent.mkdir(parents=True, exist_ok=True)
    partial = path.with_name(f".{path.name}.{secrets.token_hex(4)}")
    try:
        partial.write_text(json.dumps(calibration.to_json(), indent=1))
        partial.replace(path)
    finally:
        partial.unlink(missing_ok=True)
    return path


def _path(runs: Path, machine: str, weight_format: str, threads: int) -> Path:
    return runs / FOLDER / f"{machine}.{weight_format}.{threads}.json"


# -- predicting ---------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class Trip:
    """Seconds of one trip through the model, by what they go to."""

    overhead_s: float  # ops, however little they do, and picking the token
    weights_s: float  # reading them; of many tokens, multiplying with them
    cache_s: float  # reading keys and values; of many tokens, all of attention
    moved_s: float  # of many tokens: everything else
    n_ops: int
    weights_bytes: int  # that the products read
    cache_bytes: int
    flops: int

    @property
    def seconds(self) -> float:
        return self.overhead_s + self.weights_s + self.cache_s + self.moved_s


def trip(
    shape: TransformerShape,
    workload: Prefill | Decode,
    calibration: Calibration,
) -> Trip:
    """A trip as a sum over the rows of its op table.

    Ignores: drawing among many tokens (0.1 to 4 ms), which only a temperature above 0 does.
    """
    ops = answer_ops(shape, workload, calibration.weight_format)
    pace = calibration.pace(_total(ops, lambda op: op.read_bytes if op.kind == "linear" else 0))
    many = not isinstance(workload, Decode)
    overhead_s = weights_s = cache_s = moved_s = 0.0
    for op in ops:
        overhead_s += op.repeat * pace.op_s(op.kind)
        if op.kind == "linear":
            weights_s += op.repeat * _product_s(op, pace, calibration)
        elif many and op.kind == "flash":
            n_new = op.output_shape[1]
            rate = _rate(calibration.attention_flops_per_s, n_new)
            cache_s += op.repeat * op.forward_flops / rate
        elif many:
            n_bytes = op.read_bytes + op.written_bytes
            moved_s += op.repeat * n_bytes / calibration.moved_bytes_per_s
    cache_bytes = kv_cache_bytes(ops)
    if not many:
        cache_s = cache_bytes / pace.cache_bytes_per_s
    overhead_s += workload.batch_size * shape.vocab_size * calibration.pick_s_per_logit
    return Trip(
        overhead_s=overhead_s,
        weights_s=weights_s,
        cache_s=cache_s,
        moved_s=moved_s,
        n_ops=_total(ops, lambda op: 1),
        weights_bytes=_total(ops, lambda op: op.read_bytes if op.kind == "linear" else 0),
        cache_bytes=cache_bytes,
        flops=_total(ops, lambda op: op.forward_flops),
    )


def _total(ops: Sequence[Op], figure: Callable[[Op], int]) -> int:
    return sum(op.repeat * figure(op) for op in ops)


def _product_s(op: Op, pace: Pace, calibration: Calibration) -> float:
    """One matrix with one vector: reading it; with several: the rate of so many."""
    n_vectors = math.prod(op.output_shape[:-1])
    if n_vectors > 1:
        return op.forward_flops / _rate(calibration.product_flops_per_s, n_vectors)
    rate = pace.head_bytes_per_s if op.id == "head" else pace.read_bytes_per_s
    return op.read_bytes / rate


def predict_answer(
    shape: TransformerShape, spec: GenerateSpec, n_prompt: int, calibration: Calibration
) -> dict[str, Prediction]:
    """Time to the first token, time per further token and what it goes to, tokens per second.

    A further token is that in the middle of the answer. `n_prompt`: tokens of the prompt.
    """
    assert calibration.weight_format == spec.weight_format, calibration.weight_format
    n_prompt = max(1, n_prompt)
    # The last new token is not read any more.
    n_new = max(1, min(spec.max_new_tokens, spec.context - n_prompt + 1))
    middle = n_prompt + n_new // 2
    first = trip(shape, _reading(spec, n_prompt), calibration)
    if spec.cache:
        further = trip(shape, Decode(batch_size=spec.batch_size, context=middle), calibration)
    else:
        further = trip(shape, _reading(spec, middle), calibration)
    predictions = (
        _ttft(first, n_prompt, spec.batch_size),
        *_tpot(further, shape, spec, middle, calibration),
        _throughput(spec, n_new, first.seconds, further.seconds),
    )
    return {p.quantity: p for p in predictions}


def _reading(spec: GenerateSpec, n_tokens: int) -> Prefill | Decode:
    """A whole text at once; one token alone is multiplied like any single one."""
    if n_tokens * spec.batch_size == 1:
        return Decode(batch_size=1, context=1)
    return Prefill(batch_size=spec.batch_size, seq_len=n_tokens)


def _ttft(first: Trip, n_prompt: int, batch_size: int) -> Prediction:
    value = first.seconds
    parts = (first.overhead_s, first.weights_s, first.cache_s, first.moved_s)
    sequences = f"{batch_size} × " if batch_size > 1 else ""
    return Prediction(
        quantity="ttft_s",
        value=value,
        inputs=(
            ("M, tokens read at once", f"{sequences}{n_prompt}"),
            ("FLOPs", f"{first.flops}"),
            ("o, overhead of the ops", f"{_s(first.overhead_s)} s ({first.n_ops} ops)"),
            ("p, matrix products", f"{_s(first.weights_s)} s"),
            ("a, attention", f"{_s(first.cache_s)} s"),
            ("e, everything else", f"{_s(first.moved_s)} s"),
        ),
        arithmetic=f"{' + '.join(map(_s, parts))} = {_s(value)}",
    )


def _tpot(
    further: Trip,
    shape: TransformerShape,
    spec: GenerateSpec,
    middle: int,
    calibration: Calibration,
) -> tuple[Prediction, ...]:
    """The time of a further token, and its parts."""
    value = further.seconds
    parts = [further.overhead_s, further.weights_s, further.cache_s]
    pace = calibration.pace(further.weights_bytes)
    one = further.weights_s / max(further.weights_bytes, 1)
    if further.moved_s:
        parts.append(further.moved_s)
    return (
        Prediction(
            quantity="tpot_s",
            value=value,
            inputs=(
                ("o, overhead of the ops", f"{_s(further.overhead_s)} s"),
                ("w, weights", f"{_s(further.weights_s)} s"),
                ("c, keys and values", f"{_s(further.cache_s)} s"),
                *((("e, everything else", f"{_s(further.moved_s)} s"),) * bool(further.moved_s)),
                ("bound by", bound_by(further)),
            ),
            arithmetic=f"{' + '.join(map(_s, parts))} = {_s(value)}",
        ),
        Prediction(
            quantity="tpot_overhead_s",
            value=further.overhead_s,
            inputs=(
                ("n, ops of a token", str(further.n_ops)),
                ("t, seconds of one op, mean", _s(further.overhead_s / further.n_ops)),
            ),
            arithmetic=f"{further.n_ops} × {_s(further.overhead_s / further.n_ops)} = "
            f"{_s(further.overhead_s)}",
        ),
        Prediction(
            quantity="tpot_weights_s",
            value=further.weights_s,
            inputs=(
                (
                    "W, bytes that the products read",
                    f"{further.weights_bytes} ({spec.weight_format})",
                ),
                ("b, bytes read per second, mean", f"{1 / one:.4g}"),
            ),
            arithmetic=f"{further.weights_bytes} / {1 / one:.4g} = {_s(further.weights_s)}",
        ),
        Prediction(
            quantity="tpot_cache_s",
            value=further.cache_s,
            inputs=(
                ("S, tokens in the middle of the answer", str(middle)),
                ("C, bytes of their keys and values", str(further.cache_bytes)),
                *((("b, bytes read per second", f"{pace.cache_bytes_per_s:.4g}"),) * spec.cache),
            ),
            arithmetic=f"{further.cache_bytes} / {pace.cache_bytes_per_s:.4g} = "
            f"{_s(further.cache_s)}"
            if spec.cache
            else f"attention over {middle} tokens: {_s(further.cache_s)}",
        ),
    )


def _throughput(spec: GenerateSpec, n_new: int, ttft_s: float, tpot_s: float) -> Prediction:
    """B × n / (time to the first + (n − 1) × time of a further)."""
    total_s = ttft_s + (n_new - 1) * tpot_s
    value = spec.batch_size * n_new / total_s
    return Prediction(
        quantity="tokens_per_s",
        value=value,
        inputs=(
            ("B, sequences", str(spec.batch_size)),
            ("n, new tokens of each", str(n_new)),
            ("time to the first", f"{_s(ttft_s)} s"),
            ("time of a further one", f"{_s(tpot_s)} s"),
        ),
        arithmetic=f"{spec.batch_size} × {n_new} / ({_s(ttft_s)} + {n_new - 1} × {_s(tpot_s)}) = "
        f"{value:.4g}",
    )


def bound_by(trip: Trip) -> str:
    """What the largest part of a trip's time goes to: overhead, weights or keys and values.

    With less than 60 MB of weights it is called overhead whatever the shares, because there they
    depend on what happens to be in the caches.
    """
    if trip.weights_bytes < OVERHEAD_BOUND_BYTES and not trip.moved_s:
        return "overhead"
    shares = {
        "overhead": trip.overhead_s,
        "weights": trip.weights_s,
        "keys and values": trip.cache_s,
    }
    return max(shares, key=lambda name: shares[name])


def _s(seconds: float) -> str:
    return f"{seconds:.3g}"
