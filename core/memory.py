"""Predicted bytes of a training step: sums over the op table, one function a category."""

from collections.abc import Sequence
from dataclasses import dataclass

from core.ops import Op, Train, mlp_ops
from core.optimizers import OPTIMIZERS
from core.shapes import MlpShape
from core.specs import TrainSpec
from core.units import DTYPES, DType


@dataclass(frozen=True, slots=True, kw_only=True)
class Prediction:
    """A number computed from settings alone, with the arithmetic that gave it."""

    quantity: str  # id in core.quantities
    value: float
    inputs: tuple[tuple[str, str], ...]  # (symbol and meaning, value), in order of use
    arithmetic: str  # the formula with the values put in


def weights_bytes(ops: Sequence[Op], dtype: DType) -> Prediction:
    """P x e, P counted over the op table."""
    n_params = sum(op.n_params for op in ops)
    terms = " + ".join(str(op.n_params) for op in ops if op.n_params)
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
    n_params = sum(op.n_params for op in ops)
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
    n_params = sum(op.n_params for op in ops)
    n_tensors = sum(op.n_param_tensors for op in ops)
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
