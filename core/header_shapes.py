"""The shape of a model from the names and shapes of its tensors.

Tensors tell every width; how many heads share a width, and which layers see a window, only the
metadata of a GGUF file tells. What is found is counted again: a shape is given if its parameters
are those of the file.
"""

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from core.architecture import Attention, Experts, Latent, Layer, Mlp, ModelShape
from core.catalog import runs
from core.quantised import tensors

Dims = tuple[int, ...]
Found = Mapping[str, Dims]

# Layers of a period, the last of which sees all: GGUF tells the window, not who has it.
# Source: llama.cpp, src/llama-model.cpp, set_swa_pattern. Others have their window everywhere.
_PERIODS = {
    "gemma2": 2, "gpt-oss": 2, "cohere2": 4, "exaone4": 4, "olmo2": 4, "gemma3n": 5, "gemma3": 6,
}  # fmt: skip
_NO_WINDOW = ("qwen2", "qwen3")  # their configs name one that no layer has
_NORMS = re.compile(r"^(attn|ffn|post_attention|post_ffw|attn_post|ffn_post)_norm(_2|_exps)?$")
_BLOCK = re.compile(r"^blk\.(\d{1,6})\.(.+)$")


class NoShape(ValueError):
    """The file does not tell: what is missing."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Facts:
    """What tensors do not tell of one layer."""

    n_head: int  # 0: unknown
    d_head: int  # 0: unknown
    window: int
    chunked: bool
    top_k: int


# -- GGUF ---------------------------------------------------------------------------------------


def gguf_shape(metadata: Mapping[str, Any], found: Found) -> tuple[ModelShape, tuple[str, ...]]:
    """Shape, and what was assumed; `found` has the parameters' shapes. Raises: NoShape."""
    arch = metadata.get("general.architecture")
    if not isinstance(arch, str):
        raise NoShape("general.architecture is missing")
    said = _Said(metadata, arch)
    blocks = _blocks(found)
    assumed: list[str] = []
    windows = said.windows(len(blocks), assumed)
    facts = [
        _Facts(
            n_head=said.of_layer("attention.head_count", i),
            d_head=said.of_layer("attention.key_length", i),
            window=windows[i],
            chunked=arch == "llama4",
            top_k=said.of_layer("expert_used_count", i),
        )
        for i in range(len(blocks))
    ]
    return _shape(
        found,
        blocks,
        facts,
        assumed,
        max_seq_len=said.of_layer("context_length", 0),
        rope_base=said.number("rope.freq_base") or 10_000.0,
        norm="rmsnorm" if said.number("attention.layer_norm_rms_epsilon") else "layernorm",
    )


class _Said:
    """A GGUF file's metadata under the prefix of its architecture."""

    def __init__(self, metadata: Mapping[str, Any], arch: str) -> None:
        self.metadata, self.arch = metadata, arch

    def get(self, key: str) -> Any:
        return self.metadata.get(f"{self.arch}.{key}")

    def number(self, key: str) -> float:
        """0 where it is missing or no number."""
        value = self.get(key)
        fine = isinstance(value, int | float) and not isinstance(value, bool)
        return value if fine and math.isfinite(value) else 0

    def of_layer(self, key: str, i: int) -> int:
        """Of a value that stands once, or in a list with one for each layer; 0: not told."""
        value = self.get(key)
        if isinstance(value, list):
            value = value[i] if i < len(value) else 0
        fine = isinstance(value, int) and not isinstance(value, bool)
        return value if fine and 0 < value < 2**31 else 0

    def windows(self, n_layer: int, assumed: list[str]) -> list[int]:
        """Of each layer; 0 for those that see all."""
        window = self.of_layer("attention.sliding_window", 0)
        chunk = self.of_layer("attention.chunk_size", 0)
        if (not window or self.arch in _NO_WINDOW) and not chunk:
            return [0] * n_layer
        pattern = self.get("attention.sliding_window_pattern")
        if isinstance(pattern, list):
            return [window if i < len(pattern) and pattern[i] else 0 for i in range(n_layer)]
        period = self.of_layer("attention.sliding_window_pattern", 0) or _PERIODS.get(self.arch, 0)
        if chunk and not window:
            window, period = chunk, period or 4
        if not period:
            assumed.append(f"every layer sees {window} tokens: the file tells no pattern")
            return [window] * n_layer
        assumed.append(f"one layer of {period} sees all, the others {window} tokens")
        return [0 if i % period == period - 1 else window for i in range(n_layer)]


# -- safetensors --------------------------------------------------------------------------------

# Names of transformers' checkpoints -> those of GGUF.
_OUTER = (
    (r"(.*\.)?(embed_tokens|wte|embed_in)\.weight", "token_embd.weight"),
    (r"(.*\.)?wpe\.weight", "position_embd.weight"),
    (r"(.*\.)?(lm_head|embed_out)\.(weight|bias)", r"output.\3"),
    (r"((.*\.)?model\.|transformer\.)?(norm|ln_f|final_layer_norm)\.(weight|bias)",
     r"output_norm.\4"),
)  # fmt: skip
_INNER = (
    (r"self_attn\.([qkv])_proj\.(weight|bias)", r"attn_\1.\2"),
    (r"self_attn\.o_proj\.(weight|bias)", r"attn_output.\1"),
    (r"self_attn\.([qk])_norm\.weight", r"attn_\1_norm.weight"),
    (r"self_attn\.sinks", "attn_sinks.weight"),
    (r"input_layernorm\.(weight|bias)", r"attn_norm.\1"),
    (r"post_attention_layernorm\.(weight|bias)", r"ffn_norm.\1"),
    (r"pre_feedforward_layernorm\.(weight|bias)", r"post_attention_norm.\1"),
    (r"post_feedforward_layernorm\.(weight|bias)", r"post_ffw_norm.\1"),
    (r"mlp\.(gate|up|down)_proj\.(weight|bias)", r"ffn_\1.\2"),
)  # fmt: skip
_LAYER = re.compile(r"^(?:.*\.)?(?:layers|h)\.(\d{1,6})\.(.+)$")


def named_shape(found: Found) -> tuple[ModelShape, tuple[str, ...]]:
    """Of a checkpoint of transformers whose layers are dense. Raises: NoShape."""
    renamed, heads = {}, 0
    for name, dims in found.items():
        heads = dims[0] if name.endswith("q_norm.weight") and len(dims) == 1 else heads
        renamed[_renamed(name)] = dims
    if not heads:
        raise NoShape("tensors do not tell how many heads there are; give its config.json")
    blocks = _blocks(renamed)
    facts = _Facts(n_head=0, d_head=heads, window=0, chunked=False, top_k=0)
    assumed = ["context of 1 token, no window: a config.json tells them"]
    return _shape(
        renamed, blocks, [facts] * len(blocks), assumed, max_seq_len=1, rope_base=10_000.0,
        norm="rmsnorm",
    )  # fmt: skip


def _renamed(name: str) -> str:
    layer = _LAYER.match(name)
    for pattern, new in _INNER if layer else _OUTER:
        match = re.fullmatch(pattern, layer[2] if layer else name)
        if match:
            return f"blk.{int(layer[1])}.{match.expand(new)}" if layer else match.expand(new)
    return name


# -- both ---------------------------------------------------------------------------------------


def _blocks(found: Found) -> list[dict[str, Dims]]:
    """The tensors of each layer. Raises: NoShape unless all layers are there."""
    layers: dict[int, dict[str, Dims]] = {}
    for name, dims in found.items():
        if match := _BLOCK.match(name):
            layers.setdefault(int(match[1]), {})[match[2]] = dims
    if not layers:
        raise NoShape("no tensor is called as those of layers are")
    if sorted(layers) != list(range(len(layers))):
        raise NoShape(f"it has {len(layers)} layers of a model, not all of it")
    return [layers[i] for i in range(len(layers))]


def _shape(
    found: Found,
    blocks: Sequence[Mapping[str, Dims]],
    facts: Sequence[_Facts],
    assumed: list[str],
    *,
    max_seq_len: int,
    rope_base: float,
    norm: str,
) -> tuple[ModelShape, tuple[str, ...]]:
    vocab, d = _dims(found, "token_embd.weight", 2)
    if not max_seq_len:
        assumed.append("context of 1 token: the file does not tell it")
    try:
        layers = [_layer(block, d, fact) for block, fact in zip(blocks, facts, strict=True)]
        shape = ModelShape(
            vocab_size=vocab,
            d_model=d,
            layers=runs(layers),
            max_seq_len=_learned(found) or max_seq_len or 1,
            norm=norm,
            norm_bias="output_norm.bias" in found,
            positions="learned" if "position_embd.weight" in found else "rope",
            tied="output.weight" not in found,
            head_bias="output.bias" in found,
            final_norm="output_norm.weight" in found,
            rope_base=rope_base,
        )
        left = sum(map(math.prod, found.values())) - _counted(shape)
    except (ValueError, ZeroDivisionError, IndexError) as why:
        raise NoShape(str(why)) from None
    if left < 0:
        raise NoShape(f"a model of its widths has {-left:,} parameters more than the file")
    if left:
        assumed.append(f"{left:,} parameters stand outside of what is described")
        shape = replace(shape, others=(("not described", left),))
    return shape, tuple(assumed)


def _learned(found: Found) -> int:
    return found.get("position_embd.weight", (0,))[0]


def _counted(shape: ModelShape) -> int:
    return sum(math.prod(dims) for _, dims in tensors(shape))


def _dims(found: Mapping[str, Dims], name: str, rank: int) -> Dims:
    dims = found.get(name, ())
    if len(dims) != rank or min(dims, default=0) < 1:
        raise NoShape(f"{name} has the shape {dims}, not one of rank {rank}")
    return dims


def _layer(block: Mapping[str, Dims], d: int, facts: _Facts) -> Layer:
    if "attn_kv_a_norm.weight" in block:
        mixer = _latent(block, facts)
    elif "attn_output.weight" in block:
        mixer = _attention(block, facts)
    else:
        raise NoShape(f"a layer mixes tokens by {', '.join(sorted(block))[:80]}, not by attention")
    mlp = _experts(block, facts) if "ffn_gate_inp.weight" in block else _mlp(block)
    norms = [name for name in block if _NORMS.match(name.removesuffix(".weight"))]
    return Layer(mixer=mixer, mlp=mlp, n_norms=len(norms))


def _latent(block: Mapping[str, Dims], facts: _Facts) -> Latent:
    (kv_rank,) = _dims(block, "attn_kv_a_norm.weight", 1)
    d_rope = _dims(block, "attn_kv_a_mqa.weight", 2)[0] - kv_rank
    q_rank = block["attn_q_a.weight"][0] if "attn_q_a.weight" in block else 0
    d_q = _dims(block, "attn_q_b.weight" if q_rank else "attn_q.weight", 2)[0]
    n = facts.n_head
    if not n or d_q % n:
        raise NoShape(f"{d_q} query channels are no multiple of {n} heads")
    d_value = _dims(block, "attn_output.weight", 2)[1] // n
    return Latent(
        n_head=n, kv_rank=kv_rank, d_rope=d_rope, d_nope=d_q // n - d_rope, d_value=d_value,
        q_rank=q_rank,
    )  # fmt: skip


def _attention(block: Mapping[str, Dims], facts: _Facts) -> Attention:
    d_q = _dims(block, "attn_output.weight", 2)[1]
    n_head = facts.n_head or (d_q // facts.d_head if facts.d_head else 0)
    if not n_head or d_q % n_head:
        raise NoShape(f"{d_q} query channels are no multiple of {n_head} heads")
    d_head = d_q // n_head
    fused = "attn_qkv.weight" in block
    rows = _dims(block, "attn_qkv.weight" if fused else "attn_q.weight", 2)[0]
    if fused:
        d_kv = (rows - d_q) // 2
    elif rows != d_q:
        raise NoShape(f"{rows} query channels leave {d_q}: a gate that is not described here")
    else:
        d_kv = _dims(block, "attn_k.weight", 2)[0]
    if d_kv % d_head or not d_kv:
        raise NoShape(f"{d_kv} key channels are no multiple of {d_head}, a head's width")
    return Attention(
        n_head=n_head,
        n_kv_head=d_kv // d_head,
        d_head=d_head,
        window=facts.window,
        chunked=facts.chunked and bool(facts.window),
        qkv_bias="attn_q.bias" in block or "attn_qkv.bias" in block,
        out_bias="attn_output.bias" in block,
        qk_norm=block.get("attn_q_norm.weight") == (d_head,),
        sinks=bool({"attn_sinks.weight", "attn_sinks"} & set(block)),
    )


def _mlp(block: Mapping[str, Dims]) -> Mlp:
    d_ff = _dims(block, "ffn_down.weight", 2)[1]
    both = _dims(block, "ffn_up.weight", 2)[0] == 2 * d_ff  # gate and up in one, as in Phi-3
    return Mlp(d_ff=d_ff, gated=both or "ffn_gate.weight" in block, bias="ffn_up.bias" in block)


def _experts(block: Mapping[str, Dims], facts: _Facts) -> Experts:
    n, _ = _dims(block, "ffn_gate_inp.weight", 2)
    if not facts.top_k:
        raise NoShape("expert_used_count is missing")
    d_shared = block["ffn_down_shexp.weight"][1] if "ffn_down_shexp.weight" in block else 0
    return Experts(
        n=n,
        top_k=facts.top_k,
        d_ff=_dims(block, "ffn_down_exps.weight", 3)[2],
        n_shared=1 if d_shared else 0,
        d_shared=d_shared,
        gated="ffn_gate_exps.weight" in block or "ffn_gate_up_exps.weight" in block,
        bias="ffn_down_exps.bias" in block,
        router_bias="ffn_gate_inp.bias" in block or "exp_probs_b.bias" in block,
        shared_gate="ffn_gate_inp_shexp.weight" in block,
    )
