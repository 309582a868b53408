"""How long the ops of a model take on a device: no sooner than its roofline says, and in a band.

An op computes and moves bytes at the same time, so it takes the longer of the two; ops follow each
other. That is a floor which no program passes. What programs reach of a device's bandwidth and
peak has been published for some: a band, and never one number.

Of a training step: an op runs once in forward, and its backward moves about twice as much; where a
block is computed again, forward once more. Weights are read by each of them, their gradients are
written once, and the update goes through weights, gradients and the optimizer's state.

Ignores: norms' and biases' own weights (under 0.1 % of a matrix's), links between devices, what it
takes to start an op.

Source: Williams et al. 2009, "Roofline"; Pope et al. 2022 (arXiv:2211.05102), section 2.
Checked: tests/core/test_device_times.py, published step times among them.
"""

import functools
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np

from core.architecture import ModelShape
from core.cache import FORMATS as CACHE_FORMATS
from core.footprints import Serving, Training, train_step
from core.ops import Train
from core.quantised import CUSTOMS, FTYPES, gguf_tensors
from core.states import RECIPES, Recipe, with_optimizer
from core.transformer import model_ops
from core.units import BF16, FP32, DType
from core.work_columns import WorkColumns

COMPUTE, MEMORY, UNKNOWN = "arithmetic", "memory", "unknown"  # bounds
UPDATE = "update"  # kind of the row that is no op of the model


@dataclass(frozen=True, slots=True, kw_only=True)
class Rates:
    """What a device does in a second."""

    bandwidth_bytes_s: float
    peak_flops: float | None  # in the format that products are computed in; None: not published

    @property
    def ridge(self) -> float | None:
        """FLOP/B at which arithmetic begins to bind."""
        return None if self.peak_flops is None else self.peak_flops / self.bandwidth_bytes_s


@dataclass(frozen=True, slots=True, kw_only=True)
class Share:
    """What programs reach of a peak: from the least to the most that was published."""

    low: float
    high: float
    source: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Costs:
    """What the rows of n models have to do: arrays are (rows,), each of all layers of its kind."""

    work: str  # one of core.work_columns.WORKS
    n_models: int
    n_tokens: int  # that all sequences of one trip or step read
    model: np.ndarray  # which model a row is of
    ids: tuple[str, ...]
    kinds: tuple[str, ...]
    flops: np.ndarray  # as executed
    weights_bytes: np.ndarray
    cache_bytes: np.ndarray  # keys, values and states of the tokens before
    moved_bytes: np.ndarray  # everything else

    @property
    def n_bytes(self) -> np.ndarray:
        return self.weights_bytes + self.cache_bytes + self.moved_bytes

    def per_model(self, figures: np.ndarray) -> np.ndarray:
        """(n models,): sums over each model's rows."""
        return np.bincount(self.model, figures, minlength=self.n_models)


@dataclass(frozen=True, slots=True, kw_only=True)
class Times:
    """No sooner than: rows are (rows,), models (n models,)."""

    costs: Costs
    rates: Rates
    compute_s: np.ndarray | None  # rows; None where the peak is unknown
    memory_s: np.ndarray  # rows
    seconds: np.ndarray  # rows: the longer of the two

    @property
    def per_model(self) -> np.ndarray:
        return self.costs.per_model(self.seconds)

    @property
    def intensity(self) -> np.ndarray:
        """FLOP for each byte moved, by model."""
        return self.costs.per_model(self.costs.flops) / self.costs.per_model(self.costs.n_bytes)

    def row_bounds(self) -> tuple[str, ...]:
        """What each row waits for."""
        if self.compute_s is None:
            return (UNKNOWN,) * len(self.seconds)
        return tuple(
            COMPUTE if c > m else MEMORY for c, m in zip(self.compute_s, self.memory_s, strict=True)
        )

    def bound(self, model: int = 0) -> tuple[str, float]:
        """What most of a model's time goes to, and which share of it."""
        if self.compute_s is None:
            return UNKNOWN, math.nan
        mine = self.costs.model == model
        computing = float(self.seconds[mine & (self.compute_s > self.memory_s)].sum())
        share = computing / float(self.seconds[mine].sum())
        return (COMPUTE, share) if share >= 0.5 else (MEMORY, 1 - share)


# -- what there is to do ------------------------------------------------------------------------


def serving_costs(models: Sequence[ModelShape], work: str, how: Serving, tokens: int) -> Costs:
    """A prefill of `tokens` tokens in each sequence, or a decode of the next after so many.

    Keys and values that a prefill hands to its own attention are not in the cache's format yet.
    Raises: ValueError for a format or a kind of work that is not known.
    """
    models = models if isinstance(models, tuple) else tuple(models)
    columns = _columns(models, work, _stream(how.weight_format))
    done = columns.at(how.batch_size, tokens)
    per_number = _weight_bytes(models, work, how.weight_format)
    cache = np.zeros(len(done.flops))
    flops, moved = done.flops, done.moved_bytes
    if work == "prefill":
        # Only the last token of a prompt is asked what comes next.
        asked = np.where(np.array(columns.ids) == "head", 1 / tokens, 1.0)
        flops, moved = flops * asked, moved * asked
    if work == "decode":
        # What grows with the context is read of the tokens before, and stands in its own format.
        read = moved - columns.at(how.batch_size, 0).moved_bytes
        cache_format = CACHE_FORMATS[how.cache_format].bytes_per_number
        cache = read * cache_format / _stream(how.weight_format).n_bytes
        moved = moved - read
    return Costs(
        work=work,
        n_models=len(models),
        n_tokens=how.batch_size * (1 if work == "decode" else tokens),
        model=columns.model,
        ids=tuple(columns.ids),
        kinds=tuple(columns.kinds),
        flops=flops,
        weights_bytes=done.weights * per_number,
        cache_bytes=cache,
        moved_bytes=moved,
    )


def training_costs(models: Sequence[ModelShape], how: Training) -> Costs:
    """A training step, any but the first. Raises: KeyError for an unknown recipe or optimizer."""
    models = models if isinstance(models, tuple) else tuple(models)
    recipe = with_optimizer(RECIPES[how.recipe], how.optimizer)
    step = train_step(how)
    columns = _train_columns(models, how.attention, replace(step, batch_size=1, seq_len=1))
    done = columns.at(how.batch_size, how.seq_len)
    passes = 4 if how.recompute else 3  # forward, its repetition, twice as much in backward
    reads = 3 if how.recompute else 2  # by forward, its repetition, and the input's gradient
    narrow = (step.autocast or step.dtype).n_bytes
    weights = done.weights * (reads * narrow + recipe.gradients)
    n_params = _n_params(models)
    n = len(models)
    return Costs(
        work="train",
        n_models=n,
        n_tokens=how.batch_size * how.seq_len,
        model=np.concatenate([columns.model, np.arange(n)]),
        ids=(*columns.ids, *[UPDATE] * n),
        kinds=(*columns.kinds, *[UPDATE] * n),
        flops=np.concatenate([done.flops, np.zeros(n)]),
        weights_bytes=np.concatenate([weights, n_params * update_bytes(recipe)]),
        cache_bytes=np.zeros(len(columns.ids) + n),
        moved_bytes=np.concatenate([done.moved_bytes * passes, np.zeros(n)]),
    )


def update_bytes(recipe: Recipe) -> float:
    """Read and written of each parameter by one update: gradients read, the optimizer's state read
    and written, weights written, and read where there is no copy of them. AdamW in fp32: 28.
    """
    weights = recipe.weights * (1 if recipe.master else 2)
    return recipe.gradients + weights + 2 * recipe.states


# -- how long it takes --------------------------------------------------------------------------


def times(costs: Costs, rates: Rates) -> Times:
    """Every row on a device: max(FLOP / peak, bytes / bandwidth)."""
    memory_s = costs.n_bytes / rates.bandwidth_bytes_s
    compute_s = None if rates.peak_flops is None else costs.flops / rates.peak_flops
    seconds = memory_s if compute_s is None else np.maximum(memory_s, compute_s)
    return Times(costs=costs, rates=rates, compute_s=compute_s, memory_s=memory_s, seconds=seconds)


def banded(
    found: Times, memory: Share | None, compute: Share | None
) -> tuple[np.ndarray, np.ndarray] | None:
    """(n models,) seconds, from the fastest to the slowest that programs were seen to take.

    All bytes at a share of the bandwidth or all operations at a share of the peak, whichever takes
    longer, and never below the floor. None where the share that binds was not published.
    """
    costs, rates = found.costs, found.rates
    floor = found.per_model
    n_bytes, flops = costs.per_model(costs.n_bytes), costs.per_model(costs.flops)
    memory_bound = n_bytes / rates.bandwidth_bytes_s
    known = np.ones(len(floor), bool)
    ends = []
    for end in ("high", "low"):
        seconds = floor
        if memory is not None:
            seconds = np.maximum(seconds, memory_bound / getattr(memory, end))
        if compute is not None and rates.peak_flops is not None:
            seconds = np.maximum(seconds, flops / (rates.peak_flops * getattr(compute, end)))
        ends.append(seconds)
    if rates.peak_flops is not None:
        computing = flops / rates.peak_flops > memory_bound
        known = np.where(computing, compute is not None, memory is not None)
    elif memory is None or costs.work != "decode":
        known = ~known
    if not known.all():
        return None
    return ends[0], ends[1]


def least_batch(seconds: Callable[[int], Times], most: int = 65_536) -> int | None:
    """The smallest power of two of sequences at which arithmetic takes most of the time; None
    where it never does, as when keys and values grow with the batch.
    """
    batch = 1
    while batch <= most:
        if seconds(batch).bound()[0] == COMPUTE:
            return batch
        batch *= 2
    return None


# -- formats ------------------------------------------------------------------------------------


def computes_in(weight_format: str) -> str:
    """The format that products are computed in: fp32 weights in fp32, fp8 ones in fp8, all others
    in 16 bits, since what is stored in fewer is written out first.
    """
    if weight_format in ("fp32", "F32"):
        return "fp32"
    return "fp8" if weight_format.startswith(("fp8", "mxfp8")) else "bf16"


def trains_in(recipe_name: str) -> str:
    """The format that a recipe's products are computed in. Raises: KeyError."""
    recipe = RECIPES[recipe_name]
    if recipe.weights == 1:
        return "fp8"
    if recipe.autocast:
        return "bf16"
    return {"fp16": "bf16"}.get(recipe.computes, recipe.computes)  # one peak for 16 bits


def _stream(weight_format: str) -> DType:
    """Format of what ops hand to each other."""
    return FP32 if computes_in(weight_format) == "fp32" else BF16


def bytes_per_weight(shape: ModelShape, weight_format: str) -> dict[str, float]:
    """Of the matrices in layers, of experts, and of the head, as their own rule stores them."""
    if weight_format in FTYPES:
        return _of_mix(shape, weight_format)
    if weight_format not in CUSTOMS:
        raise ValueError(f"format={weight_format!r} is unknown; choose one of {', '.join(CUSTOMS)}")
    custom = CUSTOMS[weight_format]
    head = custom.outer if shape.tied else custom.head or custom.outer
    kinds = {"layers": custom.linear, "experts": custom.experts, "head": head}
    return {name: kind.bits_per_weight / 8 for name, kind in kinds.items()}


def _of_mix(shape: ModelShape, ftype: str) -> dict[str, float]:
    """Means over the file's own tensors."""
    held = {"layers": [0, 0], "experts": [0, 0], "head": [0, 0]}
    head = "token_embd.weight" if shape.tied else "output.weight"
    for row in gguf_tensors(shape, ftype):
        if row.name == head:
            name = "head"
        elif "_exps" in row.name:
            name = "experts"
        elif row.name.startswith("blk.") and len(row.shape) > 1:
            name = "layers"
        else:
            continue
        held[name][0] += row.n_bytes
        held[name][1] += row.n_weights
    return {name: n / weights if weights else 0.0 for name, (n, weights) in held.items()}


@functools.lru_cache(maxsize=64)
def _weight_bytes(models: tuple[ModelShape, ...], work: str, weight_format: str) -> np.ndarray:
    """(rows,): bytes of one number of the row's matrix."""
    columns = _columns(models, work, _stream(weight_format))
    per_model = [bytes_per_weight(m, weight_format) for m in models]
    return np.array(
        [
            per_model[model][_place(id, kind)]
            for model, id, kind in zip(columns.model, columns.ids, columns.kinds, strict=True)
        ]
    )


def _place(id: str, kind: str) -> str:
    if kind == "experts":
        return "experts"
    return "head" if id == "head" else "layers"


# -- columns, made once -------------------------------------------------------------------------


@functools.lru_cache(maxsize=24)
def _columns(models: tuple[ModelShape, ...], work: str, dtype: DType) -> WorkColumns:
    return WorkColumns([replace(m, attention="flash") for m in models], work, dtype)


@functools.lru_cache(maxsize=12)
def _train_columns(models: tuple[ModelShape, ...], attention: str, step: Train) -> WorkColumns:
    return WorkColumns(
        [replace(m, attention=attention) for m in models],
        "train",
        step.dtype,
        autocast=step.autocast,
        checkpointing=step.checkpointing,
    )


@functools.lru_cache(maxsize=64)
def _n_params(models: tuple[ModelShape, ...]) -> np.ndarray:
    step = Train(batch_size=1, seq_len=1)
    return np.array(
        [sum(op.repeat * op.n_params for op in model_ops(m, step)) for m in models], float
    )
