"""Laws of drawing a token."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from core.engine.sampling import allowed, draw, probabilities

LOGITS = st.lists(st.floats(-12, 12, width=32), min_size=2, max_size=40)


def probs_of(logits: list[float], temperature: float = 1.0) -> torch.Tensor:
    return probabilities(torch.tensor([logits]), temperature)


@given(LOGITS, st.integers(1, 45))
def test_top_k_leaves_the_k_likeliest(logits: list[float], k: int):
    probs = probs_of(logits)
    kept = allowed(probs, top_k=k)[0]
    n = min(k, len(logits))
    assert int((kept > 0).sum()) <= n
    assert set(kept.nonzero()[:, 0].tolist()) <= set(
        probs[0].argsort(descending=True, stable=True)[:n].tolist()
    )
    assert kept.sum().item() == pytest.approx(1, abs=1e-5)


@given(LOGITS, st.floats(0.01, 1))
def test_top_p_leaves_the_fewest_that_reach_the_sum(logits: list[float], p: float):
    probs = probs_of(logits)
    kept = allowed(probs, top_p=p)[0] > 0
    likeliest = probs[0].sort(descending=True, stable=True).values
    n = int(kept.sum())
    assert likeliest[:n].sum() >= min(p, 1) - 1e-5 or n == int((likeliest > 0).sum())
    assert likeliest[: n - 1].sum() < p + 1e-5
    assert bool(kept[probs[0].argmax()])


def test_of_a_flat_distribution_top_p_keeps_its_share():
    """As it would not, were it cut to the twenty likeliest first."""
    kept = allowed(probs_of([0.0] * 1000), top_p=0.5)[0]
    assert int((kept > 0).sum()) == 500


@given(LOGITS, st.integers(0, 40), st.floats(0.01, 1), st.integers(0, 99))
def test_at_zero_the_likeliest_whatever_else_is_set(
    logits: list[float], k: int, p: float, seed: int
):
    generator = torch.Generator().manual_seed(seed)
    token = draw(probs_of(logits, 0), 0, k, p, generator)
    assert token.item() == torch.tensor(logits).argmax().item()


def test_a_low_temperature_comes_to_the_likeliest():
    logits = [0.0, 0.4, 0.1]
    generator = torch.Generator().manual_seed(1)
    drawn = {draw(probs_of(logits, 0.01), 0.01, 0, 1.0, generator).item() for _ in range(200)}
    assert drawn == {1}


def test_frequencies_are_the_probabilities():
    probs = probs_of([0.0, 1.0, 2.0, -30.0], 1.5)
    generator = torch.Generator().manual_seed(1)
    drawn = draw(probs.expand(20_000, -1), 1.5, 0, 1.0, generator)
    found = torch.bincount(drawn, minlength=4) / len(drawn)
    torch.testing.assert_close(found, probs[0], atol=0.02, rtol=0)


def test_the_same_seed_draws_the_same():
    probs = probs_of([0.1, 0.2, 0.3, 0.4]).expand(50, -1)
    one, two = (draw(probs, 1.0, 3, 0.9, torch.Generator().manual_seed(7)) for _ in range(2))
    assert torch.equal(one, two)
