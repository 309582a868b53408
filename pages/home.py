"""Where a bare address leads: to the page that has something running."""

import streamlit as st

# Every value of a key: `items()` would give the last of several inputs only.
link = {key: st.query_params.get_all(key) for key in st.query_params}
st.switch_page("../pages/training.py", query_params=link)
