"""Asking a model, as a visitor does: type, watch, scrub, change a setting, share."""

import re
from urllib.parse import quote

import pytest
from playwright.sync_api import expect

from tests.browser.conftest import Visit
from tests.browser.page import until

# A model of our own, small enough to answer at once.
SUMS = "/inference?model=addition&prompt=" + quote("12+34=")


def test_a_first_visit_finds_a_recorded_answer(visit: Visit):
    tab = visit("/inference")
    assert tab.ask("m.header.run").endswith("/recording")
    assert tab.ask("m.trace.prompt.map((t) => t.text).join('')") == "The water cycle begins when"
    assert tab.text.startswith(" the sun heats the water")
    expect(tab.page.get_by_role("button", name="Run it here")).to_be_visible()
    assert "weights frozen" in tab.widget.locator(".frozen").inner_text()


def test_type_a_prompt_watch_it_go_on_and_scrub_back_to_the_prefill(visit: Visit):
    tab = visit("/inference")
    tab.ask_for("Rain falls on the hills and")
    until(lambda: "prompt=" in tab.page.url, lambda: tab.page.url, tab.page)
    tab.page.locator(".st-key-go button:enabled").click()
    tab.until("m.header.stream && m.lane && m.lane.trips.length > 2 && !m.trace.ended")
    seen = tab.ask("m.lane.trips.length")
    tab.until("m.lane.trips.length > arg", seen)  # tokens appear as they are computed
    tab.answered()
    assert tab.ask("m.lane.trips.length") == 32
    tab.hold()
    tab.page.get_by_role("button", name="prefill").first.click()
    tab.until("m.state.trip === 0 || m.state.n === 1")
    tab.key("ArrowRight", "ArrowRight")
    tab.until("m.state.n === 3")
    assert tab.ask("m.trace.texts?.weights_sha256_after ?? true")


def test_a_link_shows_the_same_answer_to_somebody_else(visit: Visit):
    tab = visit(SUMS)
    tab.page.locator(".st-key-go button:enabled").click()
    tab.answered()
    assert tab.text == "046"
    until(lambda: "run=" in tab.page.url, lambda: tab.page.url, tab.page)
    link = "/" + tab.page.url.split("/", 3)[3]
    other = visit(link)
    other.answered()
    assert other.text == "046"
    assert other.ask("m.header.run") == tab.ask("m.header.run")


@pytest.mark.parametrize("weights", ["bf16", "int4"])
def test_a_precision_is_a_setting_of_its_own(visit: Visit, weights: str):
    tab = visit("/inference", drawn=False)
    tab.page.get_by_role("radio", name=weights, exact=True).or_(
        tab.page.get_by_role("button", name=weights, exact=True)
    ).first.click()
    until(lambda: f"format={weights}" in tab.page.url, lambda: tab.page.url, tab.page)
    expect(tab.page.get_by_text("real kernel")).to_be_visible()


def test_one_token_at_a_time(visit: Visit):
    tab = visit(SUMS + "&draw=3&temperature=1", drawn=False)
    tab.press("Step")
    tab.until("m.trace.paused && m.lane?.trips.length === 1")
    tab.press("Step")
    tab.until("m.lane.trips.length === 2")
    tab.button("Continue").click()
    tab.until("m.trace.ended")


@pytest.mark.parametrize(
    ("prompt", "said"),
    [
        ("ab", "never seen 'a'"),
        ("12+34=0468", "more than a context of 8"),
    ],
)
def test_a_prompt_that_does_not_fit_is_refused_in_words(visit: Visit, prompt: str, said: str):
    tab = visit(f"/inference?model=addition&prompt={quote(prompt)}", drawn=False)
    tab.page.get_by_text(re.compile(said)).wait_for()


def test_keys_move_from_token_to_token(visit: Visit):
    tab = visit("/inference")
    tab.hold()
    tab.key("Home")
    tab.until("m.clock.t === 0")
    tab.key("End")
    tab.until("m.clock.t === m.clock.end")
    tab.key("ArrowLeft")
    tab.until("m.state.n === m.lane.trips.length - 1")


def test_scrubbing_asks_the_server_nothing(visit: Visit):
    tab = visit("/inference").settled()
    tab.traffic.requests.clear()
    sent = tab.traffic.n_frames_sent
    for share in (0.1, 0.5, 0.9, 0.3):
        tab.seek(share)
    assert tab.traffic.requests == []
    assert tab.traffic.n_frames_sent == sent
