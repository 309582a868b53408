"""Predicted bytes of a training step: sums over the op table, one function a category."""

import itertools
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace

from core.ops import INDEX_BYTES, Op, Train, expand, mlp_ops
from core.optimizers import OPTIMIZERS
from core.shapes import MlpShape, TransformerShape
from core.specs import TrainSpec
from core.transformer import transformer_ops
from core.units import DTYPES, FP16, DType

LOSS_SCALE_BYTES = 8  # one float32, one int32


@dataclass(frozen=True, slots=True, kw_only=True)
class Prediction:
    """A number computed from settings alone, with the arithmetic that gave it."""

    quantity: str  # id in core.quantities
    value: float
    inputs: tuple[tuple[str, str], ...]  # (symbol and meaning, value), in order of use
    arithmetic: str  # the formula with the values put in


def _total(ops: Sequence[Op], figure: Callable[[Op], int]) -> tuple[int, str]:
    """Sum over all layers, and the sum as one would write it: `64 + 4 × (12 + 7) + 8`."""
    terms: list[str] = []
    total = 0
    for repeat, group in itertools.groupby(ops, lambda op: op.repeat):
        figures = [n for n in map(figure, group) if n]
        if figures:
            inner = " + ".join(map(str, figures))
            terms.append(inner if repeat == 1 else f"{repeat} × ({inner})")
            total += repeat * sum(figures)
    return total, " + ".join(terms)


def weights_bytes(ops: Sequence[Op], dtype: DType) -> Prediction:
    """P x e, P counted over the op table."""
    n_params, terms = _total(ops, lambda op: op.n_params)
    return Prediction(
        quantity="weights_bytes",
        value=n_params * dtype.n_bytes,
        inputs=(
            ("P, parameters (weights and biases)", f"{terms} = {n_params}"),
            ("e, bytes of one number", f"{dtype.n_bytes} ({dtype.name})"),
        ),
        arithmetic=f"{n_params} × {dtype.n_bytes} = {n_params * dtype.n_bytes}",
    )


def gradients_bytes(ops: Sequence[Op], dtype: DType) -> Prediction:
    """P x e: one gradient for each parameter, in the parameter's own format."""
    n_params, _ = _total(ops, lambda op: op.n_params)
    return Prediction(
        quantity="gradients_bytes",
        value=n_params * dtype.n_bytes,
        inputs=(
            ("P, parameters", str(n_params)),
            ("e, bytes of one number", f"{dtype.n_bytes} ({dtype.name})"),
        ),
        arithmetic=f"{n_params} × {dtype.n_bytes} = {n_params * dtype.n_bytes}",
    )


def optimizer_bytes(ops: Sequence[Op], dtype: DType, optimizer: str) -> Prediction:
    """k x P x e + c x n: k buffers for each parameter, c counter bytes for each of n tensors."""
    n_params, _ = _total(ops, lambda op: op.n_params)
    n_tensors, _ = _total(ops, lambda op: op.n_param_tensors)
    kind = OPTIMIZERS[optimizer]
    buffers, counter = kind.n_buffers, kind.step_counter_bytes
    value = buffers * n_params * dtype.n_bytes + counter * n_tensors
    return Prediction(
        quantity="optimizer_bytes",
        value=value,
        inputs=(
            ("k, buffers kept for each parameter", f"{buffers} ({optimizer})"),
            ("P, parameters", str(n_params)),
            ("e, bytes of one number", f"{dtype.n_bytes} ({dtype.name})"),
            ("c, bytes of a step counter", str(counter)),
            ("n, parameter tensors", str(n_tensors)),
        ),
        arithmetic=(
            f"{buffers} × {n_params} × {dtype.n_bytes} + {counter} × {n_tensors} = {value}"
        ),
    )


def activations_bytes(ops: Sequence[Op], workload: Train) -> Prediction:
    """Sum of what every op newly keeps for backward."""
    value = sum(op.saved_bytes for op in ops)
    n_bytes = workload.dtype.n_bytes
    kept = [op for op in ops if op.saved_bytes]
    widths = [op.saved_bytes // (workload.batch_size * n_bytes) for op in kept]
    neurons = " + ".join(map(str, widths))
    return Prediction(
        quantity="activations_bytes",
        value=value,
        inputs=(
            ("B, examples in the step", str(workload.batch_size)),
            ("n, neurons of each kept output", neurons),
            ("e, bytes of one number", f"{n_bytes} ({workload.dtype.name})"),
        ),
        arithmetic=f"{workload.batch_size} × ({neurons}) × {n_bytes} = {value}",
    )


def train_ops(spec: TrainSpec, batch_size: int | None = None) -> tuple[Op, ...]:
    """Op table of one step of `spec`; `batch_size` where a step took other than the usual."""
    workload = Train(batch_size=batch_size or spec.batch_size, dtype=DTYPES[spec.precision])
    return mlp_ops(MlpShape.of(spec), workload)


def train_memory(spec: TrainSpec, batch_size: int | None = None) -> dict[str, Prediction]:
    """Predicted bytes by category, from the second step on (optimizer state exists)."""
    workload = Train(batch_size=batch_size or spec.batch_size, dtype=DTYPES[spec.precision])
    ops = mlp_ops(MlpShape.of(spec), workload)
    predictions = (
        weights_bytes(ops, workload.dtype),
        gradients_bytes(ops, workload.dtype),
        optimizer_bytes(ops, workload.dtype, spec.optimizer),
        activations_bytes(ops, workload),
    )
    return {p.quantity: p for p in predictions}


# -- models that run in torch -------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class TorchStep:
    """A training step whose bytes are to be predicted: any but the first, unless that is said."""

    shape: MlpShape | TransformerShape
    workload: Train  # of one micro-batch
    optimizer: str
    fused: bool = True  # the update in one call for each tensor, without temporaries
    accumulation: int = 1  # micro-batches of one update
    keeps_loss: bool = False  # through the update too
    first: bool = False  # of a run: the optimizer's state comes to life in its update

    @property
    def ops(self) -> tuple[Op, ...]:
        return ops_of(self.shape, self.workload)


def ops_of(shape: MlpShape | TransformerShape, workload: Train) -> tuple[Op, ...]:
    if not isinstance(shape, MlpShape):
        return transformer_ops(shape, workload)
    ops = mlp_ops(shape, workload)
    if shape.loss == "half_squared_error":
        return _with_squared_error(ops, workload)
    return ops


def _with_squared_error(ops: Sequence[Op], workload: Train) -> tuple[Op, ...]:
    """The rows with what 0.5 × mse_loss does to memory: torch's mean stands where every output's
    error stood, and both gradients of the loss are numbers of their own.

    Checked: the ledger (tests/core/test_specimens.py).
    """
    *rows, loss = ops
    n_bytes = workload.dtype.n_bytes
    errors = workload.batch_size * rows[-1].output_shape[-1] * n_bytes
    # As in `end_of_backward`: the gradient of the loss itself goes last.
    rows[0] = replace(rows[0], backward_moves=(*rows[0].backward_moves, -n_bytes))
    loss = replace(
        loss,
        forward_moves=(errors, n_bytes, -errors),
        backward_moves=(n_bytes, n_bytes, errors, -n_bytes),
    )
    return (*rows, loss)


def step_memory(step: TorchStep) -> dict[str, Prediction]:
    """Predicted bytes by category, and the peak with the op in which it lies."""
    ops, dtype = step.ops, step.workload.dtype
    predictions = (
        weights_bytes(ops, dtype),
        gradients_bytes(ops, dtype),
        state_bytes(step),
        kept_bytes(ops),
        inputs_bytes(step),
        peak_bytes(step),
    )
    return {p.quantity: p for p in predictions}


def state_bytes(step: TorchStep) -> Prediction:
    """The optimizer's state and, with fp16, the loss scale and its counter."""
    own = optimizer_bytes(step.ops, step.workload.dtype, step.optimizer)
    if step.workload.autocast != FP16:
        return own
    value = own.value + LOSS_SCALE_BYTES
    terms = own.arithmetic.split(" = ")[0]
    return replace(
        own,
        value=value,
        inputs=(*own.inputs, ("s, loss scale and its counter", str(LOSS_SCALE_BYTES))),
        arithmetic=f"{terms} + {LOSS_SCALE_BYTES} = {int(value)}",
    )


def kept_bytes(ops: Sequence[Op]) -> Prediction:
    """Activations: the sum of what every op makes and backward needs, in every layer.

    Checked: autograd's saved-tensor hooks, 0 off (tests/core/test_transformer_memory.py).
    """
    value, terms = _total(ops, lambda op: op.saved_bytes)
    inputs = tuple(
        (
            f"{op.id}: for {op.saved_because}",
            str(op.saved_bytes) if op.repeat == 1 else f"{op.repeat} × {op.saved_bytes}",
        )
        for op in ops
        if op.saved_bytes
    )
    return Prediction(
        quantity="activations_bytes", value=value, inputs=inputs, arithmetic=f"{terms} = {value}"
    )


def inputs_bytes(step: TorchStep) -> Prediction:
    """Tokens and targets, 8 bytes each; of a perceptron, its inputs and 8-byte classes, or a
    number for each output.
    """
    workload, shape = step.workload, step.shape
    n, b = step.accumulation, workload.batch_size
    if isinstance(shape, MlpShape):
        n_bytes = workload.dtype.n_bytes
        target = INDEX_BYTES if shape.loss == "cross_entropy" else shape.d_out * n_bytes
        one = f"({shape.d_in} × {n_bytes} + {target})"
        value = n * b * (shape.d_in * n_bytes + target)
    else:
        one = f"{workload.seq_len} × 2 × {INDEX_BYTES}"
        value = n * b * workload.seq_len * 2 * INDEX_BYTES
    return Prediction(
        quantity="inputs_bytes",
        value=value,
        inputs=(("n, micro-batches", str(n)), ("B, examples in each", str(b))),
        arithmetic=f"{n} × {b} × {one} = {value}",
    )


def peak_bytes(step: TorchStep) -> Prediction:
    """The highest point of the step's timeline: weights, state and inputs, and what the op in
    which it lies finds and makes.

    Ignores: scratch memory inside a library's matrix product. On a CPU that is bf16's: 1.4 MB
    measured beside 49 MB, or beside 25 MB where blocks are checkpointed (2 and 4 % of all).
    Checked: the ledger, and torch's allocator (tests/core/test_ledger_transformer.py).
    """
    highest = max(timeline(step), key=lambda moment: moment.highest_bytes)
    rest = _rest(step)
    names = {
        "weights_bytes": "weights",
        "optimizer_bytes": "optimizer state",
        "inputs_bytes": "inputs",
    }
    own = int(highest.highest_bytes - sum(p.value for p in rest))
    new = "gradients and the new optimizer state"
    new = (
        new
        if step.first and highest.phase == "update"
        else "activations, gradients and temporaries"
    )
    terms = " + ".join(str(int(p.value)) for p in rest)
    return Prediction(
        quantity="peak_bytes",
        value=highest.highest_bytes,
        inputs=(
            ("highest in", f"{highest.op}, {highest.phase}"),
            *((names[p.quantity], str(int(p.value))) for p in rest),
            (f"{new} there", str(own)),
        ),
        arithmetic=f"{terms} + {own} = {highest.highest_bytes}",
    )


def step_flops(step: TorchStep) -> dict[str, tuple[int, str]]:
    """FLOPs of all micro-batches, each with its arithmetic: `model`, 3 × forward, and `executed`,
    what torch's counter sees.
    """
    forward, forward_terms = _total(step.ops, lambda op: op.forward_flops)
    executed, terms = _total(
        step.ops, lambda op: op.forward_flops + op.recompute_flops + op.backward_flops
    )
    n = step.accumulation
    times = f"{n} × " if n > 1 else ""
    terms = f"{times}({terms})" if times else terms
    return {
        "model": (3 * n * forward, f"{times}3 × ({forward_terms}) = {3 * n * forward}"),
        "executed": (n * executed, f"{terms} = {n * executed}"),
    }


def _rest(step: TorchStep) -> tuple[Prediction, ...]:
    """What is there before a step begins."""
    ops, dtype = step.ops, step.workload.dtype
    state = state_bytes(step)
    if step.first:
        state = replace(
            state, value=state.value - optimizer_bytes(ops, dtype, step.optimizer).value
        )
    return (weights_bytes(ops, dtype), state, inputs_bytes(step))


# -- the walk over a step -----------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class Moment:
    """Live bytes while one op ran in one phase, and when it was done."""

    phase: str
    op: str
    highest_bytes: int
    after_bytes: int


def timeline(step: TorchStep) -> tuple[Moment, ...]:
    """Live bytes op by op through all micro-batches and the update."""
    ops, n_bytes = step.ops, step.workload.dtype.n_bytes
    held = int(sum(p.value for p in _rest(step)))
    moments: list[Moment] = []
    scaled_loss = n_bytes if step.workload.autocast == FP16 else 0
    for micro in range(min(step.accumulation, 2)):  # the third is as the second
        adds_to = n_bytes if micro else 0
        moments += walk(ops, held, adds_to=adds_to, scaled_loss=scaled_loss)
        held = moments[-1].after_bytes - n_bytes - scaled_loss  # the loss itself goes
    held += n_bytes if step.keeps_loss else 0
    temporaries = 0
    if step.optimizer == "adamw" and not step.fused:
        temporaries = _adamw_temporaries(ops) * n_bytes
    if step.first:
        held += int(optimizer_bytes(ops, step.workload.dtype, step.optimizer).value)
    moments.append(
        Moment(
            phase="update",
            op="optimizer.step",
            highest_bytes=held + temporaries,
            after_bytes=held,
        )
    )
    gradients = int(gradients_bytes(ops, step.workload.dtype).value)
    moments.append(
        Moment(
            phase="update",
            op="optimizer.zero_grad",
            highest_bytes=held,
            after_bytes=held - gradients,
        )
    )
    return tuple(moments)


def _adamw_temporaries(ops: Sequence[Op]) -> int:
    """Numbers that the plain update holds at most: a tensor's root and denominator beside the
    denominator of the tensor before.
    """
    sizes = [0, *(size for op in expand(ops) for size in op.param_sizes)]
    return max(before + 2 * size for before, size in itertools.pairwise(sizes))


def walk(
    ops: Sequence[Op], start_bytes: int = 0, *, adds_to: int = 0, scaled_loss: int = 0
) -> Iterator[Moment]:
    """Live bytes op by op through forward, loss and backward, `start_bytes` being there before.

    `adds_to`: bytes of a number where gradients are added to those of the micro-batches before,
    and go then; 0 where they are the first. `scaled_loss`: bytes of a second loss, if there is one.
    """
    live = start_bytes
    in_forward = True
    for phase, op, moves in in_order(ops):
        if in_forward and phase in ("recompute", "backward"):
            in_forward = False
            live += scaled_loss
        if phase == "backward":
            moves = (*moves, -op.n_params * adds_to)
        highest = live
        for move in moves:
            live += move
            highest = max(highest, live)
        yield Moment(phase=phase, op=op.id, highest_bytes=highest, after_bytes=live)


def in_order(ops: Sequence[Op]) -> Iterator[tuple[str, Op, tuple[int, ...]]]:
    """Every op as it runs in a step, layer by layer: its phase, its row, its moves."""
    rows = expand(ops)
    for op in rows:
        yield "loss" if op.kind == "loss" else "forward", op, op.forward_moves
    again = _layers_to_recompute(rows)
    for op in reversed(rows):
        # The first op that needs something of its block has the whole block computed again.
        if op.kind != "add" and (block := again.pop(_layer(op), None)):
            for row in block:
                yield "recompute", row, row.recompute_moves
        yield "backward", op, op.backward_moves


def _layer(op: Op) -> str:
    """`blocks.3` of `blocks.3.mlp.up`."""
    return op.id.rsplit(".", 2)[0]


def _layers_to_recompute(rows: Sequence[Op]) -> dict[str, list[Op]]:
    layers: dict[str, list[Op]] = {}
    for op in rows:
        if op.recompute_moves:
            layers.setdefault(_layer(op), []).append(op)
    return layers
