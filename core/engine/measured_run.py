"""What runs share that are no training of our own: the worker drives them the same way."""

import math
from collections.abc import Iterator
from pathlib import Path

from core.events import Event


class MeasuredRun:
    """A run whose `step` counts what is done, and whose ticks leave what there is to tell."""

    def __init__(self) -> None:
        self._done = 0
        self._latest: list[Event] = []

    @property
    def step(self) -> int:
        return self._done

    @property
    def epoch(self) -> int:
        return self.step

    @property
    def moment(self) -> object:
        """Changes whenever there is something new to tell."""
        return self.step

    @property
    def last_tick_is_next(self) -> bool:
        return False

    def opening(self) -> Iterator[Event]:
        yield from ()

    def recorded_step(self) -> Iterator[Event]:
        yield from ()

    def wants_frame(self, ticks_per_s: float = math.inf) -> bool:
        return True

    def frame(self) -> Iterator[Event]:
        yield from self._latest
        self._latest = []

    def keep(self, folder: Path) -> None:
        """Nothing but what it has told."""
