"""What an answer holds, moves and takes: predicted, measured, error."""

import dataclasses
import functools

import streamlit as st

from components import claims, runs
from components.asking import Asked
from components.claims import Unpredicted
from components.runs import View
from components.theme import bytes_text, count, seconds_text
from core import latency
from core.answer_account import (
    BYTES,
    TIMES,
    Told,
    machine_of,
    predicted_bytes,
    predicted_times,
)
from core.compare import Comparison
from core.memory import Prediction
from core.specimens import runs_folder
from core.specs import CalibrationSpec, GenerateSpec

_EVERY_S = 0.5
_PARTS = {
    "tpot_overhead_s": "starting the ops",
    "tpot_weights_s": "weights",
    "tpot_cache_s": "keys and values",
}


def numbers(asked: Asked, view: View[GenerateSpec] | None) -> None:
    told = Told.by(view.trace) if view else None
    origin = view.origin if view else "nothing was measured with these settings yet"
    st.header("What it holds and moves")
    st.markdown(
        "An answer needs the weights, the keys and values of earlier tokens, and next to nothing "
        "besides: what one op hands to the next is forgotten at once."
    )
    n_trips = told.n_trips if told else None
    found = predicted_bytes(asked.spec, asked.shape, asked.n_prompt, n_trips)
    measured = told.measured if told else {}
    claims.comparisons(
        [Comparison(prediction=found[q], measured=measured.get(q)) for q in BYTES],
        origin=origin,
        repeats="Bytes are counted, and are the same each time.",
    )
    _times(asked, view, told, origin)


def _times(asked: Asked, view: View[GenerateSpec] | None, told: Told | None, origin: str) -> None:
    st.header("How long it takes, and what it leaves behind")
    st.markdown(
        "Reading the prompt is one trip for all of its tokens. Every new token is another trip, "
        "and each trip fetches all weights from memory. None of it changes one of them."
    )
    spec = asked.spec
    if told and told.after:  # it may have ended before its longest
        spec = dataclasses.replace(spec, max_new_tokens=told.n_trips)
    machine = machine_of(view.trace) if view else None
    times = predicted_times(spec, asked.shape, asked.n_prompt, runs_folder(), machine)
    measured = told.measured if told else {}
    items: list[Comparison | Unpredicted] = []
    for quantity in TIMES:
        value = measured.get(quantity)
        if quantity not in times:
            items.append(Unpredicted(id=quantity, measured=value, why="not calibrated yet"))
        else:
            items.append(Comparison(prediction=times[quantity], measured=value))
    before, after = (told.before, told.after) if told else ("", "")
    frozen = functools.partial(claims.frozen, before, after, origin)
    claims.comparisons(items, origin=origin, repeats=_repeats(told), also=frozen)
    _split(asked, times)
    if latency.stored(runs_folder(), spec.weight_format, spec.threads) is None:
        calibration(spec.threads)  # what is shown may be of another machine, which is


def _repeats(told: Told | None) -> str:
    """How often a trip was timed, and whether something else ran meanwhile."""
    if told is None or "ttft_s" not in told.scalars:
        return "No trip is timed yet."
    scalars = told.scalars
    said = f"One prefill, {count(max(0, told.n_trips - 1))} further trips"
    if "tpot_s" in scalars:
        said += (
            f": {seconds_text(scalars['tpot_s'])} in the median, the middle half within "
            f"{seconds_text(scalars['tpot_spread_s'])}"
        )
    if scalars.get("contended"):
        said += ". The machine was busy meanwhile: times are too long"
    return said + "."


def _split(asked: Asked, times: dict[str, Prediction]) -> None:
    """What a further token's time goes to, in one sentence."""
    read_bytes = predicted_bytes(asked.spec, asked.shape, asked.n_prompt)["read_bytes_per_token"]
    bound = read_bytes.value < latency.OVERHEAD_BOUND_BYTES
    said = ""
    if times:
        parts = ", ".join(
            f"{seconds_text(times[part].value)} {name}" for part, name in _PARTS.items()
        )
        bounds = dict(times["tpot_s"].inputs).get("bound by", "")
        said = f"A token's predicted {seconds_text(times['tpot_s'].value)} go to: {parts}. "
        said += "" if bound else f"Most of it is {bounds}."
    if bound:
        said += (
            f"With {bytes_text(read_bytes.value)} of weights this model is **overhead-bound**: a "
            "token waits for its ops to be started one after another, not for memory. Fewer bits "
            "would hardly help."
        )
    if said:
        st.markdown(said)


# -- calibration ----------------------------------------------------------------------------------


def calibration(threads: int) -> None:
    """A button that measures what this machine does in a second, from which times are predicted."""
    spec = CalibrationSpec(threads=threads)
    view = runs.latest(spec)
    running = view is not None and view.open
    st.fragment(_calibration, run_every=_EVERY_S if running else None)(spec, running=running)


def _calibration(spec: CalibrationSpec, *, running: bool) -> None:
    view = runs.latest(spec)
    if running != (view is not None and view.open):
        st.rerun()
    with st.container(horizontal=True, vertical_alignment="center"):
        if running:
            st.button("Stop", key="calibrate-stop", on_click=runs.stop_sweep, args=(spec,))
            st.caption("Measuring what this machine does in a second, in every weight format.")
            return
        st.button(
            "Calibrate this machine",
            key="calibrate",
            on_click=runs.start_sweep,
            args=(spec,),
            help="Times the ops of small models in every weight format, so that the time of any "
            "other can be predicted. Takes about a minute.",
        )
        st.caption("Times are predicted once this machine is calibrated: about a minute.")
