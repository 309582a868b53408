"""Bytes that models of any size need: to take a training step, and to answer.

A training step holds states all the time (weights, master copy, moments, and gradients where they
have a buffer of their own), and for a while activations, logits and gradients; its peak is the
highest moment of the walk over the op table, with the phase and the op in which it falls, and no
sum of largest parts. An answer holds weights, keys and values, and for a moment what one op hands
to the next.

Checked: the ledger where torch runs the model here (tests/core/test_footprints.py).
"""

import functools
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from core.architecture import ModelShape
from core.cache import FORMATS as CACHE_FORMATS
from core.cache import cache_bytes
from core.ops import INDEX_BYTES, Train
from core.quantised import weights_bytes
from core.states import RECIPES
from core.step_columns import PHASES, AnswerColumns, TrainColumns
from core.units import BF16, DTYPES

TRAINING = ("weights", "gradients", "optimizer", "activations", "logits", "temporaries")
SERVING = ("weights", "cache", "temporaries")
PREFILL_CHUNK = 2048  # tokens that a server reads at once; vLLM's max_num_batched_tokens


@dataclass(frozen=True, slots=True, kw_only=True)
class Training:
    """How a step is taken, on one device. `recipe`: a name of `core.states.RECIPES`."""

    recipe: str = "autocast"
    batch_size: int = 1
    seq_len: int = 2048
    attention: str = "flash"  # or explicit
    recompute: bool = False  # every block from its input


@dataclass(frozen=True, slots=True, kw_only=True)
class Serving:
    """How answers are given, on one device."""

    weight_format: str = "bf16"  # a name of `core.quantised.FORMATS`, or a file's mix
    cache_format: str = "bf16"  # a name of `core.cache.FORMATS`
    batch_size: int = 1
    context: int = 2048  # tokens that each sequence has room for


@dataclass(frozen=True, slots=True, kw_only=True)
class Footprints:
    """Of n models: arrays are (n,), in bytes."""

    parts: dict[str, np.ndarray]  # by category, at the peak
    peak: np.ndarray  # their sum
    phase: tuple[str, ...]  # in which it falls
    op: tuple[str, ...]
    phase_peaks: dict[str, np.ndarray]  # highest in each phase
    kept: np.ndarray  # activations at the end of forward, whatever the peak


def training(models: Sequence[ModelShape], how: Training) -> Footprints:
    """A step of each model, any but the first."""
    recipe = RECIPES[how.recipe]
    columns = _train_columns(tuple(models), how.recipe, how.attention, how.recompute)
    step = columns.at(how.batch_size, how.seq_len)
    n = columns.n_params
    # Gradients come in the format of the step; a buffer of its own holds what is beyond it.
    buffers = n * max(0.0, recipe.gradients - columns.wide)
    held = {
        "weights": n * recipe.weights,
        "gradients": buffers,
        "optimizer": n * recipe.states,
        "temporaries": np.full(len(n), 2.0 * INDEX_BYTES * how.batch_size * how.seq_len),
    }
    passing = {
        "gradients": step.peak_gradients,
        "activations": step.peak_activations,
        "logits": step.peak_logits,
        "temporaries": step.peak_rest,
    }
    zero = np.zeros(len(n))
    parts = {name: held.get(name, zero) + passing.get(name, zero) for name in TRAINING}
    always = sum(held.values())
    return Footprints(
        parts=parts,
        peak=step.peak + always,
        phase=step.phase,
        op=step.op,
        phase_peaks={name: step.phase_peaks[name] + always for name in PHASES},
        kept=step.activations + step.logits,
    )


def serving(models: Sequence[ModelShape], how: Serving) -> Footprints:
    """Answers of each model: all sequences at full length, while another prompt is read."""
    models = tuple(models)
    weights = _weights(models, how.weight_format)
    cache = np.array(
        [
            cache_bytes(
                m,
                how.context,
                CACHE_FORMATS[how.cache_format].bytes_per_number,
                batch_size=how.batch_size,
            ).n
            for m in models
        ],
        float,
    )
    chunk = min(how.context, PREFILL_CHUNK)
    rest = _answer_columns(models).at(how.batch_size, chunk)
    parts = {"weights": weights, "cache": cache, "temporaries": rest}
    peak = weights + cache + rest
    return Footprints(
        parts=parts,
        peak=peak,
        phase=("prefill",) * len(models),
        op=("",) * len(models),
        phase_peaks={"prefill": peak},
        kept=cache,
    )


def train_step(how: Training) -> Train:
    """The step that the op table is asked for: the format it computes in."""
    recipe = RECIPES[how.recipe]
    return Train(
        batch_size=how.batch_size,
        seq_len=how.seq_len,
        dtype=DTYPES[recipe.computes],
        autocast=BF16 if recipe.autocast else None,
        checkpointing=how.recompute,
    )


@functools.lru_cache(maxsize=16)
def _train_columns(
    models: tuple[ModelShape, ...], recipe: str, attention: str, recompute: bool
) -> TrainColumns:
    shapes = [replace(m, attention=attention) for m in models]
    step = train_step(Training(recipe=recipe, attention=attention, recompute=recompute))
    return TrainColumns(shapes, step)


@functools.lru_cache(maxsize=4)
def _answer_columns(models: tuple[ModelShape, ...]) -> AnswerColumns:
    return AnswerColumns([replace(m, attention="flash") for m in models], BF16)


@functools.lru_cache(maxsize=64)
def _weights(models: tuple[ModelShape, ...], weight_format: str) -> np.ndarray:
    return np.array([weights_bytes(m, weight_format).n for m in models], float)
