"""What does not fit is refused beforehand, with the nearest settings that do."""

import dataclasses

import pytest

from core import limits
from core.memory import step_memory
from core.specimens import torch_step
from core.specs import AdditionSpec, DepthsSpec, DigitsSpec, PlaygroundSpec, PydocsSpec, Spec

LARGE = PydocsSpec(n_layer=12, d_model=512, seq_len=512, batch_size=64)


@pytest.fixture(autouse=True)
def known_limits(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("BOTHWAYS_MAX_RUN_BYTES", str(2 * 10**9))
    monkeypatch.setenv("BOTHWAYS_MAX_STEP_FLOPS", "4e11")


@pytest.mark.parametrize("spec", [PlaygroundSpec(), DigitsSpec(), AdditionSpec(), PydocsSpec()])
def test_every_default_fits(spec: Spec):
    assert limits.refusal(spec) is None


def test_what_is_too_large_is_refused_with_its_predicted_peak():
    """The figure is the prediction that the page shows, not another."""
    refusal = limits.refusal(LARGE)
    assert refusal is not None
    assert refusal.need.peak_bytes == step_memory(torch_step(LARGE))["peak_bytes"].value
    assert refusal.need.peak_bytes > 2 * 10**9


def test_the_setting_offered_fits_and_differs_in_one_field():
    refusal = limits.refusal(LARGE)
    assert refusal is not None and refusal.fitting is not None
    assert limits.refusal(refusal.fitting) is None
    before, after = LARGE.to_json(), refusal.fitting.to_json()
    assert [name for name in before if before[name] != after[name]] == [refusal.changed]


def test_the_setting_offered_is_the_nearest_of_its_kind():
    """Twice the batch that is offered would not fit."""
    refusal = limits.refusal(LARGE)
    assert refusal is not None and isinstance(refusal.fitting, PydocsSpec)
    assert refusal.changed == "batch_size"
    twice = dataclasses.replace(refusal.fitting, batch_size=2 * refusal.fitting.batch_size)
    assert limits.refusal(twice) is not None


def test_work_is_limited_as_memory_is(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("BOTHWAYS_MAX_STEP_FLOPS", "1e6")
    refusal = limits.refusal(PydocsSpec())
    assert refusal is not None and refusal.need.flops > 1e6


def test_where_nothing_near_fits_nothing_is_offered(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("BOTHWAYS_MAX_RUN_BYTES", "1000")
    refusal = limits.refusal(AdditionSpec())
    assert refusal is not None and refusal.fitting is None and refusal.changed == ""


def test_a_depth_sweep_is_judged_by_its_deepest_model():
    assert limits.refusal(DepthsSpec.of(AdditionSpec(), 12)) is None
    assert limits.refusal(DepthsSpec.of(LARGE, 103)) is not None
