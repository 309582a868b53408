"""Seconds and tokens a second against parameters: lines, every model of the catalogue, what was
measured here.
"""

import functools
from collections.abc import Callable, Sequence
from statistics import mean

import numpy as np
import streamlit as st

from components import sizing
from components.latency_times import (
    COLOURS,
    NAMES,
    SYMBOLS,
    WORKS,
    Line,
    Look,
    calibration_of,
    format_of,
    line,
    local_line,
)
from components.theme import count, error_text, rate_text, seconds_text, times_text
from components.widgets.logchart import Axis, LogChart, Point, Points, Reference, logchart
from components.widgets.logchart import Line as Drawn
from core.answers import held_bytes
from core.counts import counts
from core.device_rates import ENGINE_FORMATS
from core.ladder import shape_of_size
from core.sweeps import Row

WIDE = {"low": 6e4, "high": 1.6e12}  # parameters
PER_TOKEN = "decode"
NAMED = ("smollm2-135m", "llama-3.1-405b", "deepseek-v3-r1")  # whose name stands in the chart


def section(look: Look) -> None:
    """Both charts, and what to see in them."""
    if not look.calibrated:
        return
    st.header("The larger the model, the longer everything takes, each for its own reason")
    lines = [line(look, work) for work in WORKS]
    left, right = st.columns(2)
    with left:
        logchart(_seconds(look, lines), key="latency-seconds", on_pick=_choose)
    with right:
        logchart(_rates(look, lines), key="latency-rates", on_pick=_choose)
    _takeaway(look, lines)
    if look.device is None:
        _bytes_rule(look)


def _choose(slug: str) -> None:
    sizing.use("model", slug)


def _seconds(look: Look, lines: Sequence[Line]) -> LogChart:
    series = [s for found in lines for s in _series(look, found, lambda s, n: s, seconds_text)]
    return LogChart(
        x=Axis(title="parameters", unit="params", low=WIDE["low"], high=WIDE["high"]),
        y=Axis(title="time of each", unit="s"),
        series=series,
        lines=[_chosen(look)],
        height=430,
        summary=f"Seconds against parameters on {look.device_name}. {look.name}: "
        + _said(look, seconds_text),
        beyond=look.beyond,
        empty=_empty(look),
    )


def _rates(look: Look, lines: Sequence[Line]) -> LogChart:
    series = [s for found in lines for s in _series(look, found, lambda s, n: n / s, rate_text)]
    return LogChart(
        x=Axis(title="parameters", unit="params", low=WIDE["low"], high=WIDE["high"]),
        y=Axis(title="tokens a second, all sequences", unit="tokens"),
        series=series,
        lines=[_chosen(look)],
        height=430,
        summary=f"Tokens a second against parameters on {look.device_name}.",
        beyond=look.beyond,
        empty=_empty(look),
    )


def _chosen(look: Look) -> Reference:
    return Reference(at=max(look.n_params, WIDE["low"]), label=look.name, axis="x", strong=True)


def _empty(look: Look) -> str:
    return f"No peak of {look.device_name} is published: nothing can be said of its arithmetic."


def _series(
    look: Look, found: Line, value: Callable[[float, int], float], write: Callable[[float], str]
) -> list[Drawn | Points]:
    """A line with its band, hollow marks of published models, filled ones of what was measured.

    `value`: of seconds, and the tokens of the work.
    """
    if not found.seconds:
        return []
    every, work = sizing.everything(), found.work
    line_s, model_s = every.split(found.seconds)
    xs, ends = list(every.ladder), found.band
    local = local_line(look, work)
    if local is not None:
        model_s = _as_the_ladder(local[0], local[1], xs, line_s, model_s)
        xs, line_s, ends = local
    n = found.n_tokens
    band: list[tuple[float, float, float]] = []
    if ends is not None:
        for x, a, b in zip(xs, ends[0], ends[1], strict=False):
            low, high = sorted((value(a, n), value(b, n)))
            band.append((x, low, high))
    drawn: list[Drawn | Points] = [
        Drawn(
            name=NAMES[work],
            colour=COLOURS[work],
            points=[(x, value(s, n)) for x, s in zip(xs, line_s, strict=True)],
            band=band,
        ),
        Points(
            name=f"{NAMES[work]}, published models",
            colour=COLOURS[work],
            symbol=SYMBOLS[work],
            items=[
                Point(
                    x=size,
                    y=value(s, n),
                    label=model.name,
                    id=model.slug,
                    named=work == PER_TOKEN and model.slug in NAMED,
                )
                for model, size, s in zip(every.catalogue, every.n_params, model_s, strict=True)
            ],
        ),
    ]
    own = _measured(look, work)
    if own:
        drawn.append(
            Points(
                name=f"{NAMES[work]}, measured here",
                colour=COLOURS[work],
                symbol=SYMBOLS[work],
                filled=True,
                items=[_point(row, value, write) for row in own],
            )
        )
    return drawn


def _as_the_ladder(
    sizes: Sequence[int],
    local_s: Sequence[float],
    xs: Sequence[int],
    roofline_s: Sequence[float],
    model_s: Sequence[float],
) -> list[float]:
    """Rooflines of published models, each times what a ladder's model of as many active parameters
    takes here beyond its own roofline.
    """
    known = dict(zip(xs, roofline_s, strict=True))
    beyond = [(n, s / known[n]) for n, s in zip(sizes, local_s, strict=True) if n in known]
    at = np.log([n for n, _ in beyond])
    ratio = np.interp(np.log(_active()), at, np.log([r for _, r in beyond]))
    return (np.asarray(model_s) * np.exp(ratio)).tolist()


@functools.cache
def _active() -> tuple[int, ...]:
    """Parameters that one token meets, of each model of the catalogue."""
    return tuple(counts(m.shape).active for m in sizing.everything().catalogue)


def _measured(look: Look, work: str) -> list[Row]:
    """On this machine, in the format that is shown."""
    if look.device is not None:
        return []
    shown = format_of(look, work)
    shown = ENGINE_FORMATS.get(shown, shown)
    return [r for r in look.measured if r.work == work and r.format == shown and r.measured]


def _point(row: Row, value: Callable[[float, int], float], write: Callable[[float], str]) -> Point:
    n = row.batch_size * (1 if row.work == "decode" else row.seq_len)
    seconds = float(row.measured or 0)
    return Point(
        x=row.n_params,
        y=value(seconds, n),
        label="measured here",
        rows=(
            ("predicted", write(value(row.predicted, n)) if row.predicted else "–"),
            ("error of the time", error_text(row.error)),
            ("settings", f"{row.format}, {row.batch_size} × {row.seq_len} tokens"),
        ),
    )


# -- words ----------------------------------------------------------------------------------------


def _said(look: Look, write: Callable[[float], str]) -> str:
    return ", ".join(
        f"{NAMES[work]} {write(seen.seconds)}"
        for work, seen in look.works.items()
        if seen.seconds is not None
    )


def _takeaway(look: Look, lines: Sequence[Line]) -> None:
    step, token = look.works["train"], look.works["decode"]
    if step.seconds and step.tokens_per_s and token.tokens_per_s:
        ratio = step.tokens_per_s / token.tokens_per_s
        more = f"{times_text(ratio)} as many a second" if ratio >= 1 else "fewer a second"
        st.markdown(
            f"A training step goes through {count(step.costs.n_tokens)} tokens at once and through "
            f"{more} as answering writes, although each costs it three times the arithmetic: an "
            "answer waits for weights to arrive, once for every token."
        )
    if look.device is not None:
        st.caption(
            "Lines and hollow marks are floors. Below about 100 million parameters programs wait "
            "for their ops to be started, a few microseconds each, which no data sheet tells: on "
            "this machine it is measured."
        )
    elif _shifted(look):
        st.caption(
            "Filled marks were measured with the ladder's own batch and length, which are told "
            "when you point at one: they lie beside the line where the page's settings differ. "
            "Hollow ones take as much longer than their roofline as the ladder's model of their "
            "size."
        )


def _shifted(look: Look) -> bool:
    """Whether something was measured under other settings than the page's."""
    batch, tokens = look.serving.batch_size, look.serving.context
    return any(
        (r.batch_size, r.seq_len) != (batch, look.prompt if work == "prefill" else tokens)
        for work in WORKS
        for r in _measured(look, work)
    )


def _bytes_rule(look: Look) -> None:
    """How far bytes over bandwidth alone is off for small models, by what was measured here."""
    found = calibration_of(look, "decode")
    rows = _measured(look, "decode")
    if found is None or not rows:
        return
    rate = found.paces[-1].read_bytes_per_s
    off = [(r, rule_bytes(r.n_params, r.format) / rate / float(r.measured or 1) - 1) for r in rows]
    small = [(r, e) for r, e in off if r.n_params < 30_000_000]
    large = [(r, e) for r, e in off if r.n_params >= 30_000_000]
    said = "**Bytes ÷ bandwidth alone**, the rule of thumb for decoding"
    parts = []
    for name, group in (("below 30M parameters", small), ("from there on", large)):
        if group:
            worst = max(group, key=lambda pair: abs(pair[1]))
            parts.append(
                f"{name} it is off by {100 * mean(abs(e) for _, e in group):.0f} % in the mean "
                f"({error_text(worst[1])} at {count(worst[0].n_params)} parameters)"
            )
    st.markdown(
        f"{said}: {', '.join(parts)}. So small a model waits for its ops to be started, which no "
        "bandwidth helps."
    )


@functools.lru_cache(maxsize=512)
def rule_bytes(n_params: int, weight_format: str) -> float:
    """What the rule counts of a rung of the ladder: all weights once, in their format."""
    return float(held_bytes(shape_of_size(n_params), weight_format))
