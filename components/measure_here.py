"""A ladder of models run on this machine: the button, how far it is, predicted beside measured."""

import streamlit as st

from components import runs
from components.theme import (
    bytes_text,
    count,
    error_text,
    seconds_text,
)
from core import sweeps
from core.quantities import QUANTITIES
from core.specimens import runs_folder
from core.specs import LadderSpec
from core.sweeps import SECONDS, Row

_EVERY_S = 0.7
SPEC = LadderSpec()


def known() -> tuple[Row, ...]:
    """Everything that was measured on a machine like this, shipped or here."""
    found = sweeps.points(runs_folder())
    return sweeps.rows(found, runs_folder())


def section(works: tuple[str, ...], *, memory: bool) -> None:
    """Measure, and compare. `memory`: bytes are shown, else seconds."""
    view = runs.latest(SPEC)
    running = view is not None and view.open
    st.fragment(_body, run_every=_EVERY_S if running else None)(
        works, memory=memory, running=running
    )


def _body(works: tuple[str, ...], *, memory: bool, running: bool) -> None:
    view = runs.latest(SPEC)
    if running != (view is not None and view.open):
        st.rerun()
    st.subheader("Measured on this machine")
    st.markdown(
        "Models of rising size, weights drawn at random, each trained for some steps and asked for "
        "some tokens: every byte followed from birth to death, every step timed."
    )
    n = len(SPEC.points)
    with st.container(horizontal=True, vertical_alignment="center"):
        if running and view is not None:
            st.button("Stop measuring", key="ladder-stop", on_click=runs.stop_sweep, args=(SPEC,))
            done = len({m.point for m in sweeps.measured_in(view.trace)})
            st.progress(min(1.0, done / n), text=f"{done} of {n} points; what is done is kept")
        else:
            st.button(
                "Measure the ladder",
                key="ladder-start",
                on_click=runs.start_sweep,
                args=(SPEC,),
                help=f"Up to {n} points in at most {SPEC.budget_s:.0f} s, smallest models first; "
                "larger ones are left out where time or memory ends.",
            )
            st.caption(
                f"Training steps of {SPEC.batch_size} × {SPEC.seq_len} tokens; prompts and "
                f"contexts of {SPEC.seq_len} tokens."
            )
    rows = [r for r in known() if r.work in works and _wanted(r, memory)]
    if not rows:
        st.caption("Nothing has been measured yet.")
        return
    _summary(rows)
    _table(rows, memory)


def _wanted(row: Row, memory: bool) -> bool:
    return (row.quantity not in SECONDS.values()) == memory


def _summary(rows: list[Row]) -> None:
    off = [abs(r.error) for r in rows if r.error is not None]
    if not off:
        return
    worst = max((r for r in rows if r.error is not None), key=lambda r: abs(r.error or 0))
    exact = sum(1 for e in off if e == 0)
    st.markdown(
        f"**{count(len(off))} predictions** beside their measurement: {count(exact)} exact, the "
        f"largest error {error_text(worst.error)} ({_label(worst)}, {worst.work} "
        f"{worst.format}, {count(worst.n_params)} parameters)."
    )


def _label(row: Row) -> str:
    quantity = QUANTITIES.get(row.quantity)
    return quantity.label.lower() if quantity else row.quantity


def _table(rows: list[Row], memory: bool) -> None:
    write = bytes_text if memory else seconds_text
    with st.expander(f"All {count(len(rows))} numbers", key=f"ladder-{memory}"):
        st.table(
            {
                "work": [f"{r.work} {r.format}" for r in rows],
                "parameters": [count(r.n_params) for r in rows],
                "what": [_label(r) for r in rows],
                "predicted": [write(r.predicted) if r.predicted is not None else "–" for r in rows],
                "measured": [write(r.measured) if r.measured is not None else "–" for r in rows],
                "error": [error_text(r.error) for r in rows],
            },
            hide_index=True,
            alt="Predicted and measured, of each rung of the ladder",
        )
    with st.container(horizontal=True):
        st.download_button(
            "CSV",
            data=lambda: sweeps.to_csv(rows),
            file_name="bothways-ladder.csv",
            mime="text/csv",
            key=f"ladder-csv-{memory}",
        )
        st.download_button(
            "JSON",
            data=lambda: sweeps.to_json(rows),
            file_name="bothways-ladder.json",
            mime="application/json",
            key=f"ladder-json-{memory}",
        )
