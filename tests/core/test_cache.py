"""What models keep of their tokens: laws, the op table's own bytes, and what others got wrong."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from core.architecture import Attention, Latent, Layer, Mlp, ModelShape, Recurrent
from core.cache import (
    FORMATS,
    VLLM_BLOCK,
    bytes_per_token,
    cache_bytes,
    kept_by_kind,
    of_tokens,
    tokens_in_pool,
    tokens_that_fit,
)
from core.catalog import find_model, models
from core.ops import Decode, kv_cache_bytes
from core.sizes import Bytes
from core.transformer import model_ops
from core.units import BF16
from tests.core.test_models import MODELS

MLP = Mlp(d_ff=4, gated=False)


def shape_with(*mixers) -> ModelShape:
    layers = tuple((n, Layer(mixer=mixer, mlp=MLP)) for n, mixer in mixers)
    return ModelShape(vocab_size=8, d_model=8, layers=layers, max_seq_len=8)


def full(**more) -> Attention:
    return Attention(**{"n_head": 8, "n_kv_head": 2, "d_head": 16, **more})


@pytest.mark.parametrize("name", MODELS)
@pytest.mark.parametrize(("batch_size", "context"), [(1, 1), (3, 100), (2, 5000)])
def test_it_is_what_the_op_table_reads_in_a_decode(name, batch_size, context):
    shape = MODELS[name]
    ops = model_ops(shape, Decode(batch_size=batch_size, context=context, dtype=BF16))
    assert cache_bytes(shape, context, 2, batch_size=batch_size).n == kv_cache_bytes(ops)


@given(st.integers(1, 10**6), st.integers(1, 64))
def test_twice_the_sequences_hold_twice_as_much(n_tokens, batch):
    shape = MODELS["gemma"]
    one = cache_bytes(shape, n_tokens, batch_size=batch)
    assert cache_bytes(shape, n_tokens, batch_size=2 * batch).n == 2 * one.n


@given(st.integers(1, 10**6))
def test_a_longer_text_holds_no_less(n_tokens):
    for shape in MODELS.values():
        assert cache_bytes(shape, n_tokens) <= cache_bytes(shape, n_tokens + 1)


@given(st.integers(1, 10**6))
def test_windows_hold_no_more_than_seeing_all_and_never_nothing(n_tokens):
    # hf-mem left layers with windows out; gguf-parser charged them for all of the text.
    near = shape_with((4, full(window=128)))
    far = shape_with((4, full()))
    assert Bytes(0) < cache_bytes(near, n_tokens) <= cache_bytes(far, n_tokens)
    if n_tokens <= 128:
        assert cache_bytes(near, n_tokens) == cache_bytes(far, n_tokens)


def test_two_caches_are_added():
    # ollama: the second of two caches overwrote the first.
    both = shape_with((3, full(window=64)), (1, full()))
    parts = [cache_bytes(shape_with(part), 1000) for part in ((3, full(window=64)), (1, full()))]
    assert cache_bytes(both, 1000) == parts[0] + parts[1]


def test_a_hybrid_is_charged_for_its_attention_layers_alone():
    # 64 layers of which 16 attend: 16,384 MiB at 262,144 tokens.
    attention = Attention(n_head=16, n_kv_head=8, d_head=128)
    state = Recurrent(name="s", param_sizes=(), matrix_sizes=(), state_numbers=0)
    shape = shape_with((48, state), (16, attention))
    assert cache_bytes(shape, 262_144).in_unit("MiB") == 16_384


def test_a_state_is_as_large_however_long_the_text():
    shape = shape_with((2, Recurrent(name="s", param_sizes=(), matrix_sizes=(), state_numbers=7)))
    assert cache_bytes(shape, 1).n == cache_bytes(shape, 10**6).n == 2 * 7 * 2
    with pytest.raises(OverflowError):
        tokens_that_fit(shape, Bytes(10**9))


def test_compressed_keys_are_not_doubled_and_their_rotary_part_counts():
    # LMCache's table doubled them and dropped the rotary part.
    deepseek = find_model("deepseek-v3").shape
    assert bytes_per_token(deepseek).n == 61 * (512 + 64) * 2 == 70_272


def test_keys_are_those_of_key_heads_and_of_their_own_width():
    # LLM-Viewer, Vx: query heads. KolosalAI: hidden size. LMCache: hidden / heads.
    assert bytes_per_token(find_model("llama-3.1-70b").shape).n == 2 * 80 * 8 * 128 * 2
    qwen = find_model("qwen3-0.6b").shape
    assert bytes_per_token(qwen).n == 2 * 28 * 8 * 128 * 2
    gemma = find_model("gemma-7b").shape
    assert bytes_per_token(gemma).n == 2 * 28 * 16 * 256 * 2


def test_it_does_not_depend_on_parameters():
    dense, experts = find_model("mistral-7b").shape, find_model("mixtral-8x7b").shape
    assert bytes_per_token(dense) == bytes_per_token(experts)


def test_a_shared_cache_is_counted_once():
    one = shape_with((1, full()))
    shared = shape_with((1, full()), (3, full(shares_cache=True)))
    assert cache_bytes(shared, 100) == cache_bytes(one, 100)


def test_blocks_round_up_and_pools_hold_whole_blocks():
    shape = shape_with((1, full()))
    assert cache_bytes(shape, 17, block=16) == cache_bytes(shape, 32)
    assert cache_bytes(shape, 32, block=16) == cache_bytes(shape, 32)
    assert tokens_in_pool(Bytes(1000), Bytes(10), block=16) == 96
    assert of_tokens(Bytes(10), 5, batch_size=2) == Bytes(100)


@given(st.integers(10**4, 10**12))
def test_what_fits_fits_and_one_more_does_not(room):
    for shape in (MODELS["llama"], MODELS["gemma"], MODELS["deepseek"]):
        n = tokens_that_fit(shape, Bytes(room))
        assert n == 0 or cache_bytes(shape, n) <= Bytes(room)
        assert cache_bytes(shape, n + 1) > Bytes(room)


def test_every_model_of_the_catalogue_says_what_its_layers_keep():
    for model in models().values():
        kept = kept_by_kind(model.shape)
        assert sum(k.n_layers for k in kept) == model.shape.n_layer
        assert cache_bytes(model.shape, 1000).n > 0


def test_latent_width():
    latent = Latent(n_head=4, kv_rank=32, d_rope=8, d_nope=16, d_value=16)
    assert latent.cached_width == 40


def test_seventy_billion_at_32k_are_ten_gib_and_not_eighty():
    # Vx: query heads in place of key heads, which turned what fits and what does not.
    shape = find_model("llama-3.1-70b").shape
    assert cache_bytes(shape, 32_768).in_unit("GiB") == 10
    assert cache_bytes(shape, 32_768) * 8 == Bytes.of(80, "GiB")


def test_a_window_of_half_the_layers_halves_the_cache():
    # gguf-parser-go charged gpt-oss-20b for all layers: 49,152 bytes a token.
    shape = find_model("gpt-oss-20b").shape
    assert bytes_per_token(shape).n == 49_152
    far = cache_bytes(shape, 131_072)
    assert far.n == 49_152 / 2 * (131_072 + 128)


def test_a_published_cache_that_is_twice_too_large():
    # The table of a blog says 123.05 for 405B at 128k, of a checkpoint with 16 key heads.
    shape = find_model("llama-3.1-405b").shape
    assert cache_bytes(shape, 128_000).in_unit("GiB") == pytest.approx(61.52, rel=1e-3)


def test_a_format_counts_its_scales():
    # q8_0 is 8.5 bits and q4_0 4.5: a scale of 16 bits for each 32 numbers.
    each = {name: 8 * f.bytes_per_number for name, f in FORMATS.items()}
    assert each == {"fp32": 32, "bf16": 16, "fp8": 8, "q8_0": 8.5, "q4_0": 4.5}
    assert all(f.source for f in FORMATS.values())


@given(st.integers(1, 10**6), st.integers(1, 256))
def test_a_block_adds_less_than_itself(n_tokens, block):
    shape = shape_with((1, full()))
    held = cache_bytes(shape, n_tokens, block=block)
    assert cache_bytes(shape, n_tokens) <= held < cache_bytes(shape, n_tokens + block)
    per_token = bytes_per_token(shape)
    assert of_tokens(per_token, n_tokens, block=block) == held


@given(st.integers(0, 10**9), st.integers(1, 10**4))
def test_a_pool_holds_what_fits_in_whole_blocks(pool, per_token):
    n = tokens_in_pool(Bytes(pool), Bytes(per_token), block=VLLM_BLOCK)
    assert n % VLLM_BLOCK == 0
    assert n * per_token <= pool < (n + VLLM_BLOCK) * per_token


def test_a_block_of_nothing_is_refused():
    with pytest.raises(ValueError, match="choose 1 or more"):
        cache_bytes(shape_with((1, full())), 10, block=0)
