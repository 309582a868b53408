"""Predicted bytes against two counts of the same step: the engine's own and one made here."""

from dataclasses import dataclass, replace
from itertools import pairwise, product

import pytest
import torch

from core.compare import Comparison, compare
from core.engine.train import Training
from core.memory import (
    activations_bytes,
    gradients_bytes,
    optimizer_bytes,
    train_memory,
    train_ops,
    weights_bytes,
)
from core.ops import Train
from core.optimizers import OPTIMIZERS
from core.quantities import QUANTITIES
from core.specs import ACTIVATIONS, FEATURES, MAX_DEPTH, TrainSpec
from core.trace import Trace
from core.units import DTYPES

# Every depth with every activation; the rest turns along, so that each optimizer meets each
# precision and batch size somewhere.
BATCHES = (1, 7, 10, 16, 30)  # 250 is no multiple of 7, 16 and 30
SPECS = [
    TrainSpec(
        hidden=tuple((3 * depth + 5 * layer + i) % 8 + 1 for layer in range(depth)),
        activation=activation,
        optimizer=list(OPTIMIZERS)[i % 3],
        precision=("fp32", "fp64")[i % 2],
        batch_size=BATCHES[i % 5],
        features=FEATURES[: 1 + i % 7],
        problem="gauss",
    )
    for i, (depth, activation) in enumerate(product(range(MAX_DEPTH + 1), ACTIVATIONS))
]


def name_of(spec: TrainSpec) -> str:
    kind = f"{spec.activation}-{spec.optimizer}-{spec.precision}-{spec.batch_size}"
    return f"{len(spec.hidden)}-{kind}"


# -- the engine's count -------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """What a recorded step says of itself."""

    spec: TrainSpec
    scalars: dict[str, float]

    @property
    def n_examples(self) -> int:
        return int(self.scalars["batch_examples"])

    @property
    def comparison(self) -> tuple[Comparison, ...]:
        return compare(train_memory(self.spec, self.n_examples), self.scalars)


def recorded(spec: TrainSpec, n_epochs: int = 1) -> Step:
    """The step that begins a later pass, which takes what the pass before left over."""
    run = Training(spec)
    for _ in range(n_epochs):
        run.run_epoch()
    step = run.step
    return Step(spec=spec, scalars=Trace(list(run.recorded_step())).scalars_of(step))


# -- the count made here ------------------------------------------------------------------------


FUNCTIONS = {
    "tanh": torch.tanh,
    "relu": torch.relu,
    "sigmoid": torch.sigmoid,
    "linear": torch.nn.Identity(),
}


class Perceptron(torch.nn.Module):
    def __init__(self, spec: TrainSpec) -> None:
        super().__init__()
        widths = [len(spec.features), *spec.hidden, 1]
        dtype = {"fp32": torch.float32, "fp64": torch.float64}[spec.precision]
        self.layers = torch.nn.ModuleList(
            torch.nn.Linear(d_in, d_out, dtype=dtype) for d_in, d_out in pairwise(widths)
        )
        self.function = FUNCTIONS[spec.activation]

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        *hidden, head = self.layers
        for layer in hidden:
            x = self.function(layer(x))
        return torch.tanh(head(x))


def optimizer_of(spec: TrainSpec, model: torch.nn.Module) -> torch.optim.Optimizer:
    match spec.optimizer:
        case "sgd":
            return torch.optim.SGD(model.parameters(), lr=spec.learning_rate)
        case "momentum":
            return torch.optim.SGD(model.parameters(), lr=spec.learning_rate, momentum=0.9)
        case _:
            return torch.optim.AdamW(model.parameters(), lr=spec.learning_rate)


def n_bytes(tensors: list[torch.Tensor]) -> int:
    return sum(t.numel() * t.element_size() for t in tensors)


def counted(spec: TrainSpec, n_examples: int) -> dict[str, float]:
    """Bytes by category of the second step of a torch.nn model of this spec."""
    model = Perceptron(spec)
    optimizer = optimizer_of(spec, model)
    dtype = next(model.parameters()).dtype
    x, target = torch.rand(n_examples, len(spec.features)).to(dtype), torch.rand(n_examples, 1)
    target = target.to(dtype)
    saved: list[torch.Tensor] = []

    def pack(tensor: torch.Tensor) -> torch.Tensor:
        saved.append(tensor)
        return tensor

    for _ in range(2):
        optimizer.zero_grad()
        saved.clear()
        with torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor):
            loss = torch.nn.functional.mse_loss(model(x), target) / 2
        own = {t.data_ptr() for t in (x, target, *model.parameters())}
        kept = {t.data_ptr(): t.untyped_storage().nbytes() for t in saved}
        loss.backward()
        optimizer.step()
    state = [t for values in optimizer.state.values() for t in values.values() if t is not None]
    return {
        "weights_bytes": n_bytes(list(model.parameters())),
        "gradients_bytes": n_bytes([p.grad for p in model.parameters() if p.grad is not None]),
        "optimizer_bytes": n_bytes(state),
        "activations_bytes": sum(size for pointer, size in kept.items() if pointer not in own),
    }


# -- predicted = measured = counted -------------------------------------------------------------


def wrong(comparison: tuple[Comparison, ...]) -> set[str]:
    """The quantities whose prediction is off by more than the catalogue allows."""
    return {
        c.quantity.id
        for c in comparison
        if c.error is None or not abs(c.error) <= c.quantity.tolerance
    }


@pytest.mark.parametrize("spec", SPECS, ids=name_of)
def test_predicted_is_measured_is_counted(spec: TrainSpec):
    """For every category the formula, the recorded step and an independent count agree exactly."""
    step = recorded(spec)
    assert step.n_examples == spec.batch_size + 250 % spec.batch_size
    expected = counted(spec, step.n_examples)
    predicted = {p.prediction.quantity: p.prediction.value for p in step.comparison}
    measured = {p.prediction.quantity: p.measured for p in step.comparison}
    assert predicted == measured == expected
    assert wrong(step.comparison) == set()


@pytest.mark.parametrize("optimizer", OPTIMIZERS)
def test_the_first_step_measures_the_same(optimizer: str):
    """Optimizer state is made within the first update, and counted after it."""
    step = recorded(TrainSpec(optimizer=optimizer), n_epochs=0)
    assert wrong(step.comparison) == set()


def test_every_category_has_a_definition():
    """What is predicted stands in the catalogue, and nothing predicted goes unmeasured."""
    step = recorded(TrainSpec())
    assert train_memory(TrainSpec()).keys() <= QUANTITIES.keys()
    assert all(c.measured is not None for c in step.comparison)


@pytest.mark.parametrize("spec", SPECS, ids=name_of)
def test_the_arithmetic_shown_gives_the_value_shown(spec: TrainSpec):
    """The formula with the numbers put in, computed as a reader would, is the prediction."""
    for prediction in train_memory(spec).values():
        left, right = prediction.arithmetic.replace("×", "*").split(" = ")
        assert eval(left) == int(right) == prediction.value


# -- a wrong prediction is seen -----------------------------------------------------------------

WIDE = TrainSpec(hidden=(8, 5), optimizer="adamw", batch_size=16)


@pytest.fixture(scope="module")
def step() -> Step:
    return recorded(WIDE)


@pytest.mark.parametrize("i", range(7))
def test_a_dropped_op_is_seen(step: Step, i: int):
    """A row missing from the table is an error in each category to which it adds bytes."""
    ops = train_ops(WIDE, step.n_examples)
    assert len(ops) == 7
    fewer, dtype = [*ops[:i], *ops[i + 1 :]], DTYPES[WIDE.precision]
    predictions = (
        weights_bytes(fewer, dtype),
        gradients_bytes(fewer, dtype),
        optimizer_bytes(fewer, dtype, WIDE.optimizer),
        activations_bytes(fewer, Train(batch_size=step.n_examples, dtype=dtype)),
    )
    expected = set()
    if ops[i].n_params:
        expected |= {"weights_bytes", "gradients_bytes", "optimizer_bytes"}
    if ops[i].saved_bytes:
        expected |= {"activations_bytes"}
    assert wrong(compare({p.quantity: p for p in predictions}, step.scalars)) == expected


@pytest.mark.parametrize("part", ["n_buffers", "step_counter_bytes"])
def test_a_dropped_term_of_the_optimizer_is_seen(
    step: Step, monkeypatch: pytest.MonkeyPatch, part: str
):
    """One buffer less, or step counters forgotten, is an error in the optimizer's bytes."""
    fewer = {"n_buffers": 1, "step_counter_bytes": 0}[part]
    monkeypatch.setitem(OPTIMIZERS, "adamw", replace(OPTIMIZERS["adamw"], **{part: fewer}))
    assert wrong(step.comparison) == {"optimizer_bytes"}


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        ({"optimizer": "momentum"}, {"optimizer_bytes"}),
        ({"optimizer": "sgd"}, {"optimizer_bytes"}),
        ({"activation": "linear"}, set()),
        ({"hidden": (8, 4)}, set(train_memory(WIDE))),
        ({"precision": "fp64"}, set(train_memory(WIDE))),
        ({"features": ("x",)}, set(train_memory(WIDE)) - {"activations_bytes"}),
    ],
)
def test_a_prediction_for_other_settings_is_seen(step: Step, change: dict, expected: set[str]):
    """Whatever the formula took wrongly shows in the categories it touches, and only there."""
    predictions = train_memory(replace(WIDE, **change), step.n_examples)
    assert wrong(compare(predictions, step.scalars)) == expected


def test_a_prediction_for_the_usual_batch_is_seen(step: Step):
    """A step that took the examples left over kept more than a usual one."""
    assert step.n_examples == 26
    assert wrong(compare(train_memory(WIDE), step.scalars)) == {"activations_bytes"}


# -- comparison ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("measured", "error"),
    [(400.0, 0.0), (200.0, 1.0), (800.0, -0.5), (0.0, float("inf")), (None, None)],
)
def test_the_error_is_signed_and_relative(measured: float | None, error: float | None):
    """Predicted over measured, less one; infinite where nothing was found; none if not measured."""
    prediction = replace(train_memory(TrainSpec())["weights_bytes"], value=400.0)
    assert Comparison(prediction=prediction, measured=measured).error == error


def test_nothing_predicted_and_nothing_found_is_no_error():
    """Plain SGD keeps no state, and none is measured."""
    prediction = train_memory(TrainSpec())["optimizer_bytes"]
    assert prediction.value == 0
    assert Comparison(prediction=prediction, measured=0.0).error == 0.0


def test_what_was_not_measured_is_left_open():
    """A measurement that is missing, as in a run that was never looked into, is no error."""
    assert [c.error for c in compare(train_memory(TrainSpec()), {})] == [None] * 4
