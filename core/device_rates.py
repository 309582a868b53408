"""Which rates a piece of work meets on a device, and which share of them programs reach.

A device of the catalogue has published rates. This machine has those that its calibration
measured: bandwidth of the largest working set, which no cache holds, and the fastest matrix
product. What products are computed in depends on the format: a peak that is not published for it
is unknown, and no other format's stands in for it.

Checked: tests/core/test_device_rates.py.
"""

import functools
from dataclasses import dataclass
from pathlib import Path

from core import latency
from core.architecture import ModelShape
from core.catalog import Device, bands
from core.counts import counts
from core.device_times import Rates, Share, computes_in, trains_in
from core.footprints import Serving, Training
from core.latency import Calibration
from core.local_times import Clock
from core.quantised import weights_bytes

ENGINE_FORMATS = {"fp32": "fp32", "bf16": "bf16", "int8": "int8", "int4-g32": "int4"}
WITHIN = 0.20  # of what is predicted from a calibration, until this machine has measured its own


@dataclass(frozen=True, slots=True, kw_only=True)
class Rated:
    """A device under one kind of work."""

    device: str
    rates: Rates
    computes: str  # the format that products are computed in
    memory: Share | None  # of the bandwidth that programs reach
    compute: Share | None  # of the peak
    source: str
    missing: str = ""  # why there is no peak, as a sentence

    @property
    def known(self) -> bool:
        return self.rates.peak_flops is not None


def serving_rates(device: Device, shape: ModelShape, how: Serving, work: str) -> Rated:
    """Of a prefill or a decode on a device of the catalogue."""
    each = _mean_bytes(shape, how.weight_format)
    computes = computes_in(how.weight_format)
    if computes == "fp8" and device.peak_flops.get("fp8") is None:
        computes = "bf16"  # written out before it is multiplied
    return _of_catalogue(device, computes, work, each)


@functools.lru_cache(maxsize=256)
def _mean_bytes(shape: ModelShape, weight_format: str) -> float:
    return weights_bytes(shape, weight_format).n / counts(shape).total


def training_rates(device: Device, how: Training) -> Rated:
    """Of a training step on a device of the catalogue."""
    return _of_catalogue(device, trains_in(how.recipe), "train", 2.0)


def _of_catalogue(device: Device, computes: str, work: str, bytes_per_weight: float) -> Rated:
    peak = device.peak_flops.get(computes)
    return Rated(
        device=device.name,
        rates=Rates(bandwidth_bytes_s=device.bandwidth_bytes_s, peak_flops=peak),
        computes=computes,
        memory=bands.share(device.kind, "decode", bytes_per_weight),
        compute=bands.share(device.kind, "train" if work == "train" else "prefill"),
        source=device.source,
        missing=""
        if peak is not None
        else f"The catalogue has no dense {computes} peak of {device.name}, so it gives no figure "
        "for what arithmetic would bound.",
    )


# -- this machine -------------------------------------------------------------------------------


def calibrated(runs: Path, what: str, threads: int) -> Calibration | None:
    """The calibration that times a weight format of the page, or a format that products are
    computed in; a format that the engine has not is read as bf16, of which it has a kernel.
    """
    return _stored(runs, ENGINE_FORMATS.get(what, "bf16"), threads, _changed(runs / latency.FOLDER))


def clock_of(runs: Path, what: str, threads: int) -> Clock | None:
    """Times of this machine by that calibration."""
    return _clock(runs, ENGINE_FORMATS.get(what, "bf16"), threads, _changed(runs / latency.FOLDER))


@functools.lru_cache(maxsize=16)
def _clock(runs: Path, name: str, threads: int, changed: int) -> Clock | None:
    found = _stored(runs, name, threads, changed)
    return None if found is None else Clock(found)


@functools.lru_cache(maxsize=16)
def _stored(runs: Path, name: str, threads: int, changed: int) -> Calibration | None:
    """Read once for each time that the folder has changed."""
    return latency.stored(runs, name, threads)


def _changed(folder: Path) -> int:
    try:
        return folder.stat().st_mtime_ns
    except OSError:
        return 0


def machine_rates(name: str, found: Calibration) -> Rated:
    """What was measured of a machine in one format."""
    product = max(rate for _, rate in found.product_flops_per_s)
    product *= max(1.0, *(share for _, share in found.size_share))
    product = max([product, *_in_steps(found, product)])
    return Rated(
        device=name,
        rates=Rates(
            bandwidth_bytes_s=found.paces[-1].read_bytes_per_s,
            peak_flops=product,
        ),
        computes=found.weight_format,
        memory=None,
        compute=None,
        source=f"calibrated on {found.cpu} with {found.threads} "
        f"{'thread' if found.threads == 1 else 'threads'} in {found.took_s:.1f} s",
    )


def _in_steps(found: Calibration, product: float) -> list[float]:
    """FLOP/s that products of training steps in the same format were fitted with; a fit that says
    more than twice what was timed is not believed.
    """
    steps = found.steps.get(found.weight_format)
    if steps is None:
        return []
    costs = [steps.of(phase, "linear") for phase in ("forward", "backward")]
    rates = [1 / cost.flop_s for cost in costs if cost.flop_s > 0]
    return [rate for rate in rates if rate < 2 * product]
