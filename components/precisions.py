"""How long a step takes in each number format, from runs that were measured here."""

import dataclasses

import streamlit as st

from components import runs
from components.theme import seconds_text
from core.specs import MIXED_PRECISIONS, DigitsSpec, TransformerSpec


def measured_here(spec: DigitsSpec | TransformerSpec) -> None:
    """One line: fp32, bf16 and fp16 with all other settings equal, and which is faster."""
    found: dict[str, float] = {}
    busy = False
    for precision in MIXED_PRECISIONS:
        view = runs.latest(dataclasses.replace(spec, precision=precision))
        scalars = view.last_recorded_scalars if view else {}
        if "plain_step_s" in scalars:
            found[precision] = scalars["plain_step_s"]
            busy = busy or bool(scalars.get("contended"))
    if not found:
        return
    told = ", ".join(f"{name} {seconds_text(s)}" for name, s in found.items())
    missing = [name for name in MIXED_PRECISIONS if name not in found]
    more = f" Choose {' or '.join(missing)} to measure it too." if missing else ""
    if len(found) > 1:
        fastest, slowest = min(found, key=found.__getitem__), max(found, key=found.__getitem__)
        ratio = found[slowest] / found[fastest]
        more = f" Here {fastest} is {ratio:.2g} times as fast as {slowest}.{more}"
    alone = " The machine was busy during one of them." if busy else ""
    st.caption(f"One step, measured here with all else equal: {told}.{more}{alone}")
