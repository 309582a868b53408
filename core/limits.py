"""What one run may take on this machine, and what would fit where it takes more.

Settings: $BOTHWAYS_MAX_RUN_BYTES (default: an eighth of the machine's memory, at most 3 GB) and
$BOTHWAYS_MAX_STEP_FLOPS (default 5·10¹⁰: about half a second of one core, so
that the ten updates a recorded step takes are not waited for too long).
"""

import dataclasses
import functools
import os
from collections.abc import Iterator
from dataclasses import dataclass

from core.ops import executed_flops
from core.specimens import predictions, torch_step
from core.specs import DepthsSpec, DigitsSpec, PlaygroundSpec, Spec, TransformerSpec


def max_run_bytes() -> int:
    """Most bytes of tensors that one run may hold at once."""
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    return int(os.environ.get("BOTHWAYS_MAX_RUN_BYTES", min(memory // 8, 3 * 10**9)))


def max_step_flops() -> int:
    """Most floating-point operations of one update."""
    return int(float(os.environ.get("BOTHWAYS_MAX_STEP_FLOPS", 5e10)))


@dataclass(frozen=True, slots=True, kw_only=True)
class Need:
    """Predicted cost of one update."""

    peak_bytes: int
    flops: int

    @property
    def fits(self) -> bool:
        return self.peak_bytes <= max_run_bytes() and self.flops <= max_step_flops()


@functools.lru_cache(maxsize=256)
def need(spec: Spec) -> Need:
    """What an update of a spec needs; of a depth sweep, at its greatest depth."""
    if isinstance(spec, PlaygroundSpec):
        return Need(peak_bytes=0, flops=0)  # at most some kilobytes
    step = torch_step(spec)
    return Need(
        peak_bytes=int(predictions(spec)["peak_bytes"].value),
        flops=executed_flops(step.ops) * step.accumulation,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Refusal:
    """Why a spec is not run here, and the nearest one that would be."""

    need: Need
    fitting: Spec | None
    changed: str  # the field that differs in `fitting`; empty if nothing near fits


def refusal(spec: Spec) -> Refusal | None:
    """None if the spec may run here."""
    own = need(spec)
    if own.fits:
        return None
    for field, smaller in _smaller(spec):
        if need(smaller).fits:
            return Refusal(need=own, fitting=smaller, changed=field)
    return Refusal(need=own, fitting=None, changed="")


def _smaller(spec: Spec) -> Iterator[tuple[str, Spec]]:
    """Specs with one field smaller, those that change the model least first."""
    if isinstance(spec, TransformerSpec | DigitsSpec):
        yield from _halved(spec, "batch_size", least=1)
    if isinstance(spec, TransformerSpec):
        if not spec.checkpointing:
            yield "checkpointing", dataclasses.replace(spec, checkpointing=True)
        if spec.seq_len > 16 and spec.specimen != "addition":
            yield from _halved(spec, "seq_len", least=16)
        yield from _halved(spec, "d_model", least=16)  # the narrowest choice
    if isinstance(spec, DepthsSpec):
        yield from (("n_layer", spec.at(n)) for n in range(spec.n_layer - 1, 0, -1))


def _halved(spec: Spec, field: str, least: int) -> Iterator[tuple[str, Spec]]:
    value = getattr(spec, field) // 2
    while value >= least:
        yield field, dataclasses.replace(spec, **{field: value})
        value //= 2
