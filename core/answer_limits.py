"""What one answer may take on this machine, and what would fit where it takes more."""

import dataclasses
import functools
from collections.abc import Iterator
from dataclasses import dataclass

from core import answers
from core.limits import max_run_bytes, max_step_flops
from core.ops import Prefill
from core.shapes import TransformerShape
from core.specs import GenerateSpec

UPDATES_OF_A_TRIP = (
    100  # a trip may take as long as so many updates: nothing waits for it but its run
)
LEAST_CONTEXT = 64
_NARROWER = ("bf16", "int8", "int4")


def max_trip_flops() -> int:
    """Most floating-point operations of one trip, which no button can interrupt."""
    return UPDATES_OF_A_TRIP * max_step_flops()


@dataclass(frozen=True, slots=True, kw_only=True)
class Need:
    """Predicted cost of an answer."""

    peak_bytes: int
    trip_flops: int  # of the longest trip

    @property
    def fits(self) -> bool:
        return self.peak_bytes <= max_run_bytes() and self.trip_flops <= max_trip_flops()


@functools.lru_cache(maxsize=512)
def need(spec: GenerateSpec, shape: TransformerShape, n_prompt: int) -> Need:
    """Of the prefill; without a cache, of the last token, which reads the whole text again."""
    n_read = n_prompt
    if not spec.cache:
        n_read = min(spec.context, n_prompt + spec.max_new_tokens - 1)
    workload = Prefill(batch_size=spec.batch_size, seq_len=max(1, n_read))
    ops = answers.answer_ops(shape, workload, spec.weight_format)
    return Need(
        peak_bytes=int(answers.peak_bytes(spec, shape, n_read).value),
        trip_flops=sum(op.repeat * op.forward_flops for op in ops),
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Refusal:
    """Why an answer is not given here, and the nearest settings with which it would be."""

    need: Need
    fitting: GenerateSpec | None
    changed: str  # the field that differs in `fitting`; empty if nothing near fits


def refusal(spec: GenerateSpec, shape: TransformerShape, n_prompt: int) -> Refusal | None:
    """None if the answer may be given here."""
    own = need(spec, shape, n_prompt)
    if own.fits:
        return None
    for field, smaller in _smaller(spec, n_prompt):
        if need(smaller, shape, n_prompt).fits:
            return Refusal(need=own, fitting=smaller, changed=field)
    return Refusal(need=own, fitting=None, changed="")


def _smaller(spec: GenerateSpec, n_prompt: int) -> Iterator[tuple[str, GenerateSpec]]:
    """Specs with one field smaller, those that change the answer least first."""
    if not spec.cache:
        yield "cache", dataclasses.replace(spec, cache=True)
    context = spec.context // 2
    while context >= max(LEAST_CONTEXT, n_prompt + 1):
        yield "context", dataclasses.replace(spec, context=context)
        context //= 2
    batch_size = spec.batch_size // 2
    while batch_size >= 1:
        yield "batch_size", dataclasses.replace(spec, batch_size=batch_size)
        batch_size //= 2
    for weight_format in _NARROWER:
        if weight_format != spec.weight_format:
            yield "weight_format", dataclasses.replace(spec, weight_format=weight_format)
