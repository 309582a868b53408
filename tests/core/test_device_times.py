"""Times on a device are sums over the op table on its roofline, and published times lie in them."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from core.architecture import Experts, ModelShape
from core.cache import FORMATS, cache_bytes
from core.catalog import bands, find_device, find_model, models
from core.counts import counts
from core.device_times import (
    COMPUTE,
    MEMORY,
    UNKNOWN,
    Rates,
    Share,
    banded,
    bytes_per_weight,
    computes_in,
    least_batch,
    serving_costs,
    times,
    training_costs,
    trains_in,
    update_bytes,
)
from core.footprints import Serving, Training
from core.optimizers import OPTIMIZERS
from core.quantised import gguf_tensors, weights_bytes
from core.states import RECIPES
from core.step_latency import update_bytes as measured_update_bytes

H100 = Rates(bandwidth_bytes_s=3.35e12, peak_flops=989e12)
SMALL = find_model("smollm2-135m").shape
LLAMA = find_model("llama-3.1-8b").shape


def _dense(shape: ModelShape) -> bool:
    return not any(isinstance(layer.mlp, Experts) for layer in shape.kinds())


@pytest.mark.parametrize("slug", models())
def test_one_token_reads_the_weights_once_and_of_the_embedding_a_row(slug: str):
    """Of a mixture the experts that it is sent to. Norms and biases are left out."""
    shape = models()[slug].shape
    found = counts(shape)
    costs = serving_costs([shape], "decode", Serving(), 64)
    read = float(costs.weights_bytes.sum()) / 2
    untied = 0 if shape.tied else shape.vocab_size * shape.d_model
    positions = found.positions
    assert read == pytest.approx(found.active - untied - positions, rel=4e-3)


@pytest.mark.parametrize("tokens", [100, 5_000])
@pytest.mark.parametrize("slug", models())
def test_a_token_reads_the_keys_and_values_that_are_kept(slug: str, tokens: int):
    """LLM-Viewer 12 loads them with the query heads; 688 of LMCache without the rotary part."""
    shape = models()[slug].shape
    how = Serving(batch_size=3, cache_format="q8_0")
    costs = serving_costs([shape], "decode", how, tokens)
    kept = cache_bytes(shape, tokens, FORMATS["q8_0"].bytes_per_number, batch_size=3)
    assert float(costs.cache_bytes.sum()) == pytest.approx(kept.n, rel=1e-6)


def test_many_models_at_once_are_each_of_them_alone():
    shapes = [m.shape for m in models().values()][::7]
    for work in ("prefill", "decode"):
        how = Serving(batch_size=4, weight_format="Q4_K_M")
        together = times(serving_costs(shapes, work, how, 300), H100).per_model
        alone = [times(serving_costs([s], work, how, 300), H100).per_model[0] for s in shapes]
        assert together == pytest.approx(alone)
    together = times(training_costs(shapes, Training(seq_len=300)), H100).per_model
    alone = [times(training_costs([s], Training(seq_len=300)), H100).per_model[0] for s in shapes]
    assert together == pytest.approx(alone)


def test_a_step_of_gpt2_computes_what_torch_counts():
    """Source: f-gpt2-train of tests/data/oracle.csv; torch's FlopCounterMode counts the same."""
    shape = find_model("gpt-2-124m").shape
    costs = training_costs([shape], Training(recipe="fp32", seq_len=1024, attention="explicit"))
    assert float(costs.flops.sum()) == pytest.approx(874_944_921_600, rel=1e-9)


def test_computing_again_costs_another_forward_of_the_blocks():
    plain = training_costs([LLAMA], Training(seq_len=512)).flops.sum()
    again = training_costs([LLAMA], Training(seq_len=512, recompute=True)).flops.sum()
    assert 1.25 < again / plain < 4 / 3 + 1e-9  # the head is not computed again


def test_a_prompt_asks_for_the_logits_of_its_last_token_only():
    one = serving_costs([LLAMA], "prefill", Serving(), 1)
    many = serving_costs([LLAMA], "prefill", Serving(), 100)
    head = list(one.ids).index("head")
    assert many.flops[head] == pytest.approx(one.flops[head])


@pytest.mark.parametrize(
    ("work", "tokens", "published_ms", "rel"),
    [("decode", 512, 6.73, 0.03), ("prefill", 512, 22.41, 0.035)],
)
def test_ideal_times_of_llama_7b_on_an_a100(
    work: str, tokens: int, published_ms: float, rel: float
):
    """Source: la-7b-dec and la-7b-pre of tests/data/oracle.csv (llm-analysis, ideal efficiency),
    which reads the embedding too, and asks every token of the prompt for its logits.
    """
    shape = find_model("llama-2-7b").shape
    costs = serving_costs([shape], work, Serving(), tokens)
    bandwidth_s, compute_s = costs.n_bytes.sum() / 2039e9, costs.flops.sum() / 312e12
    seconds = bandwidth_s if work == "decode" else compute_s
    assert seconds * 1e3 == pytest.approx(published_ms, rel=rel)


@pytest.mark.parametrize(
    ("device", "tokens_per_s"),
    [
        ("rtx-4090-24gb", 54.34),
        ("l40s-48gb", 43.42),
        ("a100-pcie-80gb", 54.56),
        ("a100-sxm-80gb", 53.18),
        ("h100-pcie-80gb", 67.79),
        ("apple-m1-max", 18.43),
    ],
)
def test_published_speeds_of_llama_3_8b_lie_in_the_band(device: str, tokens_per_s: float):
    """Source: xd-f16-* of tests/data/oracle.csv (llama.cpp, mean of 1,024 tokens). The shares were
    published of the whole file, which holds the embedding, 7 % of it, that no token reads.
    """
    found = find_device(device)
    rates = Rates(bandwidth_bytes_s=found.bandwidth_bytes_s, peak_flops=found.peak_flops["bf16"])
    seen = times(serving_costs([LLAMA], "decode", Serving(), 512), rates)
    ends = banded(seen, bands.share(found.kind, "decode", 2.0), bands.share(found.kind, "prefill"))
    assert ends is not None
    low, high = float(ends[0][0]), float(ends[1][0])
    assert seen.per_model[0] < 1 / tokens_per_s  # no faster than the floor
    assert low * 0.93 < 1 / tokens_per_s < high * 1.08


def test_a_claim_that_needs_more_than_the_bandwidth_is_below_the_floor():
    """Source: claim-5090 of tests/data/oracle.csv: 140 tokens a second of 8B in fp16."""
    found = find_device("rtx-5090-32gb")
    rates = Rates(bandwidth_bytes_s=found.bandwidth_bytes_s, peak_flops=None)
    floor = times(serving_costs([LLAMA], "decode", Serving(), 1), rates).per_model[0]
    assert floor > 1 / 140


def test_training_computes_and_a_single_token_waits():
    step = times(training_costs([LLAMA], Training(recipe="mixed16", batch_size=8)), H100)
    token = times(serving_costs([LLAMA], "decode", Serving(), 2048), H100)
    assert step.bound()[0] == COMPUTE
    assert token.bound()[0] == MEMORY
    assert step.intensity[0] > 100 * token.intensity[0]


def test_the_batch_at_which_products_turn_is_near_the_critical_one():
    """Peak × bytes ÷ (2 × bandwidth): 295 on an H100, for a short context."""

    def at(batch: int):
        return times(serving_costs([LLAMA], "decode", Serving(batch_size=batch), 16), H100)

    assert least_batch(at) in (256, 512)


def test_a_peak_that_is_unknown_gives_no_figure_that_arithmetic_would_bound():
    unknown = replace(H100, peak_flops=None)
    some = Share(low=0.5, high=0.8, source="a test")
    for costs in (
        serving_costs([LLAMA], "prefill", Serving(), 512),
        training_costs([LLAMA], Training()),
    ):
        found = times(costs, unknown)
        assert found.bound()[0] == UNKNOWN
        assert set(found.row_bounds()) == {UNKNOWN}
        assert banded(found, some, some) is None
    token = times(serving_costs([LLAMA], "decode", Serving(), 512), unknown)
    assert banded(token, some, None) is not None  # by its bytes
    assert unknown.ridge is None


def test_without_a_published_share_there_is_no_band():
    found = times(serving_costs([LLAMA], "decode", Serving(), 512), H100)
    assert banded(found, None, None) is None


def test_an_update_moves_what_the_step_model_of_this_machine_counts():
    """AdamW in fp32: 28 bytes a parameter, measured as purely bandwidth."""
    assert update_bytes(RECIPES["fp32"]) == 28
    assert "adamw" in OPTIMIZERS
    assert update_bytes(RECIPES["fp32"]) == measured_update_bytes(1, "adamw")


@pytest.mark.parametrize("weight_format", ["bf16", "fp8", "nf4", "int4-g32", "Q4_K_M", "Q8_0"])
@pytest.mark.parametrize("slug", ["llama-3.1-8b", "mixtral-8x7b", "gemma-2-9b", "smollm2-135m"])
def test_matrices_by_their_own_format_add_up_to_the_model(slug: str, weight_format: str):
    shape = models()[slug].shape
    each = bytes_per_weight(shape, weight_format)
    numbers = {"layers": 0, "experts": 0, "head": 0}
    embedding = 0
    for row in gguf_tensors(shape, "F16"):
        if row.name == ("token_embd.weight" if shape.tied else "output.weight"):
            numbers["head"] += row.n_weights
        elif row.name == "token_embd.weight":
            embedding = row.n_weights
        elif len(row.shape) > 1:
            numbers["experts" if "_exps" in row.name else "layers"] += row.n_weights
    whole = weights_bytes(shape, weight_format).n
    told = sum(each[name] * n for name, n in numbers.items())
    most = embedding * 2  # an embedding of its own is stored in 16 bits or fewer
    assert told <= whole * 1.002
    assert told + most >= whole * 0.995


@given(
    batch=st.integers(1, 512),
    more=st.integers(1, 512),
    tokens=st.integers(1, 100_000),
    work=st.sampled_from(["prefill", "decode"]),
)
def test_more_work_never_takes_less_time(batch: int, more: int, tokens: int, work: str):
    def seconds(b: int, t: int) -> float:
        costs = serving_costs([SMALL], work, Serving(batch_size=b), t)
        return float(times(costs, H100).per_model[0])

    assert seconds(batch, tokens) <= seconds(batch + more, tokens) * (1 + 1e-9)
    assert seconds(batch, tokens) <= seconds(batch, tokens + more) * (1 + 1e-9)


@given(factor=st.floats(1.1, 100), batch=st.integers(1, 300))
def test_a_device_that_is_so_many_times_as_fast_takes_so_many_times_less(factor: float, batch: int):
    costs = serving_costs([SMALL], "decode", Serving(batch_size=batch), 700)
    faster = Rates(
        bandwidth_bytes_s=H100.bandwidth_bytes_s * factor,
        peak_flops=(H100.peak_flops or 0) * factor,
    )
    assert times(costs, faster).per_model[0] * factor == pytest.approx(
        times(costs, H100).per_model[0]
    )


@given(low=st.floats(0.05, 0.9), width=st.floats(0.0, 0.1), batch=st.integers(1, 300))
def test_a_band_is_never_below_the_floor_and_in_order(low: float, width: float, batch: int):
    share = Share(low=low, high=min(1.0, low + width), source="a test")
    found = times(serving_costs([SMALL], "decode", Serving(batch_size=batch), 99), H100)
    ends = banded(found, share, share)
    assert ends is not None
    assert np.all(found.per_model <= ends[0] * (1 + 1e-12))
    assert np.all(ends[0] <= ends[1])


def test_a_mixture_reads_more_experts_the_more_tokens_there_are_and_never_more_than_all():
    """vLLM PR 54228: distinct experts, not top-k times the batch."""
    shape = find_model("mixtral-8x7b").shape
    reads = [
        float(serving_costs([shape], "decode", Serving(batch_size=b), 10).weights_bytes.sum())
        for b in (1, 2, 8, 64, 4096)
    ]
    assert reads == sorted(reads)
    assert reads[1] < 2 * reads[0]
    assert reads[-1] <= weights_bytes(shape, "bf16").n
    dense = [
        float(serving_costs([LLAMA], "decode", Serving(batch_size=b), 10).weights_bytes.sum())
        for b in (1, 64)
    ]
    assert dense[0] == dense[1]
    assert _dense(LLAMA) and not _dense(shape)


def test_formats_are_computed_in_what_their_kernels_multiply():
    assert [computes_in(f) for f in ("fp32", "bf16", "nf4", "Q4_K_M", "fp8")] == [
        "fp32",
        "bf16",
        "bf16",
        "bf16",
        "fp8",
    ]
    assert [trains_in(r) for r in ("fp32", "autocast", "mixed16", "mixed20", "fp8")] == [
        "fp32",
        "bf16",
        "bf16",
        "bf16",
        "fp8",
    ]
    with pytest.raises(ValueError, match="choose one of"):
        bytes_per_weight(SMALL, "fp3")
