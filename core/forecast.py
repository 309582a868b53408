"""A model on a device, on the command line: memory and latency as one JSON object, each figure with
its formula, arithmetic and source.

    python -m core predict --model llama-3.1-8b --device h100-sxm-80gb --batch 8 --context 8192
"""

import argparse
import json
import math
import sys
from collections.abc import Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

from core import cli, device_times, footprints
from core.architecture import ModelShape
from core.cache import FORMATS as CACHE_FORMATS
from core.cache import bytes_per_token
from core.catalog import Device, find_device, find_model
from core.cli import Refused
from core.configs import MAX_BYTES, Unreadable, read_config
from core.counts import counts
from core.device_rates import (
    ENGINE_FORMATS,
    WITHIN,
    Rated,
    clock_of,
    machine_rates,
    serving_rates,
    training_rates,
)
from core.device_times import Costs, Share, Times
from core.footprints import Serving, Training
from core.local_times import Clock, LocalTime, engine_shape
from core.machines import host
from core.quantised import stays, weight_formats
from core.specimens import runs_folder
from core.states import OPTIMIZERS, RECIPES, with_optimizer

THIS = "this"  # the machine that runs the command
ABOUT = (
    "Memory and latency of a model on a device: a training step, reading a prompt, and each\n"
    "further token. Nothing is run, and torch is not loaded. Every figure says how it is made;\n"
    "what programs reach of a device's rates is a band."
)
_FLAGS = {  # flag -> metavar, what it means, default
    "model": ("NAME", "name in the catalogue, or the path of a config.json", None),
    "device": ("NAME", f"name in the catalogue, or {THIS} for this machine", "h100-sxm-80gb"),
    "batch": ("N", "sequences of a training step, and of answers at once", "1"),
    "context": ("N", "tokens of a training sequence; of prompt and answer together", "2048"),
    "prompt": ("N", "tokens that are read before the first is written", "the context"),
    "recipe": ("NAME", f"precision of training: {', '.join(RECIPES)}", "mixed16"),
    "optimizer": ("NAME", ", ".join(OPTIMIZERS), "adamw"),
    "weights": ("FORMAT", "of an answer's weights, such as bf16, fp8, nf4, Q4_K_M", "bf16"),
    "cache": ("FORMAT", f"of keys and values: {', '.join(CACHE_FORMATS)}", "bf16"),
    "attention": ("NAME", "flash or explicit, in training", "flash"),
    "recompute": ("on|off", "compute every block again in backward", "off"),
    "threads": ("N", f"processor threads of a calibration, with --device {THIS}", "1"),
}
MOST = {"batch": 65_536, "context": 16_777_216, "prompt": 16_777_216, "threads": 256}


def main(argv: Sequence[str]) -> int:
    """Print the forecast; returns the exit code. Raises: Refused."""
    told = forecast(_request(cli.parsed(_parser(), argv)))
    ascii_only = (sys.stdout.encoding or "utf-8").lower() != "utf-8"
    print(json.dumps(told, ensure_ascii=ascii_only, allow_nan=False), flush=True)
    return 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """What is asked. `device` None: this machine."""

    name: str
    shape: ModelShape
    source: str  # of the shape
    unsure: tuple[str, ...]  # what of it was assumed, or not understood
    device: Device | None
    prompt: int
    training: Training
    serving: Serving
    threads: int = 1


def forecast(asked: Request, runs: Path | None = None) -> dict[str, Any]:
    """All figures. Raises: Refused where the device is this machine and is not calibrated."""
    counted = counts(asked.shape)
    return {
        "model": {
            "name": asked.name,
            "parameters": counted.total,
            "active_parameters": counted.active,
            "source": asked.source,
            "unsure": list(asked.unsure),
        },
        "device": _device(asked.device),
        "settings": _settings(asked),
        "memory": _memory(asked),
        "latency": _latency(asked, runs or runs_folder()),
    }


def _device(device: Device | None) -> dict[str, Any]:
    if device is None:
        machine = host()
        return {"name": "this machine", "cpu": machine["cpu"], "memory_bytes": _usable(None)}
    return {
        "name": device.name,
        "slug": device.slug,
        "kind": device.kind,
        "usable_bytes": device.usable.n,
        "usable_source": device.usable_source,
        "bandwidth_bytes_per_s": device.bandwidth_bytes_s,
        "peak_flops_per_s": dict(device.peak_flops),
        "source": device.source,
        "from_memory": list(device.from_memory),
    }


def _settings(asked: Request) -> dict[str, Any]:
    return {
        "prompt": asked.prompt,
        "training": {f.name: getattr(asked.training, f.name) for f in fields(Training)},
        "serving": {f.name: getattr(asked.serving, f.name) for f in fields(Serving)},
    }


def _usable(device: Device | None) -> float:
    return float(host()["memory_bytes"] if device is None else device.usable.n)


# -- memory -------------------------------------------------------------------------------------


def _memory(asked: Request) -> dict[str, Any]:
    models = (asked.shape,)
    usable = _usable(asked.device)
    recipe = with_optimizer(RECIPES[asked.training.recipe], asked.training.optimizer)
    step = footprints.training(models, asked.training)
    answer = footprints.serving(models, asked.serving)
    each = CACHE_FORMATS[asked.serving.cache_format]
    per_token = bytes_per_token(asked.shape, each.bytes_per_number)
    n = counts(asked.shape).total
    return {
        "training_peak": _figure(
            float(step.peak[0]),
            "B",
            "max over the op table's walk of what is alive",
            _sum({k: float(v[0]) for k, v in step.parts.items()}),
            "core.footprints.training",
            phase=step.phase[0],
            op=step.op[0],
            parts={k: float(v[0]) for k, v in step.parts.items()},
            fits=float(step.peak[0]) <= usable,
            left_bytes=usable - float(step.peak[0]),
        ),
        "training_states": _figure(
            n * recipe.bytes_per_param,
            "B",
            "parameters × (weights + gradients + master copy + moments)",
            f"{n} × {recipe.bytes_per_param:g} = {n * recipe.bytes_per_param:.6g}",
            f"core.states, recipe {recipe.name}: {recipe.note}",
        ),
        "serving_peak": _figure(
            float(answer.peak[0]),
            "B",
            "weights + keys and values + what one op hands to the next",
            _sum({k: float(v[0]) for k, v in answer.parts.items()}),
            f"core.footprints.serving; {stays(asked.serving.weight_format)}",
            parts={k: float(v[0]) for k, v in answer.parts.items()},
            fits=float(answer.peak[0]) <= usable,
            left_bytes=usable - float(answer.peak[0]),
        ),
        "kv_cache_per_token": _figure(
            float(per_token.n),
            "B",
            "numbers that a token leaves in all layers × bytes of one, while no window is full",
            f"{per_token.n / each.bytes_per_number:g} × {each.bytes_per_number:g} "
            f"= {per_token.n:g}",
            f"core.cache.bytes_per_token; {each.source}",
        ),
    }


def _sum(parts: dict[str, float]) -> str:
    return " + ".join(f"{v:.6g} {k}" for k, v in parts.items()) + f" = {sum(parts.values()):.6g}"


# -- latency ------------------------------------------------------------------------------------


def _latency(asked: Request, runs: Path) -> dict[str, Any]:
    return {
        "train_step": _work(asked, "train", runs),
        "prefill": _work(asked, "prefill", runs),
        "decode": _work(asked, "decode", runs),
    }


@dataclass(frozen=True, slots=True, kw_only=True)
class Outlook:
    """One kind of work of one model on one device. `using` None: not calibrated."""

    work: str
    costs: Costs
    using: Rated | None
    found: Times | None  # no sooner than
    local: LocalTime | None  # what the calibration of this machine predicts, op by op
    band: tuple[float, float] | None  # seconds, where programs were seen

    @property
    def floor_s(self) -> float | None:
        """None where a peak is unknown that may bind."""
        if self.found is None or self.using is None:
            return None
        if not self.using.known and self.work != "decode":
            return None
        return float(self.found.per_model[0])

    @property
    def seconds(self) -> float | None:
        """What is predicted; of a device of the catalogue, the floor."""
        return self.local.seconds if self.local else self.floor_s

    @property
    def bound(self) -> tuple[str, float]:
        """What it waits for, and for which share of its time."""
        if self.found is None:
            return device_times.UNKNOWN, math.nan
        return self.found.bound()

    @property
    def flops(self) -> float:
        return float(self.costs.flops.sum())

    @property
    def n_bytes(self) -> float:
        return float(self.costs.n_bytes.sum())

    @property
    def tokens_per_s(self) -> float | None:
        return self.costs.n_tokens / self.seconds if self.seconds else None


def outlook(
    shape: ModelShape,
    work: str,
    device: Device | None,
    training: Training,
    serving: Serving,
    prompt: int,
    *,
    runs: Path,
    threads: int = 1,
    within: float = WITHIN,
) -> Outlook:
    """`within`: how far predictions were off on this machine, as a share."""
    costs = costs_of((shape,), work, training, serving, prompt)
    computes = device_times.trains_in(training.recipe)
    what = computes if work == "train" else serving.weight_format
    clock = clock_of(runs, what, threads) if device is None else None
    if device is None and clock is None:
        return Outlook(work=work, costs=costs, using=None, found=None, local=None, band=None)
    if device is None:
        assert clock is not None
        using = machine_rates("this machine", clock.found)
        local = _local(shape, work, training, serving, prompt, clock)
    else:
        using, local = rates_of(device, shape, work, training, serving), None
    found = device_times.times(costs, using.rates)
    if local is not None:
        band = (local.seconds / (1 + within), local.seconds / (1 - within))
    else:
        ends = device_times.banded(found, using.memory, using.compute)
        band = (float(ends[0][0]), float(ends[1][0])) if ends else None
    return Outlook(work=work, costs=costs, using=using, found=found, local=local, band=band)


def costs_of(
    shapes: Sequence[ModelShape], work: str, training: Training, serving: Serving, prompt: int
) -> Costs:
    """What models have to do in one of core.work_columns.WORKS."""
    if work == "train":
        return device_times.training_costs(shapes, training)
    tokens = prompt if work == "prefill" else serving.context
    return device_times.serving_costs(shapes, work, serving, tokens)


def rates_of(
    device: Device, shape: ModelShape, work: str, training: Training, serving: Serving
) -> Rated:
    """The rates of a device of the catalogue that a kind of work meets."""
    if work == "train":
        return training_rates(device, training)
    return serving_rates(device, shape, serving, work)


def _local(
    shape: ModelShape,
    work: str,
    training: Training,
    serving: Serving,
    prompt: int,
    clock: Clock,
) -> LocalTime | None:
    """None for a model, a format or a recipe that the engine does not run."""
    same = engine_shape(shape)
    if same is None:
        return None
    if work == "train":
        return clock.step(same, training)
    if serving.weight_format not in ENGINE_FORMATS:
        return None
    tokens = prompt if work == "prefill" else serving.context
    return clock.trip(same, work, serving.batch_size, tokens)


def _work(asked: Request, work: str, runs: Path) -> dict[str, Any]:
    seen = outlook(
        asked.shape,
        work,
        asked.device,
        asked.training,
        asked.serving,
        asked.prompt,
        runs=runs,
        threads=asked.threads,
    )
    if seen.found is None or seen.using is None:
        raise Refused(
            "device=this is not calibrated; run `python -m core calibrate` first, or name a "
            "device of the catalogue"
        )
    told = _roofline(seen, seen.found, seen.using)
    if seen.local is not None:
        told |= {
            "value": seen.local.seconds,
            "bound": seen.local.bound,
            "formula": "overhead + weights + keys and values + the rest, op by op",
            "arithmetic": seen.local.arithmetic,
            "source": f"core.latency, {seen.using.source}",
        }
    return told | {"tokens": seen.costs.n_tokens, "tokens_per_s": seen.tokens_per_s}


def _roofline(seen: Outlook, found: Times, using: Rated) -> dict[str, Any]:
    """The floor, and the band that programs were seen in; no floor where a peak is unknown that
    may bind.
    """
    formula = "sum over ops of max(FLOP / peak, bytes / bandwidth)"
    if seen.floor_s is None:
        return _figure(
            None,
            "s",
            formula,
            f"FLOP = {seen.flops:.6g}, bytes = {seen.n_bytes:.6g}, peak unknown",
            using.source,
            bound=device_times.UNKNOWN,
            why=using.missing,
            band=None,
        )
    bound, share = seen.bound
    parts = f"{seen.n_bytes:.6g} B / {using.rates.bandwidth_bytes_s:.4g} B/s"
    if using.rates.peak_flops is not None:
        parts += f", {seen.flops:.6g} FLOP / {using.rates.peak_flops:.4g} FLOP/s"
    return _figure(
        seen.floor_s,
        "s",
        formula,
        f"op by op of {parts}: {seen.floor_s:.4g}",
        using.source,
        floor=seen.floor_s,
        bound=bound,
        bound_share=None if math.isnan(share) else share,
        computes_in=using.computes,
        flops=seen.flops,
        bytes={
            "weights": float(seen.costs.weights_bytes.sum()),
            "cache": float(seen.costs.cache_bytes.sum()),
            "moved": float(seen.costs.moved_bytes.sum()),
        },
        why=using.missing or None,
        band=None
        if seen.band is None
        else {
            "low": seen.band[0],
            "high": seen.band[1],
            "share_of_bandwidth": _share(using.memory),
            "share_of_peak": _share(using.compute),
        },
    )


def _share(share: Share | None) -> dict[str, Any] | None:
    if share is None:
        return None
    return {"low": share.low, "high": share.high, "source": share.source}


def _figure(
    value: float | None, unit: str, formula: str, arithmetic: str, source: str, **more: Any
) -> dict[str, Any]:
    return {
        "value": value,
        "unit": unit,
        "formula": formula,
        "arithmetic": arithmetic,
        "source": source,
        **more,
    }


# -- flags --------------------------------------------------------------------------------------


def _parser() -> argparse.ArgumentParser:
    made = cli.Parser(
        prog="python -m core predict",
        usage="python -m core predict --model NAME [flags]",
        description=ABOUT,
        formatter_class=argparse.RawTextHelpFormatter,
        allow_abbrev=False,
    )
    for flag, (metavar, what, default) in _FLAGS.items():
        said = f"{what}; default {default}" if default else what
        made.add_argument(f"--{flag}", metavar=metavar, help=said)
    return made


def _request(given: dict[str, str]) -> Request:
    """Raises: Refused."""
    if "model" not in given:
        raise Refused("--model is missing; name one of the catalogue, or the path of a config.json")
    name, shape, source, unsure = _model(given["model"])
    batch, context = _whole_number(given, "batch", 1), _whole_number(given, "context", 2048)
    prompt = _whole_number(given, "prompt", context)
    if prompt > context:
        raise Refused(
            f"--prompt={prompt} is above --context={context}, which holds prompt and answer; "
            f"choose --context {prompt} or more"
        )
    return Request(
        name=name,
        shape=shape,
        source=source,
        unsure=unsure,
        device=_named_device(given.get("device", "h100-sxm-80gb")),
        prompt=prompt,
        threads=_whole_number(given, "threads", 1),
        training=Training(
            recipe=_one_of(given, "recipe", tuple(RECIPES), "mixed16"),
            optimizer=_one_of(given, "optimizer", tuple(OPTIMIZERS), "adamw"),
            batch_size=batch,
            seq_len=context,
            attention=_one_of(given, "attention", ("flash", "explicit"), "flash"),
            recompute=_one_of(given, "recompute", ("on", "off"), "off") == "on",
        ),
        serving=Serving(
            weight_format=_one_of(given, "weights", weight_formats(), "bf16"),
            cache_format=_one_of(given, "cache", tuple(CACHE_FORMATS), "bf16"),
            batch_size=batch,
            context=context,
        ),
    )


def _model(text: str) -> tuple[str, ModelShape, str, tuple[str, ...]]:
    """Name, shape, source and what is not sure. Raises: Refused."""
    path = Path(text)
    if path.suffix == ".json" or path.is_file():
        try:
            with path.open("rb") as file:
                read = read_config(file.read(MAX_BYTES + 1), name=path.stem)
        except OSError as why:
            raise Refused(f"--model={text!r} cannot be read ({why.strerror}); name a file") from why
        except Unreadable as why:
            raise Refused(f"--model={text!r}: {why}") from None
        return read.name, read.shape, str(path), (*read.unknown, *read.assumed)
    try:
        model = find_model(text)
    except LookupError as why:
        raise Refused(str(why)) from None
    return model.name, model.shape, model.source, model.from_memory


def _named_device(text: str) -> Device | None:
    if text == THIS:
        return None
    try:
        return find_device(text)
    except LookupError as why:
        raise Refused(f"{why}; or give {THIS}") from None


def _one_of(given: dict[str, str], flag: str, allowed: Sequence[str], default: str) -> str:
    value = given.get(flag, default)
    if value not in allowed:
        raise Refused(f"--{flag}={value[:60]!r} is unknown; choose one of {', '.join(allowed)}")
    return value


def _whole_number(given: dict[str, str], flag: str, default: int) -> int:
    text = given.get(flag)
    if text is None:
        return default
    rule = f"choose a whole number from 1 to {MOST[flag]:,}"
    try:
        value = int(text)
    except ValueError:
        raise Refused(f"--{flag}={text[:40]!r} is no whole number; {rule}") from None
    if not 1 <= value <= MOST[flag]:
        raise Refused(f"--{flag}={value} is out of range; {rule}")
    return value
