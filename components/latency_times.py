"""What the Latency page looks at: one model, one device, three kinds of work."""

import functools
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import streamlit as st

from components import sizing
from components.pacing import Paced
from components.theme import MINUS, seconds_text
from core import device_times, forecast, sweeps
from core.architecture import ModelShape
from core.catalog import Device
from core.device_rates import WITHIN, calibrated, machine_rates
from core.device_times import Times, trains_in
from core.footprints import Serving, Training
from core.forecast import Outlook
from core.latency import Calibration, fingerprint
from core.specimens import runs_folder
from core.sweeps import Row

THREADS = 1
WORKS = ("train", "prefill", "decode")
NAMES = {"train": "training step", "prefill": "prompt", "decode": "each token"}
COLOURS = {"train": "backward", "prefill": "forward", "decode": "weights"}  # of the theme
SYMBOLS = {"train": "square", "prefill": "triangle", "decode": "circle"}
WAITS = {"arithmetic": "arithmetic", "memory": "memory", "unknown": "a peak that is not published"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Look:
    """One model on one device under the page's settings. `device` None: this machine."""

    name: str
    shape: ModelShape
    n_params: int
    n_active: int
    device: Device | None
    training: Training
    serving: Serving
    prompt: int
    works: dict[str, Outlook]

    @property
    def device_name(self) -> str:
        return self.device.name if self.device else "this machine"

    @property
    def calibrated(self) -> bool:
        """Whether there is anything to predict from."""
        return any(seen.using is not None for seen in self.works.values())

    @property
    def beyond(self) -> str:
        """What a hatched band says."""
        return "where programs were seen" if self.device else "the error seen on this machine"

    def of(self, work: str, serving: Serving) -> Outlook:
        """The same model under other settings of its answers."""
        return _outlook(self, work, serving)


def look(paced: Paced) -> Look:
    sized = paced.sized
    bare = Look(
        name=sized.chosen.name,
        shape=sized.chosen.shape,
        n_params=sized.chosen.n_params,
        n_active=sized.chosen.n_active,
        device=sized.device,
        training=sized.training,
        serving=sized.serving,
        prompt=paced.prompt,
        works={},
    )
    return replace(bare, works={work: _outlook(bare, work, bare.serving) for work in WORKS})


def _outlook(look: Look, work: str, serving: Serving) -> Outlook:
    within = WITHIN if look.device else worst_error(work)
    return forecast.outlook(
        look.shape,
        work,
        look.device,
        look.training,
        serving,
        look.prompt,
        runs=runs_folder(),
        threads=THREADS,
        within=within,
    )


def calibration_of(look: Look, work: str) -> Calibration | None:
    """What this machine's time of a kind of work is predicted from."""
    what = trains_in(look.training.recipe) if work == "train" else look.serving.weight_format
    return calibrated(runs_folder(), what, THREADS)


# -- many models at once --------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class Line:
    """Of one kind of work: seconds of each of `sizing.everything()`; empty where not known."""

    work: str
    seconds: Sequence[float]
    band: tuple[Sequence[float], Sequence[float]] | None
    n_tokens: int


def line(look: Look, work: str) -> Line:
    """The ladder and the catalogue under the page's settings, by what the device does in a second."""
    all_models = sizing.everything()
    costs = forecast.costs_of(all_models.shapes, work, look.training, look.serving, look.prompt)
    using = look.works[work].using
    if using is None or (not using.known and work != "decode"):
        return Line(work=work, seconds=(), band=None, n_tokens=costs.n_tokens)
    found: Times = device_times.times(costs, using.rates)
    ends = device_times.banded(found, using.memory, using.compute)
    return Line(
        work=work,
        seconds=found.per_model.tolist(),
        band=(ends[0].tolist(), ends[1].tolist()) if ends else None,
        n_tokens=costs.n_tokens,
    )


# -- what was measured here -----------------------------------------------------------------------


@st.cache_resource(ttl=20, max_entries=4, show_spinner=False)
def _rows(runs: str) -> tuple[Row, ...]:
    place = Path(runs)
    return tuple(
        row for row in sweeps.rows(sweeps.points(place), place) if row.quantity.endswith("_s")
    )


def measured_rows() -> tuple[Row, ...]:
    """Times that were measured on this machine, beside what is predicted of them."""
    here = fingerprint()
    return tuple(row for row in _rows(str(runs_folder())) if row.machine == here)


def worst_error(work: str) -> float:
    """How far predictions of a kind of work were off here, at most; until then, as promised."""
    off = [abs(r.error) for r in measured_rows() if r.work == work and r.error is not None]
    return min(max(off), 0.9) if off else WITHIN


@functools.lru_cache(maxsize=64)
def rates_here(found: Calibration) -> device_times.Rates:
    return machine_rates("this machine", found).rates


# -- words ----------------------------------------------------------------------------------------


def span_text(band: tuple[float, float]) -> str:
    """`5.6 to 10.7 ms`; with both units where they differ."""
    low, high = (seconds_text(s) for s in band)
    same = low.split()[-1] == high.split()[-1]
    return f"{low.split()[0]} to {high}" if same else f"{low} to {high}"


def percent(share: float) -> str:
    return f"{100 * share:.0f} %".replace("-", MINUS)
