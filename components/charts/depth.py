"""Peak memory against depth: an answer and a training step of the same model."""

from collections.abc import Mapping, Sequence

import plotly.graph_objects as go

from components.theme import bytes_text

TRAIN, ANSWER = "train_peak_bytes", "inference_peak_bytes"


def depth_figure(
    predicted: Sequence[tuple[int, int, int]],
    measured: Mapping[str, Sequence[tuple[int, float]]],
    colours: Mapping[str, str],
) -> go.Figure:
    """`predicted`: (depth, training peak, inference peak); `measured`: quantity -> (depth, bytes).

    Bytes on the vertical axis, in MB = 10⁶ B.
    """
    figure = go.Figure()
    depths = [depth for depth, _, _ in predicted]
    for name, quantity, values, colour, symbol in (
        ("a training step", TRAIN, [p[1] for p in predicted], colours["backward"], "square"),
        ("an answer", ANSWER, [p[2] for p in predicted], colours["forward"], "circle"),
    ):
        figure.add_scatter(
            x=depths,
            y=[v / 1e6 for v in values],
            name=f"{name}, predicted",
            mode="lines",
            line={"color": colour, "dash": "dash", "width": 2},
            customdata=[bytes_text(v) for v in values],
            hovertemplate="%{x} layers: %{customdata} predicted<extra></extra>",
        )
        points = measured.get(quantity, ())
        if points:
            figure.add_scatter(
                x=[depth for depth, _ in points],
                y=[v / 1e6 for _, v in points],
                name=f"{name}, measured",
                mode="markers",
                marker={"color": colour, "symbol": symbol, "size": 10},
                customdata=[bytes_text(v) for _, v in points],
                hovertemplate="%{x} layers: %{customdata} measured<extra></extra>",
            )
    figure.update_layout(
        height=330,
        margin={"l": 10, "r": 10, "t": 10, "b": 10},
        xaxis={"title": "layers", "dtick": 1, "rangemode": "tozero"},
        yaxis={"title": "peak memory, MB", "rangemode": "tozero"},
        legend={"orientation": "h", "y": 1.12, "x": 0},
    )
    return figure
