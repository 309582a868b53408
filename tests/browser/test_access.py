"""Everyone can use the page: by keyboard, with a screen reader, on a phone, without motion."""

import re
from collections.abc import Iterator

import pytest
from axe_playwright_python.sync_playwright import Axe

from tests.browser.conftest import Visit
from tests.browser.page import DESKTOP, PHONE, Training

pytestmark = pytest.mark.browser

SMALLEST = {"width": 320, "height": 640}  # what WCAG 1.4.10 asks for


def faults(tab: Training) -> list[str]:
    """What axe finds on the page as it stands, all of it in view: it judges no other."""
    size = tab.page.viewport_size
    assert size is not None
    main = tab.page.get_by_test_id("stMain")
    tab.page.set_viewport_size({**size, "height": main.evaluate("(e) => e.scrollHeight")})
    tab.settled()
    found = Axe().run(tab.page).response["violations"]
    tab.page.set_viewport_size(size)
    return [
        f"{fault['id']} ({fault['impact']}): {fault['help']}: {node['html'][:200]}"
        for fault in found
        for node in fault["nodes"]
    ]


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_axe_finds_no_fault_in_the_page_and_what_opens_on_it(visit: Visit, scheme: str):
    """The shipped step; a number's working opened; a warning beside a run that has ended."""
    tab = visit(color_scheme=scheme)
    tab.seek(0.6)
    assert faults(tab) == []
    tab.page.get_by_role("button", name="How this number is made").first.click()
    tab.page.get_by_test_id("stPopoverBody").locator(".katex").wait_for()
    assert faults(tab) == []
    tab = visit("/training?seed=31&lr=abc", color_scheme=scheme)
    tab.button("Train").wait_for()
    tab.stop()
    assert faults(tab) == []


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_axe_finds_no_fault_on_a_phone(visit: Visit, scheme: str):
    tab = visit(viewport=PHONE, color_scheme=scheme)
    tab.seek(0.6)
    assert faults(tab) == []
    tab.page.get_by_test_id("stExpandSidebarButton").click()
    tab.page.locator(".st-key-lr input[type=range]").wait_for()
    assert faults(tab) == []


@pytest.mark.parametrize("link", ["/", "/inference"])
@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("screen", [DESKTOP, PHONE], ids=["desktop", "phone"])
def test_axe_finds_no_fault_where_a_model_answers(
    visit: Visit, link: str, scheme: str, screen: dict[str, int]
):
    tab = visit(link, color_scheme=scheme, viewport=screen)
    tab.seek(0.6)
    assert faults(tab) == []


def too_wide(tab: Training) -> list[object]:
    """What reaches beyond the screen: by how many pixels the page does, and which of its parts."""
    widths = tab.page.evaluate(
        """() => [document.scrollingElement, document.querySelector('[data-testid=stMain]')]
          .map((e) => e.scrollWidth - e.clientWidth)"""
    )
    parts = tab.ask(
        """[...root.querySelectorAll("*")].filter((e) => e.getClientRects().length
          && e.getBoundingClientRect().right > innerWidth + 0.5).map((e) => e.outerHTML)"""
    )
    return [width for width in widths if width] + parts


def shrink(tab: Training) -> None:
    """To the smallest screen, drawn anew for it."""
    tab.page.set_viewport_size(SMALLEST)  # type: ignore[arg-type]
    picture = "[...root.querySelectorAll('canvas')].find((c) => c.clientWidth > 60)"
    tab.until(f"root.clientWidth <= arg && ((c) => c.clientWidth === c.width)({picture})",
              SMALLEST["width"])  # fmt: skip
    tab.settled()


@pytest.mark.parametrize(
    "link", ["/training", "/training?depth=6&features=x&features=y&features=sin%20x&w4=8&seed=32"]
)
def test_nothing_is_wider_than_a_phone(visit: Visit, link: str):
    tab = visit(link, viewport=PHONE)
    tab.until("m.recorded")
    assert too_wide(tab) == []
    shrink(tab)
    assert too_wide(tab) == []


@pytest.mark.parametrize("link", ["/", "/inference"])
def test_nor_is_a_page_on_which_a_model_answers(visit: Visit, link: str):
    tab = visit(link, viewport=PHONE)
    assert too_wide(tab) == []
    shrink(tab)
    assert too_wide(tab) == []


def focused(tab: Training) -> str:
    """Name of what has the focus, looked for through shadow roots."""
    return tab.page.evaluate(
        """() => {
          let e = document.activeElement;
          while (e?.shadowRoot?.activeElement) e = e.shadowRoot.activeElement;
          const key = e.closest("[class*=st-key-]")?.className.match(/st-key-(\\S+)/)?.[1];
          const label = e.getAttribute("aria-label") ?? e.labels?.[0]?.textContent;
          return e.dataset.el ?? e.dataset.act ?? (e === document.body ? "the end" : key ?? label
            ?? e.textContent);
        }"""
    )


def way_of_tab(tab: Training) -> Iterator[str]:
    """What Tab leads to, from the top of the page to where it begins again."""
    tab.page.evaluate("document.activeElement.blur()")
    for _ in range(200):
        tab.page.keyboard.press("Tab")
        name = focused(tab)
        if name == "the end":
            return
        yield name
    raise AssertionError("Tab came to no end")


def test_tab_reaches_everything(visit: Visit):
    tab = visit()
    tab.seek(0.5)
    way = list(dict.fromkeys(way_of_tab(tab)))
    settings = ["problem", "noise", "features", "depth", "w1", "w2", "act", "lr", "opt", "batch",
                "prec", "seed", "epochs", "pace"]  # fmt: skip
    run = ["go", "step", "reset"]  # Stop is disabled: there is nothing to stop
    player = ["player", "start", "previous op", "play", "next op", "end", "steps", "speed", "loop",
              "help", "scrub", "loss", "weights"]  # fmt: skip
    numbers = [name for name in way if name.startswith("claim-")]
    expected = [*settings, *run, *player, *numbers]
    assert [name for name in way if name in expected] == expected
    assert len(numbers) == 4


def test_the_focus_can_be_seen(look: Visit):
    tab = look()
    tab.page.keyboard.press("Tab")  # from here on the browser shows where the focus is
    tab.player.focus()
    tab.page.keyboard.press("Tab")
    for name in ("start", "previous op"):
        shown = tab.ask(
            "((s) => [s.outlineStyle, s.outlineWidth])(getComputedStyle("
            "root.getRootNode().activeElement))"
        )
        assert focused(tab) == name and shown == ["solid", "2px"]
        tab.page.keyboard.press("Tab")


def test_every_picture_has_words(look: Visit):
    tab = look()
    tab.during("backward", "layers.1.linear")
    pictures = tab.ask(
        "[m.el.scene, m.el.ribbon, m.el.loss].map((c) => [c.getAttribute('role'), c.ariaLabel])"
    )
    assert [role for role, _ in pictures] == ["img"] * 3
    scene, ribbon, loss = (words for _, words in pictures)
    assert "circle" in scene and "backward" in scene and "held out" in scene
    assert re.search(r"Now [\d,]+ B; peak [\d,]+ B in \w+, [\w.]+\.$", ribbon)
    assert f"epoch {tab.ask('m.frame.epoch')} " in loss
    assert tab.ask("[m.el.counts.role, m.el.where.role ?? m.el.where.tagName]") == [
        "status",
        "OUTPUT",
    ]


def test_the_loss_is_read_by_keyboard(look: Visit):
    tab = look()
    tab.widget.locator("canvas[data-el=loss]").focus()
    tab.page.keyboard.press("End")
    tab.until("m.el.counts.textContent.startsWith('epoch 500 ')")
    tab.page.keyboard.press("Home")
    tab.until("m.el.counts.textContent.startsWith('epoch 0 ')")


def test_who_wants_no_motion_gets_a_still_that_steps(visit: Visit):
    """The step plays by itself for others, who came later and wait as long."""
    still = visit(reduced_motion="reduce")
    moving = visit()
    moving.until("m.clock.playing && m.clock.t > 0")
    assert still.ask("[m.clock.playing, m.clock.t]") == [False, 0]
    still.key("ArrowRight")
    assert still.ask("m.clock.t") > 0
