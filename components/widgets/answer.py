"""Door of the answer widget: an answer as it comes, and its trips played back."""

import json
from pathlib import Path
from typing import Any, TypeGuard

import numpy as np
import streamlit as st
from streamlit.components.v2 import component

from components.runs import View
from components.stream import stream_url
from components.theme import COLOURS
from core import own_models, pretrained
from core.answers import answer_ops
from core.events import Array, Event
from core.formats import KERNELS
from core.ops import Decode, Op, expand
from core.shapes import TransformerShape
from core.specs import GenerateSpec
from core.trace import Trace, pack

KEY = "answer"
MAX_BYTES = 1_000_000  # of a message: what single trips tell is thinned until it fits
_STATIC = Path(__file__).parent.parent / "static"
_OF_A_TRIP = ("op_ends", "parts")  # arrays that every trip has; other trips can be drawn without

# Loads the module once a page; calls that come earlier wait for it.
_SHIM = """// answer widget: a door to the static module
const loaded = import(new URL("./app/static/answer.js", document.baseURI));
export default function (component) {
  let close;
  loaded.then((module) => { close = module.default(component); });
  return () => loaded.then(() => close?.());
}
"""

_CSS = "\n".join((_STATIC / name).read_text() for name in ("training.css", "answer.css"))
_mount = component("answer", css=_CSS, js=_SHIM)


def asks_to_be_polled() -> bool:
    """Whether the browser could not open the live stream (a host without `st.App`)."""
    return st.session_state.get(KEY, {}).get("transport") == "poll"


def answer(view: View[GenerateSpec], *, polled: bool, moment: int | None = None) -> None:
    """Draw the widget for an answer; `moment`: the trip that is shown first, instead of playing.

    The browser reruns the fragment around it when it saw the run change state before the page did,
    and when it asks to be polled; both are read from the run folder and the widget's own state.
    """
    _mount(
        key=KEY,
        data=message(view, polled=polled, moment=moment),
        on_changed_change=_rerun,
        on_transport_change=_rerun,
    )


def _rerun() -> None:
    """A callback that only has to exist: Streamlit reruns for it."""


def message(
    view: View[GenerateSpec], *, polled: bool, moment: int | None = None, still: bool = False
) -> bytes:
    """u32 header length, JSON header, events, arrays; a streamed run sends its header only.

    `still`: it does not begin to play by itself.
    """
    streamed = view.open and not polled
    spec, trace = view.spec, view.trace
    events, arrays = (b"", b"") if streamed else pack(thinned(trace, MAX_BYTES))
    shape = _shape_of(spec)
    header = {
        "run": f"{spec.spec_id}/{view.attempt or 'recording'}",
        "stream": stream_url(spec.spec_id, view.attempt or "") if streamed else None,
        "live": view.open,
        "events_bytes": len(events),
        "spec": spec.to_json(),
        "model": _title_of(spec.model),
        "format": {
            "title": KERNELS[spec.weight_format].title,
            "real": KERNELS[spec.weight_format].real,
        },
        "shape": _sizes(shape),
        "ops": [_op(op) for op in _ops(spec, shape)],
        "colours": COLOURS,
        "origin": view.origin,
        "waiting": "waiting for its turn, and for the model to be loaded",
        "known": {
            "n_recorded": 0,  # no trip is a recorded step of training
            "n_states": len(trace.scalars("paused")),
            "ended": trace.ended is not None,
        },
        "still": still,
        "moment": moment,
    }
    head = json.dumps(header, allow_nan=False).encode()
    return len(head).to_bytes(4, "little") + head + events + arrays


def thinned(trace: Trace, max_bytes: int) -> list[Event]:
    """The events of an answer, those that tell of single trips evenly dropped until all fit.

    Tokens with their probabilities, and the trips that were looked into, stay.
    """
    sizes: dict[int, int] = {}  # of what may be dropped, by trip
    for event in trace.events:
        if _is_of_a_trip(event):
            sizes[event.step] = sizes.get(event.step, 0) + sum(map(len, pack([event])))
    trips = sorted(sizes)
    stays = [e for e in trace.events if not _is_of_a_trip(e)]
    room = max_bytes - sum(map(len, pack(stays)))
    if sum(sizes.values()) <= room:
        return trace.events
    n_kept = min(len(trips), max(2, room // max(sizes.values())))
    kept = {trips[i] for i in np.linspace(0, len(trips) - 1, n_kept).round().astype(int)}
    return [e for e in trace.events if not _is_of_a_trip(e) or e.step in kept]


def _is_of_a_trip(event: Event) -> TypeGuard[Array]:
    return isinstance(event, Array) and event.role in _OF_A_TRIP


def _shape_of(spec: GenerateSpec) -> TransformerShape | None:
    """None where the model is gone: what was recorded of it is drawn without predictions."""
    try:
        return pretrained.shape_of(spec.model)
    except pretrained.Unavailable:
        return None


def _title_of(model: str) -> str:
    try:
        return own_models.title_of(model)
    except pretrained.Unavailable:
        return model


def _sizes(shape: TransformerShape | None) -> dict[str, int] | None:
    names = ("n_layer", "n_head", "n_kv_head", "d_head", "d_model", "d_ff", "vocab_size")
    return None if shape is None else {name: getattr(shape, name) for name in names}


def _ops(spec: GenerateSpec, shape: TransformerShape | None) -> tuple[Op, ...]:
    """The op table of a decode with a full context."""
    if shape is None:
        return ()
    workload = Decode(batch_size=spec.batch_size, context=spec.context)
    return expand(answer_ops(shape, workload, spec.weight_format))


def _op(op: Op) -> dict[str, Any]:
    """What the browser explains of an op of a decode; its numbers are predictions."""
    return {
        "id": op.id,
        "kind": op.kind,
        "output_shape": op.output_shape,
        "n_params": op.n_params,
        "forward_flops": op.forward_flops,
        "read_bytes": op.read_bytes,
        "cache_bytes": op.cache_bytes,
    }
