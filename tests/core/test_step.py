"""A recorded step: its spans, its values, and the four gradients that must agree."""

import json
from itertools import groupby, pairwise

import numpy as np
import pytest
import torch

from core.engine.step import FINITE_DIFFERENCE, N_REPEATS
from core.engine.train import Training
from core.events import PHASES, Array
from core.memory import train_ops
from core.optimizers import BETA_1, BETA_2, EPSILON, MOMENTUM, OPTIMIZERS, WEIGHT_DECAY
from core.specs import ACTIVATIONS, TrainSpec
from core.trace import Trace, pack

SPECS = [
    TrainSpec(
        activation=activation,
        optimizer=list(OPTIMIZERS)[i % 3],
        hidden=((4, 2), (), (8, 8, 8), (3,))[i % 4],
        batch_size=(10, 30, 7)[i % 3],
        precision=precision,
        features=("x", "xy", "siny"),
    )
    for precision in ("fp32", "fp64")
    for i, activation in enumerate(ACTIVATIONS)
]


class Recorded:
    """A recorded step with the run before and after it."""

    def __init__(self, spec: TrainSpec, n_epochs: int = 1) -> None:
        self.spec, self.run = spec, Training(spec)
        for _ in range(n_epochs):
            self.run.run_epoch()
        self.step = self.run.step
        self.before = self.run.network.params.copy()
        self.buffers = [b.copy() for b in self.run.optimizer.buffers]
        self.trace = Trace(list(self.run.recorded_step()))
        self.scalars = self.trace.scalars_of(self.step)
        self.ops = train_ops(spec, int(self.scalars["batch_examples"]))
        self.layers = [op.id for op in self.ops if op.kind == "linear"]

    def array(self, op: str, role: str) -> np.ndarray:
        return self.trace.array(self.step, op, role)

    def joined(self, role: str) -> np.ndarray:
        """A role of every layer in one vector."""
        return np.concatenate([self.array(op, role).ravel() for op in self.layers])

    def flat(self, vector: np.ndarray) -> np.ndarray:
        """An engine's flat vector in the order of `joined`."""
        return np.concatenate([w.T.ravel() for w in self.run.network.views(vector)])

    @property
    def batch(self) -> tuple[np.ndarray, np.ndarray]:
        """Inputs and labels of the step, looked up in the run's data by the recorded indices."""
        indices = self.array("data", "batch")
        x, target = self.run._train
        return x[indices], target[indices]


@pytest.fixture(scope="module", params=SPECS, ids=lambda s: f"{s.activation}-{s.precision}")
def recorded(request: pytest.FixtureRequest) -> Recorded:
    return Recorded(request.param)


# -- spans --------------------------------------------------------------------------------------


def test_spans_follow_each_other(recorded: Recorded):
    """They begin at 0, each where the one before ended, and end with the step."""
    spans = recorded.trace.spans(recorded.step)
    assert spans[0].start_s == 0
    assert all(one.end_s == two.start_s for one, two in pairwise(spans))
    assert all(span.start_s < span.end_s for span in spans)
    assert spans[-1].end_s == recorded.scalars["recorded_step_s"]


def test_spans_run_there_and_back(recorded: Recorded):
    """Forward in the op table's order, the loss, backward in the reverse, then the update."""
    spans = recorded.trace.spans(recorded.step)
    ops = {
        phase: [span.op for span in group] for phase, group in groupby(spans, key=lambda s: s.phase)
    }
    forward = [op.id for op in recorded.ops]
    assert tuple(ops) == PHASES
    assert ops["forward"] + ops["loss"] == forward
    assert ops["backward"] == forward[::-1]
    assert ops["update"] == ["optimizer.step", "optimizer.zero_grad"]


def test_the_time_told_is_one_of_several(recorded: Recorded):
    """The step shown is the median repeat, so it lies between the fastest and the slowest."""
    scalars = recorded.scalars
    assert scalars["step_repeats"] == N_REPEATS
    assert N_REPEATS % 2 == 1
    assert 0 < scalars["step_min_s"] <= scalars["recorded_step_s"] <= scalars["step_max_s"]


# -- values -------------------------------------------------------------------------------------


def test_outputs_and_their_gradients_are_torchs(recorded: Recorded):
    """Every op's recorded output and output gradient equal those of a model built here."""
    functions = {"tanh": torch.tanh, "relu": torch.relu, "sigmoid": torch.sigmoid}
    x, target = recorded.batch
    assert (recorded.array("input", "activation") == x).all()
    assert (recorded.array("target", "activation") == target).all()
    column, outputs = torch.tensor(x), {}
    for op in recorded.ops[:-1]:
        if op.kind == "linear":
            weight = torch.tensor(recorded.array(op.id, "weight"))
            column = column @ weight[:, :-1].T + weight[:, -1]
        else:
            column = functions[op.kind](column)
        column.requires_grad_()
        column.retain_grad()
        outputs[op.id] = column
    loss = ((column - torch.tensor(target)) ** 2).mean() / 2
    loss.backward()
    rounding = {"fp32": 1e-5, "fp64": 1e-13}[recorded.spec.precision]
    assert recorded.scalars["loss"] == pytest.approx(loss.item(), rel=rounding)
    for op, output in outputs.items():
        for role, expected in (("activation", output.detach()), ("grad", output.grad)):
            found = recorded.array(op, role)
            scale = float(expected.abs().max())
            np.testing.assert_allclose(found, expected, rtol=0, atol=rounding * scale)


def test_the_weights_shown_are_the_runs(recorded: Recorded):
    """Weights before the step are the run's to the bit; after it, to the rounding of the format."""
    assert (recorded.joined("weight") == recorded.flat(recorded.before)).all()
    after = recorded.flat(recorded.run.network.params)
    rounding = {"fp32": 2e-6, "fp64": 1e-14}[recorded.spec.precision]
    np.testing.assert_allclose(recorded.joined("weight_after"), after, rtol=0, atol=rounding)


def test_the_update_is_the_arithmetic_shown(recorded: Recorded):
    """Old weight, gradient, optimizer state and learning rate give the new weight."""
    weight, gradient = recorded.joined("weight"), recorded.joined("grad_weight")
    rate = recorded.spec.learning_rate
    if recorded.spec.optimizer == "adamw":
        m_hat, v_hat = recorded.joined("m_hat"), recorded.joined("v_hat")
        expected = weight * (1 - rate * WEIGHT_DECAY) - rate * m_hat / (np.sqrt(v_hat) + EPSILON)
    elif recorded.spec.optimizer == "momentum":
        expected = weight - rate * recorded.joined("velocity")
    else:
        expected = weight - rate * gradient
    rounding = {"fp32": 2e-6, "fp64": 1e-14}[recorded.spec.precision]
    np.testing.assert_allclose(recorded.joined("weight_after"), expected, rtol=0, atol=rounding)


def test_the_state_shown_is_what_the_update_read(recorded: Recorded):
    """Velocity and AdamW's corrected averages follow from the state before and the gradient."""
    gradient = recorded.joined("grad_weight").astype(np.float64)
    buffers = [recorded.flat(b).astype(np.float64) for b in recorded.buffers]
    n = recorded.step + 1
    if recorded.spec.optimizer == "adamw":
        expected = {
            "m_hat": (BETA_1 * buffers[0] + (1 - BETA_1) * gradient) / (1 - BETA_1**n),
            "v_hat": (BETA_2 * buffers[1] + (1 - BETA_2) * gradient**2) / (1 - BETA_2**n),
        }
    elif recorded.spec.optimizer == "momentum":
        expected = {"velocity": MOMENTUM * buffers[0] + gradient}
    else:
        expected = {}
    roles = {e.role for e in recorded.trace.events if isinstance(e, Array)}
    assert roles & {"m_hat", "v_hat", "velocity"} == set(expected)
    rounding = {"fp32": 1e-5, "fp64": 1e-13}[recorded.spec.precision]
    for role, values in expected.items():
        np.testing.assert_allclose(
            recorded.joined(role), values, rtol=0, atol=rounding * np.abs(values).max()
        )


# -- four gradients -----------------------------------------------------------------------------


def test_autograd_and_the_hand_written_gradient_agree(recorded: Recorded):
    """The largest gap between them is of the format's rounding, and is the one that is told."""
    engine = recorded.flat(recorded.run.network.gradient)  # of the update just taken
    gap = float(np.abs(engine - recorded.joined("grad_weight")).max())
    assert recorded.scalars["hand_written_largest_gap"] == pytest.approx(gap, rel=1e-6)
    assert gap <= {"fp32": 1e-6, "fp64": 1e-15}[recorded.spec.precision]


def test_finite_differences_and_autograd_agree(recorded: Recorded):
    """In float64 each weight's slope is its gradient to 1e-4 of itself, or to 1e-9."""
    slopes, gradient = recorded.joined("finite_difference"), recorded.joined("grad_weight")
    assert slopes.dtype == np.float64
    gap = np.abs(slopes - gradient)
    assert recorded.scalars["finite_difference_largest_gap"] == pytest.approx(gap.max())
    if recorded.spec.precision == "fp64":
        assert (gap <= 1e-4 * np.abs(gradient) + 1e-9).all()
    else:
        assert gap.max() <= 1e-6


def test_finite_differences_move_each_weight_by_itself(recorded: Recorded):
    """A slope recorded is the one of a loss computed here with that one weight moved."""
    x, target = (a.astype(np.float64) for a in recorded.batch)
    functions = {
        "tanh": np.tanh,
        "relu": lambda z: np.maximum(z, 0),
        "sigmoid": lambda z: 1 / (1 + np.exp(-z)),
    }

    def loss(moved: str, row: int, column: int, by: float) -> float:
        a = x
        for op in recorded.ops[:-1]:
            if op.kind == "linear":
                w = recorded.array(op.id, "weight").astype(np.float64)
                if op.id == moved:
                    w[row, column] += by
                a = a @ w[:, :-1].T + w[:, -1]
            else:
                a = functions[op.kind](a)
        return float(np.square(a - target).mean() / 2)

    for op in recorded.layers:
        slopes = recorded.array(op, "finite_difference")
        for row, column in ((0, 0), (slopes.shape[0] - 1, slopes.shape[1] - 1)):
            above, below = (loss(op, row, column, s * FINITE_DIFFERENCE) for s in (1, -1))
            assert slopes[row, column] == pytest.approx(
                (above - below) / (2 * FINITE_DIFFERENCE), rel=1e-4, abs=1e-8
            )


# -- the recording ------------------------------------------------------------------------------


def test_a_recorded_step_ends_with_its_time(recorded: Recorded):
    """The scalar by which readers know that a step is whole is the last of its events."""
    last = recorded.trace.events[-1]
    assert getattr(last, "name", None) == "recorded_step_s"
    assert recorded.trace.recorded_steps == [recorded.step]


def test_every_label_is_an_op_of_the_table(recorded: Recorded):
    """Spans, memory and arrays name ops of the table, the optimizer's two, or the data."""
    known = {op.id for op in recorded.ops} | {"optimizer.step", "optimizer.zero_grad"}
    labels = {e.op for e in recorded.trace.events if hasattr(e, "op")}
    assert labels - known == {"data", "input", "target"}


def test_a_recorded_step_survives_its_files(recorded: Recorded):
    """All of its events can be written and read, in lines that any JSON reader takes."""
    lines, arrays = pack(recorded.trace.events)
    for line in lines.splitlines():
        json.loads(line, parse_constant=pytest.fail)
    assert len(Trace.parse(lines, arrays).events) == len(recorded.trace.events)
