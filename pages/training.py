"""A step is four things: watch a real network train, then play back one of its steps."""

import streamlit as st

from components import claims, depths, precisions, run_bar, runs, settings
from components.theme import measured_step_text
from components.widgets.training import asks_to_be_polled, training
from core.compare import compare
from core.specimens import predictions
from core.specs import DigitsSpec, TransformerSpec


def page() -> None:
    st.title("A step is four things, over and over")
    st.markdown(
        "Forward makes a guess. The loss says how wrong. Backward asks every weight for its share. "
        "The update nudges each by that much."
    )
    with st.sidebar:
        chosen = settings.draw()
    if run_bar.refused(chosen):
        return
    view = runs.look(chosen)
    runs.set_pace(chosen, view)
    polled = asks_to_be_polled() and view.open
    st.fragment(run, run_every=1 if polled else None)(chosen, polled=polled)
    if isinstance(chosen.spec, TransformerSpec):
        depths.picture(chosen.spec)


def run(chosen: settings.Settings, *, polled: bool) -> None:
    view = runs.look(chosen)
    if polled != (asks_to_be_polled() and view.open):
        st.rerun()
    run_bar.buttons(chosen, view)
    run_bar.outcome(view)
    training(view, polled=polled)
    memory(view)
    if isinstance(view.spec, DigitsSpec | TransformerSpec):
        precisions.measured_here(view.spec)


def memory(view: runs.View) -> None:
    measured = view.last_recorded_scalars
    st.subheader("What one step holds in memory")
    st.markdown(
        "Weights are all that an answer needs. Training adds a gradient for each of them, whatever "
        "the optimizer remembers, and every activation of the batch until backward has used it."
    )
    claims.comparisons(
        compare(
            predictions(view.spec, runs.examples_in_step(view), first=view.at_first_step), measured
        ),
        origin=view.origin,
        repeats=measured_step_text(measured),
    )
    st.caption(
        "Bytes of tensors, counted in the recorded step by means that share no code with the "
        "prediction. To see the optimizer's share grow, choose AdamW; for the activations', a "
        "larger batch."
    )


page()
