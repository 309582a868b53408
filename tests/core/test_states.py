"""Model states: published sums, sharding identities, and what calculators get wrong of them."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from core.sizes import Bytes
from core.states import (
    CONVENTIONS,
    OPTIMIZERS,
    RECIPES,
    accelerate_stages,
    adapted,
    data_parallel,
    deepspeed,
    largest_of_stages,
    megatron_per_param,
    recipe_of,
    sharded,
    sharded_per_param,
    with_optimizer,
)

params = st.integers(1, 10**13)
ranks = st.integers(1, 4096)
MIXED = {"weights": 2, "gradients": 2, "states": 12}


def test_recipes_are_the_conventions_that_name_them():
    for convention in CONVENTIONS:
        for name in convention.recipes:
            assert RECIPES[name].bytes_per_param == convention.bytes_per_param, name
    assert [c.bytes_per_param for c in CONVENTIONS] == [8, 10, 12, 15, 16, 18, 20]
    assert all(c.counts and c.ignores and c.used_by for c in CONVENTIONS)


@given(ranks)
def test_more_stages_hold_no_more(n):
    held = [sharded_per_param(**MIXED, stage=stage, ranks=n) for stage in range(4)]
    assert held == sorted(held, reverse=True)
    assert held[0] == 16
    assert held[3] == pytest.approx(16 / n)
    assert held[1] == pytest.approx(4 + 12 / n)
    assert held[2] == pytest.approx(2 + 14 / n)


@given(st.integers(0, 3))
def test_one_rank_splits_nothing(stage):
    assert sharded_per_param(**MIXED, stage=stage, ranks=1) == 16


@given(params, st.integers(0, 3), ranks, st.integers(1, 64), st.integers(1, 64))
def test_tensor_and_pipeline_parallelism_split_everything(n, stage, dp, tp, pp):
    whole = sharded(n, **MIXED, stage=stage, ranks=dp)
    part = sharded(n, **MIXED, stage=stage, ranks=dp, tensor_parallel=tp, pipeline_parallel=pp)
    assert whole.n == pytest.approx(part.n * tp * pp)


def test_zero_divides_by_data_parallel_ranks_and_not_by_all_devices():
    # cookbook divides ZeRO-3 by all GPUs after it has divided by TP and PP.
    part = sharded(8e9, **MIXED, stage=3, ranks=4, tensor_parallel=8, pipeline_parallel=2)
    assert part.n == pytest.approx(16 * 8e9 / (8 * 2) / 4)


def test_megatron_with_one_rank_is_the_table_without_its_optimizer():
    for param, gradient, each in (("fp16", "fp16", 20), ("bf16", "fp32", 18), ("fp32", "fp32", 16)):
        for distributed in (False, True):
            found = megatron_per_param(param, gradient, distributed=distributed, ranks=1)
            assert found == each
    assert megatron_per_param("bf16", "fp32", distributed=True, ranks=8) == 6 + 12 / 8
    assert megatron_per_param("fp16", "fp16", distributed=True, ranks=8) == 4 + 16 / 8


def test_deepspeed_as_documented_and_as_coded_are_two_figures():
    documented = deepspeed(2.851e9, estimator="zero2_docs", ranks=8)
    coded = deepspeed(2.851e9, estimator="zero2_head", ranks=8)
    assert documented.in_unit("GiB") == pytest.approx(15.93, rel=1e-3)
    assert coded.in_unit("GiB") == pytest.approx(11.28, rel=1e-3)


@given(ranks)
def test_more_devices_hold_less_each(n):
    for estimator in ("zero1", "zero2_docs", "zero2_head", "zero3"):
        few = deepspeed(1e9, estimator=estimator, ranks=n, largest_layer=1e7)
        many = deepspeed(1e9, estimator=estimator, ranks=n + 1, largest_layer=1e7)
        assert many <= few


def test_accelerate_says_a_maximum_and_not_a_sum():
    stages = accelerate_stages("fp32+fp16")
    assert largest_of_stages(stages) == 8
    assert RECIPES["mixed16"].bytes_per_param == 16 > largest_of_stages(stages)


def test_training_holds_more_than_answering():
    for recipe in RECIPES.values():
        for optimizer in OPTIMIZERS:
            held = with_optimizer(recipe, optimizer).bytes_per_param
            assert held >= recipe.weights + recipe.gradients > recipe.weights


def test_optimizers_by_what_they_keep():
    fp32 = RECIPES["fp32"]
    kept = {name: with_optimizer(fp32, name).moments for name in OPTIMIZERS}
    assert kept == {"adamw": 8, "adam8bit": 2, "adafactor": 0, "momentum": 4, "sgd": 0}
    assert with_optimizer(RECIPES["bf16"], "momentum").moments == 2


def test_qlora_holds_less_than_lora_and_lora_less_than_all():
    # gpu_poor estimated QLoRA above LoRA.
    n, adapter = 7e9, 20e6
    recipe = RECIPES["mixed16"]
    lora = adapted(n, adapter, base_bytes=2, recipe=recipe)
    qlora = adapted(n, adapter, base_bytes=4.127 / 8, recipe=recipe)
    full = Bytes(n * recipe.bytes_per_param)
    assert qlora < lora < full


def test_formats_by_name_and_bad_ones_named():
    assert recipe_of(weights="fp32+bf16", gradients="fp32", moments="fp32").bytes_per_param == 18
    with pytest.raises(ValueError, match="fp64"):
        recipe_of(weights="fp12", gradients="fp32", moments="fp32")
    with pytest.raises(ValueError, match="zero_stage"):
        sharded_per_param(**MIXED, stage=4, ranks=1)
    with pytest.raises(ValueError, match="choose 1 or more"):
        sharded_per_param(**MIXED, stage=1, ranks=0)
    with pytest.raises(ValueError, match="zero1"):
        deepspeed(1e9, estimator="zero9", ranks=1)


@given(st.integers(1, 64), st.integers(1, 16), st.integers(1, 16))
def test_data_parallel_ranks_are_what_is_left_over(dp, tp, pp):
    assert data_parallel(dp * tp * pp, tensor_parallel=tp, pipeline_parallel=pp) == dp
    if tp * pp > 1:
        with pytest.raises(ValueError, match="choose a multiple"):
            data_parallel(dp * tp * pp + 1, tensor_parallel=tp, pipeline_parallel=pp)


def test_norms_are_whole_on_every_tensor_parallel_device():
    # llm-analysis divided norms and their optimizer state by TP.
    how = {**MIXED, "stage": 0, "ranks": 1}
    norms = 2 * 80 * 8192 + 8192
    part = sharded(70e9, **how, tensor_parallel=8, replicated=norms)
    assert part.n == pytest.approx(16 * ((70e9 - norms) / 8 + norms))
    assert part > sharded(70e9, **how, tensor_parallel=8)
    assert sharded(70e9, **how, replicated=norms) == sharded(70e9, **how)
    with pytest.raises(ValueError, match="choose fewer"):
        sharded(10, **how, replicated=11)


@pytest.mark.parametrize(
    ("parts", "each"),
    [
        ({"weights": "fp32", "gradients": "fp32", "moments": "fp32"}, 16),
        ({"weights": "fp8", "gradients": "fp8", "master": "fp16", "moments": "fp8+fp16"}, 7),
        (  # DeepSeek-V3, in the Ultra-Scale Playbook's table of fp8
            {
                "weights": "fp8",
                "gradients": "bf16",
                "master": "fp32",
                "accumulator": "fp32",
                "moments": "bf16",
            },
            15,
        ),
        (
            {
                "weights": "fp8",
                "gradients": "fp8",
                "master": "bf16",
                "accumulator": "fp32",
                "moments": "fp8",
            },
            10,
        ),
    ],
)
def test_a_recipe_is_the_sum_of_its_parts(parts, each):
    assert recipe_of(**parts).bytes_per_param == each


def test_names_of_formats_and_optimizers_in_use_elsewhere():
    written = recipe_of(weights="float32+bfloat16", gradients="Float32", moments="8bit")
    assert written.bytes_per_param == 6 + 4 + 2
    sgd = recipe_of(weights="fp32", gradients="fp32", moments="fp32", optimizer="sgd")
    assert sgd.bytes_per_param == 8
    with pytest.raises(ValueError, match="adafactor"):
        recipe_of(weights="fp32", gradients="fp32", moments="fp32", optimizer="adamax")


def test_accelerates_stages_are_its_own():
    # commands/estimate.py: in fp32 the step is four times the weights, in 16 bits twice.
    assert accelerate_stages("fp32") == {"model": 4, "gradients": 4, "optimizer": 8, "step": 16}
    mixed = {"model": 4, "gradients": 6, "optimizer": 8, "step": 8}
    assert accelerate_stages("fp32+bf16") == accelerate_stages("fp16") == mixed


def test_zero3_on_the_cpu_leaves_the_largest_layer():
    # memory.rst: t5-3b, 8 GPUs, 0.78 GB with the optimizer on the CPU, 0.12 with weights too.
    held = {
        offload: deepspeed(
            2.851e9, estimator="zero3", ranks=8, largest_layer=32e6, offload=offload
        ).in_unit("GiB")
        for offload in ("none", "optimizer", "params")
    }
    assert [round(value, 2) for value in held.values()] == [6.09, 0.78, 0.12]
    with pytest.raises(ValueError, match="optimizer or params"):
        deepspeed(1e9, estimator="zero3", ranks=8, offload="disk")


def test_states_are_a_lower_bound_and_say_nothing_of_the_rest():
    # DeepSpeed 4527, 4093, 5305: states were read as all the memory there is. Of two devices with
    # the same states nothing says that one holds more; only states are ordered.
    for estimator in ("zero2_docs", "zero2_head"):
        states = deepspeed(6.805e9, estimator=estimator, ranks=4)
        assert states > deepspeed(6.805e9, estimator="zero3", ranks=4, largest_layer=131e6)
