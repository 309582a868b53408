"""What the home page hands its widget: two runs, each as far as its lane draws it, in few bytes."""

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest

from components import both
from components.both import ANSWER, PAIRS, STEP, Both, Pair
from components.runs import View
from components.theme import COLOURS
from components.widgets.bothways import MAX_BYTES, N_TOP, message
from core.engine.train import started
from core.events import Array, Event, Memory, Sample, Scalar, Span, Token
from core.recordings import shipped
from core.specs import RunSpec
from core.trace import Trace
from tests.components.test_widget_message import ATTEMPT

each_pair = pytest.mark.parametrize("pair", PAIRS.values(), ids=PAIRS)
SUMS = PAIRS["sums"]


def recording(spec: RunSpec) -> View[Any]:
    folder = shipped(spec)
    assert folder is not None
    return View(spec=spec, attempt=None, folder=folder, trace=Trace.read(folder), live=False)


def attempt(spec: RunSpec, events: Iterable[Event] = ()) -> View[Any]:
    trace = Trace([started(spec, ATTEMPT), *events])
    return View(spec=spec, attempt=ATTEMPT, folder=Path(), trace=trace, live=True)


def shown(pair: Pair) -> Both:
    return Both(pair=pair, step=recording(pair.step), answer=recording(pair.answer))


def sent(runs: Both, *, polled: bool = False) -> tuple[dict[str, Any], dict[str, Trace], int]:
    """Header, the run of each lane as the browser reads it, and the bytes of all."""
    figures = {
        STEP: both.step_figures(runs.step, runs.pair),
        ANSWER: both.answer_figures(runs.answer, runs.pair),
    }
    data = message(runs, figures, both.takeaway(runs), polled=polled)
    at = 4 + int.from_bytes(data[:4], "little")
    header = json.loads(data[4:at])
    found = {}
    for name in (STEP, ANSWER):
        lane = header["lanes"][name]
        middle = at + lane["events_bytes"]
        end = middle + lane["arrays_bytes"]
        found[name] = Trace.parse(data[at:middle], data[middle:end])
        at = end
    assert at == len(data)
    return header, found, len(data)


def of(trace: Trace, kind: type) -> list[Any]:
    return [e for e in trace.events if isinstance(e, kind)]


@each_pair
def test_both_runs_fit_a_message(pair: Pair):
    header, _, n_bytes = sent(shown(pair))
    assert n_bytes <= MAX_BYTES
    assert header["colours"] == COLOURS
    assert header["lanes"][STEP]["stream"] is None and header["lanes"][ANSWER]["stream"] is None


@each_pair
def test_the_step_is_the_last_that_was_recorded_op_by_op(pair: Pair):
    runs = shown(pair)
    assert runs.step is not None
    _, found, _ = sent(runs)
    (step,) = found[STEP].recorded_steps
    assert step == runs.step.trace.recorded_steps[-1]
    for kind in (Span, Memory):
        whole = [e for e in of(runs.step.trace, kind) if e.step == step]
        assert of(found[STEP], kind) == whole
    told = found[STEP].scalars_of(step)
    assert told["peak_bytes"] == runs.step.trace.scalars_of(step)["peak_bytes"]
    assert any(name.startswith("norm.update_") for name in told)
    assert found[STEP].ended is not None


@each_pair
def test_every_part_of_the_model_has_its_values_and_its_gradients(pair: Pair):
    _, found, _ = sent(shown(pair))
    n_layer = len({e.op for e in of(found[STEP], Span) if e.op.endswith(".mlp.add")})
    for role in ("activation", "grad"):
        parts = {e.op for e in of(found[STEP], Array) if e.role == role}
        assert sum(op.endswith(".mlp.add") for op in parts) == n_layer
        assert {"embed.tokens", "head", "norm"} <= parts


@each_pair
def test_the_answer_has_every_token_and_every_trip(pair: Pair):
    runs = shown(pair)
    assert runs.answer is not None
    _, found, _ = sent(runs)
    whole, told = of(runs.answer.trace, Token), of(found[ANSWER], Token)
    assert [(e.id, e.text, e.start_s, e.end_s) for e in told] == [
        (e.id, e.text, e.start_s, e.end_s) for e in whole
    ]
    assert all(len(e.top) <= N_TOP for e in told)
    trips = sum(e.phase != "prompt" for e in told)
    for role in ("op_ends", "parts"):
        assert sum(e.role == role for e in of(found[ANSWER], Array)) == trips
    hashes = [e.text for e in of(found[ANSWER], Sample) if e.name.startswith("weights_sha256_")]
    assert len(hashes) == 2


def test_what_a_lane_does_not_draw_is_left_out():
    _, found, _ = sent(shown(SUMS))
    roles = {e.role for trace in found.values() for e in of(trace, Array)}
    assert not roles & {"weight", "attention", "frame_weight"}
    assert not [e for e in of(found[STEP], Sample) if e.name == "sum"]
    assert not [e for e in of(found[STEP], Scalar) if e.name.startswith("norm.grad")]


def test_a_live_run_is_streamed_and_one_that_is_polled_is_sent():
    runs = Both(pair=SUMS, step=recording(SUMS.step), answer=attempt(SUMS.answer))
    header, found, _ = sent(runs)
    lane = header["lanes"][ANSWER]
    assert lane["stream"] == f"./api/runs/{SUMS.answer.spec_id}/{ATTEMPT}"
    assert lane["live"] and not found[ANSWER].events
    assert lane["n_tokens"] == 3
    header, found, _ = sent(runs, polled=True)
    assert header["lanes"][ANSWER]["stream"] is None
    assert found[ANSWER].started is not None


def test_a_step_that_follows_is_waited_for():
    runs = Both(pair=SUMS, step=None, answer=recording(SUMS.answer), follows=True)
    header, found, _ = sent(runs)
    assert header["lanes"][STEP]["live"] and not found[STEP].events
    assert header["expected"][STEP] > header["expected"][ANSWER] > 0
    assert "once both have been recorded" in header["takeaway"]


def test_where_memory_has_too_many_samples_some_go_and_the_peak_stays(
    monkeypatch: pytest.MonkeyPatch,
):
    monkeypatch.setattr("components.widgets.bothways.MAX_BYTES", 400_000)
    monkeypatch.setattr("components.widgets.bothways.N_SAMPLES", 20)
    runs = shown(PAIRS["SmolLM2-135M"])
    assert runs.step is not None
    _, found, _ = sent(runs)
    memory = of(found[STEP], Memory)
    assert len(memory) <= 21
    peak = runs.step.last_recorded_scalars["peak_bytes"]
    assert max(sum(e.held_bytes.values()) for e in memory) == peak


# -- figures of a run that is not there yet -------------------------------------------------------


@each_pair
def test_predictions_stand_before_anything_is_measured(pair: Pair):
    step, answer = both.step_figures(None, pair), both.answer_figures(None, pair)
    assert [f.value for f in (*step[:2], *answer[:2])] == ["…"] * 4
    assert step[0].note.startswith("predicted ") and step[0].note.endswith(" · –")
    assert answer[0].note.startswith("predicted ")
    assert answer[2].note == "predicted 0 · –"


def test_of_a_run_that_is_under_way_its_first_step_is_predicted():
    waiting, none = (both.step_figures(view, SUMS)[0] for view in (attempt(SUMS.step), None))
    assert waiting.note == none.note


def test_a_weight_that_changed_while_answering_would_be_said():
    events = [
        Sample(step=0, name="weights_sha256_before", text="aaaa1"),
        Sample(step=3, name="weights_sha256_after", text="bbbb2"),
    ]
    figure = both.answer_figures(attempt(SUMS.answer, events), SUMS)[2]
    assert figure.value == "weights changed"
    assert figure.label == "sha aaaa → bbbb"
