"""Colours can be told apart by everyone, and numbers read as what they are.

Contrast as WCAG 2.2 defines it; colour vision deficiency after Machado, Oliveira and Fernandes
(2009), severity 1.0, in linear light; distance is Euclidean in CIELAB under D65.
"""

import itertools
import math
import re
import tomllib
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from components import theme
from components.theme import COLOURS, DARK, LIGHT
from core.events import ANSWER_CATEGORIES, CATEGORIES, PHASES
from core.trace import Trace

ROOT = Path(__file__).resolve().parents[2]
CONFIG = tomllib.loads((ROOT / ".streamlit" / "config.toml").read_text())["theme"]
TEXT = ("ink", "muted")
NO_MARKS = ("background", "neutral", "empty", "line", "dotEdge")  # grounds and edges
PAIRS = sorted(
    {pair for stack in (CATEGORIES, ANSWER_CATEGORIES) for pair in itertools.combinations(stack, 2)}
)
MARKS = sorted(set(LIGHT) - {*TEXT, *NO_MARKS})

VISION = {
    "normal": np.eye(3),
    "protanopia": np.array(
        [
            [0.152286, 1.052583, -0.204868],
            [0.114503, 0.786281, 0.099216],
            [-0.003882, -0.048116, 1.051998],
        ]
    ),
    "deuteranopia": np.array(
        [
            [0.367322, 0.860646, -0.227968],
            [0.280085, 0.672501, 0.047413],
            [-0.011820, 0.042940, 0.968881],
        ]
    ),
}
# sRGB primaries to CIE XYZ under D65 (IEC 61966-2-1).
TO_XYZ = np.array(
    [
        [0.4124564, 0.3575761, 0.1804375],
        [0.2126729, 0.7151522, 0.0721750],
        [0.0193339, 0.1191920, 0.9503041],
    ]
)


def linear(colour: str) -> np.ndarray:
    """Linear light of `#rrggbb`, 0 to 1."""
    encoded = np.array([int(colour[i : i + 2], 16) for i in (1, 3, 5)]) / 255
    return np.where(encoded <= 0.04045, encoded / 12.92, ((encoded + 0.055) / 1.055) ** 2.4)


def contrast(a: str, b: str) -> float:
    """(L1 + 0.05) / (L2 + 0.05) of relative luminances, the lighter one first."""
    lighter, darker = sorted((float(TO_XYZ[1] @ linear(c)) for c in (a, b)), reverse=True)
    return (lighter + 0.05) / (darker + 0.05)


def lab(colour: str, vision: str) -> np.ndarray:
    """CIELAB of a colour as someone with that vision sees it."""
    seen = np.clip(VISION[vision] @ linear(colour), 0, 1)
    ratio = TO_XYZ @ seen / TO_XYZ.sum(axis=1)
    f = np.where(ratio > (6 / 29) ** 3, np.cbrt(ratio), ratio / (3 * (6 / 29) ** 2) + 4 / 29)
    return np.array([116 * f[1] - 16, 500 * (f[0] - f[1]), 200 * (f[1] - f[2])])


def distance(a: str, b: str, vision: str) -> float:
    return float(np.linalg.norm(lab(a, vision) - lab(b, vision)))


def test_the_measures_give_known_values():
    """Black on white: contrast 21; #777 on white: 4.48; red: (53.24, 80.09, 67.20) in CIELAB."""
    assert contrast("#000000", "#ffffff") == pytest.approx(21)
    assert contrast("#777777", "#ffffff") == pytest.approx(4.48, abs=0.005)
    assert lab("#ff0000", "normal") == pytest.approx([53.24, 80.09, 67.20], abs=0.02)
    for vision in VISION:  # grey stays grey for everyone
        assert distance("#808080", "#808080", vision) == 0
        assert lab("#808080", vision) == pytest.approx(lab("#808080", "normal"), abs=0.05)
    red, green = "#c00000", "#5c7000"
    assert distance(red, green, "protanopia") < distance(red, green, "normal") / 2


# -- colours --------------------------------------------------------------------------------------

themes = pytest.mark.parametrize("name", COLOURS)
visions = pytest.mark.parametrize("vision", VISION)


@themes
@pytest.mark.parametrize("text", TEXT)
def test_text_stands_out(name: str, text: str):
    """Ink and muted text have a contrast of 4.5 on the card they stand on."""
    assert contrast(COLOURS[name][text], COLOURS[name]["background"]) >= 4.5


@themes
@pytest.mark.parametrize("text", TEXT)
def test_text_stands_out_on_the_page_too(name: str, text: str):
    """Cards lie on the page's own ground, which is another colour."""
    assert contrast(COLOURS[name][text], CONFIG[name]["backgroundColor"]) >= 4.5


@themes
def test_text_of_streamlits_own_stands_out(name: str):
    for ground in ("backgroundColor", "secondaryBackgroundColor"):
        for side in (CONFIG[name], CONFIG[name]["sidebar"]):
            assert contrast(CONFIG[name]["textColor"], side[ground]) >= 4.5


@themes
@pytest.mark.parametrize("mark", MARKS)
def test_a_mark_stands_out(name: str, mark: str):
    """Whatever is drawn has a contrast of 3 on its card, the amber of the update included."""
    assert contrast(COLOURS[name][mark], COLOURS[name]["background"]) >= 3


@themes
@visions
@pytest.mark.parametrize("pair", PAIRS, ids="-".join)
def test_categories_of_a_stack_can_be_told_apart(name: str, vision: str, pair: tuple[str, str]):
    """Any two may touch: a category without bytes leaves its neighbours side by side."""
    a, b = (COLOURS[name][category] for category in pair)
    assert distance(a, b, vision) >= 15


@themes
@visions
def test_signs_can_be_told_apart(name: str, vision: str):
    """Negative and positive are the only cue of a class region's sign."""
    assert distance(COLOURS[name]["negative"], COLOURS[name]["positive"], vision) >= 40


@themes
@visions
@pytest.mark.parametrize("sign", ["negative", "positive"])
def test_a_sign_can_be_told_from_zero(name: str, vision: str, sign: str):
    assert distance(COLOURS[name][sign], COLOURS[name]["neutral"], vision) >= 30


@themes
def test_signs_are_not_the_colours_of_forward_and_backward(name: str):
    """Blue and orange mean forward and backward, so no sign may look like either."""
    colours = COLOURS[name]
    for sign, phase in itertools.product(("negative", "positive"), ("forward", "backward")):
        assert distance(colours[sign], colours[phase], "normal") >= 40


@themes
def test_what_flows_and_what_is_held_share_a_colour(name: str):
    colours = COLOURS[name]
    assert colours["activations"] == colours["forward"]
    assert colours["gradients"] == colours["backward"]


@themes
def test_every_phase_and_category_has_a_colour(name: str):
    assert {*CATEGORIES, *ANSWER_CATEGORIES, *PHASES} <= set(COLOURS[name])


def test_both_themes_name_the_same_meanings():
    assert list(LIGHT) == list(DARK)


@themes
def test_every_colour_is_written_in_six_digits(name: str):
    assert [c for c in COLOURS[name].values() if not re.fullmatch("#[0-9a-f]{6}", c)] == []


def test_a_hue_is_the_same_in_both_themes():
    """Shades may move, hues are the meaning: no coloured mark turns by more than 30 degrees."""
    for mark in MARKS:
        light, dark = (lab(theme_[mark], "normal")[1:] for theme_ in (LIGHT, DARK))
        if min(math.hypot(*light), math.hypot(*dark)) < 15:
            continue  # a grey has no hue
        turn = math.degrees(math.atan2(*light[::-1]) - math.atan2(*dark[::-1]))
        assert abs((turn + 180) % 360 - 180) <= 30, mark


# -- Streamlit's theme ----------------------------------------------------------------------------


def test_streamlit_is_given_exactly_ten_chart_colours():
    """With another number it drops the palette."""
    colours = CONFIG["chartCategoricalColors"]
    assert len(colours) == len(set(colours)) == 10


def test_chart_colours_are_the_colours_by_meaning():
    assert set(CONFIG["chartCategoricalColors"]) <= {*LIGHT.values()}


@themes
def test_streamlits_cards_are_the_cards_that_are_drawn_on(name: str):
    assert CONFIG[name]["secondaryBackgroundColor"] == COLOURS[name]["background"]
    assert CONFIG[name]["textColor"] == COLOURS[name]["ink"]


# -- numbers as text ------------------------------------------------------------------------------

sizes = st.floats(0, 1e15, allow_nan=False)
UNITS = {"B": 1, "kB": 1e3, "MB": 1e6, "GB": 1e9, "TB": 1e12}
TIMES = {"s": 1, "ms": 1e-3, "µs": 1e-6}


def value_of(text: str, units: dict[str, float]) -> float:
    number, unit = text.split(" ")
    return float(number.replace(",", "").replace(theme.MINUS, "-")) * units[unit]


@given(sizes)
def test_bytes_read_back_to_four_digits(value: float):
    """Rounding to four digits moves a number by at most a two-thousandth of itself."""
    assert value_of(theme.bytes_text(value), UNITS) == pytest.approx(value, rel=5.1e-4, abs=0.5)


@given(st.integers(-9_999, 9_999))
def test_bytes_are_exact_while_they_can_be_read_at_a_glance(value: int):
    assert theme.bytes_text(value) == f"{value:,} B"


@given(sizes)
def test_no_size_is_written_with_an_exponent(value: float):
    assert "e" not in theme.bytes_text(value)


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (0, "0 B"),
        (100, "100 B"),
        (9_999, "9,999 B"),
        (12_345, "12.35 kB"),
        (999_000, "999 kB"),
        (1_234_000, "1.234 MB"),
        (2.5e9, "2.5 GB"),
        (3e12, "3 TB"),
    ],
)
def test_bytes_are_written_in_decimal_units(value: float, text: str):
    """The same table stands in tests/js/player.test.js for the browser's own function."""
    assert theme.bytes_text(value) == text


@given(st.floats(1e-9, 999))
def test_times_read_back_to_three_digits(value: float):
    text = theme.seconds_text(value)
    assert value_of(text, TIMES) == pytest.approx(value, rel=5.1e-3)
    assert "e+" not in text


@pytest.mark.parametrize(
    ("value", "text"),
    [(1.2345, "1.23 s"), (0.0123, "12.3 ms"), (2.75078e-4, "275 µs"), (0.9996, "1 s"), (0, "0 µs")],
)
def test_a_time_is_written_in_the_unit_it_is_read_in(value: float, text: str):
    assert theme.seconds_text(value) == text


@pytest.mark.parametrize(
    ("ratio", "text"),
    [(1.23, "1.2 times"), (195.3, "200 times"), (1950, "2,000 times"), (0.5, "0.5 times")],
)
def test_how_many_times_is_told_to_two_digits(ratio: float, text: str):
    assert theme.times_text(ratio) == text


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("a*b_c", r"a\*b\_c"),
        ("![x](http://y)", r"!\[x\](http\://y)"),
        ("$5$ :red[x] <b>", r"\$5\$ \:red\[x\] \<b\>"),
        ("a\nb\0", "a b "),
    ],
)
def test_text_from_outside_is_no_markup(text: str, shown: str):
    assert theme.plain(text) == shown


def test_a_message_becomes_a_sentence():
    assert theme.sentence("x=1 is wrong; choose 2") == "X=1 is wrong; choose 2."


@pytest.mark.parametrize(
    ("value", "unit", "text"),
    [
        (538_060_032, "B", "538.1 MB"),
        (0.0304, "s", "30.4 ms"),
        (41.66, "tokens/s", "41.7 tokens/s"),
        (12_345.6, "tokens/s", "12,346 tokens/s"),
    ],
)
def test_a_quantity_is_written_in_its_unit(value: float, unit: str, text: str):
    assert theme.value_text(value, unit) == text


@pytest.mark.parametrize(
    ("error", "text"),
    [
        (None, "–"),
        (0, "exact"),
        (0.003, "+0.3 %"),
        (-0.12, "−12 %"),
        (0.0004, "+0.04 %"),
        (-0.00001, "−0.001 %"),
        (1, "+100 %"),
        (0.995, "+100 %"),
        (-0.995, "−100 %"),
        (12.3, "+1,230 %"),
        (math.inf, "predicted, not seen"),
    ],
)
def test_an_error_is_signed_in_per_cent(error: float | None, text: str):
    assert theme.error_text(error) == text


@given(st.floats(-1e4, 1e4).filter(lambda e: abs(e) > 1e-6))
def test_an_error_reads_back_to_two_digits(error: float):
    text = theme.error_text(error)
    assert value_of(text, {"%": 0.01}) == pytest.approx(error, rel=0.051)
    assert "e+" not in text


@given(st.integers(-(10**12), 10**12))
def test_counts_are_grouped_and_lose_nothing(value: int):
    assert int(theme.count(value).replace(",", "")) == value


def test_a_measured_step_says_how_often_it_was_repeated_and_its_spread():
    trace = Trace.read(ROOT / "core" / "recordings" / "circle")
    scalars = trace.scalars_of(trace.recorded_steps[0])
    text = theme.measured_step_text(scalars)
    assert f"median of {scalars['step_repeats']:.0f} repeats" in text
    for name in ("recorded_step_s", "step_min_s", "step_max_s"):
        assert theme.seconds_text(scalars[name]) in text


def test_before_a_step_is_recorded_nothing_is_claimed_of_it():
    assert theme.measured_step_text({}) == "No step is recorded yet."
