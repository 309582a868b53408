"""A published model small enough for a test, written by the package gguf."""

import hashlib
from pathlib import Path

import gguf
import numpy as np

from core.pretrained import Pretrained
from core.shapes import TransformerShape

SHAPE = TransformerShape(
    vocab_size=260,
    n_layer=2,
    d_model=64,
    n_head=4,
    n_kv_head=2,
    d_ff=96,
    max_seq_len=128,
    norm="rmsnorm",
    mlp="swiglu",
    positions="rope",
    rope_base=50_000.0,
    bias=False,
)
TEMPLATE = "{% for m in messages %}<s>{{ m['role'] }}:{{ m['content'] }}{% endfor %}<e>"


def write_tiny(
    path: Path, shape: TransformerShape = SHAPE, changed: dict[str, object] | None = None
) -> Path:
    """A Llama of this shape with weights drawn at random; `changed` metadata, None for left out."""
    writer = gguf.GGUFWriter(path, "llama")
    for key, value in (_metadata(shape) | (changed or {})).items():
        if value is not None:
            writer.add_key_value(key, value, *_kind(value))
    random = np.random.default_rng(5)
    for name, rows, columns, kind in _matrices(shape):
        values = random.normal(0, 0.3, (rows, columns)).astype(np.float32)
        writer.add_tensor(
            f"{name}.weight",
            gguf.quantize(values[0] if kind == "F32" else values, gguf.GGMLQuantizationType[kind]),
            raw_dtype=gguf.GGMLQuantizationType[kind],
        )
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


def tiny(path: Path) -> Pretrained:
    """What `PRETRAINED` would hold of this file."""
    return Pretrained(
        name="tiny",
        title="Tiny",
        package="bothways-tiny",
        version="1.0",
        suffix=".gguf",
        n_bytes=path.stat().st_size,
        wheel_bytes=1000,
        sha256=hashlib.sha256(path.read_bytes()).hexdigest(),
        license="none",
        source="drawn at random",
    )


def _metadata(shape: TransformerShape) -> dict[str, object]:
    alphabet = [chr(b) for b in (*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100))]
    tokens = ["<s>", "<e>", *alphabet, *(chr(256 + i) for i in range(256 - len(alphabet))), "ab"]
    tokens += [f"unused{i}" for i in range(shape.vocab_size - len(tokens))]
    return {
        "llama.block_count": shape.n_layer,
        "llama.context_length": shape.max_seq_len,
        "llama.embedding_length": shape.d_model,
        "llama.feed_forward_length": shape.d_ff,
        "llama.attention.head_count": shape.n_head,
        "llama.attention.head_count_kv": shape.n_kv_head,
        "llama.rope.freq_base": shape.rope_base,
        "llama.attention.layer_norm_rms_epsilon": 1e-5,
        "tokenizer.ggml.model": "gpt2",
        "tokenizer.ggml.pre": "smollm",
        "tokenizer.ggml.tokens": tokens,
        "tokenizer.ggml.token_type": [3, 3, *[1] * (shape.vocab_size - 2)],
        "tokenizer.ggml.merges": ["a b"],
        "tokenizer.ggml.eos_token_id": 1,
        "tokenizer.chat_template": TEMPLATE,
        "a.flag": True,
        "a.list": [-1, 2],
        "a.float": 0.5,
    }


def _kind(value: object) -> tuple[gguf.GGUFValueType, gguf.GGUFValueType | None]:
    kinds = gguf.GGUFValueType
    if isinstance(value, list):
        return kinds.ARRAY, kinds.STRING if isinstance(value[0], str) else kinds.INT32
    if isinstance(value, bool):
        return kinds.BOOL, None
    if isinstance(value, str):
        return kinds.STRING, None
    return (kinds.UINT32 if isinstance(value, int) else kinds.FLOAT32), None


def _matrices(shape: TransformerShape) -> list[tuple[str, int, int, str]]:
    """(name, rows, columns, type)."""
    d, ff = shape.d_model, shape.d_ff
    found = [("token_embd", shape.vocab_size, d, "Q8_0"), ("output_norm", 1, d, "F32")]
    for i in range(shape.n_layer):
        b = f"blk.{i}"
        found += [(f"{b}.attn_norm", 1, d, "F32"), (f"{b}.ffn_norm", 1, d, "F32")]
        found += [(f"{b}.attn_q", shape.d_q, d, "Q4_1"), (f"{b}.attn_k", shape.d_kv, d, "Q4_1")]
        found += [(f"{b}.attn_v", shape.d_kv, d, "Q4_1"), (f"{b}.attn_output", d, d, "Q4_1")]
        found += [(f"{b}.ffn_gate", ff, d, "Q4_1"), (f"{b}.ffn_up", ff, d, "Q4_1")]
        found.append((f"{b}.ffn_down", d, ff, "Q4_1"))
    if not shape.tied:
        found.append(("output", shape.vocab_size, d, "Q8_0"))
    return found
