"""Many models at once give what the walk over each of their tables gives."""

import itertools
from dataclasses import replace

import numpy as np
import pytest

from core.memory import walk
from core.ops import Decode, Prefill, Train, executed_flops
from core.step_columns import AnswerColumns, TrainColumns
from core.transformer import model_ops
from core.units import BF16, FP32
from core.work_columns import WORKS, WorkColumns
from tests.core.test_models import MODELS, STEPS

ATTENTIONS = ("flash", "explicit")
WORKLOADS = {
    "prefill": lambda b, t: Prefill(batch_size=b, seq_len=t, dtype=BF16),
    "decode": lambda b, t: Decode(batch_size=b, context=t, dtype=BF16),
    "train": lambda b, t: Train(batch_size=b, seq_len=t, dtype=BF16),
}


def shapes(attention: str):
    return [replace(shape, attention=attention) for shape in MODELS.values()]


@pytest.mark.parametrize("attention", ATTENTIONS)
@pytest.mark.parametrize("step", STEPS, ids=str)
@pytest.mark.parametrize(("batch_size", "seq_len"), [(2, 24), (5, 200), (64, 2)])
def test_peaks_are_those_of_the_walk(step, attention, batch_size, seq_len):
    step = replace(step, batch_size=batch_size, seq_len=seq_len)
    found = TrainColumns(shapes(attention), step).at(batch_size, seq_len)
    for i, shape in enumerate(shapes(attention)):
        ops = model_ops(shape, step)
        moments = list(walk(ops))
        gradients = sum(op.repeat * op.n_params for op in ops) * step.dtype.n_bytes
        assert found.peak[i] == max(gradients, *(m.highest_bytes for m in moments))
        forward = max(m.highest_bytes for m in moments if m.phase == "forward")
        assert found.phase_peaks["forward"][i] == forward
        kept = sum(op.repeat * op.saved_bytes for op in ops)
        assert found.activations[i] + found.logits[i] == kept


@pytest.mark.parametrize("attention", ATTENTIONS)
@pytest.mark.parametrize("step", STEPS, ids=str)
def test_a_peak_is_the_sum_of_its_parts_and_none_is_negative(step, attention):
    columns = TrainColumns(shapes(attention), step)
    for batch_size, seq_len in itertools.product((1, 3), (2, 64, 1000)):
        found = columns.at(batch_size, seq_len)
        parts = (
            found.peak_activations,
            found.peak_logits,
            found.peak_gradients,
            found.peak_rest,
        )
        assert sum(parts) == pytest.approx(found.peak), (batch_size, seq_len)
        assert min(part.min() for part in parts) >= 0


def test_the_peak_moves_from_the_end_of_backward_to_the_loss_as_the_batch_grows():
    columns = TrainColumns(shapes("flash"), Train(batch_size=1, seq_len=1))
    few, many = columns.at(1, 1), columns.at(64, 256)
    assert all(op.startswith("embed") for op in few.op), few.op
    assert all(op.startswith(("loss", "head")) for op in many.op), many.op


@pytest.mark.parametrize("dtype", [FP32, BF16], ids=str)
def test_an_answer_holds_for_a_moment_what_its_table_says(dtype):
    found = AnswerColumns(shapes("flash"), dtype).at(1, 100)
    for i, shape in enumerate(shapes("flash")):
        ops = model_ops(shape, Prefill(batch_size=1, seq_len=100, dtype=dtype))
        before_head = [m for m in walk(ops) if m.op not in ("head", "loss")]
        most = max(m.highest_bytes for m in before_head if m.phase == "forward")
        assert found[i] == most + shape.vocab_size * 4


@pytest.mark.parametrize("work", WORKS)
@pytest.mark.parametrize(("batch_size", "tokens"), [(1, 1), (2, 24), (3, 200)])
def test_work_is_that_of_each_table(work, batch_size, tokens):
    columns = WorkColumns(list(MODELS.values()), work, BF16)
    found = columns.at(batch_size, tokens)
    for i, shape in enumerate(MODELS.values()):
        ops = model_ops(shape, WORKLOADS[work](batch_size, tokens))
        mine = columns.model == i
        flops = [op.repeat * op.forward_flops for op in ops]
        assert list(found.forward_flops[mine]) == flops
        assert list(found.cache_bytes[mine]) == [op.repeat * op.cache_bytes for op in ops]
        executed = executed_flops(ops)
        assert found.flops[mine].sum() == executed


def test_a_decode_reads_every_matrix_once_and_of_the_experts_those_it_meets():
    columns = WorkColumns(list(MODELS.values()), "decode", BF16)
    one, many = columns.at(1, 10), columns.at(4096, 10)
    for i, shape in enumerate(MODELS.values()):
        ops = model_ops(shape, Decode(batch_size=1, context=10))
        mine = columns.model == i
        head = shape.vocab_size * shape.d_model if shape.tied else 0
        least, most = one.weights[mine], many.weights[mine]
        active = sum(
            op.repeat * max(op.param_sizes) * op.experts_per_token // op.n_experts
            for op in ops
            if op.kind in ("linear", "experts") and op.param_sizes
        )
        if "recurrent" not in columns.kinds[mine.argmax() : mine.argmax() + mine.sum()]:
            assert least.sum() == pytest.approx(active + head)
        assert (most >= least).all()


def test_moved_bytes_leave_the_weights_out():
    columns = WorkColumns([MODELS["llama"], MODELS["gpt"]], "prefill", BF16)
    few, more = columns.at(1, 10), columns.at(1, 20)
    assert (few.moved_bytes <= more.moved_bytes).all()
    # Twice the tokens move twice the bytes, where no table of weights stands behind them.
    linear = np.isin(columns.kinds, ("linear", "rmsnorm", "silu"))
    assert more.moved_bytes[linear].sum() == pytest.approx(
        2 * few.moved_bytes[linear].sum(), rel=0.02
    )
