"""Torch runs in the worker: paused, parked and taken up again they go on with the same bits."""

import time
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest

from core.events import Array, Scalar
from core.specs import AdditionSpec, DigitsSpec, PydocsSpec, Spec
from core.trace import CHECKPOINT, EVENTS, Trace
from core.worker_host import WorkerHost

TINY = {"n_layer": 1, "d_model": 16, "batch_size": 4}
# Enough updates that a command comes in their midst, however fast the machine is.
SPECS: list[Spec] = [
    AdditionSpec(**TINY, dropout=0.2, n_steps=200),
    AdditionSpec(**TINY, precision="fp16", accumulation=2, n_steps=200),
    DigitsSpec(d_model=16, optimizer="momentum", n_epochs=20),
    PydocsSpec(**TINY, seq_len=16, architecture="llama", checkpointing=True, n_steps=200),
]


@pytest.fixture(scope="module")
def host(tmp_path_factory: pytest.TempPathFactory) -> Iterator[WorkerHost]:
    """Its paused runs give their process back at once."""
    made = WorkerHost(tmp_path_factory.mktemp("runs"), lambda: 0.0, park_after_s=0.05)
    made.warm()
    yield made
    made.close()


def until(true: Callable[[], object]) -> None:
    end = time.monotonic() + 120
    while not true():
        assert time.monotonic() < end, "it never became true"
        time.sleep(0.005)


def folder(host: WorkerHost, spec: Spec, attempt: str) -> Path:
    found = host.folder(spec, attempt)
    assert found is not None
    return found


def trace(host: WorkerHost, spec: Spec, attempt: str) -> Trace:
    found = folder(host, spec, attempt)
    return Trace.read(found) if (found / EVENTS).exists() else Trace()


def over(host: WorkerHost, spec: Spec, attempt: str) -> Trace:
    """The whole run, waited for."""
    until(lambda: trace(host, spec, attempt).ended and not host.is_live(attempt))
    return trace(host, spec, attempt)


def parked(host: WorkerHost, spec: Spec, attempt: str) -> bool:
    return (folder(host, spec, attempt) / CHECKPOINT).exists() and not host.is_live(attempt)


def n_updates(run: Trace) -> int:
    return run.scalars("epoch")[-1][0]


def outcome(run: Trace) -> dict[str, object]:
    """The last update's every number but its times: it is recorded."""
    step = run.recorded_steps[-1]
    assert step == n_updates(run) - 1
    numbers: dict[str, object] = {
        e.name: e.value
        for e in run.events
        if isinstance(e, Scalar) and e.step == step and (e.name == "loss" or "norm." in e.name)
    }
    for e in run.events:
        if isinstance(e, Array) and e.step == step:
            numbers[f"{e.op} {e.role}"] = e.values.tobytes()
    last = run.scalars_of(n_updates(run))
    return numbers | {name: last[name] for name in ("held_out_loss", "held_out_accuracy")}


@pytest.mark.parametrize("spec", SPECS, ids=lambda s: f"{s.specimen}-{s.precision}")
def test_a_run_that_was_paused_parked_and_stepped_ends_with_the_same_bits(
    host: WorkerHost, spec: Spec
):
    undisturbed = over(host, spec, host.submit(spec))
    assert undisturbed.ended is not None and undisturbed.ended.status == "finished"

    attempt = host.submit(spec, paused=True)
    until(lambda: parked(host, spec, attempt))  # before its first update
    host.command(spec, attempt, "resume")
    until(lambda: n_updates(trace(host, spec, attempt)) > 3)
    host.command(spec, attempt, "pause")
    until(lambda: parked(host, spec, attempt))
    halted = n_updates(trace(host, spec, attempt))
    host.command(spec, attempt, "step")
    until(lambda: n_updates(trace(host, spec, attempt)) == halted + 1)
    until(lambda: parked(host, spec, attempt))
    host.command(spec, attempt, "resume")
    disturbed = over(host, spec, attempt)
    assert len(disturbed.recorded_steps) == len(undisturbed.recorded_steps) + 2
    assert 3 < halted < n_updates(undisturbed)
    one, other = outcome(undisturbed), outcome(disturbed)
    assert one.keys() == other.keys() and len(one) > 20
    assert [name for name in one if one[name] != other[name]] == []


def test_a_run_that_diverges_ends_with_its_op_and_an_advice(host: WorkerHost):
    spec = DigitsSpec(n_layer=12, d_model=256, activation="linear", optimizer="sgd",
                      learning_rate=10.0, n_epochs=500)  # fmt: skip
    run = over(host, spec, host.submit(spec))
    ended = run.ended
    assert ended is not None and ended.status == "diverged"
    assert ended.message.endswith("is no longer a finite number")
    assert ended.message.startswith(f"step {ended.n_steps}: ")
    assert ended.advice == {"learning_rate": pytest.approx(1.0)}


def test_a_torch_run_opens_with_a_step_to_look_into_and_ends_with_one(host: WorkerHost):
    spec = AdditionSpec(**TINY, n_steps=5)
    run = over(host, spec, host.submit(spec))
    assert run.recorded_steps == [0, 4]
    for step in run.recorded_steps:
        assert {span.phase for span in run.spans(step)} == {"forward", "loss", "backward", "update"}
        weights = run.array(step, "blocks.0.mlp.up", "weight")
        after = run.array(step, "blocks.0.mlp.up", "weight_after")
        assert not np.array_equal(weights, after)


def test_pausing_a_run_that_is_paused_changes_nothing(host: WorkerHost):
    """A second press that comes too late is no wish for another step."""
    spec = AdditionSpec(**TINY, n_steps=5000)
    attempt = host.submit(spec, paused=True)
    host.command(spec, attempt, "pause")
    host.command(spec, attempt, "pause")
    until(lambda: parked(host, spec, attempt))
    assert trace(host, spec, attempt).recorded_steps == [0]
    host.command(spec, attempt, "stop")
    assert over(host, spec, attempt).recorded_steps == [0]
