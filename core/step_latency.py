"""How long a training step takes: what was measured of this machine once, times the op table.

Products, forward and backward, run at the speed of products of so many vectors; every op costs
something however little it does; the update streams weights, gradients and the optimizer's state
through memory once.

Checked: tests/core/test_step_latency.py, that each figure is a sum over the op table; how far it is
off is told beside it.
"""

from core.latency import Calibration
from core.memory import Prediction, TorchStep
from core.ops import executed_flops
from core.optimizers import OPTIMIZERS

PASSES = 3  # an op runs once in forward; in backward it gives two gradients


def predicted_rate(step: TorchStep, calibration: Calibration) -> Prediction:
    """Tokens a second of one update: B × T / (o + p + u).

    Ignores: memory that is taken for the first time, which the system hands out page by page. A
    first update takes all of the optimizer's state so.
    """
    ops, workload, n = step.ops, step.workload, step.accumulation
    n_tokens = n * workload.batch_size * workload.seq_len
    n_params = sum(op.repeat * op.n_params for op in ops)
    pace = calibration.pace(n_params * workload.dtype.n_bytes)
    flops = executed_flops(ops) * n
    speed = calibration.product_rate(workload.batch_size * workload.seq_len)
    one = sum(op.repeat * pace.op_s(op.kind) for op in ops)
    moved = (3 + 2 * OPTIMIZERS[step.optimizer].n_buffers) * n_params * workload.dtype.n_bytes
    parts = (n * PASSES * one, flops / speed, moved / calibration.moved_bytes_per_s)
    seconds = sum(parts)
    terms = " + ".join(f"{part:.3g}" for part in parts)
    return Prediction(
        quantity="step_tokens_per_s",
        value=n_tokens / seconds,
        inputs=(
            ("B × T, tokens of the step", str(n_tokens)),
            ("o, starting the ops, three times each", f"{parts[0]:.3g} s"),
            ("p, products", f"{flops} FLOP / {speed:.3g} FLOP/s = {parts[1]:.3g} s"),
            (
                "u, the update",
                f"{moved} B / {calibration.moved_bytes_per_s:.3g} B/s = {parts[2]:.3g} s",
            ),
        ),
        arithmetic=f"{n_tokens} / ({terms}) = {n_tokens / seconds:.4g}",
    )
