"""A training run of the playground network: state, pictures, and what it tells along the way."""

import math
import time
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, Union

import numpy as np

from core.engine import problems
from core.engine.playground import Network, Optimizer, batches
from core.events import Array, Ended, Event, Scalar, Started, quantise
from core.machines import code_version, host
from core.shapes import MlpShape
from core.specs import (
    AnswerSweepSpec,
    CalibrationSpec,
    DepthsSpec,
    FinetuneSpec,
    GenerateSpec,
    LadderSpec,
    PlaygroundSpec,
    RunSpec,
    Spec,
    TrainSpec,
)
from core.units import DTYPES

if TYPE_CHECKING:
    from core.engine.answer import Answer
    from core.engine.answer_sweep import AnswerSweep
    from core.engine.calibrate import Calibrating
    from core.engine.depths import DepthSweep
    from core.engine.finetune import Finetune
    from core.engine.ladder import Ladder
    from core.engine.train_torch import TorchTraining

OUTPUT_GRID = 48  # cells a side of the output's picture
NEURON_GRID = 16  # cells a side of a neuron's picture
DENSE_EPOCHS = 100  # every epoch is kept up to here, then one in every hundredth of the run so far


Run = Union[
    "Training",
    "TorchTraining",
    "DepthSweep",
    "Finetune",
    "Answer",
    "AnswerSweep",
    "Calibrating",
    "Ladder",
]


class Diverged(Exception):
    """A number stopped being finite; the run's state is the last finite one."""

    def __init__(self, step: int, op: str) -> None:
        super().__init__(f"step {step}: {op} is no longer a finite number")
        self.step, self.op = step, op


class Training:
    """One run of a spec. Deterministic: the same spec gives the same bits, however it is driven."""

    def __init__(self, spec: TrainSpec) -> None:
        self.spec = spec
        dtype = np.dtype(DTYPES[spec.precision].numpy)
        rng = np.random.default_rng(spec.seed)
        self.examples = problems.examples(spec.problem, spec.noise, rng)
        self.network = Network(MlpShape.of(spec), dtype)
        self.network.initialise(rng)
        self.optimizer = Optimizer(spec.optimizer, spec.learning_rate, self.network.params)
        self.step = 0  # updates made
        self.epoch = 0  # passes over the training data completed
        n_train = self.examples.n_train
        x = problems.features(self.examples.points, spec.features).astype(dtype)
        target = self.examples.labels[:, None].astype(dtype)
        self._train = (x[:n_train], target[:n_train])
        self._held_out = (x[n_train:], target[n_train:])
        self._pictures = {
            n: problems.features(problems.grid(n), spec.features).astype(dtype)
            for n in (OUTPUT_GRID, NEURON_GRID)
        }
        self._batches = batches(n_train, spec.batch_size)
        self._next = next(self._batches)
        self._last_finite = self.network.params.copy()

    # -- driving --------------------------------------------------------------------------------

    @property
    def moment(self) -> int:
        """Changes whenever there is something new to tell."""
        return self.step

    @property
    def done(self) -> bool:
        return self.epoch >= self.spec.n_epochs

    @property
    def summary(self) -> str:
        return f"{self.epoch} passes over the data"

    @property
    def last_tick_is_next(self) -> bool:
        return self.epoch == self.spec.n_epochs - 1

    def tick(self) -> None:
        """What is done between two looks at the clock and the commands: one pass over the data."""
        self.run_epoch()

    def run_epoch(self) -> None:
        """Updates until one more pass over the training data is complete.

        Raises: Diverged.
        """
        epoch = self.epoch
        while self.epoch == epoch:
            self._update()

    def _update(self) -> None:
        _, indices = self._next
        x, target = self._train
        np.copyto(self._last_finite, self.network.params)
        with np.errstate(all="ignore"):
            self.network.backward(x[indices], target[indices])
            self.optimizer.update(self.network.params, self.network.gradient)
            finite = math.isfinite(self.network.params.sum())
        if not finite:
            op = self._first_not_finite()
            self.network.params[:] = self._last_finite
            raise Diverged(self.step, op)
        self.step += 1
        self._next = next(self._batches)
        self.epoch = self._next[0]

    def _first_not_finite(self) -> str:
        for (name, *_), gradient in zip(
            reversed(self.network.shape.layers),
            reversed(self.network.weight_gradients),
            strict=True,
        ):
            if not np.isfinite(gradient).all():
                return f"gradient of {name}.linear"
        return "optimizer.step"

    def recorded_step(self) -> Iterator[Event]:
        """Events of the next update looked at op by op; then takes it."""
        # Here and not above: a run that is never looked into does without torch.
        from core.engine.step import Batch, recorded_step

        x, target = self._train
        indices = self._next[1]
        batch = Batch(x_BF=x[indices], target_B1=target[indices])
        yield Array(step=self.step, op="data", role="batch", values=indices.astype(np.int32))
        yield from recorded_step(self.step, self.network, self.optimizer, batch)
        self._update()

    # -- telling --------------------------------------------------------------------------------

    def opening(self) -> Iterator[Event]:
        """The data set and the inputs' pictures, once."""
        yield Array(
            step=0, op="data", role="points", values=self.examples.points.astype(np.float32)
        )
        yield Array(step=0, op="data", role="labels", values=self.examples.labels.astype(np.int8))
        yield Scalar(step=0, name="n_train", value=self.examples.n_train)
        for name, column in zip(self.spec.features, self._pictures[NEURON_GRID].T, strict=True):
            top = float(np.abs(column).max())
            picture = column.reshape(NEURON_GRID, NEURON_GRID)
            yield quantise(0, f"input.{name}", "boundary", picture, low=-top, high=top)

    def wants_frame(self, epochs_per_s: float = math.inf) -> bool:
        """Whether this epoch is kept: all at first, then fewer, but five a second where paced."""
        every = max(1, int(min(self.epoch // DENSE_EPOCHS, epochs_per_s // 5)))
        return self.epoch % every == 0 or self.done

    def frame(self) -> Iterator[Event]:
        """Losses, accuracies, weights, and the pictures of every neuron, now."""
        step = self.step
        yield Scalar(step=step, name="epoch", value=self.epoch)
        for name, (x, target) in (("train", self._train), ("held_out", self._held_out)):
            output = self.network.forward(x)[-1]
            error = output - target
            yield Scalar(step=step, name=f"{name}_loss", value=float(0.5 * np.mean(error * error)))
            right = np.mean((output > 0) == (target > 0))
            yield Scalar(step=step, name=f"{name}_accuracy", value=float(right))
        names = [name for name, *_ in self.network.shape.layers]
        for name, w_IO in zip(names, self.network.weights, strict=True):
            yield Array(step=step, op=f"{name}.linear", role="frame_weight", values=w_IO.T.copy())
        small = self.network.forward(self._pictures[NEURON_GRID])[1:-1]
        for name, column in zip(names, small, strict=False):
            yield self._picture(name, column, NEURON_GRID)
        output = self.network.forward(self._pictures[OUTPUT_GRID])[-1]
        yield self._picture("head", output, OUTPUT_GRID)

    def _picture(self, name: str, column: np.ndarray, n: int) -> Array:
        bounded = name == "head" or self.spec.activation in ("tanh", "sigmoid")
        top = 1.0 if bounded else max(float(np.abs(column).max()), 1e-6)
        pictures = column.T.reshape(-1, n, n)
        return quantise(self.step, name, "boundary", pictures, low=-top, high=top)

    # -- keeping --------------------------------------------------------------------------------

    def keep(self, folder: Path) -> None:
        """Nothing but what it has told."""

    def checkpoint(self) -> dict[str, np.ndarray]:
        """Everything that `restore` needs to go on with the same bits."""
        return {
            "params": self.network.params.copy(),
            "step": np.array(self.step),
            **{f"buffer_{i}": b.copy() for i, b in enumerate(self.optimizer.buffers)},
        }

    def restore(self, saved: dict[str, np.ndarray]) -> None:
        self.network.params[:] = saved["params"]
        for i, buffer in enumerate(self.optimizer.buffers):
            buffer[:] = saved[f"buffer_{i}"]
        self.optimizer.n_steps = self.step = int(saved["step"])
        self._batches = batches(self.examples.n_train, self.spec.batch_size)
        for _ in range(self.step + 1):
            self._next = next(self._batches)
        self.epoch = self._next[0]


def run_of(spec: RunSpec) -> "Run":
    """The run of any spec."""
    if isinstance(spec, GenerateSpec):
        from core.engine.answer import Answer

        return Answer(spec)
    if isinstance(spec, AnswerSweepSpec):
        from core.engine.answer_sweep import AnswerSweep

        return AnswerSweep(spec)
    if isinstance(spec, CalibrationSpec):
        from core.engine.calibrate import Calibrating

        return Calibrating(spec)
    if isinstance(spec, LadderSpec):
        from core.engine.ladder import Ladder

        return Ladder(spec)
    if isinstance(spec, FinetuneSpec):
        from core.engine.finetune import Finetune

        return Finetune(spec)
    assert isinstance(spec, Spec)
    return training_of(spec)


def training_of(spec: Spec) -> "Training | TorchTraining | DepthSweep":
    """The run of a spec that trains."""
    if isinstance(spec, PlaygroundSpec):
        return Training(spec)
    # Here and not above: the torch runs know this module.
    from core.engine.depths import DepthSweep
    from core.engine.train_torch import TorchTraining

    return DepthSweep(spec) if isinstance(spec, DepthsSpec) else TorchTraining(spec)


def started(spec: RunSpec, attempt: str) -> Started:
    return Started(
        spec_id=spec.spec_id,
        attempt=attempt,
        spec=spec.to_json(),
        machine=host(),
        code_version=code_version(),
        started_unix_s=time.time(),
    )


def train(spec: TrainSpec, record_epochs: tuple[int, ...] = ()) -> Iterator[Event]:
    """Every event between Started and Ended of an unpaced run.

    `record_epochs`: after these many epochs one step is recorded op by op.
    """
    yield from frames_and_steps(Training(spec), record_epochs)


def frames_and_steps(
    run: "Training | TorchTraining", record_ticks: tuple[int, ...]
) -> Iterator[Event]:
    """`train` on a run that the caller keeps; a tick is an epoch of the playground, else an update.

    Recording a step takes it, so that the tick after it is counted as done too.
    """
    yield from run.opening()
    n_ticks = 0
    while not run.done:
        recording = n_ticks in record_ticks
        if recording or run.wants_frame():
            yield from run.frame()
        if recording:
            yield from run.recorded_step()
        if not run.done and not (recording and not isinstance(run, Training)):
            run.tick()
        n_ticks += 1
    yield from run.frame()


def advice(spec: RunSpec) -> dict[str, Any]:
    """The setting that most likely ends divergence."""
    return {"learning_rate": spec.learning_rate / 10} if isinstance(spec, Spec) else {}


def ended(
    status: str,
    message: str,
    run: "Run | None",
    began: tuple[float, float],
) -> Ended:
    """`began`: perf_counter and process_time when the run began, seconds."""
    return Ended(
        status=status,
        message=message,
        n_steps=run.step if run else 0,
        wall_s=time.perf_counter() - began[0],
        cpu_s=time.process_time() - began[1],
        advice=advice(run.spec) if run and status == "diverged" else {},
    )
