"""One measurement of time at a time on this machine, and a mark where it was not alone."""

import contextlib
import fcntl
import os
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

LOCK = Path(tempfile.gettempdir()) / "bothways-measuring.lock"
WAIT_S = 1.0
LEAST_CPU_SHARE = 0.9  # of the wall time, for one thread that had a core to itself


@dataclass(slots=True)
class Alone:
    """Whether a measurement had the machine to itself; complete when its region has ended."""

    locked: bool  # no other measurement of ours ran meanwhile
    load_1min: float
    cpu_share: float = 0.0  # of the wall time that this process was given

    @property
    def contended(self) -> bool:
        return not self.locked or self.cpu_share < LEAST_CPU_SHARE


@contextlib.contextmanager
def alone() -> Iterator[Alone]:
    """Hold the machine's measuring lock; waits a moment for it, then goes on without.

    A lock that cannot be made (a full disk, another user's file) counts as not held.
    """
    with contextlib.ExitStack() as stack:
        locked = False
        with contextlib.suppress(OSError):
            file = stack.enter_context(LOCK.open("a"))
            locked = _taken(file.fileno())
        found = Alone(locked=locked, load_1min=os.getloadavg()[0])
        wall, cpu = time.perf_counter(), time.process_time()
        yield found
        found.cpu_share = (time.process_time() - cpu) / max(time.perf_counter() - wall, 1e-9)


def _taken(fd: int) -> bool:
    deadline = time.monotonic() + WAIT_S
    while True:
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return True
        except BlockingIOError:
            if time.monotonic() > deadline:
                return False
            time.sleep(0.02)
