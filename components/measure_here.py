"""A ladder of models run on this machine: the button, how far it is, predicted beside measured."""

from pathlib import Path

import streamlit as st

from components import folded, runs
from components.theme import (
    bytes_text,
    count,
    error_text,
    plain,
    seconds_text,
)
from core import latency, sweeps
from core.quantities import QUANTITIES
from core.specimens import runs_folder
from core.specs import LadderSpec
from core.sweeps import SECONDS, Row

_EVERY_S = 0.7
SPEC = LadderSpec()


def known() -> tuple[Row, ...]:
    """Everything that was measured on a machine like this, shipped or here, with what is predicted
    of it.
    """
    key = (_calibrated(runs_folder() / latency.FOLDER), sweeps.ladders(runs_folder()))
    if key not in _known:
        _known.clear()
        _known[key] = sweeps.rows(sweeps.points(runs_folder()), runs_folder())
    return _known[key]


def _calibrated(folder: Path) -> tuple[tuple[str, int], ...]:
    """Which calibrations there are, and when each was kept: predictions change with them."""
    if not folder.is_dir():
        return ()
    return tuple(sorted((p.name, p.stat().st_mtime_ns) for p in folder.glob("*.json")))


_known: dict[tuple[object, ...], tuple[Row, ...]] = {}  # predicting takes 0.2 s, once a sweep


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
    st.header("Measured on this machine")
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


def table_of_times() -> None:
    """The same for seconds, without a button of its own."""
    rows = [r for r in known() if _wanted(r, memory=False)]
    st.header("Times")
    if not rows:
        st.caption("Nothing has been measured yet.")
        return
    _summary(rows)
    _table(rows, memory=False)


def _wanted(row: Row, memory: bool) -> bool:
    return (row.quantity not in SECONDS.values()) == memory


ROOM_BYTES, ROOM_SHARE = 65_536, 0.01  # what a peak may be off by: the larger of the two


def _summary(rows: list[Row]) -> None:
    off = [r for r in rows if r.error is not None]
    here = latency.fingerprint()
    elsewhere = sorted({r.cpu or r.machine for r in rows if r.machine != here})
    if elsewhere:
        st.caption(f"Some were measured on another machine: {plain(', '.join(elsewhere))}.")
    if not off:
        return
    exact = sum(1 for r in off if r.error == 0)
    said = f"**{count(len(off))} predictions** beside their measurement: {count(exact)} exact"
    if off[0].quantity not in SECONDS.values():
        near = sum(1 for r in off if _near(r))
        said += f", {count(near)} within 1 % or 64 KiB"
    if exact == len(off):
        st.markdown(said + ".")
        return
    worst = max(off, key=lambda r: abs(r.error or 0))
    gap = abs((worst.predicted or 0) - (worst.measured or 0))
    size = f", {bytes_text(gap)}" if off[0].quantity not in SECONDS.values() else ""
    st.markdown(
        f"{said}. The largest error is {error_text(worst.error)}{size} ({_label(worst)}, "
        f"{worst.work} {worst.format}, {count(worst.n_params)} parameters)."
    )


def _near(row: Row) -> bool:
    gap = abs((row.predicted or 0) - (row.measured or 0))
    return gap <= max(ROOM_BYTES, ROOM_SHARE * (row.measured or 0))


def _label(row: Row) -> str:
    quantity = QUANTITIES.get(row.quantity)
    return quantity.label.lower() if quantity else row.quantity


def _table(rows: list[Row], memory: bool) -> None:
    folded.expander(
        f"All {count(len(rows))} numbers", f"ladder-{memory}", lambda: _numbers(rows, memory)
    )


def _numbers(rows: list[Row], memory: bool) -> None:
    write = bytes_text if memory else seconds_text
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
