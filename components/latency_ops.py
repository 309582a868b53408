"""What each kind of op takes, and what it waits for."""

import functools
import math
from collections.abc import Sequence

import streamlit as st

from components import folded, pacing
from components.latency_times import NAMES, Look, percent
from components.theme import bytes_text, flops_text, seconds_text
from components.widgets.logchart import Segment, StackRow, stacks
from core.device_times import COMPUTE, UPDATE, Times
from core.forecast import Outlook
from core.latency import Trip

GROUPS = {  # kind of op -> what it is called, and the colour it has
    "linear": ("matrix products", "weights"),
    "recurrent": ("matrix products", "weights"),
    "experts": ("experts", "optimizer"),
    "flash": ("attention", "cache"),
    "scores": ("attention", "cache"),
    "softmax": ("attention", "cache"),
    "mix": ("attention", "cache"),
    UPDATE: ("update of weights", "update"),
}
_HERE = (
    " Prompt and token are told from what was measured of this machine, with the starting of ops "
    "(dotted); the training step's bar is its roofline, a floor."
)
HEAD = ("head", "forward")
REST = ("norms, sums, activations", "temporaries")


def section(look: Look) -> None:
    if not look.calibrated:
        return
    st.header("Which bound each op is under")
    for work, seen in look.works.items():
        if seen.seconds is None or seen.found is None:
            continue
        trip = seen.local.trip if seen.local else None
        segments = parts(seen.found) if trip is None else parts_here(trip, work)
        stacks(
            [StackRow(name=NAMES[work], segments=segments, note=_note(seen))],
            key=f"ops-{work}",
            summary=f"{NAMES[work]}: "
            + ", ".join(f"{s.name} {seconds_text(s.value)}" for s in segments),
            unit="s",
        )
    st.caption(
        "Each bar has its own scale. Hatched parts wait for memory, plain ones for arithmetic; "
        "ops follow each other, so their times add up." + (_HERE if look.device is None else "")
    )
    folded.expander("Op by op", "ops-table", functools.partial(_table, look))


def parts(found: Times) -> list[Segment]:
    """Seconds of each group, those that wait for memory apart."""
    sums: dict[tuple[str, str, str], float] = {}
    rows = zip(found.costs.ids, found.costs.kinds, found.seconds, found.row_bounds(), strict=True)
    for id, kind, seconds, bound in rows:
        name, colour = HEAD if id == "head" else GROUPS.get(kind, REST)
        key = (name, colour, bound)
        sums[key] = sums.get(key, 0.0) + float(seconds)
    total = sum(sums.values())
    return [
        Segment(
            name=name,
            value=seconds,
            colour=colour,
            pattern="" if bound == COMPUTE else "hatched",
            why=f"waits for {bound}",
        )
        for (name, colour, bound), seconds in sorted(sums.items(), key=lambda i: -i[1])
        if seconds > 0.002 * total
    ]


def parts_here(trip: Trip, work: str) -> list[Segment]:
    """The parts that a trip through the model was predicted from on this machine."""
    decodes = work == "decode"
    waits = "hatched" if decodes else ""
    found = (
        ("matrix products", trip.weights_s, "weights", waits),
        ("attention", trip.cache_s, "cache", waits),
        ("starting the ops", trip.overhead_s, "inputs", "dotted"),
        (REST[0], trip.moved_s, REST[1], "hatched"),
    )
    return [
        Segment(name=name, value=seconds, colour=colour, pattern=pattern)
        for name, seconds, colour, pattern in found
        if seconds > 0
    ]


def _note(seen: Outlook) -> str:
    bound, share = seen.bound
    return "" if math.isnan(share) else f"{percent(share)} of it for {bound}"


def _table(look: Look) -> None:
    name = str(pacing.setting("ops"))
    found = look.works[pacing.WORKS[name]].found
    if found is None:
        st.caption("Not calibrated yet.")
        return
    st.table(columns(found), hide_index=True, alt=f"Ops of {name}, in order")


def columns(found: Times) -> dict[str, Sequence[str]]:
    """The table, row by row of the op table."""
    costs, bounds = found.costs, found.row_bounds()
    rows = [
        (id, float(f), float(b), float(s), bound)
        for id, f, b, s, bound in zip(
            costs.ids, costs.flops, costs.n_bytes, found.seconds, bounds, strict=True
        )
        if f or b
    ]
    return {
        "op": [id.removeprefix("blocks.") for id, *_ in rows],
        "FLOP": [flops_text(f) if f else "–" for _, f, *_ in rows],
        "bytes": [bytes_text(round(b)) for _, _, b, *_ in rows],
        "FLOP/B": [f"{f / b:.3g}" if f and b else "–" for _, f, b, *_ in rows],
        "time": [seconds_text(s) for *_, s, _ in rows],
        "waits for": [bound for *_, bound in rows],
        "share": [f"{100 * s / float(found.per_model[0]):.1f} %" for *_, s, _ in rows],
    }
