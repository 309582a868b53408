"""A conversation as its runs tell it: turns, and training steps on what was said."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

from core.answer_account import Told
from core.events import Sample, Scalar
from core.specs import FinetuneSpec, GenerateSpec, RunSpec
from core.trace import Trace


@dataclass(frozen=True, slots=True, kw_only=True)
class Turn:
    """One question and its answer."""

    spec: GenerateSpec
    told: Told
    broke_off: str  # why; empty if it did not

    @property
    def history(self) -> tuple[str, ...]:
        """What the next turn sends again."""
        return (*self.spec.history, self.spec.prompt, self.told.text)


@dataclass(frozen=True, slots=True, kw_only=True)
class Update:
    """Training steps on what was said."""

    spec: FinetuneSpec
    before: str  # SHA-256 of the weights
    after: str  # empty until the step is done
    loss: float | None
    largest_change: float | None  # of any weight
    layers: tuple[tuple[str, float], ...]  # (`block 1`, norm of the change of its weights)
    broke_off: str


Link = Turn | Update


def link_of(spec: RunSpec, trace: Trace) -> Link | None:
    """What a run is in a conversation; None if it is none of one."""
    if isinstance(spec, GenerateSpec) and spec.chat:
        return Turn(spec=spec, told=Told.by(trace), broke_off=_broke_off(trace))
    if isinstance(spec, FinetuneSpec):
        return _update(spec, trace)
    return None


def _update(spec: FinetuneSpec, trace: Trace) -> Update:
    scalars = {e.name: e.value for e in trace.events if isinstance(e, Scalar)}
    samples = {e.name: e.text for e in trace.events if isinstance(e, Sample)}
    squares: dict[str, float] = {}
    for name, value in scalars.items():
        kind, _, parameter = name.partition(":")
        if kind == "norm.update_weight":
            layer = layer_of(parameter)
            squares[layer] = squares.get(layer, 0.0) + value**2
    return Update(
        spec=spec,
        before=samples.get("weights_sha256_before", ""),
        after=samples.get("weights_sha256_after", ""),
        loss=scalars.get("loss"),
        largest_change=scalars.get("largest_change"),
        layers=tuple((layer, math.sqrt(square)) for layer, square in squares.items()),
        broke_off=_broke_off(trace),
    )


def _broke_off(trace: Trace) -> str:
    """Not by a visitor's hand, and not at its end."""
    ended = trace.ended
    return ended.message if ended and ended.status in ("failed", "died", "diverged") else ""


def layer_of(parameter: str) -> str:
    """`blocks.3.attn.qkv.weight` -> `block 4`, counted from 1 as on the pages."""
    first, *rest = parameter.split(".")
    return f"block {int(rest[0]) + 1}" if first == "blocks" else first


def history_of(links: Sequence[Link]) -> tuple[str, ...]:
    """All that was said, the visitor's words first."""
    turns = [link for link in links if isinstance(link, Turn) and link.told.text]
    return turns[-1].history if turns else ()


def said_in(turn: Turn) -> str:
    """The turn as a text to learn from."""
    return f"{turn.spec.prompt}\n{turn.told.text}"
