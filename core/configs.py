"""A model's shape from its Hugging Face `config.json`.

Fields are read by general rules; what no field says (biases, norms of queries and keys, norms after
a branch) comes from what the family is known for. What could change a size and is not understood is
named, never guessed. Nothing is executed; a file is read up to `MAX_BYTES`.

Source: transformers 5.24, models/*/configuration_*.py. Checked: parameters of transformers' own
models, and broken files (tests/core/test_configs.py).
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from core.architecture import Attention, Experts, Latent, Layer, Mixer, Mlp, ModelShape, Recurrent
from core.catalog import runs

MAX_BYTES = 1_000_000
MAX_DEPTH = 20
MOST = {"layers": 2_000, "width": 1_000_000, "experts": 10_000, "vocabulary": 100_000_000}
NESTED = ("text_config", "llm_config", "language_config", "language_model_config")


class Unreadable(ValueError):
    """A file that is no description of a model; says what, value, rule and remedy."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Imported:
    """A model as its own file describes it."""

    name: str
    shape: ModelShape
    unknown: tuple[str, ...] = ()  # fields that might change sizes and are not understood
    assumed: tuple[str, ...] = ()  # what was taken for granted, a sentence each
    dtype: str = ""  # of the weights, as the file says
    quantisation: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Family:
    """What no field of a config says."""

    gated: bool = True
    norm: str = "rmsnorm"
    norm_bias: bool = False
    positions: str = "rope"
    qkv_bias: bool = False
    out_bias: bool = False
    mlp_bias: bool = False
    head_bias: bool = False
    n_norms: int = 2
    qk_norm: bool = False
    sinks: bool = False
    router_bias: bool = False
    tied: bool = False  # where the file does not say
    pattern: int = 0  # every so many layers one sees all; 0: the window is everywhere
    fields: Mapping[str, str] = field(default_factory=dict)  # our name -> the family's own


_LLAMA = Family()
_GPT = Family(
    gated=False,
    norm="layernorm",
    norm_bias=True,
    qkv_bias=True,
    out_bias=True,
    mlp_bias=True,
)


def _like(base: Family, **more: Any) -> Family:
    return replace(base, **more)


_GPT2_FIELDS = {
    "hidden": "n_embd",
    "layers": "n_layer",
    "heads": "n_head",
    "ffn": "n_inner",
    "context": "n_positions",
}
_GPTJ = _like(_GPT, qkv_bias=False, out_bias=False, n_norms=1, head_bias=True, fields=_GPT2_FIELDS)
FAMILIES: dict[str, Family] = {
    "gpt2": _like(_GPT, positions="learned", tied=True, fields=_GPT2_FIELDS),
    "gpt_neox": _GPT,
    "gptj": _GPTJ,
    "codegen": _GPTJ,
    "phi": _like(_GPT, n_norms=1, head_bias=True),
    "starcoder2": _like(_GPT, tied=True),
    "llama": _LLAMA,
    "mistral": _LLAMA,
    "mixtral": _LLAMA,
    "smollm3": _like(_LLAMA, tied=True),
    "granite": _LLAMA,
    "phi3": _LLAMA,
    "ernie4_5": _LLAMA,
    "seed_oss": _like(_LLAMA, qkv_bias=True),
    "ministral": _LLAMA,
    "qwen2": _like(_LLAMA, qkv_bias=True),
    "qwen2_moe": _like(_LLAMA, qkv_bias=True),
    "qwen3": _like(_LLAMA, qk_norm=True),
    "qwen3_moe": _like(_LLAMA, qk_norm=True),
    "qwen3_next": _like(_LLAMA, qk_norm=True),
    "gemma": _like(_LLAMA, tied=True),
    "gemma2": _like(_LLAMA, tied=True, n_norms=4, pattern=2),
    "gemma3_text": _like(_LLAMA, tied=True, n_norms=4, qk_norm=True, pattern=6),
    "gpt_oss": _like(
        _LLAMA,
        qkv_bias=True,
        out_bias=True,
        mlp_bias=True,
        sinks=True,
        router_bias=True,
        pattern=2,
    ),
    "llama4_text": _LLAMA,
    "deepseek_v2": _LLAMA,
    "deepseek_v3": _LLAMA,
    "kimi_k2": _LLAMA,
    "glm4_moe": _LLAMA,
    "dots1": _like(_LLAMA, qk_norm=True),
    "exaone4": _like(_LLAMA, qk_norm=True),
    "hunyuan_v1_dense": _like(_LLAMA, qk_norm=True),
    "arcee": _like(_LLAMA, gated=False),
    "nemotron": _like(_LLAMA, gated=False, norm="layernorm", norm_bias=True),
    "cohere2": _like(_LLAMA, norm="layernorm", n_norms=1, tied=True, pattern=4),
}
_ALSO = {
    "gemma3": "gemma3_text",
    "llama4": "llama4_text",
    "kimi_k25": "kimi_k2",
    "mistral3": "mistral",
    "deepseek_v32": "deepseek_v3",
}
_DEFAULTS = {  # of the family's configuration class, where a file may leave a field out
    "deepseek_v3": {"q_lora_rank": 1536, "kv_lora_rank": 512, "qk_rope_head_dim": 64,
                    "qk_nope_head_dim": 128, "v_head_dim": 128},
    "gemma": {"head_dim": 256}, "gemma2": {"head_dim": 256}, "gemma3_text": {"head_dim": 256},
    "qwen3": {"head_dim": 128}, "gpt_oss": {"head_dim": 64}, "seed_oss": {"head_dim": 128},
    "qwen3_next": {"head_dim": 256}, "ernie4_5": {"head_dim": 128},
    "llama4_text": {"head_dim": 128},
}  # fmt: skip

# Fields that say nothing about sizes, by name or by ending.
_HARMLESS = {
    "_name_or_path", "architectures", "model_type", "torch_dtype", "dtype", "transformers_version",
    "initializer_range", "use_cache", "pretraining_tp", "hidden_act", "activation_function",
    "hidden_activation", "rms_norm_eps", "layer_norm_eps", "layer_norm_epsilon", "norm_eps",
    "rope_theta", "rope_scaling", "rope_parameters", "rope_interleave", "attention_dropout",
    "attn_pdrop", "embd_pdrop", "resid_pdrop", "hidden_dropout", "residual_dropout",
    "embedding_dropout", "bos_token_id", "eos_token_id", "pad_token_id", "unk_token_id",
    "task_specific_params", "auto_map", "transformers.js_config", "id2label", "label2id",
    "final_logit_softcapping", "attn_logit_softcapping", "query_pre_attn_scalar",
    "rope_local_base_freq", "router_aux_loss_coef", "output_router_logits", "norm_topk_prob",
    "aux_loss_alpha", "seq_aux", "scoring_func", "topk_method", "topk_group", "n_group",
    "routed_scaling_factor", "ep_size", "quantization_config", "use_parallel_residual",
    "rotary_pct", "rotary_emb_base", "partial_rotary_factor", "classifier_dropout",
    "scale_attn_weights", "reorder_and_upcast_attn", "scale_attn_by_inverse_layer_idx",
    "summary_type", "summary_use_proj", "summary_activation", "summary_first_dropout",
    "summary_proj_to_labels", "router_jitter_noise", "swiglu_limit", "attn_scale",
    "floor_scale", "attn_temperature_tuning", "for_llm_compression", "initial_context_length",
    "experts_per_token", "use_bidirectional_attention", "cache_implementation", "problem_type",
    "embedding_multiplier", "residual_multiplier", "logits_scaling", "attention_multiplier",
    "max_window_layers", "use_sliding_window", "num_nextn_predict_layers", "mscale",
    "original_max_position_embeddings", "no_rope_layer_interval", "mtp_num_hidden_layers",
    "is_encoder_decoder", "chunk_size_feed_forward", "output_attentions", "output_hidden_states",
    "return_dict", "use_return_dict", "tokenizer_class", "rope_type", "sliding_window_pattern",
    "experts_implementation", "moe_layer_freq", "norm_epsilon", "swiglu_alpha", "clip_qkv",
    "logit_scale", "eod_token_id", "is_decoder", "rotary_dim",
}  # fmt: skip
_UNDERSTOOD = {
    "vocab_size", "hidden_size", "num_hidden_layers", "num_attention_heads",
    "num_key_value_heads", "head_dim", "intermediate_size", "max_position_embeddings",
    "tie_word_embeddings", "sliding_window", "layer_types", "attention_bias", "mlp_bias",
    "num_local_experts", "num_experts", "n_routed_experts", "num_experts_per_tok",
    "moe_intermediate_size", "n_shared_experts", "shared_expert_intermediate_size",
    "first_k_dense_replace", "moe_layer_freq", "decoder_sparse_step", "mlp_only_layers",
    "moe_layers", "interleave_moe_layer_step", "intermediate_size_mlp", "attention_chunk_size",
    "no_rope_layers", "q_lora_rank", "kv_lora_rank", "qk_rope_head_dim", "qk_nope_head_dim",
    "v_head_dim", "use_qk_norm", "qk_head_dim", "qk_layernorm", "use_bias", "attention_out_bias",
    "qkv_bias", "n_embd", "n_layer", "n_head", "n_inner", "n_positions", "n_ctx",
    "full_attention_interval", "linear_num_key_heads", "linear_num_value_heads",
    "linear_key_head_dim", "linear_value_head_dim", "linear_conv_kernel_dim", "vision_config",
    "audio_config", "text_config", "num_mtp_modules",
}  # fmt: skip

_ONLY_UNSET = ("qk_layernorm", "attention_out_bias")  # understood where they are false


def read_config(data: bytes | str, *, name: str = "") -> Imported:
    """The model that a config.json describes. Raises: Unreadable."""
    raw = _parsed(data)
    outer, config = raw, raw
    for inner in NESTED:
        if isinstance(raw.get(inner), dict):
            config = {**{k: v for k, v in raw.items() if k == "tie_word_embeddings"}, **raw[inner]}
            break
    read = _Reader(config)
    kind = _model_type(config, outer)
    assumed: list[str] = []
    if kind not in FAMILIES:
        said = f"family {kind!r} is not known" if kind else "no model_type is given"
        assumed.append(f"{said}: read as Llama's (RMSNorm, gated MLP, rotary positions)")
    if any(isinstance(outer.get(n), dict) for n in ("vision_config", "audio_config")):
        assumed.append("the text model alone: towers for pictures and sound are left out")
    if "num_nextn_predict_layers" in config or "mtp_num_hidden_layers" in config:
        assumed.append("modules that predict further tokens (MTP) are left out")
    shape = _shape(read, kind, FAMILIES.get(kind, _LLAMA), assumed)
    seen = _UNDERSTOOD | _HARMLESS | read.asked
    seen -= {k for k in _ONLY_UNSET if config.get(k)}
    unknown = tuple(sorted(k for k in config if k not in seen and not k.startswith("_")))
    return Imported(
        name=_text(name or outer.get("_name_or_path") or kind or "own model"),
        shape=shape,
        unknown=tuple(_text(k) for k in unknown),
        assumed=tuple(assumed),
        dtype=_text(config.get("torch_dtype") or config.get("dtype") or ""),
        quantisation=_quantisation(outer.get("quantization_config")),
    )


# -- the file -----------------------------------------------------------------------------------


def _parsed(data: bytes | str) -> dict[str, Any]:
    size = len(data)
    if size > MAX_BYTES:
        raise Unreadable(
            f"the file has {size:,} bytes, more than {MAX_BYTES:,}: a config.json has a few "
            "thousand; give the config.json alone"
        )
    try:
        text = data.decode("utf-8-sig") if isinstance(data, bytes) else data
    except UnicodeDecodeError:
        raise Unreadable("the file is not UTF-8 text; give a config.json") from None
    if (depth := _depth(text)) > MAX_DEPTH:
        raise Unreadable(f"brackets are {depth} deep, more than {MAX_DEPTH}; give a config.json")
    try:
        found = json.loads(text, parse_constant=_no_constant, object_pairs_hook=_once)
    except Unreadable:
        raise
    except (ValueError, RecursionError) as why:
        raise Unreadable(f"the file is not JSON ({str(why)[:80]}); give a config.json") from None
    if not isinstance(found, dict):
        raise Unreadable(
            f"the file holds {type(found).__name__}, not an object; give a config.json"
        )
    return found


def _depth(text: str) -> int:
    depth = most = 0
    for c in text:
        if c in "[{":
            depth += 1
            most = max(most, depth)
        elif c in "]}":
            depth -= 1
    return most


def _no_constant(name: str) -> float:
    raise Unreadable(f"{name} is no number of a config; give a number")


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for name, value in pairs:
        if name in found:
            raise Unreadable(f"{name[:40]!r} is given twice; give it once")
        found[name] = value
    return found


def _text(value: object) -> str:
    """Foreign text as one short line."""
    shown = "".join(c if c.isprintable() else " " for c in str(value))
    return shown if len(shown) <= 80 else shown[:80] + "…"


def _model_type(config: Mapping[str, Any], outer: Mapping[str, Any]) -> str:
    for place in (config, outer):
        kind = place.get("model_type")
        if isinstance(kind, str) and kind:
            return _ALSO.get(kind, kind)
    return ""


def _quantisation(value: object) -> str:
    if not isinstance(value, dict):
        return ""
    parts = [value.get("quant_method"), value.get("bits"), value.get("fmt")]
    return _text(" ".join(str(p) for p in parts if p is not None))


class _Reader:
    """Fields by name, each checked for what it has to be."""

    def __init__(self, config: Mapping[str, Any]) -> None:
        self.config = config
        self.asked: set[str] = set()

    def get(self, name: str) -> Any:
        self.asked.add(name)
        return self.config.get(name)

    def count(self, *names: str, most: str = "width", default: int | None = None) -> int:
        """The first field that is given, as a whole number from 1. Raises: Unreadable."""
        value, name = None, names[0]
        for candidate in names:
            if self.get(candidate) is not None:
                value, name = self.config[candidate], candidate
                break
        if value is None:
            if default is not None:
                return default
            others = f" (or {', '.join(names[1:])})" if len(names) > 1 else ""
            raise Unreadable(f"{name}{others} is missing; a config.json of a model gives it")
        return self.whole(name, value, most)

    def whole(self, name: str, value: Any, most: str, least: int = 1) -> int:
        if isinstance(value, float) and value.is_integer():
            value = int(value)
        if isinstance(value, bool) or not isinstance(value, int):
            raise Unreadable(
                f"{name}={_text(value)!r} is not a whole number; give one from {least}"
            )
        if value < least:
            raise Unreadable(f"{name}={value} is below {least}; give {least} or more")
        if value > MOST[most]:
            raise Unreadable(f"{name}={_text(value)} is more than {MOST[most]:,}; give fewer")
        return value

    def zero_or_more(self, name: str, most: str = "width", default: int = 0) -> int:
        value = self.get(name)
        return default if value is None else self.whole(name, value, most, least=0)

    def flag(self, name: str, default: bool) -> bool:
        value = self.get(name)
        if value is None:
            return default
        if isinstance(value, bool) or value in (0, 1):
            return bool(value)
        raise Unreadable(f"{name}={_text(value)!r} is neither true nor false; give one of them")

    def counts_of(self, name: str) -> set[int]:
        """A list of layers' numbers; none where it is not given."""
        value = self.get(name)
        if value is None:
            return set()
        if not isinstance(value, list):
            raise Unreadable(f"{name}={_text(value)!r} is not a list; list numbers of layers")
        return {self.whole(name, v, "layers", least=0) for v in value}

    def counts(self, name: str, n: int) -> list[int] | None:
        """A list of n whole numbers, or one for all of them."""
        value = self.get(name)
        if value is None:
            return None
        if not isinstance(value, list):
            return [self.whole(name, value, "width", least=0)] * n
        if len(value) != n:
            raise Unreadable(f"{name} lists {len(value)} values for {n} layers; give one for each")
        return [self.whole(name, v, "width", least=0) for v in value]


# -- the shape ----------------------------------------------------------------------------------


def _shape(read: _Reader, kind: str, family: Family, assumed: list[str]) -> ModelShape:
    own = family.fields
    n_layer = read.count(own.get("layers", "num_hidden_layers"), "n_layer", most="layers")
    d = read.count(own.get("hidden", "hidden_size"), "n_embd", "d_model")
    mixers = _mixers(read, kind, family, n_layer, d, assumed)
    mlps = _mlps(read, kind, family, n_layer, d)
    layers = [
        Layer(mixer=mixer, mlp=mlp, n_norms=family.n_norms)
        for mixer, mlp in zip(mixers, mlps, strict=True)
    ]
    context = own.get("context", "max_position_embeddings")
    learned = family.positions == "learned"
    if not learned and read.get(context) is None:
        assumed.append(f"{context} is not given: a context of 4,096 tokens")
    return ModelShape(
        vocab_size=read.count("vocab_size", most="vocabulary"),
        d_model=d,
        layers=runs(layers),
        max_seq_len=read.count(
            context, "n_positions", most="vocabulary", default=None if learned else 4096
        ),
        norm=family.norm,
        norm_bias=family.norm_bias,
        positions=family.positions,
        tied=read.flag("tie_word_embeddings", family.tied),
        head_bias=family.head_bias,
    )


def _heads(read: _Reader, family: Family) -> int:
    return read.count(family.fields.get("heads", "num_attention_heads"), "n_head")


def _mixers(
    read: _Reader, kind: str, family: Family, n_layer: int, d: int, assumed: list[str]
) -> list[Mixer]:
    heads = _heads(read, family)
    defaults = _DEFAULTS.get(kind, {})
    if read.get("kv_lora_rank") is not None:
        return [_latent(read, heads)] * n_layer
    kv_heads = read.counts("num_key_value_heads", n_layer) or [heads] * n_layer
    head_dim = read.count("head_dim", default=defaults.get("head_dim", 0) or -1)
    if head_dim == -1:
        if d % heads:
            raise Unreadable(
                f"hidden_size={d} is not divisible by num_attention_heads={heads}, and head_dim "
                "is missing; give head_dim"
            )
        head_dim = d // heads
    everywhere = read.flag("use_bias", family.qkv_bias)
    bias = read.flag("attention_bias", everywhere)
    if kind == "gpt_oss":
        bias = True
    # Where a family has biases on queries, keys and values alone, the field speaks of those.
    said = any(read.config.get(n) is not None for n in ("attention_bias", "use_bias"))
    out_bias = bias if said else family.out_bias
    if family.qkv_bias and not family.out_bias and kind.startswith(("qwen", "seed")):
        out_bias = False
    if kind == "glm4_moe":
        out_bias = False
    qk_norm = family.qk_norm
    if kind == "glm4_moe":
        qk_norm = read.flag("use_qk_norm", False)
    windows = _windows(read, kind, family, n_layer, assumed)
    linear = _linear(read, d) if any(w is None for w in windows) else None
    made = []
    for i, window in enumerate(windows):
        if window is None:
            assert linear is not None
            made.append(linear)
            continue
        if kv_heads[i] < 1 or heads % kv_heads[i]:
            raise Unreadable(
                f"num_attention_heads={heads} is not divisible by num_key_value_heads="
                f"{kv_heads[i]}; give a divisor"
            )
        size, chunked = window
        made.append(
            Attention(
                n_head=heads,
                n_kv_head=kv_heads[i],
                d_head=head_dim,
                window=size,
                chunked=chunked,
                qkv_bias=bias,
                out_bias=out_bias,
                qk_norm=qk_norm,
                sinks=family.sinks,
                gate=kind == "qwen3_next",
            )
        )
    return made


def _latent(read: _Reader, heads: int) -> Latent:
    return Latent(
        n_head=heads,
        q_rank=read.zero_or_more("q_lora_rank"),
        kv_rank=read.count("kv_lora_rank"),
        d_rope=read.count("qk_rope_head_dim"),
        d_nope=read.count("qk_nope_head_dim"),
        d_value=read.count("v_head_dim"),
        qkv_bias=read.flag("attention_bias", False),
    )


def _windows(
    read: _Reader, kind: str, family: Family, n_layer: int, assumed: list[str]
) -> list[tuple[int, bool] | None]:
    """Of each layer: (window or 0, whether in blocks); None where it is recurrent."""
    window = read.zero_or_more("sliding_window", most="vocabulary")
    chunk = read.zero_or_more("attention_chunk_size", most="vocabulary")
    types = read.get("layer_types")
    if isinstance(types, list) and types:
        if len(types) != n_layer or not all(isinstance(t, str) for t in types):
            raise Unreadable(
                f"layer_types lists {len(types)} layers of {n_layer}; give a name for each"
            )
        return [_window_of(t, window, chunk) for t in types]
    interval = read.zero_or_more("full_attention_interval", most="layers")
    if kind == "qwen3_next":
        interval = interval or 4
        return [(0, False) if (i + 1) % interval == 0 else None for i in range(n_layer)]
    if kind == "llama4_text":
        chunk = chunk or 8192
        plain = read.get("no_rope_layers")
        if not (isinstance(plain, list) and len(plain) == n_layer):
            plain = [int((i + 1) % 4 != 0) for i in range(n_layer)]
        return [(chunk, True) if turns else (0, False) for turns in plain]
    if not window:
        return [(0, False)] * n_layer
    if kind in ("qwen2", "qwen3", "qwen2_moe", "qwen3_moe"):
        if not read.flag("use_sliding_window", False):
            return [(0, False)] * n_layer
        first = read.zero_or_more("max_window_layers", most="layers", default=28)
        return [(window, False) if i >= first else (0, False) for i in range(n_layer)]
    period = read.zero_or_more("sliding_window_pattern", most="layers", default=family.pattern)
    if not period:
        if kind not in FAMILIES:
            assumed.append(f"the window of {window:,} tokens is every layer's")
        return [(window, False)] * n_layer
    return [(window, False) if (i + 1) % period else (0, False) for i in range(n_layer)]


def _window_of(name: str, window: int, chunk: int) -> tuple[int, bool] | None:
    match name:
        case "full_attention":
            return 0, False
        case "sliding_attention":
            if not window:
                raise Unreadable("layer_types has sliding_attention, but sliding_window is missing")
            return window, False
        case "chunked_attention":
            if not chunk:
                raise Unreadable(
                    "layer_types has chunked_attention, but attention_chunk_size is missing"
                )
            return chunk, True
        case "linear_attention":
            return None
    raise Unreadable(
        f"layer_types has {_text(name)!r}; full_attention, sliding_attention, chunked_attention "
        "and linear_attention are known"
    )


def _linear(read: _Reader, d: int) -> Recurrent:
    """Gated DeltaNet as Qwen3-Next has it: two input products, a short convolution, a state of
    key × value numbers a head. Source: transformers, models/qwen3_next/modeling_qwen3_next.py.
    """
    k_heads = read.count("linear_num_key_heads")
    v_heads = read.count("linear_num_value_heads")
    k_dim, v_dim = read.count("linear_key_head_dim"), read.count("linear_value_head_dim")
    width = read.count("linear_conv_kernel_dim", default=4)
    keys, values = k_heads * k_dim, v_heads * v_dim
    mixed = 2 * keys + values
    into = d * (2 * keys + 2 * values)
    gates, out = d * 2 * v_heads, values * d
    return Recurrent(
        name="gated_delta_net",
        param_sizes=(into, gates, mixed * width, v_heads, v_heads, v_dim, out),
        matrix_sizes=(into, gates, mixed * width, out),
        state_numbers=v_heads * k_dim * v_dim + mixed * width,
        kept_numbers=2 * mixed + 2 * values + 2 * v_heads,
    )


def _mlps(read: _Reader, kind: str, family: Family, n_layer: int, d: int) -> list[Mlp | Experts]:
    own = family.fields.get("ffn", "intermediate_size")
    bias = read.flag("mlp_bias", read.flag("use_bias", family.mlp_bias))
    n_experts = 0
    for name in ("num_local_experts", "num_experts", "n_routed_experts"):
        n_experts = n_experts or read.zero_or_more(name, most="experts")
    # A file of experts alone may leave the dense width out, and one of GPT-2 means four widths.
    ffn = read.count(own, "ffn_hidden_size", default=4 * d if own == "n_inner" else -1)
    dense_ffn = read.count("intermediate_size_mlp", default=ffn)
    expert_ffn = read.count("moe_intermediate_size", default=ffn)
    if not n_experts:
        if ffn == -1:
            raise Unreadable(f"{own} is missing; a config.json of a model gives it")
        return [Mlp(d_ff=ffn, gated=family.gated, bias=bias)] * n_layer
    if expert_ffn == -1:
        raise Unreadable("moe_intermediate_size is missing; it gives the width of an expert")
    top_k = read.count("num_experts_per_tok", "experts_per_token", "moe_topk", default=1)
    if top_k > n_experts:
        raise Unreadable(
            f"num_experts_per_tok={top_k} is more than the {n_experts} experts; give fewer"
        )
    shared = read.zero_or_more("n_shared_experts", most="experts")
    shared_ffn = read.zero_or_more("shared_expert_intermediate_size")
    if kind == "llama4_text":
        shared = 1
    experts = Experts(
        n=n_experts,
        top_k=top_k,
        d_ff=expert_ffn,
        n_shared=1 if shared_ffn else shared,
        d_shared=shared_ffn,
        gated=family.gated,
        bias=bias,
        router_bias=family.router_bias,
        shared_gate=bool(shared_ffn) and kind.startswith("qwen"),
    )
    has = _expert_layers(read, kind, n_layer)
    if dense_ffn == -1 and not all(has):
        raise Unreadable(f"{own} is missing; it gives the width of the dense layers")
    dense = experts if all(has) else Mlp(d_ff=dense_ffn, gated=family.gated, bias=bias)
    return [experts if yes else dense for yes in has]


def _expert_layers(read: _Reader, kind: str, n_layer: int) -> list[bool]:
    """Which layers send tokens to experts."""
    listed = read.get("moe_layers")
    if isinstance(listed, list):
        chosen = read.counts_of("moe_layers")
        return [i in chosen for i in range(n_layer)]
    first = read.zero_or_more("first_k_dense_replace", most="layers")
    step = read.count(
        "interleave_moe_layer_step", "decoder_sparse_step", "moe_layer_freq", most="layers",
        default=1,
    )  # fmt: skip
    dense = read.counts_of("mlp_only_layers")
    offset = 0 if read.config.get("moe_layer_freq") is not None else 1
    return [i >= first and i not in dense and (i + offset) % step == 0 for i in range(n_layer)]
