"""Both ways of starting the dashboard start it."""

from pathlib import Path

import pytest

from tests.browser.server import serve


@pytest.mark.parametrize("entry", ["app.py", "components/shell.py"])
def test_an_entry_serves_the_page_and_its_script_runs(entry: str, tmp_path: Path):
    """The page is the front end's; that our script runs without an error is asked apart."""
    ask = ("--server.scriptHealthCheckEnabled=true",)
    with serve(entry, tmp_path / "runs", options=ask) as server:
        assert server.get("/_stcore/health") == (200, "ok")
        status, page = server.get("/")
        assert status == 200
        assert '<div id="root">' in page
        script = server.get("/_stcore/script-health-check", timeout_s=90)
        assert script == (200, "ok"), server.log.read_text(errors="replace")[-4000:]
