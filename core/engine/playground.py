"""A small multi-layer perceptron in NumPy with a backward pass written by hand.

Shape suffixes: B examples of a step, F features, I inputs of a layer, O outputs of a layer. A
layer's weights stand in one matrix W_IO with the bias as its last row, and every input has a last
column of ones, so that one product does both. All parameters share one flat vector: an optimizer
is a few operations on it.

Why not torch here: the same step takes 17 µs against 276 µs for nn.Module with SGD, measured on
two cores (docs/LOG.md); tests hold its gradients equal to autograd's.
"""

from collections.abc import Iterator

import numpy as np

from core.optimizers import BETA_1, BETA_2, EPSILON, MOMENTUM, OPTIMIZERS, WEIGHT_DECAY
from core.shapes import MlpShape


def _tanh(z: np.ndarray, out: np.ndarray) -> None:
    np.tanh(z, out=out)


def _relu(z: np.ndarray, out: np.ndarray) -> None:
    np.maximum(z, 0, out=out)


def _sigmoid(z: np.ndarray, out: np.ndarray) -> None:
    # Half a tanh: never overflows, and agrees with torch to the last digits.
    np.multiply(z, 0.5, out=out)
    np.tanh(out, out=out)
    out += 1
    out *= 0.5


def _linear(z: np.ndarray, out: np.ndarray) -> None:
    out[...] = z


# Each activation with its derivative, told from the activation's output.
_ACTIVATIONS = {
    "tanh": (_tanh, lambda a: 1 - a * a),
    "relu": (_relu, lambda a: a > 0),
    "sigmoid": (_sigmoid, lambda a: a * (1 - a)),
    "linear": (_linear, None),
}


class Network:
    """Parameters of a perceptron and the arithmetic of one step.

    `params` and `gradient` are flat; `weights[i]` and `weight_gradients[i]` are views of them,
    shape (I + 1, O).
    """

    def __init__(self, shape: MlpShape, dtype: np.dtype | type) -> None:
        self.shape = shape
        self.params = np.zeros(shape.n_params, dtype)
        self.gradient = np.zeros_like(self.params)
        self.weights = list(self.views(self.params))
        self.weight_gradients = list(self.views(self.gradient))
        self._functions = [_ACTIVATIONS[activation] for *_, activation in shape.layers]
        self._buffers: dict[int, list[np.ndarray]] = {}

    def views(self, flat: np.ndarray) -> Iterator[np.ndarray]:
        """The layers' parts of a flat vector, shape (I + 1, O) each, bias last."""
        start = 0
        for _, d_in, d_out, _ in self.shape.layers:
            end = start + (d_in + 1) * d_out
            yield flat[start:end].reshape(d_in + 1, d_out)
            start = end

    def initialise(self, rng: np.random.Generator) -> None:
        """Weights uniform in [-0.5, 0.5), biases 0.1, as TensorFlow Playground draws them."""
        for w_IO in self.weights:
            w_IO[:-1] = rng.uniform(-0.5, 0.5, w_IO[:-1].shape)
            w_IO[-1] = 0.1

    def _columns(self, n: int) -> list[np.ndarray]:
        """One buffer (n, width + 1) for each column of neurons, its last column ones."""
        if n not in self._buffers:
            if len(self._buffers) > 8:  # batch, carried batch, train, held out, two grids
                self._buffers.clear()
            self._buffers[n] = [np.ones((n, d + 1), self.params.dtype) for d in self.shape.widths]
        return self._buffers[n]

    def forward(self, x_BF: np.ndarray) -> list[np.ndarray]:
        """Outputs of every column, inputs first; views that the next call overwrites."""
        columns = self._columns(len(x_BF))
        columns[0][:, :-1] = x_BF
        for i, w_IO in enumerate(self.weights):
            self._functions[i][0](columns[i] @ w_IO, columns[i + 1][:, :-1])
        return [column[:, :-1] for column in columns]

    def loss(self, x_BF: np.ndarray, target_B1: np.ndarray) -> float:
        """Mean over examples of half the squared error."""
        error = self.forward(x_BF)[-1] - target_B1
        return float(0.5 * np.mean(error * error))

    def backward(self, x_BF: np.ndarray, target_B1: np.ndarray) -> float:
        """Loss of the examples; its gradient is left in `gradient`."""
        output = self.forward(x_BF)[-1]
        columns = self._columns(len(x_BF))
        error = output - target_B1
        delta_BO = error / len(x_BF)
        for i in range(len(self.weights) - 1, -1, -1):
            derivative = self._functions[i][1]
            if derivative is not None:
                delta_BO = delta_BO * derivative(columns[i + 1][:, :-1])
            np.dot(columns[i].T, delta_BO, out=self.weight_gradients[i])
            if i:
                delta_BO = delta_BO @ self.weights[i][:-1].T
        return float(0.5 * np.mean(error * error))


class Optimizer:
    """SGD, SGD with momentum, or AdamW over one flat vector, as torch.optim defines them."""

    def __init__(self, name: str, learning_rate: float, params: np.ndarray) -> None:
        self.name = name
        self.learning_rate = learning_rate
        self.n_steps = 0
        self.buffers = [np.zeros_like(params) for _ in range(OPTIMIZERS[name].n_buffers)]

    def update(self, params: np.ndarray, gradient: np.ndarray) -> None:
        self.n_steps += 1
        if self.name == "adamw":
            mean, square = self.buffers
            mean *= BETA_1
            mean += (1 - BETA_1) * gradient
            square *= BETA_2
            square += (1 - BETA_2) * (gradient * gradient)
            params *= 1 - self.learning_rate * WEIGHT_DECAY
            step_size = self.learning_rate / (1 - BETA_1**self.n_steps)
            scale = np.sqrt(square) / np.sqrt(1 - BETA_2**self.n_steps) + EPSILON
            params -= step_size * mean / scale
        elif self.name == "momentum":
            (velocity,) = self.buffers
            velocity *= MOMENTUM
            velocity += gradient
            params -= self.learning_rate * velocity
        else:
            params -= self.learning_rate * gradient


def batches(n_examples: int, batch_size: int) -> Iterator[tuple[int, np.ndarray]]:
    """(epoch, example indices) of each update, for ever, in the data's fixed order.

    Examples left over at the end of a pass wait for the first update of the next one, as in
    TensorFlow Playground, where their gradients stay accumulated.
    """
    epoch, waiting = 0, np.empty(0, int)
    order = np.arange(n_examples)
    while True:
        for start in range(0, n_examples - batch_size + 1, batch_size):
            yield epoch, np.concatenate([waiting, order[start : start + batch_size]])
            waiting = np.empty(0, int)
        rest = n_examples % batch_size
        waiting = np.concatenate([waiting, order[n_examples - rest :]])
        epoch += 1
