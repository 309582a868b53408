"""What the page hands the answer widget is the run, in few enough bytes, read as it was told."""

import dataclasses
import json
import subprocess
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from components.runs import View
from components.theme import COLOURS
from components.widgets.answer import MAX_BYTES, message, thinned
from core import answers, drawing, pretrained
from core.engine.answer import Answer
from core.engine.sampling import allowed
from core.engine.train import started
from core.events import Array, Ended, Event, Memory, Sample, Scalar, Token
from core.ops import Decode, expand, kv_cache_bytes
from core.recordings import FOLDER
from core.specs import GenerateSpec
from core.trace import ARRAYS, EVENTS, Trace, pack
from tests.browser import node
from tests.components.test_widget_message import ATTEMPT, unpacked

READER = Path(__file__).with_name("read_answers.mjs")
SUM = GenerateSpec(model="addition", prompt="12+34=", max_new_tokens=3, context=8)
PAUSED = Scalar(step=0, name="paused", value=1)
RUNNING = Scalar(step=0, name="paused", value=0)
END = Ended(status="finished", message="", n_steps=0, wall_s=0, cpu_s=0)


def shipped() -> View[GenerateSpec]:
    folder = FOLDER / "sum"
    return View(spec=SUM, attempt=None, folder=folder, trace=Trace.read(folder), live=False)


def attempt(
    events: Iterable[Event], *, live: bool = True, spec: GenerateSpec = SUM
) -> View[GenerateSpec]:
    """An attempt that has said so much."""
    trace = Trace([started(spec, ATTEMPT), *events])
    return View(spec=spec, attempt=ATTEMPT, folder=Path(), trace=trace, live=live)


def told(spec: GenerateSpec) -> list[Event]:
    """All that the engine tells of an answer."""
    run = Answer(spec)
    said = [*run.opening(), *run.frame()]
    while not run.done:
        run.tick()
        said += run.frame()
    return [*said, END]


def header_of(view: View[GenerateSpec], **more: Any) -> dict[str, Any]:
    return unpacked(message(view, polled=False, **more))[0]


# -- what is sent ---------------------------------------------------------------------------------


def test_a_shipped_answer_is_sent_as_its_own_two_files():
    header, events, arrays = unpacked(message(shipped(), polled=False))
    assert events == (FOLDER / "sum" / EVENTS).read_bytes()
    assert arrays == (FOLDER / "sum" / ARRAYS).read_bytes()
    assert header["stream"] is None and not header["live"]
    assert header["known"]["ended"]
    assert header["run"] == f"{SUM.spec_id}/recording"


def test_the_header_says_what_is_drawn():
    header = header_of(shipped())
    shape = pretrained.shape_of(SUM.model)
    assert GenerateSpec.from_json(header["spec"]) == SUM
    assert header["shape"]["vocab_size"] == shape.vocab_size
    assert header["shape"]["n_layer"] == shape.n_layer
    assert header["colours"] == COLOURS
    assert header["format"] == {"title": "32-bit floats", "real": True}
    assert header["moment"] is None and header["still"] is False
    assert header_of(shipped(), moment=1, still=True)["moment"] == 1


def test_its_ops_are_those_that_the_decoder_ran_and_hold_the_whole_cache():
    header = header_of(shipped())
    shape = pretrained.shape_of(SUM.model)
    ops = expand(answers.answer_ops(shape, Decode(batch_size=1, context=SUM.context)))
    samples = (e for e in shipped().trace.events if isinstance(e, Sample) and e.name == "ops")
    (ran,) = [e.text for e in samples]
    assert [op["id"] for op in header["ops"]] == ran.split(" ") == [op.id for op in ops]
    (measured,) = [value for _, value in shipped().trace.scalars("kv_cache_bytes")]
    assert sum(op["cache_bytes"] for op in header["ops"]) == measured


def test_a_simulated_format_is_named_as_one():
    spec = dataclasses.replace(SUM, model="smollm2", weight_format="file")
    assert header_of(attempt([PAUSED], spec=spec))["format"]["real"] is False


def test_an_answer_of_a_model_that_is_gone_is_still_sent():
    spec = dataclasses.replace(SUM, model="0123456789abcdef/20260101-000000-abcdef")
    header, events, _ = unpacked(message(attempt([END], live=False, spec=spec), polled=False))
    assert header["shape"] is None and header["ops"] == []
    assert header["model"] == spec.model
    assert events


@pytest.mark.parametrize("said", [[], [PAUSED], [RUNNING]], ids=["begun", "paused", "running"])
def test_a_streamed_answer_is_sent_as_its_header_only(said: list[Event]):
    header, events, arrays = unpacked(message(attempt(said), polled=False))
    assert header["stream"] == f"./api/runs/{SUM.spec_id}/{ATTEMPT}"
    assert header["live"]
    assert (events, arrays) == (b"", b"")


def test_a_polled_answer_is_sent_whole_each_time():
    view = attempt([RUNNING, Array(step=0, op="trip", role="op_ends", values=np.arange(4.0))])
    header, events, arrays = unpacked(message(view, polled=True))
    assert header["stream"] is None and header["live"]
    assert (events, arrays) == pack(view.trace.events)


def test_what_the_page_knows_is_told_so_that_the_browser_need_not_say_it():
    header = header_of(attempt([PAUSED, RUNNING]))
    assert header["known"] == {"n_recorded": 0, "n_states": 2, "ended": False}


def test_an_answer_and_another_attempt_of_it_have_different_names():
    other = dataclasses.replace(SUM, prompt="99+99=")
    names = {
        header_of(view)["run"]
        for view in (shipped(), attempt([PAUSED]), attempt([PAUSED], spec=other))
    }
    assert len(names) == 3


# -- long answers ---------------------------------------------------------------------------------


def long_answer(n: int) -> list[Event]:
    """As many trips, told like those of a model of 30 layers."""
    said: list[Event] = []
    top = [[i, " token", 0.05] for i in range(20)]
    for step in range(n):
        phase = "decode" if step else "prefill"
        said.append(Token(step=step, row=0, phase=phase, id=step, text=" token", top=top))
        for role, shape in (("op_ends", 364), ("parts", (32, 24))):
            values = np.zeros(shape, np.float32)
            said.append(Array(step=step, op="trip", role=role, values=values))
    looked = Array(step=1, op="head", role="activation", values=np.ones((5, 48), np.uint8))
    held = {"weights": 1, "inputs": 1, "cache": 1, "temporaries": 1}
    return [*said, looked, Memory(step=1, phase="decode", op="head", held_bytes=held), END]


def test_a_short_answer_is_sent_as_it_is():
    trace = Trace(long_answer(100))
    assert thinned(trace, MAX_BYTES) == trace.events


@pytest.mark.parametrize("n", [300, 800])
def test_of_a_long_one_trips_are_thinned_until_it_fits_and_tokens_stay(n: int):
    trace = Trace(long_answer(n))
    assert sum(map(len, pack(trace.events))) > MAX_BYTES
    kept = thinned(trace, MAX_BYTES)
    assert sum(map(len, pack(kept))) <= MAX_BYTES
    assert [e for e in kept if isinstance(e, Token)] == [
        e for e in trace.events if isinstance(e, Token)
    ]
    assert [e for e in kept if isinstance(e, Memory | Ended)]
    assert [e for e in kept if isinstance(e, Array) and e.role == "activation"]
    by_role = {
        role: [e.step for e in kept if isinstance(e, Array) and e.role == role]
        for role in ("op_ends", "parts")
    }
    assert by_role["op_ends"] == by_role["parts"], "a trip keeps all or nothing of it"
    steps = by_role["parts"]
    assert steps[0] == 0 and steps[-1] == n - 1
    gaps = np.diff(steps)
    assert gaps.max() - gaps.min() <= 1


def test_one_that_cannot_fit_keeps_the_first_and_the_last_trip():
    trace = Trace(long_answer(50))
    kept = {e.step for e in thinned(trace, 10) if isinstance(e, Array) and e.role == "parts"}
    assert kept == {0, 49}


# -- how the browser reads it ---------------------------------------------------------------------

RUNS = {
    "sum": SUM,
    "one token": dataclasses.replace(SUM, max_new_tokens=1),
    "no cache": dataclasses.replace(SUM, cache=False),
    "four at once": dataclasses.replace(SUM, batch_size=4, temperature=1.5, top_k=5),
    "bf16": dataclasses.replace(SUM, weight_format="bf16"),
}
DRAWS = [
    {"temperature": t, "top_k": k, "top_p": p}
    for t in (0.0, 0.7, 1.5)
    for k in (0, 1, 3, 12)
    for p in (1.0, 0.95, 0.5, 0.1)
]


@pytest.fixture(scope="module")
def traces() -> dict[str, Trace]:
    return {name: Trace([started(spec, ATTEMPT), *told(spec)]) for name, spec in RUNS.items()}


@pytest.fixture(scope="module")
def probabilities() -> torch.Tensor:
    """Of a vocabulary of 15, so that all of it is among the likeliest that are told."""
    generator = torch.Generator().manual_seed(3)
    return torch.softmax(2 * torch.randn(len(DRAWS), 15, generator=generator), -1)


@pytest.fixture(scope="module")
def read(
    tmp_path_factory: pytest.TempPathFactory,
    traces: dict[str, Trace],
    probabilities: torch.Tensor,
) -> Any:
    """What the widget's own modules make of messages, under node."""
    folder = tmp_path_factory.mktemp("messages")
    files = []
    for i, (name, trace) in enumerate(traces.items()):
        view = View(spec=RUNS[name], attempt=ATTEMPT, folder=Path(), trace=trace, live=False)
        files.append(folder / str(i))
        files[-1].write_bytes(message(view, polled=False))
    draws = []
    for spec, probs_V in zip(DRAWS, probabilities, strict=True):
        values, ids = probs_V.sort(descending=True)
        top = [[i, "", p] for i, p in zip(ids.tolist(), values.tolist(), strict=True)]
        draws.append({"spec": spec, "top": top})
    asked = {"messages": [str(f) for f in files], "lengths": list(range(1, 700)), "draws": draws}
    request = json.dumps(asked)
    done = subprocess.run(
        [node.find(), READER, request], capture_output=True, text=True, timeout=120
    )
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""
    seen = json.loads(done.stdout)
    return seen | {"messages": dict(zip(RUNS, seen["messages"], strict=True))}


each_run = pytest.mark.parametrize("name", RUNS)


@each_run
def test_a_trip_is_read_for_each_token_and_all_its_ops(name: str, read: Any, traces: Any):
    seen, trace = read["messages"][name], traces[name]
    assert seen["n_trips"] == dict(trace.scalars("new_tokens"))[seen["n_trips"]]
    assert len(trace.array(0, "trip", "op_ends")) == len(seen["ops"])


@each_run
def test_the_staircase_ends_at_the_measured_bytes(name: str, read: Any, traces: Any):
    seen, trace = read["messages"][name], traces[name]
    assert seen["filled_bytes"][-1] == trace.scalars("kv_filled_bytes")[0][1]
    spec = RUNS[name]
    shape = pretrained.shape_of(spec.model)
    workload = Decode(batch_size=spec.batch_size, context=1)
    one = kv_cache_bytes(answers.answer_ops(shape, workload, spec.weight_format))
    assert set(np.diff(seen["filled_bytes"])) <= {one}


@each_run
def test_the_highest_moment_of_a_trip_that_was_looked_into_is_its_peak(
    name: str, read: Any, traces: Any
):
    assert read["messages"][name]["peaks"] == [v for _, v in traces[name].scalars("peak_bytes")]


@each_run
def test_attention_is_the_recorded_one(name: str, read: Any, traces: Any):
    trace = traces[name]
    for step, layers in enumerate(read["messages"][name]["attention"]):
        for i, shown in enumerate(layers):
            recorded = trace.array(step, f"blocks.{i}.attn.flash", "attention")[-1]
            np.testing.assert_allclose(shown, recorded, atol=1e-7)


@each_run
def test_the_cells_of_a_trip_are_values_that_its_parts_gave(name: str, read: Any, traces: Any):
    trace = traces[name]
    n = read["messages"][name]["n_trips"]
    parts = trace.array(n - 1, "trip", "parts")
    shown = read["messages"][name]["parts"]
    assert len(shown) == len(parts)
    several = n == 1 or not RUNS[name].cache  # then cells are those of all tokens, if looked into
    looked = n - 1 < len(trace.scalars("looked"))
    for cells, values in zip(shown, parts, strict=True):
        assert len(cells) == min(12, len(values))
        if not (several and looked):
            assert set(np.array(cells, np.float32)) <= set(values)


def test_evenly_spaced_tokens_are_those_that_were_recorded(read: Any):
    for n, places in enumerate(read["evenly"], start=1):
        assert places == drawing.evenly(n).tolist(), n


def test_the_cut_is_where_the_engine_makes_it(read: Any, probabilities: torch.Tensor):
    for spec, probs_V, n in zip(DRAWS, probabilities, read["kept"], strict=True):
        kept_V = allowed(probs_V[None], spec["top_k"], spec["top_p"])[0]
        expected = 1 if spec["temperature"] == 0 else int((kept_V > 0).sum())
        assert n == expected, spec
