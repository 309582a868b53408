"""Pictures of the pages: `python -m tests.browser.shots`, or `make shots`.

The README's go to docs/images; what is only to be looked at goes to shots/, which git ignores.
"""

import tempfile
from pathlib import Path

from playwright.sync_api import Browser, sync_playwright

from tests.browser import chromium
from tests.browser.page import DESKTOP, PHONE, Asking, Pair, Training
from tests.browser.server import ROOT, serve

IMAGES = ROOT / "docs" / "images"
SHOTS = ROOT / "shots"
LIVELY = ("backward", "layers.1.linear")  # gradients on their way to the first hidden layer
SERIES = (0.0, 0.1, 0.3, 0.42, 0.5, 0.56, 0.62, 0.7, 0.85, 1.0)


PAGES: dict[str, tuple[type[Training], str]] = {
    "both-ways": (Pair, "/"),
    "training": (Training, "/training"),
    "inference": (Asking, "/inference"),
}
CHARTS = ("memory", "latency", "runs")  # pages without a clock
MOMENT = 0.36  # of the home page's clock, and of an answer: in the middle of it


def opened(
    browser: Browser, url: str, size: dict[str, int], scheme: str, name: str = "training"
) -> Training:
    kind, link = PAGES.get(name, (Training, f"/{name}"))
    context = browser.new_context(
        viewport=size,  # type: ignore[arg-type]
        color_scheme=scheme,  # type: ignore[arg-type]
        reduced_motion="reduce",  # nothing plays by itself
    )
    tab = kind(context.new_page(), url)
    if name in CHARTS:
        tab.go(link).page.locator("[data-testid=stApp] h1").wait_for()
        tab.page.wait_for_timeout(2000)  # charts come one after another
    else:
        tab.open(link)
    return tab.settled()


def save(tab: Training, path: Path, *, full: bool = False) -> None:
    if full:  # the page scrolls inside Streamlit's main element: give that all of its height
        size = tab.page.viewport_size
        assert size is not None
        height = tab.page.get_by_test_id("stMain").evaluate("(main) => main.scrollHeight")
        tab.page.set_viewport_size({**size, "height": height})
        tab.settled()
        if tab.widget.count():
            tab.ask("m.paint()")
    path.parent.mkdir(parents=True, exist_ok=True)
    tab.page.screenshot(path=path)
    print(f"{path.relative_to(ROOT)}  {path.stat().st_size / 1000:.0f} kB")


def main() -> None:
    with (
        tempfile.TemporaryDirectory() as folder,
        serve("app.py", Path(folder) / "runs") as server,
        sync_playwright() as playwright,
    ):
        browser = playwright.chromium.launch(
            executable_path=chromium.find(), args=list(chromium.ARGS)
        )
        for scheme in ("light", "dark"):
            for size in (DESKTOP, PHONE):
                for name in (*PAGES, *CHARTS):
                    tab = opened(browser, server.url, size, scheme, name)
                    if name == "training":
                        tab.during(*LIVELY)
                    elif name in PAGES:
                        tab.seek(MOMENT)
                    if size is DESKTOP and name != "runs":
                        save(tab, IMAGES / f"{name}-{scheme}.png")
                    save(tab, SHOTS / f"{name}-{size['width']}-{scheme}.png", full=True)
                    tab.page.context.close()
        tab = opened(browser, server.url, DESKTOP, "light")
        for share in SERIES:
            tab.seek(share)
            path = SHOTS / f"step-{100 * share:03.0f}.png"
            tab.player.screenshot(path=path)
            print(path.relative_to(ROOT))
        browser.close()


if __name__ == "__main__":
    main()
