"""Ideal times and ceilings: two courses' worked examples, laws, claims that cannot be."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from core.catalog import find_device, find_model
from core.counts import counts
from core.fits import needed_devices
from core.ops import Decode, Prefill
from core.quantised import weights_bytes
from core.roofline import (
    achieved_share,
    all_reduce_s,
    answer_s,
    bandwidth_from_bus,
    ceiling_tokens_per_s,
    critical_batch,
    decode_flops,
    decode_s,
    decode_step,
    first_token_s,
    impossible_claim,
    peak_from_clock,
    prefill,
    prefill_flops,
    read_per_token,
    required_bandwidth,
    ridge,
    tokens_per_s,
)
from core.sizes import Bytes
from core.transformer import model_ops
from core.units import BF16
from core.utilisation import forward_flops, multiplied_numbers
from core.work_columns import distinct_experts

V5E_BANDWIDTH, V5E_PEAK = 8.1e11, 1.97e14  # "How to Scale Your Model", TPU v5e


# -- worked examples ----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("kv_heads", "batch", "n_bytes", "ms", "rate"),
    [  # CS336 lecture 10: Llama-2-13B in bf16, 1,024 tokens, 3.35e12 B/s
        (40, 1, 26_869_760_000, 8.0208, 124.675),
        (40, 64, 79_717_990_400, 23.796, 2689.48),
        (40, 256, 240_779_264_000, 71.874, 3561.77),
        (8, 64, 33_412_874_240, 9.974, 6416.69),
        (8, 256, 65_625_128_960, 19.590, 13068.16),
    ],
)
def test_a_lectures_decoding(kv_heads: int, batch: int, n_bytes: int, ms: float, rate: float):
    layers, hidden, ffn, vocab, head = 40, 5120, 13_824, 32_000, 128
    attention = 2 * hidden * hidden + 2 * hidden * kv_heads * head
    n_params = 2 * vocab * hidden + layers * (3 * hidden * ffn + attention)
    weights = read_per_token(n_params, bytes_per_weight=2)
    cache = Bytes(2 * layers * kv_heads * head * 1024 * 2) * batch
    assert weights + cache == Bytes(n_bytes)
    step = decode_step(weights=weights, cache=cache, bandwidth=3.35e12)
    assert 1000 * step.seconds == pytest.approx(ms, rel=1e-4)
    assert tokens_per_s(step.seconds, batch) == pytest.approx(rate, rel=1e-4)
    assert step.bound == "memory"


@pytest.mark.parametrize(
    ("batch", "ms", "rate"),
    [
        (1, 4.98, 200.61),
        (8, 12.13, 659.30),
        (16, 20.30, 787.99),
        (32, 36.65, 873.21),
        (64, 69.33, 923.13),
        (240, 249.09, 963.53),
    ],
)
def test_a_books_table(batch: int, ms: float, rate: float):
    # "How to Scale Your Model", inference: Llama-2-13B on 8 TPU v5e at 8.2e11 B/s, 8,192 tokens
    step = decode_step(
        weights=Bytes(26e9),
        cache=Bytes(6.7e9) * batch,
        bandwidth=8 * 8.2e11,
        flops=decode_flops(13e9, batch),
        peak_flops=1.6e15,
    )
    assert 1000 * step.seconds == pytest.approx(ms, rel=2e-3)
    assert tokens_per_s(step.seconds, batch) == pytest.approx(rate, rel=2e-3)


@pytest.mark.parametrize(
    ("batch", "rate"),
    [(1, 239.94), (8, 1429.19), (16, 2212.48), (32, 3047.62), (64, 3756.62), (240, 4529.34)],
)
def test_the_same_with_fewer_heads_of_keys_and_values(batch: int, rate: float):
    step = decode_step(weights=Bytes(26e9), cache=Bytes(1.34e9) * batch, bandwidth=6.56e12)
    assert tokens_per_s(step.seconds, batch) == pytest.approx(rate, rel=2e-3)


@pytest.mark.parametrize(("batch", "ms"), [(4, 2.5), (256, 21)])
def test_a_quiz_where_operations_bind(batch: int, ms: float):
    # 30 G parameters in int8 on 16 v5e, 100 kB of cache a token, 8,192 tokens
    step = decode_step(
        weights=Bytes(30e9),
        cache=Bytes(100e3) * 8192 * batch,
        bandwidth=16 * V5E_BANDWIDTH,
        flops=decode_flops(30e9, batch),
        peak_flops=16 * V5E_PEAK,
    )
    assert 1000 * step.seconds == pytest.approx(ms, rel=0.03)
    assert step.overlapped <= step.seconds


def test_a_books_70b():
    step = decode_step(weights=Bytes(70e9), cache=Bytes(42e9), bandwidth=8 * V5E_BANDWIDTH)
    assert 1000 * step.seconds == pytest.approx(17, rel=0.02)
    assert tokens_per_s(step.seconds, 32) == pytest.approx(1882, rel=0.02)
    reading = prefill(flops=prefill_flops(70e9, seq_len=8192), peak_flops=16 * V5E_PEAK * 0.4)
    assert reading.seconds == pytest.approx(0.91, rel=5e-3)
    assert reading.bound == "compute"


@pytest.mark.parametrize("name", ["llama-2-7b", "qwen3-8b", "gpt-3-175b"])
def test_a_prompts_operations_are_the_sum_over_the_table(name: str):
    shape = find_model(name).shape
    mixer = next(iter(shape.kinds())).mixer
    own = prefill_flops(
        multiplied_numbers(shape),
        seq_len=512,
        batch=3,
        layers=sum(n for n, _ in shape.layers),
        width=mixer.d_q,
    )
    assert own == forward_flops(shape, batch_size=3, seq_len=512)


def test_a_prompt_waits_for_the_weights_where_it_is_short():
    # vllm-project/vllm 770: max(2 N B S / FLOPs, 2 N / BW), 8 tokens of an 8B on an A5000
    reading = prefill(
        flops=prefill_flops(8e9, seq_len=8),
        peak_flops=111e12,
        weights=Bytes(16e9),
        bandwidth=768e9,
    )
    assert 1000 * reading.seconds == pytest.approx(21, rel=0.02)
    assert reading.bound == "memory"


def test_ridges_and_critical_batches():
    assert ridge(989e12, 3.35e12) == pytest.approx(295.22, rel=1e-4)
    for weight_bytes, tokens in ((2, 240), (1, 120)):
        assert critical_batch(
            peak_flops=1.97e14, bandwidth=8.2e11, weight_bytes=weight_bytes
        ) == pytest.approx(tokens, rel=5e-3)


def test_intensity_of_attention_reading_and_writing():
    """CS336 lecture 10: T / 2 when a prompt is read, T / (T + 1) a token."""
    llama, n = find_model("llama-2-13b").shape, 1024
    for workload, expected in (
        (Prefill(batch_size=1, seq_len=n, dtype=BF16), n / 2),
        (Decode(batch_size=1, context=n, dtype=BF16), n / (n + 1)),
    ):
        op = next(op for op in model_ops(llama, workload) if op.kind in ("flash", "scores"))
        looked = op.forward_flops / (op.read_bytes + op.written_bytes)
        assert looked == pytest.approx(expected, rel=2e-3)


@pytest.mark.parametrize(
    ("clock_mhz", "cores", "fma", "tflops"),
    [(1830, 528, 512, 989.43), (1410, 432, 256, 311.87), (2100, 1216, 256, 1307)],
)
def test_peaks_from_clocks_are_dense(clock_mhz, cores, fma, tflops):
    # stas00/ml-engineering, accelerators: H100 SXM, A100 and MI300X
    found = peak_from_clock(clock_mhz=clock_mhz, cores=cores, fma_per_core=fma)
    assert found / 1e12 == pytest.approx(tflops, rel=1e-3)


def test_bandwidth_from_the_bus():
    assert bandwidth_from_bus(bus_bits=8192, clock_mhz=3996) == pytest.approx(8.184e12, rel=1e-3)
    once = bandwidth_from_bus(bus_bits=8192, clock_mhz=3996, transfers_per_clock=1)
    assert once == pytest.approx(4.092e12, rel=1e-3)


# -- an answer ----------------------------------------------------------------------------------


def test_an_answers_time_is_the_sum_over_its_tokens():
    """PITFALLS 49: not the mean of the first and the last, where a window fills up."""

    def step_s(context: int) -> float:
        return 1e-3 * min(context, 100)

    whole = decode_s(step_s, prompt=50, n_tokens=201)
    assert whole == pytest.approx(1e-3 * (sum(range(51, 101)) + 150 * 100))
    first_and_last = 200 * (step_s(51) + step_s(250)) / 2
    assert whole > 1.1 * first_and_last
    straight = decode_s(lambda context: 1e-3 * context, prompt=50, n_tokens=201)
    assert straight == pytest.approx(200 * 1e-3 * (51 + 250) / 2)
    assert decode_s(step_s, prompt=50, n_tokens=1) == 0


def test_time_to_the_first_token_and_to_the_last():
    # meta-llama/llama-models, Llama 3.2 on a phone: 64 tokens at 21.2 tok/s in 3.0 s
    first = first_token_s(64, 21.2)
    assert first == pytest.approx(3.0, rel=0.02)
    assert first_token_s(64, 21.2, waited_s=2) == first + 2
    assert answer_s(first_s=first, each_s=0.1, n_tokens=1) == first
    assert answer_s(first_s=first, each_s=0.1, n_tokens=11) == pytest.approx(first + 1)


# -- laws ---------------------------------------------------------------------------------------

sizes = st.floats(1e3, 1e13)
bandwidths = st.floats(1e9, 1e14)


@given(sizes, sizes, bandwidths, st.floats(1e9, 1e17), st.floats(1e9, 1e17))
def test_times_fall_with_what_a_device_has_and_rise_with_what_there_is_to_do(
    weights, cache, bandwidth, flops, peak
):
    def time(times_bytes=1.0, times_bandwidth=1.0, times_flops=1.0, times_peak=1.0):
        return decode_step(
            weights=Bytes(weights * times_bytes),
            cache=Bytes(cache * times_bytes),
            bandwidth=bandwidth * times_bandwidth,
            flops=flops * times_flops,
            peak_flops=peak * times_peak,
        )

    now = time()
    assert time(times_bandwidth=2).seconds < now.seconds
    assert time(times_bytes=2).seconds > now.seconds
    assert time(times_flops=2).seconds >= now.seconds
    assert time(times_peak=2).seconds <= now.seconds
    twice = time(times_bytes=2, times_flops=2)
    assert twice.seconds == pytest.approx(2 * now.seconds)
    assert now.overlapped <= now.seconds <= 2 * now.overlapped * (1 + 1e-12)
    assert now.bound == ("compute" if now.flops_s > max(now.bytes_s, now.cache_s) else "memory")


@given(sizes, bandwidths)
def test_nothing_is_faster_than_its_bytes(read, bandwidth):
    weights = Bytes(read)
    most = ceiling_tokens_per_s(weights, bandwidth)
    assert most * decode_step(weights=weights, bandwidth=bandwidth).seconds == pytest.approx(1)
    assert achieved_share(weights, most, bandwidth) == pytest.approx(1)
    assert ceiling_tokens_per_s(weights * 2, bandwidth) == pytest.approx(most / 2)
    assert ceiling_tokens_per_s(weights, bandwidth, batch=4) == pytest.approx(4 * most)
    assert impossible_claim(weights, most * 0.999, bandwidth=bandwidth) == ""
    assert impossible_claim(weights, most * 1.001, bandwidth=bandwidth)


@given(st.integers(1, 512), st.data())
def test_distinct_experts_grow_from_those_of_a_token_to_all(n_experts, data):
    """PITFALLS 22: bytes of a batch are those of the experts it meets, E (1 − (1 − k/E)^T)."""
    each = data.draw(st.integers(1, n_experts))
    met = [float(distinct_experts(n_experts, each, t)) for t in (1, 2, 8, 64, 100_000)]
    assert met[0] == pytest.approx(each)
    assert met == sorted(met)
    assert met[-1] == pytest.approx(n_experts, rel=1e-3)
    assert all(m <= n_experts * (1 + 1e-12) for m in met)


def test_an_all_reduce_of_one_is_none_and_of_many_is_twice_the_tensor():
    how = {"batch": 2, "seq": 16, "hidden": 4096, "dtype_bytes": 2, "link": 300e9}
    assert all_reduce_s(**how, ranks=1, latency_s=1) == 0
    tensor_s = 2 * 16 * 4096 * 2 / 300e9
    assert all_reduce_s(**how, ranks=2) == pytest.approx(2 * tensor_s)
    assert all_reduce_s(**how, ranks=1024) == pytest.approx(4 * tensor_s, rel=2e-3)
    assert all_reduce_s(**how, ranks=2, latency_s=1e-5) == pytest.approx(2 * tensor_s + 2e-5)


# -- known faults and claims --------------------------------------------------------------------


def test_a_mixture_reads_its_active_experts():
    """PITFALLS 19: gpt-fast measured 97.92 tok/s of Mixtral in int8, more than all bytes allow."""
    found, device = counts(find_model("mixtral-8x7b").shape), find_device("a100-sxm-80gb")
    read = read_per_token(found.active, bytes_per_weight=1, not_read=found.input_embedding)
    held = read_per_token(found.total, bytes_per_weight=1)
    measured = 97.92
    assert ceiling_tokens_per_s(held, device.bandwidth_bytes_s) < measured
    assert ceiling_tokens_per_s(read, device.bandwidth_bytes_s) > measured


def test_an_input_embedding_is_not_read():
    # pytorch-labs/gpt-fast README: 1,069.2 GB/s at 155.58 tok/s and the like are bytes of a token
    llama = counts(find_model("llama-3.1-8b").shape)
    read = read_per_token(llama.total, bytes_per_weight=2, not_read=llama.input_embedding)
    assert read.in_unit("GB") == pytest.approx(15.0257, rel=2e-3)


@pytest.mark.parametrize(
    ("name", "weight_format", "rate", "device", "needed_gb_s"),
    [  # claims that are seen on the web, and what they would need
        ("llama-3.1-8b", "bf16", 140, "rtx-5090-32gb", 2248),
        ("llama-3.1-70b", "bf16", 80, "a100-sxm-80gb", 11_289),
    ],
)
def test_claims_that_cannot_be(name, weight_format, rate, device, needed_gb_s):
    weights, has = weights_bytes(find_model(name).shape, weight_format), find_device(device)
    needed = required_bandwidth(weights, rate) / 1e9
    assert needed == pytest.approx(needed_gb_s, rel=5e-3)
    said = impossible_claim(weights, rate, bandwidth=has.bandwidth_bytes_s, memory=has.memory)
    assert f"{needed:,.0f} GB/s" in said
    assert ("do not fit" in said) == (weights > has.memory)
    slow = 0.4 * has.bandwidth_bytes_s / weights.n
    assert impossible_claim(weights, slow, bandwidth=has.bandwidth_bytes_s) == ""


def test_a_phone_reads_no_317_gb_a_second():
    # Llama-3-8B Chat at 66.14 tok/s on a Snapdragon 8 Gen 3, 4.8 GB
    phone = find_device("snapdragon-8-gen-3")
    said = impossible_claim(Bytes(4.8e9), 66.14, bandwidth=phone.bandwidth_bytes_s)
    assert "317 GB/s" in said and "77 GB/s" in said
    # Meta measured 7.6 tok/s of 6,129 MiB on that chip.
    assert not impossible_claim(
        Bytes.of(6129, "MiB"), 7.6, bandwidth=phone.bandwidth_bytes_s, memory=phone.memory
    )


def test_70b_in_8_bits_is_no_32_gb():
    weights = weights_bytes(find_model("llama-3.1-70b").shape, "Q8_0")
    assert "do not fit in 32 GB" in impossible_claim(
        weights, 1, bandwidth=math.inf, memory=Bytes.of(32, "GB")
    )
    assert needed_devices(weights, Bytes.of(32, "GB")) == 3


def test_a_mixtures_claim_is_held_against_what_a_token_reads():
    held, read = Bytes.of(46.7, "GB"), Bytes.of(12.9, "GB")
    assert impossible_claim(held, 97.9, bandwidth=2.039e12)
    assert not impossible_claim(held, 97.9, bandwidth=2.039e12, read=read)
