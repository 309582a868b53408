"""The op table of decoder-only transformers: GPT-2, Llama and what lies between.

Letters: M tokens of the step, d width of the stream, e bytes of a number in it, a bytes of a
number that a matrix product takes (2 under autocast).
"""

from collections.abc import Iterator
from dataclasses import replace

from core.ops import (
    INDEX_BYTES,
    RNG_STATE_BYTES,
    STREAM_BEFORE,
    Op,
    Run,
    Workload,
    cross_entropy,
    elementwise,
    end_of_backward,
    joined,
    linear,
)
from core.shapes import TransformerShape


def transformer_ops(shape: TransformerShape, workload: Workload) -> tuple[Op, ...]:
    """Op table of a decoder-only transformer, forward order; the layers are one group of rows.

    Checked: every move against torch's own, op by op (tests/core/test_transformer_memory.py).
    """
    run = Run.of(workload)
    if not run.trains:
        shape = replace(shape, dropout=0.0)
    rows = [*_embedding(run, shape), *_constants(run, shape)]
    run.in_block, run.repeat = True, shape.n_layer
    block = [*_attention(run, shape), *_mlp(run, shape)]
    run.in_block, run.repeat = False, 1
    if run.checkpointing:
        _end_of_block(run, shape, block)
    rows += block

    d, v = shape.d_model, shape.vocab_size
    last = f"blocks.{shape.n_layer - 1}.mlp.add"
    rows.append(_norm(run, shape, "norm", last, "gradient of the head's weight", joins=False))
    rows.append(linear(run, "head", "norm", d, v, bias=False, shares_weight=shape.tied, wide=True))
    if run.trains:
        rows.append(cross_entropy(run, "head", v))
        end_of_backward(run, rows)
    return tuple(rows)


def _end_of_block(run: Run, shape: TransformerShape, block: list[Op]) -> None:
    """What checkpointing keeps of a block, and what goes when it has been computed again."""
    rng = RNG_STATE_BYTES if shape.dropout else 0
    stream = run.tokens * shape.d_model * run.wide
    first, last = block[0], block[-1]
    block[0] = replace(
        first,
        saved_bytes=rng,
        saved_because="drawing the same dropout again" if rng else "",
        forward_moves=(rng, *first.forward_moves),
    )
    block[-1] = replace(
        last,
        saved_bytes=stream,
        saved_because="computing the next block again, or the last norm's gradient",
        recompute_moves=(*last.recompute_moves, -stream, -rng, -run.copies_again),
    )


def _embedding(run: Run, shape: TransformerShape) -> Iterator[Op]:
    """Rows of a table, one for each token; with learned positions, plus one for each place."""
    d, v, e = shape.d_model, shape.vocab_size, run.wide
    stream, table = run.tokens * d * e, v * d * e
    learned = shape.positions == "learned"
    saved_by = "positions" if learned else "tokens"
    saved_by = "drop" if shape.dropout else saved_by

    def kept(leaf: str) -> tuple[int, str]:
        if leaf != saved_by or not run.trains:
            return 0, ""
        again = "computing the first block again"
        return stream, again if run.checkpointing else "gradient of the first norm"

    saved, because = kept("tokens")
    yield run.op(
        id="embed.tokens",
        kind="embedding",
        inputs=("tokens",),
        output_shape=(run.batch_size, run.seq_len, d),
        param_sizes=(v * d,),
        forward=(stream,),
        backward=(table, -stream, *(joined(table) if shape.tied else ())),
        saved=saved,
        because=because,
        read_bytes=stream + run.tokens * INDEX_BYTES,
        written_bytes=stream,
    )
    before = "embed.tokens"
    if learned:
        saved, because = kept("positions")
        places, all_places = run.seq_len * d * e, shape.max_seq_len * d * e
        yield run.op(
            id="embed.positions",
            kind="add",
            inputs=(before,),
            output_shape=(run.batch_size, run.seq_len, d),
            param_sizes=(shape.max_seq_len * d,),
            forward=(stream, -stream),
            backward=(places, all_places, -places),
            saved=saved,
            because=because,
            read_bytes=stream + places,
            written_bytes=stream,
        )
        before = "embed.positions"
    if shape.dropout:
        yield _dropout(
            run, "embed.drop", before, d, run.wide, owns_gradient=True, saved=kept("drop")
        )


def _constants(run: Run, shape: TransformerShape) -> Iterator[Op]:
    """What depends on places alone and is made once a step: RoPE's angles, the causal mask."""
    t, e, a = run.seq_len, run.wide, run.narrow
    if shape.positions == "rope":
        pairs = shape.d_head // 2
        angles, kept = t * pairs * e, t * pairs * a
        one = (angles, kept, -angles) if run.casts else (kept,)
        indices, places = pairs * INDEX_BYTES, t * INDEX_BYTES
        powers = pairs * e
        yield run.op(
            id="rope",
            kind="angles",
            inputs=(),
            output_shape=(2, t, pairs),
            forward=(
                *(indices, powers, -indices, powers, -powers),
                *(places, angles, -places),
                *(*one, *one, -powers, -angles),
            ),
            backward=(-kept, -kept),
            saved=2 * kept,
            because="turning the gradients back",
            written_bytes=2 * kept,
        )
    if shape.attention == "explicit":
        mask = t * run.context  # one byte each
        yield run.op(
            id="mask",
            kind="mask",
            inputs=(),
            output_shape=(t, run.context),
            forward=(mask,),
            backward=(-mask,),
            saved=mask,
            because="keeping the future out of the gradient",
            written_bytes=mask,
        )


def _norm(
    run: Run, shape: TransformerShape, id: str, source: str, reader: str, *, joins: bool = True
) -> Op:
    """LayerNorm keeps its input and two numbers a token; RMSNorm, which torch composes of single
    operations, the scaled input too. Its input's gradient joins that of the residual stream.
    """
    e, m, d = run.wide, run.tokens, shape.d_model
    x, stat, row = m * d * e, m * e, d * e
    output = 0 if run.casts else x  # under autocast the next op keeps a narrow copy instead
    join = joined(x) if joins else ()
    if shape.norm == "layernorm":
        n_params = 2 if shape.bias else 1
        forward, lost = (x, stat, stat), (stat, stat)
        backward = (x, *[row] * n_params, -x, -x, -stat, -stat, *join)
        saved = 2 * stat
    else:
        n_params = 1
        forward, lost = (x, stat, stat, -stat, -x, x, x), (stat, x)
        backward = (
            *((x, x, row, -x, -x, -x) if run.keeps else (x, x, -x, row, -x, -x)),  # of the gain
            *(x, x, stat, -x, -x, *join),  # of the input as numerator
            *(stat, stat, stat, -stat, -stat, -stat, -stat),  # of the root
            *(x, -stat, x, x, x, -x, -x, -x, -x, *joined(x)),  # of the mean square
        )
        saved = stat + x
    return run.op(
        id=id,
        kind=shape.norm,
        inputs=(source,),
        output_shape=(run.batch_size, run.seq_len, d),
        param_sizes=(d,) * n_params,
        forward=forward,
        lost=lost if joins else (*lost, x),  # the last norm is the stream's last reader
        backward=backward,
        saved=saved + output,
        because=f"this norm's gradient, {reader}" if output else "this norm's gradient",
        read_bytes=x + row * n_params,
        written_bytes=x,
    )


def _dropout(
    run: Run,
    id: str,
    source: str,
    width: int,
    e: int,
    *,
    owns_gradient: bool,
    saved: tuple[int, str] = (0, ""),
) -> Op:
    """Noise times input: the CPU keeps the noise in the input's format, not as one-byte mask."""
    n = run.tokens * width * e
    because = "the same noise on the gradient"
    return run.op(
        id=id,
        kind="dropout",
        inputs=(source,),
        output_shape=(run.batch_size, run.seq_len, width),
        forward=(n, n, -n),
        lost=(n,),
        backward=(n, -n * owns_gradient, -n),
        saved=n + saved[0],
        because=f"{because}, {saved[1]}" if saved[0] else because,
        read_bytes=n,
        written_bytes=n,
    )


def _add(run: Run, shape: TransformerShape, id: str, stream: str, branch: str) -> Op:
    """The branch joins the stream; backward hands the gradient to both, narrowed for the branch."""
    n, narrow = (run.tokens * shape.d_model * size for size in (run.wide, run.narrow))
    # A checkpointed block's input is kept for it from outside.
    ends = not (run.checkpointing and stream != "blocks.{i}.attn.add")
    return run.op(
        id=id,
        kind="add",
        inputs=(stream, branch),
        output_shape=(run.batch_size, run.seq_len, shape.d_model),
        forward=(n, -narrow),
        lost=(n,) if ends else (),
        backward=(narrow,) if run.casts else (),
        saved=n,
        because="gradient of the next norm",
        read_bytes=n + narrow,
        written_bytes=n,
    )


def _attention(run: Run, shape: TransformerShape) -> Iterator[Op]:
    path, stream = "blocks.{i}.attn", STREAM_BEFORE
    m, a, d = run.tokens, run.narrow, shape.d_model
    width = shape.d_q + 2 * shape.d_kv
    q, kv = m * shape.d_q * a, m * shape.d_kv * a
    rope, flash = shape.positions == "rope", shape.attention == "flash"
    cache = 2 * run.batch_size * run.context * shape.d_kv * run.wide if not run.trains else 0
    attention = "gradients of queries, keys and values"

    yield _norm(run, shape, f"{path}.norm", stream, "gradient of qkv's weight")
    yield linear(
        run,
        f"{path}.qkv",
        f"{path}.norm",
        d,
        width,
        bias=shape.bias,
        wide=True,
        because=attention if flash and not rope else "",
        gathers=() if rope else (q + 2 * kv, -q, -kv, -kv),
        cache_bytes=0 if rope else cache,
    )
    before = f"{path}.qkv"
    if rope:
        yield _rope(run, shape, before, attention if flash else "", cache)
        before = f"{path}.rope"
    if flash:
        yield _flash(run, shape, before)
        before = f"{path}.flash"
    else:
        yield from _explicit(run, shape, before)
        before = f"{path}.mix"
    yield from _projection(run, shape, path, "out", before, shape.d_q, keeps_input=not flash)
    yield _add(
        run, shape, f"{path}.add", stream, f"{path}.drop" if shape.dropout else f"{path}.out"
    )


def _projection(
    run: Run,
    shape: TransformerShape,
    path: str,
    leaf: str,
    before: str,
    d_in: int,
    *,
    keeps_input: bool = True,
) -> Iterator[Op]:
    """A linear layer back into the stream, with its dropout."""
    own = run.casts or shape.dropout > 0
    yield linear(
        run,
        f"{path}.{leaf}",
        before,
        d_in,
        shape.d_model,
        bias=shape.bias,
        owns_gradient=own,
        keeps_input=keeps_input,
    )
    if shape.dropout:
        yield _dropout(
            run,
            f"{path}.drop",
            f"{path}.{leaf}",
            shape.d_model,
            run.narrow,
            owns_gradient=run.casts,
        )


def _rope(run: Run, shape: TransformerShape, source: str, because: str, cache: int) -> Op:
    """Queries and keys turned together, half their channels at a time; values copied along."""
    m, a = run.tokens, run.narrow
    turned, values = m * (shape.d_q + shape.d_kv) * a, m * shape.d_kv * a
    whole, half = turned + values, turned // 2
    n_heads = shape.n_head + 2 * shape.n_kv_head
    turn = (half, half, half, -half, -half)  # two products and their sum
    return run.op(
        id="blocks.{i}.attn.rope",
        kind="rope",
        inputs=(source, "rope"),
        output_shape=(run.batch_size, run.seq_len, n_heads, shape.d_head),
        forward=(values, *turn, *turn, turned, -half, -half, -whole),
        backward=(
            *(turned, -turned),  # gradients of queries and keys in one
            *(half, half, half, half, -half, half, -half, -half),
            *(half, -turned, half, -half, -half, turned, -half, -half),
            *(whole, -turned, -values),
        ),
        saved=whole if because else 0,
        because=because,
        read_bytes=whole,
        written_bytes=whole,
        cache_bytes=cache,
    )


def _flash(run: Run, shape: TransformerShape, source: str) -> Op:
    """Attention in tiles: one number a query and head is kept, and backward multiplies five times
    where forward did twice.
    """
    m, a = run.tokens, run.narrow
    q, kv = m * shape.d_q * a, m * shape.d_kv * a
    sums = m * shape.n_head * run.wide
    flops = _attention_flops(run, shape)
    return run.op(
        id="blocks.{i}.attn.flash",
        kind="flash",
        inputs=(source,),
        output_shape=(run.batch_size, run.seq_len, shape.d_q),
        forward=(q, sums),
        lost=(sums, q + 2 * kv),
        backward=(q, kv, kv, -q, -q - 2 * kv, -sums, -q),
        saved=sums + q,
        because="gradients of queries, keys and values, gradient of out's weight",
        forward_flops=2 * flops,
        backward_flops=5 * flops,
        read_bytes=q + 2 * run.batch_size * run.context * shape.d_kv * a,
        written_bytes=q,
    )


def _attention_flops(run: Run, shape: TransformerShape) -> int:
    """Of one product between queries and keys, or probabilities and values; no causal half."""
    return 2 * run.tokens * run.context * shape.d_q


def _explicit(run: Run, shape: TransformerShape, source: str) -> Iterator[Op]:
    """Attention in steps, each a tensor: heads copied apart, keys and values for each query."""
    path = "blocks.{i}.attn"
    m, a = run.tokens, run.narrow
    heads, kv = m * shape.d_q * a, m * shape.d_kv * a
    keys = run.batch_size * run.context * shape.d_q * a
    scores = m * run.context * shape.n_head * a
    shape_BHTS = (run.batch_size, shape.n_head, run.seq_len, run.context)
    grouped = shape.n_head != shape.n_kv_head
    ungroup = (kv, -heads) if grouped else ()  # gradients of a group's heads summed
    rope = shape.positions == "rope"
    flops = _attention_flops(run, shape)
    yield run.op(
        id=f"{path}.scores",
        kind="scores",
        inputs=(source, "mask"),
        output_shape=shape_BHTS,
        # With RoPE the values are a tensor of their own, without it a part of qkv's output.
        forward=(heads, keys, scores, -(heads + kv) * rope),
        lost=(heads, keys),
        backward=(
            *(scores, -scores, scores, -scores),  # through the mask, through the scale
            *(heads, heads, -scores, -heads, -heads, *ungroup),
        ),
        saved=heads + keys,
        because="gradients of queries and keys",
        read_bytes=heads + run.batch_size * run.context * shape.d_kv * a,
        written_bytes=scores,
        forward_flops=flops,
        backward_flops=2 * flops,
    )
    yield run.op(
        id=f"{path}.softmax",
        kind="softmax",
        inputs=(f"{path}.scores",),
        output_shape=shape_BHTS,
        forward=(scores, -scores),
        backward=(scores, -scores, -scores),
        saved=scores,
        because="gradient of the scores" + ("" if shape.dropout else ", gradient of the values"),
        read_bytes=scores,
        written_bytes=scores,
    )
    probs = f"{path}.softmax"
    if shape.dropout:
        yield run.op(
            id=f"{path}.softmax_drop",
            kind="dropout",
            inputs=(probs,),
            output_shape=shape_BHTS,
            forward=(scores, scores),
            lost=(scores, scores),
            backward=(scores, -scores, -scores),
            saved=2 * scores,
            because="the same noise on the gradient, gradient of the values",
            read_bytes=scores,
            written_bytes=scores,
        )
        probs = f"{path}.softmax_drop"
    strided = run.batch_size > 1 and run.seq_len > 1 and shape.n_head > 1
    reorder = (heads, -heads) if strided else ()  # heads before tokens, to be multiplied
    dropped = (-scores,) if shape.dropout else ()  # kept by this op alone
    yield run.op(
        id=f"{path}.mix",
        kind="mix",
        inputs=(probs, source),
        output_shape=(run.batch_size, run.seq_len, shape.d_q),
        forward=(keys, heads),
        lost=(keys, scores),
        then=(-(kv if rope else heads + 2 * kv), heads, -heads),
        backward=(*reorder, heads, scores, -heads, -heads, *dropped, *ungroup),
        saved=keys + heads,
        because="gradient of the probabilities, gradient of out's weight",
        read_bytes=scores + run.batch_size * run.context * shape.d_kv * a,
        written_bytes=heads,
        forward_flops=flops,
        backward_flops=2 * flops,
    )


def _mlp(run: Run, shape: TransformerShape) -> Iterator[Op]:
    path = "blocks.{i}.mlp"
    stream = "blocks.{i}.attn.add"
    d, ff = shape.d_model, shape.d_ff
    slope, down = "the activation's slope", "gradient of down's weight"
    yield _norm(run, shape, f"{path}.norm", stream, "gradient of up's weight")

    def widen(
        leaf: str,
        because: str,
        *,
        ends: bool = True,
        joins: bool = False,
        keeps_input: bool = True,
    ) -> Op:
        return linear(
            run,
            f"{path}.{leaf}",
            f"{path}.norm",
            d,
            ff,
            bias=shape.bias,
            wide=True,
            because=because,
            ends=ends,
            joins=joins,
            keeps_input=keeps_input,
        )

    if shape.mlp == "gelu":
        yield widen("up", slope)
        yield elementwise(
            run, f"{path}.gelu", "gelu", f"{path}.up", ff, keeps_input=True, because=down
        )
        inside = f"{path}.gelu"
    else:
        both = "gradients of both factors"
        yield widen("gate", slope, ends=False, joins=True)
        yield elementwise(
            run, f"{path}.silu", "silu", f"{path}.gate", ff, keeps_input=True, because=both
        )
        yield widen("up", both, keeps_input=False)
        n = run.tokens * ff * run.narrow
        yield run.op(
            id=f"{path}.product",
            kind="product",
            inputs=(f"{path}.silu", f"{path}.up"),
            output_shape=(run.batch_size, run.seq_len, ff),
            forward=(n,),
            lost=(n, n),
            backward=(n, n, -n, -n, -n),
            saved=n,
            because=down,
            read_bytes=2 * n,
            written_bytes=n,
        )
        inside = f"{path}.product"
    yield from _projection(run, shape, path, "down", inside, ff)
    branch = f"{path}.drop" if shape.dropout else f"{path}.down"
    yield _add(run, shape, f"{path}.add", stream, branch)
