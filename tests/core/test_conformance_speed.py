"""One published figure told in other words: whatever its source calls the inputs, one answer."""

import json

import pytest

from core.conformance import BROKEN, FAILED, HOLDS, PASSED, SHOWN, UNSUPPORTED, check


def outcome(quantity: str, expected: float, unit: str, tolerance: float | None, **inputs):
    return check(
        {
            "id": "row",
            "quantity": quantity,
            "inputs_json": json.dumps(inputs),
            "expected": repr(expected),
            "unit": unit,
            "rel_tol": "" if tolerance is None else repr(tolerance),
            "source": "",
        }
    )


PALM = {"L": 118, "H": 48, "Q": 256, "T": 2048, "chips": 6144, "tokens_per_s": 238_300.0}
MPT = {"params": 6658859008, "hidden": 4096, "layers": 32, "seq": 2048}
GPT3 = {"hidden": 12288, "layers": 96, "seq": 2048, "vocab": 51200, "gpus": 64}
LLAMA = {"hidden": 4096, "layers": 32, "seq": 512}


@pytest.mark.parametrize(
    ("quantity", "expected", "unit", "tolerance", "inputs"),
    [
        # Chowdhery et al. 2022
        ("mfu_percent", 46.2, "%", 2e-3, {**PALM, "N": 540.35e9, "peak": 275e12}),
        (
            "mfu_percent", 46.2, "%", 2e-3,
            {**PALM, "params_b": 540.35, "peak_tflops": 275, "formula": "6N + 12·L·H·Q·T"},
        ),
        ("mfu_percent", 45.7, "%", 2e-3, {**PALM, "N": 540.35e9, "peak": 275e12, "formula": "6N"}),
        # llm-foundry: one GPU's rate, all GPUs' rate, time of a step, a device by its name
        ("mfu_percent", 46.44, "%", 2e-3, {**MPT, "tokens_per_s_per_gpu": 10643, "gpu": "H100-80"}),
        (
            "mfu_percent", 46.44, "%", 2e-3,
            {**MPT, "tokens_per_s": 8 * 10643, "gpus": 8, "peak_tflops": 989.5},
        ),
        (
            "mfu_percent", 46.44, "%", 2e-3,
            {**MPT, "global_batch": 48, "step_ms": 48 * 2048 / (8 * 10643) * 1000, "gpus": 8,
             "peak": 989.5e12},
        ),
        # Korthikanti et al. 2022, table 5
        ("mfu_percent", 51.4, "%", 6e-3, {**GPT3, "batch": 64, "iter_s": 13.75, "peak": 312e12}),
        (
            "mfu_percent", 51.4, "%", 6e-3,
            {**GPT3, "global_batch": 64, "iter_s": 13.75, "gpu": "A100-80GB",
             "formula": "72 B L s h² (1 + s/6h + V/12hL)"},
        ),
        (
            "hfu_percent", 52.8, "%", 6e-3,
            {**GPT3, "global_batch": 64, "iter_s": 13.75, "peak": 312e12,
             "recompute": "selective"},
        ),
        (
            "hfu_percent", 52.8, "%", 6e-3,
            {**GPT3, "global_batch": 64, "iter_s": 13.75, "peak": 312e12,
             "formula": "72BLsh^2(1+s/3h+V/12hL)"},
        ),
        # nanoGPT's notebook
        (
            "mfu_percent", 37.14, "%", 1e-3,
            {"flops_per_step": 874944921600 * 100, "time_ms": 755, "peak_tflops": 312},
        ),
        ("train_flops", 874944921600, "FLOP", 0, {"model": "gpt2", "seq": 1024}),
        ("train_flops", 4 * 291648307200, "FLOP", 0,
         {"arch": "gpt2", "seq": 1024, "recompute": True}),
        ("forward_flops", 8 * 291648307200, "FLOP", 0, {"model": "gpt2", "seq": 1024, "batch": 8}),
        (
            "forward_flops", 291648307200 - 2 * 12 * 1024**2 * 768, "FLOP", 0,
            {"arch": "gpt2", "hidden": 768, "layers": 12, "vocab": 50257, "seq": 1024,
             "causal_discount": True},
        ),
        ("train_days_6ND", 3.46, "days", 2e-3,
         {"tokens": 3e11, "params": 124337664, "chips": 8, "mfu": 0.3, "peak_tflops": 312}),
        ("train_days", 143.927, "days", 1e-3,
         {"params_b": 70, "tokens_t": 15, "gpus": 1024, "mfu_percent": 50, "peak_tflops": 989.5}),
        # Llama 3: by its name, as parameters and as hours
        ("train_flops_total", 3.8e25, "FLOP", 2e-3, {"model": "llama-3.1-405b", "tokens": 15.6e12}),
        ("train_flops_total", 6 * 17e9 * 40e12, "FLOP", 1e-9,
         {"params": 109e9, "active_params": 17e9, "tokens": 40e12}),
        ("gpu_hours", 1022362, "h", 2e-3, {"D": 1.4e12, "tokens_per_s": 380 * 2048, "gpus": 2048}),
        ("gpu_hours", 192, "h", 1e-9, {"days": 1, "gpus": 8}),
        ("tCO2eq", 31.22, "t", 1e-3, {"gpu_hours": 184320, "power_kw": 0.4, "kg_per_kwh": 0.42346}),
        ("tCO2eq", 34.34, "t", 1e-3,
         {"gpu_hours": 184320, "power_w": 400, "kg_per_kwh": 0.42346, "pue": 1.1}),
        # karpathy/llm.c
        ("training_cost_usd", 672, "USD", 2e-3,
         {"steps": 32000, "sec_per_step": 2.7, "usd_per_node_hour": 28, "gpus": 8}),
        ("training_cost_usd", 672, "USD", 2e-3,
         {"steps": 32000, "sec_per_step": 2.7, "usd_per_gpu_hour": 3.5, "gpus": 8}),
        # gpt-fast's bytes of a token, by a model's name
        ("decode_bytes_per_token", 15.0257, "GB", 2e-3, {"model": "llama-3.1-8b", "bytes": 2}),
        ("decode_bytes_per_token", 7.4898, "GB", 3e-3, {"model": "llama-3.1-8b", "bits": 8}),
        # llm-analysis
        ("decode_latency", 6.73, "ms", 1e-2,
         {"weight_gb": 13.476831232, "kv_bytes": 268435456, "bandwidth_tb_s": 2.039}),
        ("decode_latency", 6.73 / 0.9, "ms", 1e-2,
         {"weight_bytes": 13476831232, "kv_bytes": 268435456, "gpu": "A100-80GB",
          "bandwidth_efficiency": 0.9}),
        ("decode_latency", 6.73, "ms", 3e-2,
         {"model": "llama-7b", "dtype": "fp16", "ctx": 512, "gpu": "A100-80GB"}),
        ("prefill_latency", 22.41, "ms", 2e-2,
         {**LLAMA, "params_nonembed": 6607343616, "peak": 312e12}),
        ("prefill_latency", 2 * 22.41 / 0.5, "ms", 2e-2,
         {**LLAMA, "params_nonembed": 6607343616, "gpu": "A100-80GB", "batch": 2, "mfu": 0.5}),
        ("prefill_latency", 22.41, "ms", 2e-2,
         {"model": "llama-7b", "seq": 512, "peak_tflops": 312}),
        # "How to Scale Your Model": a batch in which operations take longer than the weights
        ("decode_step_time", 21, "ms", 3e-2,
         {"param_bytes": 30e9, "params": 30e9, "kv_bytes_per_token": 100e3, "ctx": 8192,
          "batch": 256, "bandwidth": 16 * 8.1e11, "peak_flops": 16 * 1.97e14}),
        ("critical_batch", 120, "tokens", 5e-3,
         {"bandwidth_gb_s": 820, "peak_tflops": 197, "bytes_per_weight": 1}),
        ("ridge_flop_per_byte", 295.2, "FLOP/B", 2e-3, {"gpu": "H100-80GB"}),
        ("min_chips_for_weights", 2, "chips", 0,
         {"model": "llama-2-70b", "dtype": "bf16", "gpu": "H100-80GB"}),
        ("claim_required_bandwidth", 317, "GB/s", 5e-3, {"claimed_tok_s": 66.14, "model_gb": 4.8}),
        ("ttft", 3.0, "s", 2e-2, {"prefill_tok_s": 21.2, "prompt": 64}),
        ("distinct_experts", 8, "experts", 1e-9, {"experts": 256, "topk": 8, "tokens": 1}),
    ],
)  # fmt: skip
def test_a_figure_told_in_other_words(quantity, expected, unit, tolerance, inputs):
    found = outcome(quantity, expected, unit, tolerance, **inputs)
    assert found.status == PASSED, found.says
    off = outcome(quantity, 1.2 * expected, unit, tolerance, **inputs)
    assert off.status == FAILED


@pytest.mark.parametrize(
    ("quantity", "unit", "inputs"),
    [
        ("mfu_percent", "%", {**MPT, "tokens_per_s_per_gpu": 1}),
        ("mfu_percent", "%", {"tokens_per_s": 1, "peak": 1e12, "chips": 1}),
        ("hfu_percent", "%", {**PALM, "N": 540e9, "peak": 275e12}),
        ("train_days", "days", {"flops": 1e24, "chips": 8, "peak": 1e15}),
        ("gpu_hours", "h", {"steps": 10, "sec_per_step": 1}),
        ("training_cost_usd", "USD", {"gpu_hours": 10}),
        ("training_cost_usd", "USD", {"gpu_hours": 10, "usd_per_node_hour": 10}),
        ("decode_latency", "ms", {"weight_bytes": 1e9}),
        ("decode_latency", "ms", {"model": "llama-7b", "dtype": "fp3", "gpu": "A100"}),
        ("train_flops", "FLOP", {"model": "gpt2", "seq": 8, "recompute": "twice"}),
        ("ridge_flop_per_byte", "FLOP/B", {"gpu": "abacus"}),
        ("train_flops_total", "FLOP", {"model": "no-such-model", "tokens": 1e12}),
        ("ridge_flop_per_byte", "FLOP/B", {"peak": 1e12, "bandwidth": 0}),
    ],
)
def test_what_is_not_told_is_not_made_up(quantity, unit, inputs):
    assert outcome(quantity, 1.0, unit, 0.5, **inputs).status == UNSUPPORTED


BOUNDS = [
    # pytorch-labs/gpt-fast README
    ("decode_tok_s_measured", 97.92, 1e3, {"case": "mixtral-8x7b int8 1xA100"}),
    ("decode_tok_s_measured", 93.89, 1e3,
     {"model": "llama-3.1-8b", "dtype": "bf16", "gpu": "A100-80GB"}),
    # geerlingguy/sbc-reviews 21
    ("decode_tok_s_measured", 2.17, 10, {"model_GB": 4.92, "theoretical_bw_GBs": 17.1}),
    # vllm-project/vllm 3479: many sequences at once read the weights once
    ("decode_tok_s_measured", 1800, 1e5,
     {"model": "mistral-7b-v0.1", "dtype": "bf16", "gpu": "A100", "batch": 60}),
    ("decode_latency_measured", 22.0, 1.0, {"weight_bytes": 26e9, "bandwidth_gb_s": 1555}),
    ("prefill_latency_measured", 63.17, 1.0,
     {"params": 13e9, "seq": 512, "batch": 1, "peak_tflops": 312}),
    ("prefill_tok_s_measured", 6898.71, 1e6, {"model": "llama-3.1-8b", "gpu": "RTX4090"}),
    ("gpu_hours_published", 184320, 1, {"model": "llama-2-7b", "gpu": "A100-80GB"}),
    ("iteration_time_measured", 13.75, 0.1, {**GPT3, "global_batch": 64, "peak_tflops": 312}),
]  # fmt: skip


@pytest.mark.parametrize(("quantity", "measured", "impossible", "inputs"), BOUNDS)
def test_a_measurement_keeps_its_bound_and_an_impossible_one_breaks_it(
    quantity, measured, impossible, inputs
):
    assert outcome(quantity, measured, "", None, **inputs).status == HOLDS
    assert outcome(quantity, impossible, "", None, **inputs).status == BROKEN


def test_a_bound_that_a_row_does_not_give_is_shown_only():
    for quantity, inputs in (
        ("decode_tok_s_measured", {"model": "llama-2-7b", "ctx": 2048}),
        ("decode_tok_s_measured", {"draft": "a", "verifier": "b", "gpu": "A100"}),
        ("gpu_hours_published", {"model": "gpt2", "gpu": "A100-80GB"}),
        ("prefill_tok_s_measured", {"model": "llama-2-7b"}),
    ):
        assert outcome(quantity, 1.0, "", None, **inputs).status == SHOWN
