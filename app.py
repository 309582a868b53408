"""Entry of Bothways: the Streamlit shell, and the live stream beside it."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent))

import streamlit as st

from components.stream import lifespan, routes

app = st.App("components/shell.py", routes=routes(), lifespan=lifespan)
