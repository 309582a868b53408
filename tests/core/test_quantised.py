"""Bytes of formats and of quantised files, against published files and the package gguf."""

import csv
import math
from pathlib import Path

import gguf
import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from core import pretrained
from core.architecture import Attention, Experts, Latent, Layer, Mlp, ModelShape, Recurrent
from core.blocks import FORMATS, GGML, SCALED, bits_of, bits_per_weight, grouped
from core.ops import Prefill
from core.quantised import (
    CUSTOMS,
    FTYPE_BY_NUMBER,
    FTYPES,
    file_bytes,
    gguf_tensors,
    llama_like,
    mix_bits_per_weight,
    stays,
    tensors,
    weight_formats,
    weights_bytes,
)
from core.transformer import model_ops
from core.units import STORED

DATA = Path(__file__).parent.parent / "data"
PUBLISHED = list(csv.DictReader((DATA / "gguf_published.csv").read_text().splitlines()))
UNITS = {"B": 1, "GB": 10**9, "GiB": 2**30}

LLAMA_70B = llama_like(hidden=8192, layers=80, q_dim=8192, kv_dim=1024, ffn=28672, vocab=128256)


def model(mlp: Mlp | Experts, *, n_head: int = 32, n_kv: int = 8, n_layer: int = 32) -> ModelShape:
    attention = Attention(n_head=n_head, n_kv_head=n_kv, d_head=128)
    return ModelShape(
        vocab_size=32000,
        d_model=4096,
        layers=((n_layer, Layer(mixer=attention, mlp=mlp)),),
        max_seq_len=4096,
    )


def types(shape: ModelShape, ftype: str, imatrix: bool = True) -> dict[str, str]:
    return {row.name: row.type for row in gguf_tensors(shape, ftype, imatrix=imatrix)}


# -- formats ------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", gguf.GGML_QUANT_SIZES, ids=lambda kind: kind.name)
def test_a_block_is_as_large_as_the_package_gguf_says(kind: gguf.GGMLQuantizationType):
    weights, n_bytes = gguf.GGML_QUANT_SIZES[kind]
    if kind.name == "Q8_1":  # never in a file; its sum went from float32 to float16 in ggml
        n_bytes -= 4
    block = GGML[kind.name]
    assert (block.type_id, block.weights, block.n_bytes) == (kind.value, weights, n_bytes)


@pytest.mark.parametrize("name", ["Q4_0", "Q4_1", "Q5_0", "Q5_1", "Q8_0", "TQ1_0", "TQ2_0", "BF16"])
def test_what_the_package_gguf_quantises_has_as_many_bytes(name: str):
    values = np.random.default_rng(1).normal(size=(6, 512)).astype(np.float32)
    made = gguf.quantize(values, gguf.GGMLQuantizationType[name])
    assert GGML[name].bytes_of(6, 512) == made.nbytes


@pytest.mark.parametrize(
    ("name", "bits"),
    [  # FORMULAS of the field: block structs of ggml, OCP MX, QLoRA, DeepSeek's README_WEIGHTS
        ("Q2_K", 2.625), ("Q3_K", 3.4375), ("Q4_K", 4.5), ("Q5_K", 5.5), ("Q6_K", 6.5625),
        ("IQ4_XS", 4.25), ("IQ2_XXS", 2.0625), ("TQ1_0", 1.6875), ("MXFP4", 4.25), ("NVFP4", 4.5),
        ("MXFP8", 8.25), ("MXFP6", 6.25), ("NF4", 4.5), ("int4 g128", 4.15625),
        ("FP8 128x128", 8.001953125), ("int4 bf16 g32", 5.0),
    ],
)  # fmt: skip
def test_bits_a_weight_are_the_published_ones(name: str, bits: float):
    assert FORMATS[name].bits_per_weight == bits == bits_of(name)


@pytest.mark.parametrize(
    ("name", "described", "bits"),
    [
        ("MXFP8", {"block": 32, "scale_bits": 8}, 8.25),
        ("NF4", {"absmax": "fp32", "block": 64, "double_quant": False}, 4.5),
        ("NF4", {"absmax": "int8", "block": 64, "block2": 256, "double_quant": True}, 4.126953125),
        ("AWQ/GPTQ int4 g128", {"scale": "fp16", "zero": "int4"}, 4.15625),
        ("AWQ/GPTQ int4 g64", {"scale": "fp16", "zero": "int4"}, 4.3125),
        ("FP8 128x128 block", {"scale": "fp32"}, 8.001953125),
        ("int4 g32", {"scale": "bf16", "zero": "bf16"}, 5.0),
        ("int3 g128", {"scale": "fp16"}, 3.125),
    ],
)
def test_a_format_that_is_described_has_the_bits_of_its_parts(
    name: str, described: dict[str, object], bits: float
):
    assert bits_of(name, **described) == pytest.approx(bits, rel=1e-12)  # type: ignore[arg-type]


def test_formats_of_one_name_have_the_same_bits_a_weight():
    for name in SCALED.keys() & GGML.keys():
        assert SCALED[name].bits_per_weight == GGML[name].bits_per_weight
    for name in STORED.keys() & GGML.keys():
        assert STORED[name].bytes_of(7, 256) == GGML[name].bytes_of(7, 256)
    assert STORED["int4"].bytes_of(7, 256) == SCALED["int4 bf16 g32"].bytes_of(7, 256)


@pytest.mark.parametrize("name", [n for n in FORMATS if n not in ("FP8 channel", "int8 channel")])
def test_a_large_matrix_has_its_bits_a_weight(name: str):
    rows, columns = 16384, 16384
    bits = 8 * FORMATS[name].bytes_of(rows, columns) / (rows * columns)
    assert bits == pytest.approx(FORMATS[name].bits_per_weight, rel=1e-6)


def test_order_of_activity_costs_an_index_for_each_input():
    extra = grouped(4, 128, act_order=True).bytes_of(64, 512) - grouped(4, 128).bytes_of(64, 512)
    assert extra == 4 * 512


@pytest.mark.parametrize(
    ("call", "said"),
    [
        (lambda: bits_of("Q4_Z"), "format='Q4_Z' is unknown; choose"),
        (lambda: bits_of("int4", scale="fp16"), "has a scale and no group; give block"),
        (lambda: bits_per_weight(18, 0), "block_weights=0 is below 1"),
        (lambda: GGML["Q4_K"].bytes_of(2, 576), "columns=576 is no multiple of 256"),
        (lambda: gguf_tensors(LLAMA_70B, "Q4_K_X"), "ftype='Q4_K_X' is unknown; choose"),
        (lambda: weights_bytes(LLAMA_70B, "int5"), "format='int5' is unknown; choose"),
        (lambda: stays("int5"), "format='int5' is unknown; choose"),
    ],
)
def test_what_is_unknown_is_refused_with_a_remedy(call: object, said: str):
    with pytest.raises(ValueError, match=said):
        call()  # type: ignore[operator]


# -- mixes --------------------------------------------------------------------------------------


@pytest.mark.parametrize("row", PUBLISHED, ids=lambda row: f"{row['model']}-{row['ftype']}")
def test_a_published_file_has_the_size_that_the_rule_gives(row: dict[str, str]):
    widths = ("hidden", "layers", "q_dim", "kv_dim", "ffn", "vocab")
    shape = llama_like(**{name: int(row[name]) for name in widths}, tied=row["tied"] == "1")
    imatrix = row["imatrix"] == "1"
    if row["unit"] == "bit":
        found = mix_bits_per_weight(shape, row["ftype"], imatrix=imatrix)
    else:
        n = file_bytes(shape, row["ftype"], imatrix=imatrix).in_unit("B") + int(row["header_bytes"])
        found = n / UNITS[row["unit"]]
    assert found == pytest.approx(float(row["expected"]), rel=float(row["rel_tol"]))


def test_the_numbers_of_file_types_are_those_of_the_package_gguf():
    theirs = {
        m.value: m.name.removeprefix("MOSTLY_").removeprefix("ALL_") for m in gguf.LlamaFileType
    }
    del theirs[gguf.LlamaFileType.GUESSED.value]
    assert {n: FTYPE_BY_NUMBER[n] for n in theirs} == theirs


def test_every_tensor_of_a_real_file_has_the_type_and_bytes_that_the_rule_gives():
    path = pretrained.find("smollm2")
    if path is None:
        pytest.skip("smollm2 is not installed: make models")
    shape = llama_like(
        hidden=576, layers=30, q_dim=576, kv_dim=192, ffn=1536, vocab=49152, tied=True
    )
    theirs = {
        t.name: (t.tensor_type.name, tuple(int(n) for n in t.shape[::-1]), int(t.n_bytes))
        for t in gguf.GGUFReader(path).tensors
    }
    ours = {r.name: (r.type, r.shape, r.n_bytes) for r in gguf_tensors(shape, "Q4_1")}
    assert ours == theirs


def test_with_8_experts_keys_and_values_are_in_8_bits():
    found = types(model(Experts(n=8, top_k=2, d_ff=14336)), "Q4_K_M")
    # As in Mixtral's files: a log in github.com/ggml-org/llama.cpp/issues/4495.
    assert found["blk.31.attn_k.weight"] == found["blk.31.attn_v.weight"] == "Q8_0"
    assert found["blk.0.attn_output.weight"] == "Q5_K"
    assert found["blk.0.ffn_gate_inp.weight"] == found["blk.0.attn_norm.weight"] == "F32"
    assert (found["blk.0.ffn_down_exps.weight"], found["blk.4.ffn_down_exps.weight"]) == (
        "Q6_K",
        "Q4_K",
    )


def test_with_64_experts_they_are_not():
    found = types(model(Experts(n=64, top_k=2, d_ff=1024)), "Q4_K_S")
    assert found["blk.31.attn_k.weight"] == "Q4_K"


def test_a_tied_embedding_is_stored_as_a_head_would_be():
    wide = {"hidden": 2048, "layers": 16, "q_dim": 2048, "kv_dim": 512, "ffn": 8192, "vocab": 1024}
    assert types(llama_like(**wide, tied=True), "Q4_K_M")["token_embd.weight"] == "Q6_K"
    untied = types(llama_like(**wide), "Q4_K_M")
    assert (untied["token_embd.weight"], untied["output.weight"]) == ("Q4_K", "Q6_K")


def test_rows_that_are_no_multiple_of_256_fall_back():
    narrow = llama_like(hidden=576, layers=8, q_dim=576, kv_dim=192, ffn=1536, vocab=1024)
    found = types(narrow, "Q4_K_M")
    assert found["blk.2.attn_q.weight"] == "Q5_0"
    assert found["blk.0.attn_v.weight"] == found["output.weight"] == "Q8_0"
    assert found["blk.2.ffn_down.weight"] == "Q4_K"  # 1,536 numbers a row
    odd = llama_like(hidden=40, layers=8, q_dim=40, kv_dim=40, ffn=100, vocab=1024)
    assert types(odd, "Q4_K_M")["blk.2.attn_q.weight"] == "F16"


def test_experts_are_in_mxfp4_and_the_rest_in_8_bits():
    found = types(model(Experts(n=32, top_k=4, d_ff=2880)), "MXFP4_MOE")
    assert found["blk.0.ffn_up_exps.weight"] == "MXFP4"
    assert found["blk.0.attn_q.weight"] == found["token_embd.weight"] == "Q8_0"


def test_80_layers_with_grouped_heads_have_finer_values():
    grouped_heads = model(Mlp(d_ff=28672, gated=True), n_head=64, n_kv=8, n_layer=80)
    own_heads = model(Mlp(d_ff=28672, gated=True), n_head=64, n_kv=64, n_layer=80)
    assert types(grouped_heads, "Q4_K_M")["blk.10.attn_v.weight"] == "Q5_K"
    assert types(own_heads, "Q4_K_M")["blk.10.attn_v.weight"] == "Q4_K"


def test_an_importance_matrix_moves_types_at_the_two_ends():
    shape = llama_like(hidden=4096, layers=32, q_dim=4096, kv_dim=4096, ffn=11008, vocab=32000)
    without, given_one = types(shape, "IQ3_XXS", imatrix=False), types(shape, "IQ3_XXS")
    assert (without["blk.9.attn_v.weight"], given_one["blk.9.attn_v.weight"]) == (
        "IQ3_S",
        "IQ3_XXS",
    )
    assert types(shape, "Q4_0")["blk.0.ffn_down.weight"] == "Q4_1"
    assert types(shape, "Q4_0", imatrix=False)["blk.0.ffn_down.weight"] == "Q4_0"


def test_small_matrices_of_latent_attention_fall_back_by_their_own_rows():
    """As the published files of DeepSeek-V3 have them: keys' rows are 128 wide."""
    latent = Latent(n_head=16, kv_rank=512, d_rope=64, d_nope=128, d_value=128, q_rank=1536)
    layers = ((4, Layer(mixer=latent, mlp=Mlp(d_ff=4096, gated=True))),)
    shape = ModelShape(vocab_size=1000, d_model=2048, layers=layers, max_seq_len=1024)
    found = types(shape, "Q4_K_M")
    assert found["blk.1.attn_k_b.weight"] == "Q5_0"
    assert found["blk.1.attn_v_b.weight"] == found["blk.1.attn_q_a.weight"] == "Q4_K"


# -- every format -------------------------------------------------------------------------------


def test_fp8_keeps_embeddings_and_head_in_16_bits():
    """Llama-3.3-70B-FP8-dynamic: 67.72 GiB measured in vLLM (llm-d-planner,
    docs/empirical-vllm-memory-results.md).
    """
    assert weights_bytes(LLAMA_70B, "fp8").in_unit("GiB") == pytest.approx(67.72, rel=0.002)


def test_gpt_oss_120b_has_the_bytes_of_its_checkpoint():
    """65,248,815,744 by the headers of its files (alvarobartt/hf-mem, issue 60)."""
    attention = Attention(
        n_head=64, n_kv_head=8, d_head=64, qkv_bias=True, out_bias=True, sinks=True
    )
    experts = Experts(n=128, top_k=4, d_ff=2880, bias=True, router_bias=True)
    shape = ModelShape(
        vocab_size=201_088,
        d_model=2880,
        layers=((36, Layer(mixer=attention, mlp=experts)),),
        max_seq_len=131_072,
    )
    assert weights_bytes(shape, "mxfp4").in_unit("B") == 65_248_815_744


@pytest.mark.parametrize("name", weight_formats())
def test_every_format_has_bytes_and_says_what_stays(name: str):
    n = sum(math.prod(dims) for _, dims in tensors(LLAMA_70B))
    bits = 8 * weights_bytes(LLAMA_70B, name).in_unit("B") / n
    assert 1.1 < bits <= 32
    assert len(stays(name)) > 20
    assert name in CUSTOMS or name in FTYPES


def _heads(draw: st.DrawFn) -> Attention:
    n_kv = draw(st.integers(1, 4))
    return Attention(
        n_head=n_kv * draw(st.integers(1, 4)),
        n_kv_head=n_kv,
        d_head=draw(st.sampled_from([16, 64])),
        qkv_bias=draw(st.booleans()),
        out_bias=draw(st.booleans()),
        qk_norm=draw(st.booleans()),
        sinks=draw(st.booleans()),
    )


@st.composite
def shapes(draw: st.DrawFn) -> ModelShape:
    """Models of every kind of layer."""
    mixers = [
        _heads(draw),
        Latent(n_head=4, kv_rank=64, d_rope=16, d_nope=32, d_value=32, q_rank=96),
        Recurrent(
            name="mamba2", param_sizes=(256 * 64, 33), matrix_sizes=(256 * 64,), state_numbers=8
        ),
    ]
    mlps = [
        Mlp(d_ff=draw(st.integers(1, 9)) * 32, gated=draw(st.booleans()), bias=draw(st.booleans())),
        Experts(
            n=draw(st.sampled_from([4, 8])), top_k=2, d_ff=64, n_shared=draw(st.integers(0, 2))
        ),
    ]
    layer = st.builds(
        Layer,
        mixer=st.sampled_from(mixers),
        mlp=st.sampled_from(mlps),
        n_norms=st.sampled_from([1, 2, 4]),
    ).filter(lambda layer: layer.n_norms < 4 or not isinstance(layer.mixer, Recurrent))
    return ModelShape(
        vocab_size=draw(st.integers(1, 5000)),
        d_model=draw(st.sampled_from([32, 64, 96, 256])),
        layers=tuple(draw(st.lists(st.tuples(st.integers(1, 5), layer), min_size=1, max_size=3))),
        max_seq_len=128,
        tied=draw(st.booleans()),
        norm=draw(st.sampled_from(["rmsnorm", "layernorm"])),
        norm_bias=draw(st.booleans()),
        positions=draw(st.sampled_from(["rope", "learned"])),
        head_bias=draw(st.booleans()),
    )


@given(shapes(), st.sampled_from(FTYPES), st.booleans())
def test_a_file_has_every_number_once_in_a_type_whose_blocks_fill_its_rows(
    shape: ModelShape, ftype: str, imatrix: bool
):
    rows = gguf_tensors(shape, ftype, imatrix=imatrix)
    assert len({row.name for row in rows}) == len(rows)
    assert sum(row.n_weights for row in rows) * 2 == weights_bytes(shape, "bf16").in_unit("B")
    for row in rows:
        assert row.shape[-1] % GGML[row.type].weights == 0
        assert row.n_bytes * GGML[row.type].weights == row.n_weights * GGML[row.type].n_bytes


@given(shapes())
def test_the_tensors_are_the_parameters_of_the_op_table(shape: ModelShape):
    ops = model_ops(shape, Prefill(batch_size=1, seq_len=4))
    n = sum(op.repeat * op.n_params for op in ops)
    assert sum(math.prod(dims) for _, dims in tensors(shape)) == n


@given(shapes())
def test_finer_formats_are_never_smaller(shape: ModelShape):
    assume(sum(math.prod(dims) for _, dims in tensors(shape)) > 10_000)
    order = ["nf4-dq", "nf4", "fp8", "bf16", "fp32"]
    sizes = [weights_bytes(shape, name).in_unit("B") for name in order]
    assert sizes[0] <= sizes[1] and sizes[3] * 2 == sizes[4]
    whole = [weights_bytes(shape, name).in_unit("B") for name in ("F16", "F32")]
    assert whole[0] <= whole[1] == sizes[4]
