"""Door of the training widget: a run as it goes, and one recorded step played back."""

import json
from pathlib import Path

import streamlit as st
from streamlit.components.v2 import component

from components.runs import View
from components.stream import stream_url
from components.theme import COLOURS
from core.memory import train_ops
from core.optimizers import OPTIMIZERS
from core.trace import pack

KEY = "player"
MAX_ARRAY_BYTES = 900_000
_STATIC = Path(__file__).parent.parent / "static"

# Loads the module once a page; calls that come earlier wait for it.
_SHIM = """// training widget: a door to the static module
const loaded = import(new URL("./app/static/training.js", document.baseURI));
export default function (component) {
  let close;
  loaded.then((module) => { close = module.default(component); });
  return () => loaded.then(() => close?.());
}
"""

_mount = component("training", css=(_STATIC / "training.css").read_text(), js=_SHIM)


def asks_to_be_polled() -> bool:
    """Whether the browser could not open the live stream (a host without `st.App`)."""
    return st.session_state.get(KEY, {}).get("transport") == "poll"


def training(view: View, *, polled: bool) -> None:
    """Draw the widget for a run.

    The browser reruns the fragment around it when it saw the run change state before the page did,
    and when it asks to be polled; both are read from the run folder and the widget's own state.
    """
    _mount(
        key=KEY,
        data=message(view, polled=polled),
        on_changed_change=_rerun,
        on_transport_change=_rerun,
    )


def _rerun() -> None:
    """A callback that only has to exist: Streamlit reruns for it."""


def message(view: View, *, polled: bool) -> bytes:
    """u32 header length, JSON header, events, arrays; a streamed run sends its header only."""
    streamed = view.open and not polled
    trace = view.trace
    if streamed:
        events = arrays = b""
    else:
        events, arrays = pack(trace.thinned(MAX_ARRAY_BYTES).events)
    recorded = trace.recorded_steps
    header = {
        "run": f"{view.spec.spec_id}/{view.attempt or 'recording'}",
        "stream": stream_url(view.spec.spec_id, view.attempt or "") if streamed else None,
        "events_bytes": len(events),
        "spec": view.spec.to_json(),
        "ops": [{"id": op.id, "kind": op.kind} for op in train_ops(view.spec)],
        "optimizer": {
            "name": view.spec.optimizer,
            "learning_rate": view.spec.learning_rate,
            **OPTIMIZERS[view.spec.optimizer].constants,
        },
        "colours": COLOURS,
        "origin": view.origin,
        "waiting": "waiting for a free place on this machine",
        "known": {
            "n_recorded": len(recorded),
            "n_states": len(trace.scalars("paused")),
            "ended": trace.ended is not None,
        },
        # A shipped run opens in the middle of its learning, any other at its latest step.
        "show_step": recorded[len(recorded) // 2] if recorded and view.attempt is None else None,
    }
    head = json.dumps(header, allow_nan=False).encode()
    return len(head).to_bytes(4, "little") + head + events + arrays
