"""Headers of uploaded files: exact counts of whole ones, a sentence for broken ones."""

import json
import math
import struct
from pathlib import Path
from typing import Any

import gguf as package
import numpy as np
import pytest
import safetensors
import torch
from hypothesis import given
from hypothesis import strategies as st
from safetensors.torch import save

from core import pretrained
from core.architecture import Attention, Experts, Latent
from core.configs import Unreadable
from core.headers import SAFETENSORS, Header, read_header
from core.quantised import tensors
from tests.core.gguf_files import SHAPE, write_tiny


def packed(header: Any) -> bytes:
    raw = header if isinstance(header, bytes) else json.dumps(header).encode()
    return struct.pack("<Q", len(raw)) + raw


def entry(dtype: str, shape: list[Any], start: int, end: int) -> dict[str, Any]:
    return {"dtype": dtype, "shape": shape, "data_offsets": [start, end]}


@pytest.fixture(scope="module")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    return write_tiny(tmp_path_factory.mktemp("headers") / "tiny.gguf").read_bytes()


# -- whole files --------------------------------------------------------------------------------


def test_a_real_file_is_its_header_and_its_tensors_to_the_byte():
    path = pretrained.find("smollm2")
    if path is None:
        pytest.skip("smollm2 is not installed: make models")
    with path.open("rb") as file:
        header = read_header(file.read(2_000_000))
    assert header.file_bytes.in_unit("B") == path.stat().st_size
    assert header.n_params == 134_515_008  # transformers' count of its config
    assert header.imported and header.imported.quantisation == "Q4_1"
    assert header.imported.shape.kinds().popitem()[1] == 30
    assert not header.unknown and not header.notes


def test_a_gguf_file_gives_the_shape_it_was_written_with(tiny: bytes):
    header = read_header(tiny)
    assert header.imported
    shape = header.imported.shape
    ((count, layer),) = shape.layers
    assert (count, shape.d_model, shape.vocab_size) == (2, SHAPE.d_model, SHAPE.vocab_size)
    assert layer.mixer == Attention(n_head=4, n_kv_head=2, d_head=16)
    assert (shape.max_seq_len, shape.rope_base, shape.tied) == (128, 50_000.0, True)
    assert header.file_bytes.in_unit("B") == len(tiny)


def test_the_plain_text_of_metadata_is_short_and_printable(tiny: bytes):
    said = dict(read_header(tiny).metadata)
    assert said["general.architecture"] == "llama"
    assert said["tokenizer.ggml.tokens"].endswith("(260 values)")
    assert all(value.isprintable() and len(value) < 400 for value in said.values())


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float8_e4m3fn, torch.int8])
def test_a_safetensors_file_is_counted_as_the_package_reads_it(dtype: torch.dtype, tmp_path: Path):
    made = {"a.weight": torch.zeros(3, 4, dtype=dtype), "b": torch.zeros(7, dtype=torch.float64)}
    raw = save(made, metadata={"format": "pt"})
    header = read_header(raw)
    assert {t.name: (t.shape, t.n_bytes) for t in header.tensors} == {
        name: (tuple(t.shape), t.nbytes) for name, t in made.items()
    }
    assert header.file_bytes.in_unit("B") == len(raw)
    assert header.n_params == 19
    assert header.metadata == (("format", "pt"),)
    assert {t.dtype: t.n_numbers for t in header.by_type()}.get("F64") == 7
    (tmp_path / "a.safetensors").write_bytes(raw)
    with safetensors.safe_open(tmp_path / "a.safetensors", "pt") as file:
        assert set(file.keys()) == {t.name for t in header.tensors}


def test_every_dtype_that_the_library_reads_is_known():
    """What the library says of a name it does not know lists those it does."""
    with pytest.raises(safetensors.SafetensorError) as why:
        safetensors.deserialize(packed({"a": entry("F3", [1], 0, 1)}) + b"\0")
    theirs = {part.strip("` .") for part in str(why.value).split("expected one of")[1].split(",")}
    theirs = {name.split("`")[0] for name in theirs}
    assert len(theirs) > 15
    assert theirs == set(SAFETENSORS)


def test_a_dtype_that_is_unknown_is_named_and_not_guessed():
    header = read_header(packed({"a": entry("F9_X", [4], 0, 5)}))
    assert header.unknown == ("F9_X",)
    assert header.weights_bytes.in_unit("B") == 5  # the offsets tell it


def test_a_type_of_ggml_that_is_unknown_is_named_and_not_guessed():
    raw = b"GGUF" + struct.pack("<IQQ", 3, 1, 0)
    raw += struct.pack("<Q1sIQIQ", 1, b"a", 1, 64, 999, 0)
    header = read_header(raw)
    assert header.unknown == ("type 999",)
    assert header.tensors[0].n_bytes is None and header.n_params == 64


def test_computed_tables_are_no_parameters():
    raw = packed(
        {
            "h.0.attn.bias": entry("F32", [1, 1, 4, 4], 0, 64),
            "model.rotary_emb.inv_freq": entry("F32", [4], 64, 80),
            "w": entry("F32", [2], 80, 88),
        }
    )
    assert read_header(raw).n_params == 2


def test_sub_byte_types_are_whole_bytes():
    assert read_header(packed({"a": entry("F4", [3, 2], 0, 3)})).weights_bytes.in_unit("B") == 3
    with pytest.raises(Unreadable, match="holds 3 numbers of 4 bits"):
        read_header(packed({"a": entry("F4", [3], 0, 2)}))


# -- shapes -------------------------------------------------------------------------------------


def written(arch: str, metadata: dict[str, Any], found: dict[str, tuple[int, ...]]) -> Header:
    """The header of a file with these tensors, all in F32, by the package gguf."""
    fields = [(f"{arch}.{k}", v) for k, v in metadata.items()] + [("general.architecture", arch)]
    raw = b"GGUF" + struct.pack("<IQQ", 3, len(found), len(fields))
    for key, value in fields:
        raw += struct.pack("<Q", len(key)) + key.encode() + _value(value)
    at = 0
    for name, dims in found.items():
        raw += struct.pack("<Q", len(name)) + name.encode()
        raw += struct.pack(f"<I{len(dims)}QIQ", len(dims), *reversed(dims), 0, at)
        at += -(-math.prod(dims) * 4 // 32) * 32
    return read_header(raw)


def _value(value: Any) -> bytes:
    kinds = package.GGUFValueType
    if isinstance(value, str):
        return struct.pack("<IQ", kinds.STRING, len(value)) + value.encode()
    if isinstance(value, list) and isinstance(value[0], bool):
        return struct.pack(f"<IIQ{len(value)}?", kinds.ARRAY, kinds.BOOL, len(value), *value)
    if isinstance(value, list):
        return struct.pack(f"<IIQ{len(value)}I", kinds.ARRAY, kinds.UINT32, len(value), *value)
    if isinstance(value, float):
        return struct.pack("<If", kinds.FLOAT32, value)
    return struct.pack("<II", kinds.UINT32, value)


def dense(n_layer: int, d_q: int = 64, d_kv: tuple[int, ...] = ()) -> dict[str, tuple[int, ...]]:
    found: dict[str, tuple[int, ...]] = {
        "token_embd.weight": (100, 32),
        "output_norm.weight": (32,),
    }
    for i in range(n_layer):
        kv = d_kv[i] if d_kv else 32
        found |= {
            f"blk.{i}.attn_norm.weight": (32,), f"blk.{i}.ffn_norm.weight": (32,),
            f"blk.{i}.attn_q.weight": (d_q, 32), f"blk.{i}.attn_k.weight": (kv, 32),
            f"blk.{i}.attn_v.weight": (kv, 32), f"blk.{i}.attn_output.weight": (32, d_q),
            f"blk.{i}.ffn_gate.weight": (48, 32), f"blk.{i}.ffn_up.weight": (48, 32),
            f"blk.{i}.ffn_down.weight": (32, 48),
        }  # fmt: skip
    return found


HEADS = {"attention.head_count": 4, "attention.layer_norm_rms_epsilon": 1e-5, "context_length": 64}


def shape_in(header: Header) -> Any:
    assert header.imported, header.notes
    shape = header.imported.shape
    assert sum(math.prod(dims) for _, dims in tensors(shape)) == header.n_params
    return shape


@pytest.mark.parametrize("kv_heads", [2, [2, 1, 2]])
def test_heads_of_keys_are_read_as_a_number_or_a_list(kv_heads: object):
    metadata = HEADS | {"attention.head_count_kv": kv_heads}
    d_kv = tuple(16 * n for n in kv_heads) if isinstance(kv_heads, list) else ()
    shape = shape_in(written("llama", metadata, dense(3, d_kv=d_kv)))
    found = [layer.mixer.n_kv_head for n, layer in shape.layers for _ in range(n)]
    assert found == (kv_heads if isinstance(kv_heads, list) else [2, 2, 2])


@pytest.mark.parametrize(
    ("arch", "more", "windows"),
    [
        ("llama", {}, [0, 0, 0, 0]),
        ("mistral", {"attention.sliding_window": 9}, [9, 9, 9, 9]),
        ("gemma2", {"attention.sliding_window": 9}, [9, 0, 9, 0]),
        ("qwen2", {"attention.sliding_window": 9}, [0, 0, 0, 0]),
        (
            "any",
            {
                "attention.sliding_window": 9,
                "attention.sliding_window_pattern": [True, True, False, True],
            },
            [9, 9, 0, 9],
        ),
        (
            "any",
            {"attention.sliding_window": 9, "attention.sliding_window_pattern": 3},
            [9, 9, 0, 9],
        ),
    ],
)
def test_windows_are_read_layer_by_layer(arch: str, more: dict[str, Any], windows: list[int]):
    shape = shape_in(written(arch, HEADS | more, dense(4)))
    assert [layer.mixer.window for n, layer in shape.layers for _ in range(n)] == windows


def test_a_mixture_of_experts_is_read_with_its_dense_layers():
    found = dense(3)
    for i in (1, 2):
        for part in ("gate", "up", "down"):
            del found[f"blk.{i}.ffn_{part}.weight"]
        found |= {
            f"blk.{i}.ffn_gate_inp.weight": (8, 32),
            f"blk.{i}.exp_probs_b.bias": (8,),
            f"blk.{i}.ffn_gate_exps.weight": (8, 16, 32),
            f"blk.{i}.ffn_up_exps.weight": (8, 16, 32),
            f"blk.{i}.ffn_down_exps.weight": (8, 32, 16),
            f"blk.{i}.ffn_gate_shexp.weight": (20, 32),
            f"blk.{i}.ffn_up_shexp.weight": (20, 32),
            f"blk.{i}.ffn_down_shexp.weight": (32, 20),
        }
    shape = shape_in(written("deepseek2", HEADS | {"expert_used_count": 2}, found))
    (first, _), (n, second) = shape.layers
    assert (first, n) == (1, 2)
    assert second.mlp == Experts(n=8, top_k=2, d_ff=16, n_shared=1, d_shared=20, router_bias=True)


def test_latent_attention_is_read():
    found = {k: v for k, v in dense(1).items() if "attn_" not in k or "norm" in k}
    found |= {
        "blk.0.attn_q_a.weight": (24, 32), "blk.0.attn_q_a_norm.weight": (24,),
        "blk.0.attn_q_b.weight": (4 * 12, 24), "blk.0.attn_kv_a_mqa.weight": (16 + 4, 32),
        "blk.0.attn_kv_a_norm.weight": (16,), "blk.0.attn_k_b.weight": (4, 16, 8),
        "blk.0.attn_v_b.weight": (4, 10, 16), "blk.0.attn_output.weight": (32, 40),
    }  # fmt: skip
    ((_, layer),) = shape_in(written("deepseek2", HEADS, found)).layers
    assert layer.mixer == Latent(n_head=4, kv_rank=16, d_rope=4, d_nope=8, d_value=10, q_rank=24)


def test_a_part_of_a_model_has_no_shape_and_says_so():
    found = dense(3)
    part = {k: v for k, v in found.items() if not k.startswith("blk.0.")}
    header = written("llama", HEADS, part)
    assert header.imported is None and "2 layers of a model" in header.notes[0]


def test_what_is_not_described_is_counted_all_the_same():
    header = written("llama", HEADS, dense(1) | {"blk.0.something.weight": (5, 32)})
    shape = shape_in(header)
    assert shape.others == (("not described", 160),)
    assert header.imported and "160 parameters" in header.imported.assumed[0]


def test_a_checkpoint_whose_norms_tell_the_heads_has_a_shape():
    made = {"model.embed_tokens.weight": (50, 32), "model.norm.weight": (32,)}
    inner = {
        "self_attn.q_proj.weight": (64, 32), "self_attn.k_proj.weight": (32, 32),
        "self_attn.v_proj.weight": (32, 32), "self_attn.o_proj.weight": (32, 64),
        "self_attn.q_norm.weight": (16,), "self_attn.k_norm.weight": (16,),
        "mlp.gate_proj.weight": (48, 32), "mlp.up_proj.weight": (48, 32),
        "mlp.down_proj.weight": (32, 48), "input_layernorm.weight": (32,),
        "post_attention_layernorm.weight": (32,),
    }  # fmt: skip
    made |= {f"model.layers.{i}.{k}": v for i in range(2) for k, v in inner.items()}
    raw = save({k: torch.zeros(v, dtype=torch.bfloat16) for k, v in made.items()})
    header = read_header(raw, name="tiny qwen3")
    ((n, layer),) = shape_in(header).layers
    assert n == 2 and layer.mixer == Attention(n_head=4, n_kv_head=2, d_head=16, qk_norm=True)
    assert header.imported and header.imported.dtype == "bfloat16"
    plain = {k: v for k, v in made.items() if "_norm" not in k or "layernorm" in k}
    plain["model.norm.weight"] = (32,)
    told = read_header(save({k: torch.zeros(v) for k, v in plain.items()}))
    assert told.imported is None and "config.json" in told.notes[0]


# -- broken files -------------------------------------------------------------------------------

A = entry("F32", [2], 0, 8)
BROKEN = {
    "nothing": (b"", "bytes=0"),
    "another kind": (b"PK\3\4" + b"\0" * 60, "neither GGUF's nor safetensors'"),
    "a pickle": (b"\x80\x02}q\x00." + b"\0" * 60, "neither GGUF's nor safetensors'"),
    "a length of 2**63": (struct.pack("<Q", 2**63) + b"{}", "neither"),
    "not UTF-8": (packed(b'{"a\xff":1}'), "not UTF-8"),
    "half a character": (packed(b'{"\\ud800":{}}'), "not UTF-8"),
    "no JSON": (packed(b'{"a": }'), "no JSON"),
    "deep JSON": (packed(b'{"a":' + b"[" * 100_000 + b"]" * 100_000 + b"}"), "no JSON"),
    "deep objects": (packed(b'{"a":' * 50_000 + b"1" + b"}" * 50_000), "no JSON"),
    "a number of 100,000 digits": (packed(b'{"a":' + b"9" * 100_000 + b"}"), "no JSON"),
    "a name twice": (packed(b'{"a":{},"a":{}}'), "twice"),
    "no entry": (packed({"a": 3}), "a=3 is wrong: it has dtype"),
    "a dtype that is a number": (packed({"a": entry(5, [2], 0, 8)}), "dtype of a=5"),  # type: ignore[arg-type]
    "a negative size": (packed({"a": entry("F32", [-2], 0, 8)}), "shape of a"),
    "a size that is true": (packed({"a": entry("F32", [True], 0, 4)}), "shape of a"),
    "a size that is a float": (packed({"a": entry("F32", [2.0], 0, 8)}), "shape of a"),
    "overflow": (packed({"a": entry("F32", [2**40, 2**40], 0, 8)}), "at most 9223372036854775807"),
    "a shape of 100 sizes": (packed({"a": entry("F32", [1] * 100, 0, 4)}), "at most 64"),
    "offsets that fall": (packed({"a": entry("F32", [2], 8, 0)}), "ends after it begins"),
    "three offsets": (packed({"a": A | {"data_offsets": [0, 8, 9]}}), "two whole numbers"),
    "offsets of another size": (packed({"a": entry("F32", [2], 0, 9)}), "holds 2 numbers of 32"),
    "an overlap": (packed({"a": A, "b": entry("F32", [2], 4, 12)}), "is before 8, where a ends"),
    "a hole": (packed({"a": A, "b": entry("F32", [2], 16, 24)}), "8 bytes to no tensor"),
    "metadata that is a list": (packed({"__metadata__": []}), "maps names to texts"),
    "metadata of numbers": (packed({"__metadata__": {"a": 1}}), "maps names to texts"),
    "10**9 tensors": (b"GGUF" + struct.pack("<IQQ", 3, 10**9, 0), "1000000000 tensors"),
    "GGUF of version 9": (b"GGUF" + struct.pack("<IQQ", 9, 0, 0), "version 9"),
    "GGUF that overlaps": (
        b"GGUF" + struct.pack("<IQQ", 3, 2, 0)
        + struct.pack("<Q1sIQIQ", 1, b"a", 1, 64, 0, 0)
        + struct.pack("<Q1sIQIQ", 1, b"b", 1, 64, 0, 32),
        "is before 256, where a ends",
    ),
    "GGUF off its alignment": (
        b"GGUF" + struct.pack("<IQQ", 3, 1, 0) + struct.pack("<Q1sIQIQ", 1, b"a", 1, 64, 0, 5),
        "no multiple of the alignment 32",
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", BROKEN)
def test_a_broken_file_is_refused_with_what_would_help(name: str):
    data, said = BROKEN[name]
    with pytest.raises(Unreadable, match=said) as why:
        read_header(data)
    assert "choose" in str(why.value)
    assert len(str(why.value)) < 1000 and str(why.value).isprintable()


@pytest.mark.parametrize("kind", ["GGUF", "safetensors"])
def test_a_header_cut_off_anywhere_says_how_many_bytes_are_needed(kind: str, tiny: bytes):
    raw = tiny if kind == "GGUF" else save({"a": torch.zeros(9), "b": torch.zeros(2, 2)})
    end = read_header(raw).header_bytes
    for size in range(1, end - 32, 11):
        with pytest.raises(Unreadable, match=rf"bytes={size:,} end within .* give at least"):
            read_header(raw[:size])
    assert read_header(raw[:end]) == read_header(raw)


@given(st.binary(max_size=300))
def test_any_bytes_are_read_or_refused(raw: bytes):
    for data in (raw, b"GGUF" + raw, packed(b"{" + raw)):
        with_sentence(data)


@given(at=st.integers(0, 12_000), byte=st.integers(0, 255), other=st.integers(4, 60))
def test_a_changed_byte_of_gguf_is_read_or_refused(tiny: bytes, at: int, byte: int, other: int):
    raw = bytearray(tiny)
    raw[at], raw[other] = byte, byte
    with_sentence(bytes(raw))


@given(
    st.dictionaries(
        st.text(max_size=5),
        st.recursive(
            st.none() | st.booleans() | st.integers() | st.text(max_size=4) | st.floats(),
            lambda inner: (
                st.lists(inner, max_size=3)
                | st.dictionaries(
                    st.sampled_from(["dtype", "shape", "data_offsets", "__metadata__"]), inner
                )
            ),
            max_leaves=8,
        ),
        max_size=4,
    )
)
def test_any_json_is_read_or_refused(header: dict[str, Any]):
    with_sentence(packed(header))


@given(st.integers(0, 200), st.integers(0, 255))
def test_a_changed_byte_of_safetensors_is_read_or_refused(at: int, byte: int):
    raw = bytearray(save({"model.layers.0.mlp.up_proj.weight": torch.zeros(4, 2)}))
    raw[at % len(raw)] = byte
    with_sentence(bytes(raw))


def with_sentence(data: bytes) -> None:
    try:
        header = read_header(data)
    except Unreadable as why:
        assert len(str(why)) < 1000
        return
    assert header.n_params >= 0 and header.header_bytes <= len(data) + 2**20


def test_the_parsed_file_is_not_executed(tiny: bytes):
    """Numbers are never looked at: other weights give the same header."""
    header = read_header(tiny)
    other = tiny[: header.header_bytes] + bytes(np.flip(np.frombuffer(tiny, np.uint8)))
    assert read_header(other) == header
