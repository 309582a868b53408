"""What an update takes in torch, of the playground too, which is trained without."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from core.engine.flops import flop_counter
from core.engine.train import Training
from core.events import Memory, Scalar
from core.memory import peak_bytes, step_flops, step_memory
from core.specimens import kv_cache_bytes_per_token, predictions, step_in_torch
from core.specs import AdditionSpec, DigitsSpec, PlaygroundSpec
from tests.core.strategies import train_specs


def looked_into(spec: PlaygroundSpec, n_updates: int) -> tuple[int, int, int]:
    """(examples, highest live bytes, FLOPs) of the update after so many."""
    run = Training(spec)
    while run.step < n_updates:
        run._update()
    n_examples = len(run._next[1])
    events, highest = run.recorded_step(), 0
    with flop_counter() as counter:  # up to the loss the step has run once
        next(e for e in events if isinstance(e, Scalar) and e.name == "loss")
    for event in events:
        if isinstance(event, Memory):
            highest = max(highest, sum(event.held_bytes.values()))
    return n_examples, highest, counter.get_total_flops()


@settings(max_examples=20)
@given(train_specs, st.integers(1, 30))
def test_the_playgrounds_step_is_predicted(spec: PlaygroundSpec, n_updates: int):
    """Peak and executed FLOPs of any step but the first, 0 off."""
    spec = PlaygroundSpec.from_json(spec.to_json() | {"learning_rate": 1e-3})  # type: ignore[assignment]
    n_examples, highest, flops = looked_into(spec, n_updates)
    step = step_in_torch(spec, n_examples)
    assert peak_bytes(step).value == highest
    assert step_flops(step)["executed"][0] == flops


@given(train_specs)
def test_both_ways_to_predict_the_playground_agree(spec: PlaygroundSpec):
    """The bytes on its page and those of its step in torch."""
    in_torch = step_memory(step_in_torch(spec))
    for name, prediction in predictions(spec).items():
        assert in_torch[name].value == prediction.value


@pytest.mark.parametrize("spec", [PlaygroundSpec(), DigitsSpec()])
def test_a_perceptron_has_no_cache(spec: PlaygroundSpec | DigitsSpec):
    assert kv_cache_bytes_per_token(spec) is None


def test_shared_heads_share_their_cache():
    """Llama's layer here has a key and a value head for every two queries."""
    gpt, llama = (kv_cache_bytes_per_token(AdditionSpec(architecture=a)) for a in ("gpt", "llama"))
    assert gpt is not None and llama is not None
    assert gpt[0] == 2 * llama[0] == 2 * 2 * 64 * 4
