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
from typing import IO

from core.specs import TrainSpec
from core.trace import close

ROOT = Path(__file__).resolve().parent.parent
ORPHAN_AFTER_S = 15  # a run that nobody has watched for so long is stopped
KEEP_ATTEMPTS = 400
ATTEMPT = re.compile(r"\d{8}-\d{6}-[0-9a-f]{6}")
_WATCH_EVERY_S = 3


def runs_folder() -> Path:
    """Where attempts are kept: $BOTHWAYS_RUNS, or `runs` beside the code."""
    return Path(os.environ.get("BOTHWAYS_RUNS", ROOT / "runs"))


class WorkerHost:
    """One warm worker process and the attempts that live in it."""

    def __init__(self, runs: Path, clock: Callable[[], float] = time.monotonic) -> None:
        self._runs, self._clock = runs, clock
        self._lock = threading.RLock()
        self._process: subprocess.Popen[bytes] | None = None
        self._live: dict[str, Path] = {}  # attempt -> folder
        self._stopping: set[str] = set()  # live, but told to stop: nobody joins them
        self._seen: dict[str, float] = {}  # attempt -> when a viewer last asked for it
        self._watcher: threading.Thread | None = None

    # -- asked by pages -------------------------------------------------------------------------

    def folder(self, spec: TrainSpec, attempt: str) -> Path | None:
        """The run folder of an attempt of this spec, if it is kept; None for a malformed name."""
        if not ATTEMPT.fullmatch(attempt):
            return None
        folder = self._runs / spec.spec_id / attempt
        return folder if folder.is_dir() else None

    def is_live(self, attempt: str) -> bool:
        with self._lock:
            return attempt in self._live

    def live_attempt(self, spec: TrainSpec) -> str | None:
        """The attempt of this spec that a second submit would join."""
        with self._lock:
            joinable = (a for a in self._live if a not in self._stopping)
            return next((a for a in joinable if self._live[a].parent.name == spec.spec_id), None)

    def latest_attempt(self, spec: TrainSpec) -> str | None:
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
        self, spec: TrainSpec, *, paused: bool = False, epochs_per_s: float = math.inf
    ) -> str:
        """Start an attempt of a spec, or join the live one; returns its id."""
        with self._lock:
            attempt = self.live_attempt(spec)
            if attempt is None:
                attempt = time.strftime("%Y%m%d-%H%M%S-", time.gmtime()) + secrets.token_hex(3)
                self._prune()
                self._start_run(spec, attempt, paused=paused, epochs_per_s=epochs_per_s)
            elif not paused:
                self._send({"do": "resume", "attempt": attempt})
            self.touch(attempt)
            return attempt

    def command(
        self, spec: TrainSpec, attempt: str, do: str, *, epochs_per_s: float = math.inf
    ) -> None:
        """pause | resume | step | stop | pace; a parked run is taken up again first."""
        with self._lock:
            if attempt not in self._live and do in ("resume", "step"):
                self._start_run(spec, attempt, paused=True, epochs_per_s=epochs_per_s)
            self.touch(attempt)
            if do == "stop":
                self._stopping.add(attempt)
            pace = None if math.isinf(epochs_per_s) else epochs_per_s
            self._send({"do": do, "attempt": attempt, "epochs_per_s": pace})

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
            self._process = subprocess.Popen(
                [sys.executable, "-m", "core.worker"],
                cwd=ROOT,
                env=env,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
            )
            assert self._process.stdout is not None
            threading.Thread(
                target=self._listen, args=(self._process, self._process.stdout), daemon=True
            ).start()
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
            with contextlib.suppress(BrokenPipeError):
                process.stdin.close()
            try:
                process.wait(timeout=5)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()

    # -- inside ---------------------------------------------------------------------------------

    def _start_run(
        self, spec: TrainSpec, attempt: str, *, paused: bool, epochs_per_s: float
    ) -> None:
        folder = self._runs / spec.spec_id / attempt
        folder.mkdir(parents=True, exist_ok=True)
        self._live[attempt] = folder
        self.touch(attempt)
        self._send(
            {
                "do": "submit",
                "attempt": attempt,
                "folder": str(folder.resolve()),
                "spec": spec.to_json(),
                "paused": paused,
                "epochs_per_s": None if math.isinf(epochs_per_s) else epochs_per_s,
            }
        )

    def _send(self, command: dict[str, object]) -> None:
        self.warm()
        assert self._process is not None and self._process.stdin is not None
        # A worker that dies here is noticed by `_listen`, which ends its attempts.
        with contextlib.suppress(BrokenPipeError):
            self._process.stdin.write(json.dumps(command).encode() + b"\n")
            self._process.stdin.flush()

    def _listen(self, process: "subprocess.Popen[bytes]", stdout: IO[bytes]) -> None:
        for line in stdout:
            said = json.loads(line)
            if "free" in said:
                with self._lock:
                    self._live.pop(said["free"], None)
                    self._stopping.discard(said["free"])
        code = process.wait()
        with self._lock:
            if self._process not in (process, None):
                return
            lost, self._live = self._live, {}
            self._process = None
        for folder in lost.values():
            with contextlib.suppress(OSError):
                close(folder, "died", f"the worker process ended (code {code}); run it again")

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
                    self._send({"do": "stop", "attempt": attempt, "why": why})

    def _prune(self) -> None:
        """Delete the oldest attempts over the budget; names begin with the time."""
        attempts = sorted(self._runs.glob("*/*-*-*"), key=lambda folder: folder.name)
        for folder in attempts[: max(0, len(attempts) - KEEP_ATTEMPTS)]:
            if folder.name not in self._live:
                shutil.rmtree(folder, ignore_errors=True)
