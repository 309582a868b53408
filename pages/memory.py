"""Memory against model size: a training step beside an answer, from a toy to 405 billion."""

import streamlit as st

from components import measure_here, memory_chart, memory_parts, sizing
from components.widgets.logchart import logchart


def page() -> None:
    st.title("Training keeps what inference throws away")
    with st.sidebar:
        sized = sizing.panel()
    memory_parts.headline(sized)
    chart(sized)
    memory_parts.peak(sized)
    memory_parts.fit(sized)
    memory_parts.numbers(sized)
    memory_parts.ledger(sized)
    memory_parts.conventions(sized)
    memory_parts.model(sized)
    measure_here.section(("train", "prefill"), memory=True)


def chart(sized: sizing.Sized) -> None:
    figure = memory_chart.figure(sized, sizing.view(), measure_here.known())
    logchart(figure, key="memory-chart", on_pick=lambda slug: sizing.use("model", slug))


page()
