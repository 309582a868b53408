"""A page in a browser, as a visitor sees it and as the training widget explains it.

The widget's root carries its mount as `.bothways`. JavaScript given to `ask` and `until` is one
expression in which `m` is that mount, `root` its element and `arg` what was passed along; `scene`,
`step` and `ribbon` are the widget's own modules.
"""

import re
import time
from collections.abc import Callable
from typing import Any

from playwright.sync_api import ConsoleMessage, Locator, Page, Request, TimeoutError, WebSocket

WITHIN_S = 60  # how long a busy machine may take; nothing here is measured by it

DESKTOP = {"width": 1440, "height": 960}
PHONE = {"width": 390, "height": 844}

# Streamlit's front end looks for its server under the path of a deep link before it looks at /.
HARMLESS = r"404 .*/training/_stcore/(health|host-config)$"

_ASK = """async (root, arg) => {
  const load = (name) => import(new URL(`./app/static/${name}.js`, document.baseURI));
  const [scene, step, ribbon] = await Promise.all([load("scene"), load("step"), load("ribbon")]);
  const m = root.bothways;
  return (%s);
}"""


class Traffic:
    """What a page says on its console, and what it asks of the network."""

    def __init__(self, page: Page, allowed: tuple[str, ...]) -> None:
        self._allowed = re.compile("|".join((HARMLESS, *allowed)))
        self.complaints: list[str] = []
        self.requests: list[str] = []
        self.n_frames_sent = 0  # over web sockets
        page.on("console", self._said)
        page.on("pageerror", lambda error: self._complain(f"uncaught {error}"))
        page.on("request", self._asked)
        page.on("websocket", self._opened)

    def _said(self, message: ConsoleMessage) -> None:
        if message.type in ("error", "warning"):
            text = message.text.replace("Failed to load resource: the server responded with a ", "")
            status = re.match(r"status of (\d+)", text)
            self._complain(f"{status[1] if status else text} {message.location['url']}")

    def _complain(self, text: str) -> None:
        if not self._allowed.search(text):
            self.complaints.append(text)

    def _asked(self, request: Request) -> None:
        if not request.url.startswith(("data:", "blob:")):
            self.requests.append(request.url)

    def _opened(self, socket: WebSocket) -> None:
        self.requests.append(socket.url)
        socket.on("framesent", self._sent)

    def _sent(self, _: object) -> None:
        self.n_frames_sent += 1

    @property
    def foreign(self) -> list[str]:
        """Requests that left this machine."""
        return [url for url in self.requests if not re.match(r"(http|ws)://127\.0\.0\.1[:/]", url)]


class Training:
    """The training page in one tab."""

    def __init__(self, page: Page, url: str, allowed: tuple[str, ...] = ()) -> None:
        self.page, self._url = page, url
        self.traffic = Traffic(page, allowed)
        self.widget = page.locator(".bw")
        self.player = page.locator(".bw .player")

    # -- going there ----------------------------------------------------------------------------

    def open(self, link: str = "/training") -> "Training":
        """Follow a link within the dashboard, until the network is drawn."""
        self.page.goto(self._url + link)
        return self.drawn()

    def reload(self) -> "Training":
        self.page.reload()
        return self.drawn()

    def drawn(self) -> "Training":
        self.until("m.place && m.state !== undefined && !root.classList.contains('empty')")
        return self

    def settled(self) -> "Training":
        """The script has run and what it changed has faded in."""
        self.page.locator("[data-test-script-state=notRunning]").wait_for()
        self.page.wait_for_function(
            "document.getAnimations().every((a) => a.playState === 'finished')"
        )
        return self

    # -- asking ---------------------------------------------------------------------------------

    def ask(self, js: str, arg: Any = None) -> Any:
        try:
            return self.widget.evaluate(_ASK % js, arg, timeout=1000 * WITHIN_S)
        except TimeoutError as why:
            shown = self.page.locator("body").inner_text()[:2000]
            raise AssertionError(f"no widget on the page, which says:\n{shown}") from why

    def until(self, js: str, arg: Any = None) -> Any:
        """Wait until an expression holds; returns it. Raises: AssertionError with what is seen."""
        return until(lambda: self.ask(js, arg), lambda: f"{js} of {self.seen()}", page=self.page)

    def seen(self) -> dict[str, Any]:
        """What the tab shows, in words, for messages."""
        shown = self.ask(
            "{run: m.header?.run, stream: m.header?.stream, view: m.view, t: m.clock.t,"
            " counts: m.el.counts.textContent, where: m.el.where.textContent,"
            " frames: m.trace?.frames.length, recorded: m.trace?.recorded.map((r) => r.step),"
            " paused: m.trace?.paused, ended: m.trace?.ended?.status}"
        )
        buttons = self.page.locator(".st-key-run-bar button").all_inner_texts()
        said = self.traffic.complaints
        return {**shown, "buttons": buttons, "url": self.page.url, "complaints": said}

    # -- doing ----------------------------------------------------------------------------------

    def button(self, name: str) -> Locator:
        """One of the run's buttons."""
        return self.page.locator(".st-key-run-bar").get_by_role("button", name=name, exact=True)

    def press(self, name: str) -> None:
        self.button(name).click()

    def hold(self) -> None:
        """Nothing moves by itself any more."""
        self.ask("(clearTimeout(m.hold), m.clock.pause())")

    def seek(self, share: float) -> None:
        """Stop at a share of the step, and draw it."""
        self.hold()
        self.ask("(m.clock.seek(arg * m.clock.end), m.paint())", share)

    def during(self, phase: str, op: str) -> None:
        """Stop in the middle of an op, and draw it."""
        share = self.ask(
            "(({start_s, end_s}) => (start_s + end_s) / 2 / m.clock.end)"
            "(m.recorded.spans.find((s) => s.phase === arg[0] && s.op === arg[1]))",
            [phase, op],
        )
        self.seek(share)

    def key(self, *keys: str) -> None:
        """Keys for the player, which has the focus from then on."""
        self.player.focus()
        for key in keys:
            self.page.keyboard.press(key)


def until(
    true: Callable[[], Any], why: Callable[[], object] = lambda: "", page: Page | None = None
) -> Any:
    """Wait until something holds; returns it. `page`: whose events are to go on meanwhile."""
    deadline = time.monotonic() + WITHIN_S
    while True:
        if found := true():
            return found
        if time.monotonic() > deadline:
            raise AssertionError(f"not within {WITHIN_S} s: {why()}")
        if page is not None:
            page.wait_for_timeout(40)
        else:
            time.sleep(0.04)
