"""How busy the arithmetic is: a step's operations by every convention, as shares of the peak."""

import functools
from dataclasses import replace

import streamlit as st

from components import pacing
from components.latency_times import Look, markdown_table, percent
from components.theme import bytes_text, count, flops_text, plain, rate_text, seconds_text
from core.architecture import ModelShape
from core.quantised import weights_bytes
from core.roofline import ceiling_tokens_per_s, impossible_claim, required_bandwidth
from core.sizes import Bytes
from core.utilisation import CONVENTIONS, Convention, Impossible, checked_mfu, convention_flops, mfu


def section(look: Look) -> None:
    st.header(f"One step, {len(CONVENTIONS)} ways to count it")
    st.markdown(
        "The share of its peak that a device is kept busy with depends on what is counted. Compare "
        "two figures only by the same convention, with the dense peak, for each device."
    )
    left, right = st.columns([1, 3], vertical_alignment="center")
    with left:
        told_ms = int(pacing.setting("step_ms"))
    seen = look.works["train"]
    step_s = told_ms / 1000 if told_ms else seen.seconds
    peak = seen.using.rates.peak_flops if seen.using else None
    with right:
        st.markdown(_basis(look, told_ms, step_s, peak))
    rows = [(c, step_flops(look, c)) for c in CONVENTIONS]
    markdown_table(
        ("convention, and who uses it", "of one step", "share of the peak"),
        [
            (f"**{c.name}**: {c.used_by}", flops_text(f), share_text(f, step_s, peak))
            for c, f in rows
        ],
    )
    if told_ms:
        _impossible(rows, step_s, peak)
    used = [f for c, f in rows if c.active and c.windows]  # the rest are mistakes
    low, high = min(used), max(used)
    st.caption(
        f"The same step counts {flops_text(low)} or {flops_text(high)}: a factor of "
        f"{high / low:.2f}. MFU leaves out what is computed again, HFU counts it, so HFU is never "
        "the smaller."
    )


def claim(look: Look) -> None:
    """Whether a speed can be true: the bandwidth that it needs beside the one that there is."""
    st.subheader("Can it be true?")
    left, right = st.columns([1, 3], vertical_alignment="center")
    with left:
        told = int(pacing.setting("claim"))
    one = look.of("decode", replace(look.serving, batch_size=1))
    if one.using is None:
        return
    read, bandwidth = Bytes(one.n_bytes), one.using.rates.bandwidth_bytes_s
    ceiling = ceiling_tokens_per_s(read, bandwidth)
    with right:
        if not told:
            st.markdown(
                f"No single answer comes faster than **{rate_text(ceiling)}** here: "
                f"{plain(look.device_name)} reads {bytes_text(bandwidth)} a second, and each token "
                f"{bytes_text(round(one.n_bytes))}."
            )
            return
        needed = required_bandwidth(read, told)
        st.markdown(
            f"{rate_text(told)} need **{bytes_text(needed)}** a second; "
            f"{plain(look.device_name)} has {bytes_text(bandwidth)}: "
            f"**{percent(needed / bandwidth)}** of it."
        )
        why = impossible_claim(
            weights_bytes(look.shape, look.serving.weight_format),
            told,
            bandwidth=bandwidth,
            memory=look.device.usable if look.device else None,
            read=read,
        )
        if why:
            st.warning(
                f"Impossible as one answer on one device: {plain(why)}. It may be the sum of many "
                "answers at once or of many devices, a model of fewer bits, or drafts accepted."
            )


def step_flops(look: Look, convention: Convention) -> float:
    """Of the whole step."""
    how = look.training
    return _per_token(look.shape, convention, how.seq_len) * how.batch_size * how.seq_len


@functools.lru_cache(maxsize=256)
def _per_token(shape: ModelShape, convention: Convention, seq_len: int) -> float:
    return convention_flops(shape, convention, seq_len=seq_len)


def _basis(look: Look, told_ms: int, step_s: float | None, peak: float | None) -> str:
    how = look.training
    what = f"{count(how.batch_size)} × {count(how.seq_len)} tokens"
    if step_s is None:
        return f"No time of a step of {what} is predicted here: give your own."
    whose = "you say" if told_ms else "predicted above, at best"
    if peak is None:
        return (
            f"A step of {what} in {seconds_text(step_s)} ({whose}). The peak of "
            f"{plain(look.device_name)} is not published: no share can be given."
        )
    return (
        f"A step of {what} in **{seconds_text(step_s)}** ({whose}), on one "
        f"{plain(look.device_name)} of **{flops_text(peak)}/s**."
    )


def share_text(flops: float, step_s: float | None, peak: float | None) -> str:
    """A share of the peak; of more than there is, that it is impossible."""
    if not step_s or not peak:
        return "–"
    share = mfu(flops / step_s, chips=1, peak_flops=peak)
    return percent(share) if share <= 1 else f"{percent(share)}: impossible"


def _impossible(
    rows: list[tuple[Convention, float]], step_s: float | None, peak: float | None
) -> None:
    if not step_s or not peak:
        return
    for convention, flops in rows:
        if not convention.active:
            continue
        try:
            checked_mfu(mfu(flops / step_s, chips=1, peak_flops=peak))
        except Impossible as why:
            st.warning(f"By {convention.name}: {plain(str(why))}.")
            return
