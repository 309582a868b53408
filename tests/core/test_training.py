"""A run of the playground network: its bits, whatever is done to it, and what it tells."""

import hashlib
import io
import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from core.engine import problems
from core.engine.train import (
    NEURON_GRID,
    OUTPUT_GRID,
    Diverged,
    Training,
    ended,
    train,
)
from core.events import Array, Scalar
from core.specs import TrainSpec
from core.trace import Trace
from tests.core.strategies import train_specs

ROOT = Path(__file__).resolve().parent.parent.parent

# Each differs from the others in whatever carries state from one update to the next.
STATEFUL = [
    TrainSpec(),
    TrainSpec(optimizer="momentum", batch_size=30, precision="fp64", activation="sigmoid"),
    TrainSpec(optimizer="adamw", batch_size=7, hidden=(8, 8, 8), activation="relu"),
    TrainSpec(optimizer="adamw", batch_size=1, hidden=(), problem="spiral", noise=0.2),
]


def digest(run: Training) -> str:
    """Hash of all that decides how a run goes on."""
    state = [run.network.params, *run.optimizer.buffers, np.array([run.step, run.epoch])]
    return hashlib.sha256(b"".join(a.tobytes() for a in state)).hexdigest()


def undisturbed(spec: TrainSpec, n_epochs: int) -> str:
    run = Training(spec)
    for _ in range(n_epochs):
        run.run_epoch()
    return digest(run)


# -- bits ---------------------------------------------------------------------------------------


def test_a_seed_gives_the_same_bits_in_every_process():
    """Two fresh processes on one thread end with the same parameters to the bit."""
    program = (
        "import sys, json, hashlib\n"
        "from core.engine.train import Training\n"
        "from core.specs import TrainSpec\n"
        "for record in json.loads(sys.argv[1]):\n"
        "    run = Training(TrainSpec.from_json(record))\n"
        "    for _ in range(20): run.run_epoch()\n"
        "    print(hashlib.sha256(run.network.params.tobytes()).hexdigest())\n"
    )
    env = os.environ | {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}

    def bits(hash_seed: str) -> list[str]:
        done = subprocess.run(
            [sys.executable, "-c", program, json.dumps([s.to_json() for s in STATEFUL])],
            cwd=ROOT,
            env=env | {"PYTHONHASHSEED": hash_seed},
            capture_output=True,
            text=True,
            check=True,
        )
        return done.stdout.split()

    one, other = bits("1"), bits("2")
    assert one == other
    assert len(set(one)) == len(STATEFUL)


def test_another_seed_gives_other_bits():
    """The seed decides both the data and the weights."""
    one, other = Training(TrainSpec(seed=1)), Training(TrainSpec(seed=2))
    assert (one.examples.points != other.examples.points).all()
    assert (one.network.params != other.network.params).any()


@pytest.mark.parametrize("spec", STATEFUL)
def test_recording_a_step_leaves_the_bits_alone(spec: TrainSpec):
    """A run looked into op by op, at its start, middle and a pass's first update, is the same."""
    run = Training(spec)
    list(run.recorded_step())
    run.run_epoch()
    list(run.recorded_step())
    list(run.recorded_step())
    run.run_epoch()
    run.run_epoch()
    assert digest(run) == undisturbed(spec, 3)


@pytest.mark.parametrize("spec", STATEFUL)
def test_a_recorded_step_is_one_update(spec: TrainSpec):
    """Recording takes exactly the one update it shows."""
    run = Training(spec)
    run.run_epoch()
    step = run.step
    events = list(run.recorded_step())
    assert run.step == step + 1
    assert {event.step for event in events} == {step}


def test_telling_leaves_the_bits_alone():
    """Pictures and losses may be asked for at any time and any number of times."""
    spec = STATEFUL[2]
    run = Training(spec)
    for _ in range(3):
        list(run.opening())
        list(run.frame())
        run.wants_frame(10)
        run.run_epoch()
        list(run.frame())
    assert digest(run) == undisturbed(spec, 3)


def through_a_file(saved: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    file = io.BytesIO()
    np.savez(file, **saved)
    file.seek(0)
    with np.load(file, allow_pickle=False) as loaded:
        return dict(loaded)


@settings(max_examples=25)
@given(train_specs, st.integers(0, 40))
def test_a_checkpoint_goes_on_with_the_same_bits(spec: TrainSpec, n_updates: int):
    """Saved after any update and restored into a new run, also between two passes, all is equal."""
    run = Training(spec)
    while run.step < n_updates:
        run._update()
    taken_up = Training(spec)
    taken_up.restore(through_a_file(run.checkpoint()))
    assert digest(taken_up) == digest(run)
    run.run_epoch()
    taken_up.run_epoch()
    assert digest(taken_up) == digest(run)


def test_a_checkpoint_is_a_copy():
    """Going on after a checkpoint does not change it."""
    run = Training(STATEFUL[1])
    saved = run.checkpoint()
    before = {name: array.tobytes() for name, array in saved.items()}
    run.run_epoch()
    assert {name: array.tobytes() for name, array in saved.items()} == before


# -- divergence ---------------------------------------------------------------------------------


def overflowing_forward(run: Training) -> None:
    """Six layers of weights so large that their product exceeds float32."""
    run.network.params[:] = 1e30


def overflowing_gradient(run: Training) -> None:
    """Outputs of zero, and an error that grows 8e12 times with each layer on its way back."""
    for w_IO in run.network.weights:
        w_IO[:] = 0
    for w_IO in run.network.weights[1:]:
        w_IO[:-1] = 1e12


def overflowing_update(run: Training) -> None:
    """A velocity that is finite and whose step is not."""
    run.optimizer.buffers[0][:] = 3e38


@pytest.mark.parametrize(
    ("prepare", "op"),
    [
        (overflowing_forward, "gradient of head.linear"),
        (overflowing_gradient, "gradient of layers.2.linear"),
        (overflowing_update, "optimizer.step"),
    ],
)
def test_divergence_names_the_step_and_the_op(prepare: Callable[[Training], None], op: str):
    """The first number that stops being finite ends the run at its last finite parameters."""
    deep = TrainSpec(hidden=(8,) * 6, activation="linear", optimizer="momentum", learning_rate=10)
    run = Training(deep)
    run.run_epoch()
    step = run.step
    prepare(run)
    before = run.network.params.copy()
    with pytest.raises(Diverged) as why:
        run.run_epoch()
    assert (why.value.step, why.value.op) == (step, op)
    assert str(why.value) == f"step {step}: {op} is no longer a finite number"
    assert run.step == step
    assert run.network.params.tobytes() == before.tobytes()


def test_divergence_ends_with_advice():
    """The last event of a diverged run says which setting would help; others say nothing."""
    run = Training(TrainSpec(learning_rate=3.0))
    assert ended("diverged", "", run, (0.0, 0.0)).advice == {"learning_rate": pytest.approx(0.3)}
    assert ended("finished", "", run, (0.0, 0.0)).advice == {}
    assert ended("failed", "", None, (0.0, 0.0)).n_steps == 0


# -- what a run tells ---------------------------------------------------------------------------


def test_the_opening_is_the_data():
    """Points, labels and where training ends are told once, as the seed draws them."""
    spec = TrainSpec(problem="xor", features=("xy", "sinx"))
    run = Training(spec)
    trace = Trace(list(run.opening()))
    data = problems.examples("xor", 0.0, np.random.default_rng(spec.seed))
    assert (trace.array(0, "data", "points") == data.points.astype(np.float32)).all()
    assert (trace.array(0, "data", "labels") == data.labels).all()
    assert trace.scalars_of(0)["n_train"] == 250
    cells = problems.features(problems.grid(NEURON_GRID), spec.features)
    for name, column in zip(spec.features, cells.T, strict=True):
        picture = trace.array(0, f"input.{name}", "boundary")
        shade = 2 * np.abs(column).max() / 255
        assert np.abs(picture.ravel() - column).max() <= shade / 2 + 1e-5


def reference_outputs(run: Training, points: np.ndarray) -> list[np.ndarray]:
    """Outputs of every layer by torch, float64, shape (O, N)."""
    functions = {"tanh": torch.tanh, "relu": torch.relu, "sigmoid": torch.sigmoid}
    column = torch.tensor(problems.features(points, run.spec.features))
    outputs = []
    for (_, _, _, activation), w_IO in zip(
        run.network.shape.layers, run.network.weights, strict=True
    ):
        w = torch.tensor(w_IO.astype(np.float64))
        column = column @ w[:-1] + w[-1]
        column = functions[activation](column) if activation in functions else column
        outputs.append(column.numpy().T)
    return outputs


@pytest.mark.parametrize("activation", ["tanh", "relu", "sigmoid", "linear"])
def test_a_frame_is_the_network_now(activation: str):
    """Losses, accuracies, weights and every neuron's picture are those of the parameters."""
    run = Training(TrainSpec(activation=activation, hidden=(5, 3), noise=0.1))
    for _ in range(5):
        run.run_epoch()
    trace, step = Trace(list(run.frame())), run.step
    scalars = trace.scalars_of(step)
    assert scalars["epoch"] == 5
    halves = {"train": slice(None, 250), "held_out": slice(250, None)}
    for name, part in halves.items():
        output = reference_outputs(run, run.examples.points[part])[-1][0]
        labels = run.examples.labels[part]
        loss = np.square(output - labels).mean() / 2
        assert scalars[f"{name}_loss"] == pytest.approx(loss, rel=1e-5)
        assert scalars[f"{name}_accuracy"] == np.mean(np.sign(output) == labels)
    names = [name for name, *_ in run.network.shape.layers]
    for name, w_IO in zip(names, run.network.weights, strict=True):
        assert (trace.array(step, f"{name}.linear", "frame_weight") == w_IO.T).all()
    for i, name in enumerate(names):
        n = OUTPUT_GRID if name == "head" else NEURON_GRID
        column = reference_outputs(run, problems.grid(n))[i]
        picture = next(e for e in trace.events if isinstance(e, Array) and e.op == name)
        assert picture.values.shape == (len(column), n, n)
        assert picture.low is not None and picture.high is not None
        half_a_shade = (picture.high - picture.low) / 255 / 2
        gap = np.abs(picture.numbers.reshape(len(column), -1) - column).max()
        assert gap <= half_a_shade * (1 + 1e-4) + 1e-6


def test_a_whole_run_tells_its_epochs_in_order():
    """From the first frame to the last, every early epoch is told, and recorded steps are whole."""
    trace = Trace(list(train(TrainSpec(n_epochs=12), record_epochs=(0, 11))))
    assert [value for _, value in trace.scalars("epoch")] == list(range(13))
    assert [step for step, _ in trace.scalars("epoch")] == [25 * epoch for epoch in range(13)]
    assert trace.recorded_steps == [0, 11 * 25]


def test_frames_thin_out():
    """Every epoch is told at first, then about one in every hundredth of the run so far."""
    run = Training(TrainSpec(n_epochs=500))
    told = []
    while not run.done:
        run.epoch += 1
        if run.wants_frame():
            told.append(run.epoch)
    assert told[:199] == list(range(1, 200))
    assert told[199:249] == list(range(200, 300, 2))
    assert told[-1] == 500
    assert len(told) < 350


@pytest.mark.parametrize("pace", [1, 4, 5, 9, 24, 50, 240])
def test_a_paced_run_tells_five_frames_a_second(pace: int):
    """At any age, ten seconds of a paced run hold fifty frames, or every epoch if it is slower."""
    run = Training(TrainSpec(n_epochs=5000))
    told = 0
    for epoch in range(4800, 4800 + 10 * pace):
        run.epoch = epoch % 5000
        told += run.wants_frame(pace)
    assert told >= min(50, 10 * pace)


@settings(max_examples=15)
@given(train_specs)
def test_a_run_counts_its_updates(spec: TrainSpec):
    """An epoch ends after 250 // batch updates, whatever the settings."""
    run = Training(spec)
    run.run_epoch()
    run.run_epoch()
    assert run.epoch == 2
    assert run.step == 2 * (250 // spec.batch_size)
    assert all(isinstance(e, Scalar | Array) for e in run.frame())
