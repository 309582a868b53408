"""Every prediction beside a measurement: made here, and reported by others."""

import streamlit as st

from components import measure_here, sizing, validation_table


def page() -> None:
    st.title("A prediction is worth what it was checked against")
    st.markdown(
        "Predictions of this dashboard beside measurements: those made on this machine, exact or "
        "not, and those that others reported of machines and models that cannot run here."
    )
    if sizing.checked_against() == "others' reports":
        st.header("What others reported")
        validation_table.table(sizing.report_class())
        return
    measure_here.section(("train", "prefill", "decode"), memory=True)
    measure_here.table_of_times()


page()
