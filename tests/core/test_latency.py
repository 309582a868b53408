"""Predicted times: sums over the op table, from a calibration that is kept and found again."""

import dataclasses
from pathlib import Path

import pytest

from core import latency, pretrained
from core.latency import predict_answer
from core.machines import host
from core.specs import GenerateSpec
from tests.core.calibrations import PACE, calibration

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
    faster = dataclasses.replace(PACE, read_bytes_per_s=2e10, head_bytes_per_s=2e10)
    quick = dataclasses.replace(CALIBRATION, paces=(faster,))
    found = predict_answer(SHAPE, SPEC, 6, quick)["tpot_weights_s"].value
    assert found == pytest.approx(times()["tpot_weights_s"] / 2, rel=1e-6)


def test_without_a_cache_a_further_token_takes_longer():
    assert times(cache=False)["tpot_s"] > times()["tpot_s"]


def test_a_calibration_is_found_again(tmp_path: Path):
    latency.keep(tmp_path, CALIBRATION)
    assert latency.stored(tmp_path, "fp32", 1) == CALIBRATION
    assert latency.stored(tmp_path, "fp32", 1, host()) == CALIBRATION
    assert latency.stored(tmp_path, "fp32", 3) is None


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
