"""The browser makes of a real run what Python makes of it: same numbers, same bytes, same update.

Runs of every optimizer, precision and kind of shape, told by the engine, read by the widget's own
modules under node.
"""

import json
import subprocess
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from core.events import Array
from core.memory import train_ops
from core.optimizers import OPTIMIZERS
from core.specs import TrainSpec
from core.trace import Recorder, Trace
from tests.browser import node

READER = Path(__file__).with_name("read_runs.mjs")
FEATURES = ("x", "y", "x2", "y2", "xy", "sinx", "siny")
SPECS = {
    "default": TrainSpec(n_epochs=3),
    "no hidden layer, momentum": TrainSpec(hidden=(), optimizer="momentum", n_epochs=3),
    "no activation, AdamW": TrainSpec(
        hidden=(3, 2), activation="linear", optimizer="adamw", learning_rate=0.01, n_epochs=3
    ),
    "float64, AdamW": TrainSpec(
        hidden=(3,), activation="sigmoid", optimizer="adamw", precision="fp64", n_epochs=3
    ),
    "float64, momentum": TrainSpec(
        hidden=(2, 2), activation="relu", optimizer="momentum", precision="fp64", n_epochs=3
    ),
    "the largest": TrainSpec(hidden=(8,) * 6, features=FEATURES, batch_size=30, n_epochs=3),
}


@pytest.fixture(scope="module")
def read(tmp_path_factory: pytest.TempPathFactory) -> dict[str, tuple[Trace, Any]]:
    """Each run as Python and as the browser reads it."""
    from core.engine.train import train  # imports torch, so not before it is needed

    asked = []
    for i, spec in enumerate(SPECS.values()):
        folder = tmp_path_factory.mktemp(f"run{i}")
        recorder = Recorder(folder)
        recorder.write(train(spec, record_epochs=(0, 2)))
        recorder.close()
        constants = OPTIMIZERS[spec.optimizer].constants
        asked.append(
            {
                "folder": str(folder),
                "ops": [{"id": op.id, "kind": op.kind} for op in train_ops(spec)],
                "optimizer": {
                    "name": spec.optimizer,
                    "learning_rate": spec.learning_rate,
                    **constants,
                },
                "features": spec.features,
            }
        )
    done = subprocess.run(
        [node.find(), READER, json.dumps(asked)], capture_output=True, text=True, timeout=120
    )
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""
    traces = [Trace.read(Path(a["folder"])) for a in asked]
    return dict(zip(SPECS, zip(traces, json.loads(done.stdout), strict=True), strict=True))


each_run = pytest.mark.parametrize("name", SPECS)


@each_run
def test_recorded_steps_and_their_numbers_are_the_same(name: str, read: dict[str, Any]):
    trace, seen = read[name]
    assert [s["step"] for s in seen["steps"]] == trace.recorded_steps == [0, 2 * steps_a_pass(name)]
    assert seen["n_frames"] == len(trace.scalars("epoch"))
    for step in seen["steps"]:
        arrays = {
            f"{e.op} {e.role}": e.numbers
            for e in trace.events
            if isinstance(e, Array)
            and e.step == step["step"]
            and e.role not in ("boundary", "frame_weight", "points", "labels")
        }
        assert set(step["arrays"]) == set(arrays)
        for key, numbers in arrays.items():
            assert step["arrays"][key]["shape"] == list(numbers.shape)
            assert np.array_equal(step["arrays"][key]["values"], numbers.ravel()), key
        scalars = trace.scalars_of(step["step"])
        assert step["scalars"] == {key: scalars[key] for key in step["scalars"]}


def steps_a_pass(name: str) -> int:
    """Batches in the 250 training examples; what is left over goes into the next pass."""
    return 250 // SPECS[name].batch_size


@each_run
def test_no_memory_sample_is_lost(name: str, read: dict[str, Any]):
    trace, seen = read[name]
    for step in seen["steps"]:
        assert step["held_bytes"] == [m.held_bytes for m in trace.memory(step["step"])]


@each_run
def test_the_outputs_that_are_drawn_as_held_are_those_that_the_ledger_counts(
    name: str, read: dict[str, Any]
):
    """After every op of the step, forward and backward."""
    trace, seen = read[name]
    for step in seen["steps"]:
        memory = trace.memory(step["step"])
        for span, drawn in zip(trace.spans(step["step"]), step["outputs"], strict=True):
            last = [m for m in memory if (m.phase, m.op) == (span.phase, span.op)][-1]
            assert drawn == last.held_bytes["activations"], (span.phase, span.op)


@each_run
def test_the_arithmetic_shown_gives_the_weight_that_was_recorded(name: str, read: dict[str, Any]):
    """To the rounding of the run's own format, for every weight and bias."""
    _, seen = read[name]
    spec = SPECS[name]
    epsilon = {"fp32": 2.0**-23, "fp64": 2.0**-52}[spec.precision]
    n_params = sum(op.n_params for op in train_ops(spec))
    for step in seen["steps"]:
        before, computed, after = np.array(step["weights"]).T
        assert len(before) == n_params
        largest = np.maximum(np.maximum(abs(before), abs(after)), 1e-3)
        assert (abs(computed - after) <= 8 * epsilon * largest).all()
        assert (before != after).any()
