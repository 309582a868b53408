"""Adapters of bytes, parameters, bits and files: a row's inputs put into the pages' functions."""

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


def _states(given: Inputs) -> Answer:
    n_params = given.number("params")
    if given.has("estimator"):
        return states.deepspeed(
            n_params,
            estimator=given.text("estimator"),
            ranks=given.whole("gpus"),
            largest_layer=given.number("largest_layer", default=0),
            offload=given.text("offload", default="none"),
        )
    return states.sharded(
        n_params,
        weights=given.number("param_bytes"),
        gradients=given.number("grad_bytes"),
        states=given.number("optim_bytes"),
        stage=given.whole("zero_stage"),
        ranks=given.whole("dp", "gpus"),
        tensor_parallel=given.whole("tp", default=1),
        pipeline_parallel=given.whole("pp", default=1),
    )


def _training_states(given: Inputs) -> Answer:
    recipe = states.recipe_of(
        weights=given.text("weights"),
        gradients=given.text("grads"),
        moments=given.text("adam"),
        master=given.text("master", default="none"),
        accumulator="fp32" if given.flag("fp32_grad_accum") else "none",
    )
    return Bytes(recipe.bytes_per_param) * given.number("params")


def _bytes_per_param(given: Inputs) -> Answer:
    if given.has("param"):
        each = states.megatron_per_param(
            given.text("param"),
            given.text("grad"),
            distributed=given.flag("distributed"),
            ranks=given.whole("dp", default=1),
        )
    else:
        each = states.recipe_of(
            weights=given.text("weights"),
            gradients=given.text("grads"),
            moments=given.text("adam"),
            master=given.text("master", default="none"),
        ).bytes_per_param
    return Value(number=each, unit="B/param")


def _accelerate(given: Inputs) -> Answer:
    stages = states.accelerate_stages(given.text("weights"))
    return Value(number=states.largest_of_stages(stages), unit="B/param")


def _gpt_states(given: Inputs) -> Answer:
    layers, hidden = given.whole("layers"), given.whole("hidden")
    n_params = given.plain().get("params")
    if isinstance(n_params, str) or n_params is None:
        n_params = gpt_layers(layers, hidden)
    each = given.number("bytes_per_param")
    return states.sharded(
        n_params,
        weights=each,
        gradients=0,
        states=0,
        stage=0,
        ranks=1,
        tensor_parallel=given.whole("tp", default=1),
        pipeline_parallel=given.whole("pp", default=1),
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


def _first_stage(given: Inputs) -> Answer:
    return activations.first_stage_bytes(
        given.text("mode"),
        **_sizes(given),
        batch=given.whole("micro_batch", "batch"),
        layers=given.whole("layers"),
        tensor_parallel=given.whole("tp", default=1),
        stages=given.whole("pp", default=1),
        interleave=given.whole("interleave") if given.has("interleave") else None,
    )


def _share(given: Inputs) -> Answer:
    share = activations.share_of_baseline(
        given.text("mode"), **_sizes(given), tensor_parallel=given.whole("tp")
    )
    return Value(number=100 * share, unit="%")


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
    else:
        numbers = activations.gpt_saved_elements(
            dropout=given.number("dropout", default=0),
            explicit=given.text("attn") in ("naive", "explicit", "eager"),
            **_sizes(given),
        )
        each = states.size(given.text("dtype"))
    return Value(number=numbers * each, unit="B/(s*b*h)")


def _saved_loss(given: Inputs) -> Answer:
    upcast = "float" in given.text("logits")
    return Value(number=activations.loss_saved_bytes(upcast=upcast), unit="B/(s*b*V)")


# -- parameters and files -----------------------------------------------------------------------


def _params(given: Inputs) -> Answer:
    return Value(number=counts(shape_of(given)).total, unit="params")


def _active(given: Inputs) -> Answer:
    found = counts(shape_of(given))
    own = given.flag("exclude_input_embedding")
    n = found.active_without_input_embedding if own else found.active
    return Value(number=n, unit="params")


def _bits(given: Inputs) -> Answer:
    if given.has("block_bytes", "block_weights"):
        bits = bits_per_weight(given.whole("block_bytes"), given.whole("block_weights"))
        return Value(number=bits, unit="bit")
    named = {
        k: v
        for k, v in given.plain().items()
        if k in ("block", "scale", "scale_bits", "zero", "absmax", "double_quant", "block2")
    }
    try:
        bits = bits_of(given.text("format"), **named)
    except (ValueError, KeyError, TypeError, AttributeError) as why:
        raise Unsupported(str(why)) from None
    return Value(number=bits, unit="bit")


def _bytes_per_weight(given: Inputs) -> Answer:
    bits = _bits(given)
    assert isinstance(bits, Value)
    return Value(number=bits.number / 8, unit="B")


def _file(given: Inputs) -> Answer:
    n = given.number("params")
    if given.has("dtype_bytes"):
        return stored_bytes((n, 8 * given.number("dtype_bytes")))
    return stored_bytes((n, given.number("bits_per_weight", "implied_bpw", "bits")))


def _weights(given: Inputs) -> Answer:
    if given.has("expert_weights"):
        return stored_bytes(
            (given.number("expert_weights"), given.number("expert_bits")),
            (given.number("rest_params"), 8 * given.number("rest_bytes")),
        )
    if given.has("linear_params"):
        bits = 8.0 if given.flag("fp8") else 8 * given.number("linear_bytes")
        return stored_bytes(
            (given.number("linear_params"), bits),
            (given.number("embed_and_head_params"), 8 * given.number("embed_bytes")),
        )
    if given.has("bits") or given.has("bits_per_weight"):
        return _file(given)
    return stored_bytes(
        (given.number("params"), 8 * given.number("dtype_bytes", "bytes_per_param"))
    )


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
    if given.has("kv_format"):
        name = given.text("kv_format")
        if name not in cache.FORMATS:
            raise Unsupported(f"kv_format={name!r} is unknown")
        return cache.FORMATS[name].bytes_per_number
    return given.number("kv_bytes", default=2)


def _kv_per_token(given: Inputs) -> Answer:
    return cache.bytes_per_token(cached_shape(given), _kv_number(given))


def _kv(given: Inputs) -> Answer:
    n = given.whole("ctx", "n_ctx", "tokens")
    batch = given.whole("batch", default=1)
    if given.has("kv_bytes_per_token"):
        return cache.of_tokens(Bytes(given.number("kv_bytes_per_token")), n, batch_size=batch)
    return cache.cache_bytes(
        cached_shape(given),
        n,
        _kv_number(given),
        batch_size=batch,
        block=given.whole("block", default=1),
    )


def _kv_tokens(given: Inputs) -> Answer:
    pool = Bytes.of(given.number("kv_pool_gib"), "GiB")
    per_token = Bytes(given.number("kv_bytes_per_token"))
    return Value(number=cache.tokens_in_pool(pool, per_token, block=16), unit="tokens")


def _kv_delta(given: Inputs) -> Answer:
    return cache.cache_bytes(cached_shape(given), given.whole("delta_tokens"), _kv_number(given))


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
    "activation_bytes_per_layer": _copies,
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
            tensor_parallel=given.whole("tp", default=1),
            pipeline_parallel=given.whole("pp", default=1),
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
