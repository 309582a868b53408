"""The published model as the package transformers has it, with our weights: to compare with."""

import torch

from core.engine.weights import Weights
from core.shapes import TransformerShape


def llama_of(shape: TransformerShape, found: Weights) -> torch.nn.Module:
    """transformers' model with these weights, which it shares."""
    from transformers import LlamaConfig, LlamaForCausalLM
    from transformers.models.llama.modeling_llama import LlamaRotaryEmbedding

    config = LlamaConfig(
        vocab_size=shape.vocab_size,
        hidden_size=shape.d_model,
        intermediate_size=shape.d_ff,
        num_hidden_layers=shape.n_layer,
        num_attention_heads=shape.n_head,
        num_key_value_heads=shape.n_kv_head,
        head_dim=shape.d_head,
        max_position_embeddings=shape.max_seq_len,
        rms_norm_eps=1e-5,
        rope_parameters={"rope_type": "default", "rope_theta": shape.rope_base},
        tie_word_embeddings=shape.tied,
        attention_bias=False,
        mlp_bias=False,
        attn_implementation="sdpa",  # type: ignore[call-arg]
    )
    theirs = {
        "model.embed_tokens.weight": found["embed.tokens.weight"],
        "model.norm.weight": found["norm.weight"],
        "lm_head.weight": found["embed.tokens.weight" if shape.tied else "head.weight"],
    }
    for i in range(shape.n_layer):
        a, b = f"blocks.{i}", f"model.layers.{i}"
        qkv = found[f"{a}.attn.qkv.weight"].split([shape.d_q, shape.d_kv, shape.d_kv])
        theirs |= {f"{b}.self_attn.{n}_proj.weight": w for n, w in zip("qkv", qkv, strict=True)}
        theirs[f"{b}.self_attn.o_proj.weight"] = found[f"{a}.attn.out.weight"]
        theirs[f"{b}.input_layernorm.weight"] = found[f"{a}.attn.norm.weight"]
        theirs[f"{b}.post_attention_layernorm.weight"] = found[f"{a}.mlp.norm.weight"]
        for n in ("gate", "up", "down"):
            theirs[f"{b}.mlp.{n}_proj.weight"] = found[f"{a}.mlp.{n}.weight"]
    with torch.device("meta"):  # its own first weights would take seconds to draw
        model = LlamaForCausalLM(config)
    model.load_state_dict(theirs, assign=True)
    model.model.rotary_emb = LlamaRotaryEmbedding(config)  # angles are no part of the state
    return model.eval()
