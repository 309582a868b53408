"""The Streamlit end of the worker: which run a page looks at, and what its buttons do to it."""

import atexit
import functools
import gc
import math
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Generic, TypeVar

import streamlit as st
from streamlit.runtime.scriptrunner import get_script_run_ctx

from components.settings import Settings
from core import own_models
from core.events import Started, decode
from core.recordings import shipped
from core.specimens import runs_folder
from core.specs import FinetuneSpec, RunSpec, Spec
from core.trace import ARRAYS, EVENTS, Trace
from core.worker_host import ATTEMPT, WorkerHost

RUN = "run"  # URL key of the attempt that is looked at
S = TypeVar("S", bound=RunSpec)
_REMEMBERED = 1000
_SUBMITTED: dict[str, RunSpec] = {}  # attempt -> spec, of this process's last submits


@functools.cache
def host() -> WorkerHost:
    """The worker of this web process, shared by all pages and by the live stream."""
    made = WorkerHost(runs_folder())
    atexit.register(made.close)
    return made


@functools.cache
def prepare() -> None:
    """Once a process: start the worker's imports, and keep ours out of later collections.

    Here and not in the shell: Streamlit runs that file anew for every rerun, its caches too.
    """
    host().warm()
    gc.collect()
    gc.freeze()


@dataclass(frozen=True, slots=True, kw_only=True)
class View(Generic[S]):
    """A run as a page looks at it."""

    spec: S
    attempt: str | None  # None: a shipped recording
    folder: Path
    trace: Trace
    live: bool  # a worker may still append to it

    @property
    def state(self) -> str:
        """recorded | waiting | opening | running | paused, or how it ended: finished | stopped |
        diverged | failed | died. A run says that it is at work, opens with a step, and
        then says again whether it goes on.
        """
        if self.attempt is None:
            return "recorded"
        if self.trace.ended:
            return self.trace.ended.status
        paused = self.trace.scalars("paused")
        if paused and paused[-1][1]:
            return "paused"
        if not self.live:
            return "died"
        if len(paused) > 1:
            return "running"
        return "opening" if self.trace.started else "waiting"

    @property
    def open(self) -> bool:
        """More events may come."""
        return self.state in ("waiting", "opening", "running", "paused")

    @property
    def origin(self) -> str:
        """Where and when the numbers come from."""
        started = self.trace.started
        if started is None:
            return "waiting for a free place on this machine"
        when = time.strftime("%d %b %Y %H:%M UTC", time.gmtime(started.started_unix_s)).lstrip("0")
        n_threads = getattr(self.spec, "threads", started.machine["n_threads"])
        machine = f"{started.machine['cpu']}, {n_threads} thread{'s' * (n_threads > 1)}"
        if self.attempt is None:
            return f"recorded {when.rsplit(' ', 2)[0]} on {machine}"
        return f"measured on this machine, {when}: {machine}"

    @property
    def last_recorded_scalars(self) -> dict[str, float]:
        """What the latest recorded step measured; empty before the first."""
        steps = self.trace.recorded_steps
        return self.trace.scalars_of(steps[-1]) if steps else {}

    @property
    def at_first_step(self) -> bool:
        """Whether those are of the run's first update, before which no optimizer has a state."""
        return self.trace.recorded_steps[-1:] == [0]


def examples_in_step(view: View[Spec]) -> int:
    """Examples in the latest recorded step's (micro-)batch; the batch size before there is one.

    They differ where a step also takes the examples left over from the pass before, or the last
    few of a pass.
    """
    micro_batches = getattr(view.spec, "accumulation", 1)
    examples = view.last_recorded_scalars.get("batch_examples")
    return view.spec.batch_size if examples is None else int(examples) // micro_batches


def has_recording(settings: Settings) -> bool:
    return shipped(settings.spec) is not None


def look(settings: Settings) -> View[Spec]:
    """The run to show: the one the URL names, else a shipped one, else the latest that is under way
    or finished, else a new one.

    A spec that nobody has run gets a run that waits before its first epoch with one step recorded:
    nothing is drawn that did not happen, and that much takes a moment.
    """
    spec = settings.spec
    attempt = st.query_params.get(RUN)
    if attempt is not None:
        folder = host().folder(spec, attempt)
        if folder is not None:
            return view_of(spec, attempt, folder)
        explain_missing(attempt)
        del st.query_params[RUN]
    known = unnamed(spec)
    if known is not None:
        return known
    attempt = _submit(settings, paused=True)
    folder = host().folder(spec, attempt)
    assert folder is not None, attempt
    return view_of(spec, attempt, folder)


def unnamed(spec: S) -> View[S] | None:
    """The run of a spec that is shown where none is named: a shipped one, else the latest that is
    under way or finished.
    """
    recording = shipped(spec)
    if recording is not None:
        return View(spec=spec, attempt=None, folder=recording, trace=read(recording), live=False)
    view = latest(spec)
    return view if view and (view.open or view.state == "finished") else None


def latest(spec: S) -> View[S] | None:
    """The newest attempt of a spec, whatever became of it; None if nobody has run it here."""
    attempt = host().latest_attempt(spec)
    folder = host().folder(spec, attempt) if attempt else None
    return view_of(spec, attempt, folder) if attempt and folder else None


def start_sweep(spec: RunSpec) -> None:
    submit(spec)


def submit(spec: RunSpec, *, paused: bool = False, epochs_per_s: float = math.inf) -> str:
    """Start an attempt for this visitor, or join the live one; returns its name."""
    if isinstance(spec, FinetuneSpec):
        own_models.thin()  # it will keep half a gigabyte
    attempt = host().submit(spec, paused=paused, epochs_per_s=epochs_per_s, visitor=_visitor())
    if len(_SUBMITTED) >= _REMEMBERED:
        del _SUBMITTED[next(iter(_SUBMITTED))]
    _SUBMITTED[attempt] = spec
    return attempt


def _submit(settings: Settings, *, paused: bool = False) -> str:
    return submit(settings.spec, paused=paused, epochs_per_s=settings.epochs_per_s)


def _visitor() -> str | None:
    """This browser tab's session, so that one visitor cannot take every place."""
    context = get_script_run_ctx()
    return context.session_id if context else None


def stop_sweep(spec: RunSpec) -> None:
    view = latest(spec)
    if view is not None and view.attempt:
        host().command(spec, view.attempt, "stop")


def view_of(spec: S, attempt: str, folder: Path) -> View[S]:
    """A run that is kept; its server knows that somebody is watching."""
    host().touch(attempt)
    live = host().is_live(attempt)
    return View(spec=spec, attempt=attempt, folder=folder, trace=read(folder), live=live)


def found(attempt: str) -> tuple[RunSpec, Path] | None:
    """Spec and folder of the kept run of that name, whatever it is of."""
    if not ATTEMPT.fullmatch(attempt):
        return None
    for folder in runs_folder().glob(f"*/{attempt}"):
        spec = _SUBMITTED.get(attempt) or _spec_in(folder)  # it may have said nothing yet
        if spec is not None:
            return spec, folder
    return None


def _spec_in(folder: Path) -> RunSpec | None:
    """By the run's first event."""
    try:
        with (folder / EVENTS).open("rb") as file:
            started = decode(file.readline(), memoryview(b""))
        return RunSpec.from_json(started.spec) if isinstance(started, Started) else None
    except (OSError, ValueError):
        return None


def explain_missing(attempt: str, button: str = "Train") -> None:
    """A link to a run that is gone says so; a run of other settings was just left behind."""
    if not ATTEMPT.fullmatch(attempt):
        st.toast("The link's run is no name of a run, so it was ignored.")
    elif not host().exists(attempt):
        st.toast(f"That run is no longer kept. Its settings are: press {button} to run it again.")


def read(folder: Path) -> Trace:
    """The trace so far, decoded once for each length it has had."""
    n_event_bytes = _size(folder / EVENTS)
    return _read(folder, n_event_bytes, _size(folder / ARRAYS)) if n_event_bytes else Trace()


def _size(file: Path) -> int:
    """Bytes; 0 if its writer has not made it yet."""
    try:
        return file.stat().st_size
    except FileNotFoundError:
        return 0


@functools.lru_cache(maxsize=16)
def _read(folder: Path, n_event_bytes: int, n_array_bytes: int) -> Trace:
    return Trace.read(folder)


# -- what the buttons do ----------------------------------------------------------------------


def train(settings: Settings, view: View) -> None:
    """Go on with the run that is looked at, or start a new attempt of the same settings."""
    if view.state == "paused" and view.attempt:
        _command(settings, view, "resume")
    else:
        st.query_params[RUN] = _submit(settings)


def step(settings: Settings, view: View) -> None:
    """One more update, recorded op by op."""
    if view.open and view.attempt:
        _command(settings, view, "step")
    else:
        reset(settings, view)


def pause(settings: Settings, view: View) -> None:
    _command(settings, view, "pause")


def stop(settings: Settings, view: View) -> None:
    _command(settings, view, "stop")


def reset(settings: Settings, view: View) -> None:
    """Back to the first weights: a new attempt that waits before its first epoch."""
    if view.open and view.attempt:
        _command(settings, view, "stop")
    st.query_params[RUN] = _submit(settings, paused=True)


def show_recording() -> None:
    """Back to the shipped run of these settings."""
    st.query_params.pop(RUN, None)


def set_pace(settings: Settings, view: View) -> None:
    if view.live and view.attempt and view.state in ("opening", "running"):
        host().command(settings.spec, view.attempt, "pace", epochs_per_s=settings.epochs_per_s)


def _command(settings: Settings, view: View, do: str) -> None:
    assert view.attempt is not None
    host().command(settings.spec, view.attempt, do, epochs_per_s=settings.epochs_per_s)
    st.query_params[RUN] = view.attempt
