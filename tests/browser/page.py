"""A page in a browser, as a visitor sees it and as the training widget explains it.

The widget's root carries its mount as `.bothways`. JavaScript given to `ask` and `until` is one
expression in which `m` is that mount, `root` its element and `arg` what was passed along; `scene`,
`step` and `ribbon` are the widget's own modules.
"""

import re
import time
from collections.abc import Callable
from typing import Any

from playwright.sync_api import (
    ConsoleMessage,
    Error,
    Locator,
    Page,
    Request,
    TimeoutError,
    WebSocket,
)

WITHIN_S = 60  # how long a busy machine may take; nothing here is measured by it

DESKTOP = {"width": 1440, "height": 960}
PHONE = {"width": 390, "height": 844}

# Streamlit's front end looks for its server under the path of a deep link before it looks at /.
# Two presses at once, one in a fragment and one outside: it reruns the page for both, and says so.
HARMLESS = (
    r"404 .*/[a-z]+/_stcore/(health|host-config)$"
    "|Unexpected state: Multiple different fragmentIds"
)

# What the first button is called when a press on it trains: not while it pauses, waits or opens.
TRAINS = re.compile("Run it here|Train")

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
        self._page = page
        self._listeners: dict[Any, Callable[[Any], None]] = {
            "console": self._said,
            "pageerror": self._threw,
            "request": self._asked,
            "websocket": self._opened,
        }
        for event, listener in self._listeners.items():
            page.on(event, listener)

    def close(self) -> None:
        """Listen no more: from here on the page is somebody else's."""
        for event, listener in self._listeners.items():
            self._page.remove_listener(event, listener)

    def _threw(self, error: Error) -> None:
        self._complain(f"uncaught {error}")

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
        return self.go(link).drawn()

    def go(self, link: str) -> "Training":
        """Follow a link to a page that may have nothing to draw."""
        self.page.goto(self._url + link)
        return self

    def leave(self) -> None:
        """End the visit; the server hears of it at once."""
        self.page.goto("about:blank")

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

    def afresh(self) -> "Training":
        """Like newly opened, but held at the first moment of its step: whatever was played, opened,
        pinned, focused or pointed at before."""
        self.page.mouse.move(0, 0)
        self.hold()
        self.ask("""(() => {
          root.getRootNode().activeElement?.blur();
          document.activeElement?.blur();
          document.querySelector("[data-testid=stMain]").scrollTop = 0;
          m.el.help.hidden = true;
          m.lossHover = null;
          m.stage.forget();
          m.el.steps.value = m.header.show_step ?? m.trace.recorded.at(-1).step;
          m.el.steps.dispatchEvent(new Event("change"));
        })()""")
        self.seek(0)
        return self

    # -- asking ---------------------------------------------------------------------------------

    def ask(self, js: str, arg: Any = None) -> Any:
        try:
            return self.widget.evaluate(_ASK % js, arg, timeout=1000 * WITHIN_S)
        except TimeoutError as why:
            shown = self.page.locator("body").inner_text()[:2000]
            raise AssertionError(f"no widget on the page, which says:\n{shown}") from why

    def until(self, js: str, arg: Any = None, within_s: float = WITHIN_S) -> Any:
        """Wait until an expression holds; returns it. Raises: AssertionError with what is seen."""
        return until(
            lambda: self.ask(js, arg), lambda: f"{js} of {self.seen()}", self.page, within_s
        )

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

    def train(self) -> "Training":
        """Press the first button as soon as it trains, and wait until frames come in."""
        self.page.locator(".st-key-go button:enabled", has_text=TRAINS).click()
        self.until("m.source && !m.trace.paused && m.trace.frames.length > 5")
        self.button("Pause").wait_for()
        return self

    def pause(self) -> "Training":
        """Pause the run, and hold the step that it recorded."""
        self.press("Pause")
        self.until("m.trace.paused && m.view.mode === 'step'")
        self.button("Train").wait_for()
        self.hold()
        return self

    def stop(self) -> None:
        """End the run before its time."""
        self.press("Stop")
        self.until("m.trace.ended?.status === 'stopped'")
        self.button("Train again").wait_for()

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
    true: Callable[[], Any],
    why: Callable[[], object] = lambda: "",
    page: Page | None = None,
    within_s: float = WITHIN_S,
) -> Any:
    """Wait until something holds; returns it. `page`: whose events are to go on meanwhile."""
    deadline = time.monotonic() + within_s
    while True:
        if found := true():
            return found
        if time.monotonic() > deadline:
            raise AssertionError(f"not within {within_s} s: {why()}")
        if page is not None:
            page.wait_for_timeout(40)
        else:
            time.sleep(0.04)


class Asking(Training):
    """The inference page in one tab."""

    def open(self, link: str = "/inference") -> "Asking":
        self.go(link).drawn()
        return self

    def drawn(self) -> "Asking":
        self.until("m.lane?.trips.length && m.place")
        return self

    def answered(self) -> "Asking":
        """A run of our own has come to its end."""
        self.until("m.header.run && !m.header.run.endsWith('/recording') && m.trace.ended")
        self.until("m.lane.trips.length > 0")
        return self

    def ask_for(self, prompt: str) -> None:
        """Type a prompt and leave the field."""
        box = self.page.get_by_label("Prompt", exact=True)
        box.fill(prompt)
        box.press("Control+Enter")

    @property
    def text(self) -> str:
        """Tokens that have come so far, without the prompt's."""
        return self.ask("m.lane.trips.map((trip) => trip.token.text).join('')")


class Pair(Training):
    """The home page in one tab."""

    def open(self, link: str = "/") -> "Pair":
        self.go(link).drawn()
        return self

    def drawn(self) -> "Pair":
        self.until("m.lanes || m.place")
        return self
