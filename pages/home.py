"""One model, used twice: a training step and an answer, side by side under one clock."""

import streamlit as st

from components import both, settings
from components.both import ANSWER, PAIRS, STEP, Both, Fact
from components.widgets.bothways import asks_to_be_polled, bothways


def page() -> None:
    st.title("One model, used twice")
    st.markdown(
        "Training runs both ways through a network and changes it. Inference runs one way and "
        "leaves it alone. Left one real training step, right one real answer, on one clock."
    )
    with st.sidebar:
        pair = PAIRS[settings.widget(both.CONTROLS["pair"])]
        st.caption(pair.about)
    every = seconds(both.go_on(both.look(pair)))
    st.fragment(run, run_every=every)(pair, every=every)


def seconds(runs: Both) -> float | None:
    """How often the page looks by itself; None where the browser says when something is new."""
    if runs.calibrating:
        return 0.5
    return 1 if asks_to_be_polled() and runs.open else None


def run(pair: both.Pair, *, every: float | None) -> None:
    runs = both.go_on(both.look(pair))
    if every != seconds(runs):
        st.rerun()
    polled = every == 1
    buttons(runs)
    figures = {
        STEP: both.step_figures(runs.step, pair),
        ANSWER: both.answer_figures(runs.answer, pair),
    }
    asked = bothways(runs, figures, both.takeaway(runs), polled=polled)
    if asked:
        explain(asked, figures, runs)


def buttons(runs: Both) -> None:
    obstacle = both.obstacle(runs.pair)
    with st.container(horizontal=True, gap="small", vertical_alignment="center", key="run-bar"):
        if runs.open:
            st.button("Stop", key="stop", on_click=both.stop, args=(runs,))
        else:
            st.button(
                "Run both here",
                key="go",
                type="primary",
                icon=":material/play_arrow:",
                on_click=both.run_here,
                args=(runs.pair,),
                disabled=obstacle is not None,
                help="One answer and one training step, measured on this machine now.",
            )
        if st.button("Open the step", key="open-step", help="Op by op, on the Training page."):
            st.switch_page("../pages/training.py", query_params=both.step_link(runs.pair))
        if st.button("Open the answer", key="open-answer", help="On the Inference page."):
            st.switch_page("../pages/inference.py", query_params=both.answer_link(runs))
        if runs.here and not runs.open:
            st.button(
                "Show the recordings",
                key="recording",
                type="tertiary",
                on_click=both.show_recordings,
                args=(runs.pair,),
            )
    if obstacle is not None:
        say(obstacle)
    both.outcome(runs)


def say(obstacle: both.Obstacle) -> None:
    with st.container(horizontal=True, vertical_alignment="center"):
        st.caption(obstacle.why)
        if obstacle.fitting is not None:
            st.button(
                f"Run {obstacle.fitting.title} here, which fits",
                key="fit",
                on_click=both.use,
                args=(obstacle.fitting,),
            )


def explain(asked: str, figures: dict[str, list[Fact]], runs: Both) -> None:
    for name, view in ((STEP, runs.step), (ANSWER, runs.answer)):
        for figure in figures[name]:
            if f"{name} {figure.id}" == asked:
                both.explain(figure, view)


page()
