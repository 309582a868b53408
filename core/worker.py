"""The process that computes: `python -m core.worker`.

Imports torch once, then forks a child for each run. Reads one JSON command a line on stdin,
writes one JSON line on stdout when a run has given its child back; everything else a run has to
say stands in its folder. Ends when stdin does.

Commands: {"do": "submit" | "pause" | "resume" | "step" | "stop" | "pace", "attempt", ...}. The
worker itself asks a paused run to "park" when another waits for its place.
"""

import contextlib
import ctypes
import json
import math
import os
import select
import signal
import sys
import time
import traceback
from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from core.engine.step import preload
from core.engine.train import Diverged, Run, ended, run_of, started
from core.events import Event, Scalar
from core.specs import RunSpec
from core.trace import CHECKPOINT, Recorder, close

MAX_RUNNING = 4  # children at once; further runs wait in line
MAX_RUN_S = 900
_PR_SET_PDEATHSIG = 1


# -- the child: one run -----------------------------------------------------------------------


class _Control:
    """Commands from the parent, a JSON object a line."""

    def __init__(self, fd: int) -> None:
        self._fd, self._rest = fd, b""

    def poll(self, timeout_s: float) -> list[dict[str, Any]]:
        """Commands that came within the time; none if none did."""
        if not select.select([self._fd], [], [], max(0.0, timeout_s))[0]:
            return []
        chunk = os.read(self._fd, 65536)
        if not chunk:
            why = "the worker process ended; run it again"
            return [{"do": "stop", "status": "died", "why": why}]
        *lines, self._rest = (self._rest + chunk).split(b"\n")
        return [json.loads(line) for line in lines]


class _Run:
    """Drives a `Training` at its pace, obeys commands, records what it tells."""

    def __init__(self, command: dict[str, Any], control: _Control, recorder: Recorder) -> None:
        self._control, self._recorder = control, recorder
        self._folder = Path(command["folder"])
        spec = RunSpec.from_json(command["spec"])
        if not (self._folder / CHECKPOINT).exists():  # it begins; loading its model takes a while
            recorder.write([started(spec, command["attempt"])])
        self._training = run_of(spec)
        self._pace = float(command.get("epochs_per_s") or math.inf)
        self._paused = bool(command.get("paused"))
        self._park_after_s = float(command["park_after_s"])
        self._stopped: tuple[str, str] | None = None  # status and message
        self._wanted = False  # others wait for this place: give it back if paused
        self._framed: object = None

    @property
    def training(self) -> Run:
        return self._training

    def _write(self, events: Iterable[Event]) -> None:
        self._recorder.write(events)

    def _state(self) -> Scalar:
        return Scalar(step=self._training.step, name="paused", value=float(self._paused))

    def _frame(self) -> None:
        if self._framed != self._training.moment:
            self._framed = self._training.moment
            self._write(self._training.frame())

    def open(self, command: dict[str, Any]) -> None:
        checkpoint = self._folder / CHECKPOINT
        if checkpoint.exists():
            with np.load(checkpoint, allow_pickle=False) as saved:
                self._training.restore(dict(saved))
            checkpoint.unlink()
            self._write([self._state()])
            self._obey(command | {"do": command.get("then", "resume")})
            return
        self._write(self._training.opening())
        self._write([Scalar(step=0, name="paused", value=0.0)])  # it has a place, and opens
        self._record()  # every run begins with a step to look into
        self._write([self._state()])

    def _record(self) -> None:
        self._frame()
        self._write(self._training.recorded_step())
        self._frame()

    def _obey(self, command: dict[str, Any]) -> None:
        match command["do"]:
            case "stop":
                why = command.get("why", "stopped by a visitor")
                self._stopped = (command.get("status", "stopped"), why)
            case "pace":
                self._pace = float(command["epochs_per_s"] or math.inf)
            case "pause" if self._paused:
                pass  # a second press: no wish for another step
            case "pause" | "step":
                self._paused = True
                self._record()
                self._write([self._state()])
            case "park":
                self._wanted = True
            case "resume":
                self._paused = False
                self._write([self._state()])

    def run(self) -> tuple[str, str] | None:
        """(status, message) of the end; None if the run was parked."""
        deadline = time.monotonic() + MAX_RUN_S
        due = time.monotonic()
        while not self._training.done:
            idle = self._park_after_s if self._paused else due - time.monotonic()
            commands = self._control.poll(idle)
            for command in commands:
                self._obey(command)
            if self._stopped is not None:
                return self._stopped
            if self._paused:
                if not commands or self._wanted:
                    self._park()
                    late = self._control.poll(0)
                    if not late:
                        return None
                    (self._folder / CHECKPOINT).unlink()
                    for command in late:
                        self._obey(command)
                due = time.monotonic()
                continue
            if commands or time.monotonic() < due:
                continue
            if self._training.last_tick_is_next:
                self._record()  # it begins with a step to look into
                if self._training.done:  # it was the last update: stepping had come that far
                    break
            self._training.tick()
            if self._training.wants_frame(self._pace):
                self._frame()
            # A run that cannot keep its pace goes as fast as it can; it never catches up in a rush.
            due = max(due + 1 / self._pace, time.monotonic() - 0.1)
            if time.monotonic() > deadline:
                return "stopped", f"the time limit of {MAX_RUN_S} s was reached"
        self._training.keep(self._folder)
        return "finished", self._training.summary

    def _park(self) -> None:
        partial = self._folder / "checkpoint.partial.npz"
        np.savez(partial, **self._training.checkpoint())  # type: ignore[arg-type]
        partial.rename(self._folder / CHECKPOINT)


def _execute(command: dict[str, Any], control_fd: int) -> None:
    """Body of a child: from the first event to the last."""
    began = (time.perf_counter(), time.process_time())
    recorder = Recorder(Path(command["folder"]))
    run: _Run | None = None
    try:
        run = _Run(command, _Control(control_fd), recorder)
        run.open(command)
        end = run.run()
    except Diverged as why:
        end = ("diverged", str(why))
    # Broad on purpose, and here only: whatever goes wrong in a run ends that run with a message.
    except Exception as why:
        traceback.print_exc()
        end = ("failed", f"{type(why).__name__}: {why}")
    if end is not None:
        recorder.write([ended(*end, run.training if run else None, began)])
    recorder.close()


# -- the parent: all runs ---------------------------------------------------------------------


@dataclass(slots=True, kw_only=True)
class _Child:
    pid: int
    control_fd: int
    folder: Path


class _Worker:
    def __init__(self) -> None:
        self._children: dict[str, _Child] = {}  # by attempt
        self._waiting: deque[dict[str, Any]] = deque()

    def obey(self, command: dict[str, Any]) -> None:
        attempt = command["attempt"]
        child = self._children.get(attempt)
        waiting = next((w for w in self._waiting if w["attempt"] == attempt), None)
        if command["do"] == "submit":
            if child is None and waiting is None:
                self._waiting.append(command)
        elif child is not None:
            self._tell(child, command)
        elif waiting is not None and command["do"] == "stop":
            self._waiting.remove(waiting)
            _close(Path(waiting["folder"]), "stopped", "stopped before its turn came")
            _say(attempt)
        elif (
            waiting is None
            and "spec" in command
            and (Path(command["folder"]) / CHECKPOINT).exists()
        ):
            # It has parked: it goes on from there, and obeys as soon as it does.
            self._waiting.append(command | {"do": "submit", "paused": True, "then": command["do"]})
            print(json.dumps({"taken": attempt, "folder": command["folder"]}), flush=True)
        elif waiting is not None:  # it will begin as it was last told to
            waiting["epochs_per_s"] = command.get("epochs_per_s", waiting["epochs_per_s"])
            if command["do"] != "pace":
                waiting["paused"] = command["do"] != "resume"
        self.start_waiting()

    def _tell(self, child: _Child, command: dict[str, Any]) -> None:
        with contextlib.suppress(BrokenPipeError):  # it just ended: its folder says how
            os.write(child.control_fd, json.dumps(command).encode() + b"\n")

    def start_waiting(self) -> None:
        if self._waiting and len(self._children) >= MAX_RUNNING:
            for attempt, child in self._children.items():
                self._tell(child, {"do": "park", "attempt": attempt})
        while self._waiting and len(self._children) < MAX_RUNNING:
            command = self._waiting.popleft()
            try:
                self._children[command["attempt"]] = self._fork(command)
            except OSError as why:
                _close(Path(command["folder"]), "failed", f"no process for this run: {why}")
                _say(command["attempt"])

    def _fork(self, command: dict[str, Any]) -> _Child:
        read_fd, write_fd = os.pipe()
        pid = os.fork()
        if pid:
            os.close(read_fd)
            return _Child(pid=pid, control_fd=write_fd, folder=Path(command["folder"]))
        code = 1
        try:
            _die_with_parent()
            os.close(write_fd)
            for other in self._children.values():
                os.close(other.control_fd)
            _execute(command, read_fd)
            code = 0
        except BaseException:  # a child must never return into the parent's loop
            traceback.print_exc()
        finally:
            sys.stderr.flush()
            os._exit(code)

    def reap(self) -> None:
        for attempt, child in list(self._children.items()):
            pid, status = os.waitpid(child.pid, os.WNOHANG)
            if pid:
                del self._children[attempt]
                os.close(child.control_fd)
                if status:
                    signal_number = os.WTERMSIG(status) if os.WIFSIGNALED(status) else 0
                    cause = f"signal {signal_number}" if signal_number else "an error"
                    _close(child.folder, "died", f"the process of this run ended by {cause}")
                _say(attempt)
        self.start_waiting()

    def end(self) -> None:
        """Stop every run and wait a moment for their last events."""
        for child in self._children.values():
            with contextlib.suppress(BrokenPipeError):
                os.write(child.control_fd, b'{"do": "stop", "why": "the server ended"}\n')
            os.close(child.control_fd)
        deadline = time.monotonic() + 2
        for child in self._children.values():
            while os.waitpid(child.pid, os.WNOHANG) == (0, 0):
                if time.monotonic() > deadline:
                    os.kill(child.pid, signal.SIGKILL)
                time.sleep(0.02)


def _close(folder: Path, status: str, message: str) -> None:
    """Append the last event of a run that could not write it itself."""
    try:
        close(folder, status, message)
    except (OSError, ValueError) as why:
        print(f"{folder}: {why}", file=sys.stderr)


def _say(attempt: str) -> None:
    print(json.dumps({"free": attempt}), flush=True)


def _die_with_parent() -> None:
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)


def main() -> None:
    """Loop until stdin ends."""
    preload()
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the server, which ends us
    worker = _Worker()
    wake_read, wake_write = os.pipe()
    os.set_blocking(wake_write, False)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    signal.set_wakeup_fd(wake_write)
    print(json.dumps({"ready": os.getpid()}), flush=True)
    rest = b""
    while True:
        ready, _, _ = select.select([0, wake_read], [], [])
        if wake_read in ready:
            os.read(wake_read, 4096)
            worker.reap()
        if 0 in ready:
            chunk = os.read(0, 65536)
            if not chunk:
                break
            *lines, rest = (rest + chunk).split(b"\n")
            for line in lines:
                worker.obey(json.loads(line))
    worker.end()


if __name__ == "__main__":
    main()
