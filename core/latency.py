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
import itertools
import json
import math
import secrets
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from core import recordings
from core.answers import answer_ops
from core.machines import host
from core.memory import Prediction
from core.ops import Decode, Op, Prefill, kv_cache_bytes
from core.shapes import TransformerShape
from core.specs import MIXED_PRECISIONS, GenerateSpec

FOLDER = "calibrations"  # beside the runs
SHIPPED = recordings.FOLDER  # of the machine that made them
LAYOUT = 2  # one more whenever a calibration of before would be read wrongly
OVERHEAD_BOUND_BYTES = 60e6  # with fewer bytes of weights the ops themselves take most of the time

Curve = tuple[tuple[float, float], ...]  # (x, y), x rising


@dataclass(frozen=True, slots=True, kw_only=True)
class Pace:
    """Trips of one token through a model of some size: what does not fit a cache is read slower,
    and costs every op more.
    """

    working_set_bytes: int  # weights that a trip reads
    ops: dict[str, Curve]  # seconds of one op, by `op_name`, by the numbers it gives for a token
    products: Curve  # seconds of a matrix of the layers with one vector, by the bytes it reads
    heads: Curve  # of the head's matrix, which may be stored otherwise
    cache_bytes_per_s: Curve  # of keys and values, by tokens of the context

    @property
    def read_bytes_per_s(self) -> float:
        """Of weights in the layers, by the largest matrix that was measured."""
        n_bytes, seconds = self.products[-1]
        return n_bytes / seconds

    def op_s(self, op: Op) -> float:
        """Of one op apart from reading weights and cache; of one that was not measured, what the
        simplest takes.
        """
        known = self.ops.get(op_name(op)) or self.ops.get(op.kind) or self.ops["add"]
        return _interpolated(known, width_of(op))

    def product_s(self, n_bytes: float, *, head: bool = False) -> float:
        """Of a matrix of so many bytes with one vector, beyond its start; larger ones are read at
        the same rate, of smaller ones than any nothing remains.
        """
        curve = self.heads if head else self.products
        most, seconds = curve[-1]
        start_s = min(self.start_s, curve[0][1])
        if n_bytes > most:
            return seconds * n_bytes / most - start_s
        return _interpolated(((0.0, start_s), *curve), n_bytes) - start_s

    def cache_s(self, cache_bytes: float, context: int) -> float:
        """Of reading the keys and values of so many tokens."""
        return cache_bytes / _rate(self.cache_bytes_per_s, context)

    @property
    def start_s(self) -> float:
        """Of a product, however little it reads."""
        return self.ops.get("linear", self.ops["add"])[0][1]


_PACE_CURVES = ("products", "heads", "cache_bytes_per_s")


def op_name(op: Op) -> str:
    """What ops of like cost share: the kind of those in a layer, the id of the few outside."""
    return op.kind if op.id.startswith("blocks.") or op.kind == "linear" else op.id


def width_of(op: Op) -> float:
    """Numbers that an op gives for each token: its last side, of RoPE's heads their sum."""
    if op.kind == "rope":
        return float(op.output_shape[-1] * op.output_shape[-2])
    return float(op.output_shape[-1]) if op.output_shape else 1.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Cost:
    """Seconds of one op in one phase of a training step, by what they grow with."""

    start_s: float
    flop_s: float  # for each floating-point operation
    number_s: float  # for each weight of a product or a table; of attention, for each score
    byte_s: float  # for each byte read or written, but for weights

    def seconds(self, flops: float, numbers: float, n_bytes: float) -> float:
        return self.start_s + flops * self.flop_s + numbers * self.number_s + n_bytes * self.byte_s


@dataclass(frozen=True, slots=True, kw_only=True)
class StepCosts:
    """What was measured of training steps on one machine in one precision with so many threads."""

    precision: str  # of matrix products
    threads: int
    machine: str
    cpu: str
    measured_unix_s: float
    took_s: float
    load_1min: float
    ops: dict[str, Cost]  # by phase and kind, as in `backward linear`
    update: Cost  # of the optimizer; a number is a tensor

    def of(self, phase: str, kind: str) -> Cost:
        """Of a kind that was not measured, what SiLU takes."""
        return self.ops.get(f"{phase} {kind}", self.ops[f"{phase} silu"])

    def to_json(self) -> dict[str, Any]:
        return {"layout": LAYOUT, **dataclasses.asdict(self)}

    @classmethod
    def from_json(cls, record: dict[str, Any]) -> "StepCosts":
        """Raises: ValueError, KeyError or TypeError if it is not one of this layout."""
        values = _of_layout(record)
        values["ops"] = {name: Cost(**cost) for name, cost in values["ops"].items()}
        values["update"] = Cost(**values["update"])
        return cls(**values)


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
    size_share: Curve  # of that, by the numbers in the matrix: narrow ones are slower
    scores_per_s: Curve  # of attention over a whole prompt, by its tokens; a query has a score
    # with every token in every head
    moved: dict[str, Curve]  # seconds of everything else over several tokens, by `op_name`, by
    # the bytes it reads and writes
    pick_s_per_logit: float  # from logits to the likeliest token
    steps: dict[str, StepCosts] = field(default_factory=dict)  # by precision; kept apart

    def to_json(self) -> dict[str, Any]:
        values = {f.name: getattr(self, f.name) for f in dataclasses.fields(self)}
        values["paces"] = [dataclasses.asdict(pace) for pace in self.paces]
        del values["steps"]
        return {"layout": LAYOUT, **values}

    @classmethod
    def from_json(cls, record: dict[str, Any]) -> "Calibration":
        """Raises: ValueError, KeyError or TypeError if it is not one of this layout."""
        values = _of_layout(record)
        values["paces"] = tuple(
            Pace(
                **pace
                | {name: _curve(pace[name]) for name in _PACE_CURVES}
                | {"ops": {name: _curve(points) for name, points in pace["ops"].items()}}
            )
            for pace in values["paces"]
        )
        for name in ("product_flops_per_s", "size_share", "scores_per_s"):
            values[name] = _curve(values[name])
        values["moved"] = {name: _curve(points) for name, points in values["moved"].items()}
        return cls(**values)

    def product_rate(self, n_vectors: float, n_numbers: float) -> float:
        """FLOP/s of a matrix of so many numbers with so many vectors at once."""
        return _rate(self.product_flops_per_s, max(2, n_vectors)) * _rate(
            self.size_share, n_numbers
        )

    def pace(self, working_set_bytes: float) -> Pace:
        """Of a model of this size: between those measured, beyond them the last."""
        log = math.log(max(working_set_bytes, 1.0))
        sizes = [math.log(pace.working_set_bytes) for pace in self.paces]

        def between(figure: Callable[[Pace], float]) -> float:
            return _interpolated(zip(sizes, map(figure, self.paces), strict=True), log)

        def curve(figure: Callable[[Pace], Curve], at: Callable[[Pace, float], float]) -> Curve:
            found = sorted({x for pace in self.paces for x, _ in figure(pace)})
            return tuple((x, between(lambda pace, x=x: at(pace, x))) for x in found)

        def of_op(name: str) -> Curve:
            return curve(
                lambda pace: pace.ops[name], lambda pace, x: _interpolated(pace.ops[name], x)
            )

        start_s = self.paces[0].start_s
        return Pace(
            working_set_bytes=int(working_set_bytes),
            ops={name: of_op(name) for name in self.paces[-1].ops},
            # Seconds are what adds up.
            products=curve(lambda p: p.products, lambda p, x: p.product_s(x) + start_s),
            heads=curve(lambda p: p.heads, lambda p, x: p.product_s(x, head=True) + start_s),
            cache_bytes_per_s=tuple(
                (n, 1 / y)
                for n, y in curve(
                    lambda p: p.cache_bytes_per_s, lambda p, n: 1 / _rate(p.cache_bytes_per_s, n)
                )
            ),
        )

    @property
    def moved_bytes_per_s(self) -> float:
        """Of the simplest op over many tokens."""
        n_bytes, seconds = self.moved["add"][-1]
        return n_bytes / seconds

    def moved_s(self, op: Op) -> float:
        """Of an op that is no product over several tokens; of one that was not measured, what the
        simplest takes.
        """
        known = self.moved.get(op_name(op)) or self.moved.get(op.kind) or self.moved["add"]
        n_bytes = op.read_bytes + op.written_bytes
        most, seconds = known[-1]
        return seconds * n_bytes / most if n_bytes > most else _interpolated(known, n_bytes)


def _of_layout(record: dict[str, Any]) -> dict[str, Any]:
    values = dict(record)
    if values.pop("layout") != LAYOUT:
        raise ValueError(f"layout={record['layout']!r} is not {LAYOUT}; measure again")
    return values


def _curve(points: Iterable[Sequence[float]]) -> Curve:
    return tuple((float(x), float(y)) for x, y in points)


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
    one that was shipped with the recordings, if there is one; with it those of training steps.
    """
    named = fingerprint(machine)
    for place in (runs, SHIPPED):
        path = _path(place, named, weight_format, threads)
        with contextlib.suppress(OSError, ValueError, KeyError, TypeError, AttributeError):
            found = Calibration.from_json(json.loads(path.read_text()))
            return replace(found, steps=stored_steps(runs, threads, machine))
    return None


def stored_steps(
    runs: Path, threads: int, machine: Mapping[str, Any] | None = None
) -> dict[str, StepCosts]:
    """What is kept, or was shipped, of training steps on a machine, by precision."""
    named = fingerprint(machine)
    found: dict[str, StepCosts] = {}
    for precision, place in itertools.product(MIXED_PRECISIONS, (SHIPPED, runs)):
        path = _path(place, named, f"step-{precision}", threads)
        with contextlib.suppress(OSError, ValueError, KeyError, TypeError, AttributeError):
            found[precision] = StepCosts.from_json(json.loads(path.read_text()))
    return found


def keep(runs: Path, calibration: Calibration | StepCosts) -> Path:
    """Keep it in place of the one before, all or nothing. Raises: OSError."""
    what = (
        calibration.weight_format
        if isinstance(calibration, Calibration)
        else f"step-{calibration.precision}"
    )
    path = _path(runs, calibration.machine, what, calibration.threads)
    path.parent.mkdir(parents=True, exist_ok=True)
    partial = path.with_name(f".{path.name}.{secrets.token_hex(4)}")
    try:
        partial.write_text(json.dumps(calibration.to_json(), indent=1))
        partial.replace(path)
    finally:
        partial.unlink(missing_ok=True)
    return path


def _path(runs: Path, machine: str, what: str, threads: int) -> Path:
    return runs / FOLDER / f"{machine}.{what}.{threads}.json"


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
        start_s = pace.start_s if op.kind == "linear" else pace.op_s(op)
        if op.kind == "linear":
            weights_s += op.repeat * _product_s(op, pace, calibration, shape.d_model)
        elif many and op.kind == "flash":
            scores = op.forward_flops / (4 * shape.d_head)
            rate = _rate(calibration.scores_per_s, op.output_shape[1])
            cache_s += op.repeat * scores / rate
        elif many:
            whole_s = calibration.moved_s(op)
            start_s = min(start_s, whole_s)
            moved_s += op.repeat * (whole_s - start_s)
        overhead_s += op.repeat * start_s
    cache_bytes = kv_cache_bytes(ops)
    if isinstance(workload, Decode):
        cache_s = pace.cache_s(cache_bytes, workload.context)
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


def _product_s(op: Op, pace: Pace, calibration: Calibration, d_model: int) -> float:
    """What a product takes beyond its start. With one vector: reading the matrix; with several: the
    rate of so many.
    """
    n_vectors = math.prod(op.output_shape[:-1])
    if n_vectors > 1:
        n_numbers = op.n_params or op.output_shape[-1] * d_model  # a tied head has no own
        return op.forward_flops / calibration.product_rate(n_vectors, n_numbers)
    return max(0.0, pace.product_s(op.read_bytes, head=op.id == "head"))


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
    one = further.weights_s / max(further.weights_bytes, 1)
    cache_rate = further.cache_bytes / max(further.cache_s, 1e-12)
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
                *((("b, bytes read per second", f"{cache_rate:.4g}"),) * spec.cache),
            ),
            arithmetic=f"{further.cache_bytes} / {cache_rate:.4g} = {_s(further.cache_s)}"
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
