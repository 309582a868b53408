"""A kind of work meets the rates of its format, and an unknown peak is not replaced."""

from pathlib import Path

import pytest

from core import latency
from core.catalog import find_device, find_model
from core.device_rates import calibrated, clock_of, machine_rates, serving_rates, training_rates
from core.footprints import Serving, Training
from tests.core.calibrations import calibration, keep_all

LLAMA = find_model("llama-3.1-8b").shape


def test_fp8_is_multiplied_at_its_own_peak_where_there_is_one():
    h100, a100 = find_device("h100-sxm-80gb"), find_device("a100-sxm-80gb")
    how = Serving(weight_format="fp8")
    assert serving_rates(h100, LLAMA, how, "decode").rates.peak_flops == h100.peak_flops["fp8"]
    on_a100 = serving_rates(a100, LLAMA, how, "decode")
    assert (on_a100.computes, on_a100.rates.peak_flops) == ("bf16", a100.peak_flops["bf16"])


@pytest.mark.parametrize("weights", ["nf4", "Q4_K_M", "int8", "bf16"])
def test_weights_in_fewer_bits_are_multiplied_in_sixteen(weights: str):
    h100 = find_device("h100-sxm-80gb")
    using = serving_rates(h100, LLAMA, Serving(weight_format=weights), "prefill")
    assert using.rates.peak_flops == h100.peak_flops["bf16"]


def test_a_peak_that_is_not_published_is_said_to_be_missing():
    using = training_rates(find_device("apple-m3-ultra"), Training(recipe="mixed16"))
    assert using.rates.peak_flops is None and not using.known
    assert "no dense bf16 peak of Apple M3 Ultra" in using.missing
    fp32 = training_rates(find_device("h100-sxm-80gb"), Training(recipe="fp32"))
    assert fp32.rates.peak_flops is None and "fp32" in fp32.missing


def test_this_machine_reads_as_its_largest_working_set_and_multiplies_as_its_fastest_product():
    found = calibration()
    using = machine_rates("this machine", found)
    assert using.rates.bandwidth_bytes_s == found.paces[-1].read_bytes_per_s
    assert using.rates.peak_flops == 1e11
    assert (using.memory, using.compute) == (None, None)


def test_a_calibration_is_read_again_when_a_new_one_is_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(latency, "SHIPPED", tmp_path / "none")
    assert calibrated(tmp_path, "bf16", 1) is None
    keep_all(tmp_path)
    found = calibrated(tmp_path, "bf16", 1)
    assert found is not None and found.weight_format == "bf16"
    assert calibrated(tmp_path, "nf4", 1) == found  # its products are bf16's
    assert clock_of(tmp_path, "bf16", 1) is clock_of(tmp_path, "bf16", 1)
