"""Time from operations and bytes: whichever takes longer bounds it.

Bytes over bandwidth, operations over peak; batch, cache and experts on either side. Ideal figures
are ceilings: what is reached is a band by kind of device and runtime (`core.catalog.bands`).
Bandwidths are in bytes a second, peaks in FLOP/s of dense products, times in seconds.

Source: Williams et al. 2009, the roofline model; Austin et al. 2025, "How to Scale Your Model".
Checked: tests/core/test_roofline.py, tests/data/oracle.csv (tests/core/test_conformance.py).
"""

import math
from collections.abc import Callable
from dataclasses import dataclass

from core.sizes import Bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class Time:
    """Seconds of bytes and of operations, and what bounds them."""

    bytes_s: float
    flops_s: float
    cache_s: float = 0.0  # keys and values, which no batch shares

    @property
    def seconds(self) -> float:
        """Attention waits for its cache and then the matrices run: the cache's time, and the longer
        of reading weights and of computing with them. Source: "How to Scale Your Model".
        """
        return self.cache_s + max(self.bytes_s, self.flops_s)

    @property
    def overlapped(self) -> float:
        """If all bytes came while all operations ran: never more than `seconds`."""
        return max(self.bytes_s + self.cache_s, self.flops_s)

    @property
    def bound(self) -> str:
        """What most of the time goes to: memory or compute."""
        waits = self.cache_s + (self.bytes_s if self.bytes_s >= self.flops_s else 0.0)
        return "compute" if self.flops_s > waits else "memory"


def decode_step(
    *,
    weights: Bytes,
    cache: Bytes | None = None,
    bandwidth: float,
    flops: float = 0.0,
    peak_flops: float = math.inf,
) -> Time:
    """One more token of every sequence. `weights`: those that are read, of experts those that the
    batch meets (`core.work_columns.distinct_experts`); `cache`: of all sequences.
    """
    return Time(
        bytes_s=weights.n / bandwidth,
        flops_s=flops / peak_flops,
        cache_s=cache.n / bandwidth if cache else 0.0,
    )


def prefill(
    *, flops: float, peak_flops: float, weights: Bytes | None = None, bandwidth: float = math.inf
) -> Time:
    """Reading a whole prompt: products, or reading the weights once."""
    return Time(bytes_s=weights.n / bandwidth if weights else 0.0, flops_s=flops / peak_flops)


def prefill_flops(
    n_params: float, *, seq_len: int, batch: int = 1, layers: int = 0, width: int = 0
) -> float:
    """2 N s b + 4 L s² b (H Q): parameters that are multiplied, and attention in full."""
    return 2 * n_params * seq_len * batch + 4 * layers * seq_len**2 * batch * width


def decode_flops(n_params: float, batch: int = 1) -> float:
    """2 N b: parameters that a token meets."""
    return 2 * n_params * batch


def ridge(peak_flops: float, bandwidth: float) -> float:
    """FLOP/B from which on operations bound."""
    return peak_flops / bandwidth


def critical_batch(
    *, peak_flops: float, bandwidth: float, weight_bytes: float, flops_per_weight: float = 2
) -> float:
    """Tokens at once from which on a product of weights is bound by operations.

    240 for bf16 on TPU v5e, 120 with weights in one byte. Source: "How to Scale Your Model".
    """
    return peak_flops * weight_bytes / (flops_per_weight * bandwidth)


def peak_from_clock(*, clock_mhz: float, cores: int, fma_per_core: int) -> float:
    """FLOP/s of dense products: a multiply-add counts as two. Peaks "with sparsity" are twice that.

    Source: stas00/ml-engineering, accelerators.
    """
    return clock_mhz * 1e6 * cores * fma_per_core * 2


def bandwidth_from_bus(*, bus_bits: int, clock_mhz: float, transfers_per_clock: float = 2) -> float:
    """B/s of memory; it moves data at both edges of its clock, where nothing else is said."""
    return bus_bits / 8 * clock_mhz * 1e6 * transfers_per_clock


def read_per_token(n_params: float, *, bytes_per_weight: float, not_read: float = 0) -> Bytes:
    """Weights that a token reads: all but an input embedding, of which it looks up a row."""
    return Bytes((n_params - not_read) * bytes_per_weight)


def ceiling_tokens_per_s(read: Bytes, bandwidth: float, *, batch: int = 1) -> float:
    """No step is faster than its bytes are read; each gives a token to every sequence."""
    return bandwidth / read.n * batch


def achieved_share(read: Bytes, tokens_per_s: float, bandwidth: float) -> float:
    """Of the bandwidth, by what a token reads."""
    return required_bandwidth(read, tokens_per_s) / bandwidth


# -- an answer ----------------------------------------------------------------------------------


def first_token_s(
    prompt_tokens: float, prefill_tokens_per_s: float, *, waited_s: float = 0.0
) -> float:
    """Time to first token: waiting in a queue, then reading the prompt."""
    return waited_s + prompt_tokens / prefill_tokens_per_s


def decode_s(step_s: Callable[[int], float], *, prompt: int, n_tokens: int) -> float:
    """All steps after the first token of an answer: the sum over every context, from the prompt
    and one token to the last but one.

    The mean of the first and the last step is not it, where a window fills up or the bound changes.
    """
    return math.fsum(step_s(prompt + i) for i in range(1, n_tokens))


def answer_s(*, first_s: float, each_s: float, n_tokens: int) -> float:
    """From the question to the last of n tokens."""
    return first_s + max(0, n_tokens - 1) * each_s


def tokens_per_s(step_s: float, batch: int = 1) -> float:
    """Of all sequences together; time per output token is `step_s` itself."""
    return batch / step_s


# -- several devices ----------------------------------------------------------------------------


def all_reduce_s(
    *,
    batch: int,
    seq: int,
    hidden: int,
    dtype_bytes: float,
    ranks: int,
    link: float,
    latency_s: float = 0.0,
) -> float:
    """Two ring all-reduces of a layer under tensor parallelism; `link` in B/s, one way, and
    `latency_s` of one all-reduce.

    Source: Shoeybi et al. 2019; each moves 2 (t − 1) / t of the tensor.
    """
    if ranks == 1:
        return 0.0
    moved = 2 * (ranks - 1) / ranks * batch * seq * hidden * dtype_bytes
    return 2 * (moved / link + latency_s)


# -- claims -------------------------------------------------------------------------------------


def required_bandwidth(read: Bytes, tokens_per_s: float) -> float:
    """B/s that a claim needs, as one sequence at a time."""
    return read.n * tokens_per_s


def impossible_claim(
    weights: Bytes,
    tokens_per_s: float,
    *,
    bandwidth: float,
    memory: Bytes | None = None,
    read: Bytes | None = None,
) -> str:
    """Why a claim of single-stream decoding on one device cannot be, or nothing.

    `read`: what a token reads, where it is less than all weights, as of a mixture of experts.
    """
    said = []
    if memory is not None and weights > memory:
        said.append(
            f"{weights.in_unit('GB'):.3g} GB of weights do not fit in "
            f"{memory.in_unit('GB'):.3g} GB of memory"
        )
    met = read or weights
    needed = required_bandwidth(met, tokens_per_s)
    if needed > bandwidth:
        said.append(
            f"{tokens_per_s:g} tokens a second of {met.in_unit('GB'):.3g} GB each need "
            f"{needed / 1e9:,.0f} GB/s, and the device has {bandwidth / 1e9:,.0f} GB/s"
        )
    return "; ".join(said)
