"""config.json: real families counted by transformers, and whatever else a visitor may send."""

import json
import time
from pathlib import Path

import pytest
import torch
import transformers
from hypothesis import given, settings
from hypothesis import strategies as st

from core.configs import MAX_BYTES, Imported, Unreadable, read_config
from core.counts import counts

# Real widths with few layers: what differs between families is in a layer.
CONFIGS = json.loads((Path(__file__).parent.parent / "data" / "configs.json").read_text())


def config_of(name: str):
    kind, fields = CONFIGS[name]
    layers = {} if kind in ("gpt2", "gptj") else {"num_hidden_layers": 2}
    return transformers.AutoConfig.for_model(kind, **{**layers, **fields})


@pytest.mark.parametrize("name", CONFIGS)
def test_parameters_are_those_of_transformers(name):
    config = config_of(name)
    with torch.device("meta"):
        model = transformers.AutoModelForCausalLM.from_config(config)
    expected = sum(p.numel() for p in model.parameters())
    read = read_config(json.dumps(config.to_dict()))
    assert counts(read.shape).total == expected
    # As people have it: only what the family does not say by itself.
    if name not in ("deepseek", "qwen3 next", "gemma3", "gemma2"):
        short = {**config.to_diff_dict(), "model_type": config.model_type}
        with_layers = {"num_hidden_layers": config.num_hidden_layers, **short}
        for field in ("vocab_size", "hidden_size", "intermediate_size", "num_attention_heads"):
            if getattr(config, field, None) is not None and config.model_type not in (
                "gpt2",
                "gptj",
            ):
                with_layers[field] = getattr(config, field)
        assert counts(read_config(json.dumps(with_layers)).shape).total == expected


PLAIN = {
    "model_type": "llama",
    "hidden_size": 512,
    "num_hidden_layers": 4,
    "num_attention_heads": 8,
    "num_key_value_heads": 2,
    "intermediate_size": 1024,
    "vocab_size": 1000,
    "max_position_embeddings": 2048,
}


def read(**changes) -> Imported:
    return read_config(json.dumps({**PLAIN, **changes}))


def test_layers_have_the_kind_that_the_file_says():
    types = ["sliding_attention", "full_attention"] * 2
    shape = read(layer_types=types, sliding_window=128).shape
    assert list(shape.layer_names()) == ["sliding", "full"] * 2
    shape = read(model_type="qwen2", sliding_window=128, use_sliding_window=False).shape
    assert set(shape.layer_names()) == {"full"}
    shape = read(
        model_type="qwen2", sliding_window=128, use_sliding_window=True, max_window_layers=3
    ).shape
    assert list(shape.layer_names()) == ["full"] * 3 + ["sliding"]


def test_a_model_inside_another_is_the_text_model():
    found = read_config(
        json.dumps({"model_type": "gemma3", "vision_config": {}, "text_config": PLAIN})
    )
    assert counts(found.shape) == counts(read().shape)
    assert any("towers" in said for said in found.assumed)


def test_what_is_not_understood_is_named_and_not_guessed():
    found = read(model_type="hyperformer", mystery_width=7, rms_norm_eps=1e-5)
    assert found.unknown == ("mystery_width",)
    assert any("hyperformer" in said for said in found.assumed)
    assert read(qk_layernorm=True).unknown == ("qk_layernorm",)
    assert read(qk_layernorm=False).unknown == ()


def test_norms_without_weights_are_not_counted_as_llamas_unsaid():
    # OLMo's norms have no weights, which no shape here can say.
    assert any("not known" in said for said in read(model_type="olmo").assumed)


def test_key_heads_may_be_listed_layer_by_layer():
    # gguf-parser read a list as no heads.
    shape = read(num_key_value_heads=[2, 4, 2, 8]).shape
    assert [n for n, _ in shape.layers] == [1, 1, 1, 1]
    with pytest.raises(Unreadable, match="lists 2 values for 4 layers"):
        read(num_key_value_heads=[2, 4])


def test_a_quantised_file_says_so():
    assert read(quantization_config={"quant_method": "awq", "bits": 4}).quantisation == "awq 4"


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"hidden_size": None}, "hidden_size .* is missing"),
        ({"hidden_size": -4}, "below 1"),
        ({"hidden_size": "wide"}, "not a whole number"),
        ({"hidden_size": True}, "not a whole number"),
        ({"hidden_size": 1.5}, "not a whole number"),
        ({"hidden_size": 10**30}, "is more than"),
        ({"num_hidden_layers": 10**7}, "is more than"),
        ({"num_attention_heads": 7}, "head_dim is missing"),
        ({"num_key_value_heads": 3}, "not divisible"),
        ({"layer_types": ["full_attention"]}, "lists 1 layers of 4"),
        ({"layer_types": ["spiral_attention"] * 4}, "are known"),
        ({"layer_types": ["sliding_attention"] * 4}, "sliding_window is missing"),
        ({"attention_bias": "yes"}, "neither true nor false"),
        ({"num_local_experts": 4, "num_experts_per_tok": 9}, "more than the 4 experts"),
    ],
    ids=str,
)
def test_a_bad_field_is_a_sentence(changes, says):
    with pytest.raises(Unreadable, match=says) as caught:
        read(**changes)
    assert len(str(caught.value)) < 300


@pytest.mark.parametrize(
    ("data", "says"),
    [
        (b"", "not JSON"),
        (b"\xff\xfe\x00", "not UTF-8"),
        (b"[]", "not an object"),
        (b"null", "not an object"),
        (b'{"hidden_size": NaN}', "no number"),
        (b'{"a": 1, "a": 2}', "given twice"),
        (b"[" * 100_000, "deep"),
        (b'{"a":' * 500 + b"1" + b"}" * 500, "deep"),
        (b" " * (10 << 20), f"more than {MAX_BYTES:,}"),
        (b'{"model_type": "llama"', "not JSON"),
    ],
    ids=lambda v: repr(v[:20]) if isinstance(v, bytes) else "",
)
def test_a_file_that_is_none_is_a_sentence(data, says):
    began = time.process_time()
    with pytest.raises(Unreadable, match=says):
        read_config(data)
    assert time.process_time() - began < 5


junk = st.recursive(
    st.none() | st.booleans() | st.integers(-(10**20), 10**20) | st.floats() | st.text(max_size=9),
    lambda inner: (
        st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=5), inner, max_size=3)
    ),
    max_leaves=6,
)  # fmt: skip
fields = st.sampled_from(
    [*PLAIN, "head_dim", "layer_types", "sliding_window", "num_experts", "num_local_experts",
     "moe_intermediate_size", "kv_lora_rank", "q_lora_rank", "first_k_dense_replace",
     "mlp_only_layers", "moe_layers", "tie_word_embeddings", "no_rope_layers", "text_config",
     "n_shared_experts", "quantization_config", "attention_chunk_size", "torch_dtype"]
)  # fmt: skip


@settings(max_examples=300, deadline=None)
@given(st.dictionaries(fields, junk, max_size=6))
def test_whatever_stands_in_a_field_it_is_read_or_refused(changes):
    try:
        text = json.dumps({**PLAIN, **changes})
        found = read_config(text)
    except Unreadable:
        return
    assert counts(found.shape).total > 0


@settings(max_examples=200, deadline=None)
@given(st.binary(max_size=200) | st.text(max_size=200))
def test_whatever_is_sent_is_read_or_refused(data):
    with pytest.raises(Unreadable):
        read_config(data)
