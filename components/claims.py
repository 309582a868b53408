"""The repeated unit of every page: predicted | measured | error, and how the number is made."""

from collections.abc import Sequence

import streamlit as st

from components.theme import bytes_text, error_text, exact_bytes
from core.compare import Comparison


def comparisons(items: Sequence[Comparison], *, origin: str, repeats: str) -> None:
    """A row of numbers, each opening its formula, inputs, arithmetic and source.

    `origin` says where and when the measurement was made, `repeats` how often, with the spread.
    """
    with st.grid(min_column_width=165, gap="small"):
        for item in items:
            with st.container(border=True, key=f"claim-{item.quantity.id}"):
                _number(item)
                with st.popover("How this number is made", type="tertiary"):
                    _working(item, origin, repeats)


def _number(item: Comparison) -> None:
    measured = "not measured yet" if item.measured is None else bytes_text(item.measured)
    st.markdown(f"{item.quantity.label}  \n**{measured}**")
    st.caption(f"predicted {bytes_text(item.prediction.value)} · {error_text(item.error)}")


def _working(item: Comparison, origin: str, repeats: str) -> None:
    quantity, prediction = item.quantity, item.prediction
    st.markdown(f"**{quantity.label}, in bytes**")
    st.latex(quantity.formula)
    st.markdown("\n".join(f"- {meaning}: {value}" for meaning, value in prediction.inputs))
    st.markdown(f"{prediction.arithmetic} {quantity.unit}")
    measured = "nothing yet" if item.measured is None else exact_bytes(item.measured)
    st.markdown(
        f"**Predicted** {exact_bytes(prediction.value)} · **measured** {measured} · "
        f"**error** {error_text(item.error)}"
    )
    st.caption(
        f"Counts {quantity.counts}. Ignores {quantity.ignores}. "
        f"Measured as {quantity.measured_how}. Formula: {quantity.source}."
    )
    st.caption(f"{origin[:1].upper()}{origin[1:]}. {repeats}")
