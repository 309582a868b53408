"""Adapters of operations, shares of a peak, hours, carbon and money."""

import re
from collections.abc import Callable

from core import utilisation
from core.conformance import told
from core.conformance.answers import Answer, Inputs, Unsupported, Value

_HOURS = ("gpu_hours", "chip_hours", "device_hours")
_BY_THE_CLOCK = {"hours": 1.0, "wall_hours": 1.0, "days": 24.0}

# -- operations and shares ----------------------------------------------------------------------


def _formula(given: Inputs) -> str:
    """A row's formula without spaces, signs of multiplication and powers; small letters."""
    return re.sub(r"[\s*·×^²]", "", given.text("formula", default="").lower())


def _is_megatron(given: Inputs) -> bool:
    said = _formula(given)
    if said:
        return said.startswith(("72b", "96b"))
    return given.has("hidden", "layers", "vocab") and not told.has_any(given, *told.PARAMS)


def _halves(given: Inputs) -> bool:
    said = _formula(given)
    asked = given.flag("causal_discount") or given.flag("causal")
    return asked or "6lhqt" in said or "6lds" in said or "causal" in said


def _again_by(formula: str) -> str:
    """What one of Megatron's formulas counts twice."""
    if formula.startswith("96b"):
        return "full"
    return "selective" if "s/3h" in formula else "none"


def recompute_of(given: Inputs, default: str = "none") -> str:
    """none, selective or full: as the formula says, or else the row."""
    if _is_megatron(given) and _formula(given):
        return _again_by(_formula(given))
    said = given.plain().get("recompute", given.plain().get("mode", default))
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
        told.model(given),
        batch_size=given.whole(*told.BATCH, default=1),
        seq_len=given.whole(*told.SEQ),
        causal_half=_halves(given),
    )


def _train_flops(given: Inputs) -> Answer:
    forward, how = _forward(given), recompute_of(given)
    again = {"none": 0.0, "full": forward}.get(how)
    if again is None:
        looks = utilisation.attention_flops(
            told.model(given), seq_len=given.whole(*told.SEQ), causal_half=_halves(given)
        )
        again = looks * given.whole(*told.BATCH, default=1)
    return Value(number=utilisation.train_flops(forward, again=again), unit="FLOP")


def _per_token(given: Inputs) -> float:
    """Operations of a token by the formula that the row names, or else by what it gives."""
    said = _formula(given)
    if "+" not in said and said.startswith("6n"):
        return utilisation.flops_per_token(told.n_params(given))
    half = _halves(given)
    if given.has("model") and not told.has_any(given, *told.LAYERS):
        if not told.has_any(given, *told.SEQ):
            return utilisation.flops_per_token(told.n_params(given))
        convention = utilisation.Convention(name="", attention="causal" if half else "full")
        seq_len = given.whole(*told.SEQ)
        return utilisation.convention_flops(told.model(given), convention, seq_len=seq_len)
    if not told.has_any(given, *told.LAYERS):
        return utilisation.flops_per_token(told.n_params(given))
    layers, width = told.layers_and_width(given)
    return utilisation.flops_per_token(
        told.n_params(given),
        layers=layers,
        width=width,
        seq_len=given.whole(*told.SEQ),
        causal_half=half,
    )


def _palm_flops(given: Inputs) -> Answer:
    tokens = given.whole(*told.SEQ) * given.whole(*told.BATCH, default=1)
    return Value(number=_per_token(given) * tokens, unit="FLOP")


def megatron(given: Inputs, recompute: str) -> float:
    return utilisation.megatron_flops(
        batch=given.whole(*told.BATCH),
        layers=given.whole("layers"),
        seq=given.whole(*told.SEQ),
        hidden=given.whole("hidden"),
        vocab=given.whole("vocab"),
        recompute=recompute,
    )


def _tokens_per_s(given: Inputs) -> float:
    """Of all chips, or of one where the row gives that."""
    if told.has_any(given, *told.OF_ONE, *told.OF_ALL):
        return given.number(*told.OF_ONE, *told.OF_ALL)
    if given.has("tokens_per_step"):
        return given.number("tokens_per_step") / told.scaled(given, told.SECONDS)
    return given.whole(*told.BATCH) * given.whole(*told.SEQ) / told.scaled(given, told.SECONDS)


def _rate(given: Inputs, recompute: str) -> tuple[float, int]:
    """FLOP/s, and of how many chips."""
    # What the whole machine has does not matter where the row gives a rate of one.
    chips = 1 if told.has_any(given, *told.OF_ONE) else given.whole(*told.CHIPS, default=1)
    if given.has("tflops_per_gpu"):
        return given.number("tflops_per_gpu") * 1e12, 1
    for name in ("flops_per_seq", "flops_per_step"):
        if given.has(name):
            times = given.number(*told.BATCH, default=1) if name == "flops_per_seq" else 1
            return given.number(name) * times / told.scaled(given, told.SECONDS), chips
    if _is_megatron(given):
        return megatron(given, recompute) / told.scaled(given, told.SECONDS), chips
    return _per_token(given) * _tokens_per_s(given), chips


def _model_rate(given: Inputs) -> tuple[float, int]:
    """What the model needs: recomputed where the row's formula itself counts that."""
    return _rate(given, _again_by(_formula(given)))


def _share(given: Inputs, rate: tuple[float, int]) -> Answer:
    share = utilisation.mfu(rate[0], chips=rate[1], peak_flops=told.peak_flops(given))
    return Value(number=100 * share, unit="%")


def _mfu(given: Inputs) -> Answer:
    return _share(given, _model_rate(given))


def _hfu(given: Inputs) -> Answer:
    if not _is_megatron(given) and not given.has("tflops_per_gpu"):
        raise Unsupported("what was computed again is not told")
    return _share(given, _rate(given, recompute_of(given, default="full")))


def _of_one(rate: tuple[float, int]) -> Answer:
    return Value(number=rate[0] / rate[1] / 1e12, unit="TFLOP/s")


def _hardware_rate(given: Inputs) -> Answer:
    return _of_one(_rate(given, recompute_of(given, default="full")))


def _budget(given: Inputs) -> float:
    """FLOP of a whole training run."""
    if given.has("flops"):
        return given.number("flops")
    if "+" in _formula(given):
        return _per_token(given) * told.scaled(given, told.TOKENS)
    return utilisation.total_flops(told.n_params(given), told.scaled(given, told.TOKENS))


def _total_flops(given: Inputs) -> Answer:
    return Value(number=_budget(given), unit="FLOP")


def _days(given: Inputs) -> Answer:
    days = utilisation.train_days(
        _budget(given),
        chips=given.whole(*told.CHIPS),
        peak_flops=told.peak_flops(given),
        mfu=told.share_of_peak(given),
    )
    return Value(number=days, unit="days")


# -- hours, carbon, money -----------------------------------------------------------------------


def _by_the_clock(given: Inputs) -> float | None:
    """Hours that passed, whatever there was of devices; None where a row does not tell."""
    if told.has_any(given, *_BY_THE_CLOCK):
        return told.scaled(given, _BY_THE_CLOCK)
    if given.has("steps"):
        return utilisation.hours_of_steps(given.number("steps"), told.scaled(given, told.SECONDS))
    if told.has_any(given, *told.OF_ALL):
        rate = given.number(*told.OF_ALL)
        return utilisation.device_hours(told.scaled(given, told.TOKENS), rate)
    return None


def _hours_of(given: Inputs) -> float:
    """Device-hours, however a row tells them."""
    if told.has_any(given, *_HOURS):
        return given.number(*_HOURS)
    if told.has_any(given, *told.OF_ONE):
        rate = given.number(*told.OF_ONE)
        return utilisation.device_hours(told.scaled(given, told.TOKENS), rate)
    passed = _by_the_clock(given)
    if passed is not None:
        return utilisation.hours_of_many(passed, given.whole(*told.CHIPS))
    return utilisation.hours_of_flops(
        _budget(given), peak_flops=told.peak_flops(given), mfu=told.share_of_peak(given)
    )


def _hours(given: Inputs) -> Answer:
    return Value(number=_hours_of(given), unit="h")


def _hours_per_trillion(given: Inputs) -> Answer:
    hours = utilisation.hours_per_trillion(_hours_of(given), told.scaled(given, told.TOKENS))
    return Value(number=hours, unit="h")


def _energy(given: Inputs) -> float:
    if given.has("kwh"):
        return given.number("kwh")
    watts = told.scaled(given, {"power_w": 1.0, "tdp_w": 1.0, "power_kw": 1000.0})
    return utilisation.energy_kwh(_hours_of(given), watts, pue=given.number("pue", default=1))


def _energy_kwh(given: Inputs) -> Answer:
    return Value(number=_energy(given), unit="kWh")


def _carbon(given: Inputs) -> Answer:
    tonnes = utilisation.carbon_tonnes(_energy(given), given.number("kg_per_kwh"))
    return Value(number=tonnes, unit="t")


def _cost(given: Inputs) -> Answer:
    if given.has("usd_per_node_hour"):
        passed = _by_the_clock(given)
        if passed is None:
            raise Unsupported("hours of the machine are missing")
        hours = utilisation.hours_of_many(passed, given.whole("nodes", default=1))
        return Value(
            number=utilisation.cost_usd(hours, given.number("usd_per_node_hour")), unit="USD"
        )
    price = given.number("usd_per_gpu_hour", "usd_per_hour", "usd_per_chip_hour")
    return Value(number=utilisation.cost_usd(_hours_of(given), price), unit="USD")


def _per_thousand(given: Inputs) -> Answer:
    usd = utilisation.usd_per_tokens(
        devices=1 if told.has_any(given, *told.OF_ONE) else given.whole(*told.CHIPS, default=1),
        usd_per_device_hour=given.number("usd_per_gpu_hour", "usd_per_hour"),
        tokens_per_s=given.number(*told.OF_ONE, *told.OF_ALL),
    )
    return Value(number=usd, unit="USD")


def _price_ratio(given: Inputs) -> Answer:
    ratio = utilisation.price_ratio(given.number("output"), given.number("input"))
    return Value(number=ratio, unit="ratio")


ADAPTERS: dict[str, Callable[[Inputs], Answer]] = {
    "mfu_percent": _mfu,
    "hfu_percent": _hfu,
    "hardware_tflops_per_gpu": _hardware_rate,
    "model_tflops_per_gpu": lambda given: _of_one(_model_rate(given)),
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
}
