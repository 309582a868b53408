"""The roofline: operations a second against operations for each byte, with a dot for each work."""

import functools
from collections.abc import Iterator

import streamlit as st

from components.latency_times import COLOURS, NAMES, SYMBOLS, Look
from components.theme import count, error_text, flops_text, seconds_text
from components.widgets.logchart import Axis, Line, LogChart, Point, Points, Reference, logchart
from core import forecast
from core.device_rates import ENGINE_FORMATS, Rated
from core.footprints import Serving, Training
from core.forecast import Outlook
from core.ladder import shape_of_size
from core.sweeps import Row

BATCHES = (1, 4, 16, 64, 256)
LOW, HIGH = 0.1, 2e4  # FLOP/B


def section(look: Look, batches: dict[int, Outlook]) -> None:
    """The chart, and what to see in it."""
    if not look.calibrated:
        return
    st.header("Under one roof: how much arithmetic each byte brings along")
    decodes = [batches[batch] for batch in BATCHES]
    logchart(figure(look, decodes), key="latency-roofline")
    st.markdown(_takeaway(look, decodes))


def figure(look: Look, decodes: list[Outlook]) -> LogChart:
    """Roofs of the formats in use, dots of the chosen model, and what was measured here."""
    roofs = {
        seen.using.computes: seen.using
        for seen in (look.works["train"], look.works["decode"])
        if seen.using is not None
    }
    series: list[Line | Points] = [_roof(using) for using in roofs.values()]
    for work in ("train", "prefill"):
        point = _dot(look.works[work], NAMES[work])
        if point:
            series.append(
                Points(name=NAMES[work], colour=COLOURS[work], symbol=SYMBOLS[work], items=[point])
            )
    dots = [
        point
        for batch, seen in zip(BATCHES, decodes, strict=True)
        if (point := _dot(seen, f"batch {batch}"))
    ]
    series.append(
        Points(
            name="each token, by batch",
            colour=COLOURS["decode"],
            symbol=SYMBOLS["decode"],
            items=dots,
        )
    )
    if look.device is None:
        series += _measured(look)
    said = ", ".join(f"{p.label} {p.x:.3g} FLOP/B" for p in dots[:1])
    return LogChart(
        x=Axis(title="operations for each byte moved", unit="FLOP/B", low=LOW, high=HIGH),
        y=Axis(title="operations a second", unit="FLOP/s"),
        series=series,
        lines=list(_ridges(roofs)),
        height=400,
        summary=f"Roofline of {look.device_name}; each token: {said}.",
        empty="Nothing to show yet.",
    )


def _roof(using: Rated) -> Line:
    """Bandwidth times intensity, up to the peak where there is one."""
    rates, ridge = using.rates, using.rates.ridge
    xs = [LOW, HIGH] if ridge is None else sorted({LOW, min(max(ridge, LOW), HIGH), HIGH})
    peak = float("inf") if rates.peak_flops is None else rates.peak_flops
    return Line(
        name=f"roof in {using.computes}" if ridge else "bandwidth; the peak is unknown",
        colour="muted",
        dashed=ridge is None,
        points=[(x, min(x * rates.bandwidth_bytes_s, peak)) for x in xs],
    )


def _ridges(roofs: dict[str, Rated]) -> Iterator[Reference]:
    for name, using in roofs.items():
        if using.rates.ridge is not None:
            yield Reference(
                at=using.rates.ridge, label=f"ridge {using.rates.ridge:.0f} ({name})", axis="x"
            )


def _dot(seen: Outlook, label: str) -> Point | None:
    if seen.seconds is None or seen.found is None:
        return None
    intensity = float(seen.found.intensity[0])
    return Point(
        x=min(max(intensity, LOW), HIGH),
        y=seen.flops / seen.seconds,
        label=label,
        rows=(
            ("operations", flops_text(seen.flops)),
            ("time", seconds_text(seen.seconds)),
            ("intensity", f"{intensity:.3g} FLOP/B"),
            ("waits for", seen.bound[0]),
        ),
        named=True,
    )


def _measured(look: Look) -> list[Points]:
    """Measured rates at the table's intensity, of every rung in the formats that are shown."""
    found: list[Points] = []
    for work in ("train", "prefill", "decode"):
        using = look.works[work].using
        if using is None:
            continue
        wanted = ENGINE_FORMATS.get(look.serving.weight_format, "")
        shown = using.computes if work == "train" else wanted
        rows = [r for r in look.measured if r.work == work and r.format == shown and r.measured]
        if rows:
            found.append(
                Points(
                    name=f"{NAMES[work]}, measured here",
                    colour=COLOURS[work],
                    symbol=SYMBOLS[work],
                    filled=True,
                    items=[_measured_dot(row) for row in rows],
                )
            )
    return found


def _measured_dot(row: Row) -> Point:
    flops, n_bytes = measured_work(row.n_params, row.work, row.format, row.batch_size, row.seq_len)
    return Point(
        x=flops / n_bytes,
        y=flops / float(row.measured or 1),
        label=f"{count(row.n_params)} parameters, measured",
        rows=(
            ("time", seconds_text(float(row.measured or 0))),
            ("error of the predicted time", error_text(row.error)),
        ),
    )


@functools.lru_cache(maxsize=2048)
def measured_work(
    n_params: int, work: str, number_format: str, batch_size: int, tokens: int
) -> tuple[float, float]:
    """FLOP and bytes of a rung of the ladder, by the op table."""
    shape = shape_of_size(n_params).model
    training = Training(
        recipe="autocast" if number_format == "bf16" else "fp32",
        batch_size=batch_size,
        seq_len=tokens,
    )
    named = {engine: page for page, engine in ENGINE_FORMATS.items()}
    serving = Serving(
        weight_format=named.get(number_format, "fp32"),
        cache_format="fp32" if number_format == "fp32" else "bf16",
        batch_size=batch_size,
        context=tokens,
    )
    costs = forecast.costs_of([shape], work, training, serving, tokens)
    return float(costs.flops.sum()), float(costs.n_bytes.sum())


def _takeaway(look: Look, decodes: list[Outlook]) -> str:
    one, many = decodes[0], decodes[-1]
    if one.found is None or one.using is None:
        return ""
    low, high = float(one.found.intensity[0]), float(many.found.intensity[0]) if many.found else 0.0
    said = (
        f"One token at a time brings about {low:.2g} operations for each byte, {BATCHES[-1]} at "
        f"once bring {high:.3g}"
    )
    ridge = one.using.rates.ridge
    if ridge is None:
        return f"{said}. Where {look.device_name} turns from memory to arithmetic is not published."
    share = low / ridge
    return (
        f"{said}; from {ridge:.3g} on {look.device_name} would be busy computing. With one "
        f"sequence {100 * (1 - share):.1f} % of its arithmetic has nothing to do."
        if share < 1
        else f"{said}; from {ridge:.3g} on {look.device_name} is busy computing, as it is."
    )
