"""Lines over a setting of an answer: predicted dashed, measured as marks."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import plotly.graph_objects as go

XY = tuple[float, float]


@dataclass(frozen=True, slots=True, kw_only=True)
class Series:
    """One quantity over the setting."""

    name: str
    colour: str
    symbol: str
    predicted: Sequence[XY]
    measured: Sequence[XY]


def lines_figure(
    series: Sequence[Series],
    *,
    x_title: str,
    y_title: str,
    unit: float,
    readable: Callable[[float], str],
    log_y: bool = False,
) -> go.Figure:
    """`unit`: base units of one step of the vertical axis, so 1e-3 where it counts milliseconds;
    `readable` writes a value for the pointer. The setting doubles from point to point.
    """
    figure = go.Figure()
    places = sorted({x for s in series for x, _ in (*s.predicted, *s.measured)})
    for s in series:
        for points, mode, how in (
            (s.predicted, "lines", "predicted"),
            (s.measured, "markers", "measured"),
        ):
            if points:
                figure.add_scatter(
                    x=[x for x, _ in points],
                    y=[y / unit for _, y in points],
                    name=f"{s.name}, {how}",
                    mode=mode,
                    line={"color": s.colour, "dash": "dash", "width": 2},
                    marker={"color": s.colour, "symbol": s.symbol, "size": 10},
                    customdata=[readable(y) for _, y in points],
                    hovertemplate=f"%{{x}}: %{{customdata}} {how}<extra>{s.name}</extra>",
                )
    figure.update_layout(
        height=320,
        margin={"l": 10, "r": 10, "t": 10, "b": 10},
        xaxis={
            "title": x_title,
            "type": "log",
            "tickvals": places,
            "ticktext": [f"{x:,.0f}" for x in places],
        },
        yaxis={
            "title": y_title,
            "type": "log" if log_y else "linear",
            **({"dtick": 1} if log_y else {"rangemode": "tozero"}),
        },
        showlegend=True,
        legend={"orientation": "h", "y": 1.18, "x": 0},
    )
    return figure
