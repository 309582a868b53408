"""Adapters of times, operations, shares, costs and hardware: a row's inputs put into the pages'
functions, whatever its source calls them and in whichever unit it writes them.
"""

import re
from collections.abc import Callable, Mapping

from core import device_times, roofline, speculation, utilisation
from core.architecture import ModelShape
from core.catalog import Device, find_device, find_model
from core.conformance.answers import Answer, Inputs, Unsupported, Value
from core.conformance.models import shape_of
from core.counts import counts
from core.fits import needed_devices
from core.footprints import Serving
from core.quantised import weight_formats
from core.sizes import Bytes
from core.work_columns import distinct_experts

# -- names and units ----------------------------------------------------------------------------

# What rows call an input, and how many of the function's unit one of it is.
_PEAK = {
    "peak_flops": 1.0, "peak": 1.0, "peak_gflops": 1e9, "peak_tflops": 1e12, "peak_pflops": 1e15,
}  # fmt: skip
_BANDWIDTH = {
    "bandwidth": 1.0, "bandwidth_bytes_s": 1.0, "bandwidth_gb_s": 1e9, "bandwidth_tb_s": 1e12,
    "peak_bw_GBs": 1e9, "theoretical_bw_GBs": 1e9,
}  # fmt: skip
_SECONDS = {
    "time_s": 1.0, "iter_s": 1.0, "step_s": 1.0, "sec_per_step": 1.0, "seconds": 1.0,
    "time_ms": 1e-3, "iter_ms": 1e-3, "step_ms": 1e-3, "ms": 1e-3,
}  # fmt: skip
_SIZES = {"_bytes": "B", "_gb": "GB", "_GB": "GB", "_gib": "GiB", "_mb": "MB", "_mib": "MiB"}

_CHIPS = ("chips", "gpus", "n_gpus", "devices", "world_size")
_PARAMS = ("active_params", "N_active", "active", "N", "params", "n_params")
_TOKENS = ("D", "tokens", "n_tokens", "train_tokens")
_LAYERS = ("layers", "L", "n_layers")
_SEQ = ("seq", "T", "seq_len", "s")
_BATCH = ("global_batch", "batch", "micro_batch", "B")
_OF_ALL = ("tokens_per_s", "tok_s", "tokens_per_second")
_OF_ONE = ("tokens_per_s_per_gpu", "tok_s_per_gpu", "tokens_per_s_per_chip")
_HOURS = ("gpu_hours", "hours", "chip_hours", "device_hours")
_USD = ("usd_per_gpu_hour", "usd_per_hour", "usd_per_node_hour")


def _any(given: Inputs, *names: str) -> bool:
    return any(given.has(name) for name in names)


def _scaled(given: Inputs, units: Mapping[str, float]) -> float:
    """The first that is given, in the function's unit."""
    for name, size in units.items():
        if given.has(name):
            return given.number(name) * size
    raise Unsupported(f"{' or '.join(units)} is missing")


def _size(given: Inputs, *stems: str) -> Bytes:
    """`weight_bytes`, `weight_gb`, `weight_gib`, …: the first that is given."""
    for stem in stems:
        for ending, unit in _SIZES.items():
            if given.has(stem + ending):
                return Bytes.of(given.number(stem + ending), unit)
    raise Unsupported(f"{' or '.join(stem + '_bytes' for stem in stems)} is missing")


def _sized(given: Inputs, *stems: str) -> bool:
    return _any(given, *(stem + ending for stem in stems for ending in _SIZES))


def _device(given: Inputs) -> Device:
    name = given.text("gpu") if given.has("gpu") else given.text("device")
    try:
        return find_device(name)
    except LookupError as why:
        raise Unsupported(str(why)) from None


def _peak(given: Inputs) -> float:
    """FLOP/s of one device: as given, or the dense one of a device in the format."""
    if _any(given, *_PEAK):
        return _scaled(given, _PEAK)
    device, name = _device(given), given.text("precision", default="bf16")
    peak = device.peak_flops.get(name)
    if peak is None:
        raise Unsupported(f"a {name[:20]} peak of {device.name} is not known")
    return peak


def _bandwidth(given: Inputs) -> float:
    if _any(given, *_BANDWIDTH):
        return _scaled(given, _BANDWIDTH)
    return _device(given).bandwidth_bytes_s


def _share_of_peak(given: Inputs) -> float:
    if given.has("mfu_percent"):
        return given.number("mfu_percent") / 100
    return given.number("mfu", "utilisation", "utilization")


# -- models -------------------------------------------------------------------------------------


def _named(name: str) -> ModelShape:
    try:
        return find_model(name).shape
    except LookupError as why:
        raise Unsupported(str(why)) from None


def _shape(given: Inputs) -> ModelShape:
    """A model by its sizes, by its name, or where a row names a family only, its first member."""
    if given.has("layers") or given.has("model"):
        return shape_of(given)
    return _named(given.text("arch"))


def _params(given: Inputs) -> float:
    """Parameters that a token meets: as given, or of a model by its name."""
    if _any(given, *_PARAMS):
        return given.number(*_PARAMS)
    if not given.has("model"):
        raise Unsupported("N or params or model is missing")
    return counts(_named(given.text("model"))).active


def _layers_and_width(given: Inputs) -> tuple[int, int]:
    """Layers, and heads × width of a head. Short names are PaLM's: H heads, Q width of a head."""
    layers = given.whole(*_LAYERS)
    if given.has("H", "Q"):
        return layers, given.whole("H") * given.whole("Q")
    if given.has("heads", "head_dim"):
        return layers, given.whole("heads") * given.whole("head_dim")
    return layers, given.whole("hidden", "d", "h", "d_model")


# -- operations and shares ----------------------------------------------------------------------


def _formula(given: Inputs) -> str:
    """A row's formula without spaces, signs of multiplication and powers; small letters."""
    return re.sub(r"[\s*·×^²]", "", given.text("formula", default="").lower())


def _is_megatron(given: Inputs) -> bool:
    said = _formula(given)
    if said:
        return said.startswith(("72b", "96b"))
    return given.has("hidden", "layers", "vocab") and not _any(given, *_PARAMS)


def _halves(given: Inputs) -> bool:
    said = _formula(given)
    asked = given.flag("causal_discount") or given.flag("causal")
    return asked or "6lhqt" in said or "6lds" in said or "causal" in said


def _recompute(given: Inputs) -> str:
    """none, selective or full: as the formula says, or the row."""
    if _formula(given).startswith(("96b", "8n")):
        return "full"
    said = given.plain().get("recompute", given.plain().get("mode", "none"))
    if isinstance(said, bool):
        return "full" if said else "none"
    name = str(said).removesuffix("_recompute").removesuffix("_checkpointing")
    if name not in utilisation.RECOMPUTE:
        raise Unsupported(f"recompute={str(said)[:40]!r} is unknown")
    return name


def _forward_flops(given: Inputs) -> Answer:
    return Value(number=_forward(given), unit="FLOP")


def _forward(given: Inputs) -> float:
    return utilisation.forward_flops(
        _shape(given),
        batch_size=given.whole(*_BATCH, default=1),
        seq_len=given.whole(*_SEQ),
        causal_half=_halves(given),
    )


def _train_flops(given: Inputs) -> Answer:
    forward, how = _forward(given), _recompute(given)
    again = {"none": 0.0, "full": forward}.get(how)
    if again is None:
        looks = utilisation.attention_flops(
            _shape(given), seq_len=given.whole(*_SEQ), causal_half=_halves(given)
        )
        again = looks * given.whole(*_BATCH, default=1)
    return Value(number=utilisation.train_flops(forward, again=again), unit="FLOP")


def _per_token(given: Inputs) -> float:
    """Operations of a token by the formula that the row names, or else by what it gives."""
    said = _formula(given)
    if "+" not in said and said.startswith("6n"):
        return utilisation.flops_per_token(_params(given))
    half = _halves(given)
    if given.has("model") and not _any(given, *_LAYERS):
        if not _any(given, *_SEQ):
            return utilisation.flops_per_token(_params(given))
        convention = utilisation.Convention(name="", attention="causal" if half else "full")
        seq_len = given.whole(*_SEQ)
        return utilisation.convention_flops(_shape(given), convention, seq_len=seq_len)
    if not _any(given, *_LAYERS):
        return utilisation.flops_per_token(_params(given))
    layers, width = _layers_and_width(given)
    return utilisation.flops_per_token(
        _params(given),
        layers=layers,
        width=width,
        seq_len=given.whole(*_SEQ),
        causal_half=half,
    )


def _palm_flops(given: Inputs) -> Answer:
    tokens = given.whole(*_SEQ) * given.whole(*_BATCH, default=1)
    return Value(number=_per_token(given) * tokens, unit="FLOP")


def _megatron(given: Inputs) -> float:
    return utilisation.megatron_flops(
        batch=given.whole(*_BATCH),
        layers=given.whole("layers"),
        seq=given.whole(*_SEQ),
        hidden=given.whole("hidden"),
        vocab=given.whole("vocab"),
        recompute=_recompute(given),
    )


def _tokens_per_s(given: Inputs) -> float:
    """Of all chips, or of one where the row gives that."""
    if _any(given, *_OF_ONE, *_OF_ALL):
        return given.number(*_OF_ONE, *_OF_ALL)
    if given.has("tokens_per_step"):
        return given.number("tokens_per_step") / _scaled(given, _SECONDS)
    return given.whole(*_BATCH) * given.whole(*_SEQ) / _scaled(given, _SECONDS)


def _rate(given: Inputs) -> tuple[float, int]:
    """FLOP/s, and of how many chips."""
    of_one = _any(given, *_OF_ONE)  # what the whole machine has does not matter then
    chips = 1 if of_one else given.whole(*_CHIPS, default=1)
    for name in ("flops_per_seq", "flops_per_step"):
        if given.has(name):
            times = given.number(*_BATCH, default=1) if name == "flops_per_seq" else 1
            return given.number(name) * times / _scaled(given, _SECONDS), chips
    if _is_megatron(given):
        return _megatron(given) / _scaled(given, _SECONDS), chips
    return _per_token(given) * _tokens_per_s(given), chips


def _mfu(given: Inputs) -> Answer:
    rate, chips = _rate(given)
    share = utilisation.mfu(rate, chips=chips, peak_flops=_peak(given))
    return Value(number=100 * share, unit="%")


def _rate_of_one(given: Inputs) -> Answer:
    rate, chips = _rate(given)
    return Value(number=rate / chips / 1e12, unit="TFLOP/s")


def _budget(given: Inputs) -> float:
    """FLOP of a whole training run."""
    if given.has("flops"):
        return given.number("flops")
    if "+" in _formula(given):
        return _per_token(given) * given.number(*_TOKENS)
    return utilisation.total_flops(_params(given), given.number(*_TOKENS))


def _total_flops(given: Inputs) -> Answer:
    return Value(number=_budget(given), unit="FLOP")


def _days(given: Inputs) -> Answer:
    days = utilisation.train_days(
        _budget(given),
        chips=given.whole(*_CHIPS),
        peak_flops=_peak(given),
        mfu=_share_of_peak(given),
    )
    return Value(number=days, unit="days")


# -- hours, carbon, money -----------------------------------------------------------------------


def _hours_of(given: Inputs) -> float:
    """Device-hours, however a row tells them; of machines, where its price is of one."""
    if _any(given, *_HOURS):
        return given.number(*_HOURS)
    if given.has("steps"):
        return utilisation.hours_of_steps(given.number("steps"), _scaled(given, _SECONDS))
    if _any(given, *_OF_ONE):
        return utilisation.device_hours(given.number(*_TOKENS), given.number(*_OF_ONE))
    if given.has("days"):
        return utilisation.hours_of_days(given.number("days"), given.whole(*_CHIPS))
    if _any(given, *_OF_ALL):
        chips = given.whole(*_CHIPS)
        of_one = given.number(*_OF_ALL) / chips
        return utilisation.device_hours(given.number(*_TOKENS), of_one)
    return utilisation.hours_of_flops(
        _budget(given), peak_flops=_peak(given), mfu=_share_of_peak(given)
    )


def _hours(given: Inputs) -> Answer:
    return Value(number=_hours_of(given), unit="h")


def _hours_per_trillion(given: Inputs) -> Answer:
    hours = utilisation.hours_per_trillion(_hours_of(given), given.number(*_TOKENS))
    return Value(number=hours, unit="h")


def _energy(given: Inputs) -> float:
    if given.has("kwh"):
        return given.number("kwh")
    watts = _scaled(given, {"power_w": 1.0, "tdp_w": 1.0, "power_kw": 1000.0})
    return utilisation.energy_kwh(_hours_of(given), watts, pue=given.number("pue", default=1))


def _energy_kwh(given: Inputs) -> Answer:
    return Value(number=_energy(given), unit="kWh")


def _carbon(given: Inputs) -> Answer:
    tonnes = utilisation.carbon_tonnes(_energy(given), given.number("kg_per_kwh"))
    return Value(number=tonnes, unit="t")


def _cost(given: Inputs) -> Answer:
    usd = utilisation.cost_usd(_hours_of(given), given.number(*_USD))
    return Value(number=usd, unit="USD")


def _per_thousand(given: Inputs) -> Answer:
    usd = utilisation.usd_per_tokens(
        devices=1 if _any(given, *_OF_ONE) else given.whole(*_CHIPS, default=1),
        usd_per_device_hour=given.number("usd_per_gpu_hour", "usd_per_hour"),
        tokens_per_s=given.number(*_OF_ONE, *_OF_ALL),
    )
    return Value(number=usd, unit="USD")


def _price_ratio(given: Inputs) -> Answer:
    ratio = utilisation.price_ratio(given.number("output"), given.number("input"))
    return Value(number=ratio, unit="ratio")


# -- bytes of a token ---------------------------------------------------------------------------

_FORMATS = {"int4": "int4-g32", "4bit": "int4-g32", "fp16": "fp16", "float16": "fp16"}
_FORMAT_NAMES = ("weight_format", "format", "ftype", "quant", "dtype", "precision", "mode")


def _format(name: str) -> str:
    found = _FORMATS.get(name.lower(), name)
    known = {known.lower(): known for known in weight_formats()}
    if found not in known.values() and found.lower() not in known:
        raise Unsupported(f"format {name[:20]!r} is unknown")
    return found if found in known.values() else known[found.lower()]


def _read_of(shape: ModelShape, weight_format: str, batch: int = 1) -> Bytes:
    """Weights that a decode reads for so many sequences."""
    how = Serving(
        batch_size=batch, context=1, weight_format=_format(weight_format), cache_format="bf16"
    )
    found = device_times.serving_costs((shape,), "decode", how, 1)
    return Bytes(float(found.weights_bytes.sum()))


def _weights(given: Inputs) -> Bytes:
    """As given, or of a model by its name, in a format that the row names."""
    if _sized(given, "weight", "weights", "param", "model", "file"):
        return _size(given, "weight", "weights", "param", "model", "file")
    if _any(given, *_PARAMS) and _any(given, "bytes", "bytes_per_weight", "bits_per_weight"):
        return _read_bytes(given)
    for name in _FORMAT_NAMES:
        if given.has("model", name):
            return _read_of(
                _named(given.text("model")), given.text(name), given.whole("batch", default=1)
            )
    raise Unsupported("neither bytes of weights are given, nor a model and a format")


def _read_bytes(given: Inputs) -> Bytes:
    width = {"bytes": 1.0, "bytes_per_weight": 1.0, "bytes_per_param": 1.0, "bits": 1 / 8}
    shape = None if _any(given, *_PARAMS) else _named(given.text("model"))
    lookup = 0 if shape is None else counts(shape).input_embedding
    return roofline.read_per_token(
        _params(given),
        bytes_per_weight=_scaled(given, {**width, "bits_per_weight": 1 / 8}),
        not_read=given.number("exclude_embedding", default=lookup),
    )


def _read(given: Inputs) -> Answer:
    return _read_bytes(given)


# -- times --------------------------------------------------------------------------------------


def _milliseconds(seconds: float) -> Answer:
    return Value(number=1000 * seconds, unit="ms")


def _cache(given: Inputs) -> Bytes:
    """Of all sequences."""
    batch = given.whole("batch", default=1)
    if _sized(given, "kv"):
        return _size(given, "kv")
    if given.has("kv_bytes_per_seq"):
        return Bytes(given.number("kv_bytes_per_seq")) * batch
    if given.has("kv_bytes_per_token"):
        tokens = given.whole("ctx", "context", "seq")
        return Bytes(given.number("kv_bytes_per_token")) * tokens * batch
    return Bytes(0)


def _decode(given: Inputs) -> Answer:
    batch = given.whole("batch", default=1)
    computes = _any(given, *_PARAMS) and _any(given, *_PEAK)
    reached = given.number("bandwidth_efficiency", "hbm_efficiency", "efficiency", default=1)
    time = roofline.decode_step(
        weights=_weights(given),
        cache=_cache(given),
        bandwidth=_bandwidth(given) * reached * given.whole(*_CHIPS, default=1),
        flops=roofline.decode_flops(_params(given), batch) if computes else 0.0,
        peak_flops=_peak(given) * given.whole(*_CHIPS, default=1) if computes else float("inf"),
    )
    return _milliseconds(time.seconds)


def _prefill_time(given: Inputs) -> roofline.Time:
    layers = width = 0
    if _any(given, *_LAYERS):
        layers, width = _layers_and_width(given)
    reads = _any(given, *_BANDWIDTH) and _sized(given, "weight", "weights", "param", "model")
    flops = roofline.prefill_flops(
        given.number("params_nonembed") if given.has("params_nonembed") else _params(given),
        seq_len=given.whole("seq", "prompt", "prompt_tokens", "tokens"),
        batch=given.whole("batch", default=1),
        layers=layers,
        width=width,
    )
    reached = given.number("mfu", "flops_efficiency", "efficiency", default=1)
    chips = given.whole(*_CHIPS, default=1)
    return roofline.prefill(
        flops=flops,
        peak_flops=_peak(given) * reached * chips,
        weights=_weights(given) if reads else None,
        bandwidth=_bandwidth(given) * chips if reads else float("inf"),
    )


def _prefill(given: Inputs) -> Answer:
    return _milliseconds(_prefill_time(given).seconds)


def _critical(given: Inputs) -> Answer:
    batch = roofline.critical_batch(
        peak_flops=_peak(given),
        bandwidth=_bandwidth(given),
        weight_bytes=given.number("weight_bytes", "bytes_per_weight"),
        flops_per_weight=given.number("flops_per_weight", default=2),
    )
    return Value(number=batch, unit="tokens")


def _first_token(given: Inputs) -> Answer:
    waited = given.number("queue_s", "waited_s", default=0)
    if _any(given, "prefill_tok_s", "prefill_tokens_per_s"):
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


# -- hardware and claims ------------------------------------------------------------------------


def _peak_from_clock(given: Inputs) -> Answer:
    peak = roofline.peak_from_clock(
        clock_mhz=_scaled(given, {"clock_mhz": 1.0, "boost_mhz": 1.0, "clock_ghz": 1000.0}),
        cores=given.whole("cores"),
        fma_per_core=given.whole("fma_per_core", "fma_per_clock"),
    )
    return Value(number=peak / 1e12, unit="TFLOP/s")


def _bandwidth_from_bus(given: Inputs) -> Answer:
    found = roofline.bandwidth_from_bus(
        bus_bits=given.whole("bus_bits"),
        clock_mhz=_scaled(given, {"mem_clock_mhz": 1.0, "mem_clock_ghz": 1000.0}),
        transfers_per_clock=given.number("transfers_per_clock", default=2),
    )
    return Value(number=found / 1e12, unit="TB/s")


def _ridge(given: Inputs) -> Answer:
    return Value(number=roofline.ridge(_peak(given), _bandwidth(given)), unit="FLOP/B")


def _chips(given: Inputs) -> Answer:
    if given.has("bytes_per_chip"):
        each = Bytes(given.number("bytes_per_chip"))
    elif _sized(given, "memory"):
        each = _size(given, "memory")
    else:
        each = _device(given).memory
    return Value(number=needed_devices(_weights(given), each), unit="chips")


def _claimed_bandwidth(given: Inputs) -> Answer:
    needed = roofline.required_bandwidth(
        _weights(given), given.number("claimed_tok_s", "tok_s", "tokens_per_s")
    )
    return Value(number=needed / 1e9, unit="GB/s")


ADAPTERS: dict[str, Callable[[Inputs], Answer]] = {
    "mfu_percent": _mfu,
    "hfu_percent": _mfu,
    "hardware_tflops_per_gpu": _rate_of_one,
    "model_tflops_per_gpu": _rate_of_one,
    "forward_flops": _forward_flops,
    "train_flops": _train_flops,
    "train_flops_palm_formula": _palm_flops,
    "train_flops_total": _total_flops,
    "train_days_6ND": _days,
    "train_days": _days,
    "gpu_hours": _hours,
    "gpu_hours_per_trillion_tokens": _hours_per_trillion,
    "energy_kwh": _energy_kwh,
    "tCO2eq": _carbon,
    "training_cost_usd": _cost,
    "usd_per_1k_completion_tokens": _per_thousand,
    "output_over_input_price": _price_ratio,
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
        read, bandwidth = _weights(given), _bandwidth(given) * given.whole(*_CHIPS, default=1)
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
    return _read_of(_named(name), weight_format), n * found.bandwidth_bytes_s


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
    needed = roofline.decode_flops(_params(given)) * expected
    if not _any(given, *_PEAK, "gpu", "device"):
        said = _scaled(given, {"implied_gflops": 1e9})
        return abs(needed / said - 1) <= 0.02, f"2 N × rate / stated = {needed / said:.3f}"
    share = utilisation.mfu(needed, chips=given.whole(*_CHIPS, default=1), peak_flops=_peak(given))
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
    rate = _megatron(given) / expected
    return _possible(utilisation.mfu(rate, chips=given.whole(*_CHIPS), peak_flops=_peak(given)))


def _possible_hours(given: Inputs, expected: float) -> tuple[bool, str]:
    """Published device-hours imply a share of the peak above 0 and not above 1, and the one that
    the row states, where it does.
    """
    try:
        model = find_model(given.text("model"))
    except LookupError as why:
        raise Unsupported(str(why)) from None
    tokens = given.number(*_TOKENS, default=model.train_tokens)
    flops = utilisation.total_flops(_params(given), tokens)
    share = utilisation.implied_mfu(flops, hours=expected, peak_flops=_peak(given))
    holds, said = _possible(share)
    if given.has("implied_mfu"):
        stated = given.number("implied_mfu")
        return holds and abs(share / stated - 1) <= 0.02, f"{said}; the row says {stated:g}"
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
