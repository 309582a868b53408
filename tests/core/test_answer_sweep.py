"""Answers at one value of a setting after another, on the small model that is shipped."""

import pytest

from core.engine.answer_sweep import AnswerSweep
from core.events import Event, Sample, Scalar
from core.specs import AnswerSweepSpec


def told(over: str) -> tuple[AnswerSweepSpec, list[Event]]:
    spec = AnswerSweepSpec(
        over=over, model="addition", prompt="12+34=", max_new_tokens=2, context=8
    )
    run = AnswerSweep(spec)
    events = list(run.opening())
    while not run.done:
        run.tick()
        events += run.frame()
    return spec, events


@pytest.mark.parametrize("over", ["weight_format", "batch_size", "cache", "context"])
def test_every_point_has_its_time(over: str):
    spec, events = told(over)
    points = spec.points_within(8)
    for i in range(len(points)):
        found = {e.name: e.value for e in events if isinstance(e, Scalar) and e.step == i}
        assert found["tpot_s"] > 0, points[i]
        assert found["tokens_per_s"] > 0
    names = {e.text for e in events if isinstance(e, Sample) and e.name == "point"}
    assert len(names) == len(points)


def test_formats_tell_how_far_they_moved_the_logits():
    spec, events = told("weight_format")
    moved = {
        e.step: e.value for e in events if isinstance(e, Scalar) and e.name == "logits_max_diff"
    }
    by_name = {spec.points[i]: value for i, value in moved.items()}
    assert by_name["fp32"] == 0
    assert 0 < by_name["bf16"] < by_name["int4"]


def test_a_batch_reads_the_weights_once_for_all():
    """Tokens a second rise with the batch, on any machine: from 1 to 32 sequences at least."""
    _, events = told("batch_size")
    rates = [e.value for e in events if isinstance(e, Scalar) and e.name == "tokens_per_s"]
    assert max(rates) > rates[0]
