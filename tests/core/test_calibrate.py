"""Calibrating: what is timed is what it claims to be, and a busy machine is not believed."""

from pathlib import Path

import pytest
import torch

from core import latency
from core.engine import calibrate, calibrate_step, kernels
from core.engine.calibrate_step import fitted
from core.engine.train import run_of
from core.events import Event, Sample, Scalar
from core.specs import WEIGHT_FORMATS, CalibrationSpec


@pytest.fixture
def quick(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Smaller and shorter: these tests are not about how fast this machine is."""
    monkeypatch.setattr(latency, "SHIPPED", tmp_path / "shipped")
    monkeypatch.setattr(calibrate, "STACKS", ((1e6, (64, 128)), (4e6, (128, 256))))
    monkeypatch.setattr(calibrate, "VECTORS", (2, 32))
    monkeypatch.setattr(calibrate, "TRIPS_S", 0.0)
    monkeypatch.setattr(calibrate, "N_SWEEPS", 1)
    monkeypatch.setattr(calibrate, "MOST_S", 60.0)
    monkeypatch.setattr(calibrate, "MOST_SPREAD", 1e9)
    small = tuple(p for p in calibrate_step.PROBES if p.shape.d_model == 64)
    monkeypatch.setattr(calibrate_step, "PROBES", small)
    monkeypatch.setattr(calibrate_step, "N_SWEEPS", 1)


def told(spec: CalibrationSpec, runs: Path) -> list[Event]:
    run = run_of(spec)
    events = list(run.opening())
    while not run.done:
        run.tick()
        events += run.frame()
    run.keep(runs / spec.spec_id / "an attempt")
    return events


@pytest.mark.usefixtures("quick")
def test_a_calibration_is_kept_beside_the_runs(tmp_path: Path):
    events = told(CalibrationSpec(weight_formats=("bf16", "file")), tmp_path)
    for step, name in enumerate(("bf16", "file")):
        kept = latency.stored(tmp_path, name, 1)
        assert kept is not None
        found = {e.name: e.value for e in events if isinstance(e, Scalar) and e.step == step}
        assert found["read_bytes_per_s"] == kept.paces[-1].read_bytes_per_s > 0
        sizes = [pace.working_set_bytes for pace in kept.paces]
        assert sizes == sorted(set(sizes))
        # Of both kinds of model: with RMSNorm and SwiGLU, and with LayerNorm and GELU.
        assert {"rmsnorm", "silu", "layernorm", "gelu"} <= set(kept.paces[0].ops)
        # Models are trained in bf16, in a file's format none is.
        assert set(kept.steps) == {"bf16"}


@pytest.mark.usefixtures("quick")
def test_a_machine_too_busy_is_not_believed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(calibrate, "MOST_S", 0.0)
    events = told(CalibrationSpec(weight_formats=("fp32",)), tmp_path)
    assert [e.name for e in events if isinstance(e, Sample)] == ["weight_format", "unsteady"]
    assert not (tmp_path / latency.FOLDER).exists()


@pytest.mark.parametrize("weight_format", WEIGHT_FORMATS)
def test_layers_are_alike_and_lie_apart(weight_format: str):
    """Else the caches would be timed, and not the memory."""
    weight_ND = torch.randn(640, 64, generator=torch.Generator().manual_seed(1))
    raw = calibrate._blocks("blocks.0.mlp.up.weight", weight_ND)
    matrix = kernels.make(weight_ND, weight_format, raw)
    other = calibrate._elsewhere(matrix)
    x_D = torch.arange(64) / 64
    assert torch.equal(other.product(x_D), matrix.product(x_D))
    for (_, one), (_, two) in zip(matrix.stored(), other.stored(), strict=True):
        assert one.data_ptr() != two.data_ptr()


def test_costs_are_told_from_noise():
    """Seconds of ops that start for 10 µs and compute 20 GFLOP a second, some a fiftieth off."""
    points = [
        ((float(n), 0.0, 0.0), (10e-6 + n / 20e9) * off)
        for n, off in zip((1e5, 1e6, 4e6, 8e6, 2e7), (1.0, 1.02, 0.98, 1.01, 1.0), strict=True)
    ]
    found = fitted(points)
    assert found.start_s == pytest.approx(10e-6, rel=0.2)
    assert 1 / found.flop_s == pytest.approx(20e9, rel=0.05)
    assert found.number_s == found.byte_s == 0


def test_no_part_of_a_cost_is_below_nothing():
    """Where a line would begin below 0 it begins there."""
    found = fitted([((1e6, 0.0, 0.0), 40e-6), ((2e6, 0.0, 0.0), 100e-6)])
    assert min(found.start_s, found.flop_s, found.number_s, found.byte_s) >= 0
    assert 40e-6 < found.seconds(1.5e6, 0, 0) < 100e-6
