"""Latency and throughput against model size, on this machine or any of the catalogue."""

import streamlit as st

from components import (
    latency_batch,
    latency_errors,
    latency_numbers,
    latency_ops,
    latency_roofline,
    latency_sizes,
    latency_speculation,
    latency_times,
    latency_utilisation,
    pacing,
)


def page() -> None:
    st.title("Training waits for arithmetic, an answer waits for memory")
    with st.sidebar:
        paced = pacing.panel()
    look = latency_times.look(paced)
    latency_numbers.headline(look)
    latency_sizes.section(look)
    latency_numbers.numbers(look)
    batches = latency_times.by_batch(look)
    latency_roofline.section(look, batches)
    latency_ops.section(look)
    latency_batch.section(look, batches)
    latency_utilisation.section(look)
    latency_utilisation.claim(look)
    latency_speculation.section(look)
    latency_errors.section(look)


page()
