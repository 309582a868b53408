"""The other end of the worker: starts it, hands it runs, notices when it dies.

Knows which attempts are live in this process; everything about a run itself is read from its
folder.
"""

import contextlib
import json
import math
import os
import re
import secrets
import shutil
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path

from core.specs import RunSpec
from core.trace import CHECKPOINT, close

ROOT = Path(__file__).resolve().parent.parent
PARK_AFTER_S = 20  # a paused run then leaves a checkpoint and gives its process back
ORPHAN_AFTER_S = 15  # a run that nobody has watched for so long is stopped
KEEP_ATTEMPTS = 400
MAX_PER_VISITOR = 2  # live runs of one visitor
ATTEMPT = re.compile(r"\d{8}-\d{6}-[0-9a-f]{6}")
_WATCH_EVERY_S = 3


def new_attempt() -> str:
    """A name that nobody has or can guess; it begins with the time, UTC."""
    return time.strftime("%Y%m%d-%H%M%S-", time.gmtime()) + secrets.token_hex(3)


class WorkerHost:
    """One warm worker process and the attempts that live in it."""

    def __init__(
        self,
        runs: Path,
        clock: Callable[[], float] = time.monotonic,
        park_after_s: float = PARK_AFTER_S,
    ) -> None:
        self._runs, self._clock, self._park_after_s = runs, clock, park_after_s
        self._lock = threading.RLock()
        self._process: subprocess.Popen[bytes] | None = None
        self._live: dict[str, Path] = {}  # attempt -> folder, of the present process
        self._stopping: set[str] = set()  # live, but told to stop: nobody joins them
        self._owner: dict[str, str] = {}  # attempt -> visitor who started it
        self._seen: dict[str, float] = {}  # attempt -> when a viewer last asked for it
        self._watcher: threading.Thread | None = None

    # -- asked by pages -------------------------------------------------------------------------

    def folder(self, spec: RunSpec, attempt: str) -> Path | None:
        """The run folder of an attempt of this spec, if it is kept; None for a malformed name."""
        if not ATTEMPT.fullmatch(attempt):
            return None
        folder = self._runs / spec.spec_id / attempt
        return folder if folder.is_dir() else None

    def is_live(self, attempt: str) -> bool:
        with self._lock:
            return attempt in self._live

    def live_attempt(self, spec: RunSpec) -> str | None:
        """The attempt of this spec that a second submit would join."""
        with self._lock:
            # A run whose folder somebody removed still computes, but nobody can see it.
            joinable = (a for a, f in self._live.items() if a not in self._stopping and f.is_dir())
            return next((a for a in joinable if self._live[a].parent.name == spec.spec_id), None)

    def latest_attempt(self, spec: RunSpec) -> str | None:
        """The newest attempt of this spec that is kept; names begin with the time."""
        folder = self._runs / spec.spec_id
        names = [p.name for p in folder.iterdir()] if folder.is_dir() else []
        return max((n for n in names if ATTEMPT.fullmatch(n)), default=None)

    def exists(self, attempt: str) -> bool:
        """Whether an attempt of any spec has this name."""
        return bool(ATTEMPT.fullmatch(attempt)) and any(self._runs.glob(f"*/{attempt}"))

    def touch(self, attempt: str) -> None:
        """Somebody is watching this attempt now."""
        with self._lock:
            self._seen[attempt] = self._clock()

    def submit(
        self,
        spec: RunSpec,
        *,
        paused: bool = False,
        epochs_per_s: float = math.inf,
        visitor: str | None = None,
    ) -> str:
        """Start an attempt of a spec, or join the live one; returns its id.

        A visitor has `MAX_PER_VISITOR` live runs at most: the oldest makes room.
        """
        with self._lock:
            self.warm()
            attempt = self.live_attempt(spec)
            if attempt is None:
                attempt = new_attempt()
                self._prune()
                if visitor is not None:
                    self._make_room(visitor)
                    self._owner[attempt] = visitor
                self._start_run(spec, attempt, paused=paused, epochs_per_s=epochs_per_s)
            elif not paused:
                self._send({"do": "resume", "attempt": attempt})
            self.touch(attempt)
            return attempt

    def command(
        self, spec: RunSpec, attempt: str, do: str, *, epochs_per_s: float = math.inf
    ) -> None:
        """pause | resume | step | stop | pace; a parked run is taken up again first.

        Does nothing to an attempt that has ended, or never was.
        """
        with self._lock:
            self.warm()
            if attempt not in self._live:
                folder = self.folder(spec, attempt)
                parked = folder is not None and (folder / CHECKPOINT).exists()
                if not parked or do not in ("resume", "step", "stop"):
                    return
                assert folder is not None
                self._live[attempt] = folder
            self.touch(attempt)
            if do == "stop":
                self._stopping.add(attempt)
            self._send(self._record(spec, attempt, epochs_per_s) | {"do": do})

    def warm(self) -> None:
        """Start the worker if it is not running; returns at once."""
        with self._lock:
            if self._process is not None and self._process.poll() is None:
                return
            env = os.environ | {
                "OMP_NUM_THREADS": "1",
                "OPENBLAS_NUM_THREADS": "1",
                "KINETO_LOG_LEVEL": "99",
            }
            process = subprocess.Popen(
                [sys.executable, "-m", "core.worker"],
                cwd=ROOT,
                env=env,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
            )
            # The attempts of a process that died are its listener's to end, whoever comes first.
            self._process, self._live = process, {}
            threading.Thread(target=self._listen, args=(process, self._live), daemon=True).start()
            if self._watcher is None:
                self._watcher = threading.Thread(target=self._watch, daemon=True)
                self._watcher.start()

    @property
    def worker_pid(self) -> int | None:
        return self._process.pid if self._process else None

    def close(self) -> None:
        """End the worker and its runs."""
        with self._lock:
            process, self._process = self._process, None
        if process is not None:
            assert process.stdin is not None
            process.stdin.close()
            try:
                process.wait(timeout=5)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()

    # -- inside ---------------------------------------------------------------------------------

    def _make_room(self, visitor: str) -> None:
        self._owner = {a: v for a, v in self._owner.items() if a in self._live}
        own = sorted(a for a, v in self._owner.items() if v == visitor and a not in self._stopping)
        for attempt in own[: max(0, len(own) - MAX_PER_VISITOR + 1)]:
            self._stopping.add(attempt)
            self._send({"do": "stop", "attempt": attempt, "why": "its visitor started other runs"})

    def _start_run(self, spec: RunSpec, attempt: str, *, paused: bool, epochs_per_s: float) -> None:
        folder = self._runs / spec.spec_id / attempt
        folder.mkdir(parents=True, exist_ok=True)
        self._live[attempt] = folder
        self.touch(attempt)
        self._send(self._record(spec, attempt, epochs_per_s) | {"do": "submit", "paused": paused})

    def _record(self, spec: RunSpec, attempt: str, epochs_per_s: float) -> dict[str, object]:
        """All that a process needs to take a run up: any command may find it parked."""
        return {
            "attempt": attempt,
            "folder": str((self._runs / spec.spec_id / attempt).resolve()),
            "spec": spec.to_json(),
            "epochs_per_s": None if math.isinf(epochs_per_s) else epochs_per_s,
            "park_after_s": self._park_after_s,
        }

    def _send(self, command: dict[str, object]) -> None:
        if self._process is None:
            return
        assert self._process.stdin is not None
        # A worker that died is noticed by `_listen`, which ends its attempts. Not through the
        # buffer: it would keep what a dead worker did not take, and raise when it is closed.
        with contextlib.suppress(BrokenPipeError):
            os.write(self._process.stdin.fileno(), json.dumps(command).encode() + b"\n")

    def _listen(self, process: "subprocess.Popen[bytes]", live: dict[str, Path]) -> None:
        """Let go of attempts that a process has ended, and end those that died with it."""
        assert process.stdin is not None and process.stdout is not None
        with process.stdout:
            for line in process.stdout:
                said = json.loads(line)
                if "free" in said:
                    with self._lock:
                        live.pop(said["free"], None)
                        self._stopping.discard(said["free"])
                elif "taken" in said:  # a command met the run just as it parked
                    with self._lock:
                        live[said["taken"]] = Path(said["folder"])
        code = process.wait()
        with self._lock:
            process.stdin.close()
            if self._process is process:
                self._process = None
            for folder in live.values():
                with contextlib.suppress(OSError, ValueError):  # gone, or not ours to read
                    close(folder, "died", f"the worker process ended (code {code}); run it again")
            self._stopping.difference_update(live)
            live.clear()

    def _watch(self) -> None:
        while True:
            time.sleep(_WATCH_EVERY_S)
            self.stop_orphans()

    def stop_orphans(self) -> None:
        """Stop every live run that no viewer has asked for in a while."""
        with self._lock:
            now = self._clock()
            for attempt in self._live:
                if now - self._seen.get(attempt, now) > ORPHAN_AFTER_S:
                    why = "nobody was watching any more"
                    self._stopping.add(attempt)
                    self._send({"do": "stop", "attempt": attempt, "why": why})

    def _prune(self) -> None:
        """Delete the oldest attempts over the budget; names begin with the time."""
        attempts = sorted(self._runs.glob("*/*-*-*"), key=lambda folder: folder.name)
        for folder in attempts[: max(0, len(attempts) - KEEP_ATTEMPTS)]:
            if folder.name not in self._live:
                shutil.rmtree(folder, ignore_errors=True)
