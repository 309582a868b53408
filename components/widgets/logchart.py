"""Doors of two drawn widgets: values against a size, on axes that may be logarithmic, and bars.

Predicted is dashed or hollow, measured solid or filled, what was never measured here hatched.
"""

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import streamlit as st
from streamlit.components.v2 import component

from components.theme import COLOURS

_STATIC = Path(__file__).parent.parent / "static"
_CSS = (_STATIC / "logchart.css").read_text()


def shim(module: str) -> str:
    """Loads a static module once a page; calls that come earlier wait for it."""
    return f"""// a door to the static module {module}
const loaded = import(new URL("./app/static/{module}", document.baseURI));
export default function (component) {{
  let close;
  loaded.then((module) => {{ close = module.default(component); }});
  return () => loaded.then(() => close?.());
}}
"""


_mount = component("logchart", css=_CSS, js=shim("logchart.js"))
_mount_stacks = component("stacks", css=_CSS, js=shim("stacks.js"))

XY = tuple[float, float]


def _finite(values: Iterable[float | None], what: str) -> None:
    """The browser cannot read NaN or infinity: one of them would take the whole chart with it."""
    for value in values:
        if value is not None and not math.isfinite(value):
            raise ValueError(f"{what} holds {value}, which is no finite number; leave it out")


@dataclass(frozen=True, slots=True, kw_only=True)
class Axis:
    """`unit`: B, s, params, tokens, x, 1, or one that takes k, M, G: FLOP/s, FLOP/B, tokens/s."""

    title: str
    unit: str
    log: bool = True
    low: float | None = None  # None: as the values need it
    high: float | None = None

    def message(self) -> dict[str, Any]:
        return {
            "title": self.title,
            "unit": self.unit,
            "log": self.log,
            "low": self.low,
            "high": self.high,
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class Line:
    """`band`: (x, low, high), hatched: what was never measured."""

    name: str
    colour: str  # a name of the theme
    points: Sequence[XY]
    dashed: bool = True
    band: Sequence[tuple[float, float, float]] = ()

    def message(self) -> dict[str, Any]:
        _finite((v for p in self.points for v in p), f"the line {self.name!r}")
        _finite((v for b in self.band for v in b), f"the band of {self.name!r}")
        return {
            "kind": "line",
            "name": self.name,
            "colour": self.colour,
            "points": [tuple(p) for p in self.points],
            "dashed": self.dashed,
            "band": [tuple(b) for b in self.band] or None,
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class Point:
    """`id`: what is told when it is chosen, and points of several series that have it are told
    together; `rows`: more lines of its card; `named`: its label stands beside it where there is
    room.
    """

    x: float
    y: float
    label: str
    id: str = ""
    rows: tuple[tuple[str, str], ...] = ()
    named: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Points:
    """`filled`: measured; hollow: predicted. `symbol`: circle, square, diamond or triangle."""

    name: str
    colour: str
    items: Sequence[Point]
    filled: bool = False
    symbol: str = "circle"

    def message(self) -> dict[str, Any]:
        _finite((v for p in self.items for v in (p.x, p.y)), f"{self.name!r}")
        return {
            "kind": "points",
            "name": self.name,
            "colour": self.colour,
            "filled": self.filled,
            "symbol": self.symbol,
            "items": [(p.x, p.y, p.label, p.id, p.rows, p.named) for p in self.items],
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class Layer:
    """One category of a stack. `pattern`: hatched, dotted, thin, or none."""

    name: str
    colour: str
    values: Sequence[float]
    pattern: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Stack:
    """Categories on top of each other, at each x."""

    name: str
    xs: Sequence[float]
    layers: Sequence[Layer]

    def message(self) -> dict[str, Any]:
        _finite(self.xs, f"the stack {self.name!r}")
        for layer in self.layers:
            _finite(layer.values, f"the layer {layer.name!r}")
            if len(layer.values) != len(self.xs):
                raise ValueError(
                    f"the layer {layer.name!r} has {len(layer.values)} values for "
                    f"{len(self.xs)} places; give one for each"
                )
        return {
            "kind": "stack",
            "name": self.name,
            "xs": list(self.xs),
            "layers": [
                {
                    "name": x.name,
                    "colour": x.colour,
                    "pattern": x.pattern,
                    "values": list(x.values),
                }
                for x in self.layers
            ],
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class Reference:
    """A line across the chart: a capacity, a peak."""

    at: float
    label: str
    axis: str = "y"
    strong: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Measure:
    """A vertical measure between two values at one x."""

    x: float
    low: float
    high: float
    text: str
    label: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class LogChart:
    """A chart; `summary` is read out where it cannot be seen."""

    x: Axis
    y: Axis
    series: Sequence[Line | Points | Stack]
    summary: str
    lines: Sequence[Reference] = ()
    measure: Measure | None = None
    height: int = 420
    beyond: str = "never measured here: the error seen so far"
    empty: str = "Nothing to show yet."

    def message(self) -> dict[str, Any]:
        m = self.measure
        _finite((r.at for r in self.lines), "a reference line")
        _finite(() if m is None else (m.x, m.low, m.high), "the measure")
        return {
            "x": self.x.message(),
            "y": self.y.message(),
            "series": [s.message() for s in self.series],
            "lines": [
                {"at": r.at, "label": r.label, "axis": r.axis, "strong": r.strong}
                for r in self.lines
            ],
            "measure": None
            if m is None
            else {"x": m.x, "low": m.low, "high": m.high, "text": m.text, "label": m.label},
            "height": self.height,
            "summary": self.summary,
            "beyond": self.beyond,
            "empty": self.empty,
            "colours": COLOURS,
        }


def logchart(figure: LogChart, *, key: str, on_pick: Callable[[str], None] | None = None) -> None:
    """Draw it. `on_pick` is called with the id of a point that is chosen, before the rerun."""

    def picked() -> None:
        chosen = st.session_state.get(key, {}).get("picked")
        if chosen and on_pick is not None:
            on_pick(str(chosen))

    data = figure.message() | {"picks": on_pick is not None}
    _mount(key=key, data=data, on_picked_change=picked)


@dataclass(frozen=True, slots=True, kw_only=True)
class Segment:
    """A part of a row, in base units."""

    name: str
    value: float
    colour: str
    pattern: str = ""
    why: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class StackRow:
    """One bar; `note` stands beside its sum."""

    name: str
    segments: Sequence[Segment]
    note: str = ""


def stacks(
    rows: Sequence[StackRow],
    *,
    key: str,
    summary: str,
    unit: str = "B",
    capacity: tuple[float, str] | None = None,
) -> None:
    """Bars to scale on one axis; `capacity`: a value and its label, beyond which is hatched."""
    _mount_stacks(key=key, data=stacks_message(rows, summary, unit, capacity))


def stacks_message(
    rows: Sequence[StackRow], summary: str, unit: str, capacity: tuple[float, str] | None
) -> dict[str, Any]:
    """What the browser draws of bars."""
    for row in rows:
        _finite((s.value for s in row.segments), f"the bar {row.name!r}")
    _finite(() if capacity is None else capacity[:1], "the capacity")
    return {
        "rows": [
            {
                "name": row.name,
                "note": row.note,
                "segments": [
                    {
                        "name": s.name,
                        "value": s.value,
                        "colour": s.colour,
                        "pattern": s.pattern,
                        "why": s.why,
                    }
                    for s in row.segments
                ],
            }
            for row in rows
        ],
        "unit": unit,
        "capacity": None if capacity is None else {"at": capacity[0], "label": capacity[1]},
        "summary": summary,
        "colours": COLOURS,
    }
