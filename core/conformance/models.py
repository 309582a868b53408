"""Rows that describe a model: by name, or by some of its sizes as a config would give them."""

import json
from dataclasses import replace
from typing import Any

from core.architecture import Attention, Latent, Layer, Mlp, ModelShape, Recurrent
from core.catalog import find_model
from core.configs import FAMILIES, Unreadable, read_config
from core.conformance.answers import Inputs, Unsupported

# A row's short word -> the field of a config.json.
_FIELDS = {
    "hidden": "hidden_size",
    "layers": "num_hidden_layers",
    "heads": "num_attention_heads",
    "kv_heads": "num_key_value_heads",
    "head_dim": "head_dim",
    "ffn": "intermediate_size",
    "vocab": "vocab_size",
    "ctx": "max_position_embeddings",
    "tied": "tie_word_embeddings",
    "topk": "num_experts_per_tok",
    "moe_ffn": "moe_intermediate_size",
    "shared": "n_shared_experts",
    "dense_layers": "first_k_dense_replace",
    "q_lora": "q_lora_rank",
    "kv_lora": "kv_lora_rank",
    "qk_rope": "qk_rope_head_dim",
    "qk_nope": "qk_nope_head_dim",
    "v_dim": "v_head_dim",
    "window": "sliding_window",
    "dense_ffn": "intermediate_size_mlp",
    "moe_step": "interleave_moe_layer_step",
    "moe_every": "interleave_moe_layer_step",
    "interleave": "interleave_moe_layer_step",
}
_FIELDS |= {field: field for field in dict.fromkeys(_FIELDS.values())}  # or by its own name
_EXPERTS = {"deepseek_v3": "n_routed_experts", "kimi_k2": "n_routed_experts"}
_ALIASES = {
    "gemma3": "gemma3_text",
    "gemma-2": "gemma2",
    "gpt-2": "gpt2",
    "gptneox": "gpt_neox",
    "pythia": "gpt_neox",
    "neox": "gpt_neox",
    "deepseek": "deepseek_v3",
    "deepseek-v3": "deepseek_v3",
    "kimi": "kimi_k2",
    "gpt-oss": "gpt_oss",
    "gptoss": "gpt_oss",
    "llama4": "llama4_text",
    "phi2": "phi",
    "qwen2.5": "qwen2",
    "smollm2": "llama",
    "tinyllama": "llama",
}
# What a family's configuration class has where a row leaves it out. Source: transformers 5.24.
_DEFAULTS: dict[str, dict[str, Any]] = {
    "deepseek_v3": {
        "q_lora_rank": 1536,
        "kv_lora_rank": 512,
        "qk_rope_head_dim": 64,
        "qk_nope_head_dim": 128,
        "v_head_dim": 128,
    },
    "gpt_oss": {"intermediate_size": 2880, "head_dim": 64},
    "llama4_text": {"intermediate_size": 8192, "intermediate_size_mlp": 16384, "head_dim": 128},
}
_DEFAULTS["kimi_k2"] = _DEFAULTS["deepseek_v3"]


def shape_of(given: Inputs) -> ModelShape:
    """The model of a row: the catalogue's where it has a name only. Raises: Unsupported."""
    if not given.has("layers") and given.has("model"):
        try:
            return find_model(given.text("model")).shape
        except LookupError as why:
            raise Unsupported(str(why)) from None
    values = given.plain()
    kind = _family(values)
    if kind == "plain":
        return _plain(given)
    config: dict[str, Any] = {"model_type": "gpt2" if kind == "nanogpt" else kind}
    for name, field in _FIELDS.items():
        if values.get(name) is not None:
            config[field] = values[name]
    if values.get("experts") is not None:
        config[_EXPERTS.get(kind, "num_local_experts")] = values["experts"]
    if kind == "llama4_text":
        _llama4(given, config)
    for field, value in _DEFAULTS.get(kind, {}).items():
        config.setdefault(field, value)
    if kind in ("gpt_neox", "phi"):
        config.setdefault("intermediate_size", 4 * given.whole("hidden"))
    config.setdefault("max_position_embeddings", 4096)
    if kind in ("gpt2", "nanogpt"):
        config["n_inner"] = config.get("intermediate_size")
        heads = config.get("num_attention_heads") or _heads_of(given.whole("hidden"))
        config["num_attention_heads"] = heads
        for field, own in (("hidden_size", "n_embd"), ("num_hidden_layers", "n_layer")):
            config[own] = config.get(field)
        config["n_head"], config["n_positions"] = heads, config["max_position_embeddings"]
    if values.get("qkv_bias") is not None and kind == "llama":
        config["attention_bias"] = values["qkv_bias"]
    try:
        shape = read_config(json.dumps(config)).shape
    except Unreadable as why:
        raise Unsupported(str(why)) from None
    none = kind == "nanogpt" or any(values.get(name) is False for name in ("bias", "biases"))
    return _without_biases(shape) if none else shape


def _llama4(given: Inputs, config: dict[str, Any]) -> None:
    """Two widths, one of experts and one of dense layers; which layers have experts is a step."""
    if given.has("moe_ffn", "ffn"):
        config.setdefault("intermediate_size_mlp", given.whole("ffn"))
    n_layer = given.whole("layers")
    n_experts = n_layer - _at_most(given.whole("dense_layers", default=0), n_layer)
    config.pop("first_k_dense_replace", None)
    n_experts = given.whole("moe_layers", default=n_experts)
    if 0 < n_experts < n_layer and n_layer % n_experts == 0:
        config.setdefault("interleave_moe_layer_step", n_layer // n_experts)


def _heads_of(hidden: int) -> int:
    """GPT-2's heads are 64 wide."""
    return max(1, hidden // 64)


def _family(values: dict[str, Any]) -> str:
    arch = values.get("arch")
    if isinstance(arch, str):
        name = arch.lower().strip()
        if name.startswith("nanogpt"):
            return "nanogpt"
        name = _ALIASES.get(name, name)
        if name in FAMILIES:
            return name
        raise Unsupported(f"arch={arch[:40]!r} is not known")
    has = {name for name, value in values.items() if value is not None}
    mixed = has & {"dense_ffn", "moe_step", "moe_every", "interleave", "moe_layers", "shared"}
    if "kv_lora" in has or ("dense_layers" in has and "kv_heads" not in has):
        return "deepseek_v3"
    if "experts" in has and mixed:
        return "llama4_text"
    if values.get("experts") is not None:
        if values.get("moe_ffn") is not None:
            return "qwen3_moe"
        return "mixtral" if values.get("ffn") is not None else "gpt_oss"
    if values.get("qk_norm"):
        return "gemma3_text" if values.get("norms_per_layer") == 4 else "qwen3"
    if values.get("norms_per_layer") == 4:
        return "gemma2"
    if values.get("qkv_bias"):
        return "qwen2"
    return "plain" if "swiglu" in values or "biases" in values else "llama"


def _plain(given: Inputs) -> ModelShape:
    """A model told by its parts: gated or not, with biases or without."""
    hidden, heads = given.whole("hidden"), given.whole("heads")
    biases, gated = given.flag("biases"), given.flag("swiglu", default=True)
    head_dim = given.whole("head_dim", default=hidden // heads)
    layer = Layer(
        mixer=Attention(
            n_head=heads,
            n_kv_head=given.whole("kv_heads", default=heads),
            d_head=head_dim,
            qkv_bias=biases,
            out_bias=biases,
        ),
        mlp=Mlp(d_ff=given.whole("ffn", default=4 * hidden), gated=gated, bias=biases),
    )
    return ModelShape(
        vocab_size=given.whole("vocab"),
        d_model=hidden,
        layers=((given.whole("layers"), layer),),
        max_seq_len=given.whole("ctx", default=2048),
        tied=given.flag("tied"),
        norm_bias=biases,
        norm="layernorm" if biases else "rmsnorm",
    )


def _without_biases(shape: ModelShape) -> ModelShape:
    """No bias anywhere, as with nanoGPT's bias=False."""

    def bare(layer: Layer) -> Layer:
        mixer, mlp = layer.mixer, replace(layer.mlp, bias=False)
        if isinstance(mixer, Attention):
            mixer = replace(mixer, qkv_bias=False, out_bias=False)
        return replace(layer, mixer=mixer, mlp=mlp)

    layers = tuple((n, bare(layer)) for n, layer in shape.layers)
    return replace(shape, layers=layers, norm_bias=False, head_bias=False)


def _head_width(given: Inputs) -> int:
    width, rest = divmod(given.whole("hidden"), given.whole("heads"))
    if rest:
        raise Unsupported("head_dim is missing, and hidden is no multiple of heads")
    return width


def cached_shape(given: Inputs) -> ModelShape:
    """What a row tells of the layers that keep keys and values, and nothing else of its model."""
    if given.has("model") and not given.has("layers"):
        return shape_of(given)
    n_layer = given.whole("layers")
    mla = given.text("attn", default="").lower() == "mla" or _any(
        given, ("kv_lora_rank", "kv_lora")
    )
    if mla or given.has("latent"):
        # `latent` may be all that a token leaves; a rank alone lacks the rotary key beside it
        rank = given.whole("latent", "kv_lora_rank", "kv_lora")
        rope = given.whole(*_ROPE, default=0 if given.has("latent") else None)
        mixers = [(n_layer, Latent(n_head=1, kv_rank=rank, d_rope=rope, d_nope=1, d_value=1))]
    else:
        heads = given.whole("kv_heads", "heads")  # a config without it has a key for each query
        width = given.whole("head_dim") if given.has("head_dim") else _head_width(given)
        full = Attention(n_head=heads, n_kv_head=heads, d_head=width)
        mixers = _windowed(given, n_layer, full)
    layers = tuple(
        (n, Layer(mixer=mixer, mlp=Mlp(d_ff=1, gated=False))) for n, mixer in mixers if n
    )
    return ModelShape(vocab_size=1, d_model=1, layers=layers, max_seq_len=1)


_ATTENTION = ("attention_layers", "full_attention_layers", "attn_layers", "full_attn_layers")
_RECURRENT = ("linear_layers", "recurrent_layers", "ssm_layers", "mamba_layers")
_GLOBAL = ("global_layers", "full_layers")
_LOCAL = ("local_layers", "sliding_layers", "swa_layers", "window_layers")
_WINDOW = ("window", "sliding_window")
_ROPE = ("qk_rope_dim", "qk_rope_head_dim", "qk_rope", "rope_dim", "rope")
_SHARED = ("shared_layers", "kv_shared_layers", "num_kv_shared_layers")


def _any(given: Inputs, names: tuple[str, ...]) -> bool:
    return any(given.has(name) for name in names)


def _windowed(given: Inputs, n_layer: int, full: Attention) -> list[tuple[int, Any]]:
    """(how many, of which kind): layers with a state, with a window, that share a cache."""
    if _any(given, _SHARED):
        n_shared = _at_most(given.whole(*_SHARED), n_layer)
        return [(n_layer - n_shared, full), (n_shared, replace(full, shares_cache=True))]
    if _any(given, _ATTENTION + _RECURRENT):
        if _any(given, _ATTENTION):
            n_full = given.whole(*_ATTENTION)
        else:
            n_full = n_layer - _at_most(given.whole(*_RECURRENT), n_layer)
        state = given.whole("state_numbers", default=0)
        rest = Recurrent(name="state", param_sizes=(), matrix_sizes=(), state_numbers=state)
        return [(n_full, full), (n_layer - _at_most(n_full, n_layer), rest)]
    if not _any(given, _WINDOW):
        return [(n_layer, full)]
    window = replace(full, window=given.whole(*_WINDOW))
    if _any(given, _LOCAL):
        n_local = _at_most(given.whole(*_LOCAL), n_layer)
        return [(given.whole(*_GLOBAL, default=n_layer - n_local), full), (n_local, window)]
    n_global = _at_most(given.whole(*_GLOBAL, default=0), n_layer)
    return [(n_global, full), (n_layer - n_global, window)]


def _at_most(n: int, n_layer: int) -> int:
    if n > n_layer:
        raise Unsupported(f"{n} layers of a kind are more than all {n_layer}")
    return n
