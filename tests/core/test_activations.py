"""Published closed forms of activations: identities between the modes, units, what goes wrong."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from core.activations import (
    LOGITS_PEAK_BYTES,
    MODES,
    copies_bytes,
    first_stage_bytes,
    gpt_saved_elements,
    layer_bytes,
    llama_saved_elements,
    logits_bytes,
    loss_saved_bytes,
    share_of_baseline,
    stage_layers,
)
from core.sizes import Bytes

sizes = {
    "seq": st.sampled_from([128, 2048, 8192]),
    "batch": st.integers(1, 16),
    "hidden": st.sampled_from([1024, 6144, 12288]),
    "heads": st.sampled_from([16, 64, 96]),
}


@given(**sizes)
def test_on_one_device_splitting_changes_nothing(**how):
    whole = layer_bytes("none", **how)
    for mode in ("tp_no_sp_no_recompute", "sp"):
        assert layer_bytes(mode, **how, tensor_parallel=1).n == pytest.approx(whole.n)


@given(**sizes, t=st.sampled_from([1, 2, 4, 8]))
def test_modes_are_ordered(t, **how):
    of = {mode: layer_bytes(mode, **how, tensor_parallel=t) for mode in MODES}
    assert of["full"] < of["sp+selective"] <= of["selective"] <= of["tp_no_sp_no_recompute"]
    assert of["sp"] <= of["tp_no_sp_no_recompute"] <= of["none"]


@given(**sizes)
def test_sequence_parallelism_splits_everything(**how):
    one, eight = (layer_bytes("sp", **how, tensor_parallel=t) for t in (1, 8))
    assert one.n == pytest.approx(8 * eight.n)


def test_34_s_b_h_is_bytes_already():
    # LLM-Tools, TrenTorch: multiplied by the bytes of a number once more.
    how = {"seq": 2048, "batch": 1, "hidden": 4096, "heads": 32}
    found = layer_bytes("sp+selective", **how)
    assert isinstance(found, Bytes)
    assert found.n == 34 * 2048 * 4096
    with pytest.raises(TypeError):
        found * Bytes(2)


def test_a_batch_scales_and_scores_grow_with_the_square_of_the_text():
    # furiousteabag: n log n.
    how = {"hidden": 4096, "heads": 32}
    one = layer_bytes("none", seq=1024, batch=1, **how)
    assert layer_bytes("none", seq=1024, batch=6, **how).n == pytest.approx(6 * one.n)
    no_scores = [layer_bytes("sp+selective", seq=s, batch=1, **how).n for s in (1024, 2048)]
    scores = [
        layer_bytes("none", seq=s, batch=1, **how).n - n
        for s, n in zip((1024, 2048), no_scores, strict=True)
    ]
    assert no_scores[1] == 2 * no_scores[0]
    assert scores[1] == pytest.approx(4 * scores[0])


def test_selective_recompute_is_flash_attention_and_saves_once():
    how = {"seq": 4096, "batch": 1, "hidden": 4096, "heads": 32, "tensor_parallel": 8}
    assert layer_bytes("selective", **how).n == 4096 * 4096 * (10 + 24 / 8)


def test_the_first_stage_holds_what_its_schedule_says():
    assert stage_layers(96, stages=1) == 96
    assert stage_layers(96, stages=8) == 96  # 1F1B: eight micro-batches of twelve layers
    assert stage_layers(96, stages=8, interleave=3) == pytest.approx(96 * (1 + 7 / 24))
    how = {"seq": 2048, "batch": 1, "hidden": 12288, "heads": 96}
    one = layer_bytes("sp", **how, tensor_parallel=8)
    first = first_stage_bytes("sp", **how, layers=96, tensor_parallel=8, stages=8, interleave=3)
    assert first.n == pytest.approx(one.n * 96 * (1 + 7 / 24))


@given(st.sampled_from([4, 8, 16]), st.integers(1, 64))
def test_few_micro_batches_fill_few_places(stages, micro_batches):
    held = stage_layers(96, stages=stages, micro_batches=micro_batches)
    assert held == pytest.approx(96 / stages * min(stages, micro_batches))
    assert stage_layers(96, stages=stages, interleave=1) == stage_layers(96, stages=stages)


@given(st.sampled_from([2, 4, 8]), st.integers(2, 12))
def test_interleaving_holds_more_and_less_of_it_with_more_parts(stages, parts):
    plain, few, many = (
        stage_layers(96, stages=stages, interleave=m) for m in (None, parts, parts + 1)
    )
    assert plain < many < few < 2 * plain


def test_a_checkpoint_that_is_split_is_a_part_of_one_that_is_not():
    how = {"seq": 2048, "batch": 1, "hidden": 4096, "heads": 32, "tensor_parallel": 8}
    assert layer_bytes("full", **how).n == 2 * 2048 * 4096
    assert layer_bytes("sp+full", **how) * 8 == layer_bytes("full", **how)


def test_shares_are_of_the_same_layer():
    share = share_of_baseline(
        "tp_no_sp_no_recompute", seq=2048, hidden=6144, heads=64, tensor_parallel=8
    )
    assert share == 1


def test_one_constant_does_not_fit_all_models():
    gpt = gpt_saved_elements(dropout=0, explicit=False, seq=256, heads=8, hidden=512)
    llama = llama_saved_elements(hidden=4096, q_dim=4096, kv_dim=1024, ffn=14336)
    qwen = llama_saved_elements(hidden=2560, q_dim=4096, kv_dim=1024, ffn=9728, qk_norm=True)
    assert 2 * gpt == 32 < 34 < 2 * llama < 2 * qwen


def test_logits_are_often_larger_than_the_layers():
    logits = logits_bytes(seq=8192, batch=1, vocab=128_256)
    assert logits.in_unit("GB") == pytest.approx(4.2, rel=0.01)


def test_an_unknown_mode_names_the_modes():
    with pytest.raises(ValueError, match="selective"):
        layer_bytes("some", seq=1, batch=1, hidden=1, heads=1)


@pytest.mark.parametrize(
    ("attention", "dropout", "bytes_", "found"),
    [  # transformers 5.24, GPT2Block, torch 2.13 on a CPU, saved_tensors_hooks; a s / h of 4, 8, 2
        ("eager", 0, 2, (64.02, 72.02, 60.02)),
        ("eager", 0.1, 2, (84.02, 108.02, 72.02)),
        ("sdpa", 0, 2, (56.08, 56.08, 56.05)),
        ("sdpa", 0.1, 2, (114.02, 162.02, 90.02)),
        ("sdpa", 0.1, 4, (168.03, 216.03, 144.03)),
    ],
)
def test_a_gpt_whose_gelu_is_written_out(attention, dropout, bytes_, found):
    # With dropout fused attention is computed by hand on a CPU, 16-bit scores in fp32.
    by_hand = attention == "eager" or dropout > 0
    sizes_of = ((512, 8, 256), (512, 8, 512), (512, 4, 256))
    for (hidden, heads, seq), value in zip(sizes_of, found, strict=True):
        numbers = gpt_saved_elements(
            dropout=dropout,
            explicit=by_hand,
            seq=seq,
            heads=heads,
            hidden=hidden,
            gelu_steps=True,
            widened=attention == "sdpa" and dropout > 0 and bytes_ == 2,
        )
        assert numbers * bytes_ == pytest.approx(value, rel=2e-3)


def test_logits_at_their_peak_are_a_line_of_their_own():
    # Soup 327: a line for logits was missing. bf16 2, fp32 4, and a gradient of each.
    assert LOGITS_PEAK_BYTES == 2 + 4 + 4 + 2
    assert loss_saved_bytes() == 4 and loss_saved_bytes(upcast=False) == 2
    logits = logits_bytes(seq=8192, batch=1, vocab=128_256, dtype_bytes=LOGITS_PEAK_BYTES)
    layer = layer_bytes("sp+selective", seq=8192, batch=1, hidden=4096, heads=32)
    assert logits > layer * 11


@given(st.integers(1, 8), st.integers(1, 64))
def test_copies_are_linear_in_everything(batch, layers):
    one = copies_bytes(seq=128, batch=1, hidden=64, dtype_bytes=2)
    assert one.n == 128 * 64 * 2
    assert copies_bytes(seq=128, batch=batch, hidden=64, dtype_bytes=2, layers=layers) == one * (
        batch * layers
    )
