"""The predicted rate of a step is a sum over its op table, at the speeds of one machine."""

import dataclasses
import math

import pytest

from core.latency import Calibration, Pace
from core.ops import executed_flops
from core.specimens import torch_step
from core.specs import AdditionSpec
from core.step_latency import PASSES, predicted_rate

MACHINE = Calibration(
    weight_format="fp32",
    threads=1,
    machine="",
    cpu="",
    measured_unix_s=0.0,
    took_s=0.0,
    load_1min=0.0,
    paces=(
        Pace(
            working_set_bytes=1,
            dispatch_s={"add": 1e-6, "linear": 2e-6},
            read_bytes_per_s=1e9,
            head_bytes_per_s=1e9,
            cache_bytes_per_s=1e9,
        ),
    ),
    product_flops_per_s=((2, 1e9), (4096, 1e9)),
    attention_flops_per_s=((2, 1e9),),
    moved_bytes_per_s=1e10,
    pick_s_per_logit=0.0,
)
SPEC = AdditionSpec()


@pytest.mark.parametrize(("optimizer", "numbers"), [("sgd", 3), ("momentum", 5), ("adamw", 7)])
def test_a_step_is_starting_products_and_update(optimizer: str, numbers: int):
    """Read and written of every weight: w, g, w; for each buffer twice more."""
    step = torch_step(dataclasses.replace(SPEC, optimizer=optimizer))
    starts = PASSES * sum(op.repeat * (2e-6 if op.kind == "linear" else 1e-6) for op in step.ops)
    n_params = sum(op.repeat * op.n_params for op in step.ops)
    seconds = starts + executed_flops(step.ops) / 1e9 + numbers * n_params * 4 / 1e10
    found = predicted_rate(step, MACHINE)
    assert found.value == pytest.approx(SPEC.batch_size * SPEC.seq_len / seconds)
    assert found.arithmetic.endswith(f"= {found.value:.4g}")


def test_micro_batches_are_read_one_after_another_and_update_once():
    one = torch_step(SPEC)
    four = torch_step(dataclasses.replace(SPEC, accumulation=4))
    few, many = predicted_rate(one, MACHINE).value, predicted_rate(four, MACHINE).value
    assert few < many < 4 * few


def test_a_faster_machine_trains_faster():
    step = torch_step(SPEC)
    faster = dataclasses.replace(MACHINE, product_flops_per_s=((2, 2e9), (4096, 2e9)))
    assert predicted_rate(step, faster).value > predicted_rate(step, MACHINE).value


def test_products_run_at_the_speed_of_so_many_vectors():
    curve = ((2.0, 1e9), (8.0, 4e9))
    machine = dataclasses.replace(MACHINE, product_flops_per_s=curve)
    assert [machine.product_rate(n) for n in (8, 1000)] == pytest.approx([4e9, 4e9])
    assert machine.product_rate(1) == pytest.approx(1e9)
    assert 1e9 < machine.product_rate(4) < 4e9
    assert math.isfinite(machine.product_rate(0))
