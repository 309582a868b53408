"""What an answer's settings predict is what its run tells; both have their arithmetic beside."""

import dataclasses
import re
from pathlib import Path

import pytest

from core import answers, latency, pretrained
from core.answer_account import BYTES, TIMES, Told, machine_of, predicted_bytes, predicted_times
from core.machines import host
from core.quantities import QUANTITIES
from core.recordings import FOLDER
from core.shapes import TransformerShape
from core.specs import GenerateSpec
from core.trace import Trace


@pytest.fixture(autouse=True)
def uncalibrated(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Whatever machine the tests run on: the calibration that is shipped is of another."""
    monkeypatch.setattr(latency, "SHIPPED", tmp_path / "shipped")


RECORDED = Trace.read(FOLDER / "sum")
SUM = GenerateSpec(model="addition", prompt="12+34=", max_new_tokens=3, context=8)
SHAPE = TransformerShape(
    vocab_size=260, n_layer=2, d_model=64, n_head=4, n_kv_head=2, d_ff=96, max_seq_len=128,
    norm="rmsnorm", mlp="swiglu", positions="rope", bias=False,
)  # fmt: skip
FORMATS = ("fp32", "bf16", "int8", "int4")


def test_a_recorded_answer_is_predicted():
    told = Told.by(RECORDED)
    found = predicted_bytes(SUM, pretrained.shape_of("addition"), told.n_prompt, told.n_trips)
    assert tuple(found) == BYTES
    for quantity, prediction in found.items():
        error = prediction.value / told.measured[quantity] - 1
        assert abs(error) <= QUANTITIES[quantity].tolerance, quantity


def test_what_a_run_told_is_kept_by_quantity():
    told = Told.by(RECORDED)
    assert told.text == "046"
    assert (told.n_prompt, told.n_trips) == (6, 3)
    assert told.before == told.after != ""
    assert set(told.measured) == {*BYTES, *TIMES}
    first = next(value for _, value in RECORDED.scalars("peak_bytes"))
    assert told.measured["answer_peak_bytes"] == first


def test_a_run_that_goes_on_has_told_so_far():
    events = [e for e in RECORDED.events if getattr(e, "step", 0) == 0][:-1]
    told = Told.by(Trace(events))
    assert told.text == "0"
    assert told.n_trips == 1
    assert told.after == ""
    assert "tpot_s" not in told.measured


def test_nothing_is_known_of_a_run_that_said_nothing():
    told = Told.by(Trace())
    assert (told.n_prompt, told.n_trips, told.text, told.measured) == (0, 0, "", {})


@pytest.mark.parametrize("weight_format", FORMATS)
@pytest.mark.parametrize("learned", [False, True])
@pytest.mark.parametrize("tied", [False, True])
def test_the_arithmetic_adds_up(weight_format: str, learned: bool, tied: bool):
    """Every line that a page prints can be worked out by its reader."""
    shape = dataclasses.replace(SHAPE, tied=tied, positions="learned" if learned else "rope")
    spec = GenerateSpec(weight_format=weight_format, context=64, batch_size=3)
    for quantity, prediction in predicted_bytes(spec, shape, 7).items():
        terms, value = prediction.arithmetic.replace("×", "*").split(" = ")
        assert re.fullmatch(r"[\d +*]+", terms), quantity
        assert eval(terms) == int(value) == prediction.value, quantity
    held = predicted_bytes(spec, shape, 7)["held_bytes"].value
    assert held == answers.held_bytes(shape, weight_format)


def test_each_token_fills_the_cache_further():
    """By one token's keys and values of every sequence; the newest token is not read yet."""

    def filled(n_prompt: int, n_trips: int) -> float:
        spec = GenerateSpec(context=64, batch_size=3)
        return predicted_bytes(spec, SHAPE, n_prompt, n_trips)["kv_filled_bytes"].value

    of_a_token = 2 * SHAPE.n_layer * 3 * SHAPE.d_kv * 4
    assert filled(5, 1) == 5 * of_a_token
    assert filled(5, 2) - filled(5, 1) == of_a_token
    assert filled(60, 30) == 64 * of_a_token  # it is full


def test_a_full_cache_is_filled_to_its_room():
    found = predicted_bytes(GenerateSpec(context=64), SHAPE, 64, 1)
    assert found["kv_filled_bytes"].value == found["kv_cache_bytes"].value


def test_without_a_calibration_no_time_is_predicted(tmp_path: Path):
    assert latency.stored(tmp_path, "fp32", 1) is None
    assert predicted_times(SUM, pretrained.shape_of("addition"), 6, tmp_path) == {}


def test_times_are_predicted_for_the_machine_that_a_run_ran_on(tmp_path: Path):
    here = host()
    assert RECORDED.started is not None
    assert machine_of(Trace([RECORDED.started])) == RECORDED.started.machine
    assert machine_of(Trace()) is None
    assert latency.fingerprint(here | {"load_1min": 99}) == latency.fingerprint()
    elsewhere = here | {"cpu": "another"}
    assert latency.fingerprint(elsewhere) != latency.fingerprint()
    shape = pretrained.shape_of("addition")
    assert predicted_times(SUM, shape, 6, tmp_path, elsewhere) == {}
