"""What changes with one setting: precision, batch, context. Predicted at once, measured on a
button.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import streamlit as st

from components import runs
from components.asking import Asked
from components.charts.answers import Series, lines_figure
from components.runs import View
from components.theme import COLOURS, bytes_text, count, rate_text, seconds_text, times_text
from core import answer_sweeps, latency
from core.answer_sweeps import Point, points_of
from core.formats import KERNELS
from core.shapes import TransformerShape
from core.specimens import runs_folder
from core.specs import AnswerSweepSpec

_EVERY_S = 0.7
_PLOT = {"displaylogo": False, "displayModeBar": False}
_DASH = "–"


@dataclass(frozen=True, slots=True, kw_only=True)
class _Sweep:
    """A sweep as its section shows it."""

    spec: AnswerSweepSpec
    shape: TransformerShape
    n_prompt: int
    button: str
    key: str
    draw: Callable[[Sequence[Point], View[AnswerSweepSpec] | None], None]


def sections(asked: Asked) -> None:
    """All three, each with its own button."""
    for over, button, draw in (
        ("weight_format", "Measure all formats", _precisions),
        ("batch_size", "Measure all batches", _batches),
        ("context", "Measure all lengths", _contexts),
    ):
        spec = AnswerSweepSpec.of(replace(asked.spec, cache=True), over)
        _section(
            _Sweep(
                spec=spec,
                shape=asked.shape,
                n_prompt=asked.n_prompt,
                button=button,
                key=over.replace("_", "-"),
                draw=draw,
            )
        )


def _section(sweep: _Sweep) -> None:
    view = runs.latest(sweep.spec)
    running = view is not None and view.open
    st.fragment(_body, run_every=_EVERY_S if running else None)(sweep, running=running)


def _body(sweep: _Sweep, *, running: bool) -> None:
    view = runs.latest(sweep.spec)
    if running != (view is not None and view.open):
        st.rerun()
    trace = view.trace if view else None
    points = points_of(sweep.spec, sweep.shape, sweep.n_prompt, runs_folder(), trace)
    sweep.draw(points, view)
    n_measured = sum(bool(p.measured) for p in points)
    with st.container(horizontal=True, vertical_alignment="center"):
        if running:
            key = f"sweep-stop-{sweep.key}"
            st.button("Stop measuring", key=key, on_click=runs.stop_sweep, args=(sweep.spec,))
            st.caption(f"{n_measured} of {len(points)} points measured; each is measured again.")
            return
        held = answer_sweeps.held_bytes(sweep.spec, sweep.shape, sweep.n_prompt)
        fits = answer_sweeps.fits(sweep.spec, sweep.shape, sweep.n_prompt)
        st.button(
            sweep.button,
            key=f"sweep-{sweep.key}",
            on_click=runs.start_sweep,
            args=(sweep.spec,),
            disabled=not fits,
            help="Every point reads the same text; points are measured in turns, so that a busy "
            "moment falls on all of them."
            if fits
            else f"It would hold about {bytes_text(held)}, more than a run may take here: choose "
            "less context.",
        )
        st.caption(_origin(view, points))


def _origin(view: View[AnswerSweepSpec] | None, points: Sequence[Point]) -> str:
    measured = [p for p in points if p.measured]
    if view is None or not measured:
        return "Nothing has been measured with this prompt and these settings yet."
    said = f"{view.origin[:1].upper()}{view.origin[1:]}. Medians"
    off = [p.tpot_predicted_s / p.tpot_s - 1 for p in measured if p.tpot_predicted_s and p.tpot_s]
    if off:
        worst = max(off, key=abs)
        said += f"; the largest error of a predicted time is {100 * worst:+.0f} %"
    if any(p.measured.get("contended") for p in measured):
        said += ". The machine was busy meanwhile: times are too long"
    return said.replace("-", "−") + "." if off else said + "."


def _colours() -> dict[str, str]:
    return COLOURS["dark" if st.context.theme.type == "dark" else "light"]


def _seconds(value: float | None) -> str:
    return _DASH if value is None else seconds_text(value)


# -- precision ------------------------------------------------------------------------------------


def _precisions(points: Sequence[Point], view: View[AnswerSweepSpec] | None) -> None:
    st.header("Fewer bits, fewer bytes to fetch")
    st.markdown(
        "A token's trip reads every weight once. Stored in fewer bits there is less to fetch, and "
        "the answer moves a little: how far shows in the logits, the scores of the next token."
    )
    n_new = int(view.trace.scalars_of(0).get("new_tokens", 0)) if view else 0
    st.table(
        {
            "format": [p.value for p in points],
            "kernel": [_kernel(p.value) for p in points],
            "read for each token": [bytes_text(p.read_bytes) for p in points],
            "each token": [_each(p) for p in points],
            "predicted": [_seconds(p.tpot_predicted_s) for p in points],
            "logits moved, at most": [
                _or_dash(p, "logits_max_diff", lambda v: f"{v:.2g}") for p in points
            ],
            f"tokens changed, of {n_new}" if n_new else "tokens changed": [
                _or_dash(p, "tokens_changed", count) for p in points
            ],
        },
        hide_index=True,
        alt="Bytes, time and change of an answer in each weight format",
    )
    st.markdown(_of_precisions(points))


def _kernel(weight_format: str) -> str:
    return "real" if KERNELS[weight_format].real else "simulated"


def _each(point: Point) -> str:
    """The median, and the middle half of all trips around it."""
    if point.tpot_s is None:
        return _DASH
    spread = seconds_text(point.measured["tpot_spread_s"] / 2)
    return f"{seconds_text(point.tpot_s)} ± {spread}"


def _or_dash(point: Point, name: str, write: Callable[[float], str]) -> str:
    return write(point.measured[name]) if name in point.measured else _DASH


def _of_precisions(points: Sequence[Point]) -> str:
    first = points[0]
    measured = [p for p in points if p.tpot_s]
    narrow = min(points, key=lambda p: p.read_bytes)
    fewer = first.read_bytes / narrow.read_bytes
    said = (
        f"{narrow.value} reads {bytes_text(narrow.read_bytes)} for a token where {first.value} "
        f"reads {bytes_text(first.read_bytes)}: {times_text(fewer)} fewer."
    )
    if len(measured) > 1 and first.tpot_s:
        fastest = min(measured, key=lambda p: p.tpot_s or 0)
        times = first.tpot_s / (fastest.tpot_s or 1)
        if fastest is first:
            said += f" None of them is faster than {first.value} here."
        else:
            said += f" The fastest here, {fastest.value}, is {times_text(times)} as fast."
    if points[-1].value == "file":
        said += " fp32 holds the numbers of the model's own file written out, so both say the same."
    if first.read_bytes < latency.OVERHEAD_BOUND_BYTES:
        said += " So small a model waits for its ops to start, not for bytes."
    return said


# -- batch ----------------------------------------------------------------------------------------


def _batches(points: Sequence[Point], view: View[AnswerSweepSpec] | None) -> None:
    st.header("Many at once: more tokens a second, each a little later")
    st.markdown(
        "Sequences that are answered together share each reading of the weights. The machine "
        "writes more tokens a second; each visitor waits longer for the next one."
    )
    colours = _colours()
    rates, waits = _rates(points, measured=False), _waits(points, measured=False)
    known_rates, known_waits = _rates(points, measured=True), _waits(points, measured=True)
    if rates or known_rates:
        left, right = st.columns(2)
        with left:
            _chart(
                "batch-rate",
                [
                    Series(
                        name="throughput",
                        colour=colours["forward"],
                        symbol="circle",
                        predicted=rates,
                        measured=known_rates,
                    )
                ],
                x_title="sequences at once",
                y_title="tokens a second, all sequences",
                unit=1.0,
                readable=rate_text,
            )
        with right:
            _chart(
                "batch-wait",
                [
                    Series(
                        name="each token",
                        colour=colours["loss"],
                        symbol="square",
                        predicted=waits,
                        measured=known_waits,
                    )
                ],
                x_title="sequences at once",
                y_title="time of each token, ms",
                unit=1e-3,
                readable=seconds_text,
            )
        st.markdown(_of_batches(known_rates or rates, known_waits or waits, bool(known_rates)))
        _numbers(
            "batch",
            {
                "sequences": [p.value for p in points],
                "tokens a second": [_rate(p.tpot_s, p) for p in points],
                "predicted": [_rate(p.tpot_predicted_s, p) for p in points],
                "each token": [_each(p) for p in points],
                "predicted ": [_seconds(p.tpot_predicted_s) for p in points],
            },
        )


def _rates(points: Sequence[Point], *, measured: bool) -> list[tuple[float, float]]:
    """Tokens a second of all sequences while they decode."""
    return [(b, b / s) for b, s in _waits(points, measured=measured)]


def _waits(points: Sequence[Point], *, measured: bool) -> list[tuple[float, float]]:
    found = ((float(p.value), p.tpot_s if measured else p.tpot_predicted_s) for p in points)
    return [(x, y) for x, y in found if y]


def _rate(seconds: float | None, point: Point) -> str:
    return _DASH if not seconds else rate_text(point.spec.batch_size / seconds)


def _of_batches(
    rates: Sequence[tuple[float, float]], waits: Sequence[tuple[float, float]], measured: bool
) -> str:
    (_, first), (most, last) = rates[0], rates[-1]
    slower = waits[-1][1] / waits[0][1]
    how = "" if measured else ", it is predicted"
    return (
        f"{most:,.0f} sequences at once give {times_text(last / first)} the tokens a second of "
        f"one, and each waits {times_text(slower)} as long for its next token{how}."
    )


# -- context --------------------------------------------------------------------------------------


def _contexts(points: Sequence[Point], view: View[AnswerSweepSpec] | None) -> None:
    st.header("What the KV cache saves")
    st.markdown(
        "With the cache a token reads the keys and values of all before it. Without it every token "
        "sends the whole text through the model again: measured here as one pass over as much text."
    )
    colours = _colours()
    kept = Series(
        name="with the cache",
        colour=colours["cache"],
        symbol="circle",
        predicted=_waits(points, measured=False),
        measured=_waits(points, measured=True),
    )
    again = Series(
        name="without it",
        colour=colours["forward"],
        symbol="square",
        predicted=[(float(p.value), p.reread_predicted_s) for p in points if p.reread_predicted_s],
        measured=[(float(p.value), p.measured["ttft_s"]) for p in points if p.measured],
    )
    if kept.predicted or kept.measured:
        _chart(
            "context-time",
            [kept, again],
            x_title="tokens so far",
            y_title="time of each token, ms",
            unit=1e-3,
            readable=seconds_text,
            log_y=True,
        )
        st.markdown(_of_contexts(kept, again))
        _numbers(
            "context",
            {
                "tokens so far": [count(int(p.value)) for p in points],
                "with the cache": [_each(p) for p in points],
                "predicted": [_seconds(p.tpot_predicted_s) for p in points],
                "without it": [_or_dash(p, "ttft_s", seconds_text) for p in points],
                "predicted ": [_seconds(p.reread_predicted_s) for p in points],
            },
        )


def _of_contexts(kept: Series, again: Series) -> str:
    measured = bool(kept.measured and again.measured)
    with_s = (kept.measured if measured else kept.predicted)[-1]
    without_s = (again.measured if measured else again.predicted)[-1]
    how = "" if measured else ", it is predicted"
    return (
        f"After {with_s[0]:,.0f} tokens the next one takes {seconds_text(with_s[1])} with the "
        f"cache and {seconds_text(without_s[1])} without: {times_text(without_s[1] / with_s[1])} "
        f"as long{how}."
    )


# -- drawing --------------------------------------------------------------------------------------


def _chart(
    key: str,
    series: Sequence[Series],
    *,
    x_title: str,
    y_title: str,
    unit: float,
    readable: Callable[[float], str],
    log_y: bool = False,
) -> None:
    said = "; ".join(
        f"{s.name}: {readable(points[0][1])} at {points[0][0]:,.0f}, "
        f"{readable(points[-1][1])} at {points[-1][0]:,.0f}"
        for s in series
        if (points := s.measured or s.predicted)
    )
    figure = lines_figure(
        series, x_title=x_title, y_title=y_title, unit=unit, readable=readable, log_y=log_y
    )
    st.plotly_chart(figure, key=key, config=_PLOT, alt=f"{y_title} against {x_title}. {said}.")


def _numbers(key: str, columns: dict[str, list[str]]) -> None:
    with st.expander("The numbers", key=f"numbers-{key}"):
        st.table(columns, hide_index=True)
