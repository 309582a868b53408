"""Footprints of models of any size: the walk's own figures, and laws."""

import dataclasses

import pytest

from core.catalog import find_model, models
from core.counts import counts
from core.footprints import (
    SERVING,
    TRAINING,
    Serving,
    Shapes,
    Training,
    serving,
    train_step,
    training,
)
from core.ladder import shape_of_size
from core.memory import TorchStep, timeline
from core.quantised import weights_bytes
from core.states import OPTIMIZERS, RECIPES, with_optimizer
from tests.core.test_models import MODELS

HOW = Training(batch_size=2, seq_len=256)
ALL = Shapes([*MODELS.values(), *(m.shape for m in models().values())])


@pytest.mark.parametrize("recompute", [False, True])
@pytest.mark.parametrize("attention", ["flash", "explicit"])
@pytest.mark.parametrize(("recipe", "optimizer"), [("fp32", "adamw"), ("autocast", "momentum")])
def test_the_peak_is_that_of_the_step_that_the_engine_takes(
    recipe, optimizer, attention, recompute
):
    """Where an engine's step exists: to the byte, but for the optimizer's counters."""
    for n in (110_000, 1_000_000):
        shape = shape_of_size(n)
        how = Training(
            recipe=recipe,
            optimizer=optimizer,
            batch_size=2,
            seq_len=64,
            attention=attention,
            recompute=recompute,
        )
        found = training([shape.model], how)
        step = TorchStep(
            shape=dataclasses.replace(shape, attention=attention),
            workload=train_step(how),
            optimizer=optimizer,
        )
        expected = max(m.highest_bytes for m in timeline(step))
        tensors = sum(op.repeat * op.n_param_tensors for op in step.ops)
        counters = 4 * tensors if optimizer == "adamw" else 0
        assert found.peak[0] == expected - counters


@pytest.mark.parametrize("recipe", RECIPES)
def test_parts_add_up_to_the_peak_and_none_is_negative(recipe):
    for recompute in (False, True):
        found = training(ALL, dataclasses.replace(HOW, recipe=recipe, recompute=recompute))
        assert set(found.parts) == set(TRAINING)
        assert sum(found.parts.values()) == pytest.approx(found.peak)
        assert min(part.min() for part in found.parts.values()) >= 0
        most = [max(p[i] for p in found.phase_peaks.values()) for i in range(len(ALL))]
        assert most == pytest.approx(list(found.peak))


def test_states_are_the_recipes():
    for name, recipe in RECIPES.items():
        for optimizer in OPTIMIZERS:
            how = dataclasses.replace(HOW, recipe=name, optimizer=optimizer)
            found = training([MODELS["llama"]], how)
            n = counts(MODELS["llama"]).total
            held = with_optimizer(recipe, optimizer)
            assert found.parts["weights"][0] == n * held.weights
            assert found.parts["optimizer"][0] == n * held.states
            assert found.peak[0] >= n * held.bytes_per_param * (
                1 - held.gradients / held.bytes_per_param
            )


def test_a_step_needs_more_than_an_answer():
    steps = training(ALL, HOW)
    answers = serving(ALL, Serving(batch_size=2, context=256, weight_format="bf16"))
    assert (steps.peak > answers.peak).all()


def test_twice_the_batch_is_at_most_twice_and_more():
    fp32 = dataclasses.replace(HOW, recipe="fp32")  # autocast keeps copies of weights too
    one, two = (training(ALL, dataclasses.replace(fp32, batch_size=b)) for b in (4, 8))
    assert (two.peak >= one.peak).all()
    assert (two.peak <= 2 * one.peak).all()
    assert list(two.kept) == pytest.approx(list(2 * one.kept), rel=0.03)


def test_recomputing_keeps_less_and_explicit_attention_more():
    plain = training(ALL, HOW)
    again = training(ALL, dataclasses.replace(HOW, recompute=True))
    scores = training(ALL, dataclasses.replace(HOW, attention="explicit", seq_len=2048))
    flash = training(ALL, dataclasses.replace(HOW, seq_len=2048))
    assert (again.kept < plain.kept).all()
    recurrent = [all(layer.mixer.kind == "recurrent" for layer in shape.kinds()) for shape in ALL]
    assert not any(recurrent)
    assert (scores.kept > flash.kept).all()


def test_the_phase_of_the_peak_is_named_and_gradients_are_not_in_a_forward_peak():
    # The sketch of the page counted gradients into a peak at the end of forward.
    found = training(ALL, dataclasses.replace(HOW, recipe="fp32", batch_size=64, seq_len=1024))
    for i, phase in enumerate(found.phase):
        assert phase in ("forward", "loss", "backward", "update")
        assert found.op[i]
        if phase in ("forward", "loss"):
            assert found.parts["gradients"][i] == 0


def test_a_step_of_405_billion_peaks_where_its_gradients_are():
    shape = find_model("llama-3.1-405b").shape
    found = training([shape], Training(recipe="mixed16", batch_size=1, seq_len=2048))
    assert found.phase[0] == "backward" and found.op[0].startswith("embed")
    assert found.peak[0] == pytest.approx(16 * counts(shape).total, rel=0.01)


def test_answers_hold_weights_and_cache():
    shape = find_model("llama-3.1-8b").shape
    for name in ("bf16", "Q4_K_M", "awq-g128"):
        found = serving([shape], Serving(weight_format=name, context=8192, batch_size=4))
        assert set(found.parts) == set(SERVING)
        assert found.parts["weights"][0] == weights_bytes(shape, name).n
        assert found.parts["cache"][0] == 4 * 8192 * 131_072
        assert found.parts["temporaries"][0] > 0  # an estimate without it runs out of memory


def test_temporaries_of_an_answer_do_not_grow_with_layers():
    # llm-analysis multiplied what one layer hands to the next by all layers.
    layers = MODELS["llama"].layers
    deep = dataclasses.replace(MODELS["llama"], layers=((10 * layers[0][0], layers[0][1]),))
    few, many = serving([MODELS["llama"], deep], Serving(context=256)).parts["temporaries"]
    assert few == many
