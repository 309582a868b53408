"""Operations, MFU and what follows: published figures, brute force, laws, known faults."""

import dataclasses

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from core.architecture import Attention, Layer, Mlp, ModelShape
from core.catalog import find_device, find_model
from core.counts import counts
from core.utilisation import (
    CONVENTIONS,
    Convention,
    Impossible,
    attention_flops,
    carbon_intensity,
    carbon_tonnes,
    checked_mfu,
    convention_flops,
    cost_usd,
    counted_params,
    device_hours,
    energy_kwh,
    flops_per_token,
    forward_flops,
    hours_of_flops,
    hours_of_many,
    hours_of_steps,
    implied_mfu,
    megatron_flops,
    mfu,
    tokens_per_s,
    total_flops,
    train_days,
    train_flops,
    usd_per_tokens,
)

A100, H100 = 312e12, 989.5e12  # FLOP/s, dense, bf16
BY_NAME = {c.name: c for c in CONVENTIONS}


def shape_of(name: str) -> ModelShape:
    return find_model(name).shape


def one_layer(window: int = 0, chunked: bool = False) -> ModelShape:
    mixer = Attention(n_head=4, n_kv_head=2, d_head=8, window=window, chunked=chunked)
    layer = Layer(mixer=mixer, mlp=Mlp(d_ff=16, gated=True))
    return ModelShape(vocab_size=10, d_model=32, layers=((3, layer),), max_seq_len=1024)


# -- operations ---------------------------------------------------------------------------------


def test_gpt_2_as_nanogpt_and_torch_count_it():
    # karpathy/nanoGPT transformer_sizing.ipynb; torch's FlopCounterMode counts the same.
    gpt2 = shape_of("gpt2")
    forward = forward_flops(gpt2, batch_size=1, seq_len=1024)
    assert forward == 291_648_307_200
    assert train_flops(forward) == 874_944_921_600
    assert (
        flops_per_token(123_551_232, layers=12, width=768, seq_len=1024) * 1024 == 875_062_886_400
    )


def test_both_products_of_attention_are_counted():
    """PITFALLS 38: scores and their mix, 2 × 2 T² H Q a layer."""
    assert attention_flops(one_layer(), seq_len=64) == 3 * 4 * 64**2 * 32


@pytest.mark.parametrize("chunked", [False, True])
@pytest.mark.parametrize("window", [0, 1, 7, 16, 64, 100])
def test_a_causal_mask_leaves_the_pairs_that_are_counted(window: int, chunked: bool):
    """PITFALLS 35, 37, 42: against a mask that is drawn, diagonals counted as half."""
    n = 64
    if chunked and (not window or n % window):
        pytest.skip("blocks are whole here")
    query, key = np.indices((n, n))
    near = query - key < window if window else query >= key
    if chunked:
        near = query // window == key // window
    pairs = float((near & (key < query)).sum() + n / 2)
    shape = one_layer(window, chunked)
    got = attention_flops(shape, seq_len=n, causal_half=True) / (3 * 4 * 32)
    assert abs(got - pairs) <= n / 2  # a window slides by whole tokens
    full = attention_flops(shape, seq_len=n) / (3 * 4 * 32)
    assert full == n * min(window or n, n)
    assert attention_flops(shape, seq_len=n, windows=False) == 3 * 4 * 32 * n**2


def test_causal_half_is_half_of_attention_and_of_nothing_else():
    gpt2 = shape_of("gpt2")
    full = forward_flops(gpt2, batch_size=2, seq_len=512)
    half = forward_flops(gpt2, batch_size=2, seq_len=512, causal_half=True)
    assert full - half == 2 * attention_flops(gpt2, seq_len=512) / 2


@given(st.integers(1, 8), st.integers(1, 4096))
def test_operations_are_linear_in_sequences_and_grow_with_tokens(batch: int, seq_len: int):
    gpt2 = shape_of("gpt2")
    one = forward_flops(gpt2, batch_size=1, seq_len=seq_len)
    assert forward_flops(gpt2, batch_size=batch, seq_len=seq_len) == batch * one
    assert forward_flops(gpt2, batch_size=1, seq_len=seq_len + 1) > one


@pytest.mark.parametrize("name", ["megatron-22b", "gpt-3-175b", "mt-nlg-530b", "megatron-1t"])
@pytest.mark.parametrize(
    ("recompute", "convention", "too_much"),
    [
        ("none", "matrix products alone", 0),
        ("selective", "HFU, attention again", 8),  # times L s² h, as its docstring says
        ("full", "HFU, blocks again", 0),
    ],
)
def test_megatrons_formula_is_the_sum_over_the_table(name, recompute, convention, too_much):
    shape, seq = shape_of(name), 2048
    layers, hidden = sum(n for n, _ in shape.layers), shape.d_model
    published = megatron_flops(
        batch=3,
        layers=layers,
        seq=seq,
        hidden=hidden,
        vocab=shape.vocab_size,
        recompute=recompute,
    )
    own = convention_flops(shape, BY_NAME[convention], seq_len=seq) * 3 * seq
    assert own + 3 * too_much * layers * seq**2 * hidden == pytest.approx(published, rel=1e-9)


def test_the_table_and_its_formula_agree_with_6n_12lhqt():
    llama = shape_of("llama-2-7b")
    assert convention_flops(llama, BY_NAME["6N + 12 L H Q T"], seq_len=4096) == flops_per_token(
        counts(llama).total, layers=32, width=4096, seq_len=4096
    )


def test_unknown_choices_are_refused():
    for wrong in ({"attention": "half"}, {"counted": "some"}, {"recompute": "twice"}):
        with pytest.raises(ValueError, match=next(iter(wrong.values()))):
            Convention(name="x", **wrong)
    with pytest.raises(ValueError, match="recompute"):
        megatron_flops(batch=1, layers=1, seq=1, hidden=1, vocab=1, recompute="twice")
    with pytest.raises(ValueError, match="count all"):
        Convention(name="x", counted="products", active=False)


# -- shares, as published -----------------------------------------------------------------------


@pytest.mark.parametrize(
    ("batch", "gpus", "hidden", "layers", "seconds", "model", "hardware"),
    [  # Korthikanti et al. 2022 (arXiv:2205.05198), table 5
        (4, 8, 6144, 48, 1.10, 41.5, 43.7),
        (64, 64, 12288, 96, 13.75, 51.4, 52.8),
        (280, 280, 20480, 105, 37.83, 56.0, 57.0),
        (512, 512, 25600, 128, 71.49, 56.3, 57.0),
    ],
)
def test_megatrons_mfu_and_hfu(batch, gpus, hidden, layers, seconds, model, hardware):
    sizes = {"batch": batch, "layers": layers, "seq": 2048, "hidden": hidden, "vocab": 51200}
    share = mfu(megatron_flops(**sizes) / seconds, chips=gpus, peak_flops=A100)
    assert 100 * share == pytest.approx(model, abs=0.2)
    done = megatron_flops(**sizes, recompute="selective")
    hfu = mfu(done / seconds, chips=gpus, peak_flops=A100)
    assert 100 * hfu == pytest.approx(hardware, abs=0.2)


def test_palm_with_and_without_attention():
    # Chowdhery et al. 2022: 46.2 % and, without attention, 45.7 %
    n, rate = 540.35e9, 238.3e3
    for width, percent in ((48 * 256, 46.2), (0, 45.7)):
        each = flops_per_token(n, layers=118, width=width, seq_len=2048)
        share = mfu(each * rate, chips=6144, peak_flops=275e12)
        assert 100 * share == pytest.approx(percent, rel=2e-3)


@pytest.mark.parametrize(
    ("n", "layers", "width", "seq_len", "rate", "percent"),
    [  # mosaicml/llm-foundry scripts/train/benchmarking/README.md, on an H100
        (6_658_859_008, 32, 4096, 2048, 10643, 46.44),
        (6_918_905_856, 32, 4096, 65536, 1956, 28.59),
        (64_862_437_376, 80, 8192, 2048, 1007, 41.25),
    ],
)
def test_llm_foundry_at_short_and_at_long_sequences(n, layers, width, seq_len, rate, percent):
    each = flops_per_token(n, layers=layers, width=width, seq_len=seq_len)
    share = mfu(each * rate, chips=1, peak_flops=H100)
    assert 100 * share == pytest.approx(percent, rel=2e-3)


# -- known faults -------------------------------------------------------------------------------


def test_more_than_the_peak_is_impossible_and_says_why():
    """PITFALLS 34, 35: attention in full at 16,384 tokens calls a full peak 121 %."""
    llama, causal = shape_of("llama-3.1-8b"), BY_NAME["6N + 6 L H Q T"]
    done = convention_flops(llama, causal, seq_len=16_384)
    share = convention_flops(llama, BY_NAME["6N + 12 L H Q T"], seq_len=16_384) / done
    assert share == pytest.approx(1.21, abs=0.005)
    with pytest.raises(Impossible, match=r"121 % .*mask"):
        checked_mfu(share)
    assert checked_mfu(1.0) == 1.0


def test_embeddings_in_or_out_of_n():
    """PITFALLS 36, 41: 31 % of GPT-2 124M are its table of tokens and of positions."""
    gpt2 = shape_of("gpt2")
    n = {name: counted_params(gpt2, BY_NAME[name]) for name in ("6N", "6N without embeddings")}
    assert n["6N"] == 124_439_808
    assert n["6N without embeddings"] == 124_439_808 - (50257 + 1024) * 768
    assert 1 - n["6N without embeddings"] / n["6N"] == pytest.approx(0.31, abs=0.01)
    untied = shape_of("llama-2-7b")
    lookup = counted_params(untied, BY_NAME["6N + 12 L H Q T, no lookup"])
    assert lookup == counts(untied).total - 32_000 * 4096


def test_a_window_leaves_out_what_it_hides():
    """PITFALLS 37: torchtitan PR 4300, gpt-oss-120b, 9.2 % less at 4,096 tokens."""
    shape = shape_of("gpt-oss-120b")
    convention = BY_NAME["6N + 12 L H Q T, no lookup"]
    right = convention_flops(shape, convention, seq_len=4096)
    wrong = convention_flops(shape, dataclasses.replace(convention, windows=False), seq_len=4096)
    assert 1 - right / wrong == pytest.approx(0.092, abs=0.001)


def test_chips_have_to_be_told():
    """PITFALLS 39: 16 GPUs' tokens over one GPU's peak make 45.5 % of 2.8 %."""
    rate = 0.028 * 16 * A100
    with pytest.raises(TypeError):
        mfu(rate, peak_flops=A100)  # type: ignore[call-arg]
    assert mfu(rate, chips=16, peak_flops=A100) == pytest.approx(0.028)
    assert mfu(rate, chips=1, peak_flops=A100) == pytest.approx(0.448)
    for chips, peak in ((0, A100), (1, 0.0)):
        with pytest.raises(ValueError, match="chips"):
            mfu(rate, chips=chips, peak_flops=peak)


@pytest.mark.parametrize("name", ["mixtral-8x7b", "gpt-oss-120b", "deepseek-v3", "qwen3-30b-a3b"])
def test_experts_that_no_token_meets_do_no_work(name: str):
    """PITFALLS 40: prime-rl 778 counted all of them."""
    shape = shape_of(name)
    active = convention_flops(shape, BY_NAME["6N"], seq_len=2048)
    assert active == 6 * counts(shape).active
    all_of_them = convention_flops(shape, BY_NAME["all experts"], seq_len=2048)
    assert all_of_them > 3 * active


def test_a_peak_with_sparsity_halves_the_share():
    """1,979 TFLOP/s of an H100 are with half of the numbers nought; the catalogue has 989."""
    dense = find_device("h100").peak_flops["bf16"]
    assert dense is not None
    assert dense == pytest.approx(989e12, rel=1e-3)
    rate = 0.4 * dense
    halved = mfu(rate, chips=1, peak_flops=1979e12)
    assert halved == pytest.approx(mfu(rate, chips=1, peak_flops=dense) / 2, rel=1e-3)
    assert find_device("gh200-96gb").peak_flops["bf16"] == pytest.approx(dense, rel=0.01)


# -- laws ---------------------------------------------------------------------------------------

rates = st.floats(1e6, 1e18)
names = st.sampled_from(["gpt2", "llama-2-7b", "gpt-oss-20b", "deepseek-v3", "gemma-2-2b"])


@given(rates, st.integers(1, 10_000), st.floats(1e9, 1e16), st.integers(2, 9))
def test_mfu_is_linear_in_the_rate_and_falls_with_chips(rate, chips, peak, times):
    share = mfu(rate, chips=chips, peak_flops=peak)
    assert mfu(times * rate, chips=chips, peak_flops=peak) == pytest.approx(times * share)
    assert mfu(rate, chips=times * chips, peak_flops=peak) == pytest.approx(share / times)


@given(names, st.integers(1, 32_768))
def test_conventions_are_in_order(name: str, seq_len: int):
    shape = shape_of(name)
    flops = {c.name: convention_flops(shape, c, seq_len=seq_len) for c in CONVENTIONS}
    n = [flops[k] for k in ("6N", "6N + 6 L H Q T", "6N + 12 L H Q T", "windows as if full")]
    assert n == sorted(n)
    hfu = [flops[k] for k in ("matrix products alone", "HFU, attention again", "HFU, blocks again")]
    assert hfu == sorted(hfu)
    assert hfu[2] <= hfu[0] * 4 / 3
    assert flops["6N without embeddings"] < flops["6N"] <= flops["all experts"]
    assert flops["6N + 12 L H Q T, no lookup"] <= flops["6N + 12 L H Q T"]


@given(st.floats(1e6, 1e12), st.floats(1e6, 1e14), st.integers(1, 20_000), st.floats(0.01, 1))
def test_days_hours_and_tokens_a_second_are_one_budget(n, tokens, chips, share):
    flops = total_flops(n, tokens)
    days = train_days(flops, chips=chips, peak_flops=H100, mfu=share)
    hours = hours_of_flops(flops, peak_flops=H100, mfu=share)
    assert hours_of_many(24 * days, chips) == pytest.approx(hours)
    assert implied_mfu(flops, hours=hours, peak_flops=H100) == pytest.approx(share)
    rate = tokens_per_s(flops_per_token(n), chips=chips, peak_flops=H100, mfu=share)
    assert device_hours(tokens, rate) == pytest.approx(24 * days)
    one = tokens_per_s(flops_per_token(n), chips=1, peak_flops=H100, mfu=share)
    assert device_hours(tokens, one) == pytest.approx(hours)


# -- days, hours, carbon, money -----------------------------------------------------------------


def test_lectures_budgets():
    # CS336 lecture 2; "How to Scale Your Model", transformers question 7; karpathy/llm.c
    seventy = total_flops(70e9, 15e12)
    assert train_days(seventy, chips=1024, peak_flops=H100, mfu=0.5) == pytest.approx(
        143.927, rel=1e-4
    )
    share = implied_mfu(total_flops(37e9, 14.8e12), hours=2.79e6, peak_flops=1.513e15)
    assert 100 * share == pytest.approx(21.7, abs=0.15)
    assert total_flops(124e6, 10e9) == 7.44e18


@pytest.mark.parametrize(
    ("model", "peak", "hours", "share"),
    [  # the model cards' hours; the shares of Llama 3.1 as cases.csv derives them
        ("llama-2-70b", A100, 1_720_320, 0.428),
        ("llama-3.1-8b", 989e12, 1_460_000, 0.139),
        ("llama-3.1-405b", 989e12, 30_840_000, 0.346),
    ],
)
def test_published_hours_imply_a_share(model, peak, hours, share):
    found = find_model(model)
    assert found.train_tokens is not None
    flops = total_flops(counts(found.shape).active, found.train_tokens)
    assert implied_mfu(flops, hours=hours, peak_flops=peak) == pytest.approx(share, abs=2e-3)


def test_one_table_of_carbon_has_one_intensity():
    # facebookresearch/llama MODEL_CARD: hours, and tonnes, at 400 W
    rows = [(184_320, 31.22), (368_640, 62.44), (1_720_320, 291.42)]
    found = [carbon_intensity(t, energy_kwh(hours, 400)) for hours, t in rows]
    assert found == pytest.approx([0.42346] * 3, rel=1e-3)
    assert carbon_tonnes(energy_kwh(1_720_320, 400), found[0]) == pytest.approx(291.42, rel=1e-3)
    assert energy_kwh(10, 100, pue=1.1) == pytest.approx(1.1)


@pytest.mark.parametrize(
    ("steps", "seconds", "usd_per_hour", "published"),
    [  # karpathy/llm.c scripts/run_gpt2_*.sh: 8 GPUs at a price for the machine
        (60_000, 0.82, 14, 200),
        (286_102, 1.7, 14, 2000),
        (32_000, 2.7, 28, 672),
    ],
)
def test_what_a_run_costs(steps, seconds, usd_per_hour, published):
    usd = cost_usd(hours_of_steps(steps, seconds), usd_per_hour)
    assert usd == pytest.approx(published, rel=0.06)


def test_price_of_tokens():
    # cli99/llm-analysis examples/llama2
    usd = usd_per_tokens(devices=2, usd_per_device_hour=2.21, tokens_per_s=25.568)
    assert usd == pytest.approx(0.0478, rel=6e-3)
