"""Shape and op table of transformers: parameters, flops and bytes moved, against torch's counts."""

from dataclasses import replace

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from core.engine.flops import flop_counter
from core.engine.models import Transformer
from core.ops import Decode, Prefill, Train, executed_flops, expand, model_flops
from core.shapes import TransformerShape
from core.transformer import transformer_ops
from core.units import BF16, DTYPES
from tests.core.test_transformer_memory import shapes, trainings
from tests.core.transformers import Setting, classifiers, random_settings

SMALL = TransformerShape(
    vocab_size=11, n_layer=2, d_model=8, n_head=2, n_kv_head=1, d_ff=12, max_seq_len=9
)


def gpt2(n_layer: int, d_model: int, n_head: int) -> TransformerShape:
    return TransformerShape(
        vocab_size=50257,
        n_layer=n_layer,
        d_model=d_model,
        n_head=n_head,
        n_kv_head=n_head,
        d_ff=4 * d_model,
        max_seq_len=1024,
    )


def llama(
    n_layer: int,
    d_model: int,
    heads: tuple[int, int],
    d_ff: int,
    vocab_size: int,
    *,
    tied: bool = False,
) -> TransformerShape:
    return TransformerShape(
        vocab_size=vocab_size,
        n_layer=n_layer,
        d_model=d_model,
        n_head=heads[0],
        n_kv_head=heads[1],
        d_ff=d_ff,
        max_seq_len=8192,
        norm="rmsnorm",
        mlp="swiglu",
        positions="rope",
        tied=tied,
        bias=False,
    )


GPT_2 = gpt2(12, 768, 12)
SMOLLM2 = llama(30, 576, (9, 3), 1536, 49152, tied=True)
LLAMA_405B = llama(126, 16384, (128, 8), 53248, 128256)


# -- shapes -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("shape", "n_params"),
    [
        (GPT_2, 124_439_808),
        (gpt2(24, 1024, 16), 354_823_168),
        (gpt2(36, 1280, 20), 774_030_080),
        (SMOLLM2, 134_515_008),
        (llama(32, 4096, (32, 32), 11008, 32000), 6_738_415_616),
        (llama(32, 4096, (32, 8), 14336, 128256), 8_030_261_248),
        (LLAMA_405B, 405_853_388_800),
    ],
    ids=["GPT-2", "GPT-2 M", "GPT-2 L", "SmolLM2-135M", "Llama-2-7B", "Llama-3-8B", "405B"],
)
def test_published_models_have_their_published_parameters(shape: TransformerShape, n_params: int):
    """Source: the models' own cards, as counted by transformers on the meta device."""
    assert shape.n_params == n_params
    ops = transformer_ops(shape, Train(batch_size=1, seq_len=1))
    assert sum(op.repeat * op.n_params for op in ops) == n_params


@pytest.mark.parametrize("setting", random_settings(40, seed=51), ids=str)
def test_parameters_are_those_of_the_module(setting: Setting):
    """In number, tensors, and size of each tensor in order: closed form, table and torch."""
    params = list(setting.model().parameters())
    sizes = [size for op in expand(setting.step.ops) for size in op.param_sizes]
    assert sizes == [p.numel() for p in params]
    assert setting.shape.n_params == sum(sizes)
    assert all(p.dtype == torch.float32 for p in params)


@pytest.mark.parametrize("setting", random_settings(12, seed=52), ids=str)
def test_a_parameter_is_called_by_its_op(setting: Setting):
    """Dotted module paths are op ids, so that a weight and what it does meet by name."""
    named = {name.rpartition(".")[0] for name, _ in setting.model().named_parameters()}
    assert named == {op.id for op in expand(setting.step.ops) if op.param_sizes}


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"n_layer": 0}, "n_layer=0 is not a whole number above 0; choose 1 or more"),
        ({"d_ff": 2.5}, "d_ff=2.5 is not a whole number"),
        ({"d_model": 7}, "d_model=7 is not divisible by n_head=2; choose d_model=6 or 8"),
        ({"n_head": 3, "d_head": 4, "n_kv_head": 2}, "n_head=3 is not divisible by n_kv_head=2"),
        ({"norm": "batchnorm"}, "norm='batchnorm' is unknown; choose layernorm or rmsnorm"),
        ({"attention": "sparse"}, "attention='sparse' is unknown"),
        ({"positions": "rope", "d_head": 3}, "d_head=3 is odd, but RoPE turns pairs"),
        ({"dropout": 1.0}, "dropout=1.0 is not a number from 0 to below 1"),
    ],
    ids=str,
)
def test_a_shape_that_cannot_be_says_why(change: dict, message: str):
    with pytest.raises(ValueError) as why:
        replace(SMALL, **({"d_head": 0} | change))
    assert message in str(why.value)


def test_a_head_may_be_wider_than_its_share():
    """As in Qwen3 and Gemma; then queries and stream differ in width."""
    shape = replace(SMALL, d_head=16)
    assert (shape.d_q, shape.d_kv) == (32, 16)
    assert shape.n_params == sum(p.numel() for p in Transformer(shape).parameters())


# -- the table ----------------------------------------------------------------------------------


@given(shapes, trainings)
def test_an_op_reads_what_came_before(shape: TransformerShape, workload: Train):
    """Ids are unique, every input is data or an earlier op, and all but the loss are read."""
    known, read = {"tokens", "target"}, set()
    rows = expand(transformer_ops(shape, workload))
    for op in rows:
        assert op.id not in known
        assert set(op.inputs) <= known, op
        known.add(op.id)
        read |= set(op.inputs)
    assert known - read - {"tokens", "target"} == {"loss"}
    assert rows[-1].output_shape == ()


@given(shapes, trainings)
def test_the_table_grows_with_kinds_and_not_with_layers(shape: TransformerShape, workload: Train):
    """Expanded, it has each layer's rows; sums over both are the same."""
    ops = transformer_ops(shape, workload)
    deeper = transformer_ops(replace(shape, n_layer=126), workload)
    assert len(deeper) == len(ops)
    rows = expand(ops)
    n_block = sum("{i}" in op.id for op in ops)
    assert len(rows) == len(ops) + (shape.n_layer - 1) * n_block
    assert executed_flops(rows) == executed_flops(ops)
    assert sum(op.n_params for op in rows) == shape.n_params


@pytest.mark.parametrize("setting", random_settings(16, seed=53, checkpointing=False), ids=str)
def test_the_model_passes_the_ops_in_the_tables_order(setting: Setting):
    """Marks of a training step and of a prompt are the ids, and outputs have the shapes told."""
    marks: list[str] = []
    model = setting.model()
    model.loss(*setting.batch(), marks.append)
    assert marks == [op.id for op in expand(setting.step.ops)]
    marks.clear()
    logits = model.eval()(setting.batch()[0], marks.append)
    prefill = Prefill(batch_size=setting.batch_size, seq_len=setting.seq_len)
    rows = expand(transformer_ops(setting.shape, prefill))
    assert marks == [op.id for op in rows]
    assert logits.shape == rows[-1].output_shape


# -- flops --------------------------------------------------------------------------------------


def counted(setting: Setting) -> tuple[int, int]:
    """(forward, the rest) as torch's counter sees them."""
    model = setting.model()
    with flop_counter() as forward, setting.autocast():
        loss = model.loss(*setting.batch())
    with flop_counter() as rest:
        loss.backward()
    return forward.get_total_flops(), rest.get_total_flops()


@pytest.mark.parametrize("setting", random_settings(40, seed=54) + classifiers()[::3], ids=str)
def test_executed_flops_are_torchs_count(setting: Setting):
    """Forward, and recompute with backward, 0 off: flash attention's five products, first layers
    without input gradient, checkpointed blocks once more.
    """
    ops = setting.step.ops
    forward = sum(op.repeat * op.forward_flops for op in ops)
    assert (forward, executed_flops(ops) - forward) == counted(setting)
    assert model_flops(ops) == 3 * forward


@pytest.mark.parametrize("setting", random_settings(12, seed=55), ids=str)
def test_a_prompts_flops_are_torchs_count(setting: Setting):
    workload = Prefill(batch_size=setting.batch_size, seq_len=setting.seq_len)
    with flop_counter() as counter, torch.inference_mode():
        setting.model().eval()(setting.batch()[0])
    assert executed_flops(transformer_ops(setting.shape, workload)) == counter.get_total_flops()


@pytest.mark.parametrize(
    ("shape", "seq_len", "flops"),
    [(GPT_2, 1024, 291_648_307_200), (SMOLLM2, 1024, 347_892_350_976)],
)
def test_published_models_take_the_flops_counted_elsewhere(
    shape: TransformerShape, seq_len: int, flops: int
):
    """Source: FlopCounterMode on Hugging Face's models; nanoGPT trains with 874,944,921,600."""
    ops = transformer_ops(shape, Train(batch_size=1, seq_len=seq_len))
    assert model_flops(ops) == 3 * flops
    assert executed_flops(transformer_ops(shape, Prefill(batch_size=1, seq_len=seq_len))) == flops


@given(shapes, st.integers(1, 9), st.integers(1, 500))
def test_a_new_token_looks_at_its_whole_context(
    shape: TransformerShape, batch_size: int, context: int
):
    """Decoding takes 2 flops for each weight that multiplies and 4 d_q for each token looked at."""
    ops = transformer_ops(shape, Decode(batch_size=batch_size, context=context))
    outside = shape.vocab_size * shape.d_model
    multiplied = sum(op.forward_flops for op in ops if op.id == "head") // (2 * batch_size)
    assert multiplied == outside
    n_up = 2 if shape.mlp == "swiglu" else 1
    d, q, kv, ff = shape.d_model, shape.d_q, shape.d_kv, shape.d_ff
    layer = d * (q + 2 * kv) + q * d + (n_up + 1) * d * ff
    expected = 2 * (shape.n_layer * layer + outside) + 4 * shape.n_layer * q * context
    assert executed_flops(ops) == batch_size * expected


@given(shapes, trainings)
def test_twice_the_batch_is_twice_the_work(shape: TransformerShape, workload: Train):
    twice = replace(workload, batch_size=2 * workload.batch_size)
    one, two = (executed_flops(transformer_ops(shape, w)) for w in (workload, twice))
    assert two == 2 * one


@given(shapes, trainings)
def test_checkpointing_adds_one_forward_of_the_blocks(shape: TransformerShape, workload: Train):
    with_, without = (
        transformer_ops(shape, replace(workload, checkpointing=c)) for c in (True, False)
    )
    again = sum(op.repeat * op.forward_flops for op in without if "{i}" in op.id)
    assert executed_flops(with_) - executed_flops(without) == again
    assert model_flops(with_) == model_flops(without)


@given(shapes, trainings)
def test_explicit_attention_multiplies_less_than_flash(shape: TransformerShape, workload: Train):
    """Flash computes the scores again in backward: one product of the seven more than six."""
    flash, explicit = (
        executed_flops(transformer_ops(replace(shape, attention=a), workload))
        for a in ("flash", "explicit")
    )
    tokens, context = workload.batch_size * workload.seq_len, workload.seq_len
    assert flash - explicit == shape.n_layer * 2 * tokens * context * shape.d_q


@pytest.mark.parametrize("left_out", ["head", "blocks.{i}.attn.flash", "blocks.{i}.mlp.down"])
def test_a_dropped_product_is_seen(left_out: str):
    setting = Setting(shape=SMALL, batch_size=2, seq_len=5)
    ops = [op for op in setting.step.ops if op.id != left_out]
    assert executed_flops(ops) != sum(counted(setting)) == executed_flops(setting.step.ops)


def test_torchs_own_counter_misses_the_cpus_flash_attention():
    """Why ours is told of it: without, attention counts for nothing."""
    from torch.utils.flop_counter import FlopCounterMode

    setting = Setting(shape=SMALL, batch_size=2, seq_len=5)
    with FlopCounterMode(display=False) as counter:
        setting.model().loss(*setting.batch()).backward()
    attention = sum(
        op.repeat * (op.forward_flops + op.backward_flops)
        for op in setting.step.ops
        if op.kind == "flash"
    )
    assert counter.get_total_flops() == executed_flops(setting.step.ops) - attention < 10**9


# -- bytes moved --------------------------------------------------------------------------------


@given(shapes, st.integers(1, 8), st.integers(1, 300))
def test_decoding_reads_weights_once_and_its_cache(
    shape: TransformerShape, batch_size: int, context: int
):
    """Twice the context reads twice the cache more; twice the batch reads no weight twice."""
    for name in ("fp32", "bf16"):
        dtype = DTYPES[name]

        def read(batch: int, tokens: int, dtype=dtype) -> int:
            workload = Decode(batch_size=batch, context=tokens, dtype=dtype)
            return sum(op.repeat * op.read_bytes for op in transformer_ops(shape, workload))

        grown = read(batch_size, 2 * context) - read(batch_size, context)
        cache = 2 * shape.n_layer * batch_size * context * shape.d_kv * dtype.n_bytes
        scores = shape.n_layer * batch_size * context * shape.n_head * dtype.n_bytes
        assert grown == cache + (2 * scores if shape.attention == "explicit" else 0)
        table = shape.vocab_size * shape.d_model * dtype.n_bytes  # of which one row is read
        weights = shape.n_params * dtype.n_bytes - table * (not shape.tied)
        one, two = read(batch_size, context), read(2 * batch_size, context)
        assert 2 * one - two <= weights  # what is not read twice is at most the weights
        assert read(1, 1) >= weights - shape.max_seq_len * shape.d_model * dtype.n_bytes


def test_half_the_format_moves_half_the_bytes():
    """In every op, but for token ids."""
    for workload in (Prefill(batch_size=2, seq_len=9), Decode(batch_size=2, context=9)):
        wide = transformer_ops(replace(SMALL, bias=True), workload)
        narrow = transformer_ops(replace(SMALL, bias=True), replace(workload, dtype=BF16))
        for one, two in zip(wide, narrow, strict=True):
            assert one.written_bytes == 2 * two.written_bytes
            if one.kind != "embedding":
                assert one.read_bytes == 2 * two.read_bytes


@pytest.mark.parametrize("setting", random_settings(8, seed=56, precision="fp32"), ids=str)
def test_what_is_written_is_the_output(setting: Setting):
    """Elements of the output shape times bytes of a number."""
    workload = Prefill(batch_size=setting.batch_size, seq_len=setting.seq_len)
    for op in transformer_ops(setting.shape, workload):
        n = 1
        for size in op.output_shape:
            n *= size
        assert op.written_bytes == n * (1 if op.kind == "mask" else 4), op
