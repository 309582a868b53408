"""Where a bare address leads: to the page that has something running."""

import streamlit as st

st.switch_page("../pages/training.py", query_params=dict(st.query_params.items()))
