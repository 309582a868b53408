"""Bytes and seconds of models from small to large: a training step, a prompt, a further token.

The same model, step and decoder as everywhere else, with weights drawn at random. A decoder's
layers are copies of one, each in memory of its own.
"""

import statistics
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass

import numpy as np
import torch

from core import limits, sweeps
from core.engine import sampling
from core.engine.calibrate import deepened, random_decoder
from core.engine.calibrate_step import ready_step
from core.engine.decoder import Decoder
from core.engine.ledger import Ledger, storage_bytes
from core.engine.measured_run import MeasuredRun
from core.engine.measuring import Alone, alone
from core.engine.model_step import Ready, followed
from core.events import ANSWER_CATEGORIES, Event, Sample, Scalar
from core.shapes import TransformerShape
from core.specs import LadderSpec
from core.sweeps import Point

POINT_S = 0.4  # a point is repeated for so long, but
LEAST_REPEATS, MOST_REPEATS = 5, 40
FEWEST_REPEATS = 3  # of what takes longer than a tenth of a second
WARM_UP = 2
BUSY = 1.5  # median of the repeats, by the fastest
Clock = Callable[[], float]


@dataclass(frozen=True, slots=True, kw_only=True)
class Measured:
    """What came of one point."""

    bytes: Mapping[str, float]
    peak_at: str  # phase and op
    seconds: list[float]  # of each repeat
    found: Alone  # what the clock and the lock said of the machine

    @property
    def contended(self) -> bool:
        """Whether others used the machine: they had the lock or the processor, or half of the
        repeats were much slower than the fastest, as when one thread waits for another.
        """
        slow = statistics.median(self.seconds) > BUSY * min(self.seconds)
        return self.found.contended or slow


class Ladder(MeasuredRun):
    """Driven like a training run; a tick measures one point, `step` counts those done.

    What does not fit the memory that a run may take, or would end after the budget, is passed over
    and said so. `clock` in seconds.
    """

    def __init__(self, spec: LadderSpec, clock: Clock = time.monotonic) -> None:
        super().__init__()
        torch.set_num_threads(spec.threads)
        self.spec = spec
        self._clock = clock
        self._points = sweeps.points_of(spec)
        self._spent_s = 0.0
        self._n_measured = 0
        self._cost: dict[tuple[str, str], _Cost] = {}  # of the last rung, by work and format
        self._decoder: tuple[tuple[int, str], Decoder] | None = None

    @property
    def summary(self) -> str:
        return f"{self._n_measured} of {len(self._points)} points"

    @property
    def done(self) -> bool:
        return self.step >= len(self._points)

    def opening(self) -> Iterator[Event]:
        yield Scalar(step=0, name="n_points", value=len(self._points))
        yield Scalar(step=0, name="budget_s", value=self.spec.budget_s)

    def tick(self) -> None:
        """Measure the next point, or say why not."""
        i, point = self.step, self._points[self.step]
        self._latest.append(Sample(step=i, name="point", text=point.text))
        why = self._passed_over(point)
        if why:
            self._latest.append(Sample(step=i, name="passed_over", text=why))
        else:
            began = self._clock()
            measured = self._measured(point)
            took_s = self._clock() - began
            self._spent_s += took_s
            self._n_measured += 1
            self._cost[point.work, point.format] = _Cost(
                n_params=point.n_params, took_s=took_s, seconds=measured.seconds
            )
            self._latest += _told(i, point, measured)
        self._latest.append(Scalar(step=i, name="spent_s", value=self._spent_s))
        self._done += 1

    def checkpoint(self) -> dict[str, np.ndarray]:
        saved = {
            "step": np.array(self.step),
            "n_measured": np.array(self._n_measured),
            "spent_s": np.array(self._spent_s),
        }
        for (work, name), cost in self._cost.items():
            saved[f"{work} {name}"] = np.array([cost.n_params, cost.took_s, *cost.seconds])
        return saved

    def restore(self, saved: dict[str, np.ndarray]) -> None:
        self._done, self._n_measured = int(saved["step"]), int(saved["n_measured"])
        self._spent_s = float(saved["spent_s"])
        for key, numbers in saved.items():
            if " " in key:
                work, name = key.split()
                n_params, took_s, *seconds = numbers.tolist()
                cost = _Cost(n_params=int(n_params), took_s=took_s, seconds=seconds)
                self._cost[work, name] = cost

    # -- what fits ------------------------------------------------------------------------------

    def _passed_over(self, point: Point) -> str:
        """Why a point is not measured; empty if it is."""
        needed, most = sweeps.needed_bytes(point), limits.max_run_bytes()
        if needed > most:
            return f"memory: it needs {needed:,.0f} bytes, and a run may take {most:,} here"
        left_s = self.spec.budget_s - self._spent_s
        before = self._cost.get((point.work, point.format))
        expected_s = before.at(point.n_params) if before else 0.0
        if expected_s > left_s or left_s <= 0:
            return (
                f"time: about {expected_s:.3g} s are needed, and of {self.spec.budget_s:g} s "
                f"{max(0.0, left_s):.3g} s are left"
            )
        return ""

    # -- measuring ------------------------------------------------------------------------------

    def _measured(self, point: Point) -> Measured:
        if point.work == "train":
            self._decoder = None
            ready = ready_step(point.shape, point.format, point.batch_size, point.seq_len)
            return measured_step(ready)
        key = (point.n_params, point.format)
        if self._decoder is None or self._decoder[0] != key:
            self._decoder = None  # its memory goes before the next one's comes
            decoder = decoder_of(point.shape, point.format, point.seq_len)
            self._decoder = (key, decoder)
        return measured_trip(self._decoder[1], point.work, point.seq_len)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Cost:
    """What a point took, to foresee a larger one's."""

    n_params: int
    took_s: float  # all of it
    seconds: list[float]  # of each repeat

    def at(self, n_params: int) -> float:
        """Everything but the repeats grows with the parameters; those as far as they must."""
        growth = n_params / self.n_params
        once = statistics.median(self.seconds) * growth
        repeats = max(min(sum(self.seconds), POINT_S), FEWEST_REPEATS * once)
        return max(0.0, self.took_s - sum(self.seconds)) * growth + repeats


def _told(i: int, point: Point, measured: Measured) -> Iterator[Event]:
    seconds = measured.seconds
    low, high = np.percentile(seconds, [25, 75])
    told = {
        **measured.bytes,
        "n_params": point.n_params,
        sweeps.SECONDS[point.work]: statistics.median(seconds),
        "spread_s": high - low,
        "min_s": min(seconds),
        "repeats": len(seconds),
        "contended": float(measured.contended),
        "load_1min": measured.found.load_1min,
    }
    yield Sample(step=i, name="peak_at", text=measured.peak_at)
    for name, value in told.items():
        yield Scalar(step=i, name=name, value=float(value))


def repeated(once: Callable[[], float], wanted_s: float = POINT_S) -> list[float]:
    """Seconds of something again and again, for about so long; `once` gives those of one time."""
    seconds: list[float] = []
    while len(seconds) < MOST_REPEATS:
        seconds.append(once())
        least = LEAST_REPEATS if seconds[0] < 0.1 else FEWEST_REPEATS
        if sum(seconds) > wanted_s and len(seconds) >= least:
            break
    return seconds


# -- a training step ----------------------------------------------------------------------------


def unmarked(phase: str, op: str) -> None:
    """A step that nobody looks into."""


def step_s(ready: Ready) -> float:
    """Seconds of one update."""
    began = time.perf_counter()
    ready.run(unmarked)
    return time.perf_counter() - began


def measured_step(ready: Ready) -> Measured:
    """The second update's memory, by when the optimizer's state exists; the time of those after."""
    ready.run(unmarked)
    logits: list[int] = []
    hook = ready.model.register_forward_hook(lambda *given: logits.append(given[2].nbytes))
    ledger = followed(ready)
    hook.remove()
    samples = ledger.samples()
    phase, op, at_peak = max(samples, key=lambda sample: sum(sample[2].values()))
    at_loss = [held for name, _, held in samples if name == "loss"][-1]
    at_update = next(held for name, _, held in samples if name == "update")
    n_bytes = {
        "weights_bytes": storage_bytes(ready.params),
        "gradients_bytes": at_update["gradients"],
        "optimizer_bytes": storage_bytes(ready.state),
        "activations_bytes": at_loss["activations"],
        "logits_bytes": logits[0],
        "peak_bytes": sum(at_peak.values()),
    }
    with alone() as found:
        seconds = repeated(lambda: step_s(ready))
    return Measured(bytes=n_bytes, peak_at=f"{phase} {op}", seconds=seconds, found=found)


# -- an answer ----------------------------------------------------------------------------------


def decoder_of(shape: TransformerShape, weight_format: str, context: int) -> Decoder:
    """With random weights, the same in every layer, each layer in memory of its own."""
    return deepened(random_decoder(shape, weight_format, context=context), shape.n_layer)


def trip_s(decoder: Decoder, work: str, seq_len: int) -> float:
    """Seconds of reading so many tokens, or of the last of them alone, with the choice of a token:
    its probability and which it is.
    """
    n_new = seq_len if work == "prefill" else 1
    tokens = torch.arange(n_new)[None] % decoder.shape.vocab_size
    decoder.length = seq_len - n_new
    began = time.perf_counter()
    sampling.probabilities(decoder.trip(tokens)).argmax(dim=-1)
    return time.perf_counter() - began


def measured_trip(decoder: Decoder, work: str, seq_len: int) -> Measured:
    for _ in range(WARM_UP):
        trip_s(decoder, work, seq_len)
    n_new = seq_len if work == "prefill" else 1
    tokens = torch.arange(n_new)[None] % decoder.shape.vocab_size
    decoder.length = seq_len - n_new
    ops = [op.id for op in sweeps.trip_ops(decoder.shape, work, decoder.weight_format, seq_len)]
    following = iter([*ops[1:], ""])
    ledger = Ledger(
        ANSWER_CATEGORIES,
        weights=decoder.weights,
        inputs=[tokens, *decoder.constants],
        cache=decoder.cache,
    )
    with torch.inference_mode(), ledger:
        ledger.mark(work, ops[0])
        decoder.trip(tokens, lambda _: ledger.mark(work, next(following)))
    phase, op, at_peak = max(ledger.samples(), key=lambda sample: sum(sample[2].values()))
    n_bytes = {
        "weights_bytes": storage_bytes(decoder.weights),
        "kv_cache_bytes": storage_bytes(decoder.cache),
        "peak_bytes": sum(at_peak.values()),
    }
    with alone() as found:
        seconds = repeated(lambda: trip_s(decoder, work, seq_len))
    return Measured(bytes=n_bytes, peak_at=f"{phase} {op}", seconds=seconds, found=found)
