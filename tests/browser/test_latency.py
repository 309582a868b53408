"""The Latency page in a browser: charts that move with the sliders, a link, a phone."""

import re
from pathlib import Path

import pytest
from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import Page, expect

from core.device_rates import calibrated
from tests.browser.conftest import Visit
from tests.browser.page import DESKTOP, PHONE, until

pytestmark = pytest.mark.browser

LAST = "How wrong this is, here"


def opened(visit: Visit, link: str = "/latency", **options: object) -> Page:
    page = visit(link, drawn=False, **options).page
    page.get_by_role("heading", name=LAST).wait_for()
    page.locator(".st-key-latency-speculation svg").first.wait_for()
    return page


def test_every_chart_is_drawn(visit: Visit):
    page = opened(visit)
    for key in ("seconds", "rates", "roofline", "frontier", "context", "speculation"):
        expect(page.locator(f".st-key-latency-{key} svg").first).to_be_visible()
    for work in ("train", "prefill", "decode"):
        expect(page.locator(f".st-key-ops-{work} svg").first).to_be_visible()


def test_a_slider_moves_the_numbers_and_the_link(visit: Visit):
    page = opened(visit)
    first = page.locator("text=each further token").first.inner_text()
    slider = page.locator('input[type=range][aria-label="Batch, sequences at once"]')
    slider.focus()
    page.keyboard.press("ArrowRight")
    until(lambda: "batch=2" in page.url, lambda: page.url, page)
    expect(page.locator("text=each further token of 2 sequences").first).to_be_visible()
    assert page.locator("text=each further token").first.inner_text() != first


def test_a_number_opens_its_working(visit: Visit):
    page = opened(visit)
    page.get_by_role("button", name="How this number is made").first.click()
    body = page.get_by_test_id("stPopoverBody")
    body.locator(".katex").first.wait_for()
    expect(body).to_contain_text("dense peak")
    expect(body).to_contain_text("Programs reach")


def test_ops_are_listed_when_they_are_asked_for(visit: Visit):
    page = opened(visit)
    page.get_by_text("Op by op", exact=True).click()
    table = page.get_by_test_id("stTable")
    table.first.wait_for()
    expect(table.first).to_contain_text("head")


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("screen", [DESKTOP, PHONE], ids=["desktop", "phone"])
def test_it_reads_well_on_any_screen(visit: Visit, screen: dict[str, int], scheme: str):
    page = opened(visit, viewport=screen, color_scheme=scheme)
    width = page.evaluate("document.documentElement.scrollWidth")
    assert width <= screen["width"]
    height = page.get_by_test_id("stMain").evaluate("(e) => e.scrollHeight")
    page.set_viewport_size({**screen, "height": height})  # type: ignore[arg-type]
    page.wait_for_timeout(500)
    found = Axe().run(page).response["violations"]
    page.set_viewport_size(screen)  # type: ignore[arg-type]
    assert [f"{f['id']}: {n['html'][:160]}" for f in found for n in f["nodes"]] == []


def test_this_machine_says_what_to_do_first(visit: Visit, runs: Path):
    page = opened(visit, "/latency?device=this")
    if calibrated(runs, "bf16", 1):  # the machine that the recordings were made on
        expect(page.get_by_text("on this machine").first).to_be_visible()
        expect(page.get_by_text("not measured yet")).to_have_count(0)
        return
    button = page.get_by_role("button", name=re.compile("Calibrate this machine"))
    expect(button).to_be_visible()
    expect(page.get_by_text("not measured yet").first).to_be_visible()
