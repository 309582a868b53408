"""The answer that the Inference page looks at: which run, what its buttons do, what it took."""

import dataclasses
import functools

import streamlit as st

from components import asking, run_bar, runs
from components.asking import Asked
from components.runs import RUN, View
from components.theme import bytes_text, flops_text, sentence
from core import answer_limits, limits
from core.answer_account import Told
from core.answer_limits import Refusal
from core.recordings import shipped
from core.specs import GenerateSpec

# What the first button is called, by the run's state; it pauses a running one.
_PRIMARY = {
    "none": "Answer",
    "recorded": "Run it here",
    "waiting": "Getting ready",
    "opening": "Getting ready",
    "running": "Pause",
    "paused": "Continue",
}


def look(spec: GenerateSpec) -> View[GenerateSpec] | None:
    """The run to show: the one the URL names, else a shipped one, else the latest that is under way
    or finished. None where nobody has asked this here: a model is too large to start unasked.
    """
    attempt = st.query_params.get(RUN)
    if attempt is not None:
        folder = runs.host().folder(spec, attempt)
        if folder is not None:
            return runs.view_of(spec, attempt, folder)
        runs.explain_missing(attempt, "Answer")
        del st.query_params[RUN]
    return runs.unnamed(spec)


def seed_prompt() -> None:
    """A link may name only its run: then the prompt is that run's."""
    attempt = st.query_params.get(RUN)
    found = runs.found(attempt) if attempt else None
    if found and isinstance(found[0], GenerateSpec) and not found[0].chat:
        asking.seed_prompt(found[0].prompt)


# -- buttons --------------------------------------------------------------------------------------


def buttons(asked: Asked, view: View[GenerateSpec] | None) -> None:
    """Answer or pause, one token, stop, more tokens: real buttons, for keyboard and reader."""
    state = view.state if view else "none"
    running = state == "running"
    with st.container(horizontal=True, gap="small", vertical_alignment="center", key="run-bar"):
        st.button(
            _PRIMARY.get(state, "Answer again"),
            key="go",
            type="primary",
            icon=":material/pause:" if running else ":material/play_arrow:",
            disabled=state in ("waiting", "opening"),
            on_click=_pause if running else _answer,
            args=(asked.spec, view),
        )
        st.button(
            "Step",
            key="step",
            on_click=_step,
            args=(asked.spec, view),
            help="One token: one trip through the model, then it waits.",
        )
        st.button(
            "Stop",
            key="stop",
            on_click=_stop,
            args=(view,),
            disabled=not (view and view.open),
        )
        if _more(asked, view):
            st.rerun()  # all of the page: the control stands outside this fragment
        if view and view.attempt and shipped(asked.spec) is not None:
            st.button("Show the recording", key="recording", type="tertiary", on_click=_recording)


def _more(asked: Asked, view: View[GenerateSpec] | None) -> bool:
    """Whether the button for a longer answer was pressed; disabled, with the reason, where it
    would be no longer.
    """
    longer = asking.more_tokens(asked.spec)
    told = Told.by(view.trace) if view else None
    why = ""
    if told is None or not told.after:
        why = "The answer is not complete yet."
    elif told.n_trips < asked.spec.max_new_tokens:
        full = asked.n_prompt + told.n_trips > asked.spec.context
        why = "The context is full." if full else "The model has ended its answer."
    elif longer is None:
        why = f"{asked.spec.max_new_tokens} tokens is the longest answer here."
    return st.button(
        "More tokens",
        key="more",
        disabled=bool(why),
        help=why or f"The same answer, up to {longer} tokens.",
        on_click=_longer,
        args=(asked.spec, longer),
    )


def _answer(spec: GenerateSpec, view: View[GenerateSpec] | None) -> None:
    """Go on with the run that is looked at, or start a new one."""
    if view and view.state == "paused" and view.attempt:
        _command(view, "resume")
    else:
        st.query_params[RUN] = runs.submit(spec)


def _step(spec: GenerateSpec, view: View[GenerateSpec] | None) -> None:
    if view and view.open and view.attempt:
        _command(view, "step")
    else:
        st.query_params[RUN] = runs.submit(spec, paused=True)


def _pause(spec: GenerateSpec, view: View[GenerateSpec]) -> None:
    _command(view, "pause")


def _stop(view: View[GenerateSpec]) -> None:
    _command(view, "stop")


def _longer(spec: GenerateSpec, n_tokens: int) -> None:
    asking.use("max_new_tokens", n_tokens)
    st.query_params[RUN] = runs.submit(dataclasses.replace(spec, max_new_tokens=n_tokens))


def _recording() -> None:
    """Back to the shipped run of these settings."""
    st.query_params.pop(RUN, None)


def _command(view: View[GenerateSpec], do: str) -> None:
    assert view.attempt is not None
    runs.host().command(view.spec, view.attempt, do)
    st.query_params[RUN] = view.attempt


# -- what there is to say -------------------------------------------------------------------------

_NAMES = {
    "context": "a context of",
    "batch_size": "a batch of",
    "weight_format": "weights in",
    "cache": "the KV cache",
}


def refused(asked: Asked) -> bool:
    """Say why this is not answered here, and offer the nearest that would be."""
    refusal = answer_limits.refusal(asked.spec, asked.shape, asked.n_prompt)
    if refusal is None:
        return False
    st.warning(said_of(refusal))
    if refusal.fitting is not None:
        value = getattr(refusal.fitting, refusal.changed)
        use = functools.partial(asking.use, refusal.changed, value)
        run_bar.offer(_NAMES[refusal.changed], value, use)
    return True


def said_of(refusal: Refusal) -> str:
    need = refusal.need
    return (
        f"This answer would hold {bytes_text(need.peak_bytes)} at its peak, and its longest trip "
        f"would take {flops_text(need.trip_flops)}, both predicted. An answer may take "
        f"{bytes_text(limits.max_run_bytes())} and {flops_text(answer_limits.max_trip_flops())} a "
        "trip here."
    )


def outcome(view: View[GenerateSpec] | None) -> None:
    """Why a run ended, where it was not its last token that ended it."""
    if view is None:
        st.caption(
            "Nobody has asked this here yet. Press Answer: the numbers below say what it will take."
        )
        return
    ended = view.trace.ended
    match view.state:
        case "failed" | "died":
            message = ended.message if ended else "its process ended without a word"
            st.error(f"This run broke off: {sentence(message)} What was recorded is kept.")
        case "stopped" if ended:
            st.caption(f"This run ended early: {ended.message}. What was recorded is kept.")
