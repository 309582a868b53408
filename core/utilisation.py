"""Floating-point operations of training and what share of the hardware's they are, by each
convention in use; and what follows from them: days, hours, energy, carbon, money.

MFU counts what the model needs, HFU what was computed, recomputing included: HFU ≥ MFU. Conventions
differ in attention (left out, in full, or the half that a causal mask leaves), in which parameters
are N, in windows, and in mixtures (active parameters or all, of which only the first is work).

Letters: N parameters, D tokens, L layers, H heads, Q width of a head, T tokens of a sequence, B
sequences, h width, V vocabulary. Rates are of all devices together unless they say otherwise.
Checked: tests/core/test_utilisation.py, tests/data/oracle.csv (tests/core/test_conformance.py).
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace

from core.architecture import Attention, ModelShape
from core.counts import counts
from core.ops import Op, Prefill
from core.transformer import model_ops

ATTENTION = ("none", "full", "causal")
COUNTED = {
    "all": "all parameters",
    "multiplied": "all but tables that rows are only looked up in",
    "layers": "neither embeddings nor head",
    "products": "matrix products as computed: no norms, no biases, no tables",
}
RECOMPUTE = ("none", "selective", "full")
SECONDS_PER_DAY = 86_400
_LOOKS = ("flash", "scores", "mix")  # kinds of rows that multiply tokens with tokens


@dataclass(frozen=True, slots=True, kw_only=True)
class Convention:
    """How the operations of a token are counted. Raises: ValueError for what is not a choice."""

    name: str
    attention: str = "full"  # of ATTENTION
    counted: str = "all"  # of COUNTED: what N is
    active: bool = True  # of a mixture, the experts that a token meets
    windows: bool = True  # whether a layer with a window sees no more than it
    recompute: str = "none"  # of RECOMPUTE; any other makes it HFU
    used_by: str = ""

    def __post_init__(self) -> None:
        for field, choices in (
            ("attention", ATTENTION),
            ("counted", tuple(COUNTED)),
            ("recompute", RECOMPUTE),
        ):
            value = getattr(self, field)
            if value not in choices:
                raise ValueError(f"{field}={value!r} is unknown; choose {', '.join(choices)}")
        if self.counted == "products" and not self.active:
            raise ValueError("products of experts that no token meets are not computed; count all")


CONVENTIONS = (
    Convention(
        name="6N",
        attention="none",
        used_by="Hoffmann et al. 2022 (Chinchilla) and most budgets: all parameters, no attention",
    ),
    Convention(
        name="6N without embeddings",
        attention="none",
        counted="layers",
        used_by="Kaplan et al. 2020: neither embeddings nor head, no attention",
    ),
    Convention(
        name="6N + 12 L H Q T",
        used_by="PaLM, nanoGPT, llm-foundry: all parameters, attention in full",
    ),
    Convention(
        name="6N + 12 L H Q T, no lookup",
        counted="multiplied",
        used_by="torchtitan: no input embedding, attention in full",
    ),
    Convention(
        name="6N + 6 L H Q T",
        attention="causal",
        used_by="FlashAttention's papers: the half that a causal mask leaves",
    ),
    Convention(
        name="matrix products alone",
        counted="products",
        used_by="torch's FlopCounterMode, Megatron's 72 B L s h² (…): attention in full",
    ),
    Convention(
        name="HFU, attention again",
        counted="products",
        recompute="selective",
        used_by="Korthikanti et al. 2022: selective recomputing",
    ),
    Convention(
        name="HFU, blocks again",
        counted="products",
        recompute="full",
        used_by="Megatron's 96 B L s h² (…): every block computed twice",
    ),
    Convention(
        name="all experts",
        active=False,
        used_by="a mistake: experts that no token meets do no work",
    ),
    Convention(
        name="windows as if full",
        windows=False,
        used_by="a mistake: tokens outside a window are not multiplied",
    ),
)


# -- operations ---------------------------------------------------------------------------------


def forward_flops(
    shape: ModelShape, *, batch_size: int, seq_len: int, causal_half: bool = False
) -> float:
    """Of one forward pass over whole sequences, logits of every token: a sum over the op table.

    A window bounds what a token sees. `causal_half`: attention counted as what a causal mask
    leaves of it.
    """
    looks = attention_flops(shape, seq_len=seq_len, causal_half=causal_half)
    return batch_size * (seq_len * 2 * multiplied_numbers(shape) + looks)


def attention_flops(
    shape: ModelShape, *, seq_len: int, causal_half: bool = False, windows: bool = True
) -> float:
    """Of a sequence's products of tokens with tokens, forward: a sum over the op table.

    A token is multiplied with all T, or with a window w. A causal mask leaves T² / 2 pairs of
    tokens, T w − w² / 2 where a window slides, T w / 2 where it is an aligned block.
    """
    total = 0.0
    for layer, n_layers in shape.kinds().items():
        ops = _needed(replace(shape, layers=((1, layer),)), seq_len)
        of_all = sum(op.repeat * op.forward_flops for op in ops if op.kind in _LOOKS)
        if not of_all:
            continue
        window = layer.mixer.window or seq_len
        near = min(window, seq_len)
        seen: float = near if windows else seq_len
        if causal_half:
            in_blocks = isinstance(layer.mixer, Attention) and layer.mixer.chunked
            seen -= seen / 2 if in_blocks else seen**2 / (2 * seq_len)
        total += n_layers * of_all / near * seen
    return total


def multiplied_numbers(shape: ModelShape) -> int:
    """Numbers of all matrices that a token is multiplied with, the head's too; of experts, those
    of the ones it meets.
    """
    return _products(_needed(shape, 1)) // 2


def _needed(shape: ModelShape, seq_len: int) -> tuple[Op, ...]:
    """What the model needs of a sequence: nothing beyond a window is multiplied."""
    return model_ops(replace(shape, attention="flash"), Prefill(batch_size=1, seq_len=seq_len))


def _products(ops: Sequence[Op]) -> int:
    return sum(op.repeat * op.forward_flops for op in ops if op.kind not in _LOOKS)


def train_flops(forward: float, *, again: float = 0.0) -> float:
    """3 × forward, since backward multiplies twice as much; `again`: what recomputing repeats, of
    all that is forward (4 ×) or of attention alone.

    Source: Korthikanti et al. 2022 (arXiv:2205.05198), section 5.
    """
    return 3 * forward + again


def flops_per_token(
    n_params: float,
    *,
    layers: int = 0,
    width: int = 0,
    seq_len: int = 0,
    causal_half: bool = False,
) -> float:
    """6N + 12 L (H Q) T of a token in training; `width` is H × Q; without them 6N.

    Source: Chowdhery et al. 2022 (PaLM), appendix B.
    """
    attention = 12 * layers * width * seq_len
    return 6 * n_params + attention * (0.5 if causal_half else 1.0)


def megatron_flops(
    *, batch: int, layers: int, seq: int, hidden: int, vocab: int, recompute: str = "none"
) -> float:
    """72 B L s h² (1 + s/6h + V/12hL) of an iteration; where blocks are computed again
    96 B L s h² (1 + s/6h + V/16hL); where attention is, 72 B L s h² (1 + s/3h + V/12hL).

    The last is the paper's HFU, and generous: it counts attention's forward and backward once more,
    where only the forward, a third of it, is computed again (`convention_flops` counts that).
    Source: Narayanan et al. 2021 (arXiv:2104.04473), section 5.1; Korthikanti et al. 2022
    (arXiv:2205.05198), whose table 5 it gives. Raises: ValueError for an unknown `recompute`.
    """
    if recompute not in RECOMPUTE:
        raise ValueError(f"recompute={recompute!r} is unknown; choose {', '.join(RECOMPUTE)}")
    each, head = (96, 16) if recompute == "full" else (72, 12)
    attention = 3 if recompute == "selective" else 6
    parts = 1 + seq / (attention * hidden) + vocab / (head * hidden * layers)
    return each * batch * layers * seq * hidden**2 * parts


def counted_params(shape: ModelShape, convention: Convention) -> int:
    """N of a convention; of `products`, numbers of the matrices that are multiplied."""
    found = counts(shape)
    n = found.active if convention.active else found.total
    if convention.counted == "all":
        return n
    if convention.counted == "products":
        return multiplied_numbers(shape)
    n -= found.input_embedding + found.positions
    return n - (shape.vocab_size * shape.d_model if convention.counted == "layers" else 0)


def convention_flops(shape: ModelShape, convention: Convention, *, seq_len: int) -> float:
    """Of a token of a training step under a convention. The head is in no block: it is not
    computed again.
    """
    looks = attention_flops(
        shape,
        seq_len=seq_len,
        causal_half=convention.attention == "causal",
        windows=convention.windows,
    )
    looks *= (convention.attention != "none") / seq_len
    numbers = counted_params(shape, convention)
    blocks = multiplied_numbers(shape) - shape.vocab_size * shape.d_model
    again = {"none": 0.0, "selective": looks, "full": 2 * blocks + looks}[convention.recompute]
    return train_flops(2 * numbers + looks, again=again)


# -- shares -------------------------------------------------------------------------------------


class Impossible(ValueError):
    """A figure that no hardware can reach; says which, and what is likely to be wrong with it."""


def mfu(flops_per_s: float, *, chips: int, peak_flops: float) -> float:
    """Share of the dense peak of all `chips` together; HFU where recomputing is in the rate.

    `peak_flops`: of one chip. Raises: ValueError for no chips or no peak.
    """
    if chips < 1 or peak_flops <= 0:
        raise ValueError(f"chips={chips}, peak={peak_flops}: give 1 or more, and a peak above 0")
    return flops_per_s / (chips * peak_flops)


def checked_mfu(share: float) -> float:
    """Raises: Impossible above 1, with what is usually wrong then."""
    if share > 1:
        raise Impossible(
            f"{100 * share:.0f} % of the peak is more than there is: look for one chip's peak for "
            "many chips, attention that a mask or window leaves out, all experts instead of the "
            "active ones, recomputing counted as the model's work, or the peak of another format"
        )
    return share


# -- what follows -------------------------------------------------------------------------------


def total_flops(n_params: float, n_tokens: float) -> float:
    """6 N D. Source: Kaplan et al. 2020; Hoffmann et al. 2022."""
    return flops_per_token(n_params) * n_tokens


def train_days(flops: float, *, chips: int, peak_flops: float, mfu: float) -> float:
    """Days of so many chips at a share of their peak."""
    return flops / (chips * peak_flops * mfu) / SECONDS_PER_DAY


def tokens_per_s(flops_per_token: float, *, chips: int, peak_flops: float, mfu: float) -> float:
    """Tokens that so many chips train on in a second, at a share of their peak."""
    return chips * peak_flops * mfu / flops_per_token


def device_hours(n_tokens: float, tokens_per_s_per_device: float) -> float:
    """Hours of one device, or device-hours of many."""
    return n_tokens / tokens_per_s_per_device / 3600


def hours_of_flops(flops: float, *, peak_flops: float, mfu: float) -> float:
    """Device-hours of so many operations at a share of a device's peak."""
    return flops / (peak_flops * mfu) / 3600


def hours_of_steps(n_steps: float, seconds_per_step: float) -> float:
    """Hours of whatever the seconds are of: one device, or a whole machine."""
    return n_steps * seconds_per_step / 3600


def hours_of_many(hours: float, devices: int) -> float:
    """Device-hours of so many devices that run at once for so many hours."""
    return hours * devices


def hours_per_trillion(hours: float, n_tokens: float) -> float:
    """Device-hours for each 10¹² tokens."""
    return hours / (n_tokens / 1e12)


def implied_mfu(flops: float, *, hours: float, peak_flops: float) -> float:
    """The share that published device-hours imply: a budget, with restarts and waiting in it."""
    return flops / (hours * 3600 * peak_flops)


def energy_kwh(hours: float, power_w: float, *, pue: float = 1.0) -> float:
    """Of devices at their rated power; `pue`: what a building takes besides, as a factor."""
    return hours * power_w * pue / 1000


def carbon_tonnes(kwh: float, kg_per_kwh: float) -> float:
    """t CO₂ eq."""
    return kwh * kg_per_kwh / 1000


def carbon_intensity(tonnes: float, kwh: float) -> float:
    """kg CO₂ eq for each kWh that published tonnes imply; rows of one table should agree."""
    return tonnes * 1000 / kwh


def cost_usd(hours: float, usd_per_hour: float) -> float:
    """Hours of devices or of machines, whichever the price is of."""
    return hours * usd_per_hour


def usd_per_tokens(
    *, devices: int, usd_per_device_hour: float, tokens_per_s: float, tokens: float = 1000
) -> float:
    """Price of so many tokens at a rate that all devices reach together."""
    return devices * usd_per_device_hour / 3600 / tokens_per_s * tokens


def price_ratio(output_usd: float, input_usd: float) -> float:
    """How many times as much an output token costs as an input token."""
    return output_usd / input_usd
