"""The NumPy engine against TensorFlow Playground's own numbers, torch, and finite differences."""

import itertools
import json
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from core.engine import problems
from core.engine.playground import Network, Optimizer, batches
from core.optimizers import BETA_1, BETA_2, EPSILON, MOMENTUM, WEIGHT_DECAY
from core.shapes import MlpShape
from core.specs import ACTIVATIONS, MAX_DEPTH, OPTIMIZERS, TrainSpec

GOLDENS = Path(__file__).resolve().parent.parent / "data" / "playground"
FEATURE_NAMES = {
    "x": "x",
    "y": "y",
    "xSquared": "x2",
    "ySquared": "y2",
    "xTimesY": "xy",
    "sinX": "sinx",
    "sinY": "siny",
}
FUNCTIONS = {
    "tanh": torch.tanh,
    "relu": torch.relu,
    "sigmoid": torch.sigmoid,
    "linear": lambda z: z,
}


# -- TensorFlow Playground ----------------------------------------------------------------------


def half(golden: dict, part: str) -> tuple[np.ndarray, np.ndarray]:
    """(inputs, labels) of the training or the held-out half of a golden run."""
    points = np.array([(p["x"], p["y"]) for p in golden[part]])
    names = tuple(FEATURE_NAMES[name] for name in golden["features"])
    labels = np.array([[float(p["label"])] for p in golden[part]])
    return problems.features(points, names), labels


# The 7-feature spiral is chaotic: after epoch 100 the order of summation decides.
@pytest.mark.parametrize(("name", "last_epoch"), [("0", 1000), ("1", 100), ("2", 1000)])
def test_the_engine_follows_tensorflow_playground(name: str, last_epoch: int):
    """From the same data and weights, losses and accuracy are the original's to 1e-12."""
    golden = json.loads((GOLDENS / f"golden_{name}.json").read_text())
    (x, target), (x_out, target_out) = half(golden, "train"), half(golden, "test")
    hidden = tuple(len(bias) for bias in golden["B"][:-1])
    network = Network(
        MlpShape(d_in=x.shape[1], hidden=hidden, d_out=1, activation="tanh"), np.float64
    )
    for w_IO, weight, bias in zip(network.weights, golden["W"], golden["B"], strict=True):
        w_IO[:-1], w_IO[-1] = np.array(weight).T, bias
    optimizer = Optimizer("sgd", 0.03, network.params)
    expected = {row[0]: row[1:] for row in golden["traj"] if row[0] <= last_epoch}

    def row() -> list[float]:
        accuracy = np.mean((network.forward(x_out)[-1] > 0) == (target_out > 0))
        return [network.loss(x, target), network.loss(x_out, target_out), float(accuracy)]

    found = {0: row()}
    passes = itertools.groupby(batches(len(x), 10), key=lambda update: update[0])
    for epoch, updates in itertools.islice(passes, last_epoch):
        for _, indices in updates:
            network.backward(x[indices], target[indices])
            optimizer.update(network.params, network.gradient)
        if epoch + 1 in expected:
            found[epoch + 1] = row()
    assert found.keys() == expected.keys()
    for epoch, values in expected.items():
        assert found[epoch] == pytest.approx(values, rel=0, abs=1e-12), f"epoch {epoch}"


# -- gradients ----------------------------------------------------------------------------------


def network_and_data(
    activation: str, depth: int, dtype: type, n_examples: int = 12
) -> tuple[Network, np.ndarray, np.ndarray]:
    """A network with weights from its own generator, inputs of the plane's size, labels."""
    rng = np.random.default_rng(100 * depth + len(activation))
    hidden = tuple(rng.integers(2, 9, depth).tolist())
    network = Network(MlpShape(d_in=3, hidden=hidden, d_out=1, activation=activation), dtype)
    network.params[:] = rng.uniform(-1, 1, network.params.shape)
    x = rng.uniform(-6, 6, (n_examples, 3)).astype(dtype)
    target = rng.choice([-1.0, 1.0], (n_examples, 1)).astype(dtype)
    return network, x, target


def autograd(network: Network, x: np.ndarray, target: np.ndarray) -> tuple[float, np.ndarray]:
    """Loss and gradient of the same network by torch, the gradient in the engine's flat layout."""
    weights = [torch.tensor(w_IO, requires_grad=True) for w_IO in network.weights]
    column = torch.tensor(x)
    for i, w_IO in enumerate(weights):
        last = i == len(weights) - 1
        column = column @ w_IO[:-1] + w_IO[-1]
        column = torch.tanh(column) if last else FUNCTIONS[network.shape.activation](column)
    loss = ((column - torch.tensor(target)) ** 2).sum() / (2 * len(x))
    loss.backward()
    return loss.item(), np.concatenate([w.grad.numpy().ravel() for w in weights])


@pytest.mark.parametrize(("dtype", "rounding"), [(np.float32, 2e-6), (np.float64, 1e-14)])
@pytest.mark.parametrize("depth", range(MAX_DEPTH + 1))
@pytest.mark.parametrize("activation", ACTIVATIONS)
def test_the_hand_written_gradient_is_autograds(
    activation: str, depth: int, dtype: type, rounding: float
):
    """Loss and every gradient equal torch's, to the rounding of the number format."""
    network, x, target = network_and_data(activation, depth, dtype)
    loss = network.backward(x, target)
    expected_loss, expected = autograd(network, x, target)
    assert network.gradient.dtype == dtype
    assert loss == pytest.approx(expected_loss, rel=rounding)
    scale = np.abs(expected).max()
    np.testing.assert_allclose(network.gradient, expected, rtol=0, atol=10 * rounding * scale)


@pytest.mark.parametrize("depth", range(MAX_DEPTH + 1))
@pytest.mark.parametrize("activation", ACTIVATIONS)
def test_the_gradient_is_the_slope_of_the_loss(activation: str, depth: int):
    """Moving a parameter to both sides changes the loss as its gradient says."""
    network, x, target = network_and_data(activation, depth, np.float64)
    network.backward(x, target)
    gradient, distance = network.gradient.copy(), 1e-6
    slopes = np.empty_like(gradient)
    for i, value in enumerate(network.params.copy()):
        network.params[i] = value + distance
        above = network.loss(x, target)
        network.params[i] = value - distance
        slopes[i] = (above - network.loss(x, target)) / (2 * distance)
        network.params[i] = value
    np.testing.assert_allclose(slopes, gradient, rtol=1e-6, atol=1e-8)


def test_sigmoid_never_overflows():
    """Sums of any size give 0 or 1 and no warning."""
    network, _, _ = network_and_data("sigmoid", 1, np.float32)
    network.params[:] = 1e30
    column = network.forward(np.array([[6, 6, 6], [-6, -6, -6]], np.float32))[1]
    assert (column == [[1], [0]]).all()


def test_one_network_serves_batches_of_many_sizes():
    """A batch's loss does not depend on the sizes that went through the network before."""
    network, x, target = network_and_data("tanh", 2, np.float64, n_examples=40)
    alone = {n: network_and_data("tanh", 2, np.float64)[0] for n in range(1, 41)}
    for n in [*range(1, 41), 7, 33, 1]:
        assert network.loss(x[:n], target[:n]) == alone[n].loss(x[:n], target[:n])


def test_weights_are_views_of_the_parameters():
    """What an optimizer does to the flat vector is done to every layer's matrix, bias last."""
    network, _, _ = network_and_data("tanh", 2, np.float64)
    network.params[:] = np.arange(len(network.params))
    flat = np.concatenate([w_IO.ravel() for w_IO in network.weights])
    assert (flat == network.params).all()


def test_initial_weights_are_tensorflow_playgrounds():
    """Weights spread over [-0.5, 0.5), every bias is 0.1."""
    network, _, _ = network_and_data("tanh", 6, np.float64)
    network.initialise(np.random.default_rng(0))
    weights = np.concatenate([w_IO[:-1].ravel() for w_IO in network.weights])
    assert (np.concatenate([w_IO[-1] for w_IO in network.weights]) == 0.1).all()
    assert -0.5 <= weights.min() < -0.4
    assert 0.4 < weights.max() < 0.5


# -- optimizers ---------------------------------------------------------------------------------


def torch_optimizer(name: str, param: torch.Tensor, learning_rate: float) -> torch.optim.Optimizer:
    if name == "adamw":
        return torch.optim.AdamW(
            [param],
            lr=learning_rate,
            betas=(BETA_1, BETA_2),
            eps=EPSILON,
            weight_decay=WEIGHT_DECAY,
        )
    return torch.optim.SGD(
        [param], lr=learning_rate, momentum=MOMENTUM if name == "momentum" else 0
    )


@pytest.mark.parametrize("learning_rate", [1e-6, 0.03, 10.0])
@pytest.mark.parametrize("name", OPTIMIZERS)
def test_an_optimizer_is_torchs(name: str, learning_rate: float):
    """Fed the same 300 gradients of many sizes, parameters stay torch.optim's to 1e-12."""
    rng = np.random.default_rng(5)
    params = rng.normal(size=23)
    twin = torch.tensor(params, requires_grad=True)
    optimizer, reference = (
        Optimizer(name, learning_rate, params),
        torch_optimizer(name, twin, learning_rate),
    )
    for _ in range(300):
        gradient = rng.normal(size=23) * 10.0 ** rng.uniform(-6, 2)
        optimizer.update(params, gradient)
        twin.grad = torch.tensor(gradient)
        reference.step()
    expected = twin.detach().numpy()
    np.testing.assert_allclose(params, expected, rtol=1e-12, atol=1e-12 * np.abs(expected).max())


def test_adamw_here_is_torchs_default():
    """The constants are those that torch.optim.AdamW takes when it is told none."""
    default = torch.optim.AdamW([torch.zeros(1, requires_grad=True)]).defaults
    assert default["betas"] == (BETA_1, BETA_2)
    assert default["eps"] == EPSILON
    assert default["weight_decay"] == WEIGHT_DECAY


# -- batches ------------------------------------------------------------------------------------


@given(st.integers(1, 60).flatmap(lambda n: st.tuples(st.just(n), st.integers(1, n))))
def test_a_pass_visits_every_example_once(sizes: tuple[int, int]):
    """In any run of passes the examples come in order, over and over, none left out or doubled."""
    n_examples, batch_size = sizes
    updates = itertools.takewhile(lambda u: u[0] < 5, batches(n_examples, batch_size))
    visited = np.concatenate([indices for _, indices in updates])
    assert 5 * n_examples - len(visited) == n_examples % batch_size  # these wait for the next pass
    assert (visited == np.arange(len(visited)) % n_examples).all()


@given(st.integers(1, 60).flatmap(lambda n: st.tuples(st.just(n), st.integers(1, n))))
def test_examples_left_over_join_the_next_pass(sizes: tuple[int, int]):
    """A pass has n // batch updates; what is left over enlarges the next pass's first one."""
    n_examples, batch_size = sizes
    rest = n_examples % batch_size
    for epoch, updates in itertools.islice(
        itertools.groupby(batches(n_examples, batch_size), key=lambda u: u[0]), 4
    ):
        lengths = [len(indices) for _, indices in updates]
        carried = rest if epoch else 0
        assert lengths == [batch_size + carried] + [batch_size] * (n_examples // batch_size - 1)


def test_the_default_batch_leaves_nothing_over():
    """250 examples in tens are 25 updates a pass, as in TensorFlow Playground."""
    first_pass = itertools.takewhile(lambda u: u[0] == 0, batches(250, TrainSpec().batch_size))
    assert [len(indices) for _, indices in first_pass] == [10] * 25
