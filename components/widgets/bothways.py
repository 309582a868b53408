"""Door of the home page's widget: a training step and an answer of one model on one clock."""

import dataclasses
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import streamlit as st
from streamlit.components.v2 import component

from components.both import ANSWER, STEP, Both, Fact
from components.runs import View
from components.stream import stream_url
from components.theme import COLOURS
from core.compare import Comparison
from core.drawing import evenly
from core.events import Array, Event, Memory, Sample, Scalar, Span, Token
from core.specimens import text_of
from core.specs import GenerateSpec, TransformerSpec
from core.trace import Trace, pack

KEY = "both"
MAX_BYTES = 1_000_000  # of a message
N_SAMPLES = 300  # of memory, where not all fit
N_TOP = 3  # of a token's likeliest, told under the lane
SHOWN = ("activation", "grad", "tokens", "losses", "op_ends", "parts")  # roles of arrays
_STATIC = Path(__file__).parent.parent / "static"

_SHIM = """// widget of the home page: a door to the static module
const loaded = import(new URL("./app/static/bothways.js", document.baseURI));
export default function (component) {
  let close;
  loaded.then((module) => { close = module.default(component); });
  return () => loaded.then(() => close?.());
}
"""

_mount = component(
    "bothways",
    css="\n".join((_STATIC / name).read_text() for name in ("training.css", "bothways.css")),
    js=_SHIM,
)


def asks_to_be_polled() -> bool:
    """Whether the browser could not open the live stream (a host without `st.App`)."""
    return st.session_state.get(KEY, {}).get("transport") == "poll"


def bothways(
    both: Both, figures: dict[str, list[Fact]], takeaway: str, *, polled: bool
) -> str | None:
    """Draw the widget; the id of the figure that a visitor asks about, if one was just pressed."""
    result = _mount(
        key=KEY,
        data=message(both, figures, takeaway, polled=polled),
        on_changed_change=_rerun,
        on_transport_change=_rerun,
        on_asked_change=_rerun,
    )
    return result.asked


def _rerun() -> None:
    """A callback that only has to exist: Streamlit reruns for it."""


def message(both: Both, figures: dict[str, list[Fact]], takeaway: str, *, polled: bool) -> bytes:
    """u32 header length, JSON header, then events and arrays of the step, and of the answer."""
    lanes: dict[str, dict[str, Any]] = {}
    files: list[bytes] = []
    for name, view in ((STEP, both.step), (ANSWER, both.answer)):
        lanes[name], *own = _lane(name, view, both, polled=polled)
        files += own
    moment = st.query_params.get("t")
    header = {
        "events_bytes": 0,  # of one run: here the lanes have their own
        "lanes": lanes,
        "figures": {name: [_said(f) for f in list_] for name, list_ in figures.items()},
        "takeaway": takeaway,
        "pair": both.pair.key,
        "expected": {name: _expected(list_[0]) for name, list_ in figures.items()},
        "calibrating": both.calibrating,
        "vocabulary": _vocabulary(both),
        "colours": COLOURS,
        "origin": both.origin,
        "moment": float(moment) if moment else None,
    }
    head = json.dumps(header, allow_nan=False).encode()
    return len(head).to_bytes(4, "little") + head + b"".join(files)


def _expected(figure: Fact) -> float | None:
    """The predicted peak, which scales the picture until there is a measured one."""
    number = figure.number
    return number.prediction.value if isinstance(number, Comparison) else None


def _said(figure: Fact) -> dict[str, str]:
    return {"id": figure.id, "value": figure.value, "label": figure.label, "note": figure.note}


def _vocabulary(both: Both) -> str | None:
    """Characters of a text model, by their token."""
    spec = both.pair.step
    return text_of(spec).vocabulary if isinstance(spec, TransformerSpec) else None


def _lane(
    name: str, view: View | None, both: Both, *, polled: bool
) -> tuple[dict[str, Any], bytes, bytes]:
    waiting = view is None
    events = arrays = b""
    stream = None
    if view is not None and view.open and not polled and view.attempt:
        stream = stream_url(view.spec.spec_id, view.attempt)
    elif view is not None:
        events, arrays = _files(view)
    spec = both.pair.step if name == STEP else both.pair.answer
    trace = view.trace if view else Trace()
    header = {
        "run": f"{spec.spec_id}/{'waiting' if waiting else view.attempt or 'recording'}",
        "stream": stream,
        "live": both.follows if waiting else view.open,
        "events_bytes": len(events),
        "arrays_bytes": len(arrays),
        "n_tokens": spec.max_new_tokens if isinstance(spec, GenerateSpec) else None,
        "known": {
            "n_recorded": len(trace.recorded_steps),
            "n_states": len(trace.scalars("paused")),
            "ended": trace.ended is not None,
        },
    }
    return header, events, arrays


def _files(view: View) -> tuple[bytes, bytes]:
    """What the lane draws of a run, as the two files of a run folder; fewer samples of memory
    where they would not fit.
    """
    events = list(_drawn(view))
    lines, arrays = pack(events)
    if len(lines) + len(arrays) > MAX_BYTES // 2:
        memory = [e for e in events if isinstance(e, Memory)]
        top = max(memory, key=lambda e: sum(e.held_bytes.values()))
        kept = {id(e) for e in (top, *(memory[i] for i in evenly(len(memory), N_SAMPLES)))}
        lines, arrays = pack(e for e in events if not isinstance(e, Memory) or id(e) in kept)
    return lines, arrays


def _drawn(view: View) -> Iterator[Event]:
    steps = view.trace.recorded_steps
    for e in view.trace.events:
        match e:
            case Sample():
                if e.name in ("ops", "piece") or e.name.startswith("weights_sha256_"):
                    yield e
            case Token():
                yield dataclasses.replace(e, top=e.top[:N_TOP])
            case Scalar():
                norm = e.name.startswith(("norm.grad", "norm.activation"))
                if not norm and (not steps or e.step == steps[-1]):
                    yield e
            case Array():
                if (
                    e.role in SHOWN
                    and _stands_for_a_column(e)
                    and (not steps or e.step == steps[-1])
                ):
                    yield e
            case Span() | Memory():
                if not steps or e.step == steps[-1]:
                    yield e
            case _:
                yield e


def _stands_for_a_column(array: Array) -> bool:
    """Whether a part of the model is drawn by it: embedding, blocks, head; or it is no op's."""
    if array.role not in ("activation", "grad"):
        return True
    op = array.op
    return op.startswith("embed.") or op.endswith(".mlp.add") or op in ("norm", "head", "input")
