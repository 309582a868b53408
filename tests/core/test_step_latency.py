"""The predicted time of a step is a sum over its op table, at the speeds of one machine."""

import dataclasses

import pytest

from core.latency import Cost
from core.ops import executed_flops
from core.specimens import torch_step
from core.specs import AdditionSpec
from core.step_latency import predicted_rate, predicted_step, update_bytes, work_of
from tests.core.calibrations import calibration, steps

SPEC = AdditionSpec()
STEP = torch_step(SPEC)
MACHINE = calibration()


def of_cost(**parts: float):
    """A machine on which every op costs the same."""
    nothing = {"start_s": 0.0, "flop_s": 0.0, "number_s": 0.0, "byte_s": 0.0}
    return calibration(steps={"fp32": steps("fp32", Cost(**(nothing | parts)))})


def test_operations_alone_are_those_that_are_executed():
    found = predicted_step(STEP, of_cost(flop_s=1e-9))
    assert found is not None
    assert found.value == pytest.approx(executed_flops(STEP.ops) * 1e-9)


def test_starts_alone_are_one_for_each_op_in_each_phase_and_the_update():
    found = predicted_step(STEP, of_cost(start_s=1.0))
    assert found is not None
    assert found.value == 2 * sum(op.repeat for op in STEP.ops) + 1


def test_bytes_alone_are_what_ops_move_and_the_update():
    found = predicted_step(STEP, of_cost(byte_s=1.0))
    n_params = sum(op.repeat * op.n_params for op in STEP.ops)
    moved = sum(
        op.repeat * work_of(op, phase, STEP.shape).n_bytes
        for op in STEP.ops
        for phase in ("forward", "backward")
    )
    assert found is not None
    assert found.value == pytest.approx(moved + update_bytes(n_params, "adamw"))


@pytest.mark.parametrize(("optimizer", "numbers"), [("sgd", 3), ("momentum", 5), ("adamw", 7)])
def test_an_update_reads_and_writes_every_weight(optimizer: str, numbers: int):
    """w, g, w; for each buffer twice more. AdamW: 28 bytes a parameter."""
    assert update_bytes(10, optimizer) == 10 * 4 * numbers


def test_a_block_that_is_computed_again_takes_longer():
    again = torch_step(dataclasses.replace(SPEC, checkpointing=True))
    few, more = predicted_step(STEP, MACHINE), predicted_step(again, MACHINE)
    assert few is not None and more is not None
    assert few.value < more.value < 2 * few.value


def test_the_arithmetic_adds_up():
    found = predicted_step(STEP, MACHINE)
    assert found is not None
    parts, _, total = found.arithmetic.rpartition(" = ")
    assert sum(map(float, parts.split(" + "))) == pytest.approx(float(total), rel=0.01)


def test_a_rate_is_tokens_over_seconds():
    found, seconds = predicted_rate(STEP, MACHINE), predicted_step(STEP, MACHINE)
    assert seconds is not None
    assert found.value == pytest.approx(SPEC.batch_size * SPEC.seq_len / seconds.value)
    assert found.arithmetic.endswith(f"= {found.value:.4g}")


def test_micro_batches_are_read_one_after_another_and_update_once():
    four = torch_step(dataclasses.replace(SPEC, accumulation=4))
    few, many = predicted_rate(STEP, MACHINE).value, predicted_rate(four, MACHINE).value
    assert few < many < 4 * few


def test_without_steps_of_its_precision_it_is_told_from_answers():
    machine = calibration(steps={})
    assert predicted_step(STEP, machine) is None
    found = predicted_rate(STEP, machine)
    assert found.value > 0
    faster = dataclasses.replace(machine, product_flops_per_s=((2.0, 1e11), (4096.0, 1e12)))
    assert predicted_rate(STEP, faster).value > found.value
