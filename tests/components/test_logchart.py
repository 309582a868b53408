"""What pages hand the chart and the bars: JSON, whole, and nothing that a browser cannot read."""

import json
import math
from dataclasses import replace
from typing import Any

import pytest

from components.theme import COLOURS
from components.widgets.logchart import (
    Axis,
    Layer,
    Line,
    LogChart,
    Measure,
    Point,
    Points,
    Reference,
    Segment,
    Stack,
    StackRow,
    stacks_message,
)

X = Axis(title="parameters", unit="params", low=1e5, high=1e12)
Y = Axis(title="bytes", unit="B")
BAD = (math.nan, math.inf, -math.inf)
each_bad = pytest.mark.parametrize("bad", BAD)


def chart(*series: Line | Points | Stack, **more: Any) -> LogChart:
    return LogChart(x=X, y=Y, series=series, summary="bytes against parameters", **more)


def line(y: float = 1e9) -> Line:
    return Line(name="training", colour="backward", points=[(1e6, 1e7), (1e9, y)])


def test_a_chart_is_json_that_a_browser_reads():
    points = [Point(x=8e9, y=1.8e11, label="Llama", id="llama", rows=(("peak in", "loss"),))]
    figure = chart(
        line(),
        Points(name="published", colour="backward", items=points),
        Stack(name="peak", xs=[1e6], layers=[Layer(name="weights", colour="weights", values=[2])]),
        lines=[Reference(at=8e10, label="H100 80 GB", strong=True)],
        measure=Measure(x=8e9, low=1e10, high=1e11, text="10 times"),
    )
    sent = json.loads(json.dumps(figure.message(), allow_nan=False))
    assert [s["kind"] for s in sent["series"]] == ["line", "points", "stack"]
    assert sent["series"][0]["points"] == [[1e6, 1e7], [1e9, 1e9]]
    label = ["Llama", "llama", [["peak in", "loss"]], False]
    assert sent["series"][1]["items"] == [[8e9, 1.8e11, *label]]
    assert sent["lines"] == [{"at": 8e10, "label": "H100 80 GB", "axis": "y", "strong": True}]
    assert sent["measure"]["text"] == "10 times"
    assert sent["colours"] == COLOURS
    assert sent["x"]["low"] == 1e5 and sent["y"]["low"] is None


@each_bad
def test_a_number_that_is_none_is_refused_by_the_name_of_its_series(bad: float):
    band = replace(line(), band=[(1e6, bad, 1e7)])
    point = Points(name="seen", colour="ink", items=[Point(x=1e6, y=bad, label="a")])
    layer = Layer(name="weights", colour="weights", values=[bad])
    for series, name in (
        (line(bad), "'training'"),
        (band, "'training'"),
        (point, "'seen'"),
        (Stack(name="peak", xs=[1e6], layers=[layer]), "'weights'"),
    ):
        with pytest.raises(ValueError, match=f"{name}.*finite"):
            chart(series).message()
    with pytest.raises(ValueError, match="reference"):
        chart(line(), lines=[Reference(at=bad, label="x")]).message()
    with pytest.raises(ValueError, match="measure"):
        chart(line(), measure=Measure(x=1e6, low=bad, high=1, text="x")).message()
    row = StackRow(name="a step", segments=[Segment(name="x", value=bad, colour="ink")])
    with pytest.raises(ValueError, match="a step"):
        stacks_message([row], "bars", "B", None)
    with pytest.raises(ValueError, match="capacity"):
        stacks_message([], "bars", "B", (bad, "H100"))


def test_a_layer_has_a_value_for_each_place():
    layer = Layer(name="weights", colour="weights", values=[1.0, 2.0])
    with pytest.raises(ValueError, match="2 values for 1 places"):
        chart(Stack(name="peak", xs=[1e6], layers=[layer])).message()


def test_bars_are_json_with_every_part_and_the_room_there_is():
    parts = [
        Segment(name="weights", value=1.6e10, colour="weights"),
        Segment(name="moments", value=6.4e10, colour="optimizer", pattern="dotted", why="fp32"),
    ]
    rows = [StackRow(name="a step", segments=parts, note="in backward")]
    found = stacks_message(rows, "bars", "B", (8e10, "H100"))
    sent = json.loads(json.dumps(found, allow_nan=False))
    assert sent["capacity"] == {"at": 8e10, "label": "H100"}
    assert [s["value"] for s in sent["rows"][0]["segments"]] == [1.6e10, 6.4e10]
    assert sent["rows"][0]["segments"][1]["why"] == "fp32"
    assert sent["rows"][0]["note"] == "in backward"
    assert stacks_message(rows, "bars", "B", None)["capacity"] is None
