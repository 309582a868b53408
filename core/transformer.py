"""The op table of decoder-only models: GPT-2, Llama, DeepSeek-V3 and what lies between.

Layers that are alike are one group of rows; layers of several kinds are a group each, one after
the other, whatever their order in the model.

Letters: M tokens of the step, d width of the stream, e bytes of a number in it, a bytes of a
number that a matrix product takes (2 under autocast).
"""

from collections.abc import Iterator
from dataclasses import dataclass, replace

from core.architecture import Attention, Experts, Latent, Layer, Mlp, ModelShape, Recurrent
from core.ops import (
    INDEX_BYTES,
    RNG_STATE_BYTES,
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
    """Op table of a model whose layers are all alike, forward order.

    Checked: every move against torch's own, op by op (tests/core/test_transformer_memory.py).
    """
    return model_ops(shape.model, workload)


def model_ops(shape: ModelShape, workload: Workload) -> tuple[Op, ...]:
    """Op table of a decoder-only model, forward order.

    Checked: parameters against transformers, moves against each other (tests/core/test_models.py).
    """
    run = Run.of(workload)
    if not run.trains:
        shape = replace(shape, dropout=0.0)
    rows = [*_embedding(run, shape), *_constants(run, shape)]
    kinds = shape.kinds()
    last = rows[-1].id
    for layer, n in kinds.items():
        at = _At(run=run, shape=shape, layer=layer, path=_path(layer, kinds))
        run.in_block, run.repeat, run.copies_again = True, n, 0
        block = [*_tokens_mixed(at), *_channels_mixed(at)]
        run.in_block, run.repeat = False, 1
        if run.checkpointing:
            _end_of_block(run, shape, block)
        rows += block
        last = block[-1].id.format(i=n - 1)

    d, v = shape.d_model, shape.vocab_size
    if shape.final_norm:
        rows.append(_norm(run, shape, "norm", last, "gradient of the head's weight", joins=False))
        last = "norm"
    rows.append(
        linear(run, "head", last, d, v, bias=shape.head_bias, shares_weight=shape.tied, wide=True)
    )
    rows += [
        Op(
            id=name,
            kind="other",
            inputs=(),
            output_shape=(n,),
            param_sizes=(n,),
            backward_moves=(n * run.wide,) * run.trains,
        )
        for name, n in shape.others
    ]
    if run.trains:
        rows.append(cross_entropy(run, "head", v))
        end_of_backward(run, rows)
    return tuple(rows)


@dataclass(frozen=True, slots=True, kw_only=True)
class _At:
    """A kind of layer, and where its rows stand."""

    run: Run
    shape: ModelShape
    layer: Layer
    path: str  # `blocks`, or `blocks.sliding` where there are several kinds

    @property
    def before(self) -> str:
        """The stream as the layer before left it."""
        return f"{self.path}.{{before}}.mlp.add"

    @property
    def attn(self) -> str:
        return f"{self.path}.{{i}}.attn"

    @property
    def mlp(self) -> str:
        return f"{self.path}.{{i}}.mlp"


def _path(layer: Layer, kinds: dict[Layer, int]) -> str:
    if len(kinds) == 1:
        return "blocks"
    alike = [other for other in kinds if other.name == layer.name]
    number = f"-{alike.index(layer) + 1}" if len(alike) > 1 else ""
    return f"blocks.{layer.name.replace(' ', '-')}{number}"


def _end_of_block(run: Run, shape: ModelShape, block: list[Op]) -> None:
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


def _embedding(run: Run, shape: ModelShape) -> Iterator[Op]:
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


def _constants(run: Run, shape: ModelShape) -> Iterator[Op]:
    """What depends on places alone and is made once a step: RoPE's angles, the causal mask."""
    t, e, a = run.seq_len, run.wide, run.narrow
    if pairs := _rope_pairs(shape):
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


def _rope_pairs(shape: ModelShape) -> int:
    """Pairs of channels that RoPE turns in each head; 0 without it."""
    if shape.positions != "rope":
        return 0
    for layer in shape.kinds():
        match layer.mixer:
            case Attention(d_head=d_head):
                return d_head // 2
            case Latent(d_rope=d_rope):
                return d_rope // 2
    return 0


def _norm(
    run: Run, shape: ModelShape, id: str, source: str, reader: str, *, joins: bool = True
) -> Op:
    """LayerNorm keeps its input and two numbers a token; RMSNorm, which torch composes of single
    operations, the scaled input too. Its input's gradient joins that of the residual stream.
    """
    e, m, d = run.wide, run.tokens, shape.d_model
    x, stat, row = m * d * e, m * e, d * e
    output = 0 if run.casts else x  # under autocast the next op keeps a narrow copy instead
    join = joined(x) if joins else ()
    if shape.norm == "layernorm":
        n_params = 2 if shape.norm_bias else 1
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


def _inner_norm(
    run: Run,
    id: str,
    source: str,
    width: int,
    param_sizes: tuple[int, ...],
    *,
    rest: int = 0,
    carries: bool = False,
    owns_gradient: bool = True,
    reader: str = "",
) -> Op:
    """RMSNorm of a branch: of queries and keys, of what a branch gives back, of what is compressed.

    Its input is kept, the scaled input and one number a row too. `rest`: numbers of a token in the
    input that are not normalised; `carries`: the output has them too. `reader`: why the output is
    kept, if it is.
    """
    m, e, a = run.tokens, run.wide, run.narrow
    x, stat, gain = m * width * a, m * e, sum(param_sizes) * e
    whole, y = m * (width + rest) * a, m * (width + rest * carries) * a
    own = "this norm's gradient"
    return run.op(
        id=id,
        kind="rmsnorm",
        inputs=(source,),
        output_shape=(run.batch_size, run.seq_len, width + rest * carries),
        param_sizes=param_sizes,
        forward=(stat, x, y),
        lost=(stat, x, whole),
        backward=(x, gain, whole, -x, -y * owns_gradient, -x, -stat, -whole),
        saved=stat + x + (y if reader else 0),
        because=f"{own}, {reader}" if reader else own,
        read_bytes=whole + gain,
        written_bytes=y,
    )


def _add(at: _At, id: str, stream: str, branch: str) -> Op:
    """The branch joins the stream; backward hands the gradient to both, narrowed for the branch."""
    run, d = at.run, at.shape.d_model
    n, narrow = (run.tokens * d * size for size in (run.wide, run.narrow))
    at_end = stream != at.before
    # A checkpointed block's input is kept for it from outside.
    ends = at_end or not run.checkpointing
    # Where both branches read one norm's output, no gradient needs the stream between them.
    between = at.layer.n_norms == 1
    return run.op(
        id=id,
        kind="add",
        inputs=(stream, branch),
        output_shape=(run.batch_size, run.seq_len, d),
        forward=(n, -narrow, -n * (between and at_end)),
        lost=(n,) if ends and not (between and at_end) else (),
        backward=(narrow,) if run.casts else (),
        saved=n * (at_end or not between),
        because="gradient of the next norm",
        read_bytes=n + narrow,
        written_bytes=n,
    )


def _tokens_mixed(at: _At) -> Iterator[Op]:
    """Attention, or what stands in its place, and its result joining the stream."""
    run, shape, path = at.run, at.shape, at.attn
    yield _norm(run, shape, f"{path}.norm", at.before, "gradient of qkv's weight")
    match at.layer.mixer:
        case Attention() as mixer:
            yield from _attention(at, mixer)
        case Latent() as mixer:
            yield from _latent(at, mixer)
        case Recurrent() as mixer:
            yield _recurrent(at, mixer)
    yield _add(at, f"{path}.add", at.before, _branch(at, path, "out"))


def _branch(at: _At, path: str, leaf: str) -> str:
    """The last op of a branch."""
    if at.layer.n_norms == 4:
        return f"{path}.post_norm"
    return f"{path}.drop" if at.shape.dropout else f"{path}.{leaf}"


def _attention(at: _At, mixer: Attention) -> Iterator[Op]:
    run, shape, path = at.run, at.shape, at.attn
    m, a, d = run.tokens, run.narrow, shape.d_model
    widths = _Widths.of(mixer)
    q, kv = m * mixer.d_q * a, m * mixer.d_kv * a
    rope, flash = shape.positions == "rope", shape.attention == "flash"
    cache = _cache_bytes(run, mixer)
    attention = "gradients of queries, keys and values"
    parallel = at.layer.n_norms == 1  # the MLP reads the same norm's output
    plain = not (rope or mixer.qk_norm)  # queries, keys and values are parts of qkv's output

    if mixer.gate:
        yield linear(
            run,
            f"{path}.gate",
            f"{path}.norm",
            d,
            mixer.d_q,
            bias=mixer.qkv_bias,
            wide=True,
            ends=False,
            joins=True,
            because="gradients of both factors",
        )
    yield linear(
        run,
        f"{path}.qkv",
        f"{path}.norm",
        d,
        mixer.d_q + 2 * mixer.d_kv,
        bias=mixer.qkv_bias,
        wide=True,
        ends=not parallel,
        joins=parallel,
        keeps_input=not mixer.gate,
        because=attention if flash and plain else "this norm's gradient" * mixer.qk_norm,
        gathers=(q + 2 * kv, -q, -kv, -kv) if plain else (),
        cache_bytes=0 if rope else cache,
        window=mixer.window,
    )
    before = f"{path}.qkv"
    if mixer.qk_norm:
        yield _inner_norm(
            run,
            f"{path}.qk_norm",
            before,
            mixer.d_q + mixer.d_kv,
            (mixer.d_head, mixer.d_head),
            rest=mixer.d_kv,
            carries=True,
            reader=attention if flash and not rope else "",
        )
        before = f"{path}.qk_norm"
    if rope:
        yield _rope(run, mixer, path, before, attention if flash else "", cache)
        before = f"{path}.rope"
    if flash:
        yield _flash(run, path, before, widths, mixer)
        before = f"{path}.flash"
    else:
        yield from _explicit(run, shape, path, before, widths, mixer, copied=rope)
        before = f"{path}.mix"
    if mixer.gate:
        yield _weighed(run, f"{path}.weighed", (before, f"{path}.gate"), q, mixer.d_q, flash)
        before = f"{path}.weighed"
    yield from _projection(
        at,
        path,
        "out",
        before,
        mixer.d_q,
        bias=mixer.out_bias,
        keeps_input=mixer.gate or not flash,
    )


def _weighed(run: Run, id: str, inputs: tuple[str, ...], n: int, width: int, flash: bool) -> Op:
    """Attention's result times a sigmoid of its gate. Flash attention keeps its result itself."""
    own = n * (not flash)
    return run.op(
        id=id,
        kind="product",
        inputs=inputs,
        output_shape=(run.batch_size, run.seq_len, width),
        forward=(n,),
        lost=(n, n),
        backward=(n, n, -n, -n, -own),
        saved=n,
        because="gradient of out's weight",
        read_bytes=2 * n,
        written_bytes=n,
    )


def _latent(at: _At, mixer: Latent) -> Iterator[Op]:
    """Queries, and keys and values, through a narrow waist; one rotary key for all heads."""
    run, shape, path = at.run, at.shape, at.attn
    m, a, d = run.tokens, run.narrow, shape.d_model
    d_kv = mixer.n_head * (mixer.d_nope + mixer.d_value)
    norm, own = f"{path}.norm", "this norm's gradient"
    narrow = mixer.q_rank or mixer.d_q
    yield linear(
        run,
        f"{path}.q_down" if mixer.q_rank else f"{path}.q",
        norm,
        d,
        narrow,
        bias=mixer.qkv_bias,
        wide=True,
        ends=False,
        joins=True,
        because=own if mixer.q_rank else "",
    )
    if mixer.q_rank:
        q_norm = f"{path}.q_norm"
        reader = "gradient of q's weight"
        yield _inner_norm(run, q_norm, f"{path}.q_down", narrow, (narrow,), reader=reader)
        yield linear(run, f"{path}.q", q_norm, narrow, mixer.d_q, bias=False)
    yield linear(
        run,
        f"{path}.kv_down",
        norm,
        d,
        mixer.cached_width,
        bias=mixer.qkv_bias,
        wide=True,
        keeps_input=False,
        because=own,
        cache_bytes=_cache_bytes(run, mixer),
    )
    yield _inner_norm(
        run,
        f"{path}.kv_norm",
        f"{path}.kv_down",
        mixer.kv_rank,
        (mixer.kv_rank,),
        rest=mixer.d_rope,
        reader="gradient of kv's weight",
    )
    yield linear(run, f"{path}.kv", f"{path}.kv_norm", mixer.kv_rank, d_kv, bias=False)
    widths = _Widths.of(mixer)
    q, kv, whole = m * mixer.d_q * a, m * d_kv * a, m * widths.total * a
    flash = shape.attention == "flash"
    yield run.op(
        id=f"{path}.rope",
        kind="rope",
        inputs=(f"{path}.q", f"{path}.kv", "rope"),
        output_shape=(run.batch_size, run.seq_len, widths.total),
        forward=(whole, -q, -kv),
        backward=(q, kv, -whole),
        saved=whole if flash else 0,
        because="gradients of queries, keys and values" if flash else "",
        read_bytes=whole,
        written_bytes=whole,
    )
    before = f"{path}.rope"
    if flash:
        yield _flash(run, path, before, widths, mixer)
        before = f"{path}.flash"
    else:
        yield from _explicit(run, shape, path, before, widths, mixer, copied=True)
        before = f"{path}.mix"
    yield from _projection(at, path, "out", before, widths.out, bias=False, keeps_input=not flash)


def _recurrent(at: _At, mixer: Recurrent) -> Op:
    """All of a layer that carries a state of fixed size, as one row."""
    run, d = at.run, at.shape.d_model
    m, e, a = run.tokens, run.wide, run.narrow
    x, y, kept = m * d * e, m * d * a, m * mixer.kept_numbers * a
    n_params = sum(mixer.param_sizes)
    flops = 2 * m * sum(mixer.matrix_sizes)
    state = 0 if run.trains else run.batch_size * mixer.state_numbers * e
    gradient = x if run.casts else y
    return run.op(
        id=f"{at.attn}.out",
        kind="recurrent",
        inputs=(f"{at.attn}.norm",),
        output_shape=(run.batch_size, run.seq_len, d),
        param_sizes=mixer.param_sizes,
        forward=(y * run.casts, kept, y, -x * run.casts),
        lost=(y if run.casts else x, kept),
        backward=(gradient, n_params * e, -y * run.casts, -kept, -y),
        saved=kept + y * run.casts,
        because="this layer's gradients" if kept else "",
        forward_flops=flops,
        backward_flops=2 * flops,
        read_bytes=x + n_params * e + state,
        written_bytes=y + state,
        cache_bytes=state,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class _Widths:
    """Widths of all heads: queries; keys and values as they come, and written out for each head."""

    q: int
    k: int
    v: int
    k_all: int
    v_all: int

    @classmethod
    def of(cls, mixer: Attention | Latent) -> "_Widths":
        if isinstance(mixer, Attention):
            q, kv = mixer.d_q, mixer.d_kv
            return cls(q=q, k=kv, v=kv, k_all=q, v_all=q)
        values = mixer.n_head * mixer.d_value
        return cls(q=mixer.d_q, k=mixer.d_q, v=values, k_all=mixer.d_q, v_all=values)

    @property
    def out(self) -> int:
        return self.v_all

    @property
    def total(self) -> int:
        return self.q + self.k + self.v


def _cache_bytes(run: Run, mixer: Attention | Latent) -> int:
    """What a layer keeps of the tokens that a query sees."""
    if run.trains:
        return 0
    return run.batch_size * _seen(run, mixer.window) * mixer.cached_width * run.wide


def _seen(run: Run, window: int) -> int:
    """Tokens that a query looks at."""
    return min(run.context, window) if window else run.context


def _projection(
    at: _At,
    path: str,
    leaf: str,
    before: str,
    d_in: int,
    *,
    bias: bool,
    keeps_input: bool = True,
) -> Iterator[Op]:
    """A linear layer back into the stream, with its dropout and its norm."""
    run, shape = at.run, at.shape
    normed = at.layer.n_norms == 4
    own = run.casts or shape.dropout > 0
    yield linear(
        run,
        f"{path}.{leaf}",
        before,
        d_in,
        shape.d_model,
        bias=bias,
        owns_gradient=own or normed,
        keeps_input=keeps_input,
        because="its norm's gradient" if normed else "",
    )
    if normed:
        yield _inner_norm(
            run,
            f"{path}.post_norm",
            f"{path}.{leaf}",
            shape.d_model,
            (shape.d_model,),
            owns_gradient=run.casts,
        )
        return
    if shape.dropout:
        yield _dropout(
            run,
            f"{path}.drop",
            f"{path}.{leaf}",
            shape.d_model,
            run.narrow,
            owns_gradient=run.casts,
        )


def _rope(run: Run, mixer: Attention, path: str, source: str, because: str, cache: int) -> Op:
    """Queries and keys turned together, half their channels at a time; values copied along."""
    m, a = run.tokens, run.narrow
    turned, values = m * (mixer.d_q + mixer.d_kv) * a, m * mixer.d_kv * a
    whole, half = turned + values, turned // 2
    n_heads = mixer.n_head + 2 * mixer.n_kv_head
    turn = (half, half, half, -half, -half)  # two products and their sum
    return run.op(
        id=f"{path}.rope",
        kind="rope",
        inputs=(source, "rope"),
        output_shape=(run.batch_size, run.seq_len, n_heads, mixer.d_head),
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
        window=mixer.window,
    )


def _flash(run: Run, path: str, source: str, widths: _Widths, mixer: Attention | Latent) -> Op:
    """Attention in tiles: one number a query and head is kept, and backward multiplies five times
    where forward did twice.
    """
    m, a = run.tokens, run.narrow
    q, k, v, out = (m * width * a for width in (widths.q, widths.k, widths.v, widths.out))
    sums = m * mixer.n_head * run.wide
    seen = _seen(run, mixer.window)
    to_scores, to_mix = _multiplied_widths(run, widths, mixer)
    scores, mix = _attention_flops(run, seen, to_scores), _attention_flops(run, seen, to_mix)
    sinks = mixer.n_head if isinstance(mixer, Attention) and mixer.sinks else 0
    return run.op(
        id=f"{path}.flash",
        kind="flash",
        inputs=(source,),
        output_shape=(run.batch_size, run.seq_len, widths.out),
        param_sizes=(sinks,) if sinks else (),
        window=mixer.window,
        forward=(out, sums),
        lost=(sums, q + k + v),
        backward=(q, k, v, sinks * run.wide, -out, -q - k - v, -sums, -out),
        saved=sums + out,
        because="gradients of queries, keys and values, gradient of out's weight",
        forward_flops=scores + mix,
        backward_flops=3 * scores + 2 * mix,
        read_bytes=q + run.batch_size * seen * _read_width(run, widths, mixer) * a,
        written_bytes=out,
    )


def _one_by_one(run: Run, mixer: Attention | Latent) -> bool:
    """Whether compressed keys and values are multiplied as they are cached, as in decoding."""
    return isinstance(mixer, Latent) and run.decodes


def _read_width(run: Run, widths: _Widths, mixer: Attention | Latent) -> int:
    """Numbers that are read of each token before."""
    return mixer.cached_width if _one_by_one(run, mixer) else widths.k + widths.v


def _multiplied_widths(run: Run, widths: _Widths, mixer: Attention | Latent) -> tuple[int, int]:
    """Widths of the two products, over all heads."""
    if isinstance(mixer, Latent) and _one_by_one(run, mixer):
        return mixer.n_head * mixer.cached_width, mixer.n_head * mixer.kv_rank
    return widths.q, widths.out


def _attention_flops(run: Run, seen: int, width: int) -> int:
    """Of one product between queries and keys, or probabilities and values; no causal half."""
    return 2 * run.tokens * seen * width


def _explicit(
    run: Run,
    shape: ModelShape,
    path: str,
    source: str,
    widths: _Widths,
    mixer: Attention | Latent,
    *,
    copied: bool,
) -> Iterator[Op]:
    """Attention in steps, each a tensor: heads copied apart, keys and values for each query.

    `copied`: the values are a tensor of their own, and not a part of qkv's output.
    """
    m, a = run.tokens, run.narrow
    heads, out = m * widths.q * a, m * widths.out * a
    k, v = m * widths.k * a, m * widths.v * a
    keys, values = (run.batch_size * run.context * w * a for w in (widths.k_all, widths.v_all))
    scores = m * run.context * mixer.n_head * a
    shape_BHTS = (run.batch_size, mixer.n_head, run.seq_len, run.context)
    grouped = widths.k != widths.k_all
    # Gradients of a group's heads summed.
    ungroup_k, ungroup_v = ((k, -heads), (v, -out)) if grouped else ((), ())
    read = run.batch_size * run.context * a
    yield run.op(
        id=f"{path}.scores",
        kind="scores",
        inputs=(source, "mask"),
        output_shape=shape_BHTS,
        window=mixer.window,
        forward=(heads, keys, scores, -(heads + k) * copied),
        lost=(heads, keys),
        backward=(
            *(scores, -scores, scores, -scores),  # through the mask, through the scale
            *(heads, heads, -scores, -heads, -heads, *ungroup_k),
        ),
        saved=heads + keys,
        because="gradients of queries and keys",
        read_bytes=heads + read * widths.k,
        written_bytes=scores,
        forward_flops=_attention_flops(run, run.context, widths.q),
        backward_flops=2 * _attention_flops(run, run.context, widths.q),
    )
    yield run.op(
        id=f"{path}.softmax",
        kind="softmax",
        inputs=(f"{path}.scores",),
        output_shape=shape_BHTS,
        window=mixer.window,
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
    strided = run.batch_size > 1 and run.seq_len > 1 and mixer.n_head > 1
    reorder = (out, -out) if strided else ()  # heads before tokens, to be multiplied
    dropped = (-scores,) if shape.dropout else ()  # kept by this op alone
    sinks = mixer.n_head if isinstance(mixer, Attention) and mixer.sinks else 0
    yield run.op(
        id=f"{path}.mix",
        kind="mix",
        inputs=(probs, source),
        output_shape=(run.batch_size, run.seq_len, widths.out),
        param_sizes=(sinks,) if sinks else (),
        window=mixer.window,
        forward=(values, out),
        lost=(values, scores),
        then=(-(v if copied else heads + k + v), out, -out),
        backward=(
            *(*reorder, out, scores, sinks * run.wide),
            *(-out, -out, *dropped, *ungroup_v),
        ),
        saved=values + out,
        because="gradient of the probabilities, gradient of out's weight",
        read_bytes=scores + read * widths.v,
        written_bytes=out,
        forward_flops=_attention_flops(run, run.context, widths.out),
        backward_flops=2 * _attention_flops(run, run.context, widths.out),
    )


def _channels_mixed(at: _At) -> Iterator[Op]:
    """The MLP, or a mixture of them, and its result joining the stream."""
    run, shape, path = at.run, at.shape, at.mlp
    stream = f"{at.attn}.add"
    source = f"{at.attn}.norm"
    if at.layer.n_norms > 1:
        yield _norm(run, shape, f"{path}.norm", stream, "gradient of up's weight")
        source = f"{path}.norm"
    match at.layer.mlp:
        case Mlp() as mlp:
            yield from _mlp(at, mlp, source)
        case Experts() as experts:
            yield from _experts(at, experts, source)
    yield _add(at, f"{path}.add", stream, _branch(at, path, _LAST[at.layer.mlp.kind]))


_LAST = {"dense": "down", "experts": "combine"}


def _mlp(at: _At, mlp: Mlp, source: str) -> Iterator[Op]:
    shared = at.layer.n_norms == 1  # the norm has attention for a reader too
    yield from _widened(at, "", mlp.d_ff, mlp.gated, mlp.bias, source, first=not shared, last=True)
    yield from _projection(
        at, at.mlp, "down", f"{at.mlp}.{_inside(mlp.gated)}", mlp.d_ff, bias=mlp.bias
    )


def _inside(gated: bool) -> str:
    return "product" if gated else "gelu"


_SLOPE, _BOTH, _DOWN = (
    "the activation's slope",
    "gradients of both factors",
    "gradient of down's weight",
)


def _widened(
    at: _At,
    prefix: str,
    d_ff: int,
    gated: bool,
    bias: bool,
    source: str,
    *,
    first: bool,  # of all that read the norm's output: it is kept by this one
    last: bool,  # nobody reads it after
    experts: tuple[int, int] = (1, 1),
) -> Iterator[Op]:
    """From the stream's width to the MLP's, and through the activation."""
    run, path, d = at.run, f"{at.mlp}.{prefix}", at.shape.d_model
    routed = experts != (1, 1)
    wide = d_ff * experts[1]

    def widen(leaf: str, because: str, *, first: bool, last: bool) -> Op:
        return linear(
            run,
            f"{path}{leaf}",
            source,
            d,
            d_ff,
            bias=bias,
            wide=not routed,
            because=because,
            ends=last,
            joins=not last,
            keeps_input=first,
            experts=experts,
        )

    if not gated:
        yield widen("up", _SLOPE, first=first, last=last)
        yield elementwise(
            run, f"{path}gelu", "gelu", f"{path}up", wide, keeps_input=True, because=_DOWN
        )
        return
    yield widen("gate", _SLOPE, first=first, last=False)
    yield elementwise(
        run, f"{path}silu", "silu", f"{path}gate", wide, keeps_input=True, because=_BOTH
    )
    yield widen("up", _BOTH, first=False, last=last)
    n = run.tokens * wide * run.narrow
    yield run.op(
        id=f"{path}product",
        kind="product",
        inputs=(f"{path}silu", f"{path}up"),
        output_shape=(run.batch_size, run.seq_len, wide),
        forward=(n,),
        lost=(n, n),
        backward=(n, n, -n, -n, -n),
        saved=n,
        because=_DOWN,
        read_bytes=2 * n,
        written_bytes=n,
    )


def _experts(at: _At, mlp: Experts, source: str) -> Iterator[Op]:
    """A router scores the experts; each token is copied to its own, and their results are weighed.

    Every expert's matrices are parameters; a token multiplies with `top_k` of them.
    """
    run, path, d = at.run, at.mlp, at.shape.d_model
    m, e, a, k = run.tokens, run.wide, run.narrow, mlp.top_k
    chosen = (mlp.n, k)
    normed = at.layer.n_norms == 4
    yield linear(
        run,
        f"{path}.router",
        source,
        d,
        mlp.n,
        bias=mlp.router_bias,
        wide=True,
        ends=False,
        joins=True,
        because="gradient of the weights of experts",
    )
    if mlp.n_shared:
        d_shared = mlp.n_shared * (mlp.d_shared or mlp.d_ff)
        yield from _widened(
            at, "shared_", d_shared, mlp.gated, mlp.bias, source, first=False, last=False
        )
        yield linear(
            run,
            f"{path}.shared_down",
            f"{path}.shared_{_inside(mlp.gated)}",
            d_shared,
            d,
            bias=mlp.bias,
            owns_gradient=run.casts or normed,
        )
        if mlp.shared_gate:
            yield Op(
                id=f"{path}.shared_weight",
                kind="linear",
                inputs=(source,),
                output_shape=(run.batch_size, run.seq_len, 1),
                repeat=run.repeat,
                param_sizes=(d,),
                forward_flops=2 * m * d,
                backward_flops=4 * m * d if run.trains else 0,
                backward_moves=(d * e,) if run.trains else (),
                read_bytes=d * e,
            )
    copies, scores, y = m * k * d * a, m * mlp.n * a, m * d * a
    yield run.op(
        id=f"{path}.dispatch",
        kind="dispatch",
        inputs=(source, f"{path}.router"),
        output_shape=(run.batch_size, run.seq_len, k * d),
        forward=(copies, -m * d * e * run.casts),
        lost=() if run.casts else (m * d * e,),
        backward=(m * d * (e if run.casts else a), -copies),
        saved=copies,
        because="gradients of the experts' weights",
        read_bytes=y,
        written_bytes=copies,
    )
    yield from _widened(
        at,
        "experts_",
        mlp.d_ff,
        mlp.gated,
        mlp.bias,
        f"{path}.dispatch",
        first=True,
        last=True,
        experts=chosen,
    )
    yield linear(
        run,
        f"{path}.experts_down",
        f"{path}.experts_{_inside(mlp.gated)}",
        mlp.d_ff,
        d,
        bias=mlp.bias,
        because="gradient of the weights of experts",
        experts=chosen,
    )
    shared = y * bool(mlp.n_shared)
    # The result's gradient goes to the shared expert after this, where there is one.
    ends = -y * ((run.casts or normed) and not shared)
    yield run.op(
        id=f"{path}.combine",
        kind="combine",
        inputs=(f"{path}.experts_down", f"{path}.router"),
        output_shape=(run.batch_size, run.seq_len, d),
        forward=(y, -shared),
        lost=(copies, scores),
        backward=(copies, scores, ends, -copies, -scores),
        saved=y * normed,
        because="its norm's gradient" if normed else "",
        read_bytes=copies + scores,
        written_bytes=y,
    )
    if normed:
        yield _inner_norm(
            run,
            f"{path}.post_norm",
            f"{path}.combine",
            d,
            (d,),
            owns_gradient=run.casts,
        )
