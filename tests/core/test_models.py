"""The op table of published models: parameters, floating-point operations, cache, moves."""

import itertools
from dataclasses import replace

import pytest

from core.architecture import Attention, Experts, Latent, Layer, Mlp, ModelShape, Recurrent
from core.memory import walk
from core.ops import Decode, Prefill, Train, executed_flops, kv_cache_bytes, model_flops
from core.transformer import model_ops
from core.units import BF16, FP32


def attention(n_head=8, n_kv_head=2, d_head=16, **more) -> Attention:
    return Attention(n_head=n_head, n_kv_head=n_kv_head, d_head=d_head, **more)


LATENT = Latent(n_head=8, q_rank=24, kv_rank=32, d_rope=8, d_nope=16, d_value=16)
EXPERTS = Experts(n=8, top_k=2, d_ff=48, n_shared=1)
STATE = Recurrent(
    name="linear_attention",
    param_sizes=(64 * 96, 64 * 64, 16),
    matrix_sizes=(64 * 96, 64 * 64),
    state_numbers=8 * 16 * 16,
    kept_numbers=300,
)


def model(*layers: tuple[int, Layer], **more) -> ModelShape:
    values = {"vocab_size": 512, "d_model": 64, "max_seq_len": 256, **more}
    return ModelShape(layers=layers, **values)


MLP = Mlp(d_ff=160, gated=True)
MODELS = {
    "llama": model((3, Layer(mixer=attention(), mlp=MLP))),
    "gpt": model(
        (2, Layer(mixer=attention(n_kv_head=8), mlp=Mlp(d_ff=256, gated=False, bias=True))),
        norm="layernorm", norm_bias=True, positions="learned", tied=True,
    ),
    "qwen3": model((2, Layer(mixer=attention(qk_norm=True, d_head=32), mlp=MLP)), tied=True),
    "gemma": model(
        (3, Layer(mixer=attention(window=16), mlp=MLP, n_norms=4)),
        (1, Layer(mixer=attention(), mlp=MLP, n_norms=4)),
        tied=True,
    ),
    "phi": model(
        (2, Layer(
            mixer=attention(n_kv_head=8, qkv_bias=True, out_bias=True),
            mlp=Mlp(d_ff=256, gated=False, bias=True), n_norms=1,
        )),
        norm="layernorm", norm_bias=True, head_bias=True,
    ),
    "deepseek": model(
        (1, Layer(mixer=LATENT, mlp=MLP)), (3, Layer(mixer=LATENT, mlp=EXPERTS))
    ),
    "gpt-oss": model(
        (1, Layer(
            mixer=attention(window=16, sinks=True, qkv_bias=True, out_bias=True),
            mlp=Experts(n=8, top_k=2, d_ff=48, bias=True, router_bias=True),
        )),
        (1, Layer(
            mixer=attention(sinks=True, qkv_bias=True, out_bias=True),
            mlp=Experts(n=8, top_k=2, d_ff=48, bias=True, router_bias=True),
        )),
    ),
    "hybrid": model(
        (3, Layer(mixer=STATE, mlp=EXPERTS)), (1, Layer(mixer=attention(gate=True), mlp=MLP))
    ),
    "gated": model((2, Layer(mixer=attention(gate=True, qk_norm=True), mlp=EXPERTS))),
}  # fmt: skip
STEPS = [
    Train(batch_size=2, seq_len=24, dtype=dtype, autocast=autocast, checkpointing=again)
    for (dtype, autocast), again in itertools.product(
        ((FP32, None), (BF16, None), (FP32, BF16)), (False, True)
    )
]


def n_params(shape: ModelShape) -> int:
    return sum(op.repeat * op.n_params for op in model_ops(shape, Train(batch_size=1, seq_len=2)))


@pytest.mark.parametrize("attends", ["flash", "explicit"])
@pytest.mark.parametrize("step", STEPS, ids=str)
@pytest.mark.parametrize("name", MODELS)
def test_a_step_leaves_its_gradients_and_nothing_else(name, step, attends):
    shape = replace(MODELS[name], attention=attends)
    ops = model_ops(shape, step)
    *_, last = walk(ops)
    loss = step.dtype.n_bytes
    assert last.after_bytes - loss == n_params(shape) * step.dtype.n_bytes


@pytest.mark.parametrize("name", MODELS)
def test_what_is_kept_is_there_at_the_end_of_forward(name):
    step = Train(batch_size=2, seq_len=24)
    ops = model_ops(MODELS[name], step)
    end = [m for m in walk(ops) if m.phase in ("forward", "loss")][-1]
    assert end.after_bytes == sum(op.repeat * op.saved_bytes for op in ops) + FP32.n_bytes


@pytest.mark.parametrize("name", MODELS)
def test_no_moment_is_below_nothing(name):
    for step in STEPS:
        moments = list(walk(model_ops(MODELS[name], step)))
        assert min(m.after_bytes for m in moments) >= 0


def test_a_window_bounds_what_is_cached_and_multiplied():
    far, near = (
        model((2, Layer(mixer=attention(window=w), mlp=MLP))) for w in (0, 16)
    )  # fmt: skip
    cached = {
        context: [
            kv_cache_bytes(model_ops(shape, Decode(batch_size=1, context=context)))
            for shape in (far, near)
        ]
        for context in (8, 16, 128)
    }
    assert cached[8][0] == cached[8][1] > 0
    assert cached[128][1] == cached[16][1] == cached[16][0]
    prompt = Prefill(batch_size=1, seq_len=128)
    flops = [sum(o.repeat * o.forward_flops for o in model_ops(s, prompt)) for s in (far, near)]
    assert flops[0] > flops[1]


def test_latent_attention_caches_one_vector_and_one_rotary_key():
    ops = model_ops(MODELS["deepseek"], Decode(batch_size=3, context=100, dtype=BF16))
    assert kv_cache_bytes(ops) == 4 * 3 * 100 * (32 + 8) * 2


def test_a_recurrent_layer_keeps_as_much_however_long_the_text():
    short, long = (
        model_ops(model((2, Layer(mixer=STATE, mlp=MLP))), Decode(batch_size=1, context=n))
        for n in (10, 10_000)
    )
    assert kv_cache_bytes(short) == kv_cache_bytes(long) == 2 * 8 * 16 * 16 * 4


def test_a_token_meets_its_experts_and_no_others():
    ops = model_ops(MODELS["deepseek"], Train(batch_size=1, seq_len=1))
    dense = sum(op.repeat * op.n_params for op in ops if op.n_experts == 1)
    routed = sum(op.repeat * op.n_params for op in ops if op.n_experts > 1)
    active = sum(op.repeat * op.active_params for op in ops)
    assert active == dense + routed * 2 // 8
    matrices = sum(op.repeat * op.active_params for op in ops if op.kind in ("linear", "experts"))
    flops = sum(op.repeat * op.forward_flops for op in ops if op.kind in ("linear", "experts"))
    assert flops == 2 * matrices


def test_a_step_computes_three_times_a_forward_pass_where_nothing_is_fused():
    for shape in MODELS.values():
        ops = model_ops(replace(shape, attention="explicit"), Train(batch_size=2, seq_len=16))
        assert executed_flops(ops) == model_flops(ops)
