"""A run in torch: its bits whatever is done to it, its arithmetic, its end, and what it tells."""

import copy
import hashlib
import io
import json
import math
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch
import torch.nn.functional as F

from core import texts
from core.engine import train_torch
from core.engine.models import IGNORED, Transformer
from core.engine.train import Diverged, training_of
from core.engine.train_torch import TorchTraining, new_model
from core.events import Event, Sample, Scalar
from core.specimens import texts_folder
from core.specs import (
    AdditionSpec,
    DigitsSpec,
    OwnTextSpec,
    PlaygroundSpec,
    PydocsSpec,
    Spec,
    TransformerSpec,
)
from core.trace import Trace

ROOT = Path(__file__).resolve().parent.parent.parent

# Each differs from the others in whatever carries state, or chance, from one update to the next.
TINY = {"n_layer": 1, "d_model": 16, "n_head": 2, "batch_size": 4}
STATEFUL: list[Spec] = [
    DigitsSpec(n_layer=1, d_model=16, batch_size=400),  # a pass of 4 updates
    DigitsSpec(d_model=8, optimizer="momentum", precision="bf16", activation="tanh"),
    AdditionSpec(**TINY, dropout=0.3, accumulation=3),
    AdditionSpec(**TINY, precision="fp16", optimizer="sgd", learning_rate=0.1),
    PydocsSpec(**TINY, seq_len=16, architecture="llama", checkpointing=True, dropout=0.1),
    PydocsSpec(**TINY, seq_len=16, precision="fp16", attention="explicit", dropout=0.2),
]


def name(spec: Spec) -> str:
    return f"{spec.specimen}-{spec.optimizer}-{spec.precision}"


each_spec = pytest.mark.parametrize("spec", STATEFUL, ids=name)


def state(run: TorchTraining) -> list[np.ndarray]:
    """All that decides how a run goes on: parameters, the optimizer's memory, the loss scale."""
    scaling = run.scaler.state_dict().values()
    arrays = [np.array(run.step), np.array([*map(float, scaling)])]
    for parameter in run.model.parameters():
        arrays.append(parameter.detach().numpy())
        held = run.optimizer.state[parameter]
        arrays += [held[key].numpy() for key in sorted(held) if held[key] is not None]
    return arrays


def digest(run: TorchTraining) -> str:
    return hashlib.sha256(b"".join(a.tobytes() for a in state(run))).hexdigest()


def undisturbed(spec: Spec, n_steps: int) -> str:
    run = TorchTraining(spec)
    for _ in range(n_steps):
        run.tick()
    return digest(run)


def parameters(run: TorchTraining) -> list[torch.Tensor]:
    return [p.detach().clone() for p in run.model.parameters()]


# -- bits ---------------------------------------------------------------------------------------


def test_a_seed_gives_the_same_bits_in_every_process():
    """Two fresh processes on one thread end with the same parameters to the bit."""
    program = (
        "import sys, json, hashlib, torch\n"
        "torch.set_num_threads(1)\n"
        "from core.engine.train_torch import TorchTraining\n"
        "from core.specs import Spec\n"
        "for record in json.loads(sys.argv[1]):\n"
        "    run = TorchTraining(Spec.from_json(record))\n"
        "    for _ in range(8): run.tick()\n"
        "    bits = b''.join(p.detach().numpy().tobytes() for p in run.model.parameters())\n"
        "    print(hashlib.sha256(bits).hexdigest())\n"
    )
    env = os.environ | {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}

    def bits(hash_seed: str) -> list[str]:
        done = subprocess.run(
            [sys.executable, "-c", program, json.dumps([s.to_json() for s in STATEFUL])],
            cwd=ROOT,
            env=env | {"PYTHONHASHSEED": hash_seed},
            capture_output=True,
            text=True,
            check=True,
        )
        return done.stdout.split()

    one, other = bits("1"), bits("2")
    assert one == other
    assert len(set(one)) == len(STATEFUL)


def test_another_seed_gives_other_weights():
    one, other = (new_model(AdditionSpec(**TINY, seed=seed)) for seed in (1, 2))
    assert not torch.equal(next(one.parameters()), next(other.parameters()))


@each_spec
def test_recording_a_step_leaves_the_bits_alone(spec: Spec):
    """A run looked into op by op, at its start and between updates, is the same run."""
    run = TorchTraining(spec)
    list(run.recorded_step())
    run.tick()
    list(run.recorded_step())
    list(run.recorded_step())
    run.tick()
    assert digest(run) == undisturbed(spec, 5)


@each_spec
def test_a_recorded_step_is_one_update_and_speaks_of_no_other(spec: Spec):
    run = TorchTraining(spec)
    run.tick()
    events = list(run.recorded_step())
    assert run.step == 2
    assert {event.step for event in events} == {1}
    last = events[-1]
    assert isinstance(last, Scalar) and last.name == "recorded_step_s"


@each_spec
def test_telling_leaves_the_bits_alone(spec: Spec):
    """Losses, answers and samples may be asked for at any time and any number of times."""
    run = TorchTraining(spec)
    for _ in range(3):
        list(run.opening())
        list(run.frame())
        list(run.frame())
        run.wants_frame(10)
        run.tick()
    assert digest(run) == undisturbed(spec, 3)


def test_nothing_that_others_draw_at_random_changes_a_run():
    """The global generator belongs to nobody."""
    spec = STATEFUL[2]
    run = TorchTraining(spec)
    for _ in range(3):
        torch.rand(1000)
        np.random.rand(1000)
        run.tick()
    assert digest(run) == undisturbed(spec, 3)


def through_a_file(saved: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    file = io.BytesIO()
    np.savez(file, **saved)  # type: ignore[arg-type]
    file.seek(0)
    with np.load(file, allow_pickle=False) as loaded:
        return dict(loaded)


@each_spec
@pytest.mark.parametrize("n_before", [0, 1, 5])
def test_a_checkpoint_goes_on_with_the_same_bits(spec: Spec, n_before: int):
    """Saved after any update and restored into a new run, as pausing does, all is equal."""
    run = TorchTraining(spec)
    for _ in range(n_before):
        run.tick()
    taken_up = TorchTraining(spec)
    taken_up.restore(through_a_file(run.checkpoint()))
    assert digest(taken_up) == digest(run)
    for one in (run, taken_up):
        one.tick()
        one.tick()
    assert digest(taken_up) == digest(run) == undisturbed(spec, n_before + 2)


@each_spec
def test_a_run_that_was_looked_into_can_be_taken_up(spec: Spec):
    """What the worker does when it is paused: a recorded step, then a checkpoint."""
    run = TorchTraining(spec)
    list(run.recorded_step())
    taken_up = TorchTraining(spec)
    taken_up.restore(through_a_file(run.checkpoint()))
    taken_up.tick()
    assert digest(taken_up) == undisturbed(spec, 2)


def test_a_checkpoint_is_a_copy():
    """Going on after a checkpoint does not change it."""
    run = TorchTraining(STATEFUL[3])
    run.tick()
    saved = run.checkpoint()
    before = {name: array.tobytes() for name, array in saved.items()}
    run.tick()
    assert {name: array.tobytes() for name, array in saved.items()} == before


def test_a_checkpoint_that_was_taken_up_is_the_runs_own():
    """Going on does not reach into the arrays that were restored."""
    run = TorchTraining(STATEFUL[1])
    run.tick()
    saved = run.checkpoint()
    before = {name: array.tobytes() for name, array in saved.items()}
    taken_up = TorchTraining(STATEFUL[1])
    taken_up.restore(saved)
    taken_up.tick()
    assert {name: array.tobytes() for name, array in saved.items()} == before


# -- arithmetic ---------------------------------------------------------------------------------


def plain_loop(spec: TransformerSpec, n_steps: int) -> list[torch.Tensor]:
    """What torch's own documentation would write: one batch, one loss, backward, step."""
    model = new_model(spec)
    if spec.optimizer == "adamw":
        optimizer: torch.optim.Optimizer = torch.optim.AdamW(
            model.parameters(), lr=spec.learning_rate, weight_decay=0.01, fused=False
        )
    else:
        momentum = 0.9 if spec.optimizer == "momentum" else 0.0
        optimizer = torch.optim.SGD(model.parameters(), lr=spec.learning_rate, momentum=momentum)
    examples = TorchTraining(spec).source
    for step in range(n_steps):
        batch = examples.batch(step, 0)
        logits = model(torch.tensor(batch.inputs))
        asked = torch.tensor(batch.targets)
        loss = F.cross_entropy(
            logits.reshape(-1, logits.shape[-1]), asked.reshape(-1), ignore_index=-100
        )
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    return [p.detach() for p in model.parameters()]


def assert_close(ours: list[torch.Tensor], theirs: list[torch.Tensor], tolerance: float) -> None:
    for a, b in zip(ours, theirs, strict=True):
        torch.testing.assert_close(a, b, rtol=tolerance, atol=tolerance)


@pytest.mark.parametrize("optimizer", ["sgd", "momentum", "adamw"])
@pytest.mark.parametrize("kind", [DigitsSpec, AdditionSpec, PydocsSpec])
def test_updates_are_those_of_a_plain_torch_loop(kind: type[Spec], optimizer: str):
    sizes = {"d_model": 16, "batch_size": 8, "optimizer": optimizer, "learning_rate": 0.01}
    spec = kind(**sizes)  # type: ignore[arg-type]
    run = TorchTraining(spec)
    for _ in range(4):
        run.tick()
    # AdamW divides by the size of a gradient: of one that is next to nothing, by its rounding.
    tolerance = 1e-4 if optimizer == "adamw" else 1e-5
    assert_close(parameters(run), plain_loop(spec, 4), tolerance)  # type: ignore[arg-type]


class _Joined:
    """All micro-batches of an update as one batch."""

    def __init__(self, run: TorchTraining) -> None:
        self._pairs = run.micro_batches()

    @property
    def inputs(self) -> torch.Tensor:
        return torch.from_numpy(np.concatenate([pair.inputs for pair in self._pairs]))

    @property
    def targets(self) -> torch.Tensor:
        return torch.from_numpy(np.concatenate([pair.targets for pair in self._pairs]))


@pytest.mark.parametrize("kind", [AdditionSpec, PydocsSpec])
def test_accumulated_micro_batches_make_the_update_of_one_large_batch(kind: type[TransformerSpec]):
    """Four of five examples are one of twenty: the same gradient, up to the order of sums."""
    spec = kind(**TINY | {"batch_size": 5}, accumulation=4, optimizer="sgd", learning_rate=0.5)  # type: ignore[arg-type]
    run = TorchTraining(spec)
    large = new_model(spec)
    batch = _Joined(run)
    loss = large.loss(batch.inputs, batch.targets)
    loss.backward()
    run.tick()
    expected = [p.detach() - 0.5 * p.grad for p in large.parameters() if p.grad is not None]
    assert_close(parameters(run), expected, 1e-6)


def test_the_loss_that_is_told_is_the_mean_over_the_updates_since_the_last_look():
    spec = AdditionSpec(**TINY, accumulation=2)
    run = TorchTraining(spec)
    list(run.frame())
    losses = []
    for _ in range(3):
        batch = _Joined(run)
        losses.append(float(run.model.loss(batch.inputs, batch.targets).detach()))
        run.tick()
    told = Trace([*run.frame()]).scalars_of(3)["train_loss"]
    assert told == pytest.approx(np.mean(losses), rel=1e-6)


def test_the_first_loss_is_that_of_the_first_batch():
    """No update has seen one yet; held-out examples are no stand-in."""
    run = TorchTraining(AdditionSpec(**TINY))
    told = Trace([*run.frame()]).scalars_of(0)
    batch = _Joined(run)
    expected = float(run.model.loss(batch.inputs, batch.targets).detach())
    assert told["train_loss"] == pytest.approx(expected, rel=1e-6)
    assert told["train_loss"] != told["held_out_loss"]


# -- learning -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "spec",
    [
        DigitsSpec(n_epochs=3),
        AdditionSpec(d_model=32, batch_size=64, n_steps=60),
        PydocsSpec(d_model=32, batch_size=8, seq_len=32, n_steps=60),
        PydocsSpec(d_model=32, batch_size=8, seq_len=32, n_steps=60, architecture="llama"),
        AdditionSpec(d_model=32, batch_size=64, n_steps=60, precision="bf16"),
        AdditionSpec(d_model=32, batch_size=64, n_steps=60, precision="fp16", dropout=0.1),
    ],
    ids=name,
)
def test_the_loss_falls_on_examples_that_were_never_learned_from(spec: Spec):
    run = TorchTraining(spec)
    before = Trace([*run.frame()]).scalars_of(0)["held_out_loss"]
    while not run.done:
        run.tick()
    after = Trace([*run.frame()]).scalars_of(run.step)["held_out_loss"]
    assert after < 0.85 * before
    assert run.step == run.n_steps


def test_the_first_loss_is_that_of_a_model_that_knows_nothing():
    """About log of the number of choices: every class is as likely as any other."""
    for spec, n in ((DigitsSpec(), 10), (AdditionSpec(), 12), (PydocsSpec(), None)):
        run = TorchTraining(spec)
        n = n or texts.python_documentation().vocab_size
        loss = Trace([*run.frame()]).scalars_of(0)["held_out_loss"]
        assert loss == pytest.approx(math.log(n), rel=0.1)


def test_digits_are_read_right_after_a_few_passes():
    run = TorchTraining(DigitsSpec())
    while run.epoch < 8:
        run.tick()
    assert Trace([*run.frame()]).scalars_of(run.step)["held_out_accuracy"] > 0.93


def test_a_tiny_model_learns_a_handful_of_sums_by_heart():
    """The loss can go to nothing: model, targets and update fit together."""
    run = TorchTraining(AdditionSpec(n_layer=1, d_model=32, batch_size=8, learning_rate=0.01))
    handful = run.source.batch(0, 0)
    run.source.batch = lambda step, micro: handful  # type: ignore[method-assign]
    for _ in range(150):
        run.tick()
    batch = _Joined(run)
    logits = run.model(batch.inputs)
    asked = batch.targets != IGNORED
    assert float(run.model.loss(batch.inputs, batch.targets).detach()) < 0.01
    assert (logits.argmax(-1) == batch.targets)[asked].all()


# -- divergence ---------------------------------------------------------------------------------


def poisoned(run: TorchTraining) -> None:
    """One weight in the middle of the model is not a number."""
    with torch.no_grad():
        dict(run.model.named_parameters())["blocks.1.mlp.up.weight"][3, 2] = math.nan


def overflowing(run: TorchTraining) -> None:
    """Weights whose product exceeds float32."""
    with torch.no_grad():
        parameters = dict(run.model.named_parameters())
        parameters["blocks.0.mlp.up.weight"].fill_(1e30)
        parameters["blocks.0.mlp.down.weight"].fill_(1e30)


@pytest.mark.parametrize(
    ("prepare", "op"), [(poisoned, "blocks.1.mlp.up"), (overflowing, "blocks.0.mlp.down")]
)
@pytest.mark.parametrize("attention", ["flash", "explicit"])
def test_divergence_names_the_step_and_the_first_op_that_is_not_finite(
    prepare: Callable[[TorchTraining], None], op: str, attention: str
):
    """Masked scores are meant to be minus infinity, and are not taken for it."""
    run = TorchTraining(AdditionSpec(d_model=16, batch_size=4, attention=attention))
    run.tick()
    prepare(run)
    with pytest.raises(Diverged) as why:
        run.tick()
    assert (why.value.step, why.value.op) == (1, op)
    assert str(why.value) == f"step 1: {op} is no longer a finite number"
    assert run.step == 1


@pytest.mark.parametrize(
    "spec",
    [
        DigitsSpec(optimizer="sgd", learning_rate=10, activation="linear", n_epochs=100),
        DigitsSpec(optimizer="momentum", learning_rate=10, activation="linear", n_layer=6),
        AdditionSpec(**TINY, optimizer="sgd", learning_rate=10, n_steps=5000),
        AdditionSpec(**TINY, optimizer="momentum", learning_rate=10, accumulation=2),
        AdditionSpec(
            **TINY | {"d_model": 32}, optimizer="momentum", learning_rate=10, precision="bf16"
        ),
    ],
    ids=name,
)
def test_a_learning_rate_that_is_far_too_large_ends_at_the_last_finite_weights(spec: Spec):
    """If it diverges: every weight that is left is finite, and is that of the step before."""
    run = TorchTraining(spec)
    before = parameters(run)
    try:
        for _ in range(400):
            before = parameters(run)
            run.tick()
    except Diverged as why:
        assert why.step == run.step
        assert why.op
    else:
        pytest.skip("this one swings and stays finite")
    left = parameters(run)
    assert all(torch.isfinite(p).all() for p in left)
    assert all(torch.equal(a, b) for a, b in zip(left, before, strict=True))
    told = Trace([*run.frame()])  # the last picture can be drawn
    assert told.scalars("held_out_accuracy")


@pytest.mark.parametrize("spec", [DigitsSpec(), AdditionSpec(**TINY), PydocsSpec(**TINY)], ids=name)
def test_a_run_that_is_about_to_diverge_can_be_looked_at(spec: Spec):
    """Its weights are still finite, and what they make of the examples is not."""
    run = TorchTraining(spec)
    with torch.no_grad():
        for parameter in run.model.parameters():
            parameter.fill_(3e38)
    told = Trace([*run.frame()])
    assert not math.isfinite(told.scalars_of(0)["held_out_loss"])
    assert told.scalars_of(0)["held_out_accuracy"] >= 0
    list(run.frame())
    with pytest.raises(Diverged):
        run.tick()


def test_a_gradient_that_overflows_is_found_where_it_does():
    """The forward pass is finite; on the way back the error grows beyond float32."""
    run = TorchTraining(DigitsSpec(n_layer=6, d_model=8, activation="linear", optimizer="sgd"))
    with torch.no_grad():
        for path, parameter in run.model.named_parameters():
            parameter.fill_(0 if path.startswith("layers.0") or path.endswith("bias") else 1e9)
    before = parameters(run)
    with pytest.raises(Diverged) as why:
        run.tick()
    assert why.value.op.startswith("gradient of layers.")
    assert all(torch.equal(a, b) for a, b in zip(parameters(run), before, strict=True))


def test_an_update_that_overflows_is_the_optimizers():
    """Gradients are finite; what momentum has gathered is not, times the learning rate."""
    run = TorchTraining(DigitsSpec(d_model=8, optimizer="momentum", learning_rate=10))
    run.tick()
    for parameter in run.model.parameters():
        run.optimizer.state[parameter]["momentum_buffer"].fill_(3e38)
    before = parameters(run)
    with pytest.raises(Diverged) as why:
        run.tick()
    assert (why.value.step, why.value.op) == (1, "optimizer.step")
    assert all(torch.equal(a, b) for a, b in zip(parameters(run), before, strict=True))


# -- fp16 ---------------------------------------------------------------------------------------


def test_a_gradient_that_overflows_in_fp16_skips_the_update_and_halves_the_scale():
    """That is what loss scaling is for: the run goes on."""
    run = TorchTraining(AdditionSpec(**TINY, precision="fp16"))
    run.tick()
    run.scaler.load_state_dict(run.scaler.state_dict() | {"scale": 2.0**40})
    run.scaler._scale = torch.tensor(2.0**40)
    before = parameters(run)
    run.tick()
    assert all(torch.equal(a, b) for a, b in zip(parameters(run), before, strict=True))
    assert run.scaler.get_scale() == 2.0**39
    assert run.step == 2
    told = Trace([*run.frame()]).scalars_of(2)
    assert told["loss_scale"] == 2.0**39
    while run.scaler.get_scale() > 2.0**15:
        run.tick()
    assert any(not torch.equal(a, b) for a, b in zip(parameters(run), before, strict=True))


def test_the_loss_scale_is_told_of_fp16_only():
    for precision in ("fp32", "bf16", "fp16"):
        run = TorchTraining(DigitsSpec(precision=precision))
        told = Trace([*run.frame()]).scalars("loss_scale")
        assert bool(told) == (precision == "fp16")


# -- what a run tells ---------------------------------------------------------------------------


def trained(spec: Spec, n_steps: int) -> TorchTraining:
    run = TorchTraining(spec)
    for _ in range(n_steps):
        run.tick()
    return run


def greedy(model: Transformer, question: str) -> str:
    """A model's own answer, one character after another, each read again before the next."""
    tokens = [texts.SUM_CHARACTERS.index(c) for c in question]
    model.eval()
    with torch.no_grad():
        for _ in range(3):
            logits = model(torch.tensor([tokens]))
            tokens.append(int(logits[0, -1].argmax()))
    return "".join(texts.SUM_CHARACTERS[t] for t in tokens)


@pytest.fixture(scope="module")
def adding() -> TorchTraining:
    """A model that has some sums right and others not."""
    return trained(AdditionSpec(d_model=32, learning_rate=0.01, seed=3), 220)


def test_the_accuracy_of_sums_is_how_many_the_model_itself_writes_right(adding: TorchTraining):
    """All of the answer's characters, decoded greedily one by one."""
    told = Trace([*adding.frame()]).scalars_of(adding.step)["held_out_accuracy"]
    held_out = adding.source.held_out
    model = adding.model
    assert isinstance(model, Transformer)
    right = 0
    for tokens in held_out.inputs:
        question = "".join(texts.SUM_CHARACTERS[t] for t in tokens[:6])
        answer = greedy(model, question)
        right += (
            int(answer[6:]) == int(answer[:2]) + int(answer[3:5]) if answer[6:].isdigit() else 0
        )
    assert 0.05 < told < 0.999
    assert told == pytest.approx(right / len(held_out.inputs), abs=1e-6)


def test_the_sums_shown_are_right_where_the_models_own_answers_are(adding: TorchTraining):
    """And what is shown first is what it would write, up to the first wrong character."""
    shown = [e.text for e in adding.frame() if isinstance(e, Sample)]
    assert len(shown) == 64
    model = adding.model
    assert isinstance(model, Transformer)
    seen = set()
    for text in shown:
        own = greedy(model, text[:6])
        right = f"{int(text[:2]) + int(text[3:5]):03d}"
        assert (text[6:] == right) == (own[6:] == right)
        wrong = next((i for i in range(3) if text[6 + i] != right[i]), 2)
        assert text[: 7 + wrong] == own[: 7 + wrong]
        seen.add(text[6:] == right)
    assert seen == {True, False}


def test_the_accuracy_of_digits_is_the_share_that_is_read_right():
    run = trained(DigitsSpec(), 40)
    told = Trace([*run.frame()])
    held_out = run.source.held_out
    with torch.no_grad():
        answers = run.model(torch.tensor(held_out.inputs)).argmax(-1).numpy()
    accuracy = told.scalars_of(40)["held_out_accuracy"]
    assert accuracy == pytest.approx((answers == held_out.targets).mean(), abs=1e-6)
    shown = told.array(40, "head", "answers")
    assert shown.shape == (64, 10)
    assert (np.abs(shown.sum(1) - 1) < 10 / 255).all()
    assert (shown.argmax(1) == answers[:64]).mean() > 0.95  # two shades may be equal


def test_a_digits_run_opens_with_what_it_will_be_asked_to_read():
    run = TorchTraining(DigitsSpec(seed=5))
    told = Trace([*run.opening()])
    images, labels = (told.array(0, "data", role) for role in ("images", "labels"))
    assert (images.reshape(64, 64) / 16 == run.source.held_out.inputs[:64]).all()
    assert (labels == run.source.held_out.targets[:64]).all()
    assert told.scalars("n_train") == [(0, 1437)]


def test_the_accuracy_of_a_text_is_the_share_of_next_characters_that_are_right():
    run = trained(PydocsSpec(**TINY, seq_len=16), 30)
    told = Trace([*run.frame()]).scalars_of(30)
    held_out = run.source.held_out
    with torch.no_grad():
        logits = run.model(torch.tensor(held_out.inputs))
    right = logits.argmax(-1).numpy() == held_out.targets
    assert told["held_out_accuracy"] == pytest.approx(right.mean(), abs=1e-6)
    loss = F.cross_entropy(logits.flatten(0, 1), torch.tensor(held_out.targets).flatten())
    assert told["held_out_loss"] == pytest.approx(float(loss), rel=1e-5)


def test_dropout_is_off_while_a_model_is_looked_at_and_on_while_it_learns():
    run = TorchTraining(AdditionSpec(**TINY, dropout=0.5))
    one, other = (Trace([*run.frame()]).scalars_of(0)["held_out_loss"] for _ in range(2))
    assert one == other
    assert run.model.training


def test_a_continuation_is_written_in_the_texts_own_characters_and_the_same_each_time():
    run = trained(PydocsSpec(**TINY, seq_len=16), 5)
    one, other = run.continuation(), run.continuation()
    shorter = min(len(one), len(other))  # on a busy machine one of them may have been cut short
    assert 0 < shorter <= 160
    assert one[:shorter] == other[:shorter]
    assert set(one) <= set(texts.python_documentation().vocabulary)


def test_a_model_that_writes_slowly_writes_less(monkeypatch: pytest.MonkeyPatch):
    """A minute of writing would be a minute in which nobody can stop the run."""
    run = TorchTraining(PydocsSpec(**TINY, seq_len=16))
    monkeypatch.setattr(train_torch, "SAMPLE_WITHIN_S", 0.0)
    assert len(run.continuation()) == 1


def test_a_text_that_is_removed_while_it_is_learned_does_not_end_the_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setenv("BOTHWAYS_RUNS", str(tmp_path))
    name = texts.keep("All work and no play makes Jack a dull boy.\n" * 20, texts_folder())
    run = TorchTraining(OwnTextSpec(**TINY, text=name, seq_len=16))
    run.tick()
    (texts_folder() / f"{name}.txt").unlink()
    told: list[Event] = [*run.frame()]
    run.tick()
    assert any(isinstance(e, Sample) for e in told)


def test_passes_are_counted_in_examples():
    """Of digits and sums in examples seen, of a text in characters read."""
    digits = trained(DigitsSpec(batch_size=400), 8)
    assert digits.epoch == 2
    sums = trained(AdditionSpec(**TINY | {"batch_size": 90}, accumulation=2), 5)
    assert sums.epoch == pytest.approx(5 * 180 / 9000)
    text = trained(PydocsSpec(**TINY, seq_len=16), 3)
    assert text.epoch == pytest.approx(3 * 4 * 16 / text.source.n_train)


def test_a_run_ends_after_its_passes_or_steps():
    digits = TorchTraining(DigitsSpec(batch_size=400, n_epochs=3))
    assert digits.n_steps == 12
    for run in (digits, TorchTraining(AdditionSpec(**TINY, n_steps=4))):
        ticks = 0
        while not run.done:
            assert run.last_tick_is_next == (ticks == run.n_steps - 1)
            run.tick()
            ticks += 1
        assert ticks == run.n_steps


def test_a_run_is_looked_at_often_at_first_and_at_its_end():
    run = TorchTraining(AdditionSpec(**TINY, n_steps=70))
    run._framed_s = math.inf  # as if it had just been looked at
    looked = []
    while not run.done:
        run.step += 1
        if run.wants_frame():
            looked.append(run.step)
    assert looked == [1, 2, 4, 8, 16, 32, 64, 70]


def test_looking_takes_at_most_a_quarter_of_the_time():
    run = TorchTraining(AdditionSpec(**TINY))
    run.step, run._frame_cost_s = 3, 1e9
    list_of = run.wants_frame
    run._framed_s = 0.0
    assert not list_of()


def test_a_spec_gets_the_run_of_its_kind():
    assert isinstance(training_of(DigitsSpec()), TorchTraining)
    assert not isinstance(training_of(PlaygroundSpec()), TorchTraining)


def test_copying_a_run_leaves_it_alone():
    """What recording looks into is a copy of model, optimizer and scaler together."""
    run = trained(STATEFUL[3], 2)
    before = digest(run)
    other = copy.deepcopy((run.model, run.optimizer, run.scaler))
    with torch.no_grad():
        next(other[0].parameters()).fill_(0)
    assert digest(run) == before
