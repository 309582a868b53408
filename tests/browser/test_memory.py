"""The Memory and Runs pages in a browser: chart, link, a visitor's model, a ladder measured."""

import json
import re

import pytest
from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import Page, expect

from core.ladder import shape_of_size
from tests.browser.conftest import Visit
from tests.browser.page import DESKTOP, PHONE, until

pytestmark = pytest.mark.browser

CONFIG = {
    "model_type": "llama",
    "hidden_size": 512,
    "num_hidden_layers": 4,
    "num_attention_heads": 8,
    "intermediate_size": 1024,
    "vocab_size": 1000,
    "max_position_embeddings": 2048,
}


def opened(visit: Visit, link: str = "/memory", **options: object) -> Page:
    page = visit(link, drawn=False, **options).page
    page.get_by_role("heading", name="Measured on this machine").wait_for()
    page.locator(".st-key-memory-chart svg").first.wait_for()
    return page


def chart(page: Page):
    return page.locator(".st-key-memory-chart .logchart > svg").first


def test_a_slider_moves_the_chart_without_drawing_it_anew(visit: Visit):
    page = opened(visit)
    chart(page).evaluate("(svg) => { svg.dataset.mine = 'yes'; }")
    before = page.locator("text=to take one training step").first.inner_text()
    slider = page.locator('input[type=range][aria-label="Batch, sequences at once"]')
    slider.focus()
    for _ in range(4):
        page.keyboard.press("ArrowRight")
    until(lambda: "batch=16" in page.url, lambda: page.url, page)
    expect(page.locator("text=to take one training step").first).not_to_have_text(before)
    assert chart(page).get_attribute("data-mine") == "yes"


def test_a_model_is_chosen_by_keyboard(visit: Visit):
    page = opened(visit)
    chart(page).focus()
    page.keyboard.press("ArrowRight")
    page.keyboard.press("ArrowRight")
    page.keyboard.press("Enter")
    until(lambda: "model=" in page.url, lambda: page.url, page)


def test_the_numbers_of_the_chart_can_be_read(visit: Visit):
    page = opened(visit)
    page.locator(".st-key-memory-chart summary").click()
    table = page.locator(".st-key-memory-chart table")
    expect(table).to_contain_text("Llama-3.1-405B")
    expect(table).to_contain_text("DeepSeek-V3")


def test_a_pasted_config_is_looked_at_and_its_link_works_for_others(visit: Visit):
    page = opened(visit)
    page.get_by_role("button", name="Your own model").click()
    field = page.get_by_label("config.json")
    field.fill("{")
    field.press("Control+Enter")
    expect(page.get_by_text("not JSON")).to_be_visible()
    expect(field).to_have_value("{")
    field.fill(json.dumps(CONFIG))
    field.press("Control+Enter")
    page.get_by_role("button", name="Look at it").click()
    until(lambda: "model=own-" in page.url, lambda: page.url, page)
    link = page.url.partition("/memory")[2]
    other = opened(visit, f"/memory{link}")
    expect(other.get_by_role("combobox", name="Model").first).to_have_value(re.compile("your own"))


def test_a_number_opens_its_working(visit: Visit):
    page = opened(visit)
    page.get_by_role("button", name="How this number is made").first.click()
    page.get_by_test_id("stPopoverBody").locator(".katex").first.wait_for()


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("screen", [DESKTOP, PHONE], ids=["desktop", "phone"])
def test_it_reads_well_on_any_screen(visit: Visit, screen: dict[str, int], scheme: str):
    page = opened(visit, viewport=screen, color_scheme=scheme)
    assert page.evaluate("document.documentElement.scrollWidth") <= screen["width"]
    height = page.get_by_test_id("stMain").evaluate("(e) => e.scrollHeight")
    page.set_viewport_size({**screen, "height": height})  # type: ignore[arg-type]
    page.wait_for_timeout(500)
    found = Axe().run(page).response["violations"]
    page.set_viewport_size(screen)  # type: ignore[arg-type]
    assert [f"{f['id']}: {n['html'][:160]}" for f in found for n in f["nodes"]] == []


def test_a_ladder_is_stopped_and_keeps_what_is_done(visit: Visit):
    page = opened(visit)
    page.get_by_role("button", name="Measure the ladder").click()
    page.get_by_role("button", name="Stop measuring").wait_for()
    until(
        lambda: "0 of" not in page.get_by_test_id("stProgress").first.inner_text(),
        lambda: page.get_by_test_id("stProgress").first.inner_text(),
        page,
    )
    page.get_by_role("button", name="Stop measuring").click()
    page.get_by_role("button", name="Measure the ladder").wait_for()
    expect(page.get_by_text("predictions").first).to_be_visible()
    page.get_by_text(re.compile(r"^All [\d,]+ numbers$")).click()
    expect(page.get_by_role("table", name="Predicted and measured")).to_contain_text(
        f"{shape_of_size(100_000).n_params:,}"
    )


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_reports_stand_beside_predictions(visit: Visit, scheme: str):
    page = visit("/runs", drawn=False, color_scheme=scheme).page
    expect(page.get_by_text("None of the predictions was fitted")).to_be_visible()
    page.get_by_role("radio", name="ceiling").click()
    until(lambda: "class=ceiling" in page.url, lambda: page.url, page)
    expect(page.get_by_text("bounds hold")).to_be_visible()
    found = Axe().run(page).response["violations"]
    assert [f"{f['id']}: {n['html'][:160]}" for f in found for n in f["nodes"]] == []
