"""How long a model's work takes on the machine that was calibrated: op by op where the engine runs
such a model, and the roofline of what was measured where it does not.

Source: core.latency and core.step_latency, which time the ops; core.device_times for the rest.
Checked: tests/core/test_local_times.py.
"""

import functools
from dataclasses import dataclass, replace

from core import latency, step_latency
from core.architecture import Attention, Mlp, ModelShape
from core.footprints import Training
from core.latency import Calibration, Pace, Trip
from core.memory import TorchStep
from core.ops import Decode, Prefill, Train
from core.shapes import TransformerShape
from core.states import RECIPES
from core.units import BF16


@functools.lru_cache(maxsize=1024)
def engine_shape(shape: ModelShape) -> TransformerShape | None:
    """The same model as the engine runs it; None where it has no such layers."""
    kinds = tuple(shape.kinds())
    mixer, mlp = kinds[0].mixer, kinds[0].mlp
    if len(kinds) > 1 or not isinstance(mixer, Attention) or not isinstance(mlp, Mlp):
        return None
    try:
        same = TransformerShape(
            vocab_size=shape.vocab_size,
            n_layer=shape.n_layer,
            d_model=shape.d_model,
            n_head=mixer.n_head,
            n_kv_head=mixer.n_kv_head,
            d_ff=mlp.d_ff,
            max_seq_len=shape.max_seq_len,
            d_head=mixer.d_head,
            norm=shape.norm,
            mlp="swiglu" if mlp.gated else "gelu",
            positions=shape.positions,
            rope_base=shape.rope_base,
            tied=shape.tied,
            bias=mlp.bias,
            attention=shape.attention,
            dropout=shape.dropout,
        )
    except ValueError:
        return None
    return same if same.model == shape else None


@dataclass(frozen=True, slots=True, kw_only=True)
class LocalTime:
    """Seconds, and what made them."""

    seconds: float
    arithmetic: str
    bound: str  # what most of it goes to
    trip: Trip | None = None


class Clock:
    """Times on the machine of one calibration.

    A decode's time depends on its context through the keys and values alone: the rest is worked
    out once for each model and batch.
    """

    def __init__(self, found: Calibration) -> None:
        self.found = found
        self._decode = functools.lru_cache(maxsize=2048)(self._first_decode)
        self._trip = functools.lru_cache(maxsize=2048)(self._whole_trip)
        self._step = functools.lru_cache(maxsize=2048)(self._whole_step)

    def trip(self, shape: TransformerShape, work: str, batch_size: int, tokens: int) -> LocalTime:
        """A prefill of so many tokens a sequence, or a decode of the next after as many."""
        if work == "decode" or batch_size * tokens == 1:
            first, pace = self._decode(shape, batch_size)
            cache_bytes = first.cache_bytes * tokens
            trip = replace(
                first, cache_bytes=cache_bytes, cache_s=pace.cache_s(cache_bytes, tokens)
            )
        else:
            trip = self._trip(shape, batch_size, tokens)
        parts = (trip.overhead_s, trip.weights_s, trip.cache_s, trip.moved_s)
        return LocalTime(
            seconds=trip.seconds,
            arithmetic=" + ".join(f"{s:.3g}" for s in parts) + f" = {trip.seconds:.3g}",
            bound=latency.bound_by(trip) if work == "decode" else _prefill_bound(trip),
            trip=trip,
        )

    def step(self, shape: TransformerShape, how: Training) -> LocalTime | None:
        """A training step; None where this recipe is none of the engine's, or not calibrated."""
        return self._step(shape, how)

    def _first_decode(self, shape: TransformerShape, batch_size: int) -> tuple[Trip, Pace]:
        """After one token, so that the bytes of its keys and values are those of each."""
        trip = latency.trip(shape, Decode(batch_size=batch_size, context=1), self.found)
        return trip, self.found.pace(trip.weights_bytes)

    def _whole_trip(self, shape: TransformerShape, batch_size: int, tokens: int) -> Trip:
        return latency.trip(shape, Prefill(batch_size=batch_size, seq_len=tokens), self.found)

    def _whole_step(self, shape: TransformerShape, how: Training) -> LocalTime | None:
        return step_time(shape, how, self.found)


def _prefill_bound(trip: Trip) -> str:
    parts = {
        "overhead": trip.overhead_s,
        "arithmetic": trip.weights_s + trip.cache_s,
        "memory": trip.moved_s,
    }
    return max(parts, key=lambda name: parts[name])


def step_time(shape: TransformerShape, how: Training, found: Calibration) -> LocalTime | None:
    """A training step; None where this recipe is none of the engine's, or was not calibrated."""
    recipe = RECIPES[how.recipe]
    runs_here = recipe.computes == "fp32" and how.optimizer in ("adamw", "sgd", "momentum")
    if not runs_here:
        return None
    step = TorchStep(
        shape=shape,
        workload=Train(
            batch_size=how.batch_size,
            seq_len=how.seq_len,
            autocast=BF16 if recipe.autocast else None,
            checkpointing=how.recompute,
        ),
        optimizer=how.optimizer,
    )
    told = step_latency.predicted_step(step, found)
    if told is None:
        return None
    return LocalTime(seconds=told.value, arithmetic=told.arithmetic, bound="arithmetic")
