"""Reports of others beside what is predicted of them, and what may not be concluded from that."""

import csv
import functools
import io

import streamlit as st

from components.theme import count, plain
from core.catalog import FOLDER
from core.validation import CEILING, FULL, LOWER, NONE, Case, read_cases, summary, validate

CLASSES = {
    FULL: "everything that counts is in it, as this project's own code would hold it",
    LOWER: "parts that must be there: states, weights, reading them once",
    CEILING: "what no device exceeds",
    NONE: "something is missing, and nothing is predicted",
}


@functools.cache
def cases() -> tuple[Case, ...]:
    """All shipped reports, validated once a process."""
    return tuple(map(validate, read_cases(FOLDER / "reports.csv")))


def table(shown: str) -> None:
    """The reports of one class."""
    found = [c for c in cases() if c.kind_of_prediction == shown]
    st.markdown(
        f"**{count(len(found))} reports.** {shown[:1].upper()}{shown[1:]}: {CLASSES[shown]}."
    )
    bounds = [c for c in found if c.holds is not None]
    if bounds:
        broken = [c for c in bounds if not c.holds]
        st.markdown(
            f"Of {count(len(bounds))} bounds {count(len(broken))} are broken."
            if broken
            else f"All {count(len(bounds))} bounds hold."
        )
    columns = {
        "report": [c.what or c.id for c in found],
        "predicted": [_number(c.predicted) for c in found],
        "reported": [_number(c.reported) for c in found],
        "unit": [c.unit for c in found],
        "predicted / reported": ["–" if c.ratio is None else f"{c.ratio:.2f}" for c in found],
        "what is in the prediction" if shown != NONE else "what is missing": [
            plain(c.says) for c in found
        ],
        "source": [plain(c.source) for c in found],
    }
    if shown == NONE:
        columns = {k: v for k, v in columns.items() if "predicted" not in k}
    st.table(columns, hide_index=True, alt=f"Reports with a {shown}")
    st.download_button(
        "All reports as CSV",
        data=lambda: to_csv(),
        file_name="bothways-validation.csv",
        mime="text/csv",
    )
    st.caption(f"{summary(cases())}. None of the predictions was fitted to a report.")


def _number(value: float | None) -> str:
    return "–" if value is None else f"{value:,.4g}"


def to_csv() -> str:
    """A header and a line for each report."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(
        ("id", "what", "predicted", "reported", "unit", "ratio", "class", "says", "source")
    )
    for c in cases():
        numbers = ["" if v is None else v for v in (c.predicted, c.reported)]
        writer.writerow(
            (
                c.id,
                c.what,
                *numbers,
                c.unit,
                "" if c.ratio is None else c.ratio,
                c.kind_of_prediction,
                c.says,
                c.source,
            )
        )
    return text.getvalue()
