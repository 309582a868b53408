"""One training run without a page: from its first event to its last, and what came of it."""

import contextlib
import dataclasses
import hashlib
import itertools
import math
import sys
import tempfile
import time
import traceback
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from core.cli import Refused
from core.engine.depths import DepthSweep
from core.engine.flops import flop_counter
from core.engine.train import Diverged, Training, ended, started, training_of
from core.engine.train_torch import TorchTraining
from core.events import Event, Scalar, Started
from core.specs import DigitsSpec, RunSpec, Spec
from core.trace import ARRAYS, EVENTS, Recorder, Trace
from core.worker_host import new_attempt

REPORT_EVERY_S = 0.4
N_RECORDED = 2  # the first updates are looked into: one without optimizer state, one with

Run = Training | TorchTraining


def train(
    spec: Spec,
    expected: dict[str, Any],
    *,
    n_threads: int,
    out: str | None,
    stopping: Callable[[], bool],
) -> dict[str, Any]:
    """Train a spec into a run folder, reporting on stderr; what came of it beside what was
    `expected` (`core.__main__.predicted`). Raises: Refused.

    `stopping` is asked between updates, and while one is recorded.
    """
    began = (time.perf_counter(), time.process_time())
    attempt = new_attempt()
    run = _new_run(spec)
    folder, recorder = new_folder(out, spec, attempt)
    print(f"run folder: {folder}", file=sys.stderr, flush=True)
    driven = _Driven(run, recorder, stopping)
    before = _sha256(run)
    try:
        recorder.write([on_threads(started(spec, attempt), n_threads)])
        status, message = driven.to_the_end()
    except Diverged as why:
        status, message = "diverged", str(why)
    # Broad on purpose, as in the worker: whatever goes wrong in a run ends that run with a
    # message, and what was measured until then is still told.
    except Exception as why:
        traceback.print_exc()
        status, message = "failed", f"{type(why).__name__}: {why}"
    end = ended(status, message, run, began)
    with contextlib.suppress(OSError):  # a full disk may be what the message is about
        recorder.write([end])
        recorder.close()
    trace = Trace.read(folder)
    return {
        "spec_id": spec.spec_id,
        "attempt": attempt,
        "folder": str(folder),
        "spec": spec.to_json(),
        "status": status,
        "message": message,
        "advice": end.advice,
        "steps": run.step,
        **_curve(trace),
        "examples_per_s": driven.examples_per_s or _recorded_pace(trace),
        **_compared(trace, spec, expected),
        "weights_sha256": {"before": before, "after": _sha256(run)},
    }


def _new_run(spec: Spec) -> Run:
    try:
        run = training_of(spec)
    except ValueError as why:  # a text that is too short for its context
        raise Refused(str(why)) from None
    assert not isinstance(run, DepthSweep), f"{spec.specimen} is no training run"
    return run


def new_folder(out: str | None, spec: RunSpec, attempt: str) -> tuple[Path, Recorder]:
    """The run folder; two levels deep where it is temporary, so that $BOTHWAYS_RUNS can name it."""
    try:
        if out is not None and any(Path(out, file).exists() for file in (EVENTS, ARRAYS)):
            raise Refused(f"--out={out!r} holds a run already; name another folder")
        folder = Path(out or Path(tempfile.mkdtemp(prefix="bothways-"), spec.spec_id, attempt))
        return folder, Recorder(folder)
    except (OSError, ValueError) as why:  # ValueError: a zero byte in the name
        reason = getattr(why, "strerror", None) or why
        raise Refused(f"--out={out!r} cannot be written ({reason}); name another folder") from None


def on_threads(first: Started, n_threads: int) -> Started:
    """The machine's description with the threads that were really used."""
    return dataclasses.replace(first, machine=first.machine | {"n_threads": n_threads})


def _sha256(run: Run) -> str:
    """Of all parameters' bytes, in the model's order."""
    if isinstance(run, Training):
        return hashlib.sha256(run.network.params.tobytes()).hexdigest()
    digest = hashlib.sha256()
    for parameter in run.model.parameters():
        digest.update(parameter.detach().numpy().tobytes())
    return digest.hexdigest()


# -- driving ------------------------------------------------------------------------------------


class _Driven:
    """Drives a run as fast as it goes: records it, reports on it, times its plain updates."""

    def __init__(self, run: Run, recorder: Recorder, stopping: Callable[[], bool]) -> None:
        self._run, self._recorder, self._stopping = run, recorder, stopping
        self._framed_step = -1
        self._reported_s = -math.inf
        self._examples = self._plain_s = 0.0

    @property
    def examples_per_s(self) -> float | None:
        """Of the updates that nobody looked into, frames left out; None before the first."""
        return self._examples / self._plain_s if self._plain_s else None

    def to_the_end(self) -> tuple[str, str]:
        """(status, message) of the end. Raises: Diverged."""
        run = self._run
        self._recorder.write(run.opening())
        self._frame()
        while not run.done and not self._stopping():
            if run.step < N_RECORDED:
                self._record()
                continue
            if run.last_tick_is_next:
                self._record()  # as in the worker
                if run.done or self._stopping():
                    break
            self._tick()
            if run.wants_frame():
                self._frame()
        self._frame()
        return ("finished", run.summary) if run.done else ("stopped", "stopped with Ctrl-C")

    def _tick(self) -> None:
        step, began = self._run.step, time.perf_counter()
        self._run.tick()
        self._plain_s += time.perf_counter() - began
        self._examples += (self._run.step - step) * _examples_per_step(self._run)

    def _record(self) -> None:
        """The next update op by op; nothing of it where Ctrl-C comes in between."""
        self._frame()
        events: list[Event] = []
        for event in itertools.chain(_counted_flops(self._run), self._run.recorded_step()):
            events.append(event)
            if self._stopping():
                return
        self._recorder.write(events)
        self._frame()

    def _frame(self) -> None:
        if self._framed_step == self._run.step:
            return
        self._framed_step = self._run.step
        events = list(self._run.frame())
        self._recorder.write(events)
        now_s = time.perf_counter()
        if self._run.done or now_s - self._reported_s >= REPORT_EVERY_S:
            self._reported_s = now_s
            _report(self._run.step, {e.name: e.value for e in events if isinstance(e, Scalar)})


def _report(step: int, now: dict[str, float]) -> None:
    losses = f"train loss {now['train_loss']:.4g}, held-out loss {now['held_out_loss']:.4g}"
    accuracy = f"accuracy {now['held_out_accuracy']:.1%}"
    line = f"step {step}, epochs {now['epoch']:.4g}, {losses}, {accuracy}"
    print(line, file=sys.stderr, flush=True)


def _counted_flops(run: Run) -> Iterator[Event]:
    """The scalar `flops_executed` of the playground's next update; torch runs have their own."""
    if not isinstance(run, Training):
        return
    events = run.recorded_step()
    with flop_counter() as counter:
        for event in events:
            if isinstance(event, Scalar) and event.name == "loss":  # the step has run once
                break  # and is never taken up again, so that the update is not taken
    yield Scalar(step=run.step, name="flops_executed", value=counter.get_total_flops())


def _examples_per_step(run: Run) -> float:
    """Mean over a pass, at whose end an update may have fewer, or the next one more."""
    if isinstance(run, Training):
        n_train = run.examples.n_train
        return n_train / (n_train // run.spec.batch_size)
    if isinstance(run.spec, DigitsSpec):
        return run.source.n_train * run.spec.n_epochs / run.n_steps
    return run.spec.batch_size * run.accumulation


# -- what the folder says -----------------------------------------------------------------------


def _curve(trace: Trace) -> dict[str, float | None]:
    """Ends of the curves that the page draws; None for what is not a finite number."""

    def end(name: str, at: int) -> float | None:
        values = [value for _, value in trace.scalars(name)]
        return values[at] if values and math.isfinite(values[at]) else None

    return {
        "loss_first": end("train_loss", 0),
        "loss_last": end("train_loss", -1),
        "held_out_loss": end("held_out_loss", -1),
        "accuracy": end("held_out_accuracy", -1),
    }


def _recorded_pace(trace: Trace) -> float | None:
    """Examples a second in the last recorded step: of a run that has no other."""
    if not trace.recorded_steps:
        return None
    told = trace.scalars_of(trace.recorded_steps[-1])
    return told["batch_examples"] / told.get("plain_step_s", told["recorded_step_s"])


def _compared(trace: Trace, spec: Spec, expected: dict[str, Any]) -> dict[str, Any]:
    """Predicted beside measured, in the last recorded step with as many examples as predicted.

    The peak from the second step on only, as predicted: in the first the optimizer has no state.
    """
    n_examples = spec.batch_size * getattr(spec, "accumulation", 1)
    told = {step: trace.scalars_of(step) for step in trace.recorded_steps}
    alike = [step for step, measured in told.items() if measured["batch_examples"] == n_examples]
    step = max(alike, default=None)
    measured = {} if step is None else dict(told[step])
    if step == 0:
        measured.pop("peak_bytes", None)
    elif step is not None and "peak_bytes" not in measured:
        measured["peak_bytes"] = max(sum(m.held_bytes.values()) for m in trace.memory(step))

    def whole(name: str) -> int | None:
        return int(measured[name]) if name in measured else None

    predicted = expected["memory"] | {"peak": expected["peak"]["bytes"]}
    return {
        "recorded_step": step,
        "flops_per_step": {
            "predicted": expected["flops_per_step"]["executed"],
            "measured": whole("flops_executed"),
        },
        "memory": {
            name: {"predicted_bytes": n_bytes, "measured_bytes": whole(f"{name}_bytes")}
            for name, n_bytes in predicted.items()
        },
    }
