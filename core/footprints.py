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
from core.cache import kept_by_kind
from core.ops import INDEX_BYTES, Train
from core.quantised import weights_bytes
from core.states import RECIPES, sharded_per_param, with_optimizer
from core.step_columns import PHASES, AnswerColumns, TrainColumns
from core.units import BF16, DTYPES

TRAINING = ("weights", "gradients", "optimizer", "activations", "logits", "temporaries")
SERVING = ("weights", "cache", "temporaries")
PREFILL_CHUNK = 2048  # tokens that a server reads at once; vLLM's max_num_batched_tokens


@dataclass(frozen=True, slots=True, kw_only=True)
class Training:
    """How a step is taken, on one device. `recipe`: a name of `core.states.RECIPES`."""

    recipe: str = "autocast"
    optimizer: str = "adamw"  # a name of `core.states.OPTIMIZERS`
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
    recipe = with_optimizer(RECIPES[how.recipe], how.optimizer)
    columns = _train_columns(_set(models), how.recipe, how.attention, how.recompute)
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


def sharded(models: Sequence[ModelShape], how: Training, ranks: int) -> np.ndarray:
    """(n,) bytes: the peak on one of `ranks` devices under ZeRO-3, each with its own batch. States
    are split; activations and logits are not, so that the peak may fall in another phase.

    Ignores: the weights of the layer that is gathered for a moment, and buffers of communication.
    Source: Rajbhandari et al. 2020 (arXiv:1910.02054), figure 1.
    """
    recipe = with_optimizer(RECIPES[how.recipe], how.optimizer)
    columns = _train_columns(_set(models), how.recipe, how.attention, how.recompute)
    held = sharded_per_param(
        weights=recipe.weights,
        gradients=max(0.0, recipe.gradients - columns.wide),
        states=recipe.states,
        stage=3,
        ranks=ranks,
    )
    indices = 2.0 * INDEX_BYTES * how.batch_size * how.seq_len
    passing = columns.sharded_peak(how.batch_size, how.seq_len, ranks)
    return columns.n_params * held + indices + passing


def serving(models: Sequence[ModelShape], how: Serving) -> Footprints:
    """Answers of each model: all sequences at full length, while another prompt is read."""
    models = _set(models)
    weights = _weights(models, how.weight_format)
    each = CACHE_FORMATS[how.cache_format].bytes_per_number
    cache = how.batch_size * each * _kept_columns(models).numbers(how.context)
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


class Shapes(tuple[ModelShape, ...]):
    """Models that are asked for again and again: told apart by being the same object, since to
    compare a hundred of them costs more than the answer.
    """

    __slots__ = ()
    __hash__ = object.__hash__

    def __eq__(self, other: object) -> bool:
        return self is other


def _set(models: Sequence[ModelShape]) -> tuple[ModelShape, ...]:
    return models if isinstance(models, tuple) else tuple(models)


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


class _KeptColumns:
    """What layers of many models keep of their tokens: `core.cache`, as columns."""

    def __init__(self, models: Sequence[ModelShape]) -> None:
        kept = [(i, k) for i, m in enumerate(models) for k in kept_by_kind(m)]
        self._model = np.array([i for i, _ in kept])
        self._layers = np.array([k.n_layers for _, k in kept], float)
        self._per_token = np.array([k.per_token for _, k in kept], float)
        self._window = np.array([k.window or np.inf for _, k in kept], float)
        self._state = np.array([k.state for _, k in kept], float)

    def numbers(self, n_tokens: float) -> np.ndarray:
        """(n models,): of one sequence."""
        seen = np.minimum(n_tokens, self._window)
        return np.bincount(self._model, self._layers * (seen * self._per_token + self._state))


@functools.lru_cache(maxsize=4)
def _kept_columns(models: tuple[ModelShape, ...]) -> _KeptColumns:
    return _KeptColumns(models)


@functools.lru_cache(maxsize=64)
def _weights(models: tuple[ModelShape, ...], weight_format: str) -> np.ndarray:
    return np.array([weights_bytes(m, weight_format).n for m in models], float)
