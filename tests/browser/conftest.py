"""A browser for each module, a server for all of them, and what holds on every page."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Literal

import pytest
from playwright.sync_api import Browser, Page, sync_playwright

from tests.browser import chromium
from tests.browser.page import DESKTOP, Asking, Pair, Training
from tests.browser.server import Server, serve

# The largest update that a page lets a visitor try: small enough not to be waited for.
LIMITS = {"BOTHWAYS_MAX_STEP_FLOPS": "3e9"}


@pytest.fixture(scope="module")  # not longer: its event loop would run in other modules' tests
def browser() -> Iterator[Browser]:
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(
            executable_path=chromium.find(), args=list(chromium.ARGS)
        )
        yield browser
        browser.close()


@pytest.fixture(scope="session")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where the server keeps its runs."""
    return tmp_path_factory.mktemp("browser") / "runs"


@pytest.fixture(scope="session")
def server(runs: Path) -> Iterator[Server]:
    with serve("app.py", runs, variables=LIMITS) as server:
        yield server


class Tabs:
    """The tabs of a module's tests. A closed one is used again: the code of the page is compiled
    in it, so that the next visit is on the screen in half the time.

    Each is in a context of its own: tabs of one window would draw at full speed only in front.
    """

    def __init__(self, browser: Browser) -> None:
        self._browser = browser
        self._free: list[Page] = []
        self.shared: dict[str, Training] = {}  # those of `look`, by what opened them

    def new(
        self,
        url: str,
        kind: type[Training] = Training,
        allowed: tuple[str, ...] = (),
        viewport: dict[str, int] = DESKTOP,
        color_scheme: Literal["light", "dark"] = "light",
        reduced_motion: Literal["reduce", "no-preference"] = "no-preference",
    ) -> Training:
        page = self._free.pop() if self._free else self._browser.new_context().new_page()
        page.set_viewport_size(viewport)  # type: ignore[arg-type]
        page.emulate_media(color_scheme=color_scheme, reduced_motion=reduced_motion)
        page.mouse.move(0, 0)
        return kind(page, url, allowed)

    def close(self, tab: Training, *, for_good: bool) -> None:
        """Leave nothing to the next visitor but compiled code."""
        if for_good:
            tab.page.close()
        if not tab.page.is_closed():
            tab.page.context.clear_cookies()
            if tab.page.url.startswith("http"):
                tab.page.evaluate("(localStorage.clear(), sessionStorage.clear())")
            tab.leave()
            tab.traffic.close()
            self._free.append(tab.page)


@pytest.fixture(scope="module")
def tabs(browser: Browser) -> Tabs:
    return Tabs(browser)


def assert_quiet(tabs: list[Training]) -> None:
    """No tab has complained or called out. What it said is said once."""
    complaints = [text for tab in tabs for text in tab.traffic.complaints]
    foreign = [url for tab in tabs for url in tab.traffic.foreign]
    for tab in tabs:
        tab.traffic.complaints.clear()
        tab.traffic.requests.clear()
    assert complaints == []
    assert foreign == []


Visit = Callable[..., Any]


def _kind(link: str) -> type[Training]:
    """Which page a link leads to."""
    path = link.partition("?")[0].strip("/")
    if path == "inference":
        return Asking
    return Training if path or "?" in link else Pair


@pytest.fixture
def visit(request: pytest.FixtureRequest, tabs: Tabs, server: Server) -> Iterator[Visit]:
    """Opens a link as a new visitor; at the end of the test no tab has complained or called out.

    `at`: another server than the common one. `allowed`: patterns of complaints that the test
    provokes. `drawn`: whether the page will have a picture to wait for. The rest is the browser's:
    viewport, color_scheme, reduced_motion.
    """
    opened: list[Training] = []
    n_failed = request.session.testsfailed

    def visit(
        link: str = "/training", *, at: str = server.url, drawn: bool = True, **options: Any
    ) -> Training:
        opened.append(tabs.new(at, _kind(link), **options))
        return opened[-1].open(link) if drawn else opened[-1].go(link)

    yield visit
    for tab in opened:
        tabs.close(tab, for_good=request.session.testsfailed > n_failed)
    assert_quiet(opened)


@pytest.fixture
def look(request: pytest.FixtureRequest, tabs: Tabs, server: Server) -> Iterator[Visit]:
    """Like `visit`, but opens each link once a module: for tests that change no setting and no run.

    Every test finds the tab like newly opened, held at the first moment of its step.
    """
    used: dict[str, Training] = {}
    n_failed = request.session.testsfailed

    def look(link: str = "/training", **options: Any) -> Training:
        key = f"{link} {options}"
        used[key] = tabs.shared.pop(key, None) or tabs.new(server.url, _kind(link), **options).open(
            link
        )
        used[key].until("m.recorded")
        return used[key].settled().afresh()

    yield look
    for key, tab in used.items():
        if request.session.testsfailed > n_failed:
            tabs.close(tab, for_good=True)
        else:
            tab.hold()
            tabs.shared[key] = tab
    assert_quiet([*used.values()])
