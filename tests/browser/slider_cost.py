"""What a move of a slider costs the server: printed by `make bench`.

A real browser moves the slider of context back and forth on the pages that show all models; the
server's CPU time is read from the system before and after.
"""

import os
import statistics
import tempfile
from pathlib import Path

from playwright.sync_api import Page, sync_playwright

from tests.browser.chromium import ARGS, find
from tests.browser.server import serve

PAGES = ("memory", "latency")
MOVES, ROUNDS = 10, 5
TICK_S = 1 / os.sysconf("SC_CLK_TCK")


def cpu_s(pid: int) -> float:
    """CPU seconds of a process so far."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) * TICK_S


def moved(page: Page, n: int) -> None:
    slider = page.get_by_role("slider", name="Context").first
    slider.focus()
    for i in range(n):
        page.keyboard.press("ArrowRight" if i % 2 == 0 else "ArrowLeft")
        page.wait_for_timeout(250)
        page.wait_for_function("!document.querySelector('[data-testid=stStatusWidget]')")


def main() -> None:
    with (
        tempfile.TemporaryDirectory() as folder,
        serve("app.py", Path(folder) / "runs") as server,
        sync_playwright() as playwright,
    ):
        browser = playwright.chromium.launch(executable_path=find(), args=list(ARGS))
        for name in PAGES:
            page = browser.new_page(viewport={"width": 1440, "height": 900})
            page.goto(f"{server.url}/{name}")
            page.wait_for_selector(".logchart > svg")
            moved(page, 4)  # first visits make what later ones find
            costs = []
            for _ in range(ROUNDS):
                before = cpu_s(server.pid)
                moved(page, MOVES)
                costs.append(1000 * (cpu_s(server.pid) - before) / MOVES)
            print(
                f"{name}: a slider's move costs {statistics.median(costs):.1f} CPU-ms "
                f"({min(costs):.1f} to {max(costs):.1f}, {ROUNDS} rounds of {MOVES} moves)"
            )
            page.close()
        browser.close()


if __name__ == "__main__":
    main()
