"""The op table: one row for each operation of a model shape under a workload.

Everything that is predicted is a sum over these rows; everything that is measured carries their
ids; every picture is laid out from them.
"""

from dataclasses import dataclass

from core.shapes import MlpShape
from core.units import DType


@dataclass(frozen=True, slots=True, kw_only=True)
class Train:
    """A training step on `batch_size` examples at once."""

    batch_size: int
    dtype: DType


@dataclass(frozen=True, slots=True, kw_only=True)
class Op:
    """One operation.

    Units: bytes; floating-point operations, a multiply-add counted as two.
    """

    id: str  # dotted module path and leaf, as in `layers.0.linear`
    kind: str  # linear | activation | loss
    inputs: tuple[str, ...]
    output_shape: tuple[int, ...]
    n_params: int = 0
    n_param_tensors: int = 0
    forward_flops: int = 0
    saved_bytes: int = 0  # newly kept for backward by this op, counted once per storage
    saved_because: str = ""  # which gradient needs what is kept


def mlp_ops(shape: MlpShape, workload: Train) -> tuple[Op, ...]:
    """Op table of a multi-layer perceptron in training, forward order.

    A layer keeps one tensor: its activation's output serves both the activation's own derivative
    and the next layer's weight gradient. Where the activation is the identity the linear output
    plays that part. The inputs and the parameters are kept too, but stand in their own categories.

    Checked: saved tensors and parameters against autograd (tests/core/test_memory.py).
    """
    batch, n_bytes = workload.batch_size, workload.dtype.n_bytes
    rows: list[Op] = []
    before = "input"
    for name, d_in, d_out, activation in shape.layers:
        linear, act = f"{name}.linear", f"{name}.act"
        kept = batch * d_out * n_bytes
        reader = "loss" if name == "head" else "next layer's weights"
        rows.append(
            Op(
                id=linear,
                kind="linear",
                inputs=(before,),
                output_shape=(batch, d_out),
                n_params=(d_in + 1) * d_out,
                n_param_tensors=2,
                forward_flops=2 * batch * d_in * d_out,
                saved_bytes=kept if activation == "linear" else 0,
                saved_because=f"gradient of the {reader}" if activation == "linear" else "",
            )
        )
        before = linear
        if activation != "linear":
            rows.append(
                Op(
                    id=act,
                    kind=activation,
                    inputs=(before,),
                    output_shape=(batch, d_out),
                    saved_bytes=kept,
                    saved_because=f"derivative of {activation} and gradient of the {reader}",
                )
            )
            before = act
    rows.append(Op(id="loss", kind="loss", inputs=(before, "target"), output_shape=()))
    return tuple(rows)
