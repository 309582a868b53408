"""The address bar is the share link: it sets the page, and the page sets it."""

import re
from urllib.parse import parse_qs, urlsplit

import pytest

from core.specs import TrainSpec
from tests.browser.conftest import Visit
from tests.browser.page import Training, until

pytestmark = pytest.mark.browser


def query(tab: Training) -> dict[str, list[str]]:
    """The address' settings; which run is looked at is no setting."""
    parameters = parse_qs(urlsplit(tab.page.url).query)
    return {key: values for key, values in parameters.items() if key != "run"}


def slider(tab: Training, key: str, press: str) -> None:
    tab.page.locator(f".st-key-{key} input[type=range]").press(press)


def test_a_link_with_many_settings_sets_the_spec_and_every_widget(visit: Visit):
    link = {
        "problem": ["xor"], "noise": ["15"], "features": ["x", "y", "x·y"], "depth": ["3"],
        "w1": ["5"], "w2": ["3"], "w3": ["4"], "act": ["ReLU"], "lr": ["0.1"], "opt": ["AdamW"],
        "batch": ["16"], "prec": ["fp64"], "seed": ["4242"], "epochs": ["100"], "pace": ["10"],
    }  # fmt: skip
    tab = visit("/training?" + "&".join(f"{k}={v}" for k, values in link.items() for v in values))
    spec = TrainSpec(
        problem="xor", noise=0.15, features=("x", "y", "xy"), hidden=(5, 3, 4), activation="relu",
        optimizer="adamw", learning_rate=0.1, batch_size=16, precision="fp64", seed=4242,
        n_epochs=100,
    )  # fmt: skip
    assert TrainSpec.from_json(tab.ask("m.header.spec")) == spec
    shown = {}
    for key in link:
        box = tab.page.locator(f".st-key-{key}")
        chosen = box.locator("button:is([aria-checked=true], [aria-pressed=true])")
        shown[key] = chosen.all_inner_texts() or box.locator("input").evaluate_all(
            "all => all.map((e) => e.getAttribute('aria-valuetext') ?? e.value)"
        )
    assert shown == {**link, "noise": ["15 %"]}
    assert query(tab) == link


def test_what_a_link_cannot_mean_is_named_and_left_out(visit: Visit):
    tab = visit("/training?problem=moon&depth=99&lr=abc&colour=red&w1=6&run=nonsense")
    warning = tab.page.get_by_test_id("stAlert").inner_text()
    for bad in ("problem = moon", "depth = 99", "lr = abc", "colour"):
        assert bad in warning
    assert "w1" not in warning
    tab.page.get_by_text("no name of a run").wait_for()
    assert TrainSpec.from_json(tab.ask("m.header.spec")) == TrainSpec(hidden=(6, 2))
    until(lambda: query(tab) == {"w1": ["6"]}, lambda: tab.page.url, tab.page)
    tab.page.get_by_role("button", name="Dismiss").click()
    tab.page.get_by_test_id("stAlert").wait_for(state="detached")


def test_a_moved_slider_is_in_the_address_and_a_default_is_not(visit: Visit):
    tab = visit()
    slider(tab, "lr", "ArrowRight")
    until(lambda: query(tab) == {"lr": ["0.1"]}, lambda: tab.page.url, tab.page)
    tab.until("m.header.spec.learning_rate === 0.1 && m.header.run !== arg", "recording")
    tab.drawn()
    slider(tab, "lr", "ArrowLeft")
    until(lambda: query(tab) == {}, lambda: tab.page.url, tab.page)
    tab.until("m.header.run.endsWith('/recording')")
    assert re.search(r"/training\??$", tab.page.url)  # nor a run: the shipped one is shown again


def test_one_mount_survives_whatever_is_pressed(visit: Visit):
    """The widget is not built anew by a rerun: what is marked here is still there at the end."""
    tab = visit("/training?seed=77&pace=10")
    tab.ask("(root.markedByTest = m.markedByTest = true)")
    slider(tab, "batch", "ArrowRight")
    tab.until("m.header.spec.batch_size === 11 && m.place")
    slider(tab, "depth", "ArrowRight")
    tab.until("m.header.spec.hidden.length === 3 && m.place?.columns.length === 5")
    slider(tab, "w3", "ArrowRight")
    tab.until("m.header.spec.hidden[2] === 3")
    tab.drawn()
    for name, then in (
        ("Train", "m.trace.frames.length > 3 && !m.trace.paused"),
        ("Pause", "m.trace.paused"),
        ("Step", "m.trace.recorded.length > 2"),
        ("Stop", "m.trace.ended"),
        ("Reset", "!m.trace.ended && m.view.step === 0"),
    ):
        tab.press(name)
        tab.until(then)
    assert tab.ask("[root.markedByTest, m.markedByTest]") == [True, True]
    assert tab.widget.count() == 1
