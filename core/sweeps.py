"""Models from small to large: what is predicted of each, what was measured, and how far off.

Nothing is kept but run folders: points are read from every run of a `LadderSpec` that has ended,
and from those shipped with the code. Of points that are the same in everything but when they were
measured the newest counts, for each machine and each version of the code.
"""

import csv
import dataclasses
import functools
import io
import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from core import answers, latency, recordings, step_latency
from core.events import Sample, Started
from core.ladder import shape_of_size
from core.latency import Calibration
from core.memory import TorchStep, step_memory, walk
from core.ops import INDEX_BYTES, Decode, Op, Prefill, Train, expand
from core.shapes import TransformerShape
from core.specs import GenerateSpec, LadderSpec
from core.trace import EVENTS, Trace
from core.units import DTYPES

SECONDS = {"train": "step_s", "prefill": "ttft_s", "decode": "tpot_s"}  # of each work, by quantity
LOGITS = "logits_bytes"


@dataclass(frozen=True, slots=True, kw_only=True)
class Point:
    """A model at work."""

    work: str  # one of core.specs.WORKS
    format: str  # of weights; of a training step, of its matrix products
    shape: TransformerShape
    batch_size: int
    seq_len: int
    threads: int

    @property
    def n_params(self) -> int:
        return self.shape.n_params

    @property
    def text(self) -> str:
        """`train bf16 12,069,440`."""
        return f"{self.work} {self.format} {self.n_params:,}"


def points_of(spec: LadderSpec) -> tuple[Point, ...]:
    """Every point of a ladder in the order of measuring. Raises: ValueError as `shape_of_size`."""
    return tuple(
        Point(
            work=work,
            format=name,
            shape=shape_of_size(rung),
            batch_size=spec.batch_size if work == "train" else 1,
            seq_len=spec.seq_len,
            threads=spec.threads,
        )
        for rung, work, name in spec.points
    )


# -- predicted ----------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class Predicted:
    """A quantity of a point, and the function that says so."""

    value: float
    formula: str  # dotted name in core
    arithmetic: str = ""


def predicted(point: Point, calibration: Calibration | None = None) -> dict[str, Predicted]:
    """By quantity; seconds only where the machine is calibrated for them."""
    if point.work == "train":
        return _of_step(step_of(point), calibration)
    return _of_trip(point, calibration)


def calibration_of(
    point: Point, runs: Path, machine: Mapping[str, Any] | None = None
) -> Calibration | None:
    """The one that times a point on a machine: this one, or a run's."""
    return latency.stored(runs, point.format, point.threads, machine)


def needed_bytes(point: Point) -> int:
    """The most that a point holds while it is measured."""
    return int(predicted(point)["peak_bytes"].value)


def step_of(point: Point) -> TorchStep:
    autocast = DTYPES[point.format] if point.format != "fp32" else None
    workload = Train(batch_size=point.batch_size, seq_len=point.seq_len, autocast=autocast)
    return TorchStep(shape=point.shape, workload=workload, optimizer="adamw")


def _of_step(step: TorchStep, calibration: Calibration | None) -> dict[str, Predicted]:
    found = {
        name: Predicted(
            value=p.value, formula=f"core.memory.{_FORMULAS[name]}", arithmetic=p.arithmetic
        )
        for name, p in step_memory(step).items()
        if name in _FORMULAS
    }
    head = next(op for op in step.ops if op.id == "head")
    found[LOGITS] = Predicted(value=head.written_bytes, formula="core.ops.linear")
    timed = step_latency.predicted_step(step, calibration) if calibration else None
    if timed is not None:
        found["step_s"] = Predicted(
            value=timed.value,
            formula="core.step_latency.predicted_step",
            arithmetic=timed.arithmetic,
        )
    return found


_FORMULAS = {
    "weights_bytes": "weights_bytes",
    "gradients_bytes": "gradients_bytes",
    "optimizer_bytes": "optimizer_bytes",
    "activations_bytes": "kept_bytes",
    "peak_bytes": "peak_bytes",
}


def workload_of(work: str, seq_len: int) -> Prefill | Decode:
    if work == "prefill":
        return Prefill(batch_size=1, seq_len=seq_len)
    return Decode(batch_size=1, context=seq_len)


def trip_ops(
    shape: TransformerShape, work: str, weight_format: str, seq_len: int
) -> tuple[Op, ...]:
    """The rows of a trip, one for each layer."""
    return expand(answers.answer_ops(shape, workload_of(work, seq_len), weight_format))


def _of_trip(point: Point, calibration: Calibration | None) -> dict[str, Predicted]:
    shape, name = point.shape, point.format
    workload = workload_of(point.work, point.seq_len)
    ops = answers.answer_ops(shape, workload, name)
    held = answers.held_bytes(shape, name)
    spec = GenerateSpec(weight_format=name, context=point.seq_len)
    cache = answers.cache_bytes(spec, shape)
    n_new = point.seq_len if point.work == "prefill" else 1
    rest = held + int(cache.value) + n_new * INDEX_BYTES
    rest += point.seq_len * shape.d_head // 2 * answers.COMPLEX_BYTES
    top = max(walk(ops, rest), key=lambda moment: moment.highest_bytes)
    found = {
        "weights_bytes": Predicted(value=held, formula="core.answers.held_bytes"),
        "kv_cache_bytes": Predicted(
            value=cache.value, formula="core.answers.cache_bytes", arithmetic=cache.arithmetic
        ),
        "peak_bytes": Predicted(
            value=top.highest_bytes,
            formula="core.memory.walk",
            arithmetic=f"{rest} + {top.highest_bytes - rest} in {top.op} = {top.highest_bytes}",
        ),
    }
    if calibration is not None:
        trip = latency.trip(shape, workload, calibration)
        parts = (trip.overhead_s, trip.weights_s, trip.cache_s, trip.moved_s)
        found[SECONDS[point.work]] = Predicted(
            value=trip.seconds,
            formula="core.latency.trip",
            arithmetic=" + ".join(f"{s:.3g}" for s in parts) + f" = {trip.seconds:.3g}",
        )
    return found


# -- measured -----------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class Measured:
    """One quantity of one point, as a run measured it."""

    point: Point
    quantity: str
    value: float  # bytes; of seconds the median of the repeats
    spread: float  # of seconds, from the first quartile to the third; of bytes 0
    repeats: int
    when_unix_s: float  # when the run began
    machine: str  # core.latency.fingerprint
    cpu: str
    code_version: str
    contended: bool
    attempt: str
    host: Mapping[str, Any] = dataclasses.field(default_factory=dict, repr=False)

    @property
    def same(self) -> tuple[Any, ...]:
        """Equal for measurements of which only the newest counts."""
        return (self.machine, self.code_version, self.point, self.quantity)


def points(runs: Path) -> tuple[Measured, ...]:
    """Of every ladder that has ended, here or shipped: the newest of each that is the same, small
    models first.
    """
    return _newest(ladders(runs))


@functools.lru_cache(maxsize=4)
def _newest(ladders: tuple[tuple[Path, int], ...]) -> tuple[Measured, ...]:
    newest: dict[tuple[Any, ...], Measured] = {}
    found = (m for folder, n_bytes in ladders for m in _measured(folder, n_bytes))
    for m in sorted(found, key=lambda m: (m.when_unix_s, m.attempt)):
        newest[m.same] = m
    return tuple(sorted(newest.values(), key=_order))


def _order(m: Measured) -> tuple[Any, ...]:
    return (m.point.work, m.point.format, m.point.n_params, m.quantity, m.when_unix_s)


def measured_in(trace: Trace) -> tuple[Measured, ...]:
    """What a ladder has told so far, point by point; nothing of a run that is no ladder."""
    started = trace.started
    spec = _spec_of(started)
    if started is None or spec is None:
        return ()
    found: list[Measured] = []
    for i, point in enumerate(points_of(spec)):
        told = trace.scalars_of(i)
        for quantity in _QUANTITIES:
            if quantity in told and SECONDS[point.work] in told:
                is_time = quantity in SECONDS.values()
                found.append(
                    Measured(
                        point=point,
                        quantity=quantity,
                        value=told[quantity],
                        spread=told["spread_s"] if is_time else 0.0,
                        repeats=int(told["repeats"]) if is_time else 1,
                        when_unix_s=started.started_unix_s,
                        machine=latency.fingerprint(started.machine),
                        cpu=str(started.machine.get("cpu", "")),
                        code_version=started.code_version,
                        contended=is_time and bool(told["contended"]),
                        attempt=started.attempt,
                        host=started.machine,
                    )
                )
    return tuple(found)


_QUANTITIES = (
    "weights_bytes",
    "gradients_bytes",
    "optimizer_bytes",
    "activations_bytes",
    LOGITS,
    "kv_cache_bytes",
    "peak_bytes",
    *SECONDS.values(),
)


def passed_over(trace: Trace) -> dict[int, str]:
    """Why a point was not measured, by its place in `points_of`."""
    told = (e for e in trace.events if isinstance(e, Sample) and e.name == "passed_over")
    return {e.step: e.text for e in told}


def _spec_of(started: Started | None) -> LadderSpec | None:
    """None for a run of another kind, or of settings that no longer exist."""
    if started is None or started.spec.get("specimen") != LadderSpec.specimen:
        return None
    try:
        return LadderSpec.from_json(started.spec)
    except ValueError:
        return None


def ladders(runs: Path) -> tuple[tuple[Path, int], ...]:
    """Folder of every ladder that is kept, and every one shipped, and how long its file is: what
    `points` says is the same as long as this is.
    """
    return tuple(_ladders(runs))


def _ladders(runs: Path) -> Iterator[tuple[Path, int]]:
    for place in (*runs.glob(f"*/*/{EVENTS}"), *recordings.FOLDER.glob(f"*/{EVENTS}")):
        try:
            if _is_ladder(place):
                yield place.parent, place.stat().st_size
        except (OSError, ValueError):
            continue


@functools.lru_cache(maxsize=4096)
def _is_ladder(events: Path) -> bool:
    """By the first line, which never changes once it is whole. Raises: ValueError before that."""
    with events.open("rb") as file:
        return json.loads(file.readline())["spec"].get("specimen") == LadderSpec.specimen


@functools.lru_cache(maxsize=64)
def _measured(folder: Path, n_bytes: int) -> tuple[Measured, ...]:
    """Of a ladder that has ended; read once for each length its file has had."""
    try:
        trace = Trace.read(folder)
    except (OSError, ValueError):
        return ()
    return measured_in(trace) if trace.ended else ()


# -- side by side -------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """Predicted beside measured; either may be missing."""

    work: str
    format: str
    n_params: int
    n_layer: int
    d_model: int
    vocab_size: int
    batch_size: int
    seq_len: int
    threads: int
    quantity: str
    predicted: float | None
    measured: float | None
    error: float | None  # predicted / measured - 1
    formula: str
    spread: float | None = None
    repeats: int | None = None
    contended: bool | None = None
    when_unix_s: float | None = None
    machine: str = ""
    cpu: str = ""
    code_version: str = ""
    attempt: str = ""


def rows(found: Iterable[Measured], runs: Path) -> tuple[Row, ...]:
    """Each measurement beside what is predicted of it on the machine where it was made."""

    @functools.cache
    def foreseen(point: Point, machine: str) -> dict[str, Predicted]:
        return predicted(point, calibration_of(point, runs, hosts[machine]))

    found = tuple(found)
    hosts = {m.machine: m.host for m in found}
    return tuple(_row(m.point, m.quantity, foreseen(m.point, m.machine), m) for m in found)


def predicted_rows(spec: LadderSpec, runs: Path) -> tuple[Row, ...]:
    """All that a ladder would measure on this machine, before it does."""
    return tuple(
        _row(point, quantity, foreseen)
        for point in points_of(spec)
        for foreseen in (predicted(point, calibration_of(point, runs)),)
        for quantity in foreseen
    )


def _row(
    point: Point, quantity: str, foreseen: Mapping[str, Predicted], m: Measured | None = None
) -> Row:
    p = foreseen.get(quantity)
    error = p.value / m.value - 1 if p and m and m.value else None
    return Row(
        work=point.work,
        format=point.format,
        n_params=point.n_params,
        n_layer=point.shape.n_layer,
        d_model=point.shape.d_model,
        vocab_size=point.shape.vocab_size,
        batch_size=point.batch_size,
        seq_len=point.seq_len,
        threads=point.threads,
        quantity=quantity,
        predicted=p.value if p else None,
        measured=m.value if m else None,
        error=error,
        formula=p.formula if p else "",
        spread=m.spread if m else None,
        repeats=m.repeats if m else None,
        contended=m.contended if m else None,
        when_unix_s=m.when_unix_s if m else None,
        machine=m.machine if m else "",
        cpu=m.cpu if m else "",
        code_version=m.code_version if m else "",
        attempt=m.attempt if m else "",
    )


# -- as text ------------------------------------------------------------------------------------

_COLUMNS = tuple(f.name for f in dataclasses.fields(Row))


def to_csv(table: Sequence[Row]) -> str:
    """A header and a line for each row; what is missing is empty."""
    text = io.StringIO()
    writer = csv.DictWriter(text, _COLUMNS, lineterminator="\n")
    writer.writeheader()
    for row in table:
        values = dataclasses.asdict(row)
        writer.writerow({k: "" if v is None else v for k, v in values.items()})
    return text.getvalue()


def to_json(table: Sequence[Row]) -> str:
    """A list of objects; what is missing is null."""
    return json.dumps([dataclasses.asdict(row) for row in table], allow_nan=False)


def from_json(text: str) -> tuple[Row, ...]:
    """Raises: ValueError or TypeError where it is not what `to_json` writes."""
    return tuple(Row(**record) for record in json.loads(text))
