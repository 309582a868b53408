"""Speculative decoding: a small model drafts, the large one checks all drafts in one pass.

Letters: α share of drafts that are accepted, γ drafts a pass, c cost of a draft in passes of the
large model. Source: Leviathan et al. 2023 (arXiv:2211.17192), equation 1 and theorem 3.8.
Checked: tests/core/test_speculation.py, tests/data/oracle.csv.
"""


def expected_tokens(alpha: float, gamma: int) -> float:
    """Of one pass: accepted drafts and the token that the pass gives besides.

    (1 − α^(γ+1)) / (1 − α); γ + 1 where every draft is accepted.
    Raises: ValueError for a share that is none, or drafts below 0.
    """
    if not 0 <= alpha <= 1:
        raise ValueError(f"alpha={alpha!r} is not from 0 to 1; give a share")
    if gamma < 0:
        raise ValueError(f"gamma={gamma!r} is below 0; give 0 or more")
    if alpha == 1:
        return gamma + 1.0
    return (1 - alpha ** (gamma + 1)) / (1 - alpha)


def speedup(alpha: float, gamma: int, draft_cost: float) -> float:
    """Over decoding one by one, where a pass over γ + 1 tokens takes as long as over one."""
    return expected_tokens(alpha, gamma) / (1 + gamma * draft_cost)


def speedup_without_bonus(alpha: float, gamma: int, draft_cost: float) -> float:
    """A common mistake: the token that the checking pass gives besides is forgotten."""
    return (expected_tokens(alpha, gamma) - 1) / (1 + gamma * draft_cost)


def break_even_alpha(gamma: int, draft_cost: float) -> float:
    """Share of accepted drafts from which on it is faster than decoding one by one; 1 if never."""
    low, high = 0.0, 1.0
    if speedup(1.0, gamma, draft_cost) <= 1:
        return 1.0
    for _ in range(60):
        middle = (low + high) / 2
        low, high = (low, middle) if speedup(middle, gamma, draft_cost) > 1 else (middle, high)
    return high
