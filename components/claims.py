"""The repeated unit of every page: predicted | measured | error, and how the number is made."""

import functools
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import streamlit as st

from components import folded
from components.theme import error_text, exact_text, value_text
from core.compare import Comparison
from core.memory import Prediction
from core.quantities import QUANTITIES, Quantity

MADE = "How this number is made"
_UNITS = {
    "B": "bytes",
    "s": "seconds",
    "tokens/s": "tokens a second",
    "1": "a plain number",
    "params": "parameters",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Unpredicted:
    """A number for which there is no prediction yet, and why."""

    id: str  # of the quantity
    measured: float | None
    why: str

    @property
    def quantity(self) -> Quantity:
        return QUANTITIES[self.id]


def comparisons(
    items: Sequence[Comparison | Unpredicted],
    *,
    origin: str,
    repeats: str,
    also: Callable[[], None] | None = None,
) -> None:
    """A row of numbers, each opening its formula, inputs, arithmetic and source.

    `origin` says where and when the measurement was made, `repeats` how often, with the spread;
    `also` draws a last card.
    """
    with st.grid(min_column_width=165, gap="small"):
        for item in items:
            with st.container(border=True, key=f"claim-{item.quantity.id}"):
                _number(item)
                with st.popover(MADE, type="tertiary"):
                    working(item, origin, repeats)
        if also is not None:
            also()


def forecasts(
    items: Sequence[Prediction], *, why: str, origin: str = "Predicted from the settings"
) -> None:
    """A row of numbers that were not measured, `why` said under each; each opens its working."""
    with st.grid(min_column_width=165, gap="small"):
        for prediction in items:
            quantity = QUANTITIES[prediction.quantity]
            with st.container(border=True, key=f"claim-{quantity.id}"):
                st.markdown(f"{quantity.label}  \n**{readable(prediction)}**")
                st.caption(f"predicted · {why}")
                item = Comparison(prediction=prediction, measured=None)
                folded.popover(
                    MADE, f"made-{quantity.id}", functools.partial(working, item, origin, "")
                )


def readable(prediction: Prediction) -> str:
    """Its value in the unit that it is read in."""
    return value_text(prediction.value, QUANTITIES[prediction.quantity].unit)


def frozen(before: str, after: str, origin: str) -> None:
    """The weights' hash before and after an answer, as a card of its own.

    `before` is empty where nothing was measured, `after` until the answer is complete.
    """
    with st.container(border=True, key="claim-frozen"):
        label, shown, said = "Weights", "not hashed yet", "SHA-256 before and after"
        if before and not after:
            shown, said = before[:8], "SHA-256 before the answer"
        elif before == after and before:
            label, shown, said = "Weights unchanged", before[:8], "SHA-256 before = after"
        elif before:
            label, shown, said = "Weights changed", after[:8], f"SHA-256 before ≠ {before[:8]}"
        st.markdown(f"{label}  \n**{shown}**")
        st.caption(said)
        with st.popover(MADE, type="tertiary"):
            st.markdown("**SHA-256 of all weights**")
            st.markdown(f"before: `{before or 'nothing yet'}`  \nafter: `{after or 'nothing yet'}`")
            st.caption(
                "Names and bytes of every weight in memory, in order, hashed before the first "
                "token and after the last. One changed bit would give another hash."
            )
            st.caption(f"{origin[:1].upper()}{origin[1:]}.")


def _number(item: Comparison | Unpredicted) -> None:
    unit = item.quantity.unit
    measured = "not measured yet" if item.measured is None else value_text(item.measured, unit)
    st.markdown(f"{item.quantity.label}  \n**{measured}**")
    if isinstance(item, Unpredicted):
        st.caption(item.why)
    else:
        predicted = value_text(item.prediction.value, unit)
        st.caption(f"predicted {predicted} · {error_text(item.error)}")


def working(item: Comparison | Unpredicted, origin: str, repeats: str) -> None:
    """Formula, inputs, arithmetic, what counts, source: the inside of the popover."""
    quantity, unit = item.quantity, item.quantity.unit
    measured = "nothing yet" if item.measured is None else exact_text(item.measured, unit)
    st.markdown(f"**{quantity.label}, in {_UNITS[unit]}**")
    st.latex(quantity.formula)
    if isinstance(item, Unpredicted):
        st.markdown(f"**Predicted**: {item.why} · **measured** {measured}")
    else:
        prediction = item.prediction
        st.markdown("\n".join(f"- {meaning}: {value}" for meaning, value in prediction.inputs))
        st.markdown(f"{prediction.arithmetic} {unit}")
        st.markdown(
            f"**Predicted** {exact_text(prediction.value, unit)} · **measured** {measured} · "
            f"**error** {error_text(item.error)}"
        )
    st.caption(
        f"Counts {quantity.counts}. Ignores {quantity.ignores}. "
        f"Measured as {quantity.measured_how}. Formula: {quantity.source}."
    )
    st.caption(f"{origin[:1].upper()}{origin[1:]}. {repeats}")
