"""The 2-D problems: where the points lie, which label they get, what noise does."""

import math
from itertools import pairwise

import numpy as np
import pytest

from core.engine.problems import EXTENT, N_EXAMPLES, Examples, examples, features, grid
from core.specs import FEATURES, PROBLEMS


def drawn(problem: str, noise: float = 0.0, seed: int = 3) -> Examples:
    return examples(problem, noise, np.random.default_rng(seed))


@pytest.mark.parametrize("noise", [0.0, 0.25, 0.5])
@pytest.mark.parametrize("problem", PROBLEMS)
def test_half_of_500_examples_is_trained_on(problem: str, noise: float):
    """Every problem gives 500 finite points, 250 of them for training, labelled +1 or -1."""
    data = drawn(problem, noise)
    assert data.points.shape == (N_EXAMPLES, 2) == (500, 2)
    assert data.labels.shape == (500,)
    assert data.n_train == 250
    assert np.isfinite(data.points).all()
    assert set(np.unique(data.labels)) == {-1.0, 1.0}


@pytest.mark.parametrize("problem", PROBLEMS)
def test_a_seed_draws_the_same_examples(problem: str):
    """One seed gives the same bits twice; another seed gives others in another order."""
    one, same, other = drawn(problem, 0.1), drawn(problem, 0.1), drawn(problem, 0.1, seed=4)
    assert one.points.tobytes() == same.points.tobytes()
    assert one.labels.tobytes() == same.labels.tobytes()
    assert one.points.tobytes() != other.points.tobytes()


@pytest.mark.parametrize("problem", PROBLEMS)
def test_examples_are_shuffled(problem: str):
    """Both labels are met all along the training half, not one after the other."""
    labels = drawn(problem).labels[:250]
    changes = sum(a != b for a, b in pairwise(labels))
    assert changes > 75  # 125 expected; all of one label first would give 1


@pytest.mark.parametrize("problem", ["circle", "gauss", "spiral"])
def test_labels_are_balanced(problem: str):
    """Without noise exactly half of the examples of these problems are +1."""
    assert drawn(problem).labels.sum() == 0


def test_labels_of_xor_are_nearly_balanced():
    """Exclusive or draws its points freely: about half are +1."""
    assert abs(drawn("xor").labels.mean()) < 0.2  # 4.5 standard deviations


@pytest.mark.parametrize(
    ("problem", "reach"), [("circle", 5.0), ("xor", 5.3), ("spiral", 5 + 0.5 * math.sqrt(2))]
)
def test_points_stay_in_the_picture(problem: str, reach: float):
    """At any noise the points of bounded problems lie within the range of their generator."""
    for noise in (0.0, 0.5):
        points = drawn(problem, noise).points
        size = np.abs(points).max() if problem == "xor" else np.hypot(*points.T).max()
        assert size <= reach + 1e-12
        assert np.abs(points).max() <= EXTENT


def test_circle_is_a_disc_in_a_ring():
    """Without noise the label is the radius: inside 2.5 is +1, the ring from 3.5 to 5 is -1."""
    data = drawn("circle")
    radius = np.hypot(*data.points.T)
    assert (radius[data.labels > 0] < 2.5).all()
    assert (radius[data.labels < 0] >= 3.5 - 1e-12).all()


def test_xor_is_the_sign_of_the_product():
    """Without noise the label is the sign of x times y, and no point is near an axis."""
    data = drawn("xor")
    assert (np.sign(data.points.prod(axis=1)) == data.labels).all()
    assert np.abs(data.points).min() >= 0.3


@pytest.mark.parametrize(("noise", "variance"), [(0.0, 0.5), (0.5, 4.0)])
def test_gauss_is_two_clouds(noise: float, variance: float):
    """The clouds lie at (2, 2) and (-2, -2) with the stated variance, each half of the points."""
    data = drawn("gauss", noise)
    for label in (1, -1):
        cloud = data.points[data.labels == label]
        assert len(cloud) == 250
        assert cloud.mean(axis=0) == pytest.approx([2 * label] * 2, abs=4 * (variance / 250) ** 0.5)
        # the standard error of a variance is variance * sqrt(2 / n)
        assert cloud.var(axis=0) == pytest.approx([variance] * 2, rel=4 * (2 / 250) ** 0.5)


def test_gauss_without_noise_is_told_apart_by_a_line():
    """Without noise the sign of x + y tells at least 99 of 100 points (4 standard deviations)."""
    data = drawn("gauss")
    assert (np.sign(data.points.sum(axis=1)) == data.labels).mean() >= 0.99


def test_spiral_without_noise_is_its_formula():
    """Without noise the arms have r = 5 i / 250 at 3.5 pi i / 250, the second half a turn on."""
    expected = set()
    for i in range(250):
        for label, start in ((1, 0.0), (-1, math.pi)):
            r, angle = 5 * i / 250, 1.75 * i / 250 * 2 * math.pi + start
            expected.add((round(r * math.sin(angle), 9), round(r * math.cos(angle), 9), label))
    data = drawn("spiral")
    rounded = {
        (round(x, 9), round(y, 9), int(label))
        for (x, y), label in zip(data.points.tolist(), data.labels, strict=True)
    }
    assert {(x + 0.0, y + 0.0, s) for x, y, s in rounded} == {
        (x + 0.0, y + 0.0, s) for x, y, s in expected
    }


@pytest.mark.parametrize("problem", ["circle", "xor"])
def test_noise_flips_labels_and_moves_no_point(problem: str):
    """In circle and exclusive or the noise is in the labels: same points, some other labels."""
    clean, noisy = drawn(problem), drawn(problem, 0.5)
    assert (clean.points == noisy.points).all()
    flipped = (clean.labels != noisy.labels).mean()
    assert 0.05 < flipped < 0.5


def test_noise_moves_the_points_of_the_spiral():
    """In the spiral the noise is in the points: same labels, each coordinate moved by up to it."""
    clean, noisy = drawn("spiral"), drawn("spiral", 0.5)
    moved = np.abs(noisy.points - clean.points)
    assert (clean.labels == noisy.labels).all()
    assert 0.45 < moved.max() <= 0.5


def test_features_are_their_formulas():
    """Each input of the network is the function of x and y that its name says."""
    formulas = {
        "x": lambda x, y: x,
        "y": lambda x, y: y,
        "x2": lambda x, y: x**2,
        "y2": lambda x, y: y**2,
        "xy": lambda x, y: x * y,
        "sinx": lambda x, y: math.sin(x),
        "siny": lambda x, y: math.sin(y),
    }
    points = drawn("xor").points[:20]
    names = tuple(reversed(FEATURES))
    expected = [[formulas[name](x, y) for name in names] for x, y in points.tolist()]
    np.testing.assert_allclose(features(points, names), expected, rtol=1e-15)


def test_the_grid_is_read_like_a_page():
    """Cell centres from the top left, row by row, evenly over the whole picture."""
    cells = grid(4).reshape(4, 4, 2)
    assert cells[0, 0].tolist() == [-4.5, 4.5]
    assert cells[0, 3].tolist() == [4.5, 4.5]
    assert cells[3, 0].tolist() == [-4.5, -4.5]
    assert (np.diff(cells[..., 0], axis=1) == 3).all()
    assert (np.diff(cells[..., 1], axis=0) == -3).all()
