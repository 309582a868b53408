"""What the page hands the training widget is the run, in few enough bytes, and readable by it."""

import dataclasses
import json
import math
import re
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from components.runs import View
from components.theme import COLOURS
from components.widgets.training import MAX_BYTES, message
from core import texts
from core.engine.train_torch import TorchTraining
from core.events import Array, Ended, Event, Sample, Scalar, Started
from core.memory import train_ops
from core.optimizers import OPTIMIZERS
from core.specimens import ops_of, texts_folder
from core.specs import (
    SPECIMENS,
    AdditionSpec,
    DigitsSpec,
    OwnTextSpec,
    PydocsSpec,
    Spec,
    TrainSpec,
    TransformerSpec,
)
from core.trace import ARRAYS, EVENTS, Trace, pack

SHIPPED = Path(__file__).resolve().parents[2] / "core" / "recordings" / "circle"
ATTEMPT = "20260101-120000-abcdef"


def refuse(constant: str) -> None:
    raise AssertionError(f"{constant} is no JSON")


def loads(text: bytes) -> Any:
    """JSON as a browser reads it, in which there is neither NaN nor Infinity."""
    return json.loads(text, parse_constant=refuse)


def unpacked(sent: bytes) -> tuple[dict[str, Any], bytes, bytes]:
    """Header, event lines and array bytes: u32 length, JSON, and the rest cut where it says."""
    end = 4 + int.from_bytes(sent[:4], "little")
    header = loads(sent[4:end])
    cut = end + header["events_bytes"]
    return header, sent[end:cut], sent[cut:]


def shipped() -> View:
    trace = Trace.read(SHIPPED)
    return View(spec=TrainSpec(), attempt=None, folder=SHIPPED, trace=trace, live=False)


def started(spec: Spec) -> Started:
    return Started(
        spec_id=spec.spec_id,
        attempt=ATTEMPT,
        spec=spec.to_json(),
        machine={"cpu": "a machine", "n_threads": 1},
        code_version="0",
        started_unix_s=0.0,
    )


def attempt(events: Iterable[Event], *, live: bool = True, spec: Spec | None = None) -> View:
    """An attempt that has said so much."""
    spec = spec or TrainSpec()
    return View(
        spec=spec, attempt=ATTEMPT, folder=Path(), trace=Trace([started(spec), *events]), live=live
    )


PAUSED = Scalar(step=0, name="paused", value=1)
RUNNING = Scalar(step=0, name="paused", value=0)
END = Ended(status="finished", message="", n_steps=0, wall_s=0, cpu_s=0)

# -- the shipped run ------------------------------------------------------------------------------


def test_a_shipped_run_is_sent_as_its_own_two_files():
    _, events, arrays = unpacked(message(shipped(), polled=False))
    assert events == (SHIPPED / EVENTS).read_bytes()
    assert arrays == (SHIPPED / ARRAYS).read_bytes()


def test_a_shipped_run_is_sent_in_less_than_1_2_megabytes():
    assert len(message(shipped(), polled=False)) < 1_200_000


def test_a_shipped_run_opens_in_the_middle_of_its_learning():
    header, *_ = unpacked(message(shipped(), polled=False))
    steps = Trace.read(SHIPPED).recorded_steps
    assert header["show_step"] in steps[1:-1]


def test_a_shipped_run_is_not_streamed_and_known_to_be_over():
    header, *_ = unpacked(message(shipped(), polled=False))
    assert header["stream"] is None
    n_recorded = len(Trace.read(SHIPPED).recorded_steps)
    assert header["known"] == {"n_recorded": n_recorded, "n_states": 0, "ended": True}
    assert header["run"] == f"{TrainSpec().spec_id}/recording"


# -- the header -----------------------------------------------------------------------------------

SPECS = [
    TrainSpec(),
    TrainSpec(hidden=()),
    TrainSpec(hidden=(3, 2), activation="linear", optimizer="momentum"),
    TrainSpec(hidden=(8,) * 6, optimizer="adamw", precision="fp64", features=("x", "siny")),
]


@pytest.mark.parametrize("spec", SPECS, ids=lambda spec: spec.spec_id)
def test_the_header_says_what_is_drawn(spec: TrainSpec):
    """Settings, op ids in forward order, and the update's constants."""
    header, *_ = unpacked(message(attempt([PAUSED], spec=spec), polled=False))
    assert TrainSpec.from_json(header["spec"]) == spec
    assert [op["id"] for op in header["ops"]] == [op.id for op in train_ops(spec)]
    assert [op["kind"] for op in header["ops"]] == [op.kind for op in train_ops(spec)]
    assert header["optimizer"] == {
        "name": spec.optimizer,
        "learning_rate": spec.learning_rate,
        **OPTIMIZERS[spec.optimizer].constants,
    }


@pytest.fixture
def kept_text(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> OwnTextSpec:
    """Settings that learn a text with every kind of character in it."""
    monkeypatch.setenv("BOTHWAYS_RUNS", str(tmp_path))
    text = 'Schöne Grüße 🙂 « ñ »\t"quotes\\" </script>\n' * 20
    return OwnTextSpec(text=texts.keep(text, texts_folder()), seq_len=40)


TORCH = [
    DigitsSpec(),
    DigitsSpec(n_layer=3, activation="linear", precision="bf16", optimizer="sgd"),
    AdditionSpec(),
    AdditionSpec(architecture="llama", checkpointing=True, accumulation=4),
    PydocsSpec(attention="explicit", dropout=0.1, precision="fp16", seq_len=128),
]


def header_of(spec: Spec) -> dict[str, Any]:
    header, *_ = unpacked(message(attempt([PAUSED], spec=spec), polled=False))
    return header


@pytest.mark.parametrize("spec", TORCH, ids=lambda spec: f"{spec.specimen}-{spec.spec_id}")
def test_the_header_of_a_torch_run_is_its_op_table(spec: Spec):
    """Ids in forward order, what each reads, its shape, and its predicted numbers."""
    header, ops = header_of(spec), ops_of(spec)
    assert Spec.from_json(header["spec"]) == spec
    assert [op["id"] for op in header["ops"]] == [op.id for op in ops]
    for sent, op in zip(header["ops"], ops, strict=True):
        assert sent["inputs"] == list(op.inputs)
        assert sent["output_shape"] == list(op.output_shape)
        for name in ("kind", "n_params", "forward_flops", "backward_flops", "saved_bytes"):
            assert sent[name] == getattr(op, name), (op.id, name)
        assert bool(sent["saved_because"]) == bool(op.saved_bytes), op.id


@pytest.mark.parametrize("spec", TORCH, ids=lambda spec: f"{spec.specimen}-{spec.spec_id}")
def test_an_op_reads_what_came_before_it(spec: Spec):
    """The picture finds by these names when a gradient is complete."""
    before = {"tokens", "input", "target"}
    for op in header_of(spec)["ops"]:
        assert set(op["inputs"]) <= before, op["id"]
        before.add(op["id"])


def test_the_losses_of_transformers_stand_against_steps_and_those_of_others_against_epochs(
    kept_text: OwnTextSpec,
):
    specs = [TrainSpec(), DigitsSpec(), AdditionSpec(), PydocsSpec(), kept_text]
    axes = {spec.specimen: header_of(spec)["axis"] for spec in specs}
    assert axes == {
        "playground": "epoch",
        "digits": "epoch",
        "addition": "step",
        "pydocs": "step",
        "text": "step",
    }
    assert set(axes) == set(SPECIMENS)


def test_the_alphabet_travels_whole(kept_text: OwnTextSpec):
    """Whatever characters it has: the browser names tokens by it."""
    for spec, letters in (
        (AdditionSpec(), "0123456789+="),
        (PydocsSpec(), "".join(sorted(set(texts.python_documentation().characters)))),
        (kept_text, "".join(sorted(set(texts.kept(kept_text.text, texts_folder()).characters)))),
    ):
        assert header_of(spec)["vocabulary"] == letters
    assert "🙂" in header_of(kept_text)["vocabulary"]
    assert "vocabulary" not in header_of(DigitsSpec())


def test_the_text_itself_and_its_name_stay_on_the_server(kept_text: OwnTextSpec):
    """Only its alphabet is sent; the name stands in the visitor's own address and settings."""
    sent = message(attempt([PAUSED], spec=kept_text), polled=False)
    assert "Grüße".encode() not in sent and b"Gr\\u00fc" not in sent
    assert sent.count(kept_text.text.encode()) == 1  # in the settings


@pytest.mark.parametrize("seq_len", [16, 40, 512])
def test_the_rows_drawn_are_evenly_spaced_positions_the_last_among_them(seq_len: int):
    positions = header_of(PydocsSpec(seq_len=seq_len))["positions"]
    assert positions == sorted(set(positions))
    assert positions[0] == 0 and positions[-1] == seq_len - 1
    assert len(positions) == min(32, seq_len)


def test_every_specimen_has_words_for_its_examples_and_answers(kept_text: OwnTextSpec):
    for spec in (TrainSpec(), DigitsSpec(), AdditionSpec(), PydocsSpec(), kept_text):
        words = header_of(spec)["words"]
        assert words["examples"] and words["right"].startswith("held-out")
        assert bool(words["answers"]) == (spec.specimen != "playground")


def test_a_micro_batch_is_what_the_op_table_describes():
    """Of a recorded step of 4 micro-batches, each op's shape is one of them."""
    spec = AdditionSpec(accumulation=4, batch_size=8)
    said = [
        Scalar(step=0, name="batch_examples", value=32),
        Scalar(step=0, name="recorded_step_s", value=0.1),
    ]
    header, *_ = unpacked(message(attempt([*said, PAUSED], spec=spec), polled=False))
    assert header["ops"][0]["output_shape"][0] == 8


def test_the_header_brings_the_colours_of_both_themes():
    header, *_ = unpacked(message(shipped(), polled=False))
    assert header["colours"] == COLOURS


def test_a_run_and_another_attempt_of_it_have_different_names():
    """The widget begins anew when the name changes, and only then."""
    names = {
        unpacked(message(view, polled=False))[0]["run"]
        for view in (
            shipped(),
            attempt([PAUSED]),
            attempt([PAUSED], spec=TrainSpec(seed=2)),
        )
    }
    assert len(names) == 3


# -- live runs ------------------------------------------------------------------------------------


@pytest.mark.parametrize("said", [[], [PAUSED], [RUNNING]], ids=["begun", "paused", "running"])
def test_a_streamed_run_is_sent_as_its_header_only(said: list[Event]):
    header, events, arrays = unpacked(message(attempt(said), polled=False))
    assert header["stream"] == f"./api/runs/{TrainSpec().spec_id}/{ATTEMPT}"
    assert header["events_bytes"] == 0
    assert (events, arrays) == (b"", b"")


def test_a_run_that_waits_in_line_is_streamed():
    view = View(spec=TrainSpec(), attempt=ATTEMPT, folder=Path(), trace=Trace(), live=True)
    header, events, arrays = unpacked(message(view, polled=False))
    assert header["stream"]
    assert (events, arrays) == (b"", b"")
    assert header["show_step"] is None


def test_a_polled_run_is_sent_whole_each_time():
    """The way of a host where the stream's address does not exist."""
    view = attempt([RUNNING, Array(step=0, op="a", role="b", values=np.arange(4.0))])
    header, events, arrays = unpacked(message(view, polled=True))
    assert header["stream"] is None
    assert (events, arrays) == pack(view.trace.events)


@pytest.mark.parametrize("status", ["finished", "stopped", "diverged", "failed", "died"])
def test_a_run_that_is_over_is_sent_whole(status: str):
    end = Ended(status=status, message="", n_steps=0, wall_s=0, cpu_s=0)
    view = attempt([RUNNING, end], live=False)
    header, events, _ = unpacked(message(view, polled=False))
    assert header["stream"] is None
    assert header["known"]["ended"]
    assert events == pack(view.trace.events)[0]


def test_what_the_page_knows_is_told_so_that_the_browser_need_not_say_it():
    said = [PAUSED, Scalar(step=3, name="recorded_step_s", value=1e-4), RUNNING]
    header, *_ = unpacked(message(attempt(said), polled=False))
    assert header["known"] == {"n_recorded": 1, "n_states": 2, "ended": False}
    assert header["show_step"] is None


# -- numbers that are none, and many of them ------------------------------------------------------


def test_no_line_holds_what_json_has_no_word_for():
    """A diverged run has losses that are not finite."""
    said = [
        Scalar(step=i, name="train_loss", value=v)
        for i, v in enumerate((math.nan, math.inf, -math.inf))
    ]
    view = attempt([*said, END], live=False)
    _, events, _ = unpacked(message(view, polled=False))
    lines = [loads(line) for line in events.splitlines()]
    assert [line["value"] for line in lines[1:-1]] == ["NaN", "Infinity", "-Infinity"]
    assert not re.search(rb"[:,\[](NaN|-?Infinity)", events)


def test_every_line_of_the_shipped_run_is_json():
    _, events, _ = unpacked(message(shipped(), polled=False))
    assert all(loads(line)["type"] for line in events.splitlines())


def test_a_long_run_is_thinned_until_its_arrays_fit():
    """Pictures go, losses and recorded steps stay."""
    picture = np.zeros((1, 48, 48), np.uint8)
    said: list[Event] = []
    for step in range(1000):
        said += [
            Scalar(step=step, name="epoch", value=step),
            Scalar(step=step, name="train_loss", value=0.5),
            Array(step=step, op="head", role="boundary", values=picture, low=-1.0, high=1.0),
        ]
    exact = Array(step=500, op="input", role="activation", values=np.ones((30, 7)))
    said += [exact, Scalar(step=500, name="recorded_step_s", value=1e-4), END]
    _, events, arrays = unpacked(message(attempt(said, live=False), polled=False))
    trace = Trace.parse(events, arrays)
    assert len(events) + len(arrays) <= MAX_BYTES
    assert trace.ended
    assert len(trace.scalars("train_loss")) == 1000
    assert trace.array(500, "input", "activation").sum() == 210
    pictured = {e.step for e in trace.events if isinstance(e, Array) and e.role == "boundary"}
    assert {0, 500, 999} <= pictured
    assert len(pictured) > 300


# -- runs of torch models -------------------------------------------------------------------------


def at_step(told: list[Event], step: int) -> list[Event]:
    return [dataclasses.replace(e, step=step) for e in told]  # type: ignore[call-arg]


@pytest.fixture(scope="module")
def addition() -> View:
    """A finished run of the default addition model: a real frame and a real recorded step, as often
    as a run of 80 s tells them."""
    run = TorchTraining(AdditionSpec())
    opening, frame, step = [*run.opening()], [*run.frame()], [*run.recorded_step()]
    said: list[Event] = [*opening, *frame, *step]
    for i in range(1, 400):
        said += at_step(frame, 3 * i)
        if i in (133, 266, 399):
            said += at_step(step, 3 * i)
    return attempt([*said, END], live=False, spec=run.spec)


def test_a_finished_addition_run_is_sent_in_less_than_1_1_megabytes(addition: View):
    assert len(pack(addition.trace.events)[0]) > 1_500_000  # as the stream sends it, over its time
    assert len(message(addition, polled=False)) <= 1_100_000


def test_of_a_long_addition_run_answers_are_thinned_and_all_losses_and_steps_stay(addition: View):
    _, events, arrays = unpacked(message(addition, polled=False))
    sent = Trace.parse(events, arrays)
    assert sent.scalars("train_loss") == addition.trace.scalars("train_loss")
    assert sent.recorded_steps == addition.trace.recorded_steps == [0, 399, 798, 1197]
    written = sorted({e.step for e in sent.events if isinstance(e, Sample)})
    assert {0, 399, 798, 1197} <= set(written)
    assert len(written) > 10
    gaps = np.diff(written)
    assert gaps.max() <= 2 * 1197 / len(written)
    for step in written:
        assert sum(isinstance(e, Sample) and e.step == step for e in sent.events) == 64


@pytest.mark.parametrize(
    "spec",
    [
        DigitsSpec(n_epochs=1),
        AdditionSpec(n_steps=2, d_model=16, batch_size=4, precision="fp16"),
        PydocsSpec(n_steps=2, d_model=16, batch_size=2, seq_len=16, attention="explicit"),
    ],
    ids=lambda spec: spec.specimen,
)
def test_every_line_of_a_torch_run_is_json(spec: Spec):
    """Masked scores are minus infinity in the model; none reaches the browser as such."""
    run = TorchTraining(spec)
    said = [*run.opening(), *run.frame(), *run.recorded_step(), *run.frame()]
    _, events, _ = unpacked(message(attempt([*said, END], live=False, spec=spec), polled=False))
    assert all(loads(line)["type"] for line in events.splitlines())
    assert isinstance(spec, TransformerSpec) == (b'"Sample"' in events)
