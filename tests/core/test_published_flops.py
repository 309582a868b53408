"""FLOPs and parameters of published architectures against torch's counter on transformers' code."""

import dataclasses
import json

import pytest
import torch
import transformers
from torch.utils.flop_counter import FlopCounterMode

from core.configs import read_config
from core.ops import Prefill
from core.transformer import model_ops

SIZES = {"vocab_size": 500, "hidden_size": 64, "intermediate_size": 160, "num_hidden_layers": 3}
HEADS = {"num_attention_heads": 8, "num_key_value_heads": 2, "head_dim": 16}
NARROW = {**SIZES, **HEADS}
EXPERTS = {"num_experts_per_tok": 2, "moe_intermediate_size": 48}
CONFIGS = {
    "llama": NARROW,
    "mistral": {**NARROW, "sliding_window": None},
    "qwen2": NARROW,
    "qwen3": NARROW,
    "gemma": NARROW,
    "gemma2": {**NARROW, "layer_types": ["full_attention"] * 3},
    "phi": {**SIZES, "num_attention_heads": 8, "num_key_value_heads": 8},
    "gpt_neox": {**SIZES, "num_attention_heads": 8},
    "mixtral": {**NARROW, "num_local_experts": 4, "num_experts_per_tok": 2},
    "qwen3_moe": {**NARROW, **EXPERTS, "num_experts": 8},
    "deepseek_v3": {
        **SIZES,
        **EXPERTS,
        "num_attention_heads": 8,
        "num_key_value_heads": 8,
        "n_routed_experts": 8,
        "first_k_dense_replace": 1,
        "n_group": 2,
        "topk_group": 1,
        "q_lora_rank": 24,
        "kv_lora_rank": 32,
        "qk_rope_head_dim": 8,
        "qk_nope_head_dim": 16,
        "v_head_dim": 16,
    },
}
BATCH, TOKENS = 2, 32


@pytest.mark.parametrize("model_type", CONFIGS)
def test_the_table_counts_what_torch_counts(model_type):
    config = transformers.AutoConfig.for_model(model_type, **CONFIGS[model_type])
    model = transformers.AutoModelForCausalLM.from_config(
        config, attn_implementation="eager", experts_implementation="eager"
    ).eval()
    tokens = torch.zeros(BATCH, TOKENS, dtype=torch.long)
    with torch.no_grad(), FlopCounterMode(display=False) as counter:
        model(tokens, use_cache=False)

    shape = read_config(json.dumps(config.to_dict())).shape
    # Eager attention multiplies what a window hides too.
    shape = dataclasses.replace(shape, attention="explicit")
    ops = model_ops(shape, Prefill(batch_size=BATCH, seq_len=TOKENS))
    assert sum(op.repeat * op.n_params for op in ops) == sum(p.numel() for p in model.parameters())
    assert sum(op.repeat * op.forward_flops for op in ops) == counter.get_total_flops()
