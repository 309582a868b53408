"""A run folder: `Recorder` appends events to it, `Trace` reads as many as are whole.

Live, finished, shipped and test runs are the same two files: `events.jsonl` and `arrays.bin`.
"""

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import TypeGuard

import numpy as np

from core.events import (
    Array,
    Ended,
    Event,
    Memory,
    Sample,
    Scalar,
    Span,
    Started,
    decode,
    encode,
)

EVENTS = "events.jsonl"
ARRAYS = "arrays.bin"
CHECKPOINT = "checkpoint.npz"  # only while the run is parked: what it needs to go on


class Recorder:
    """Appends events to a run folder; array bytes reach it before the line that names them."""

    def __init__(self, folder: Path) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self._arrays = (folder / ARRAYS).open("ab", buffering=0)
        self._events = (folder / EVENTS).open("ab", buffering=0)
        self._arrays_size = self._arrays.tell()

    def write(self, events: Iterable[Event]) -> None:
        lines, payloads = pack(events, self._arrays_size)
        if payloads:
            self._arrays.write(payloads)
            self._arrays_size += len(payloads)
        if lines:
            self._events.write(lines)

    def close(self) -> None:
        self._events.close()
        self._arrays.close()


def close(folder: Path, status: str, message: str) -> None:
    """End a run from outside: whole events stay, what was cut off goes, one `Ended` follows.

    Does nothing if the run has ended already. Raises: OSError; ValueError as `Trace.read`.
    """
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / EVENTS
    lines = _read(path)
    trace = Trace.parse(lines, _read(folder / ARRAYS))
    if trace.ended:
        return
    # Also a line whose array bytes are missing: readers would stop at it and never see the end.
    whole = b"".join(lines.splitlines(keepends=True)[: len(trace.events)])
    if whole != lines:
        with path.open("r+b") as file:
            file.truncate(len(whole))
    recorder = Recorder(folder)
    recorder.write([Ended(status=status, message=message, n_steps=0, wall_s=0.0, cpu_s=0.0)])
    recorder.close()


def _read(path: Path) -> bytes:
    return path.read_bytes() if path.exists() else b""


def pack(events: Iterable[Event], arrays_size: int = 0) -> tuple[bytes, bytes]:
    """Lines and array bytes of many events, the bytes to stand at offset `arrays_size`."""
    lines: list[bytes] = []
    payloads: list[bytes] = []
    for event in events:
        line, payload = encode(event, arrays_size)
        lines.append(line)
        payloads.append(payload)
        arrays_size += len(payload)
    return b"".join(lines), b"".join(payloads)


@dataclass(slots=True)
class Trace:
    """The events of a run so far, with the questions that pages ask of them."""

    events: list[Event] = field(default_factory=list)

    @classmethod
    def read(cls, folder: Path) -> "Trace":
        """Every whole event of a run folder; stops at the first that is cut off.

        Raises: FileNotFoundError if the folder holds no run; ValueError if a whole line is not an
        event of this schema.
        """
        return cls.parse((folder / EVENTS).read_bytes(), _read(folder / ARRAYS))

    @classmethod
    def parse(cls, lines: bytes, arrays: bytes) -> "Trace":
        trace = cls()
        view = memoryview(arrays)
        for line in lines.split(b"\n")[:-1]:
            event = decode(line, view)
            if event is None:
                break
            trace.events.append(event)
        return trace

    @property
    def started(self) -> Started | None:
        first = self.events[0] if self.events else None
        return first if isinstance(first, Started) else None

    @property
    def ended(self) -> Ended | None:
        last = self.events[-1] if self.events else None
        return last if isinstance(last, Ended) else None

    def scalars(self, name: str) -> list[tuple[int, float]]:
        """(step, value) in the order they were recorded."""
        return [(e.step, e.value) for e in self.events if isinstance(e, Scalar) and e.name == name]

    def scalars_of(self, step: int) -> dict[str, float]:
        """Every scalar of a step, the last of each name."""
        return {e.name: e.value for e in self.events if isinstance(e, Scalar) and e.step == step}

    @property
    def recorded_steps(self) -> list[int]:
        """Steps that were recorded op by op, whole, in order."""
        return [step for step, _ in self.scalars("recorded_step_s")]

    def spans(self, step: int) -> list[Span]:
        return [e for e in self.events if isinstance(e, Span) and e.step == step]

    def memory(self, step: int) -> list[Memory]:
        return [e for e in self.events if isinstance(e, Memory) and e.step == step]

    def array(self, step: int, op: str, role: str) -> np.ndarray:
        """Raises: KeyError if it was not recorded."""
        for e in reversed(self.events):
            if isinstance(e, Array) and (e.step, e.op, e.role) == (step, op, role):
                return e.numbers
        raise KeyError(f"no {role} of {op} at step {step} in this run")

    def thinned(self, max_bytes: int) -> "Trace":
        """The same run with fewer frames, evenly dropped, until its arrays and samples fit.

        A frame is what is drawn or read of one moment: pictures, answers, what the model wrote.
        Frames of recorded steps stay: a step is drawn over its own. So do all scalars.
        """
        sizes: Counter[int] = Counter()  # bytes of each frame, by step
        for e in self.events:
            if _is_frame(e):
                sizes[e.step] += _n_bytes(e)
        all_bytes = sum(_n_bytes(e) for e in self.events)
        frames = sorted(sizes)
        if all_bytes <= max_bytes or len(frames) < 2:
            return self
        frame_bytes = sum(sizes.values())
        room = max_bytes - (all_bytes - frame_bytes)
        steps: set[int] = set()
        for n_frames in range(max(2, int(len(frames) * room / frame_bytes)), 1, -1):
            picked = np.linspace(0, len(frames) - 1, n_frames).round().astype(int)
            steps = {frames[i] for i in picked} | set(self.recorded_steps)
            if sum(sizes[step] for step in steps) <= room:
                break
        return Trace([e for e in self.events if not _is_frame(e) or e.step in steps])


def _is_frame(event: Event) -> TypeGuard[Array | Sample]:
    if isinstance(event, Array):
        return event.role in ("boundary", "frame_weight", "answers")
    return isinstance(event, Sample)


def _n_bytes(event: Event) -> int:
    """Of an array its bytes, of a sample its line; of anything else, which always stays, 0."""
    if isinstance(event, Array):
        return event.values.nbytes
    return len(encode(event)[0]) if isinstance(event, Sample) else 0
