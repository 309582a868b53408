"""A conversation in numbers: what each turn sends again, and what a training step moved."""

from collections.abc import Mapping, Sequence

import plotly.graph_objects as go


def prompts_figure(turns: Sequence[tuple[int, int]], colours: Mapping[str, str]) -> go.Figure:
    """`turns`: (tokens of the prompt that were sent before, tokens that are new), by turn."""
    figure = go.Figure()
    names = [f"turn {i + 1}" for i in range(len(turns))]
    for name, values, colour, pattern in (
        ("sent again", [again for again, _ in turns], colours["inputs"], "/"),
        ("new", [new for _, new in turns], colours["forward"], ""),
    ):
        figure.add_bar(
            x=names,
            y=values,
            name=name,
            marker={"color": colour, "pattern": {"shape": pattern}},
            hovertemplate=f"%{{x}}: %{{y:,}} tokens {name}<extra></extra>",
        )
    return _laid_out(figure, "tokens of the prompt", 260).update_layout(barmode="stack")


def update_figure(layers: Sequence[tuple[str, float]], colours: Mapping[str, str]) -> go.Figure:
    """`layers`: (name, norm of the change of all its weights)."""
    figure = go.Figure()
    figure.add_bar(
        x=[name for name, _ in layers],
        y=[norm for _, norm in layers],
        marker={"color": colours["update"]},
        hovertemplate="%{x}: %{y:.3g}<extra></extra>",
    )
    return _laid_out(figure, "norm of the change", 240).update_layout(showlegend=False)


def _laid_out(figure: go.Figure, y_title: str, height: int) -> go.Figure:
    return figure.update_layout(
        height=height,
        margin={"l": 10, "r": 10, "t": 10, "b": 10},
        yaxis={"title": y_title, "rangemode": "tozero"},
        legend={"orientation": "h", "y": 1.2, "x": 0},
    )
