"""Peak memory against depth: what is predicted is what is measured, and says what it says."""

import dataclasses
import itertools

import pytest

from core.engine.depths import DepthSweep
from core.events import Scalar
from core.specimens import inference_peak_bytes, predicted_depths
from core.specs import AdditionSpec, DepthsSpec, PydocsSpec, TransformerSpec

SMALL = {"d_model": 32, "batch_size": 8}


def measured(spec: DepthsSpec) -> dict[str, dict[int, float]]:
    sweep = DepthSweep(spec)
    while not sweep.done:
        sweep.tick()
    found: dict[str, dict[int, float]] = {}
    for event in sweep.frame():
        assert isinstance(event, Scalar)
        found.setdefault(event.name, {})[event.step] = event.value
    return found


@pytest.mark.parametrize(
    "spec",
    [
        AdditionSpec(**SMALL),
        AdditionSpec(**SMALL, architecture="llama", attention="explicit"),
        PydocsSpec(**SMALL, seq_len=32, checkpointing=True),
        AdditionSpec(**SMALL, optimizer="sgd", accumulation=2),
    ],
)
def test_both_peaks_are_predicted_to_the_byte(spec: TransformerSpec):
    sweep = dataclasses.replace(DepthsSpec.of(spec, 24), n_layer=3)
    found = measured(sweep)
    for depth, train, answer in predicted_depths(sweep):
        assert found["train_peak_bytes"][depth] == train
        assert found["inference_peak_bytes"][depth] == answer


def test_an_answer_grows_by_weights_alone():
    """Activations of a layer are handed on: a further layer costs its parameters, 4 bytes each."""
    spec = DepthsSpec.of(AdditionSpec(), 12)
    slope = inference_peak_bytes(spec.at(6)) - inference_peak_bytes(spec.at(5))
    d = spec.d_model
    assert slope == 4 * (12 * d * d + 13 * d)


def test_training_grows_by_the_same_bytes_a_layer_and_by_many_more():
    rows = predicted_depths(DepthsSpec.of(AdditionSpec(), 12))
    slopes = {after[1] - before[1] for before, after in itertools.pairwise(rows)}
    assert len(slopes) == 1
    assert slopes.pop() > 10 * (rows[1][2] - rows[0][2])


def test_what_does_not_matter_to_memory_is_left_out_of_the_sweep():
    """Runs that differ in seed, rate, length or depth share one sweep."""
    one = AdditionSpec(n_layer=1, seed=5, learning_rate=0.01, n_steps=50)
    assert DepthsSpec.of(one, 12) == DepthsSpec.of(AdditionSpec(), 12)
