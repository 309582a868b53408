"""Door of the training widget: a run as it goes, and one recorded step played back."""

import json
from pathlib import Path
from typing import Any

import streamlit as st
from streamlit.components.v2 import component

from components.runs import View, examples_in_step
from components.stream import stream_url
from components.theme import COLOURS
from core.drawing import evenly
from core.events import Sample
from core.ops import Op
from core.optimizers import OPTIMIZERS
from core.specimens import ops_of, text_of
from core.specs import Spec, TransformerSpec
from core.trace import pack

KEY = "player"
MAX_BYTES = 1_000_000  # of a message: frames are thinned until it fits
_STATIC = Path(__file__).parent.parent / "static"

# What a run's examples are called, and what a right answer is.
WORDS = {
    "playground": {"examples": "examples", "right": "held-out", "answers": ""},
    "digits": {
        "examples": "digits",
        "right": "held-out digits",
        "answers": "What it reads",
    },
    "addition": {
        "examples": "sums",
        "right": "held-out sums",
        "answers": "Sums it has never seen",
    },
    "pydocs": {
        "examples": "characters",
        "right": "held-out characters",
        "answers": "How it goes on",
    },
    "text": {"examples": "characters", "right": "held-out characters", "answers": "How it goes on"},
}

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
        lines, _ = pack(e for e in trace.events if not isinstance(e, Sample))
        events, arrays = pack(trace.thinned(max(MAX_BYTES - len(lines), 0)).events)
    recorded = trace.recorded_steps
    header = {
        "run": f"{view.spec.spec_id}/{view.attempt or 'recording'}",
        "stream": stream_url(view.spec.spec_id, view.attempt or "") if streamed else None,
        "events_bytes": len(events),
        "spec": view.spec.to_json(),
        "words": WORDS[view.spec.specimen],
        "axis": "step" if isinstance(view.spec, TransformerSpec) else "epoch",
        "ops": [_op(op) for op in ops_of(view.spec, examples_in_step(view))],
        **_characters(view.spec),
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


def _op(op: Op) -> dict[str, Any]:
    """What the browser lays out and explains of an op; its numbers are predictions."""
    return {
        "id": op.id,
        "kind": op.kind,
        "inputs": op.inputs,
        "output_shape": op.output_shape,
        "n_params": op.n_params,
        "forward_flops": op.forward_flops,
        "backward_flops": op.backward_flops,
        "saved_bytes": op.saved_bytes,
        "saved_because": op.saved_because,
    }


def _characters(spec: Spec) -> dict[str, Any]:
    """The alphabet of a text model, and which positions of a sequence are drawn."""
    if not isinstance(spec, TransformerSpec):
        return {}
    return {
        "vocabulary": text_of(spec).vocabulary,
        "positions": evenly(spec.seq_len).tolist(),
    }
