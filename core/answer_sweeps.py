"""Answers at one value of a setting after another: what is predicted of each, and was measured."""

import functools
from dataclasses import dataclass
from pathlib import Path

from core import answers, latency
from core.answer_limits import need
from core.limits import max_run_bytes
from core.ops import Decode, Prefill
from core.shapes import TransformerShape
from core.specs import AnswerSweepSpec, GenerateSpec
from core.trace import Trace


@dataclass(frozen=True, slots=True, kw_only=True)
class Point:
    """One value of the setting. Seconds are None where they are not known."""

    value: str  # as in a link: `int8`, `32`, `on`
    spec: GenerateSpec
    read_bytes: int  # of weights, by one trip
    tpot_predicted_s: float | None
    reread_predicted_s: float | None  # of reading all of the context at once
    measured: dict[str, float]  # by name; empty before it was measured

    @property
    def tpot_s(self) -> float | None:
        return self.measured.get("tpot_s")


def points_of(
    sweep: AnswerSweepSpec, shape: TransformerShape, n_prompt: int, runs: Path, trace: Trace | None
) -> tuple[Point, ...]:
    """Every point of a sweep in its order; `trace`: of its latest run, if there is one."""
    values = sweep.points_within(shape.max_seq_len)
    told = [trace.scalars_of(i) for i in range(len(values))] if trace else []
    return tuple(
        _point(sweep, value, shape, n_prompt, runs, told[i] if told else {})
        for i, value in enumerate(values)
    )


def _point(
    sweep: AnswerSweepSpec,
    value: str | int | bool,
    shape: TransformerShape,
    n_prompt: int,
    runs: Path,
    told: dict[str, float],
) -> Point:
    spec = sweep.at(value)
    tpot_s = reread_s = None
    calibration = latency.stored(runs, spec.weight_format, spec.threads)
    n_tokens = spec.context if sweep.over == "context" else n_prompt + sweep.max_new_tokens // 2
    if calibration is not None:
        reading = Prefill(batch_size=spec.batch_size, seq_len=max(2, n_tokens))
        reread_s = latency.trip(shape, reading, calibration).seconds
        decode = Decode(batch_size=spec.batch_size, context=n_tokens)
        tpot_s = latency.trip(shape, decode, calibration).seconds if spec.cache else reread_s
    known = "tpot_s" in told
    read = _read_bytes(shape, spec.weight_format)
    return Point(
        value=("on" if value else "off") if isinstance(value, bool) else str(value),
        spec=spec,
        read_bytes=read,
        tpot_predicted_s=tpot_s,
        reread_predicted_s=reread_s,
        measured=told if known else {},
    )


@functools.lru_cache(maxsize=64)
def _read_bytes(shape: TransformerShape, weight_format: str) -> int:
    return int(answers.read_bytes_per_token(shape, weight_format).value)


@functools.lru_cache(maxsize=64)
def held_bytes(sweep: AnswerSweepSpec, shape: TransformerShape, n_prompt: int) -> int:
    """About the most that a sweep holds: its largest point; of formats, all their weights."""
    values = sweep.points_within(shape.max_seq_len)
    top = max(need(sweep.at(value), shape, n_prompt).peak_bytes for value in values)
    if sweep.over != "weight_format":
        return top
    return top + sum(answers.held_bytes(shape, str(value)) for value in values[1:])


def fits(sweep: AnswerSweepSpec, shape: TransformerShape, n_prompt: int) -> bool:
    return held_bytes(sweep, shape, n_prompt) <= max_run_bytes()
