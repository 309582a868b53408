"""One shape for every number of parameters: Llama's layer from 0.1 million to 1,000 billion.

A model of n parameters is a width, and as many layers as make up n. Widths go in steps; the one is
taken whose depth is nearest to what its width is best served by, L(d) = (ln d - 5.039) / 0.0555.
Source: Levine et al. 2020, "The Depth-to-Width Interplay in Self-Attention" (arXiv:2006.12467), the
fit of log width to depth, which finds GPT-3 too deep (79 layers instead of 96 at 12,288) and about
30,000 best for 1,000 billion parameters.

The vocabulary grows with the root of n: 216,000 tokens at 70 billion parameters, 256 (bytes) at
0.1 million. Source: Tao et al. 2024, "Scaling Laws with Vocabulary" (arXiv:2407.13623), which gives
both the exponent (embedding parameters as n^0.83, width as n^(1/3)) and that figure for Llama 2
70B. At most 262,144, as in Gemma 3.

Checked: tests/core/test_ladder.py, parameters against the torch module's.
"""

import functools
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from core.shapes import TransformerShape
from core.specs import RUNGS

MOST_PARAMS = 1_000_000_000_000
LEAST_PARAMS = 50_000
LEAST_LAYERS = 2
WITHIN = 0.12  # of n, as a logarithm, where some width has so near a model
VOCAB_AT = (216_000, 70e9)  # tokens, parameters
LEAST_VOCAB, MOST_VOCAB = 256, 262_144
QUERIES_PER_KEY = 4  # as in Llama 3 8B
WIDTHS = ((64, 16), (512, 32), (2048, 64), (40_960, 128))  # up to which width, how wide a head


@dataclass(frozen=True, slots=True, kw_only=True)
class Rung:
    """A model on the ladder."""

    asked: int  # parameters, about
    shape: TransformerShape

    @property
    def n_params(self) -> int:
        """Exactly."""
        return self.shape.n_params


def ladder_shapes(rungs: Sequence[int] = RUNGS) -> tuple[Rung, ...]:
    """The shape of each rung. Raises: ValueError as `shape_of_size`."""
    return tuple(Rung(asked=n, shape=shape_of_size(n)) for n in rungs)


@functools.lru_cache(maxsize=512)
def shape_of_size(n_params: int) -> TransformerShape:
    """The model on the ladder with about so many parameters; `n_params` of the shape is exact.

    RMSNorm, SwiGLU of width 8/3 d in steps of 64, RoPE, four queries for each key, tied embeddings,
    no biases. Raises: ValueError outside 50 thousand to 1,000 billion.
    """
    if not LEAST_PARAMS <= n_params <= MOST_PARAMS:
        raise ValueError(
            f"n_params={n_params:,} is not from {LEAST_PARAMS:,} to {MOST_PARAMS:,}; "
            "choose one in between"
        )
    found = [_with_width(n_params, d, head) for d, head in _widths()]
    off = [abs(math.log(shape.n_params / n_params)) for shape in found]
    near = [s for s, o in zip(found, off, strict=True) if o < max(WITHIN, min(off) + 1e-9)]
    return min(near, key=lambda s: abs(math.log(s.n_layer / best_depth(s.d_model))))


def best_depth(d_model: int) -> float:
    """Layers that serve a width best; at least two. Source: Levine et al. 2020."""
    return max(float(LEAST_LAYERS), (math.log(d_model) - 5.039) / 0.0555)


def vocab_size(n_params: int) -> int:
    """Tokens of the vocabulary of a model of so many parameters, a multiple of 64."""
    tokens, at = VOCAB_AT
    wanted = tokens * math.sqrt(n_params / at)
    return min(MOST_VOCAB, max(LEAST_VOCAB, round(wanted / 64) * 64))


def head_width(d_model: int) -> int:
    """Width of a head in a model of this width."""
    return next(head for up_to, head in WIDTHS if d_model <= up_to)


def _widths() -> Iterator[tuple[int, int]]:
    """(width, width of a head), smallest first; a width is a multiple of four heads."""
    above = 0
    for up_to, head in WIDTHS:
        step = QUERIES_PER_KEY * head
        yield from ((d, head) for d in range(step, up_to + 1, step) if d > above)
        above = up_to


def _with_width(n_params: int, d: int, d_head: int) -> TransformerShape:
    """The nearest to so many parameters at this width, with one layer or more."""
    one, two = (_shape(n_params, d, d_head, n_layer) for n_layer in (1, 2))
    each = two.n_params - one.n_params
    return _shape(n_params, d, d_head, 1 + max(0, round((n_params - one.n_params) / each)))


def _shape(n_params: int, d: int, d_head: int, n_layer: int) -> TransformerShape:
    return layer_shape(d, d_head, n_layer=n_layer, vocab_size=vocab_size(n_params))


def layer_shape(d: int, d_head: int, *, n_layer: int, vocab_size: int) -> TransformerShape:
    """The ladder's layer at a width."""
    return TransformerShape(
        vocab_size=vocab_size,
        n_layer=n_layer,
        d_model=d,
        n_head=d // d_head,
        n_kv_head=d // d_head // QUERIES_PER_KEY,
        d_ff=-(-8 * d // 3 // 64) * 64,
        max_seq_len=2048,
        norm="rmsnorm",
        mlp="swiglu",
        positions="rope",
        bias=False,
    )
