"""The codec and the run folder: what is written is read again, and what is cut off is left out."""

import dataclasses
import itertools
import json
import math
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import get_args

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from core.events import (
    Array,
    Ended,
    Event,
    Sample,
    Scalar,
    Span,
    Started,
    decode,
    encode,
    quantise,
)
from core.trace import ARRAYS, EVENTS, Recorder, Trace, close, pack
from tests.core.strategies import event_kinds, events, finite, json_values

MARK = Scalar(step=1, name="mark", value=1.0)


def same(one: object, other: object) -> bool:
    """Equal in type and value, NaN being equal to NaN and arrays equal in every bit."""
    if type(one) is not type(other):
        return False
    if dataclasses.is_dataclass(one):
        return all(
            same(getattr(one, f.name), getattr(other, f.name)) for f in dataclasses.fields(one)
        )
    if isinstance(one, np.ndarray) and isinstance(other, np.ndarray):
        return (one.dtype, one.shape, one.tobytes()) == (other.dtype, other.shape, other.tobytes())
    if isinstance(one, float) and isinstance(other, float) and math.isnan(one):
        return math.isnan(other)
    return one == other


def all_same(some: list[Event], others: list[Event]) -> bool:
    return len(some) == len(others) and all(map(same, some, others))


def read(lines: bytes, arrays: bytes) -> list[Event]:
    return Trace.parse(lines, arrays).events


# -- one event ----------------------------------------------------------------------------------


def test_every_type_of_event_is_tried():
    """The examples below are drawn from all members of the union."""
    assert set(event_kinds) == set(get_args(Event))


@given(events, st.integers(0, 9))
def test_an_event_survives_its_line(event: Event, before: int):
    """Encoded and decoded at any offset, an event of any type comes back the same."""
    line, payload = encode(event, before)
    assert line.endswith(b"\n")
    assert b"\n" not in line[:-1]
    assert same(decode(line, memoryview(b"x" * before + payload)), event)


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf, 0.0, -0.0, 5e-324, 1e308, 3])
def test_a_number_survives_whatever_it_is(value: float):
    """Numbers that JSON cannot hold are told all the same, in JSON that any reader takes."""
    line, _ = encode(Scalar(step=0, name="loss", value=value))
    json.loads(line, parse_constant=pytest.fail)
    back = decode(line, memoryview(b""))
    assert isinstance(back, Scalar)
    assert repr(back.value) == repr(value)


@pytest.mark.parametrize("text", ["NaN", "Infinity", "-Infinity"])
def test_a_text_stays_a_text(text: str):
    """A name, a message or a setting that reads like a number is not made one."""
    told = [
        Scalar(step=0, name=text, value=1.0),
        Span(step=0, phase=text, op=text, start_s=0.0, end_s=1.0),
        Ended(status=text, message=text, n_steps=0, wall_s=0.0, cpu_s=0.0, advice={"value": text}),
    ]
    assert all_same(read(*pack(told)), told)


def test_an_array_is_its_readers_own():
    """A decoded array stays when the bytes it came from go, also at an odd offset."""
    values = np.arange(3.0)
    line, payload = encode(Array(step=0, op="a", role="b", values=values), 1)
    held = bytearray(b"x" + payload)
    event = decode(line, memoryview(held))
    held[:] = bytes(len(held))
    assert isinstance(event, Array)
    assert (event.values == values).all()


def test_a_view_is_written_in_its_own_order():
    """A transposed array comes back as it was indexed."""
    values = np.arange(6, dtype=np.int32).reshape(2, 3).T
    (event,) = read(*pack([Array(step=0, op="a", role="b", values=values)]))
    assert isinstance(event, Array)
    assert (event.values == values).all()


@pytest.mark.parametrize("dtype", [np.int64, np.float16, np.bool_, np.complex64, ">f4"])
def test_an_array_type_without_a_code_is_refused(dtype: object):
    """The message names the type and those that there are."""
    with pytest.raises(ValueError, match=r"dtype=.* has no code; use one of u1, i1, i4, f4, f8"):
        encode(Array(step=0, op="a", role="b", values=np.zeros(2, dtype)))


# -- drawing ------------------------------------------------------------------------------------


@given(
    hnp.arrays(np.float64, hnp.array_shapes(max_side=5), elements=st.floats(-1e6, 1e6)),
    st.floats(-1e3, 1e3),
    st.floats(1e-3, 1e3),
)
def test_a_picture_is_off_by_half_a_shade(numbers: np.ndarray, low: float, width: float):
    """Quantised numbers differ from the clipped ones by at most half of one of 255 shades."""
    high = low + width
    event = quantise(0, "op", "boundary", numbers, low=low, high=high)
    assert event.values.dtype == np.uint8
    gap = np.abs(event.numbers - np.clip(numbers, low, high)).max()
    assert gap <= (high - low) / 255 / 2 + 1e-9


def test_the_ends_of_a_picture_are_exact():
    """`low` and `high` and what lies beyond them are the first and the last shade."""
    event = quantise(0, "op", "boundary", np.array([-9.0, -2.0, 6.0, 9.0]), low=-2.0, high=6.0)
    assert event.values.tolist() == [0, 0, 255, 255]
    assert event.numbers.tolist() == [-2.0, -2.0, 6.0, 6.0]


@given(hnp.arrays(np.float32, hnp.array_shapes(max_side=3)))
def test_numbers_without_a_range_are_exact(values: np.ndarray):
    """An array that was not quantised is read in its own format and bits."""
    event = Array(step=0, op="op", role="weight", values=values)
    assert event.numbers.dtype == np.float32
    assert event.numbers.tobytes() == values.tobytes()


# -- cut off ------------------------------------------------------------------------------------

cut_runs = st.lists(events, max_size=5).flatmap(
    lambda told: st.tuples(st.just(told), st.floats(0, 1), st.floats(0, 1))
)


@given(cut_runs)
def test_a_cut_anywhere_leaves_whole_events(run: tuple[list[Event], float, float]):
    """Both files cut at any byte give a prefix of the events, and never an exception."""
    told, line_share, array_share = run
    lines, arrays = pack(told)
    lines, arrays = lines[: int(len(lines) * line_share)], arrays[: int(len(arrays) * array_share)]
    found = read(lines, arrays)
    assert all_same(found, told[: len(found)])


@given(st.lists(events, max_size=4))
def test_no_whole_event_is_left_out(told: list[Event]):
    """However the lines are cut, every event whose line and bytes are there is read."""
    lines, arrays = pack(told)
    for cut in {0, len(lines), *range(0, len(lines), 1 + len(lines) // 40)}:
        assert len(read(lines[:cut], arrays)) == lines[:cut].count(b"\n")
    n_bytes = [e.values.nbytes if isinstance(e, Array) else 0 for e in told]
    ends = list(itertools.accumulate(n_bytes))
    for cut in {0, len(arrays), *range(0, len(arrays), 1 + len(arrays) // 40)}:
        whole = list(itertools.takewhile(lambda end, cut=cut: end <= cut, ends))
        assert len(read(lines, arrays[:cut])) == len(whole)


# -- garbage ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "line",
    [
        b"",
        b" ",
        b"{",
        b"\xff\xfe",
        b"null",
        b"3",
        b'"Scalar"',
        b"[]",
        b"{}",
        b'{"type":"Nothing"}',
        b'{"type":null}',
        b'{"type":[]}',
        b'{"type":"Scalar","step":1,"name":"a"}',
        b'{"type":"Scalar","step":1,"name":"a","value":1,"more":2}',
        b'{"type":"Array","step":1,"op":"a","role":"b"}',
        b'{"type":"Array","step":1,"op":"a","role":"b","dtype":"f2","shape":[1],"offset":0}',
        b'{"type":"Array","step":1,"op":"a","role":"b","dtype":[],"shape":[1],"offset":0}',
        b'{"type":"Array","step":1,"op":"a","role":"b","dtype":"f4","shape":null,"offset":0}',
        b'{"type":"Array","step":1,"op":"a","role":"b","dtype":"u1","shape":[2],"offset":-2}',
        b'{"type":"Array","step":1,"op":"a","role":"b","dtype":"u1","shape":[1.5],"offset":0}',
        b'{"type":"Array","step":1,"op":"a","role":"b","dtype":"u1","shape":["1"],"offset":0}',
        b'{"type":"Array","step":1,"op":"a","role":"b","dtype":"u1","shape":[1],"offset":"0"}',
        b"[" * 100_000,
        b'{"type":"Scalar","step":1,"name":"a","value":' + b"9" * 5000 + b"}",
    ],
)
def test_a_whole_line_of_garbage_is_a_value_error(line: bytes):
    """A line that ends and is no event is not passed over, wherever it stands."""
    good, arrays = pack([MARK])
    with pytest.raises(ValueError, match="is not an event of schema"):
        read(good + line + b"\n" + good, arrays + b"xxxx")


@given(st.binary(max_size=30).filter(lambda line: b"\n" not in line) | json_values)
def test_any_line_is_an_event_or_a_value_error(garbage: object):
    """Bytes and JSON of every kind that are no event raise ValueError and nothing else."""
    line = garbage if isinstance(garbage, bytes) else json.dumps(garbage).encode()
    with pytest.raises(ValueError):
        decode(line, memoryview(b""))


@given(
    st.sampled_from(["Array", "Scalar", "Memory", "Started"]),
    st.dictionaries(
        st.sampled_from(
            ["step", "op", "role", "dtype", "shape", "offset", "low", "high", "name", "value"]
        ),
        json_values
        | st.sampled_from(["u1", "f4", "f8"])
        | st.lists(st.integers(-2, 3), max_size=3)
        | st.lists(st.sampled_from([0, 2**31, 2**70, 10**30]), max_size=3),
    ),
)
def test_an_event_with_wrong_fields_is_a_value_error_or_unfinished(kind: str, fields: dict):
    """Fields of any kind under a known type are an event, wait for bytes, or raise ValueError."""
    line = json.dumps({"type": kind, **fields}).encode()
    try:
        event = decode(line, memoryview(b"12345678"))
    except ValueError:
        return
    assert event is None or type(event).__name__ == kind


# -- run folders --------------------------------------------------------------------------------


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "run"


def frame(step: int, fill: int, n: int = 4) -> Array:
    return Array(step=step, op="head", role="boundary", values=np.full((n, n), fill, np.uint8))


@given(st.lists(st.lists(events, max_size=3), max_size=4))
def test_a_folder_holds_what_was_recorded(writes: list[list[Event]]):
    """Several writes, each by a recorder of its own, are read as one run in their order."""
    with TemporaryDirectory() as name:
        folder = Path(name) / "new" / "run"
        for told in writes:
            recorder = Recorder(folder)
            recorder.write(told)
            recorder.close()
        told = list(itertools.chain(*writes))
        if writes:
            assert all_same(Trace.read(folder).events, told)


def test_a_recorder_is_readable_after_every_write(folder: Path):
    """Nothing waits in a buffer: a reader sees a write once it has returned."""
    recorder = Recorder(folder)
    for step in range(3):
        recorder.write([frame(step, step), MARK])
        assert len(Trace.read(folder).events) == 2 * (step + 1)
    recorder.close()


def test_a_folder_without_a_run_is_not_found(folder: Path):
    """Reading where nothing was recorded raises FileNotFoundError."""
    with pytest.raises(FileNotFoundError):
        Trace.read(folder)


@given(st.lists(events.filter(lambda e: not isinstance(e, Ended)), max_size=3), st.data())
def test_closing_a_cut_run_ends_it(told: list[Event], data: st.DataObject):
    """Whole events stay, whatever was cut off goes, and the end that is written can be read."""
    lines, arrays = pack(told)
    lines = lines[: data.draw(st.integers(0, len(lines)))]
    arrays = arrays[: data.draw(st.integers(0, len(arrays)))]
    whole = read(lines, arrays)
    with TemporaryDirectory() as name:
        folder = Path(name)
        (folder / EVENTS).write_bytes(lines)
        (folder / ARRAYS).write_bytes(arrays)
        close(folder, "died", "signal 9")
        trace = Trace.read(folder)
        assert all_same(trace.events[:-1], whole)
        assert trace.ended is not None
        assert (trace.ended.status, trace.ended.message) == ("died", "signal 9")


def test_closing_twice_ends_once(folder: Path):
    """A run that has ended keeps its end and is not touched."""
    close(folder, "stopped", "first")
    before = (folder / EVENTS).read_bytes()
    close(folder, "died", "second")
    assert (folder / EVENTS).read_bytes() == before
    assert len(Trace.read(folder).events) == 1


def test_closing_a_run_that_never_began_ends_it(folder: Path):
    """Where not even a folder was made, one is, with the end in it."""
    close(folder, "failed", "no process")
    ended = Trace.read(folder).ended
    assert ended is not None
    assert ended.status == "failed"


# -- a trace's questions ------------------------------------------------------------------------


def test_a_trace_knows_its_ends():
    """`started` is the first event and `ended` the last, each only if it is one."""
    start = Started(
        spec_id="s", attempt="a", spec={}, machine={}, code_version="c", started_unix_s=0.0
    )
    end = Ended(status="finished", message="", n_steps=1, wall_s=1.0, cpu_s=1.0)
    assert Trace([]).started is None and Trace([]).ended is None
    assert Trace([MARK]).started is None and Trace([MARK]).ended is None
    assert Trace([start, MARK]).started is start and Trace([start, MARK]).ended is None
    assert Trace([start, MARK, end]).ended is end


def test_the_last_word_counts():
    """Of several scalars of a name and arrays of a place, the last recorded one is given."""
    trace = Trace(
        [
            Scalar(step=1, name="paused", value=1.0),
            Scalar(step=1, name="paused", value=0.0),
            Scalar(step=2, name="paused", value=1.0),
            frame(1, 7),
            frame(1, 8),
        ]
    )
    assert trace.scalars("paused") == [(1, 1.0), (1, 0.0), (2, 1.0)]
    assert trace.scalars_of(1) == {"paused": 0.0}
    assert (trace.array(1, "head", "boundary") == 8).all()
    with pytest.raises(KeyError, match="no boundary of head at step 2"):
        trace.array(2, "head", "boundary")


def bytes_of(told: list[Event]) -> int:
    """Of arrays, and of the lines of what a model wrote."""
    arrays = sum(e.values.nbytes for e in told if isinstance(e, Array))
    return arrays + sum(len(encode(e)[0]) for e in told if isinstance(e, Sample))


def is_frame(event: Event) -> bool:
    drawn = isinstance(event, Array) and event.role in ("boundary", "frame_weight", "answers")
    return drawn or isinstance(event, Sample)


@st.composite
def framed_runs(draw: st.DrawFn) -> list[Event]:
    """Frames of unlike sizes, the first the largest as in a run's opening, and much between."""
    told: list[Event] = []
    sizes = draw(st.lists(st.integers(1, 6), max_size=12))
    for step, n in enumerate(sizes):
        told.append(frame(step, step, n + (5 if step == 0 else 0)))
        told.append(Array(step=step, op="l", role="frame_weight", values=np.ones(n, np.float32)))
        if draw(st.booleans()):
            told.append(Array(step=step, op="head", role="answers", values=np.ones(n, np.uint8)))
        told += [
            Sample(step=step, name="sum", text="1+1=2") for _ in range(draw(st.integers(0, 2)))
        ]
        if draw(st.booleans()):
            told.append(Array(step=step, op="l", role="weight", values=np.ones(n)))
            told.append(Scalar(step=step, name="recorded_step_s", value=draw(finite)))
    return told


@given(framed_runs(), st.integers(0, 1500))
def test_a_thinned_run_fits_and_keeps_what_matters(told: list[Event], max_bytes: int):
    """All but frames stays; of frames the ends and those of recorded steps; it fits if it can."""
    steps = sorted({e.step for e in told if is_frame(e)})
    thinned = Trace(told).thinned(max_bytes).events
    assert [e for e in thinned if not is_frame(e)] == [e for e in told if not is_frame(e)]
    kept = sorted({e.step for e in thinned if is_frame(e)})
    assert kept[:1] == steps[:1] and kept[-1:] == steps[-1:]
    assert [e for e in thinned if is_frame(e)] == [
        e for e in told if is_frame(e) and e.step in kept
    ]
    always = {*steps[:1], *steps[-1:], *Trace(told).recorded_steps}
    assert {step for step in always if step in steps} <= set(kept)
    least = [e for e in told if not is_frame(e) or e.step in always]
    assert bytes_of(thinned) <= max(max_bytes, bytes_of(least))


@given(framed_runs())
def test_a_run_that_fits_is_left_alone(told: list[Event]):
    """No frame goes while the arrays fit."""
    assert Trace(told).thinned(bytes_of(told)).events == told


def test_frames_are_dropped_evenly():
    """The frames that stay are spread over the run, one in every so many."""
    told: list[Event] = [frame(step, 0) for step in range(101)]
    kept = [e.step for e in Trace(told).thinned(11 * 16).events]
    assert kept == list(range(0, 101, 10))
