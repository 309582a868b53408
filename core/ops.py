"""The op table: one row for each operation of a model shape under a workload.

Everything that is predicted is a sum over these rows; everything that is measured carries their
ids; every picture is laid out from them. Layers that are alike share rows, which say how often
they stand; `expand` writes them out.

Next to what an op computes stands what it does to memory, as torch does it: bytes that come to
life (+) and go (−), one after the other, as it runs forward and backward. Their running sum is
the timeline, its highest point the peak.

Letters: M tokens of the step, d width of the stream, e bytes of a number in it, a bytes of a
number that a matrix product takes (2 under autocast).
"""

import itertools
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace

from core.shapes import MlpShape
from core.units import FP32, DType

RNG_STATE_BYTES = 5056  # of torch's CPU generator, kept where dropout has to be drawn again
INDEX_BYTES = 8  # a token, a class: int64


@dataclass(frozen=True, slots=True, kw_only=True)
class Train:
    """A training step on `batch_size` examples of `seq_len` tokens at once."""

    batch_size: int
    dtype: DType = FP32  # of weights, gradients and the residual stream
    seq_len: int = 1  # 1 where an example is not a sequence
    autocast: DType | None = None  # format that matrix products take, where it is another
    checkpointing: bool = False  # keep a block's input only, and compute the block again


@dataclass(frozen=True, slots=True, kw_only=True)
class Prefill:
    """Reading `batch_size` prompts of `seq_len` tokens; logits of every position."""

    batch_size: int
    seq_len: int
    dtype: DType = FP32


@dataclass(frozen=True, slots=True, kw_only=True)
class Decode:
    """One more token for each of `batch_size` sequences; `context` counts it."""

    batch_size: int
    context: int
    dtype: DType = FP32


Workload = Train | Prefill | Decode


@dataclass(frozen=True, slots=True, kw_only=True)
class Op:
    """One operation.

    Units: bytes; floating-point operations, a multiply-add counted as two. All are those of one
    of its `repeat` layers.
    """

    id: str  # dotted module path and leaf; `{i}` stands for the layer where rows repeat
    kind: str
    inputs: tuple[str, ...]
    output_shape: tuple[int, ...]
    repeat: int = 1
    param_sizes: tuple[int, ...] = ()  # numbers in each parameter tensor
    n_experts: int = 1  # copies of the parameters that tokens are sent to
    experts_per_token: int = 1  # how many of them one token meets
    window: int = 0  # tokens that a query sees; 0: all before it
    forward_flops: int = 0  # of matrix products, attention counted in full
    recompute_flops: int = 0  # forward once more, where checkpointing repeats it
    backward_flops: int = 0  # as executed: 2 × forward, but for first layers and flash attention
    read_bytes: int = 0  # forward: inputs and parameters, each once
    written_bytes: int = 0  # forward: the output, once
    cache_bytes: int = 0  # held in the KV cache for all of the context
    saved_bytes: int = 0  # made by this op and kept for backward, counted once per storage
    saved_because: str = ""  # which gradient needs what is kept
    forward_moves: tuple[int, ...] = ()
    recompute_moves: tuple[int, ...] = ()
    backward_moves: tuple[int, ...] = ()

    @property
    def n_params(self) -> int:
        return sum(self.param_sizes)

    @property
    def n_param_tensors(self) -> int:
        return len(self.param_sizes)

    @property
    def active_params(self) -> int:
        """Parameters that one token meets: of the experts, those it is sent to."""
        return self.n_params * self.experts_per_token // self.n_experts


def expand(ops: Sequence[Op]) -> tuple[Op, ...]:
    """The table with a row for each layer: `blocks.{i}.…` becomes `blocks.0.…`, `blocks.1.…`.

    Layers of several kinds are counted kind by kind: `blocks.full.{i}.…`, `blocks.sliding.{i}.…`.
    """
    rows: list[Op] = []
    for layer, group in itertools.groupby(ops, _layer_path):
        if layer:
            before = next(r.id for r in reversed(rows) if r.kind in _STREAM)
            rows += _layers(list(group), before)
        else:
            rows += group
    return tuple(rows)


def _layer_path(op: Op) -> str:
    """`blocks` of `blocks.{i}.mlp.up`; empty where a row stands once."""
    return op.id.partition(".{i}")[0] if "{i}" in op.id else ""


_STREAM = ("embedding", "add", "dropout")  # kinds whose output may be the residual stream


def _layers(group: list[Op], before: str) -> Iterator[Op]:
    for i in range(group[0].repeat):
        for op in group:
            inputs = tuple(
                before if "{before}" in name and i == 0 else name.format(i=i, before=i - 1)
                for name in op.inputs
            )
            yield replace(op, id=op.id.format(i=i), inputs=inputs, repeat=1)


def model_flops(ops: Sequence[Op]) -> int:
    """3 × forward: what MFU and published tables count for a training step."""
    return 3 * sum(op.repeat * op.forward_flops for op in ops)


def executed_flops(ops: Sequence[Op]) -> int:
    """What torch's counter sees of a step, or of a forward pass where the workload trains nothing.

    Checked: FlopCounterMode (tests/core/test_transformer_ops.py).
    """
    return sum(
        op.repeat * (op.forward_flops + op.recompute_flops + op.backward_flops) for op in ops
    )


def kv_cache_bytes(ops: Sequence[Op]) -> int:
    """Keys and values of the whole context in every layer: 2 × L × B × context × d_kv × e."""
    return sum(op.repeat * op.cache_bytes for op in ops)


# -- what a run of rows shares ------------------------------------------------------------------


@dataclass(slots=True)
class Run:
    """Sizes that every row needs, and which tensors outlive their op."""

    batch_size: int
    seq_len: int  # new tokens of each sequence
    context: int  # tokens that attention looks at
    wide: int  # e
    narrow: int  # a
    casts: bool  # autocast copies weights and wide inputs
    trains: bool
    decodes: bool
    checkpointing: bool
    in_block: bool = False
    repeat: int = 1
    copies: int = 0  # bytes in autocast's cache that nothing keeps: gone with it
    copies_again: int = 0  # the same of one block computed again

    @classmethod
    def of(cls, workload: Workload) -> "Run":
        wide = workload.dtype.n_bytes
        match workload:
            case Train():
                seq_len = context = workload.seq_len
                cast = workload.autocast
            case Prefill():
                seq_len, context, cast = workload.seq_len, workload.seq_len, None
            case Decode():
                seq_len, context, cast = 1, workload.context, None
        return cls(
            batch_size=workload.batch_size,
            seq_len=seq_len,
            context=context,
            wide=wide,
            narrow=cast.n_bytes if cast else wide,
            casts=cast is not None and cast != workload.dtype,
            trains=isinstance(workload, Train),
            decodes=isinstance(workload, Decode),
            checkpointing=isinstance(workload, Train) and workload.checkpointing,
        )

    @property
    def tokens(self) -> int:
        return self.batch_size * self.seq_len

    @property
    def keeps(self) -> bool:
        """Whether tensors that backward needs outlive their op's first forward."""
        return self.trains and not (self.checkpointing and self.in_block)

    def op(
        self,
        *,
        id: str,
        kind: str,
        inputs: tuple[str, ...],
        output_shape: tuple[int, ...],
        forward: tuple[int, ...],
        lost: tuple[int, ...] = (),
        then: tuple[int, ...] = (),
        backward: tuple[int, ...] = (),
        saved: int = 0,
        because: str = "",
        forward_flops: int = 0,
        backward_flops: int = 0,
        **more: int | tuple[int, ...],
    ) -> Op:
        """A row. `forward` moves where all is kept that backward needs; `lost` goes where not,
        before what happens `then`.
        """
        again = self.trains and not self.keeps
        return Op(
            id=id,
            kind=kind,
            inputs=inputs,
            output_shape=output_shape,
            repeat=self.repeat,
            forward_flops=forward_flops,
            recompute_flops=forward_flops if again else 0,
            backward_flops=backward_flops if self.trains else 0,
            saved_bytes=saved if self.keeps else 0,
            saved_because=because if self.keeps and saved else "",
            forward_moves=_moves(forward, () if self.keeps else [-n for n in lost], then),
            recompute_moves=_moves(forward, then) if again else (),
            backward_moves=_moves(backward) if self.trains else (),
            **more,  # type: ignore[arg-type]
        )


def _moves(*parts: Iterable[int]) -> tuple[int, ...]:
    return tuple(n for part in parts for n in part if n)


def joined(n_bytes: int) -> tuple[int, ...]:
    """A gradient that has just come is added to one that waited: torch makes a third of them."""
    return (n_bytes, -n_bytes, -n_bytes)


# -- rows that both families are made of --------------------------------------------------------


def linear(
    run: Run,
    id: str,
    source: str,
    d_in: int,
    d_out: int,
    *,
    bias: bool = True,
    shares_weight: bool = False,  # tied: the parameter stands in another row
    wide: bool = False,  # the input has the stream's format, which autocast has to copy
    ends: bool = True,  # nobody reads the input after this
    keeps_input: bool = True,  # it is this op by which the input is kept
    trains_input: bool = True,  # the input has a gradient; data has none
    joins: bool = False,  # the input has another reader, whose gradient has come already
    owns_gradient: bool = True,  # the output's gradient is not the residual stream's own
    because: str = "",  # why the output is kept, if it is
    gathers: tuple[int, ...] = (),  # moves that put the output's gradient together
    cache_bytes: int = 0,
    window: int = 0,
    experts: tuple[int, int] = (1, 1),  # matrices, and how many of them a token is sent to
) -> Op:
    """x W + b. Backward: dx = g Wᵀ, dW = xᵀ g, db = sum of g.

    Under autocast it works on narrow copies; those of weights are made once a step. The copies'
    gradients come narrow and are widened one by one.
    """
    n_experts, per_token = experts
    m, e, a = run.tokens * per_token, run.wide, run.narrow
    copied = run.casts and wide
    x = m * d_in * (e if wide else a)
    x_copy, y = m * d_in * a, m * d_out * a
    n_weight, n_bias = n_experts * d_in * d_out, n_experts * d_out if bias else 0
    weight_copy, bias_copy = (n_weight * a, n_bias * a) if run.casts else (0, 0)

    ends_now = copied and ends and trains_input
    forward = (bias_copy, weight_copy, x_copy * copied, y, -x * ends_now)
    lost = (x_copy,) if copied else (x,) if ends and trains_input else ()
    keeps_weight = run.casts and trains_input
    saved = weight_copy * keeps_weight + x_copy * copied + (y if because else 0)
    reasons = ["this op's weight gradient"] * copied + ["its input's"] * keeps_weight
    run.copies += run.repeat * (bias_copy + weight_copy * (not (keeps_weight and run.keeps)))
    run.copies_again += bias_copy

    kept_input = x_copy if copied else x * keeps_input * trains_input
    gone = (-kept_input, -weight_copy * keeps_weight)
    backward = (*gathers, trains_input * m * d_in * a, n_weight * a)
    # What was computed again is let go of as soon as it is used, what was kept with the op.
    rest = (n_bias * a, -y * owns_gradient)
    backward += (*rest, *gone) if run.keeps else (*gone, *rest)
    if copied and trains_input:
        backward += (x, -x_copy)
    if joins:
        backward += joined(x)
    if run.casts:
        backward += (n_weight * e, -n_weight * a, n_bias * e, -n_bias * a)
    flops = 2 * m * d_in * d_out
    own = () if shares_weight else (n_weight,)
    return run.op(
        id=id,
        kind="linear" if n_experts == 1 else "experts",
        inputs=(source,),
        output_shape=_output_shape(run, d_out * per_token),
        param_sizes=(*own, n_bias) if bias else own,
        n_experts=n_experts,
        experts_per_token=per_token,
        forward=forward,
        lost=lost,
        backward=backward,
        saved=saved,
        because=", ".join(reasons + [because] * bool(because)),
        forward_flops=flops,
        backward_flops=flops * (1 + trains_input),
        read_bytes=x + (n_weight + n_bias) * e,
        written_bytes=y,
        cache_bytes=cache_bytes,
        window=window,
    )


def elementwise(
    run: Run,
    id: str,
    kind: str,
    source: str,
    width: int,
    *,
    keeps_input: bool,
    because: str,
) -> Op:
    """An activation function, which keeps its input, or its output where that tells the slope."""
    n = run.tokens * width * run.narrow
    return run.op(
        id=id,
        kind=kind,
        inputs=(source,),
        output_shape=_output_shape(run, width),
        forward=(n,) if keeps_input else (n, -n),
        lost=(n,) if keeps_input else (),
        backward=(n, -n, -n),
        saved=n,
        because=because,
        read_bytes=n,
        written_bytes=n,
    )


def cross_entropy(run: Run, source: str, n_classes: int) -> Op:
    """Mean over tokens of −log softmax at the target, in the stream's format.

    Backward makes two tensors as large as the logits, one after the other.
    """
    m, e, a = run.tokens, run.wide, run.narrow
    wide, narrow = m * n_classes * e, m * n_classes * a
    copy = wide * run.casts
    return run.op(
        id="loss",
        kind="loss",
        inputs=(source, "target"),
        output_shape=(),
        forward=(copy, wide, e, e, -copy, -narrow, -run.copies),
        backward=((e, wide, -e, wide, -wide, -wide) + ((narrow, -wide) if run.casts else ())),
        saved=wide + e,
        because="gradient of the logits",
        read_bytes=narrow + m * INDEX_BYTES,
        written_bytes=e,
    )


def end_of_backward(run: Run, rows: list[Op]) -> None:
    """The gradient of the loss itself, one number, is held until the last gradient is there."""
    rows[0] = replace(rows[0], backward_moves=(*rows[0].backward_moves, -run.wide))


def _output_shape(run: Run, width: int) -> tuple[int, ...]:
    return (run.batch_size, run.seq_len, width) if run.context else (run.batch_size, width)


# -- perceptrons --------------------------------------------------------------------------------


def mlp_ops(shape: MlpShape, workload: Train) -> tuple[Op, ...]:
    """Op table of a multi-layer perceptron in training, forward order.

    A layer keeps one tensor: its activation's output serves both the activation's own derivative
    and the next layer's weight gradient. Where the activation is the identity the linear output
    plays that part. The inputs and the parameters are kept too, but stand in their own categories.

    Checked: saved tensors and parameters against autograd (tests/core/test_memory.py).
    """
    run = Run.of(workload)
    run.context = 0
    rows: list[Op] = []
    before, wide = "input", True
    for name, d_in, d_out, activation in shape.layers:
        head, first = name == "head", before == "input"
        reader = "loss" if head else "next layer's weights"
        kept_by_reader = not head or shape.loss == "half_squared_error"
        product, act = f"{name}.linear", f"{name}.act"
        kept = activation == "linear" and kept_by_reader
        rows.append(
            linear(
                run,
                product,
                before,
                d_in,
                d_out,
                wide=wide,
                trains_input=not first,
                keeps_input=not first and rows[-1].kind == "linear",
                because=f"gradient of the {reader}" if kept else "",
            )
        )
        before, wide = product, False
        if activation != "linear":
            because = f"derivative of {activation} and gradient of the {reader}"
            rows.append(
                elementwise(
                    run, act, activation, product, d_out, keeps_input=False, because=because
                )
            )
            before = act
    if shape.loss == "cross_entropy":
        rows.append(cross_entropy(run, before, shape.d_out))
        end_of_backward(run, rows)
    else:
        rows.append(Op(id="loss", kind="loss", inputs=(before, "target"), output_shape=()))
    return tuple(rows)
