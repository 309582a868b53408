"""How long a training step takes: what was measured of this machine once, times the op table.

Every op takes a moment to start, then so long for each operation, each weight and each byte that it
moves; forward and backward have their own figures. The update goes through weights, gradients and
the optimizer's state once: its time is that of so many bytes.

Source: the parts of a roofline (Williams et al. 2009) added up, since torch on a CPU does one op
after another. Checked: tests/core/test_step_latency.py, that each figure is a sum over the op
table; how far it is off is printed by `python -m core.engine.bench_ladder` and told beside it.
"""

from collections.abc import Iterator
from dataclasses import dataclass

from core.latency import Calibration, StepCosts
from core.memory import Prediction, TorchStep
from core.ops import Op, executed_flops
from core.optimizers import OPTIMIZERS
from core.shapes import TransformerShape

PASSES = 3  # an op runs once in forward; in backward it gives two gradients


# -- what an op has to do -----------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class Work:
    """What the time of an op in one phase grows with."""

    flops: int
    numbers: int  # weights of a product or a table; of attention, scores
    n_bytes: int  # read and written, but for weights


def work_of(op: Op, phase: str, shape: object) -> Work:
    """Of one of an op's rows. `phase`: forward, recompute or backward."""
    flops = op.backward_flops if phase == "backward" else op.forward_flops
    numbers, weight_bytes = op.n_params, 0
    if isinstance(shape, TransformerShape):
        if op.kind == "linear":
            numbers = op.n_params or op.output_shape[-1] * shape.d_model  # a tied head has no own
        elif op.kind == "flash":
            numbers = op.forward_flops // (4 * shape.d_head)
    if op.kind == "linear":
        weight_bytes = min(op.read_bytes, 4 * numbers)
    return Work(
        flops=flops, numbers=numbers, n_bytes=op.read_bytes - weight_bytes + op.written_bytes
    )


def update_bytes(n_params: int, optimizer: str, n_bytes: int = 4) -> int:
    """Read and written by one update: weights and gradients read, weights written; every buffer
    both. AdamW: 28 bytes a parameter.
    """
    return (3 + 2 * OPTIMIZERS[optimizer].n_buffers) * n_params * n_bytes


# -- predicting ---------------------------------------------------------------------------------


def predicted_step(step: TorchStep, calibration: Calibration) -> Prediction | None:
    """Seconds of one update from the second on; None where no step was calibrated in its
    precision.

    Ignores: memory that is taken for the first time, which the system hands out page by page. A
    first update takes all of the optimizer's state so.
    """
    costs = calibration.steps.get(precision_of(step))
    if costs is None:
        return None
    parts = {"forward": 0.0, "backward": 0.0}
    for op in step.ops:
        for phase, seconds in _phases(op, step.shape, costs):
            parts[phase] += step.accumulation * op.repeat * seconds
    n_params = sum(op.repeat * op.n_params for op in step.ops)
    n_tensors = sum(op.repeat * op.n_param_tensors for op in step.ops)
    moved = update_bytes(n_params, step.optimizer, step.workload.dtype.n_bytes)
    parts["update"] = costs.update.seconds(0, n_tensors, moved)
    seconds = sum(parts.values())
    return Prediction(
        quantity="step_s",
        value=seconds,
        inputs=(
            ("f, forward and loss", f"{parts['forward']:.3g} s"),
            ("b, backward", f"{parts['backward']:.3g} s"),
            ("u, the update", f"{moved} B in {n_tensors} tensors: {parts['update']:.3g} s"),
        ),
        arithmetic=" + ".join(f"{part:.3g}" for part in parts.values()) + f" = {seconds:.4g}",
    )


def precision_of(step: TorchStep) -> str:
    return (step.workload.autocast or step.workload.dtype).name


def _phases(op: Op, shape: object, costs: StepCosts) -> Iterator[tuple[str, float]]:
    """Seconds of one row in forward, and again where its block is computed again, and backward."""
    for phase in ("forward", "backward"):
        work = work_of(op, phase, shape)
        seconds = costs.of(phase, op.kind).seconds(work.flops, work.numbers, work.n_bytes)
        again = phase == "forward" and bool(op.recompute_moves)
        yield phase, seconds * (2 if again else 1)


def predicted_rate(step: TorchStep, calibration: Calibration) -> Prediction:
    """Tokens a second of one update: B × T / its seconds.

    A precision in which no step was calibrated is told from answers: o + p + u, starting every op
    three times, products at the speed of so many vectors, and the update's bytes.
    """
    timed = predicted_step(step, calibration) or _from_answers(step, calibration)
    workload, n = step.workload, step.accumulation
    n_tokens = n * workload.batch_size * workload.seq_len
    value = n_tokens / timed.value
    terms = timed.arithmetic.rpartition(" = ")[0]
    return Prediction(
        quantity="step_tokens_per_s",
        value=value,
        inputs=(("B × T, tokens of the step", str(n_tokens)), *timed.inputs),
        arithmetic=f"{n_tokens} / ({terms}) = {value:.4g}",
    )


def _from_answers(step: TorchStep, calibration: Calibration) -> Prediction:
    ops, workload, n = step.ops, step.workload, step.accumulation
    n_params = sum(op.repeat * op.n_params for op in ops)
    pace = calibration.pace(n_params * workload.dtype.n_bytes)
    flops = executed_flops(ops) * n
    n_vectors = workload.batch_size * workload.seq_len
    products_s = sum(
        n * op.repeat * executed / calibration.product_rate(n_vectors, max(op.n_params, 1))
        for op in ops
        if (executed := op.forward_flops + op.recompute_flops + op.backward_flops)
    )
    one = sum(op.repeat * pace.op_s(op) for op in ops)
    moved = update_bytes(n_params, step.optimizer, workload.dtype.n_bytes)
    parts = (n * PASSES * one, products_s, moved / calibration.moved_bytes_per_s)
    seconds = sum(parts)
    rate = calibration.moved_bytes_per_s
    return Prediction(
        quantity="step_s",
        value=seconds,
        inputs=(
            ("o, starting the ops, three times each", f"{parts[0]:.3g} s"),
            ("p, products", f"{flops} FLOP: {parts[1]:.3g} s"),
            ("u, the update", f"{moved} B / {rate:.3g} B/s = {parts[2]:.3g} s"),
        ),
        arithmetic=" + ".join(f"{part:.3g}" for part in parts) + f" = {seconds:.4g}",
    )
