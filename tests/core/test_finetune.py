"""Updates of a published model, here of a small one in its place."""

import dataclasses
from pathlib import Path

import pytest
import torch

from core import pretrained
from core.engine import finetune, weights
from core.engine.finetune import Finetune
from core.engine.models import Transformer
from core.events import Event, Sample, Scalar, Span
from core.memory import TorchStep, step_memory
from core.ops import Train
from core.shapes import TransformerShape
from core.specs import FinetuneSpec
from core.tokenizers import CharTokenizer

SHAPE = TransformerShape(
    vocab_size=26,
    n_layer=2,
    d_model=32,
    n_head=4,
    n_kv_head=2,
    d_ff=48,
    max_seq_len=64,
    norm="rmsnorm",
    mlp="swiglu",
    positions="rope",
    bias=False,
)
SPEC = FinetuneSpec(text="abcdefghijklmnopqrstuvwxyz", seq_len=12, learning_rate=1e-3)


@pytest.fixture(autouse=True)
def small(monkeypatch: pytest.MonkeyPatch):
    model = Transformer(SHAPE, torch.Generator().manual_seed(1))
    state = {name: tensor.detach() for name, tensor in model.state_dict().items()}
    monkeypatch.setattr(weights, "load", lambda _: (SHAPE, state))
    monkeypatch.setattr(pretrained, "shape_of", lambda _: SHAPE)
    monkeypatch.setattr(
        finetune, "tokenizer_of", lambda _: CharTokenizer("abcdefghijklmnopqrstuvwxyz")
    )
    return state


def told(spec: FinetuneSpec) -> tuple[Finetune, list[Event]]:
    run = Finetune(spec)
    events = list(run.opening())
    while not run.done:
        events += run.recorded_step()
    return run, events


def texts(events: list[Event]) -> dict[str, str]:
    return {e.name: e.text for e in events if isinstance(e, Sample)}


def scalars(events: list[Event]) -> dict[str, float]:
    return {e.name: e.value for e in events if isinstance(e, Scalar)}


def test_an_update_moves_the_weights_and_their_hash(small: dict):
    _, events = told(SPEC)
    said = texts(events)
    assert said["weights_sha256_before"] == weights.sha256(small.items())
    assert said["weights_sha256_after"] != said["weights_sha256_before"]
    assert scalars(events)["largest_change"] == pytest.approx(1e-3, rel=0.1)  # AdamW's first


def test_looking_does_not_change_what_is_learned():
    looked, _ = told(SPEC)
    plain = Finetune(SPEC)
    plain.tick()
    for one, other in zip(looked.model.parameters(), plain.model.parameters(), strict=True):
        assert torch.equal(one, other)


def test_bytes_are_what_was_predicted():
    _, events = told(SPEC)
    measured = scalars(events)
    step = TorchStep(
        shape=SHAPE, workload=Train(batch_size=1, seq_len=12), optimizer="adamw", first=True
    )
    for name, prediction in step_memory(step).items():
        if name == "peak_bytes":
            assert abs(measured[name] - prediction.value) <= max(0.01 * prediction.value, 4096)
        elif name in measured:
            assert measured[name] == prediction.value, name


def test_the_loss_falls_over_some_updates():
    run = Finetune(dataclasses.replace(SPEC, n_steps=20, learning_rate=0.01))
    while not run.done:
        run.tick()
    losses = [e.value for e in run.frame() if isinstance(e, Scalar) and e.name == "train_loss"]
    assert len(losses) == 20
    assert losses[-1] < losses[0] / 2


def test_lora_trains_what_it_added_and_nothing_else(small: dict):
    run, events = told(dataclasses.replace(SPEC, lora_rank=2, n_steps=2))
    trained = {name for name, p in run.model.named_parameters() if p.requires_grad}
    assert trained and all("lora_" in name for name in trained)
    state = run.model.state_dict()
    for name, tensor in small.items():
        assert torch.equal(state[name], tensor), name
    moved = [n for n in trained if n.endswith("lora_b") and bool(state[n].any())]
    assert moved
    n_trained = sum(state[name].numel() for name in trained)
    assert scalars(events)["gradients_bytes"] == 4 * n_trained
    assert scalars(events)["optimizer_bytes"] == 8 * n_trained + 4 * len(trained)


def test_every_op_of_the_step_has_a_time():
    _, events = told(SPEC)
    phases = {e.phase for e in events if isinstance(e, Span)}
    assert phases == {"forward", "loss", "backward", "update"}


def test_a_full_run_keeps_its_weights(tmp_path: Path):
    run, _ = told(SPEC)
    run.keep(tmp_path)
    assert (tmp_path / weights.WEIGHTS).exists()


def test_a_text_of_one_token_is_refused():
    with pytest.raises(ValueError, match="write at least two"):
        Finetune(dataclasses.replace(SPEC, text="a"))


def test_windows_of_a_batch_lie_in_the_text():
    run = Finetune(dataclasses.replace(SPEC, batch_size=4))
    inputs, targets = run._batch
    assert inputs.shape == targets.shape == (4, 12)
    assert torch.equal(inputs[:, 1:], targets[:, :-1])
    assert torch.equal(inputs + 1, targets)  # letters in their order
