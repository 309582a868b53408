"""An answer that does not fit is refused beforehand, with the nearest settings that would do."""

import pytest

from core import answers
from core.answer_limits import max_trip_flops, need, refusal
from core.shapes import TransformerShape
from core.specs import GenerateSpec

SHAPE = TransformerShape(
    vocab_size=1000, n_layer=4, d_model=256, n_head=4, n_kv_head=4, d_ff=1024, max_seq_len=8192,
    norm="rmsnorm", mlp="swiglu", positions="rope", bias=False,
)  # fmt: skip
SPEC = GenerateSpec(context=4096, batch_size=8)
WEIGHTS = answers.held_bytes(SHAPE, "fp32")


@pytest.fixture(autouse=True)
def known_limits(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("BOTHWAYS_MAX_RUN_BYTES", str(100_000_000))
    monkeypatch.setenv("BOTHWAYS_MAX_STEP_FLOPS", "5e10")


def test_what_fits_is_not_refused():
    assert refusal(GenerateSpec(), SHAPE, 5) is None


def test_what_does_not_fit_is_refused_with_its_predicted_peak():
    found = refusal(SPEC, SHAPE, 5)
    assert found is not None
    assert found.need.peak_bytes == answers.peak_bytes(SPEC, SHAPE, 5).value > 100_000_000


def test_what_is_offered_fits_and_differs_in_one_field():
    found = refusal(SPEC, SHAPE, 5)
    assert found is not None and found.fitting is not None
    assert refusal(found.fitting, SHAPE, 5) is None
    before, after = SPEC.to_json(), found.fitting.to_json()
    assert [k for k in before if before[k] != after[k]] == [found.changed] == ["context"]


def test_a_context_is_offered_only_if_the_prompt_fits_it():
    found = refusal(SPEC, SHAPE, 2500)
    assert found is not None and found.fitting is not None
    assert found.changed == "batch_size"


def test_narrower_weights_are_offered_where_nothing_else_helps(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("BOTHWAYS_MAX_RUN_BYTES", str(int(0.6 * WEIGHTS)))
    found = refusal(GenerateSpec(context=64), SHAPE, 5)
    assert found is not None and found.fitting is not None
    assert found.fitting.weight_format == "bf16"


def test_where_nothing_fits_nothing_is_offered(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("BOTHWAYS_MAX_RUN_BYTES", "1000")
    found = refusal(SPEC, SHAPE, 5)
    assert found is not None
    assert (found.fitting, found.changed) == (None, "")


def test_without_a_cache_the_last_token_reads_the_whole_text():
    """So that the longest trip is not the first."""
    short = GenerateSpec(cache=False, max_new_tokens=1)
    long = GenerateSpec(cache=False, max_new_tokens=100)
    assert need(short, SHAPE, 10) == need(GenerateSpec(), SHAPE, 10)
    assert need(long, SHAPE, 10) == need(GenerateSpec(), SHAPE, 109)


def test_a_trip_that_no_button_could_end_is_refused(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("BOTHWAYS_MAX_RUN_BYTES", str(10**12))
    monkeypatch.setenv("BOTHWAYS_MAX_STEP_FLOPS", "1e8")
    spec = GenerateSpec(cache=False, context=4096, max_new_tokens=1024)
    found = refusal(spec, SHAPE, 20)
    assert found is not None
    assert found.need.trip_flops > max_trip_flops() == 10**10
    assert found.changed == "cache"
