"""What the Latency page looks at: one model, one device, three kinds of work."""

import functools
from collections.abc import Sequence
from dataclasses import dataclass, replace

import streamlit as st

from components import measure_here, sizing
from components.pacing import Paced
from components.theme import MINUS, seconds_text
from core import device_times, forecast
from core.architecture import ModelShape
from core.catalog import Device
from core.device_rates import ENGINE_FORMATS, WITHIN, calibrated, clock_of
from core.device_times import Times, trains_in
from core.footprints import Serving, Training
from core.forecast import Outlook
from core.ladder import shape_of_size
from core.latency import Calibration, fingerprint
from core.local_times import Clock
from core.shapes import TransformerShape
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
    measured: tuple[Row, ...]  # times on this machine, beside what is predicted of them
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
        measured=measured_rows(),
        works={},
    )
    return replace(bare, works={work: _outlook(bare, work, bare.serving) for work in WORKS})


def _outlook(look: Look, work: str, serving: Serving) -> Outlook:
    within = WITHIN if look.device else worst_error(look, work)
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
    return calibrated(runs_folder(), format_of(look, work), THREADS)


def format_of(look: Look, work: str) -> str:
    """Of weights; of a training step, of its products."""
    return trains_in(look.training.recipe) if work == "train" else look.serving.weight_format


BATCHES = tuple(2**i for i in range(11))


def by_batch(look: Look) -> dict[int, Outlook]:
    """Each token, by how many sequences are answered at once."""
    return {batch: look.of("decode", replace(look.serving, batch_size=batch)) for batch in BATCHES}


# -- many models at once --------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class Line:
    """Of one kind of work: seconds of each of `sizing.everything()`; empty where not known."""

    work: str
    seconds: Sequence[float]
    band: tuple[Sequence[float], Sequence[float]] | None
    n_tokens: int


def line(look: Look, work: str) -> Line:
    """The ladder and the catalogue under the page's settings, by the device's rates."""
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


Local = tuple[list[int], list[float], tuple[list[float], list[float]]]


def local_line(look: Look, work: str) -> Local | None:
    """Sizes, seconds and their band on this machine, op by op; None where it is not calibrated for
    it, or of a device of the catalogue.
    """
    what = format_of(look, work)
    clock = clock_of(runs_folder(), what, THREADS) if look.device is None else None
    if clock is None or (work != "train" and what not in ENGINE_FORMATS):
        return None
    known = []
    for n in sizing.LADDER:
        shape = shape_of_size(n)
        seconds = _seconds(look, work, shape, clock)
        if seconds is not None:
            known.append((shape.n_params, seconds))
    if not known:
        return None
    off = worst_error(look, work)
    line_s = [s for _, s in known]
    band = [s / (1 + off) for s in line_s], [s / (1 - off) for s in line_s]
    return [n for n, _ in known], line_s, band


def _seconds(look: Look, work: str, shape: TransformerShape, clock: Clock) -> float | None:
    if work == "train":
        told = clock.step(shape, look.training)
        return told.seconds if told else None
    tokens = look.prompt if work == "prefill" else look.serving.context
    return clock.trip(shape, work, look.serving.batch_size, tokens).seconds


# -- what was measured here -----------------------------------------------------------------------


def measured_rows() -> tuple[Row, ...]:
    """Times that were measured on this machine, beside what is predicted of them."""
    known, here = measure_here.known(), _here()
    return tuple(r for r in known if r.quantity.endswith("_s") and r.machine == here)


@functools.cache
def _here() -> str:
    return fingerprint()


def exact_measurement(look: Look, work: str) -> float | None:
    """Seconds of the very same model under the very same settings, if they were measured here."""
    if look.device is not None:
        return None
    computes = trains_in(look.training.recipe)
    how, batch, tokens = {
        "train": (computes, look.training.batch_size, look.training.seq_len),
        "prefill": (look.serving.weight_format, look.serving.batch_size, look.prompt),
        "decode": (look.serving.weight_format, look.serving.batch_size, look.serving.context),
    }[work]
    same = [
        r.measured
        for r in look.measured
        if (r.work, r.format, r.batch_size, r.seq_len) == (work, how, batch, tokens)
        and (r.n_params, r.n_layer, r.d_model) == _size(look)
    ]
    return same[-1] if same else None


def _size(look: Look) -> tuple[int, int, int]:
    return look.n_params, look.shape.n_layer, look.shape.d_model


def worst_error(look: Look, work: str) -> float:
    """How far predictions of a kind of work were off here, at most; until then, as promised."""
    off = [abs(r.error) for r in look.measured if r.work == work and r.error is not None]
    return min(max(off), 0.9) if off else WITHIN


@dataclass(frozen=True, slots=True, kw_only=True)
class Off:
    """How far predictions were off."""

    n: int
    mean: float
    worst: float  # signed


def errors(look: Look, work: str, number_format: str) -> Off | None:
    found = [
        r.error
        for r in look.measured
        if r.work == work and r.format == number_format and r.error is not None
    ]
    if not found:
        return None
    return Off(n=len(found), mean=sum(map(abs, found)) / len(found), worst=max(found, key=abs))


# -- words ----------------------------------------------------------------------------------------


def span_text(band: tuple[float, float]) -> str:
    """`5.6 to 10.7 ms`; with both units where they differ."""
    low, high = (seconds_text(s) for s in band)
    same = low.split()[-1] == high.split()[-1]
    return f"{low.split()[0]} to {high}" if same else f"{low} to {high}"


def percent(share: float) -> str:
    return f"{100 * share:.0f} %".replace("-", MINUS)


def markdown_table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    """A table as text: `st.table` makes a data frame of it, which costs more than the page."""
    lines = [head, ["---"] * len(head), *rows]
    st.markdown("\n".join("| " + " | ".join(line) + " |" for line in lines))
