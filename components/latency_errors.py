"""How far predictions of time were off on this machine, by kind of work and format."""

import streamlit as st

from components import measure_here
from components.latency_times import NAMES, WORKS, Look, errors, markdown_table
from components.theme import count, error_text


def section(look: Look) -> None:
    """The table, and the section that measures."""
    st.header("How wrong this is, here")
    found = [
        (work, number_format, off)
        for work in WORKS
        for number_format in sorted({r.format for r in look.measured if r.work == work})
        if (off := errors(look, work, number_format)) is not None
    ]
    if found:
        markdown_table(
            ("work", "format", "models", "off in the mean", "at worst"),
            [
                (
                    NAMES[work],
                    name,
                    count(off.n),
                    f"{100 * off.mean:.1f} %",
                    error_text(off.worst),
                )
                for work, name, off in found
            ],
        )
        st.caption(
            "Predicted ÷ measured − 1, from models of 0.1 million parameters to as many as this "
            "machine holds. The worst of each work is the band around its line above."
        )
    else:
        st.markdown(
            "Nothing was measured on this machine yet. Measuring the ladder takes a minute and "
            "turns every line above into a claim that is checked."
        )
    measure_here.section(WORKS, memory=False)
