"""Colours by meaning and numbers as people read them: the only place that writes units.

Hues are the meaning, the same in both themes; shades differ so that marks keep 3:1 against their
card and neighbours in a stack stay apart under protanopia and deuteranopia
(tests/components/test_theme.py).
"""

import math
import re
from collections.abc import Mapping

LIGHT = {
    "background": "#ffffff",
    "ink": "#1d2733",
    "muted": "#5a6673",
    "line": "#d9d7d0",
    "empty": "#f6f4ee",
    "neutral": "#f4f2ec",
    "negative": "#8e3b8f",
    "positive": "#2f8f4e",
    "dotEdge": "#ffffff",
    "forward": "#2f7fdb",
    "loss": "#d6336c",
    "backward": "#d9641f",
    "update": "#b57c00",
    "weights": "#35404d",
    "inputs": "#6f7c89",
    "optimizer": "#6a35c9",
    "activations": "#2f7fdb",
    "gradients": "#d9641f",
    "temporaries": "#9a8f86",
    "cache": "#0b7355",
}
DARK = {
    "background": "#1a2028",
    "ink": "#eceff3",
    "muted": "#a7b2be",
    "line": "#37414d",
    "empty": "#222a34",
    "neutral": "#262e38",
    "negative": "#d184d3",
    "positive": "#5fc27d",
    "dotEdge": "#12161c",
    "forward": "#63a8f7",
    "loss": "#f2709c",
    "backward": "#f0904f",
    "update": "#e8b53a",
    "weights": "#a3b1c2",
    "inputs": "#64727f",
    "optimizer": "#8659ee",
    "activations": "#63a8f7",
    "gradients": "#f0904f",
    "temporaries": "#b0a598",
    "cache": "#0d825b",
}
COLOURS = {"light": LIGHT, "dark": DARK}

MINUS = "−"


def count(value: float) -> str:
    """1025 -> `1,025`."""
    return f"{value:,.0f}"


def bytes_text(value: float) -> str:
    """Exact bytes while they can be read at a glance, then decimal units: kB = 10³ B."""
    if abs(value) < 10_000:
        return exact_bytes(value)
    for unit, size in (("kB", 1e3), ("MB", 1e6), ("GB", 1e9)):
        if abs(value) < 1000 * size:
            return f"{value / size:.4g} {unit}"
    return f"{value / 1e12:.4g} TB"


def both_units(value: float) -> str:
    """Decimal and binary beside each other: `80 GB (74.51 GiB)`."""
    for unit, size in (("TiB", 2**40), ("GiB", 2**30), ("MiB", 2**20), ("KiB", 2**10)):
        if abs(value) >= size:
            return f"{bytes_text(value)} ({value / size:.4g} {unit})"
    return bytes_text(value)


def exact_bytes(value: float) -> str:
    """Every digit: 1234567 -> `1,234,567 B`."""
    return f"{value:,.0f} B"


def flops_text(value: float) -> str:
    """Floating-point operations, a multiply-add counted as two: MFLOP = 10⁶, GFLOP = 10⁹."""
    for unit, size in (("EFLOP", 1e18), ("PFLOP", 1e15), ("TFLOP", 1e12), ("GFLOP", 1e9)):
        if value >= 0.9995 * size:
            return f"{value / size:.3g} {unit}"
    unit, size = ("MFLOP", 1e6) if value >= 999.5 else ("FLOP", 1.0)
    return f"{value / size:.3g} {unit}"


def small_text(value: float) -> str:
    """Two digits and a power of ten: 8.9e-08 -> `8.9·10⁻⁸`."""
    if value == 0:
        return "0"
    digits, power = f"{value:.1e}".split("e")
    raised = str(int(power)).translate(str.maketrans("-0123456789", "⁻⁰¹²³⁴⁵⁶⁷⁸⁹"))
    return f"{digits}·10{raised}"


def seconds_text(value: float) -> str:
    """Three digits, in s, ms or µs."""
    for unit, size in (("s", 1.0), ("ms", 1e-3)):
        if value >= 0.9995 * size:  # which rounds up to a whole one
            return f"{value / size:.3g} {unit}"
    return f"{value * 1e6:.3g} µs"


def rate_text(value: float) -> str:
    """Three digits: 41.7 -> `41.7 tokens/s`."""
    return f"{value:,.0f} tokens/s" if value >= 1000 else f"{value:.3g} tokens/s"


def times_text(ratio: float) -> str:
    """How many times as much, to two digits: 195.3 -> `200 times`."""
    return f"{float(f'{ratio:.2g}'):,g} times"


def value_text(value: float, unit: str) -> str:
    """A number of the catalogue in the unit that it is read in."""
    texts = {
        "B": bytes_text,
        "s": seconds_text,
        "tokens/s": rate_text,
        "1": small_text,
        "params": count,
    }
    return texts[unit](value)


def exact_text(value: float, unit: str) -> str:
    """The same with every digit that counts."""
    return exact_bytes(value) if unit == "B" else value_text(value, unit)


def plain(text: str) -> str:
    """Text from outside as Markdown that shows it as it is, on one line."""
    shown = "".join(c if c.isprintable() else " " for c in text)
    return re.sub(r"([\\`*_\[\]<>$:~|#&])", r"\\\1", shown)


def sentence(text: str) -> str:
    """A message of ours, maybe with a visitor's words in it, as a sentence of the page."""
    return plain(f"{text[:1].upper()}{text[1:]}".rstrip(".") + ".")


def measured_step_text(scalars: Mapping[str, float]) -> str:
    """How often a recorded step was repeated, and the spread of its time."""
    if "recorded_step_s" not in scalars:
        return "No step is recorded yet."
    low, middle, high = (
        seconds_text(scalars[k]) for k in ("step_min_s", "recorded_step_s", "step_max_s")
    )
    gap = scalars.get("hand_written_largest_gap")
    own = ""
    if gap is not None:
        own = f". Autograd's gradients and the training code's differ by {small_text(gap)} at most"
    busy = (
        f". The machine was busy meanwhile (load {scalars['load_1min']:.1f}): times are too long"
        if scalars.get("contended")
        else ""
    )
    return (
        f"The step took {middle} (median of {count(scalars['step_repeats'])} repeats, {low} to "
        f"{high}); its bytes are the same in each{own}{busy}."
    )


def error_text(error: float | None) -> str:
    """Signed relative error: `exact`, `+0.3 %`, `−12 %`; a dash while nothing is measured."""
    if error is None:
        return "–"
    if error == 0:
        return "exact"
    if math.isinf(error):
        return "predicted, not seen"
    sign = "+" if error > 0 else MINUS
    percent = abs(error) * 100
    if percent < 1e-4:  # a few bytes of gigabytes
        return "< 0.0001 %"
    return f"{sign}{percent:.2g} %" if percent < 10 else f"{sign}{percent:,.0f} %"
