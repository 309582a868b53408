"""Speculative decoding: what drafts are worth, and when they cost more than they give."""

import functools

import streamlit as st

from components import claims, folded, pacing
from components.latency_times import Look, percent
from components.theme import rate_text
from components.widgets.logchart import Axis, Line, LogChart, Point, Points, Reference, logchart
from core.speculation import break_even_alpha, expected_tokens, speedup, speedup_without_bonus

SHARES = tuple(i / 50 for i in range(51))


def section(look: Look) -> None:
    st.header("Drafted by a small model, checked by the large one")
    st.markdown(
        "A small model writes some tokens ahead; the large one reads all in one trip and keeps "
        "those that it would have written itself. Its weights are read once for several tokens."
    )
    left, right = st.columns([1, 2])
    with left:
        alpha = int(pacing.setting("accept")) / 100
        gamma = int(pacing.setting("draft"))
        cost = int(pacing.setting("draft_cost")) / 100
        _working(alpha, gamma, cost)
    with right:
        logchart(figure(alpha, gamma, cost), key="latency-speculation")
    st.markdown(_takeaway(look, alpha, gamma, cost))


def figure(alpha: float, gamma: int, cost: float) -> LogChart:
    """Speed-up against the share of accepted drafts, at the chosen length and beside it."""
    lengths = sorted({max(1, gamma // 2), gamma, min(16, gamma * 2)})
    at = speedup(alpha, gamma, cost)
    series: list[Line | Points] = [
        Line(
            name=f"{n} drafted" if n > 1 else "1 drafted",
            colour="forward" if n == gamma else "inputs",
            dashed=n != gamma,
            points=[(100 * a, speedup(a, n, cost)) for a in SHARES],
        )
        for n in lengths
    ]
    series.append(
        Points(
            name="chosen",
            colour="loss",
            symbol="diamond",
            items=[Point(x=100 * alpha, y=at, label=f"{at:.2f} times", named=True)],
        )
    )
    return LogChart(
        x=Axis(title="drafted tokens accepted, %", unit="1", log=False, low=0, high=100),
        y=Axis(title="speed, times as fast", unit="x", log=False, low=0),
        series=series,
        lines=[Reference(at=1.0, label="without drafts", strong=True)],
        height=300,
        summary=f"Speed-up {at:.2f} with {percent(alpha)} of {gamma} drafts accepted.",
    )


def _working(alpha: float, gamma: int, cost: float) -> None:
    expected, times = expected_tokens(alpha, gamma), speedup(alpha, gamma, cost)
    with st.container(border=True, key="claim-speculation"):
        st.markdown(f"Speed-up  \n**{times:.2f} times**")
        st.caption(f"{expected:.2f} tokens of each trip, the bonus among them")
        folded.popover(
            claims.MADE, "made-speculation", functools.partial(_made, alpha, gamma, cost)
        )


def _made(alpha: float, gamma: int, cost: float) -> None:
    expected, times = expected_tokens(alpha, gamma), speedup(alpha, gamma, cost)
    st.latex(r"\frac{1 - \alpha^{\gamma + 1}}{(1 - \alpha)(1 + \gamma c)}")
    st.markdown(
        f"- α, accepted: {alpha:.2f}\n- γ, drafted at once: {gamma}\n"
        f"- c, cost of a draft in trips of the large model: {cost:.2f}"
    )
    st.markdown(f"{expected:.4g} / (1 + {gamma} × {cost:.2f}) = {times:.4g}")
    st.caption(
        "Counts accepted drafts and the token that the checking trip gives besides: "
        f"forgetting that bonus gives {speedup_without_bonus(alpha, gamma, cost):.2f}. "
        "Ignores that a trip over several tokens may take longer than over one, as it does "
        "for a small model or a large batch, and that acceptance differs from place to "
        "place. Formula: Leviathan et al. 2023 (arXiv:2211.17192), theorem 3.8."
    )


def _takeaway(look: Look, alpha: float, gamma: int, cost: float) -> str:
    times, least = speedup(alpha, gamma, cost), break_even_alpha(gamma, cost)
    seen = look.works["decode"]
    said = ""
    if seen.seconds and seen.tokens_per_s:
        one = 1 / seen.seconds
        said = f"{rate_text(one)} of one sequence would become {rate_text(one * times)}. "
    if least >= 1:
        return f"{said}With drafts as dear as these it is slower whatever is accepted."
    if times < 1:
        return (
            f"**This makes it slower.** {said}Below {percent(least)} accepted, the drafts cost "
            "more than they save."
        )
    return (
        f"{said}Below {percent(least)} accepted it would be slower than without drafts, and so it "
        "is in practice where the checking trip is no longer bound by memory: many sequences at "
        "once."
    )
