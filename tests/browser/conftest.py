"""A browser for each module, a server for all of them, and what holds on every page."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Browser, BrowserContext, sync_playwright

from tests.browser import chromium
from tests.browser.page import DESKTOP, Training
from tests.browser.server import Server, serve


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
    with serve("app.py", runs) as server:
        yield server


Visit = Callable[..., Training]


@pytest.fixture
def visit(browser: Browser, server: Server) -> Iterator[Visit]:
    """Opens a link as a new visitor; at the end of the test no tab has complained or called out.

    `at`: another server than the common one. `allowed`: patterns of complaints that the test
    provokes. The rest is for the browser's context: viewport, color_scheme, reduced_motion.
    """
    contexts: list[BrowserContext] = []
    tabs: list[Training] = []

    def visit(
        link: str = "/training",
        *,
        at: str = server.url,
        allowed: tuple[str, ...] = (),
        viewport: dict[str, int] = DESKTOP,
        **options: Any,
    ) -> Training:
        contexts.append(browser.new_context(viewport=viewport, **options))
        tabs.append(Training(contexts[-1].new_page(), at, allowed))
        return tabs[-1].open(link)

    yield visit
    for context in contexts:
        context.close()
    assert [text for tab in tabs for text in tab.traffic.complaints] == []
    assert [url for tab in tabs for url in tab.traffic.foreign] == []
