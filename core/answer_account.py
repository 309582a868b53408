"""The account of an answer: what its settings predict, and what its run has told so far."""

import functools
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from core import answers, latency
from core.events import Sample, Scalar, Token
from core.memory import Prediction
from core.shapes import TransformerShape
from core.specs import GenerateSpec
from core.trace import Trace
from core.units import FP32

# What a run calls a number, where the catalogue has another name for it.
_TOLD = {"held_bytes": "weights_bytes", "answer_peak_bytes": "peak_bytes"}
BYTES = (
    "held_bytes",
    "read_bytes_per_token",
    "kv_cache_bytes",
    "kv_filled_bytes",
    "answer_peak_bytes",
)
TIMES = ("ttft_s", "tpot_s", "tokens_per_s")


@functools.lru_cache(maxsize=256)
def predicted_bytes(
    spec: GenerateSpec, shape: TransformerShape, n_prompt: int, n_trips: int | None = None
) -> dict[str, Prediction]:
    """Bytes of an answer by quantity, after `n_trips` trips; if that is None, after all it may."""
    found = (
        held_bytes(shape, spec.weight_format),
        answers.read_bytes_per_token(shape, spec.weight_format),
        answers.cache_bytes(spec, shape),
        filled_bytes(spec, shape, n_prompt, n_trips or spec.max_new_tokens),
        answers.peak_bytes(spec, shape, n_prompt),
    )
    return {p.quantity: p for p in found}


def predicted_times(
    spec: GenerateSpec,
    shape: TransformerShape,
    n_prompt: int,
    runs: Path,
    machine: Mapping[str, Any] | None = None,
) -> dict[str, Prediction]:
    """Times of an answer by quantity, on the machine of a run or on this one; empty while that
    is not calibrated for it.
    """
    calibration = latency.stored(runs, spec.weight_format, spec.threads, machine)
    if calibration is None:
        return {}
    return latency.predict_answer(shape, spec, n_prompt, calibration)


def machine_of(trace: Trace) -> Mapping[str, Any] | None:
    """What a run ran on; None before it has begun."""
    return trace.started.machine if trace.started else None


def held_bytes(shape: TransformerShape, weight_format: str) -> Prediction:
    """W + v + E + P: all matrices and vectors, and the tables that a trip does not read whole."""
    read = answers.read_bytes_per_token(shape, weight_format)
    value = answers.held_bytes(shape, weight_format)
    inputs = [*read.inputs[:2]]
    terms = [read.inputs[0][1].split(" ")[0], read.inputs[1][1]]
    if not shape.tied:
        size = (shape.vocab_size, shape.d_model)
        terms.append(str(answers.matrix_bytes(weight_format, "embed.tokens", *size)))
        inputs.append(("E, embedding", f"{size[0]} × {size[1]} numbers: {terms[-1]}"))
    if shape.positions == "learned":
        terms.append(str(shape.max_seq_len * shape.d_model * FP32.n_bytes))
        inputs.append(("P, positions", f"{shape.max_seq_len} × {shape.d_model} × {FP32.n_bytes}"))
    return Prediction(
        quantity="held_bytes",
        value=value,
        inputs=tuple(inputs),
        arithmetic=f"{' + '.join(terms)} = {value}",
    )


def filled_bytes(
    spec: GenerateSpec, shape: TransformerShape, n_prompt: int, n_trips: int
) -> Prediction:
    """Keys and values of all tokens that were read: the prompt's, and all new ones but the last."""
    dtype = answers.cache_dtype(spec.weight_format)
    n_tokens = min(n_prompt + n_trips - 1, spec.context)
    factors = (shape.n_layer, spec.batch_size, n_tokens, shape.d_kv, dtype.n_bytes)
    value = 2
    for factor in factors:
        value *= factor
    return Prediction(
        quantity="kv_filled_bytes",
        value=value,
        inputs=(
            ("L, layers", str(shape.n_layer)),
            ("B, sequences", str(spec.batch_size)),
            ("T, tokens that were read", f"{n_prompt} + {n_trips} − 1 = {n_tokens}"),
            ("d_kv, width of all keys of a token", f"{shape.n_kv_head} × {shape.d_head}"),
            ("e, bytes of one number", f"{dtype.n_bytes} ({dtype.name})"),
        ),
        arithmetic=f"2 × {' × '.join(map(str, factors))} = {value}",
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Told:
    """What a run of an answer has said so far."""

    n_prompt: int  # tokens; 0 while it is not known
    n_trips: int
    text: str  # of the first sequence
    before: str  # SHA-256 of the weights
    after: str  # empty until the answer is complete
    scalars: dict[str, float]  # of each name the first, since looks repeat some

    @classmethod
    def by(cls, trace: Trace) -> "Told":
        scalars: dict[str, float] = {}
        samples: dict[str, str] = {}
        pieces: list[str] = []
        n_trips = 0
        for e in trace.events:
            if isinstance(e, Scalar):
                scalars.setdefault(e.name, e.value)
            elif isinstance(e, Sample):
                samples[e.name] = e.text
            elif isinstance(e, Token) and e.phase != "prompt":
                n_trips = max(n_trips, e.step + 1)
                pieces += [e.text] if e.row == 0 else []
        return cls(
            n_prompt=int(scalars.get("prompt_tokens", 0)),
            n_trips=n_trips,
            text=samples.get("text_0", "".join(pieces)),
            before=samples.get("weights_sha256_before", ""),
            after=samples.get("weights_sha256_after", ""),
            scalars=scalars,
        )

    @property
    def measured(self) -> dict[str, float]:
        """By quantity; without what is not known yet."""
        names = {quantity: _TOLD.get(quantity, quantity) for quantity in (*BYTES, *TIMES)}
        return {q: self.scalars[name] for q, name in names.items() if name in self.scalars}
