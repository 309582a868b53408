"""What a run says, one line each: a closed union of frozen values and their codec.

A line is a JSON object whose `type` names the class. Arrays stand in a second file; their line
holds the offset, so that a reader takes a line only once its bytes are there.
"""

import dataclasses
import json
import math
from dataclasses import dataclass, field
from typing import Any

import numpy as np

SCHEMA = 1

PHASES = ("forward", "loss", "backward", "update")  # of every step; "recompute" lies in backward
TRIPS = ("prefill", "decode")  # phases of an answer: one pass over the prompt, one for each token
CATEGORIES = ("weights", "inputs", "optimizer", "activations", "gradients", "temporaries")
ANSWER_CATEGORIES = ("weights", "inputs", "cache", "temporaries")  # nothing is kept for backward

_ARRAY_TYPES = {"u1": np.uint8, "i1": np.int8, "i4": np.int32, "f4": np.float32, "f8": np.float64}
_TYPE_CODES = {np.dtype(t): code for code, t in _ARRAY_TYPES.items()}
_FLOATS = ("value", "low", "high")  # fields in which a number may be NaN or infinite
_NOT_FINITE = {"NaN": math.nan, "Infinity": math.inf, "-Infinity": -math.inf}


@dataclass(frozen=True, slots=True, kw_only=True)
class Started:
    """First event of an attempt: everything that explains its numbers."""

    spec_id: str
    attempt: str
    spec: dict[str, Any]
    machine: dict[str, Any]
    code_version: str
    started_unix_s: float
    schema: int = SCHEMA


@dataclass(frozen=True, slots=True, kw_only=True)
class Span:
    """One op ran in one phase of a recorded step; times since the step began."""

    step: int
    phase: str
    op: str
    start_s: float
    end_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Memory:
    """Live bytes by category at one moment of an op of a recorded step; an op has several."""

    step: int
    phase: str
    op: str
    held_bytes: dict[str, int]


@dataclass(frozen=True, slots=True, kw_only=True)
class Scalar:
    """A number the run computed or measured; `step` counts updates made before it."""

    step: int
    name: str
    value: float


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Array:
    """Numbers of one op in one role, after `step` updates.

    Quantised for drawing where `low` and `high` are given: values are uint8, 0 stands for `low`
    and 255 for `high`; exact otherwise.
    """

    step: int
    op: str
    role: str
    values: np.ndarray
    low: float | None = None
    high: float | None = None

    @property
    def numbers(self) -> np.ndarray:
        """The values in their own unit, float64 where they were quantised."""
        if self.low is None or self.high is None:
            return self.values
        return self.low + self.values.astype(np.float64) * ((self.high - self.low) / 255)


@dataclass(frozen=True, slots=True, kw_only=True)
class Token:
    """A token of an answer: one of the prompt, or one that a trip through the model gave.

    `step` counts trips: 0 is the prefill, whose token is the first new one. Times since the first
    trip began; of a prompt token none.
    """

    step: int
    row: int  # sequence of the batch
    phase: str  # prompt, or one of TRIPS
    id: int
    text: str  # what it adds to the text; empty where a character needs further tokens
    start_s: float | None = None
    end_s: float | None = None
    prob: float | None = None  # of this token in the full softmax at the run's temperature
    top: list[list[Any]] = field(default_factory=list)  # [id, text, prob] of the likeliest


@dataclass(frozen=True, slots=True, kw_only=True)
class Sample:
    """Text that the run tells: what the model wrote after `step` updates, or a hash."""

    step: int
    name: str
    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Ended:
    """Last event of an attempt.

    Status: finished | stopped | diverged | failed | died.
    """

    status: str
    message: str
    n_steps: int
    wall_s: float
    cpu_s: float
    advice: dict[str, Any] = field(default_factory=dict)  # settings that would help, if any


Event = Started | Span | Memory | Scalar | Array | Token | Sample | Ended
_TYPES = {t.__name__: t for t in (Started, Span, Memory, Scalar, Array, Token, Sample, Ended)}


def quantise(
    step: int, op: str, role: str, numbers: np.ndarray, *, low: float, high: float
) -> Array:
    """An `Array` event for drawing: numbers clipped to [low, high] in 256 shades."""
    scaled = np.clip((numbers - low) * (255 / (high - low)), 0, 255)
    return Array(
        step=step, op=op, role=role, values=np.rint(scaled).astype(np.uint8), low=low, high=high
    )


def encode(event: Event, arrays_size: int = 0) -> tuple[bytes, bytes]:
    """(line, payload) of an event; the payload belongs at offset `arrays_size` of the array file.

    Raises: ValueError for an array type outside the codec.
    """
    record: dict[str, Any] = {"type": type(event).__name__}
    payload = b""
    for f in dataclasses.fields(event):
        value = getattr(event, f.name)
        if isinstance(value, np.ndarray):
            code = _TYPE_CODES.get(value.dtype)
            if code is None:
                raise ValueError(
                    f"dtype={value.dtype} has no code; use one of {', '.join(_ARRAY_TYPES)}"
                )
            payload = np.ascontiguousarray(value).tobytes()
            record |= {"dtype": code, "shape": list(value.shape), "offset": arrays_size}
        elif value is not None:
            record[f.name] = _finite(value) if f.name in _FLOATS else value
    line = json.dumps(record, separators=(",", ":"), allow_nan=False).encode() + b"\n"
    return line, payload


def decode(line: bytes, arrays: memoryview) -> Event | None:
    """The event of one whole line; None if its array bytes are not all there yet.

    Raises: ValueError if the line is not an event of this schema.
    """
    try:
        record = json.loads(line)
        kind = _TYPES[record.pop("type")]
        if kind is Array:
            dtype = np.dtype(_ARRAY_TYPES[record.pop("dtype")])
            shape, offset = record.pop("shape"), record.pop("offset")
            end = offset + math.prod(shape) * dtype.itemsize
            if end > len(arrays):
                return None
            # A copy: its owner may close the file, and the bytes need not be aligned.
            record["values"] = np.frombuffer(bytes(arrays[offset:end]), dtype).reshape(shape)
        return kind(**{k: _number(v) if k in _FLOATS else v for k, v in record.items()})
    except (
        ValueError,
        KeyError,
        TypeError,
        AttributeError,
        ArithmeticError,
        RecursionError,
    ) as why:
        raise ValueError(f"line={line[:80]!r} is not an event of schema {SCHEMA}") from why


def _finite(value: Any) -> Any:
    if isinstance(value, float) and not math.isfinite(value):
        return "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"
    return value


def _number(value: Any) -> Any:
    return _NOT_FINITE.get(value, value) if isinstance(value, str) else value
