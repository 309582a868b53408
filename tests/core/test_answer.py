"""An answer as a run: what it tells is what happened."""

import dataclasses
import itertools
from pathlib import Path

import numpy as np
import pytest
import torch

from core import answers, pretrained
from core.answers import Unanswerable
from core.engine import weights
from core.engine.answer import Answer
from core.engine.models import Transformer
from core.engine.train import started
from core.events import Array, Event, Memory, Sample, Scalar, Token, encode
from core.ops import Decode, Prefill, expand
from core.specimens import shape_of
from core.specs import GenerateSpec, PydocsSpec
from core.trace import EVENTS

ATTEMPT = "20260101-000000-abcdef"
TRAINED = PydocsSpec(n_layer=2, d_model=32, n_head=2, seq_len=64, architecture="llama")
MODEL = f"{TRAINED.spec_id}/{ATTEMPT}"
SPEC = GenerateSpec(model=MODEL, prompt="The list of", max_new_tokens=9, context=64)


@pytest.fixture(scope="module", autouse=True)
def trained(tmp_path_factory: pytest.TempPathFactory):
    """A model of our own, as a finished run keeps it."""
    runs = tmp_path_factory.mktemp("runs")
    folder = runs / MODEL
    folder.mkdir(parents=True)
    line, _ = encode(started(TRAINED, ATTEMPT))
    (folder / EVENTS).write_bytes(line)
    shape = shape_of(TRAINED)
    model = Transformer(shape, torch.Generator().manual_seed(1))  # type: ignore[arg-type]
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.mul_(5 if parameter.dim() > 1 else 1)
    weights.save_run(folder, model)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("BOTHWAYS_RUNS", str(runs))
        yield folder


def told(spec: GenerateSpec) -> list[Event]:
    run = Answer(spec)
    events = list(run.opening())
    while not run.done:
        run.tick()
        events += run.frame()
    return events


def scalars(events: list[Event]) -> dict[str, float]:
    return {e.name: e.value for e in events if isinstance(e, Scalar)}


def new_tokens(events: list[Event], row: int = 0) -> list[Token]:
    return [e for e in events if isinstance(e, Token) and e.phase != "prompt" and e.row == row]


def test_tokens_come_one_a_trip_and_the_first_from_the_prefill():
    events = told(SPEC)
    tokens = new_tokens(events)
    assert [t.step for t in tokens] == list(range(9))
    assert [t.phase for t in tokens] == ["prefill"] + ["decode"] * 8
    for before, after in itertools.pairwise(tokens):
        assert before.end_s is not None and after.start_s is not None
        assert before.end_s <= after.start_s
    text = next(e.text for e in events if isinstance(e, Sample) and e.name == "text_0")
    assert text == "".join(t.text for t in tokens)
    assert scalars(events)["new_tokens"] == 9


def test_without_a_cache_the_same_tokens():
    cached, plain = (new_tokens(told(dataclasses.replace(SPEC, cache=c))) for c in (True, False))
    assert [t.id for t in cached] == [t.id for t in plain]
    for one, other in zip(cached, plain, strict=True):
        assert one.prob == pytest.approx(other.prob, abs=1e-4)


def test_greedy_text_is_the_training_models():
    """Token by token through the model that was trained, which knows no cache."""
    run = Answer(SPEC)
    shape, tensors = weights.load(MODEL)
    model = Transformer.of(shape, tensors).eval()
    ids = list(run.prompt)
    with torch.inference_mode():
        for _ in range(9):
            ids.append(int(model(torch.tensor([ids]))[0, -1].argmax()))
    assert [t.id for t in new_tokens(told(SPEC))] == ids[len(run.prompt) :]


def test_probabilities_are_of_the_full_softmax():
    events = told(dataclasses.replace(SPEC, temperature=0.7, top_k=3))
    for token in new_tokens(events):
        probs = [p for _, _, p in token.top]
        assert probs == sorted(probs, reverse=True)
        assert 0 < sum(probs) <= 1 + 1e-6
        assert token.id in [i for i, _, _ in token.top[:3]]
        shown = {i: p for i, _, p in token.top}
        assert token.prob == pytest.approx(shown[token.id], abs=2e-6)


@pytest.mark.parametrize("weight_format", ["fp32", "bf16", "int8", "int4"])
@pytest.mark.parametrize("batch_size", [1, 2])
def test_bytes_are_what_was_predicted(weight_format: str, batch_size: int):
    spec = dataclasses.replace(SPEC, weight_format=weight_format, batch_size=batch_size, looks=1)
    events = told(spec)
    measured, shape = scalars(events), pretrained.shape_of(MODEL)
    n_prompt = int(measured["prompt_tokens"])
    assert measured["weights_bytes"] == answers.held_bytes(shape, weight_format)
    read = answers.read_bytes_per_token(shape, weight_format)
    assert measured["read_bytes_per_token"] == read.value
    assert measured["kv_cache_bytes"] == answers.cache_bytes(spec, shape).value
    peak = answers.peak_bytes(spec, shape, n_prompt).value
    assert abs(measured["peak_bytes"] - peak) <= max(0.01 * peak, 65536)


def test_the_peak_is_the_allocators(monkeypatch: pytest.MonkeyPatch):
    """The ledger of a prefill against torch's own log of what it allocated."""
    monkeypatch.setenv("KINETO_LOG_LEVEL", "99")
    run = Answer(SPEC)
    while not run.answered:
        run.tick()
    ledger = max(sum(e.held_bytes.values()) for e in run._look(0) if isinstance(e, Memory))
    rest = sum(
        t.untyped_storage().nbytes()
        for t in (*run.decoder.weights, *run.decoder.cache, *run.decoder.constants)
    ) + 8 * len(run.prompt)
    tokens = run.trip_tokens(0)
    run.decoder.length = 0
    with torch.profiler.profile(
        activities=[torch.profiler.ProfilerActivity.CPU], profile_memory=True
    ) as profile:
        run.decoder.trip(tokens)
    moves = [
        e.extra_fields.alloc_size
        for e in sorted(
            profile.profiler.kineto_results.experimental_event_tree(),  # type: ignore[union-attr]
            key=lambda e: e.start_time_ns,
        )
        for e in _allocations(e)
    ]
    log = rest + max(np.cumsum(moves))
    assert abs(ledger - log) <= max(0.01 * log, 65536)


def _allocations(event):
    if type(event.extra_fields).__name__ == "_ExtraFields_Allocation":
        yield event
    for child in sorted(event.children, key=lambda e: e.start_time_ns):
        yield from _allocations(child)


def test_the_weights_are_the_same_before_and_after():
    texts = {e.name: e.text for e in told(SPEC) if isinstance(e, Sample)}
    assert texts["weights_sha256_before"] == texts["weights_sha256_after"]
    _, tensors = weights.load(MODEL)
    assert texts["weights_sha256_before"] == weights.sha256(tensors.items())


def test_each_trip_tells_when_each_op_ended():
    events = told(SPEC)
    ops = next(e.text for e in events if isinstance(e, Sample) and e.name == "ops").split()
    shape = pretrained.shape_of(MODEL)
    assert ops == [
        op.id for op in expand(answers.answer_ops(shape, Decode(batch_size=1, context=1)))
    ]
    for token in new_tokens(events):
        ends = next(
            e.values
            for e in events
            if isinstance(e, Array) and e.op == "trip" and e.step == token.step
        )
        assert ends.shape == (len(ops),)
        assert (np.diff(ends) >= 0).all()
        assert token.start_s is not None and token.end_s is not None
        assert 0 < ends[-1] <= token.end_s - token.start_s + 1e-5


def test_attention_rows_sum_to_one_and_see_no_future():
    run = Answer(SPEC)
    events = told(SPEC)
    n_prompt = len(run.prompt)
    arrays = [e for e in events if isinstance(e, Array) and e.role == "attention"]
    prefill = next(e for e in arrays if e.step == 0).numbers
    assert prefill.shape == (2, n_prompt, n_prompt)
    np.testing.assert_allclose(prefill.sum(-1), 1, atol=n_prompt / 255)
    assert not np.triu(prefill, 1).any()
    decode = next(e for e in arrays if e.step == 1).numbers
    assert decode.shape == (2, 1, n_prompt + 1)


def test_a_look_changes_no_answer():
    looked, plain = (new_tokens(told(dataclasses.replace(SPEC, looks=n))) for n in (3, 0))
    assert [(t.id, t.prob) for t in looked] == [(t.id, t.prob) for t in plain]


@pytest.mark.parametrize("cache", [True, False])
def test_an_answer_that_was_laid_aside_goes_on_as_if_it_had_not(cache: bool):
    spec = dataclasses.replace(SPEC, temperature=1.0, cache=cache)
    run = Answer(spec)
    for _ in range(4):
        run.tick()
    taken_up = Answer(spec)
    taken_up.restore(run.checkpoint())
    for one in (run, taken_up):
        while not one.answered:
            one.tick()
    assert torch.equal(run.tokens_BS, taken_up.tokens_BS)


def test_rows_of_a_batch_are_drawn_each_for_itself():
    events = told(dataclasses.replace(SPEC, batch_size=4, temperature=1.5))
    said = {tuple(t.id for t in new_tokens(events, row)) for row in range(4)}
    assert len(said) > 1


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        ({"prompt": "x" * 65}, "65 tokens, more than a context of 64; shorten it"),
        ({"context": 65}, "more than the 64 tokens .* choose 64 or fewer"),
        ({"prompt": "漢"}, "has never seen '漢'"),
        ({"model": "0" * 16 + "/" + ATTEMPT}, "no run that is kept"),
        ({"chat": True}, "leave chat off"),
    ],
)
def test_what_cannot_be_asked_is_refused_in_a_sentence(changed: dict, said: str):
    with pytest.raises(ValueError, match=said):
        Answer(dataclasses.replace(SPEC, **changed))


def test_room_counts_what_is_read():
    answers.require_room(SPEC, 64, 64)
    with pytest.raises(Unanswerable):
        answers.require_room(SPEC, 0, 64)


def test_an_answer_fills_its_context_to_the_last_token():
    run = Answer(dataclasses.replace(SPEC, max_new_tokens=100))
    while not run.answered:
        run.tick()
    assert run.decoder.length == 64
    assert run.tokens_BS.shape[1] == 65


def test_prefill_rows_read_each_weight_once(trained: Path):
    shape = pretrained.shape_of(MODEL)
    short, long = (answers.answer_ops(shape, Prefill(batch_size=1, seq_len=n)) for n in (1, 33))
    for one, other in zip(short, long, strict=True):
        if one.kind == "linear" and one.id != "head":
            n_in, n_out = one.forward_moves[-1] // -4, one.output_shape[-1]
            assert other.read_bytes - one.read_bytes == 32 * n_in * 4
            assert one.read_bytes == 4 * (n_in + n_in * n_out)
