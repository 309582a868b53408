"""Times on this machine are core.latency's own, worked out once for what does not change."""

import pytest

from core import latency
from core.architecture import ModelShape
from core.catalog import find_model
from core.footprints import Training
from core.ladder import shape_of_size
from core.local_times import Clock, engine_shape, step_time
from core.ops import Decode, Prefill
from tests.core.calibrations import calibration

SHAPE = shape_of_size(3_000_000)


@pytest.mark.parametrize("batch", [1, 2, 16])
@pytest.mark.parametrize("tokens", [1, 2, 100, 640, 9_999])
def test_a_token_takes_what_its_own_op_table_says(batch: int, tokens: int):
    clock = Clock(calibration())
    told = clock.trip(SHAPE, "decode", batch, tokens)
    own = latency.trip(SHAPE, Decode(batch_size=batch, context=tokens), clock.found)
    assert told.seconds == pytest.approx(own.seconds, rel=1e-12)
    assert told.trip is not None and told.trip.cache_bytes == own.cache_bytes


def test_a_prompt_and_a_step_take_what_latency_says():
    clock = Clock(calibration())
    own = latency.trip(SHAPE, Prefill(batch_size=2, seq_len=77), clock.found)
    assert clock.trip(SHAPE, "prefill", 2, 77).seconds == own.seconds
    how = Training(recipe="fp32", seq_len=64)
    told, again = clock.step(SHAPE, how), step_time(SHAPE, how, clock.found)
    assert told == again and told is not None and told.seconds > 0


def test_a_prompt_of_one_token_is_a_trip_of_one():
    clock = Clock(calibration())
    assert clock.trip(SHAPE, "prefill", 1, 1).seconds == clock.trip(SHAPE, "decode", 1, 1).seconds


@pytest.mark.parametrize("recipe", ["mixed16", "mixed18", "bf16", "fp8"])
def test_a_recipe_that_the_engine_has_not_is_not_timed(recipe: str):
    assert step_time(SHAPE, Training(recipe=recipe, seq_len=8), calibration()) is None


def test_models_that_the_engine_runs_are_found_and_no_others():
    assert engine_shape(SHAPE.model) == SHAPE
    assert engine_shape(find_model("llama-3.1-8b").shape) is not None
    assert engine_shape(find_model("gpt-2-124m").shape) is not None
    for slug in ("mixtral-8x7b", "gemma-2-9b", "deepseek-v3-r1", "qwen3-8b", "gpt-oss-20b"):
        assert engine_shape(find_model(slug).shape) is None, slug


def test_the_engines_shape_is_the_very_same_model():
    shape: ModelShape = find_model("smollm2-135m").shape
    same = engine_shape(shape)
    assert same is not None and same.model == shape
