"""Speculative decoding against its paper, a simulation and its laws."""

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from core.speculation import break_even_alpha, expected_tokens, speedup, speedup_without_bonus

shares = st.floats(0, 1)
drafts = st.integers(0, 32)
costs = st.floats(0, 2)


def test_the_papers_figures():
    # Leviathan et al. 2023 (arXiv:2211.17192), equation 1 and theorem 3.8
    assert expected_tokens(0.8, 4) == pytest.approx(3.3616, rel=1e-9)
    assert speedup(0.8, 4, 0.1) == pytest.approx(2.4011, rel=1e-4)


def test_the_forgotten_token_makes_a_third_less():
    """A published exercise has 1.687 where the paper has 2.4011."""
    assert speedup_without_bonus(0.8, 4, 0.1) == pytest.approx(1.687, rel=1e-3)


@pytest.mark.parametrize(("alpha", "gamma"), [(0.3, 2), (0.8, 4), (0.95, 8)])
def test_tokens_of_a_pass_are_those_of_a_simulation(alpha: float, gamma: int):
    draw, n = random.Random(0), 40_000
    total = 0
    for _ in range(n):
        accepted = 0
        while accepted < gamma and draw.random() < alpha:
            accepted += 1
        total += accepted + 1  # the pass's own token
    assert total / n == pytest.approx(expected_tokens(alpha, gamma), rel=0.02)


@given(shares, drafts)
def test_a_pass_gives_a_token_at_least_and_one_more_than_drafts_at_most(alpha, gamma):
    tokens = expected_tokens(alpha, gamma)
    assert 1 - 1e-12 <= tokens <= gamma + 1 + 1e-9
    assert tokens == pytest.approx(sum(alpha**i for i in range(gamma + 1)))
    assert expected_tokens(alpha, gamma + 1) >= tokens - 1e-9
    assert expected_tokens(1.0, gamma) == gamma + 1
    assert expected_tokens(0.0, gamma) == 1


@given(shares, drafts, costs)
def test_what_is_forgotten_is_never_faster(alpha, gamma, cost):
    assert speedup_without_bonus(alpha, gamma, cost) < speedup(alpha, gamma, cost)
    assert speedup(alpha, gamma, cost) >= speedup(alpha, gamma, cost + 0.5)


@given(st.integers(1, 32), costs)
def test_it_is_faster_above_the_break_even_share_only(gamma, cost):
    at = break_even_alpha(gamma, cost)
    assert 0 <= at <= 1
    if at < 1 - 1e-6:
        assert speedup(min(1.0, at + 1e-6), gamma, cost) > 1 - 1e-9
        assert speedup(at * 0.99, gamma, cost) <= 1 + 1e-9
    else:
        assert speedup(0.99, gamma, cost) <= 1 + 1e-9


@pytest.mark.parametrize(("alpha", "gamma"), [(-0.1, 4), (1.1, 4), (0.5, -1), (float("nan"), 1)])
def test_what_is_no_share_or_no_number_of_drafts_is_refused(alpha, gamma):
    with pytest.raises(ValueError, match="give"):
        expected_tokens(alpha, gamma)
