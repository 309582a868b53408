"""Whether a model fits, by how much, and what would make it fit."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from core.cache import cache_bytes
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
from core.footprints import Serving, Shapes, Training, serving, training
from core.sizes import Bytes

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


@settings(deadline=None, max_examples=30)
@given(st.sampled_from(sorted(models())), st.sampled_from(["bf16", "fp8", "q4_0"]))
def test_the_context_that_fits_fits(slug, cache_format):
    shape = models()[slug].shape
    how = Serving(cache_format=cache_format)
    n = context_that_fits(shape, how, H100)
    if not n:
        return
    found = serving([shape], how)
    rest = float(found.parts["weights"][0] + found.parts["temporaries"][0])
    each = {"bf16": 2, "fp8": 1, "q4_0": 18 / 32}[cache_format]
    assert rest + cache_bytes(shape, n, each).n <= H100.n
    assert rest + cache_bytes(shape, n + 1, each).n > H100.n


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
