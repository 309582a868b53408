"""Figures hold the data that they are given, and nothing else."""

import pytest

from components.charts.answers import Series, lines_figure
from components.charts.chats import prompts_figure, update_figure
from components.theme import LIGHT, seconds_text

SERIES = Series(
    name="each token",
    colour="#123456",
    symbol="square",
    predicted=[(1, 0.001), (2, 0.002)],
    measured=[(2, 0.0025)],
)


@pytest.mark.parametrize("log_y", [False, True])
def test_predicted_is_a_dashed_line_and_measured_are_marks(log_y: bool):
    figure = lines_figure(
        [SERIES], x_title="x", y_title="ms", unit=1e-3, readable=seconds_text, log_y=log_y
    )
    line, marks = figure.data
    assert (list(line.x), list(line.y)) == ([1, 2], pytest.approx([1, 2]))
    assert (line.mode, line.line.dash) == ("lines", "dash")
    assert (list(marks.x), list(marks.y)) == ([2], pytest.approx([2.5]))
    assert (marks.mode, marks.marker.symbol) == ("markers", "square")
    assert list(marks.customdata) == ["2.5 ms"]
    assert list(figure.layout.xaxis.tickvals) == [1, 2]


def test_what_was_not_measured_is_not_drawn():
    only = Series(name="n", colour="#123456", symbol="circle", predicted=[(1, 1)], measured=[])
    assert len(lines_figure([only], x_title="", y_title="", unit=1, readable=str).data) == 1


def test_a_turn_s_prompt_is_what_was_sent_again_and_what_is_new():
    again, new = prompts_figure([(0, 20), (22, 26)], LIGHT).data
    assert list(again.y) == [0, 22]
    assert list(new.y) == [20, 26]
    assert again.marker.pattern.shape  # told apart without colour too


def test_a_bar_for_each_layer_that_moved():
    (bars,) = update_figure([("embed", 3.0), ("block 1", 1.0)], LIGHT).data
    assert (list(bars.x), list(bars.y)) == (["embed", "block 1"], [3.0, 1.0])
