"""What an answer needs, without weights: its model's shape, its op table, its bytes."""

from collections.abc import Iterator
from dataclasses import dataclass, replace

from core.memory import Prediction, walk
from core.ops import INDEX_BYTES, Decode, Op, Prefill, kv_cache_bytes
from core.products import product_moves
from core.shapes import TransformerShape
from core.specs import GenerateSpec
from core.transformer import transformer_ops
from core.units import BF16, FP32, STORED, DType

COMPLEX_BYTES = 8  # two float32


class Unanswerable(ValueError):
    """A prompt that does not fit; the text says why, and what would."""


def require_room(spec: GenerateSpec, n_prompt: int, max_seq_len: int) -> None:
    """Raises: Unanswerable if prompt and answer do not fit the context, or that the model."""
    if spec.context > max_seq_len:
        raise Unanswerable(
            f"context={spec.context} is more than the {max_seq_len} tokens that {spec.model} "
            f"was made for; choose {max_seq_len} or fewer"
        )
    if n_prompt == 0:
        raise Unanswerable("the prompt is empty; write at least one character")
    if n_prompt > spec.context:
        raise Unanswerable(
            f"the prompt has {n_prompt:,} tokens, more than a context of "
            f"{spec.context:,}; shorten it, or give it more context"
        )


# -- the op table of an answer ------------------------------------------------------------------


def answer_ops(
    shape: TransformerShape, workload: Prefill | Decode, weight_format: str = "fp32"
) -> tuple[Op, ...]:
    """The op table as the decoder runs it: gate and up in one product, logits of the last token
    only, weights read in their own format, and the moves of an answer that keeps nothing.

    Checked: the decoder's ops and the ledger (tests/core/test_answer.py).
    """
    shape = replace(shape, attention="flash", dropout=0.0)
    sizes = _Sizes.of(shape, workload, weight_format)
    rows = transformer_ops(shape, replace(workload, dtype=FP32))
    return tuple(_as_decoded(op, sizes) for op in _fused(rows))


def _fused(rows: tuple[Op, ...]) -> Iterator[Op]:
    """SwiGLU's gate and up, which read the same input, as one row."""
    gated = any(op.kind == "silu" for op in rows)
    for op in rows:
        match op.id.rpartition(".")[2]:
            case "gate":
                yield replace(
                    op,
                    id=op.id + "_up",
                    output_shape=(*op.output_shape[:-1], 2 * op.output_shape[-1]),
                    param_sizes=tuple(2 * n for n in op.param_sizes),
                )
            case "silu":
                yield replace(op, inputs=(f"{op.inputs[0]}_up",))
            case "product":
                yield replace(op, inputs=(op.inputs[0], op.id.replace("product", "gate_up")))
            case "up" if gated:
                pass
            case _:
                yield op


@dataclass(frozen=True, slots=True, kw_only=True)
class _Sizes:
    """Bytes of what the ops of one trip hand to each other."""

    shape: TransformerShape
    weight_format: str
    n_sequences: int
    n_tokens: int  # M: new tokens of all sequences

    @classmethod
    def of(
        cls, shape: TransformerShape, workload: Prefill | Decode, weight_format: str
    ) -> "_Sizes":
        n_new = workload.seq_len if isinstance(workload, Prefill) else 1
        return cls(
            shape=shape,
            weight_format=weight_format,
            n_sequences=workload.batch_size,
            n_tokens=workload.batch_size * n_new,
        )

    def numbers(self, width: int) -> int:
        """Of all new tokens, in the stream's format."""
        return self.n_tokens * width * FP32.n_bytes


def _as_decoded(op: Op, sizes: _Sizes) -> Op:
    """A row with what the decoder's op does to memory and what it reads."""
    shape = sizes.shape
    stream, ff, q = map(sizes.numbers, (shape.d_model, shape.d_ff, shape.d_q))
    qkv = sizes.numbers(shape.d_q + 2 * shape.d_kv)
    last = sizes.n_sequences * shape.d_model * FP32.n_bytes
    kept = cache_dtype(sizes.weight_format)
    op = replace(op, cache_bytes=op.cache_bytes * kept.n_bytes // FP32.n_bytes)
    if op.kind == "linear":
        return _product(op, sizes)
    moves = {
        "embedding": (stream,),
        "angles": (),  # made once, for the whole context
        "rope": (),  # in place
        "flash": _attention_moves(q, qkv, cast=kept is not FP32),
        "silu": (ff,),
        "product": (-2 * ff,),  # in place
        "gelu": (ff, -ff),
        shape.norm: (last if op.id == "norm" else stream,),
        "add": (stream, -stream, -stream) if op.id != "embed.positions" else (stream, -stream),
    }
    if op.id == "norm":  # of the last token only
        op = replace(op, output_shape=(sizes.n_sequences, 1, shape.d_model))
    return replace(op, forward_moves=tuple(n for n in moves[op.kind] if n))


def _attention_moves(q: int, qkv: int, *, cast: bool) -> tuple[int, ...]:
    """Queries narrowed where the cache is, the result, its copy with tokens first; inputs go."""
    if cast:
        return (q // 2, q // 2, -q // 2, -qkv, q // 2, q, -q // 2, -q // 2)
    return (q, -qkv, q, -q)


def _matrix(op: Op, shape: TransformerShape) -> tuple[int, int]:
    """Rows and columns of a product's matrix: outputs and inputs. A tied head has no own."""
    n_out = op.output_shape[-1]
    return n_out, op.param_sizes[0] // n_out if op.param_sizes else shape.d_model


def _product(op: Op, sizes: _Sizes) -> Op:
    """One matrix in its format: the result comes, the input goes."""
    m = sizes.n_sequences if op.id == "head" else sizes.n_tokens
    n_out, n_in = _matrix(op, sizes.shape)
    e = FP32.n_bytes
    weight = matrix_bytes(sizes.weight_format, op.id, n_out, n_in)
    n_biases = sum(op.param_sizes[1:])
    return replace(
        op,
        output_shape=(*op.output_shape[:-2], m // sizes.n_sequences, n_out),
        forward_flops=2 * m * n_in * n_out,
        forward_moves=product_moves(sizes.weight_format, m, n_out, n_in),
        read_bytes=m * n_in * e + weight + n_biases * e,
        written_bytes=m * n_out * e,
    )


# -- bytes --------------------------------------------------------------------------------------


def cache_dtype(weight_format: str) -> DType:
    """Format of keys and values: bf16 where the weights are narrower than fp32."""
    return FP32 if weight_format in ("fp32", "file") else BF16


def matrix_bytes(weight_format: str, op: str, n_rows: int, n_columns: int) -> int:
    """A weight matrix as it is held; of the model's own file, as SmolLM2's has it: Q4_1 in the
    blocks, Q8_0 for the embedding.
    """
    name = weight_format
    if name == "file":
        name = "Q4_1" if op.startswith("blocks.") else "Q8_0"
    return STORED[name].bytes_of(n_rows, n_columns)


def read_bytes_per_token(shape: TransformerShape, weight_format: str) -> Prediction:
    """Bytes of weights that one decode reads: every matrix once, and one row of the embedding."""
    ops = answer_ops(shape, Decode(batch_size=1, context=1), weight_format)
    e = FP32.n_bytes
    matrices = vectors = 0
    for op in ops:
        if op.kind == "linear":
            matrices += op.repeat * matrix_bytes(weight_format, op.id, *_matrix(op, shape))
            vectors += op.repeat * sum(op.param_sizes[1:]) * e
        elif op.kind == shape.norm:
            vectors += op.repeat * op.n_params * e
    embedding = matrix_bytes(weight_format, "embed.tokens", shape.vocab_size, shape.d_model)
    row = embedding // shape.vocab_size
    value = matrices + vectors + row
    return Prediction(
        quantity="read_bytes_per_token",
        value=value,
        inputs=(
            ("W, bytes of all matrices in their format", f"{matrices} ({weight_format})"),
            ("v, bytes of norms and biases", str(vectors)),
            ("r, one row of the embedding", str(row)),
        ),
        arithmetic=f"{matrices} + {vectors} + {row} = {value}",
    )


def held_bytes(shape: TransformerShape, weight_format: str) -> int:
    """Bytes of all weights while the model is loaded."""
    embedding = matrix_bytes(weight_format, "embed.tokens", shape.vocab_size, shape.d_model)
    n_bytes = int(read_bytes_per_token(shape, weight_format).value)
    n_bytes -= embedding // shape.vocab_size
    if not shape.tied:
        n_bytes += embedding
    if shape.positions == "learned":
        n_bytes += shape.max_seq_len * shape.d_model * FP32.n_bytes
    return n_bytes


def cache_bytes(spec: GenerateSpec, shape: TransformerShape) -> Prediction:
    """Keys and values of the whole context: 2 × L × B × context × d_kv × e."""
    dtype = cache_dtype(spec.weight_format)
    ops = answer_ops(
        shape, Decode(batch_size=spec.batch_size, context=spec.context), spec.weight_format
    )
    value = kv_cache_bytes(ops)
    factors = (shape.n_layer, spec.batch_size, spec.context, shape.d_kv, dtype.n_bytes)
    return Prediction(
        quantity="kv_cache_bytes",
        value=value,
        inputs=(
            ("L, layers", str(shape.n_layer)),
            ("B, sequences", str(spec.batch_size)),
            ("S, tokens that there is room for", str(spec.context)),
            ("d_kv, width of all keys of a token", f"{shape.n_kv_head} × {shape.d_head}"),
            ("e, bytes of one number", f"{dtype.n_bytes} ({dtype.name})"),
        ),
        arithmetic=f"2 × {' × '.join(map(str, factors))} = {value}",
    )


def peak_bytes(spec: GenerateSpec, shape: TransformerShape, n_prompt: int) -> Prediction:
    """The highest moment of the prefill: weights, cache, tokens, and what ops hand on."""
    held = held_bytes(shape, spec.weight_format)
    cache = int(cache_bytes(spec, shape).value)
    tokens = spec.batch_size * n_prompt * INDEX_BYTES
    angles = 0
    if shape.positions == "rope":
        angles = spec.context * shape.d_head // 2 * COMPLEX_BYTES
    workload = Prefill(batch_size=spec.batch_size, seq_len=max(1, n_prompt))
    ops = answer_ops(shape, workload, spec.weight_format)
    rest = held + cache + tokens + angles
    top = max(walk(ops, rest), key=lambda moment: moment.highest_bytes)
    value = top.highest_bytes
    return Prediction(
        quantity="answer_peak_bytes",
        value=value,
        inputs=(
            ("W, weights", f"{held} ({spec.weight_format})"),
            ("C, keys and values", str(cache)),
            ("i, tokens of the prompt", f"{tokens} ({n_prompt} × {INDEX_BYTES})"),
            ("a, angles of RoPE for the whole context", str(angles)),
            (f"t, what is alive besides in {top.op}", str(value - rest)),
        ),
        arithmetic=f"{held} + {cache} + {tokens} + {angles} + {value - rest} = {value}",
    )
