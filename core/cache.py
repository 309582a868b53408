"""What a model keeps of the tokens it has read: keys and values, compressed ones, states.

Layers with a window keep no more tokens than the window; layers with a state keep as much however
long the text is; layers that read another's cache keep nothing; a compressed cache holds one
vector a token and is not doubled.

Checked: the op table's own cache bytes (tests/core/test_cache.py), published figures in
tests/data/oracle.csv.
"""

import math
from dataclasses import dataclass

from core.architecture import ModelShape, Recurrent
from core.sizes import Bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class CacheFormat:
    """How a number of keys or values is stored."""

    name: str
    bytes_per_number: float
    source: str


FORMATS = {
    f.name: f
    for f in (
        CacheFormat(name="fp32", bytes_per_number=4, source="IEEE 754"),
        CacheFormat(name="bf16", bytes_per_number=2, source="two bytes"),
        CacheFormat(name="fp8", bytes_per_number=1, source="one byte; scales of a layer left out"),
        CacheFormat(name="q8_0", bytes_per_number=34 / 32, source="ggml block_q8_0: 34 B / 32"),
        CacheFormat(name="q4_0", bytes_per_number=18 / 32, source="ggml block_q4_0: 18 B / 32"),
    )
}


VLLM_BLOCK = 16  # tokens that vLLM's allocator hands out at once. Source: vLLM, CacheConfig


@dataclass(frozen=True, slots=True, kw_only=True)
class Kept:
    """What the layers of one kind keep."""

    kind: str  # full, sliding, chunked, latent, recurrent
    n_layers: int
    per_token: float  # numbers that a token leaves in each layer
    window: int  # 0: none
    state: int  # numbers of a sequence, however long it is

    def numbers(self, n_tokens: float) -> float:
        """Of one sequence, over all layers of the kind."""
        seen = min(n_tokens, self.window) if self.window else n_tokens
        return self.n_layers * (seen * self.per_token + self.state)


def kept_by_kind(shape: ModelShape) -> tuple[Kept, ...]:
    """What each kind of layer keeps, in order of first appearance."""
    return tuple(
        Kept(
            kind=layer.mixer.kind,
            n_layers=n,
            per_token=layer.mixer.cached_width,
            window=layer.mixer.window,
            state=layer.mixer.state_numbers if isinstance(layer.mixer, Recurrent) else 0,
        )
        for layer, n in shape.kinds().items()
    )


def cache_bytes(
    shape: ModelShape,
    n_tokens: float,
    bytes_per_number: float = 2,
    *,
    batch_size: int = 1,
    block: int = 1,
) -> Bytes:
    """Of `batch_size` sequences of `n_tokens` tokens each.

    `block`: tokens that an allocator hands out at once; each sequence is rounded up to it.
    """
    held = _whole_blocks(n_tokens, block)
    numbers = sum(kept.numbers(held) for kept in kept_by_kind(shape))
    return Bytes(batch_size * numbers * bytes_per_number)


def _whole_blocks(n_tokens: float, block: int) -> float:
    """Raises: ValueError for a block of no token."""
    if block < 1:
        raise ValueError(f"block={block!r} is below 1; choose 1 or more")
    return math.ceil(n_tokens / block) * block if block > 1 else n_tokens


def bytes_per_token(shape: ModelShape, bytes_per_number: float = 2) -> Bytes:
    """What one more token adds while no window is full: 2 × L × k × d × bytes, or the like."""
    numbers = sum(kept.n_layers * kept.per_token for kept in kept_by_kind(shape))
    return Bytes(numbers * bytes_per_number)


def tokens_that_fit(
    shape: ModelShape, room: Bytes, bytes_per_number: float = 2, *, batch_size: int = 1
) -> int:
    """The longest context of `batch_size` sequences whose cache fits; 0 if none does.

    With windows the cache grows more slowly once they are full. Raises: OverflowError if it never
    fills the room, as of a model that keeps states only.
    """
    if bytes_per_token(shape).n == 0:
        raise OverflowError("this model keeps no more for a longer text")
    low, high = 0, 1
    while cache_bytes(shape, high, bytes_per_number, batch_size=batch_size) <= room:
        low, high = high, high * 2
        if high > 1 << 60:
            raise OverflowError("the windows of all layers are full before the room is")
    while high - low > 1:
        middle = (low + high) // 2
        fits = cache_bytes(shape, middle, bytes_per_number, batch_size=batch_size) <= room
        low, high = (middle, high) if fits else (low, middle)
    return low


def of_tokens(per_token: Bytes, n_tokens: float, *, batch_size: int = 1, block: int = 1) -> Bytes:
    """Of sequences of a model that is known by what one token leaves."""
    return per_token * (_whole_blocks(n_tokens, block) * batch_size)


def tokens_in_pool(pool: Bytes, per_token: Bytes, *, block: int = 1) -> int:
    """Tokens that a pool holds, whole blocks of them."""
    ratio = pool / per_token
    assert isinstance(ratio, float)
    return int(ratio // block) * block
