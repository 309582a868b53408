"""The run's own buttons, and what a run that ended early has to say."""

import functools
from collections.abc import Callable

import streamlit as st

from components import runs, settings
from components.runs import View
from components.settings import Settings
from components.theme import bytes_text, flops_text
from core import limits

# What the first button is called, by the run's state; it pauses a running one and trains any other.
_PRIMARY = {
    "recorded": "Run it here",
    "waiting": "Waiting in line",
    "opening": "Opening",
    "running": "Pause",
    "paused": "Train",
}


def buttons(chosen: Settings, view: View) -> None:
    """Train or pause, single step, reset, stop: real buttons, so that any of them can be reached
    by keyboard and screen reader."""
    args = (chosen, view)
    running = view.state == "running"
    with st.container(horizontal=True, gap="small", vertical_alignment="center", key="run-bar"):
        st.button(
            _PRIMARY.get(view.state, "Train again"),
            key="go",
            type="primary",
            icon=":material/pause:" if running else ":material/play_arrow:",
            disabled=view.state in ("waiting", "opening"),
            on_click=runs.pause if running else runs.train,
            args=args,
        )
        st.button(
            "Step",
            key="step",
            on_click=runs.step,
            help="One real update, recorded op by op and played back slowly.",
            args=args,
        )
        st.button(
            "Reset", key="reset", on_click=runs.reset, help="Back to the first weights.", args=args
        )
        st.button("Stop", key="stop", on_click=runs.stop, disabled=not view.open, args=args)
        if view.attempt is not None and runs.has_recording(chosen):
            st.button(
                "Show the recording", key="recording", type="tertiary", on_click=runs.show_recording
            )


def outcome(view: View) -> None:
    """Why a run ended, where it was not its last epoch that ended it."""
    ended = view.trace.ended
    match view.state:
        case "diverged" if ended:
            rate = settings.next_learning_rate(ended.advice["learning_rate"], view.spec.specimen)
            with st.container(horizontal=True, vertical_alignment="center"):
                st.error(
                    f"{ended.message[:1].upper()}{ended.message[1:]}. The picture is the last "
                    "finite one. A smaller learning rate usually helps."
                )
                tried = st.button(
                    f"Try learning rate {rate}",
                    on_click=settings.set_learning_rate,
                    args=(rate, view.spec.specimen),
                )
            if tried:
                st.rerun()  # all of the page: this is a fragment, and the slider stands outside it
        case "failed" | "died":
            message = ended.message if ended else "its process ended without a word"
            st.error(f"This run broke off: {message}. What was recorded is kept.")
        case "stopped" if ended:
            st.caption(f"This run ended early: {ended.message}. What was recorded is kept.")


_NAMES = {
    "batch_size": "a batch size of",
    "seq_len": "a context of",
    "d_model": "a width of",
    "checkpointing": "gradient checkpointing",
}


def refused(chosen: Settings) -> bool:
    """Say why these settings are not run here, and offer the nearest that are."""
    refusal = limits.refusal(chosen.spec)
    if refusal is None:
        return False
    need = refusal.need
    st.warning(
        f"One step of this would hold {bytes_text(need.peak_bytes)} at its peak and take "
        f"{flops_text(need.flops)}, both predicted. A run may take "
        f"{bytes_text(limits.max_run_bytes())} and {flops_text(limits.max_step_flops())} here."
    )
    if refusal.fitting is not None:
        value = getattr(refusal.fitting, refusal.changed)
        use = functools.partial(settings.use, chosen.spec.specimen, refusal.changed, value)
        offer(_NAMES[refusal.changed], value, use)
    return True


def offer(name: str, value: object, use: Callable[[], None]) -> None:
    """The nearest setting that would be run here, on a button."""
    what = name + ("" if value is True else f" {value}")
    st.button(f"Use {what}, which fits", key="fit", type="primary", on_click=use)
