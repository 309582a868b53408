"""Other ways to be served: without our own route, and after a restart."""

import os
import signal
from pathlib import Path

import pytest

from core.trace import Trace
from tests.browser.conftest import Visit
from tests.browser.page import TRAINS, Training, until
from tests.browser.server import free_port, serve

pytestmark = pytest.mark.browser


def test_where_there_is_no_stream_the_page_is_polled(visit: Visit, tmp_path: Path):
    """`components/shell.py` by itself: its host answers the stream's address with a page."""
    with serve("components/shell.py", tmp_path / "runs") as server:
        tab = visit(
            "/training?seed=5&epochs=5000",
            at=server.url,
            allowed=(r"^EventSource's response has a MIME type",),
        )
        tab.page.locator(".st-key-go button:enabled", has_text=TRAINS).click()
        tab.until("m.header.stream === null && m.trace.frames.length > 20")
        seen = tab.ask("m.trace.frames.length")
        tab.until("m.trace.frames.length > arg", seen)
        tab.press("Pause")
        tab.until("m.trace.paused && m.view.mode === 'step' && m.view.step > 0")
        tab.button("Train").wait_for()
        run = tmp_path / "runs" / tab.ask("m.header.run")
        assert tab.ask("m.view.step") == Trace.read(run).recorded_steps[-1]
        tab.stop()
        tab.leave()


def what(tab: Training) -> list[object]:
    """What a tab shows of a run."""
    return tab.ask(
        "[m.header.run, m.header.spec, m.header.origin, m.trace.recorded.map((r) => r.step),"
        " m.trace.frames.at(-1).epoch, m.trace.ended.status,"
        " [...m.trace.frameAt(Infinity).arrays.get('head.linear frame_weight').values]]"
    )


def test_a_server_ends_although_a_run_is_watched_and_the_next_one_shows_all_that_was(
    visit: Visit, tmp_path: Path
):
    """An address gives the same page after a restart, and the run that broke off trains again."""
    port = free_port()
    gone = (
        "WebSocket",
        "ERR_",
        "in reaching server endpoint",
        "server is not responding",
        "disconnected from server",
    )
    with serve("app.py", tmp_path / "runs", port=port) as server:
        tab = visit("/training?seed=6&epochs=5000&lr=0.1", at=server.url, allowed=gone).train()
        tab.stop()
        before, address = what(tab), tab.page.url.removeprefix(server.url)
        tab.train()
        os.kill(server.pid, signal.SIGTERM)
        until(lambda: is_gone(server.pid), lambda: server.log.read_text(), tab.page)
        broken, seen = tab.ask("[m.header.run, m.trace.frames.length]")
    with serve("app.py", tmp_path / "runs", port=port) as server:
        again = visit(address, at=server.url)
        assert what(again) == before
        assert again.button("Train again").is_enabled()
        again.leave()
        tab.reload()
        tab.until("m.trace.ended")
        assert tab.ask("m.header.run") == broken
        assert tab.ask("m.trace.frames.length") >= seen
        tab.train()
        assert tab.ask("m.header.run") != broken
        tab.stop()
        tab.leave()


def is_gone(pid: int) -> bool:
    """Whether a process has ended, be it that nobody has asked how yet."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z"
    except FileNotFoundError:
        return True
