"""What a row tells, whatever its source calls it and in whichever unit it writes it."""

from collections.abc import Mapping

from core import device_times, roofline
from core.architecture import ModelShape
from core.catalog import Device, find_device, find_model
from core.conformance.answers import Inputs, Unsupported
from core.conformance.models import shape_of
from core.counts import counts
from core.footprints import Serving
from core.quantised import weight_formats, weights_bytes
from core.sizes import Bytes

# -- names and units ----------------------------------------------------------------------------

# What rows call an input, and how many of the function's unit one of it is.
PEAK = {
    "peak_flops": 1.0, "peak": 1.0, "peak_gflops": 1e9, "peak_tflops": 1e12, "peak_pflops": 1e15,
}  # fmt: skip
BANDWIDTH = {
    "bandwidth": 1.0, "bandwidth_bytes_s": 1.0, "bandwidth_gb_s": 1e9, "bandwidth_tb_s": 1e12,
    "peak_bw_GBs": 1e9, "theoretical_bw_GBs": 1e9,
}  # fmt: skip
SECONDS = {
    "time_s": 1.0, "iter_s": 1.0, "step_s": 1.0, "sec_per_step": 1.0, "seconds": 1.0,
    "time_ms": 1e-3, "iter_ms": 1e-3, "step_ms": 1e-3, "ms": 1e-3,
}  # fmt: skip
_SIZES = {"_bytes": "B", "_gb": "GB", "_GB": "GB", "_gib": "GiB", "_mb": "MB", "_mib": "MiB"}

CHIPS = ("chips", "gpus", "n_gpus", "devices", "world_size")
PARAMS = {  # of a mixture, those that a token meets
    "active_params": 1.0, "N_active": 1.0, "active": 1.0, "active_b": 1e9,
    "N": 1.0, "params": 1.0, "n_params": 1.0, "params_b": 1e9,
}  # fmt: skip
TOKENS = {
    "D": 1.0, "tokens": 1.0, "n_tokens": 1.0, "train_tokens": 1.0,
    "tokens_b": 1e9, "tokens_t": 1e12, "T": 1.0,
}  # fmt: skip
LAYERS = ("layers", "L", "n_layers")
SEQ = ("seq", "T", "seq_len", "s")
BATCH = ("global_batch", "batch", "micro_batch", "B")
OF_ALL = ("tokens_per_s", "tok_s", "tokens_per_second")
OF_ONE = ("tokens_per_s_per_gpu", "tok_s_per_gpu", "tokens_per_s_per_chip")


def has_any(given: Inputs, *names: str) -> bool:
    return any(given.has(name) for name in names)


def scaled(given: Inputs, units: Mapping[str, float]) -> float:
    """The first that is given, in the function's unit."""
    for name, size in units.items():
        if given.has(name):
            return given.number(name) * size
    raise Unsupported(f"{' or '.join(units)} is missing")


def size(given: Inputs, *stems: str) -> Bytes:
    """`weight_bytes`, `weight_gb`, `weight_gib`, …: the first that is given."""
    for stem in stems:
        for ending, unit in _SIZES.items():
            if given.has(stem + ending):
                return Bytes.of(given.number(stem + ending), unit)
    raise Unsupported(f"{' or '.join(stem + '_bytes' for stem in stems)} is missing")


def sized(given: Inputs, *stems: str) -> bool:
    return has_any(given, *(stem + ending for stem in stems for ending in _SIZES))


def named_device(given: Inputs) -> Device:
    name = given.text("gpu") if given.has("gpu") else given.text("device")
    try:
        return find_device(name)
    except LookupError as why:
        raise Unsupported(str(why)) from None


def peak_flops(given: Inputs) -> float:
    """FLOP/s of one device: as given, or the dense one of a device in the format."""
    if has_any(given, *PEAK):
        return scaled(given, PEAK)
    device, name = named_device(given), given.text("precision", default="bf16")
    peak = device.peak_flops.get(name)
    if peak is None:
        raise Unsupported(f"a {name[:20]} peak of {device.name} is not known")
    return peak


def bandwidth(given: Inputs) -> float:
    if has_any(given, *BANDWIDTH):
        return scaled(given, BANDWIDTH)
    return named_device(given).bandwidth_bytes_s


def share_of_peak(given: Inputs) -> float:
    if given.has("mfu_percent"):
        return given.number("mfu_percent") / 100
    return given.number("mfu", "utilisation", "utilization")


# -- models -------------------------------------------------------------------------------------


def model_named(name: str) -> ModelShape:
    try:
        return find_model(name).shape
    except LookupError as why:
        raise Unsupported(str(why)) from None


def model(given: Inputs) -> ModelShape:
    """A model by its sizes, by its name, or where a row names a family only, its first member."""
    if given.has("layers") or given.has("model"):
        return shape_of(given)
    return model_named(given.text("arch"))


def n_params(given: Inputs) -> float:
    """Parameters that a token meets: as given, or of a model by its name."""
    if has_any(given, *PARAMS):
        return scaled(given, PARAMS)
    if not given.has("model"):
        raise Unsupported("N or params or model is missing")
    return counts(model_named(given.text("model"))).active


def layers_and_width(given: Inputs) -> tuple[int, int]:
    """Layers, and heads × width of a head. Short names are PaLM's: H heads, Q width of a head."""
    layers = given.whole(*LAYERS)
    if given.has("H", "Q"):
        return layers, given.whole("H") * given.whole("Q")
    if given.has("heads", "head_dim"):
        return layers, given.whole("heads") * given.whole("head_dim")
    return layers, given.whole("hidden", "d", "h", "d_model")


# -- bytes of a token ---------------------------------------------------------------------------

_FORMATS = {"int4": "int4-g32", "float16": "fp16", "bfloat16": "bf16", "float32": "fp32"}
WEIGHTS = ("weight", "weights", "param", "model", "file")
_WIDTHS = {
    "bytes": 1.0, "bytes_per_weight": 1.0, "bytes_per_param": 1.0, "bits": 1 / 8,
    "bits_per_weight": 1 / 8,
}  # fmt: skip
_FORMAT_NAMES = ("weight_format", "format", "ftype", "quant", "dtype", "precision", "mode")


def known_format(name: str) -> str:
    """A format by its name; small or large letters do not matter, but where both are one."""
    found, formats = _FORMATS.get(name.lower(), name), weight_formats()
    if found in formats:
        return found
    for known in formats:
        if known.lower() == found.lower():
            return known
    raise Unsupported(f"format {name[:20]!r} is unknown")


def read_of(shape: ModelShape, weight_format: str, batch: int = 1) -> Bytes:
    """Weights that a decode reads for so many sequences."""
    how = Serving(batch_size=batch, context=1, weight_format=weight_format)
    found = device_times.serving_costs((shape,), "decode", how, 1)
    return Bytes(float(found.weights_bytes.sum()))


def _given_weights(given: Inputs) -> Bytes | None:
    if sized(given, *WEIGHTS):
        return size(given, *WEIGHTS)
    if has_any(given, *PARAMS) and has_any(given, *_WIDTHS):
        return read_bytes(given)
    return None


def _model_and_format(given: Inputs) -> tuple[ModelShape, str]:
    for name in _FORMAT_NAMES:
        if given.has("model", name):
            return model_named(given.text("model")), known_format(given.text(name))
    raise Unsupported("neither bytes of weights are given, nor a model and a format")


def weights_read(given: Inputs) -> Bytes:
    """By a token, or by one of each sequence: as given, or of a model and a format by name."""
    found = _given_weights(given)
    if found is not None:
        return found
    return read_of(*_model_and_format(given), given.whole("batch", default=1))


def weights_held(given: Inputs) -> Bytes:
    """All that a device has to hold."""
    return _given_weights(given) or weights_bytes(*_model_and_format(given))


def read_bytes(given: Inputs) -> Bytes:
    """Of parameters that a token meets, but for an input embedding, at so many bytes each."""
    shape = None if has_any(given, *PARAMS) else model_named(given.text("model"))
    lookup = 0 if shape is None else counts(shape).input_embedding
    return roofline.read_per_token(
        n_params(given),
        bytes_per_weight=scaled(given, _WIDTHS),
        not_read=given.number("exclude_embedding", default=lookup),
    )
