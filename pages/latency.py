"""Latency against model size."""

import streamlit as st

st.title("Training waits for arithmetic, an answer waits for memory")
