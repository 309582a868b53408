"""What is drawn only once it is opened: a table or a working that most visitors never look at.

Opening runs the folded part alone, not the page.
"""

from collections.abc import Callable

import streamlit as st

Draw = Callable[[], None]


def expander(label: str, key: str, draw: Draw) -> None:
    """A part of the page under its label."""

    def part() -> None:
        box = st.expander(label, key=key, on_change="rerun")
        if box.open:
            with box:
                draw()

    st.fragment(part)()


def popover(label: str, key: str, draw: Draw) -> None:
    """A card that opens over the page."""

    def part() -> None:
        box = st.popover(label, type="tertiary", key=key, on_change="rerun")
        if box.open:
            with box:
                draw()

    st.fragment(part)()
