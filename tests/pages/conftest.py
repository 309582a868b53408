"""Pages run as scripts, with a real worker behind them."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from components import runs
from core import latency
from tests.pages.page import Page

Visit = Callable[..., Page]


@pytest.fixture(autouse=True)
def uncalibrated(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Whatever machine the tests run on: the calibration that is shipped is of another."""
    monkeypatch.setattr(latency, "SHIPPED", tmp_path)


@pytest.fixture(scope="module")
def kept(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """Where runs are kept; the worker is the module's own and ends with it."""
    folder = tmp_path_factory.mktemp("pages") / "runs"
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("BOTHWAYS_RUNS", str(folder))
        runs.host.cache_clear()
        yield folder
        runs.host().close()
        runs.host.cache_clear()


@pytest.fixture
def visit(kept: Path) -> Iterator[Visit]:
    """Open the dashboard at a link: `visit(seed="7", opt="AdamW")`; `page=""` for the address
    without a path.
    """
    pages: list[Page] = []

    def at(page: str = "training", **link: Any) -> Page:
        pages.append(Page(kept, link, page))
        return pages[-1]

    yield at
    for page in pages:
        page.leave()
