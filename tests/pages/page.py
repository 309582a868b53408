"""A visitor's page, run as a script without a browser, and the folder of the run it shows."""

import json
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from streamlit.testing.v1 import AppTest

from components import runs
from core.specs import RunSpec
from core.trace import EVENTS, Recorder, Trace

SHELL = Path(__file__).resolve().parents[2] / "components" / "shell.py"
DEADLINE_S = 90  # for a machine that is busy with something else


class Page:
    """The dashboard, opened at a link: the Training page, or another of `pages/`; the address
    without a path where that is empty.
    """

    def __init__(self, kept: Path, link: dict[str, Any], page: str = "training") -> None:
        self.kept = kept
        self.seen: dict[str, RunSpec] = {}  # attempts that were looked at
        self.at = AppTest.from_file(str(SHELL), default_timeout=DEADLINE_S)
        if page:
            self.at.switch_page(f"../pages/{page}.py")
        self.at.query_params |= link
        self.again()

    def again(self) -> "Page":
        """Run the page once more, as Streamlit does after every change."""
        self.at.run()
        assert [e.value for e in self.at.exception] == []
        header = self.header if self._runs_shown else {}
        if "run" in header:
            self.seen[header["run"].split("/")[1]] = RunSpec.from_json(header["spec"])
        return self

    def leave(self) -> None:
        """Stop what this visit started: few runs have a place at once, and a paused one keeps it
        for a while."""
        for attempt, spec in self.seen.items():
            if runs.host().is_live(attempt):
                runs.host().command(spec, attempt, "stop")

    def press(self, label: str) -> "Page":
        (button,) = (b for b in self.at.button if b.label == label)
        assert not button.disabled, f"{label} cannot be pressed"
        button.click()
        return self.again()

    def set(self, key: str, value: Any) -> "Page":
        self.at.get_by_key(key).set_value(value)
        return self.again()

    @property
    def labels(self) -> list[str]:
        """Of the buttons that can be pressed."""
        return [b.label for b in self.at.button if not b.disabled]

    @property
    def said(self) -> str:
        """Every text on the page but the settings' own."""
        kinds = ("title", "markdown", "caption", "error", "warning", "toast")
        return "\n".join(e.value for kind in kinds for e in getattr(self.at, kind))

    @property
    def attempt(self) -> str:
        """The name of the run that is looked at."""
        return self.header["run"].split("/")[1]

    def folder(self, spec: RunSpec) -> Path:
        return self.kept / spec.spec_id / self.attempt

    def run(self, spec: RunSpec) -> Trace:
        """The run that is looked at, so far."""
        folder = self.folder(spec)
        return Trace.read(folder) if (folder / EVENTS).exists() else Trace()

    def until(self, spec: RunSpec, true: Callable[[Trace], Any]) -> "Page":
        """Watch the run until something is true of it, then look at the page again."""
        deadline = time.monotonic() + DEADLINE_S
        while not true(self.run(spec)):
            assert time.monotonic() < deadline, f"not in time: {self.run(spec).events[-3:]}"
            runs.host().touch(self.attempt)
            time.sleep(0.03)
        return self.again()

    @property
    def header(self) -> dict[str, Any]:
        """What the training widget was told about the run."""
        return json.loads(self._sent[4 : self._header_end])

    @property
    def shown(self) -> Trace:
        """The run that the training widget was given; nothing where it reads a stream."""
        cut = self._header_end + self.header["events_bytes"]
        return Trace.parse(self._sent[self._header_end : cut], self._sent[cut:])

    @property
    def _runs_shown(self) -> list[bytes]:
        """What widgets were told that play a run; charts are told in JSON."""
        widgets = self.at.get("bidi_component")
        return [w.proto.bytes for w in widgets if w.proto.WhichOneof("data") == "bytes"]

    @property
    def charts(self) -> list[dict[str, Any]]:
        """What charts and stacks were told."""
        widgets = self.at.get("bidi_component")
        return [json.loads(w.proto.json) for w in widgets if w.proto.WhichOneof("data") == "json"]

    @property
    def _sent(self) -> bytes:
        (sent,) = self._runs_shown
        return sent

    @property
    def _header_end(self) -> int:
        return 4 + int.from_bytes(self._sent[:4], "little")


def keep(kept: Path, spec: RunSpec, attempt: str, events: list[Any]) -> str:
    """Put a run into the folder of runs; returns its name."""
    recorder = Recorder(kept / spec.spec_id / attempt)
    recorder.write(events)
    recorder.close()
    return attempt
