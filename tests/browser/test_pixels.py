"""The picture is the recording: pixels of the canvas against numbers read by `core.trace`.

Where a mark stands is asked of the widget; which colour it must have is worked out here, from the
recorded number and the theme.
"""

import math
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from components.theme import COLOURS
from core.recordings import shipped
from core.specs import TrainSpec
from core.trace import Trace
from tests.browser.conftest import Visit
from tests.browser.page import TRAINS, Training

pytestmark = pytest.mark.browser

SHIPPED = "/training"
OTHER = "/training?problem=xor&features=x&features=x·y&depth=1&w1=3&act=ReLU&opt=AdamW&seed=7"

Colour = tuple[int, ...]


def trace_of(tab: Training, runs: Path) -> Trace:
    run = tab.ask("m.header.run")
    recording = shipped(TrainSpec()) if run.endswith("/recording") else runs / run
    assert recording is not None
    return Trace.read(recording)


def rgb(colour: str) -> Colour:
    return tuple(bytes.fromhex(colour[1:]))


def mix(a: str, b: str, share: float) -> Colour:
    return tuple(round(x + (y - x) * share) for x, y in zip(rgb(a), rgb(b), strict=True))


def diverging(c: dict[str, str], share: float) -> Colour:
    side = "negative" if share < 0 else "positive"
    return mix(c["neutral"], c[side], min(1.0, abs(share)))


def near(seen: list[int], expected: Colour) -> bool:
    """Equal within the rounding of one shade."""
    return all(abs(a - b) <= 1 for a, b in zip(seen, expected, strict=False))


def pixels(tab: Training, canvas: str, places: list[tuple[int, int]]) -> list[list[int]]:
    """[r, g, b, a] of pixels of a canvas that is drawn at one pixel a CSS pixel."""
    return tab.ask(
        """(({width, height}, canvas) => {
          const copy = new OffscreenCanvas(width, height).getContext("2d");
          copy.drawImage(canvas, 0, 0);
          const { data } = copy.getImageData(0, 0, width, height);
          return arg.places.map(([x, y]) => [...data.subarray(4 * (y * width + x)).subarray(0, 4)]);
        })(m.el[arg.canvas], m.el[arg.canvas])""",
        {"canvas": canvas, "places": places},
    )


def cells(tab: Training) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    """The strips' cells that hold a value now, and those that hold none: not yet, or no more.

    Without those that are too narrow to have a pixel of their own.
    """
    every = [c for c in tab.ask("scene.cells(m.place, m.recorded, m.state)") if c["w"] >= 2]
    blank = [c for c in every if c["empty"] or c["released"]]
    return [c for c in every if not (c["empty"] or c["released"])], blank


def middle(cell: dict[str, Any]) -> tuple[int, int]:
    """A pixel that lies in a cell with all of its area."""
    x = math.floor(cell["x"] + cell["w"] / 2)
    if x < cell["x"] or x + 1 > cell["x"] + cell["w"]:
        x = math.ceil(cell["x"])
    return x, math.floor(cell["y"] + cell["h"] / 2)


def recorded_colour(trace: Trace, step: int, cell: dict[str, Any], c: dict[str, str]) -> Colour:
    role = "grad" if cell["kind"] == "grad" else "activation"
    numbers = trace.array(step, cell["op"], role)
    value = float(numbers[cell["example"], cell["unit"]])
    if role == "grad":
        share = abs(value) / (np.abs(numbers).max() or 1)
        return mix(c["empty"], c["backward"], 0.12 + 0.88 * share)
    top = 1 if cell["op"] == "target" or bounded(trace, cell["op"]) else np.abs(numbers).max()
    return diverging(c, value / (top or 1))


def bounded(trace: Trace, op: str) -> bool:
    """Whether an op is an activation that keeps within ±1."""
    assert trace.started is not None
    kept = trace.started.spec["activation"] in ("tanh", "sigmoid")
    return op == "head.act" or (op.endswith(".act") and kept)


@pytest.fixture(params=["light", "dark"])
def theme(request: pytest.FixtureRequest) -> str:
    return request.param


@pytest.mark.parametrize("link", [SHIPPED, OTHER], ids=["shipped", "ReLU"])
def test_the_strips_show_the_recorded_values(look: Visit, runs: Path, theme: str, link: str):
    tab = look(link, color_scheme=theme)
    trace, step = trace_of(tab, runs), tab.ask("m.view.step")
    spans, n_cells = trace.spans(step), []
    for span in spans:
        tab.during(span.phase, span.op)
        shown, blank = cells(tab)
        n_cells.append(len(shown))
        seen = pixels(tab, "scene", [*map(middle, shown + blank)])
        wrong = [
            (span, cell, pixel, expected)
            for cell, pixel in zip(shown, seen, strict=False)
            if not near(pixel, expected := recorded_colour(trace, step, cell, COLOURS[theme]))
        ]
        assert wrong == []
        assert {opacity for *_, opacity in seen[len(shown) :]} <= {0}
    n_examples = trace.scalars_of(step)["batch_examples"]
    assert n_cells[0] == (2 + 1) * n_examples  # inputs and targets are there from the start
    assert max(n_cells) > 1.5 * n_cells[0]


def plane(tab: Training, trace: Trace) -> Iterator[tuple[int, int, int, int]]:
    """Cells of the large plane away from every dot: (row, column) and a pixel (x, y) inside."""
    plot, (_, n, _) = tab.ask(
        "[m.place.plot, m.trace.frameAt(0).arrays.get('head boundary').shape]"
    )
    size = plot["size"] / n
    x, y = trace.array(0, "data", "points").T  # the plane reaches from -6 to 6, y upwards
    points = np.column_stack([x + 6, 6 - y]) / 12 * plot["size"]
    for row in range(n):
        for column in range(n):
            x, y = (column + 0.5) * size, (row + 0.5) * size
            if np.hypot(*(points - [x, y]).T).min() > size + 7:
                yield row, column, math.floor(plot["x"] + x), math.floor(plot["y"] + y)


def test_the_plane_shows_the_recorded_shades(look: Visit, runs: Path, theme: str):
    tab = look(SHIPPED, color_scheme=theme)
    tab.seek(0.5)
    trace, c = trace_of(tab, runs), COLOURS[theme]
    frame = tab.ask("m.trace.frameAt(m.view.step).step")
    values = trace.array(frame, "head", "boundary")[0]
    top = tab.ask("((a) => Math.max(Math.abs(a.low), Math.abs(a.high)))"
                  "(m.trace.frameAt(m.view.step).arrays.get('head boundary'))")  # fmt: skip
    at = list(plane(tab, trace))
    assert len(at) > 500
    seen = pixels(tab, "scene", [(x, y) for _, _, x, y in at])
    wrong = [
        (row, column, pixel, values[row, column])
        for (row, column, _, _), pixel in zip(at, seen, strict=True)
        if not near(pixel, diverging(c, values[row, column] / top))
    ]
    assert wrong == []


def test_the_plane_is_not_mirrored(visit: Visit):
    """Behind a learned example lies its own class: exclusive or, flipped, would be all wrong."""
    tab = visit("/training?problem=xor&features=x·y&depth=0&lr=0.3&epochs=20&pace=fastest&seed=8")
    tab.page.locator(".st-key-go button:enabled", has_text=TRAINS).click()
    tab.until("m.trace.ended?.status === 'finished'")
    tab.hold()
    assert tab.ask("m.trace.frames.at(-1).train_accuracy") > 0.95
    tab.ask("(m.view = {mode: 'run', step: m.view.step, epochStep: null}, m.paint())")
    dots = tab.ask(
        """(({constants, nTrain}) => Array.from({length: nTrain}, (_, i) => {
          const [points, labels] = ["points", "labels"].map((r) => constants.get(`data ${r}`));
          const [x, y] = [points.at(2 * i), points.at(2 * i + 1)];
          return [...scene.dotPlace(m.place.plot, x, y), x, y, labels.at(i)];
        }))(m.trace)"""
    )
    plot = tab.ask("m.place.plot")
    ring = [(round(5.5 * math.cos(a)), round(5.5 * math.sin(a))) for a in np.arange(0, 6.3, 0.8)]
    clear = [dot for dot in dots if min(abs(dot[2]), abs(dot[3])) > 1]  # of the classes' borders
    around = pixels(
        tab, "scene", [(round(x) + i, round(y) + j) for x, y, *_ in clear for i, j in ring]
    )
    shades = np.median(np.array(around).reshape(len(clear), len(ring), 4), axis=1)[:, :3]
    positive, negative = (
        np.abs(shades - rgb(COLOURS["light"][side])).sum(axis=1)
        for side in ("positive", "negative")
    )
    labels = np.array([label for *_, label in clear])
    assert len(clear) > 100
    assert np.mean((positive < negative) == (labels > 0)) > 0.95
    for x, y, along, up, _ in clear:
        assert (x > plot["x"] + plot["size"] / 2) == (along > 0)
        assert (y < plot["y"] + plot["size"] / 2) == (up > 0)


def test_another_recorded_value_is_another_picture(look: Visit):
    """One number is changed in the browser's trace: its cell has the new colour, no other."""
    tab = look(SHIPPED, color_scheme="light")
    tab.during("backward", "loss")
    shown, _ = cells(tab)
    changed = next(
        i
        for i, c in enumerate(shown)
        if c["op"] == "head.act" and c["kind"] != "grad" and c["example"] == 3
    )
    at = [*map(middle, shown)]
    before = pixels(tab, "scene", at)
    value = -0.5 if shown[changed]["value"] > 0 else 0.5
    change = """(() => {
      const { values } = m.recorded.arrays.get("head.act activation");
      const was = values[3];
      values[3] = arg;
      m.paint();
      return was;
    })()"""
    was = tab.ask(change, value)
    after = pixels(tab, "scene", at)
    tab.ask(change, was)  # others look at this tab too
    assert near(after[changed], diverging(COLOURS["light"], value))
    assert [i for i, (a, b) in enumerate(zip(before, after, strict=True)) if a != b] == [changed]


def test_the_picture_is_a_function_of_the_moment(look: Visit):
    """Whatever was shown in between, a moment looks the same again."""
    tab = look(SHIPPED, color_scheme="light")

    def picture(moment: float) -> list[str]:
        tab.seek(moment)
        return tab.ask("[m.el.scene, m.el.ribbon].map((c) => c.toDataURL())")

    first = picture(0.6)
    assert picture(0.25) != first
    assert picture(0.6) == first


def test_the_ribbon_stacks_the_recorded_bytes(look: Visit, runs: Path, theme: str):
    tab = look(SHIPPED, color_scheme=theme)
    tab.seek(0)
    trace, step = trace_of(tab, runs), tab.ask("m.view.step")
    bands = tab.ask(
        """((s) => ribbon.bands(m.recorded).map((b) => ({
          ...b, x0: s.x(b.t0), x1: s.x(b.t1), y0: s.y(b.high), y1: s.y(b.low),
          grid: [0, 0.5, 1].map((share) => s.y(share * step.peak(step.timeline(m.recorded)).total)),
        })))(ribbon.scales(m.recorded, m.el.ribbon.clientWidth))"""
    )
    totals = {b["t0"]: b["high"] for b in bands}  # a moment's last band is the top of its stack
    assert [*totals.values()] == [sum(e.held_bytes.values()) for e in trace.memory(step)]
    solid = [
        (b["category"], (round((b["x0"] + b["x1"]) / 2), round((b["y0"] + b["y1"]) / 2)))
        for b in bands
        if b["category"] not in ("gradients", "optimizer")  # these are patterned
        and b["x1"] - b["x0"] > 4
        and b["y1"] - b["y0"] > 5
        and all(abs((b["y0"] + b["y1"]) / 2 - line) > 2 for line in b["grid"])
    ]
    assert {category for category, _ in solid} == {
        "weights",
        "inputs",
        "activations",
        "temporaries",
    }
    seen = pixels(tab, "ribbon", [place for _, place in solid])
    wrong = [
        (category, place, pixel)
        for (category, place), pixel in zip(solid, seen, strict=True)
        if not near(pixel, rgb(COLOURS[theme][category]))
    ]
    assert wrong == []
