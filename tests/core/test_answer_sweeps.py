"""Every point of a sweep has its own settings, prediction and measurement."""

from pathlib import Path

import pytest

from core import answers, latency
from core.answer_sweeps import fits, held_bytes, points_of
from core.events import Scalar
from core.ops import Decode, Prefill
from core.shapes import TransformerShape
from core.specs import AnswerSweepSpec, GenerateSpec
from core.trace import Trace
from tests.core.calibrations import calibration


@pytest.fixture(autouse=True)
def uncalibrated(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Whatever machine the tests run on: the calibration that is shipped is of another."""
    monkeypatch.setattr(latency, "SHIPPED", tmp_path / "shipped")


SHAPE = TransformerShape(
    vocab_size=260, n_layer=2, d_model=64, n_head=4, n_kv_head=2, d_ff=96, max_seq_len=128,
    norm="rmsnorm", mlp="swiglu", positions="rope", bias=False,
)  # fmt: skip


def test_each_format_reads_its_own_bytes(tmp_path: Path):
    sweep = AnswerSweepSpec.of(GenerateSpec(), "weight_format")
    points = points_of(sweep, SHAPE, 5, tmp_path, None)
    assert [p.value for p in points] == ["fp32", "bf16", "int8", "int4", "file"]
    for point in points:
        found = answers.read_bytes_per_token(SHAPE, point.value).value
        assert point.read_bytes == found
        assert point.spec.weight_format == point.value
        assert (point.tpot_predicted_s, point.measured) == (None, {})


def test_points_that_were_measured_say_so(tmp_path: Path):
    sweep = AnswerSweepSpec.of(GenerateSpec(), "batch_size")
    said = Trace([Scalar(step=i, name="tpot_s", value=0.1 * (i + 1)) for i in range(2)])
    points = points_of(sweep, SHAPE, 5, tmp_path, said)
    assert [p.tpot_s for p in points] == [0.1, 0.2, None, None, None, None]


def test_a_context_is_no_longer_than_the_model_was_made_for(tmp_path: Path):
    sweep = AnswerSweepSpec.of(GenerateSpec(), "context")
    assert sweep.points_within(SHAPE.max_seq_len) == (32, 64, 128)
    assert [p.spec.context for p in points_of(sweep, SHAPE, 5, tmp_path, None)] == [32, 64, 128]


def test_times_are_those_of_a_trip(tmp_path: Path):
    """A token with the cache, and all the text at once: what it would cost without."""
    made = calibration("fp32")
    latency.keep(tmp_path, made)
    sweep = AnswerSweepSpec.of(GenerateSpec(), "context")
    for point in points_of(sweep, SHAPE, 5, tmp_path, None):
        n = int(point.value)
        one = latency.trip(SHAPE, Decode(batch_size=1, context=n), made)
        many = latency.trip(SHAPE, Prefill(batch_size=1, seq_len=n), made)
        assert point.tpot_predicted_s == one.seconds
        assert point.reread_predicted_s == many.seconds


def test_without_the_cache_a_token_is_predicted_to_read_all(tmp_path: Path):
    latency.keep(tmp_path, calibration("fp32"))
    sweep = AnswerSweepSpec.of(GenerateSpec(), "cache")
    on, off = points_of(sweep, SHAPE, 5, tmp_path, None)
    assert (on.value, off.value) == ("on", "off")
    assert off.tpot_predicted_s == off.reread_predicted_s == on.reread_predicted_s


def test_formats_hold_all_their_weights_at_once():
    sweep = AnswerSweepSpec.of(GenerateSpec(), "weight_format")
    rest = sum(answers.held_bytes(SHAPE, f) for f in ("bf16", "int8", "int4", "file"))
    assert held_bytes(sweep, SHAPE, 5) == answers.peak_bytes(GenerateSpec(), SHAPE, 5).value + rest


def test_a_sweep_fits_if_its_largest_point_does(monkeypatch: pytest.MonkeyPatch):
    sweep = AnswerSweepSpec.of(GenerateSpec(), "batch_size")
    most = held_bytes(sweep, SHAPE, 5)
    assert most == answers.peak_bytes(sweep.at(32), SHAPE, 5).value
    for limit, expected in ((most, True), (most - 1, False)):
        monkeypatch.setenv("BOTHWAYS_MAX_RUN_BYTES", str(limit))
        assert fits(sweep, SHAPE, 5) is expected
