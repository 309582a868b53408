"""The picture that says it all: peak memory against depth, inference beside training."""

import streamlit as st

from components import runs
from components.charts.depth import ANSWER, TRAIN, depth_figure
from components.theme import COLOURS, bytes_text, error_text
from core import limits
from core.specimens import predicted_depths, text_of
from core.specs import DepthsSpec, TransformerSpec


def picture(spec: TransformerSpec) -> None:
    """Predicted lines at once; measured points on a button, one depth after another."""
    sweep = DepthsSpec.of(spec, text_of(spec).vocab_size)
    view = runs.latest(sweep)
    running = view is not None and view.open
    st.fragment(_picture, run_every=0.5 if running else None)(sweep, running=running)


def _picture(sweep: DepthsSpec, *, running: bool) -> None:
    view = runs.latest(sweep)
    now_running = view is not None and view.open
    if running != now_running:
        st.rerun()
    st.subheader("The same model, deeper: answering stays flat, training grows")
    predicted = predicted_depths(sweep)
    measured = {name: view.trace.scalars(name) if view else [] for name in (TRAIN, ANSWER)}
    train = {depth: value for depth, value, _ in predicted}
    slope = train[sweep.n_layer] - train[sweep.n_layer - 1]
    colours = COLOURS["dark" if st.context.theme.type == "dark" else "light"]
    st.plotly_chart(
        depth_figure(predicted, measured, colours),
        key="depth-chart",
        config={"displaylogo": False, "displayModeBar": False},
        alt=f"Peak memory against layers. A training step needs {bytes_text(train[1])} with one "
        f"layer and {bytes_text(train[sweep.n_layer])} with {sweep.n_layer}; an answer "
        f"{bytes_text(predicted[0][2])} and {bytes_text(predicted[-1][2])}.",
    )
    answer_slope = predicted[-1][2] - predicted[-2][2]
    st.markdown(
        f"Every further layer costs a training step {bytes_text(slope)}: its activations are kept "
        f"until backward comes by. It costs an answer {bytes_text(answer_slope)}, its weights: "
        "activations are handed on and forgotten."
    )
    with st.container(horizontal=True, vertical_alignment="center"):
        if now_running:
            st.button("Stop measuring", key="sweep-stop", on_click=runs.stop_sweep, args=(sweep,))
            st.caption(f"{len(measured[TRAIN])} of {len(sweep.depths)} depths measured")
        else:
            st.button(
                "Measure it here",
                key="sweep-start",
                on_click=runs.start_sweep,
                args=(sweep,),
                disabled=limits.refusal(sweep) is not None,
                help="Runs one answer and two training steps at each of several depths.",
            )
            st.caption(_said(measured, train, view.origin if view else None))


def _said(
    measured: dict[str, list[tuple[int, float]]], train: dict[int, int], origin: str | None
) -> str:
    points = measured[TRAIN]
    if not points or origin is None:
        return "Lines are predicted from the op table. Nothing has been measured with them yet."
    worst = max((train[d] / v - 1 for d, v in points), key=abs)
    return (
        f"{len(points)} depths {origin}. Largest error of the training peak: {error_text(worst)}."
    )
