"""Adapters of times and hardware, and bounds that measured ones keep; `work` has operations,
shares and costs.
"""

import math
import re
from collections.abc import Callable, Mapping

from core import roofline, speculation, utilisation
from core.cache import cache_bytes, of_tokens
from core.catalog import find_device, find_model
from core.conformance import told, work
from core.conformance.answers import Answer, Inputs, Unsupported, Value
from core.fits import needed_devices
from core.sizes import Bytes
from core.work_columns import distinct_experts

# -- times --------------------------------------------------------------------------------------


def _milliseconds(seconds: float) -> Answer:
    return Value(number=1000 * seconds, unit="ms")


def _cache(given: Inputs) -> Bytes:
    """Of all sequences."""
    batch = given.whole("batch", default=1)
    if given.has("kv_bytes_per_seq"):
        return Bytes(given.number("kv_bytes_per_seq")) * batch
    if told.sized(given, "kv", "cache"):
        return told.size(given, "kv", "cache")
    if given.has("kv_bytes_per_token"):
        tokens = given.whole("ctx", "context", "seq")
        return of_tokens(Bytes(given.number("kv_bytes_per_token")), tokens, batch_size=batch)
    if given.has("model") and told.has_any(given, "ctx", "context"):
        shape, tokens = told.model_named(given.text("model")), given.whole("ctx", "context")
        return cache_bytes(shape, tokens, 2, batch_size=batch)
    return Bytes(0)


def _decode(given: Inputs) -> Answer:
    batch = given.whole("batch", default=1)
    computes = told.has_any(given, *told.PARAMS) and told.has_any(given, *told.PEAK)
    reached = given.number("bandwidth_efficiency", "hbm_efficiency", "efficiency", default=1)
    chips = given.whole(*told.CHIPS, default=1)
    time = roofline.decode_step(
        weights=told.weights_read(given),
        cache=_cache(given),
        bandwidth=told.bandwidth(given) * reached * chips,
        flops=roofline.decode_flops(told.n_params(given), batch) if computes else 0.0,
        peak_flops=told.peak_flops(given) * chips if computes else math.inf,
    )
    return _milliseconds(time.seconds)


def _prompt_flops(given: Inputs) -> float:
    seq_len = given.whole(*told.SEQ, "prompt", "prompt_tokens", "tokens")
    batch = given.whole("batch", default=1)
    if not told.has_any(given, "params_nonembed", *told.PARAMS):
        return utilisation.forward_flops(told.model(given), batch_size=batch, seq_len=seq_len)
    layers, width = told.layers_and_width(given) if told.has_any(given, *told.LAYERS) else (0, 0)
    return roofline.prefill_flops(
        told.scaled(given, {"params_nonembed": 1.0, **told.PARAMS}),
        seq_len=seq_len,
        batch=batch,
        layers=layers,
        width=width,
    )


def _prefill_time(given: Inputs) -> roofline.Time:
    chips = given.whole(*told.CHIPS, default=1)
    reached = given.number("mfu", "flops_efficiency", "efficiency", default=1)
    reads = told.has_any(given, *told.BANDWIDTH) and told.sized(given, *told.WEIGHTS)
    return roofline.prefill(
        flops=_prompt_flops(given),
        peak_flops=told.peak_flops(given) * reached * chips,
        weights=told.size(given, *told.WEIGHTS) if reads else None,
        bandwidth=told.bandwidth(given) * chips if reads else math.inf,
    )


def _prefill(given: Inputs) -> Answer:
    return _milliseconds(_prefill_time(given).seconds)


def _critical(given: Inputs) -> Answer:
    batch = roofline.critical_batch(
        peak_flops=told.peak_flops(given),
        bandwidth=told.bandwidth(given),
        weight_bytes=given.number("weight_bytes", "bytes_per_weight"),
        flops_per_weight=given.number("flops_per_weight", default=2),
    )
    return Value(number=batch, unit="tokens")


def _first_token(given: Inputs) -> Answer:
    waited = given.number("queue_s", "waited_s", default=0)
    if told.has_any(given, "prefill_tok_s", "prefill_tokens_per_s"):
        seconds = roofline.first_token_s(
            given.number("prompt_tokens", "prompt"),
            given.number("prefill_tok_s", "prefill_tokens_per_s"),
            waited_s=waited,
        )
    else:
        seconds = waited + _prefill_time(given).seconds
    return Value(number=seconds, unit="s")


def _drafts(given: Inputs) -> tuple[float, int]:
    return given.number("alpha", "acceptance"), given.whole("gamma", "n_draft", "k")


def _expected_tokens(given: Inputs) -> Answer:
    return Value(number=speculation.expected_tokens(*_drafts(given)), unit="tokens")


def _speedup(given: Inputs) -> Answer:
    number = speculation.speedup(*_drafts(given), given.number("c", "draft_cost"))
    return Value(number=number, unit="x")


def _speedup_without_bonus(given: Inputs) -> Answer:
    number = speculation.speedup_without_bonus(*_drafts(given), given.number("c", "draft_cost"))
    return Value(number=number, unit="x")


def _distinct(given: Inputs) -> Answer:
    met = distinct_experts(
        given.whole("experts", "E"),
        given.whole("topk", "top_k", "k"),
        given.whole("tokens", "T", "batch"),
    )
    return Value(number=float(met), unit="experts")


def _read(given: Inputs) -> Answer:
    return told.read_bytes(given)


# -- hardware and claims ------------------------------------------------------------------------


def _peak_from_clock(given: Inputs) -> Answer:
    peak = roofline.peak_from_clock(
        clock_mhz=told.scaled(given, {"clock_mhz": 1.0, "boost_mhz": 1.0, "clock_ghz": 1000.0}),
        cores=given.whole("cores"),
        fma_per_core=given.whole("fma_per_core", "fma_per_clock"),
    )
    return Value(number=peak / 1e12, unit="TFLOP/s")


def _bandwidth_from_bus(given: Inputs) -> Answer:
    found = roofline.bandwidth_from_bus(
        bus_bits=given.whole("bus_bits"),
        clock_mhz=told.scaled(given, {"mem_clock_mhz": 1.0, "mem_clock_ghz": 1000.0}),
        transfers_per_clock=given.number("transfers_per_clock", default=2),
    )
    return Value(number=found / 1e12, unit="TB/s")


def _ridge(given: Inputs) -> Answer:
    return Value(
        number=roofline.ridge(told.peak_flops(given), told.bandwidth(given)), unit="FLOP/B"
    )


def _chips(given: Inputs) -> Answer:
    if given.has("bytes_per_chip"):
        each = Bytes(given.number("bytes_per_chip"))
    elif told.sized(given, "memory"):
        each = told.size(given, "memory")
    else:
        each = told.named_device(given).memory
    return Value(number=needed_devices(told.weights_held(given), each), unit="chips")


def _claimed_bandwidth(given: Inputs) -> Answer:
    needed = roofline.required_bandwidth(
        told.weights_read(given), given.number("claimed_tok_s", "tok_s", "tokens_per_s")
    )
    return Value(number=needed / 1e9, unit="GB/s")


ADAPTERS: dict[str, Callable[[Inputs], Answer]] = {
    **work.ADAPTERS,
    "decode_bytes_per_token": _read,
    "decode_latency": _decode,
    "decode_step_time": _decode,
    "prefill_latency": _prefill,
    "critical_batch": _critical,
    "ttft": _first_token,
    "expected_tokens_per_verify": _expected_tokens,
    "speculative_speedup": _speedup,
    "speculative_speedup_without_bonus_token": _speedup_without_bonus,
    "distinct_experts": _distinct,
    "peak_tflops": _peak_from_clock,
    "bandwidth_tb_s": _bandwidth_from_bus,
    "ridge_flop_per_byte": _ridge,
    "min_chips_for_weights": _chips,
    "claim_required_bandwidth": _claimed_bandwidth,
}


# -- bounds -------------------------------------------------------------------------------------


def _under_ceiling(given: Inputs, expected: float) -> tuple[bool, str]:
    """Measured decoding is no faster than bandwidth over bytes."""
    if given.has("draft"):
        raise Unsupported("a pass over drafts gives several tokens")
    if given.has("case"):
        read, bandwidth = _of_case(given.text("case"))
    else:
        read = told.weights_read(given)
        bandwidth = told.bandwidth(given) * given.whole(*told.CHIPS, default=1)
    most = roofline.ceiling_tokens_per_s(read, bandwidth, batch=given.whole("batch", default=1))
    return expected <= most, f"measured {expected:g}, at most {most:.4g} tok/s"


def _of_case(case: str) -> tuple[Bytes, float]:
    """`<model> <format> <devices>`: read of each token, and bandwidth of all devices."""
    words = case.split()
    if len(words) != 3:
        raise Unsupported("no bandwidth, and the case does not name model, format and device")
    name, weight_format, device = words
    times = re.fullmatch(r"(\d+)x(.+)", device)
    n, device = (int(times[1]), times[2]) if times else (1, device)
    try:
        found = find_device(device)
    except LookupError as why:
        raise Unsupported(str(why)) from None
    read = told.read_of(told.model_named(name), told.known_format(weight_format))
    return read, n * found.bandwidth_bytes_s


def _over_floor(time: Callable[[Inputs], Answer]) -> Callable[[Inputs, float], tuple[bool, str]]:
    """A measured time, in ms, is no shorter than the ideal one."""

    def bound(given: Inputs, expected: float) -> tuple[bool, str]:
        ideal = time(given)
        assert isinstance(ideal, Value)
        return expected >= ideal.number, f"measured {expected:g}, at least {ideal.number:.4g} ms"

    return bound


def _under_peak(given: Inputs, expected: float) -> tuple[bool, str]:
    """Reading a prompt multiplies no faster than the peak; where no device is named, the rate that
    the row itself derives is that of 2 N for each token.
    """
    needed = roofline.decode_flops(told.n_params(given)) * expected
    if not told.has_any(given, *told.PEAK, "gpu", "device"):
        said = told.scaled(given, {"implied_gflops": 1e9})
        return abs(needed / said - 1) <= 0.02, f"2 N × rate / stated = {needed / said:.3f}"
    share = utilisation.mfu(
        needed, chips=given.whole(*told.CHIPS, default=1), peak_flops=told.peak_flops(given)
    )
    return share <= 1, f"{100 * share:.3g} % of the peak, at most 100 %"


def _possible(share: float) -> tuple[bool, str]:
    return 0 < share <= 1, f"implied MFU {share:.4f}, above 0 and at most 1"


def _possible_share(given: Inputs, expected: float) -> tuple[bool, str]:
    """A time of a step implies a share of the peak above 0 and not above 1."""
    for name in ("implied_mfu_6N", "implied_mfu"):
        if given.has(name):
            return _possible(given.number(name))
    raise Unsupported("the operations of the step are not given")


def _possible_iteration(given: Inputs, expected: float) -> tuple[bool, str]:
    """The same of an iteration in seconds, whose sizes the row gives."""
    rate = work.megatron(given, work.recompute_of(given)) / expected
    return _possible(
        utilisation.mfu(rate, chips=given.whole(*told.CHIPS), peak_flops=told.peak_flops(given))
    )


def _possible_hours(given: Inputs, expected: float) -> tuple[bool, str]:
    """Published device-hours imply a share of the peak above 0 and not above 1, and the one that
    the row states, where it does.
    """
    try:
        model = find_model(given.text("model"))
    except LookupError as why:
        raise Unsupported(str(why)) from None
    if told.has_any(given, *told.TOKENS):
        tokens = told.scaled(given, told.TOKENS)
    elif model.train_tokens is not None:
        tokens = model.train_tokens
    else:
        raise Unsupported(f"tokens are missing, and {model.name} has none published")
    flops = utilisation.total_flops(told.n_params(given), tokens)
    share = utilisation.implied_mfu(flops, hours=expected, peak_flops=told.peak_flops(given))
    holds, said = _possible(share)
    if given.has("implied_mfu"):
        stated = given.number("implied_mfu")
        return holds and abs(share / stated - 1) <= 0.03, f"{said}; the row says {stated:g}"
    return holds, said


RELATIONS: Mapping[str, Callable[[Inputs, float], tuple[bool, str]]] = {
    "decode_tok_s_measured": _under_ceiling,
    "decode_latency_measured": _over_floor(_decode),
    "prefill_latency_measured": _over_floor(_prefill),
    "prefill_tok_s_measured": _under_peak,
    "step_time_measured": _possible_share,
    "iteration_time_measured": _possible_iteration,
    "gpu_hours_published": _possible_hours,
}
