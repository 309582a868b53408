"""The 2-D problems of TensorFlow Playground: points in [-6, 6]², labels +1 and -1.

Source: the generators' distributions as published with TensorFlow Playground (circle, exclusive or,
two gaussians, spiral). The random stream is NumPy's, so single points differ from the original's.
"""

from dataclasses import dataclass

import numpy as np

N_EXAMPLES = 500
TRAIN_SHARE = 0.5
EXTENT = 6.0  # pictures and grids span [-EXTENT, EXTENT] on both axes


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Examples:
    """Shuffled points and labels; the first `n_train` are trained on, the rest held out.

    Shapes: points (N, 2), labels (N,), float64.
    """

    points: np.ndarray
    labels: np.ndarray
    n_train: int


def examples(problem: str, noise: float, rng: np.random.Generator) -> Examples:
    """Draw and shuffle one data set."""
    points, labels = _GENERATORS[problem](N_EXAMPLES, noise, rng)
    order = rng.permutation(N_EXAMPLES)
    return Examples(
        points=points[order], labels=labels[order], n_train=int(N_EXAMPLES * TRAIN_SHARE)
    )


def _circle(n: int, noise: float, rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
    """Inside radius 2.5 against a ring from 3.5 to 5; noise flips labels near the edge."""
    half = n // 2
    radius = np.concatenate([rng.uniform(0, 2.5, half), rng.uniform(3.5, 5, n - half)])
    angle = rng.uniform(0, 2 * np.pi, n)
    points = np.stack([radius * np.sin(angle), radius * np.cos(angle)], axis=1)
    seen = points + rng.uniform(-5, 5, (n, 2)) * noise
    return points, np.where(np.hypot(*seen.T) < 2.5, 1.0, -1.0)


def _xor(n: int, noise: float, rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
    """Sign of x·y, the points pushed 0.3 away from both axes; noise moves the labelled point."""
    points = rng.uniform(-5, 5, (n, 2))
    points += np.where(points > 0, 0.3, -0.3)
    seen = points + rng.uniform(-5, 5, (n, 2)) * noise
    return points, np.where(seen[:, 0] * seen[:, 1] >= 0, 1.0, -1.0)


def _gauss(n: int, noise: float, rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
    """Two clouds at (2, 2) and (-2, -2); noise 0 to 0.5 is a variance of 0.5 to 4."""
    half = n // 2
    labels = np.concatenate([np.ones(half), -np.ones(n - half)])
    spread = np.sqrt(0.5 + 7 * noise)
    return 2 * labels[:, None] + rng.normal(0, spread, (n, 2)), labels


def _spiral(n: int, noise: float, rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
    """Two arms of 1.75 turns; noise moves the points by up to itself."""
    half = n // 2
    labels = np.concatenate([np.ones(half), -np.ones(n - half)])
    along = np.concatenate([np.arange(half) / half, np.arange(n - half) / (n - half)])
    angle = 1.75 * along * 2 * np.pi + np.where(labels > 0, 0, np.pi)
    points = (5 * along)[:, None] * np.stack([np.sin(angle), np.cos(angle)], axis=1)
    return points + rng.uniform(-1, 1, (n, 2)) * noise, labels


_GENERATORS = {"circle": _circle, "xor": _xor, "gauss": _gauss, "spiral": _spiral}

_FEATURES = {
    "x": lambda x, y: x,
    "y": lambda x, y: y,
    "x2": lambda x, y: x * x,
    "y2": lambda x, y: y * y,
    "xy": lambda x, y: x * y,
    "sinx": lambda x, y: np.sin(x),
    "siny": lambda x, y: np.sin(y),
}


def features(points: np.ndarray, names: tuple[str, ...]) -> np.ndarray:
    """The network's inputs. Shapes: points (N, 2) -> (N, F)."""
    x, y = points.T
    return np.stack([_FEATURES[name](x, y) for name in names], axis=1)


def grid(n: int) -> np.ndarray:
    """Cell centres of an n x n picture of the plane, top row first. Shape (n*n, 2)."""
    centres = (np.arange(n) + 0.5) / n * (2 * EXTENT) - EXTENT
    x, y = np.meshgrid(centres, centres[::-1])
    return np.stack([x.ravel(), y.ravel()], axis=1)
