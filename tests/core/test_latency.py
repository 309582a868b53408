"""Predicted times: sums over the op table, from a calibration that is kept and found again."""

import dataclasses
from pathlib import Path

import pytest

from core import latency, pretrained
from core.latency import predict_answer
from core.machines import host
from core.specs import GenerateSpec
from tests.core.calibrations import calibration, keep_all, pace

SPEC = GenerateSpec(model="addition", prompt="12+34=", max_new_tokens=3, context=8)
SHAPE = pretrained.shape_of("addition")
CALIBRATION = calibration()


def times(**changes: object) -> dict[str, float]:
    spec = dataclasses.replace(SPEC, **changes)  # type: ignore[arg-type]
    return {k: p.value for k, p in predict_answer(SHAPE, spec, 6, CALIBRATION).items()}


def test_a_further_token_is_its_parts():
    found = times()
    parts = ("tpot_overhead_s", "tpot_weights_s", "tpot_cache_s")
    assert sum(found[part] for part in parts) == pytest.approx(found["tpot_s"], rel=1e-6)
    assert all(found[part] > 0 for part in parts)


def test_tokens_a_second_come_of_both_times():
    found = times()
    expected = 3 / (found["ttft_s"] + 2 * found["tpot_s"])
    assert found["tokens_per_s"] == pytest.approx(expected, rel=0.02)


def test_twice_the_bandwidth_halves_the_reading():
    quick = dataclasses.replace(CALIBRATION, paces=(pace(2e10),))
    found = predict_answer(SHAPE, SPEC, 6, quick)["tpot_weights_s"].value
    assert found == pytest.approx(times()["tpot_weights_s"] / 2, rel=1e-6)


def test_without_a_cache_a_further_token_takes_longer():
    assert times(cache=False)["tpot_s"] > times()["tpot_s"]


def test_a_calibration_is_found_again(tmp_path: Path):
    keep_all(tmp_path)
    assert latency.stored(tmp_path, "fp32", 1) == CALIBRATION
    assert latency.stored(tmp_path, "fp32", 1, host()) == CALIBRATION
    assert set(CALIBRATION.steps) == {"fp32", "bf16"}
    assert latency.stored(tmp_path, "fp32", 3) is None


def test_larger_matrices_take_longer_and_beyond_the_largest_by_their_bytes():
    found = pace()
    sizes = (1e3, 1e5, 3e6, 1e7, 1e9)
    seconds = [found.product_s(n) for n in sizes]
    assert seconds == sorted(seconds)
    assert found.product_s(2e9) == pytest.approx(2 * found.product_s(1e9), rel=0.01)
    assert found.product_s(0) == 0


def test_between_two_paces_lies_one():
    slow, fast = pace(1e9), pace(1e10)
    both = dataclasses.replace(
        CALIBRATION,
        paces=(fast, dataclasses.replace(slow, working_set_bytes=100_000_000)),
    )
    found = [both.pace(n).product_s(1e6) for n in (1e6, 1e7, 1e8)]
    assert found[0] < found[1] < found[2]
    assert found[0] == pytest.approx(fast.product_s(1e6))
    assert found[2] == pytest.approx(slow.product_s(1e6))


def test_narrow_matrices_are_slower_to_multiply():
    assert CALIBRATION.product_rate(64, 1e4) < CALIBRATION.product_rate(64, 1e6)
    assert CALIBRATION.product_rate(2, 1e6) < CALIBRATION.product_rate(512, 1e6)


def test_a_calibration_of_another_layout_is_none(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(latency, "SHIPPED", tmp_path / "shipped")
    path = latency.keep(tmp_path, CALIBRATION)
    path.write_text(path.read_text().replace(f'"layout": {latency.LAYOUT}', '"layout": 1'))
    assert latency.stored(tmp_path, "fp32", 1) is None


def test_a_broken_calibration_is_none(tmp_path: Path):
    path = latency.keep(tmp_path, dataclasses.replace(CALIBRATION, threads=7))
    assert latency.stored(tmp_path, "fp32", 7) is not None
    path.write_text("{")
    assert latency.stored(tmp_path, "fp32", 7) is None


def test_the_recordings_machine_is_calibrated():
    """So that the first paint can set what was predicted beside what was measured."""
    from core.recordings import shipped
    from core.trace import Trace

    folder = shipped(GenerateSpec())
    assert folder is not None
    started = Trace.read(folder).started
    assert started is not None
    assert latency.stored(Path("/nowhere"), "fp32", 1, started.machine) is not None
