"""Adapters of bytes, parameters, bits and files: a row's inputs put into the pages' functions."""

import re
from collections.abc import Callable, Mapping
from typing import Any

from core import activations, cache, states
from core.blocks import bits_of, bits_per_weight, stored_bytes
from core.conformance.answers import Answer, Inputs, Unsupported, Value
from core.conformance.models import cached_shape, shape_of
from core.counts import counts, gpt_layers
from core.quantised import file_bytes, llama_like, mix_bits_per_weight
from core.sizes import Bytes

# -- states -------------------------------------------------------------------------------------


# What rows may call the same thing -> its name here.
_OFFLOADS = {
    "cpu": "optimizer",
    "optim": "optimizer",
    "param": "params",
    "all": "params",
    "both": "params",
    "optimizer+params": "params",
    "params+optimizer": "params",
    "optimizer+param": "params",
    "param+optimizer": "params",
}
_ESTIMATORS = {"zero2_code": "zero2_head", "zero2_doc": "zero2_docs"}
_OPTIMIZERS = {
    "adam": "adamw",
    "adamw_8bit": "adam8bit",
    "adamw8bit": "adam8bit",
    "8bit_adam": "adam8bit",
    "adam_8bit": "adam8bit",
    "sgd_momentum": "momentum",
    "sgd+momentum": "momentum",
    "lion": "momentum",
}


def _parallel(given: Inputs) -> dict[str, int]:
    return {
        "tensor_parallel": given.whole("tp", default=1),
        "pipeline_parallel": given.whole("pp", default=1),
    }


def _ranks(given: Inputs) -> int:
    """Of data parallelism; of all devices, those that hold the same part."""
    if given.has("dp"):
        return given.whole("dp")
    return states.data_parallel(given.whole("gpus", "world_size", default=1), **_parallel(given))


def _estimator(given: Inputs) -> str:
    name = given.text("estimator").lower()
    if name == "zero2" and "18P" in given.text("formula", default=""):
        return "zero2_head"
    return _ESTIMATORS.get(name, name)


def _states(given: Inputs) -> Answer:
    n_params = given.number("params")
    if given.has("estimator"):
        offload = given.text("offload", default="none").lower()
        return states.deepspeed(
            n_params,
            estimator=_estimator(given),
            ranks=_ranks(given),
            largest_layer=given.number("largest_layer", default=0),
            offload=_OFFLOADS.get(offload, offload),
        )
    return states.sharded(
        n_params,
        weights=given.number("param_bytes"),
        gradients=given.number("grad_bytes"),
        states=given.number("optim_bytes"),
        stage=given.whole("zero_stage"),
        ranks=_ranks(given),
        replicated=given.number("replicated_params", default=0),
        **_parallel(given),
    )


def _recipe(given: Inputs) -> states.Recipe:
    optimizer = given.text("optimizer", default="adamw").lower()
    return states.recipe_of(
        weights=given.text("weights"),
        gradients=given.text("grads"),
        moments=given.text("adam", default="fp32" if given.has("optimizer") else None),
        master=given.text("master", default="none"),
        accumulator=given.text(
            "grad_accum", default="fp32" if given.flag("fp32_grad_accum") else "none"
        ),
        optimizer=_OPTIMIZERS.get(optimizer, optimizer),
    )


def _per_param(given: Inputs, recipe: states.Recipe) -> float:
    return states.sharded_per_param(
        weights=recipe.weights,
        gradients=recipe.gradients,
        states=recipe.states,
        stage=given.whole("zero_stage", default=0),
        ranks=_ranks(given),
    )


def _training_states(given: Inputs) -> Answer:
    return Bytes(_per_param(given, _recipe(given))) * given.number("params")


def _bytes_per_param(given: Inputs) -> Answer:
    if given.has("param"):
        each = states.megatron_per_param(
            given.text("param").lower(),
            given.text("grad").lower(),
            distributed=given.flag("distributed"),
            ranks=_ranks(given),
        )
    elif given.has("param_bytes"):
        each = states.sharded_per_param(
            weights=given.number("param_bytes"),
            gradients=given.number("grad_bytes"),
            states=given.number("optim_bytes"),
            stage=given.whole("zero_stage", default=0),
            ranks=_ranks(given),
        )
    else:
        each = _per_param(given, _recipe(given))
    return Value(number=each, unit="B/param")


def _accelerate(given: Inputs) -> Answer:
    stages = states.accelerate_stages(given.text("weights"))
    return Value(number=states.largest_of_stages(stages), unit="B/param")


_GPT_LAYERS = "12Lh2"  # the one formula of parameters that rows name


def _gpt_states(given: Inputs) -> Answer:
    layers, hidden = given.whole("layers"), given.whole("hidden")
    formula = given.plain().get("params", _GPT_LAYERS)
    if isinstance(formula, str):
        if re.sub(r"[\s*^]", "", formula) != _GPT_LAYERS:
            raise Unsupported(f"params={formula[:40]!r} is neither a number nor 12 L h^2")
        n_params = gpt_layers(layers, hidden)
    else:
        n_params = given.number("params")
    each = given.number("bytes_per_param")
    return states.sharded(
        n_params,
        weights=each,
        gradients=0,
        states=0,
        stage=0,
        ranks=1,
        **_parallel(given),
    )


def _checkpoint(given: Inputs) -> Answer:
    recipe = states.RECIPES["fp32"]
    return Bytes(recipe.weights + recipe.moments) * given.number("params")


# -- activations --------------------------------------------------------------------------------


def _sizes(given: Inputs) -> dict[str, int]:
    return {
        "seq": given.whole("seq"),
        "hidden": given.whole("hidden"),
        "heads": given.whole("heads"),
    }


_MODES = {
    "tp": "tp_no_sp_no_recompute",
    "baseline": "tp_no_sp_no_recompute",
    "tp+sp": "sp",
    "sp_no_recompute": "sp",
    "tp_sp_no_recompute": "sp",
    "tp+selective": "selective",
    "selective+sp": "sp+selective",
    "tp+sp+selective": "sp+selective",
    "full_recompute": "full",
    "full+sp": "sp+full",
    "tp+sp+full": "sp+full",
    "no_recompute": "none",
}


def _mode(given: Inputs) -> str:
    name = given.text("mode").lower()
    return _MODES.get(name, name)


def _maybe(given: Inputs, *names: str) -> int | None:
    return given.whole(*names) if any(given.has(name) for name in names) else None


def _first_stage(given: Inputs) -> Answer:
    return activations.first_stage_bytes(
        _mode(given),
        **_sizes(given),
        batch=given.whole("micro_batch", "batch"),
        layers=given.whole("layers"),
        tensor_parallel=given.whole("tp", default=1),
        stages=given.whole("pp", default=1),
        interleave=_maybe(given, "interleave"),
        micro_batches=_maybe(given, "micro_batches", "microbatches", "n_micro_batches"),
    )


def _share(given: Inputs) -> Answer:
    share = activations.share_of_baseline(
        _mode(given), **_sizes(given), tensor_parallel=given.whole("tp")
    )
    return Value(number=100 * share, unit="%")


def _of_layer(given: Inputs) -> Answer:
    if not given.has("mode"):
        return _copies(given)
    return activations.layer_bytes(
        _mode(given),
        **_sizes(given),
        batch=given.whole("micro_batch", "batch", default=1),
        tensor_parallel=given.whole("tp", default=1),
    )


def _copies(given: Inputs) -> Answer:
    return activations.copies_bytes(
        seq=given.whole("seq"),
        batch=given.whole("batch", "micro_batch", default=1),
        hidden=given.whole("hidden"),
        dtype_bytes=given.number("dtype_bytes"),
        copies=given.number("copies", default=1),
        layers=given.number("layers", default=1),
    )


def _logits(given: Inputs) -> Answer:
    return activations.logits_bytes(
        seq=given.whole("seq"),
        batch=given.whole("batch", default=1),
        vocab=given.whole("vocab"),
        dtype_bytes=given.number("dtype_bytes", default=4),
    )


def _saved(given: Inputs) -> Answer:
    if given.has("q_dim"):
        numbers = activations.llama_saved_elements(
            hidden=given.whole("hidden"),
            q_dim=given.whole("q_dim"),
            kv_dim=given.whole("kv_dim"),
            ffn=given.whole("ffn"),
            qk_norm=given.flag("qk_norm"),
        )
        each = states.size(given.text("dtype", default="bf16"))
        return Value(number=numbers * each, unit="B/(s*b*h)")
    # transformers' GPT-2 writes GELU out, drops by default, and its fused attention does so by hand
    said = " ".join(given.text(name, default="") for name in ("arch", "block", "gelu")).lower()
    hugging_face = "gelu_new" in said or "hf gpt-2" in said
    attn = given.text("attn").lower()
    dropout = given.number("dropout", default=0.1 if hugging_face else 0)
    by_hand = hugging_face and dropout > 0 and attn == "sdpa"
    number_format = given.text("dtype", default="bf16" if hugging_face else None)
    each = states.size(number_format)
    numbers = activations.gpt_saved_elements(
        dropout=dropout,
        explicit=by_hand or attn in ("naive", "explicit", "eager"),
        gelu_steps=hugging_face,
        widened=by_hand and number_format in ("bf16", "fp16"),
        **_sizes(given),
    )
    return Value(number=numbers * each, unit="B/(s*b*h)")


def _saved_loss(given: Inputs) -> Answer:
    upcast = any(word in given.text("logits").lower() for word in ("float", "fp32", "upcast"))
    return Value(number=activations.loss_saved_bytes(upcast=upcast), unit="B/(s*b*V)")


# -- parameters and files -----------------------------------------------------------------------


def _params(given: Inputs) -> Answer:
    found = counts(shape_of(given))
    left_out = 0
    if given.flag("exclude_input_embedding"):
        left_out += found.input_embedding
    if given.flag("non_embedding") or given.flag("exclude_positions"):
        left_out += found.positions
    return Value(number=found.total - left_out, unit="params")


def _active(given: Inputs) -> Answer:
    found = counts(shape_of(given))
    own = given.flag("exclude_input_embedding")
    n = found.active_without_input_embedding if own else found.active
    return Value(number=n, unit="params")


def _bits(given: Inputs) -> Answer:
    if given.has("block_bytes", "block_weights"):
        bits = bits_per_weight(given.whole("block_bytes"), given.whole("block_weights"))
        return Value(number=bits, unit="bit")
    bits = bits_of(
        given.text("format"),
        block=given.whole("block", "group", "group_size", default=0),
        scale=given.text("scale", default=""),
        scale_bits=given.whole("scale_bits", default=0),
        zero=given.text("zero", default=""),
        absmax=given.text("absmax", default=""),
        double_quant=given.flag("double_quant"),
        block2=given.whole("block2", default=256),
    )
    return Value(number=bits, unit="bit")


def _bytes_per_weight(given: Inputs) -> Answer:
    bits = _bits(given)
    assert isinstance(bits, Value)
    return Value(number=bits.number / 8, unit="B")


def _file(given: Inputs) -> Answer:
    n = given.number("params")
    return stored_bytes((n, _bits_each(given)))


def _bits_each(given: Inputs) -> float:
    """Of a weight, however a row says it."""
    for name in ("bits_per_weight", "implied_bpw", "bits", "bpw"):
        if given.has(name):
            return given.number(name)
    for name in ("format", "dtype"):
        if given.has(name):
            return bits_of(given.text(name))
    return 8 * given.number("dtype_bytes", "bytes_per_param", "bytes_per_weight")


def _weights(given: Inputs) -> Answer:
    if given.has("expert_weights"):
        return stored_bytes(
            (given.number("expert_weights"), given.number("expert_bits")),
            (given.number("rest_params"), 8 * given.number("rest_bytes")),
        )
    if given.has("linear_params"):
        return stored_bytes(
            (given.number("linear_params"), _linear_bits(given)),
            (given.number("embed_and_head_params"), 8 * given.number("embed_bytes", default=2)),
        )
    return _file(given)


def _linear_bits(given: Inputs) -> float:
    """A number, the name of a format, or a format that is switched on."""
    for name in ("linear_bits", "bits_per_weight", "bits"):
        if given.has(name):
            return given.number(name)
    for name in ("linear_format", "format"):
        if given.has(name):
            return bits_of(given.text(name))
    for name, value in given.plain().items():
        if value is True and name in ("fp8", "int8", "int4", "fp4", "nf4", "mxfp4", "nvfp4"):
            return bits_of(name)
    return 8 * given.number("linear_bytes")


MAX_LAYERS = 10_000  # of a file whose tensors are gone through one by one


def _mix_shape(given: Inputs) -> Any:
    layers = given.whole("layers")
    if layers > MAX_LAYERS:
        raise Unsupported(f"layers={layers:.3g} is more than {MAX_LAYERS:,}")
    return llama_like(
        hidden=given.whole("hidden"),
        layers=layers,
        q_dim=given.whole("q_dim"),
        kv_dim=given.whole("kv_dim"),
        ffn=given.whole("ffn"),
        vocab=given.whole("vocab"),
        tied=given.flag("tied"),
        experts=given.whole("experts", default=0),
    )


def _mix_bits(given: Inputs) -> Answer:
    bits = mix_bits_per_weight(
        _mix_shape(given), given.text("ftype"), imatrix=given.flag("imatrix")
    )
    return Value(number=bits, unit="bit")


def _mix_file(given: Inputs) -> Answer:
    return file_bytes(_mix_shape(given), given.text("ftype"), imatrix=given.flag("imatrix"))


# -- keys and values ----------------------------------------------------------------------------


def _kv_number(given: Inputs) -> float:
    for name in ("kv_format", "kv_dtype", "cache_type"):
        if given.has(name):
            stored = given.text(name).lower()
            if stored in cache.FORMATS:
                return cache.FORMATS[stored].bytes_per_number
            return stored_bytes((1, bits_of(given.text(name)))).n
    if given.has("kv_bits"):
        return stored_bytes((1, given.number("kv_bits"))).n
    return given.number("kv_bytes", default=2)


def _kv_per_token(given: Inputs) -> Answer:
    return cache.bytes_per_token(cached_shape(given), _kv_number(given))


def _batch(given: Inputs) -> int:
    return given.whole("batch", "batch_size", "sequences", "users", default=1)


def _block(given: Inputs, default: int) -> int:
    return given.whole("block", "block_size", "block_tokens", "page_size", default=default)


def _kv(given: Inputs) -> Answer:
    n = given.whole("ctx", "n_ctx", "context", "tokens", "seq")
    if given.has("kv_bytes_per_token"):
        per_token = Bytes(given.number("kv_bytes_per_token"))
        return cache.of_tokens(per_token, n, batch_size=_batch(given), block=_block(given, 1))
    return cache.cache_bytes(
        cached_shape(given),
        n,
        _kv_number(given),
        batch_size=_batch(given),
        block=_block(given, 1),
    )


def _kv_tokens(given: Inputs) -> Answer:
    if given.has("kv_bytes_per_token"):
        per_token = Bytes(given.number("kv_bytes_per_token"))
    else:
        per_token = cache.bytes_per_token(cached_shape(given), _kv_number(given))
    block = _block(given, cache.VLLM_BLOCK)
    n = cache.tokens_in_pool(given.size("kv_pool"), per_token, block=block)
    return Value(number=n, unit="tokens")


def _kv_delta(given: Inputs) -> Answer:
    return cache.cache_bytes(
        cached_shape(given),
        given.whole("delta_tokens"),
        _kv_number(given),
        batch_size=_batch(given),
    )


Adapter = Callable[[Inputs], Answer]
ADAPTERS: dict[str, Adapter] = {
    "model_state_bytes_per_gpu": _states,
    "training_state_bytes": _training_states,
    "bytes_per_param": _bytes_per_param,
    "bytes_per_param_reported_by_accelerate_fp16": _accelerate,
    "weights_grads_adam_bytes_per_gpu": _gpt_states,
    "checkpoint_bytes_fp32_adam": _checkpoint,
    "activation_bytes_first_stage": _first_stage,
    "activation_percent_of_tp_baseline": _share,
    "hidden_state_bytes": _copies,
    "activation_bytes_per_layer": _of_layer,
    "activation_checkpoint_bytes": _copies,
    "activation_bytes_all_layers": _copies,
    "logits_bytes_fp32": _logits,
    "saved_activation_bytes_per_sbh": _saved,
    "saved_loss_bytes_per_sbV": _saved_loss,
    "param_count": _params,
    "active_param_count": _active,
    "bits_per_weight": _bits,
    "bytes_per_weight": _bytes_per_weight,
    "file_bytes": _file,
    "weight_bytes": _weights,
    "claim_required_memory": _weights,
    "gguf_bits_per_weight_exact": _mix_bits,
    "gguf_file_bytes_exact": _mix_file,
    "kv_bytes_per_token": _kv_per_token,
    "kv_cache_bytes": _kv,
    "kv_tokens": _kv_tokens,
    "measured_memory_delta": _kv_delta,
}


# -- rows that are no figure to meet, but a bound to keep --------------------------------------


def _published_file(given: Inputs, expected: Bytes) -> tuple[bool, str]:
    """A published size is that of its bits, within 3 %."""
    own = _file(given)
    assert isinstance(own, Bytes)
    ratio = own / expected
    assert isinstance(ratio, float)
    return abs(ratio - 1) <= 0.03, f"predicted / published = {ratio:.4f}, within 3 %"


def _peak_over_states(given: Inputs, expected: Bytes) -> tuple[bool, str]:
    """No allocation is smaller than the states alone."""
    if given.has("hidden", "q_dim", "dp"):
        each = states.megatron_per_param(
            "bf16", "fp32", distributed=given.flag("distributed_optimizer"), ranks=given.whole("dp")
        )
        least = states.sharded(
            counts(_mix_shape(given)).total,
            weights=each,
            gradients=0,
            states=0,
            stage=0,
            ranks=1,
            **_parallel(given),
        )
    else:
        least = Bytes.of(given.number("closed_form_state_gib"), "GiB")
    ratio = expected / least
    assert isinstance(ratio, float)
    return ratio >= 1, f"measured / states = {ratio:.3f}, at least 1"


Relation = Callable[[Inputs, Bytes], tuple[bool, str]]
RELATIONS: Mapping[str, Relation] = {
    "file_bytes_published": _published_file,
    "peak_alloc_measured": _peak_over_states,
}
