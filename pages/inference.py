"""An answer: a prompt is read in one pass, then a token comes with every trip; nothing changes."""

import streamlit as st

from components import account, answers, asking, chat, models, sweeps
from components.asking import Asked
from components.widgets.answer import answer, asks_to_be_polled


def page() -> None:
    st.title("An answer runs one way, and changes nothing")
    st.markdown(
        "The prompt goes through the model once, all its tokens together: the prefill. Then every "
        "new token is one more trip: the decode. The weights are read each time and never written."
    )
    answers.seed_prompt()
    with st.sidebar:
        panel = asking.panel()
    shape = models.ready(panel.model)
    if shape is None:
        return
    if asking.mode(panel.model) == "Chat":
        chat.page(panel, shape)
        return
    asked = asking.prompt(panel, shape)
    if asked is None or answers.refused(asked):
        return
    view = answers.look(asked.spec)
    polled = asks_to_be_polled() and view is not None and view.open
    st.fragment(run, run_every=1 if polled else None)(asked, polled=polled)
    sweeps.sections(asked)


def run(asked: Asked, *, polled: bool) -> None:
    view = answers.look(asked.spec)
    if polled != (asks_to_be_polled() and view is not None and view.open):
        st.rerun()
    answers.buttons(asked, view)
    answers.outcome(view)
    if view is not None:
        answer(view, polled=polled)
    account.numbers(asked, view)


page()
