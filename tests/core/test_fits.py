"""Whether a model fits, by how much, and what would make it fit."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from core.catalog import devices, find_device, find_model, models
from core.fits import (
    HEADROOM,
    Verdict,
    context_that_fits,
    each_fits,
    needed_devices,
    serving_changes,
    serving_verdict,
    sharded,
    training_changes,
    training_verdict,
)
from core.footprints import PREFILL_CHUNK, Serving, Shapes, Training, serving, training
from core.quantised import weight_formats
from core.sizes import Bytes
from core.states import RECIPES, with_optimizer

H100 = find_device("h100-80gb").usable
LLAMA_8B = find_model("llama-3.1-8b").shape
LLAMA_405B = find_model("llama-3.1-405b").shape


def test_a_verdict_is_the_difference():
    verdict = Verdict(needed=Bytes.of(60, "GB"), usable=Bytes.of(80, "GB"))
    assert verdict.fits and not verdict.tight and verdict.left == Bytes.of(20, "GB")
    over = Verdict(needed=Bytes.of(100, "GB"), usable=Bytes.of(80, "GB"))
    assert not over.fits and over.left == Bytes.of(-20, "GB")
    assert Verdict(needed=Bytes.of(79, "GB"), usable=Bytes.of(80, "GB")).tight
    assert Bytes.of(2, "GB") > HEADROOM


def test_eight_billion_answer_on_one_card_and_do_not_train_on_it():
    assert serving_verdict(LLAMA_8B, Serving(), H100).fits
    assert not training_verdict(LLAMA_8B, Training(recipe="mixed16"), H100).fits
    assert not serving_verdict(LLAMA_405B, Serving(), H100).fits


@pytest.mark.parametrize("shape", [LLAMA_8B, LLAMA_405B, find_model("deepseek-v3").shape])
def test_changes_end_with_one_that_fits(shape):
    how = Training(recipe="fp32", batch_size=8, attention="explicit")
    changes = training_changes(shape, how, H100)
    assert changes[-1].fits and not any(c.fits for c in changes[:-1])
    answers = serving_changes(shape, Serving(weight_format="fp32", batch_size=8), H100)
    assert answers[-1].fits and not any(c.fits for c in answers[:-1])


def test_a_change_does_what_it_says():
    how = Training(recipe="mixed16", batch_size=4, seq_len=4096)
    for change in training_changes(LLAMA_8B, how, Bytes.of(1, "MB"))[:2]:
        ((key, value),) = change.settings
        changed = {
            "recompute": {"recompute": True},
            "batch": {"batch_size": int(value) if value.isdigit() else 0},
        }[key]
        again = Training(**{**_fields(how), **changed})
        assert change.needed.n == float(training([LLAMA_8B], again).peak[0])


def _fields(how: Training) -> dict:
    return {
        name: getattr(how, name)
        for name in ("recipe", "optimizer", "batch_size", "seq_len", "attention", "recompute")
    }


def test_sharding_over_one_device_changes_nothing_and_over_more_never_adds():
    how = Training(recipe="mixed16", batch_size=1, seq_len=512)
    whole = float(training([LLAMA_8B], how).peak[0])
    assert sharded(LLAMA_8B, how, 1).n == pytest.approx(whole, rel=1e-9)
    held = [sharded(LLAMA_8B, how, n).n for n in (1, 2, 4, 8, 64)]
    assert held == sorted(held, reverse=True)


@settings(deadline=None, max_examples=40)
@given(
    st.sampled_from(sorted(models())),
    st.sampled_from(["mixed16", "autocast", "bf16"]),
    st.sampled_from([1, 2, 8]),
    st.booleans(),
    st.sampled_from([2, 8, 64, 1024]),
)
def test_what_is_not_split_stays_whole(slug, recipe, batch_size, recompute, ranks):
    """ZeRO splits states: forward and loss hold as much beside them on one device as on many."""
    shape = models()[slug].shape
    how = Training(recipe=recipe, batch_size=batch_size, seq_len=2048, recompute=recompute)
    one = training([shape], how)
    counts = with_optimizer(RECIPES[recipe], how.optimizer)
    n_params = float(one.parts["weights"][0]) / counts.weights
    states = n_params * (counts.weights + counts.states)
    passing = max(float(one.phase_peaks[p][0]) for p in ("forward", "loss")) - states
    held = sharded(shape, how, ranks).n
    assert held >= passing + states / ranks - 1
    assert held >= n_params * counts.bytes_per_param / ranks
    assert held <= float(one.peak[0])


def test_what_is_offered_holds_less():
    for name in weight_formats():
        how = Serving(weight_format=name)
        now = serving_verdict(LLAMA_405B, how, H100).needed
        for change in serving_changes(LLAMA_405B, how, Bytes.of(8, "GB")):
            assert change.needed < now, (name, change.says)


def test_devices_are_offered_alone_where_nothing_else_is_left():
    least = Training(recipe="bf16", optimizer="adam8bit", recompute=True)
    (only,) = training_changes(LLAMA_405B, least, H100)
    assert only.says.startswith("ZeRO-3 over")


@settings(deadline=None, max_examples=60)
@given(
    st.sampled_from(sorted(models())),
    st.sampled_from(["bf16", "fp8", "q4_0"]),
    st.sampled_from([128, 2048, 131072]),
    st.integers(1, 80_000),
)
def test_the_context_that_fits_fits(slug, cache_format, context, room_mb):
    shape, room = models()[slug].shape, Bytes.of(room_mb, "MB")
    how = Serving(cache_format=cache_format, context=context)
    n = context_that_fits(shape, how, room)

    def fits(n_tokens: int) -> bool:
        longest = Serving(cache_format=cache_format, context=n_tokens)
        return float(serving([shape], longest).peak[0]) <= room.n

    if n is None:
        assert fits(PREFILL_CHUNK) and fits(10**9)
        return
    assert not fits(n + 1)
    assert n == 0 or fits(n)


def test_the_matrix_of_verdicts():
    """Vx: query heads for key heads flipped 10 of 90 verdicts."""
    shapes = Shapes([m.shape for m in models().values()])
    usable = [d.usable for d in devices().values()]
    table = each_fits(serving(shapes, Serving(context=8192)), usable)
    assert len(table) == len(shapes) and len(table[0]) == len(usable)
    for row, shape in zip(table, shapes, strict=True):
        by_room = [fits for _, fits in sorted(zip((u.n for u in usable), row, strict=True))]
        assert by_room == sorted(by_room)  # what fits a smaller device fits a larger one
        assert row == [serving_verdict(shape, Serving(context=8192), u).fits for u in usable]
    names = list(models())
    at = list(devices()).index("h100-sxm-80gb")
    assert table[names.index("llama-3.1-8b")][at]
    assert not table[names.index("llama-3.1-70b")][at]


def test_needed_devices():
    assert needed_devices(Bytes(100), Bytes(40)) == 3
    assert needed_devices(Bytes(80), Bytes(40)) == 2
