"""A run is in the state its folder and its worker say; its numbers say where they are from."""

from collections.abc import Iterable
from pathlib import Path

import pytest

from components import runs
from components.runs import View
from core.events import Ended, Event, Scalar, Started
from core.specs import TrainSpec
from core.trace import EVENTS, Recorder, Trace

ATTEMPT = "20260101-120000-abcdef"
STARTED = Started(
    spec_id="0",
    attempt=ATTEMPT,
    spec={},
    machine={"cpu": "some CPU", "n_threads": 1},
    code_version="0",
    started_unix_s=1_767_355_500.0,  # 2 January 2026, 12:05 UTC
)
PAUSED = Scalar(step=0, name="paused", value=1)
GOES_ON = Scalar(step=0, name="paused", value=0)


def ended(status: str) -> Ended:
    return Ended(status=status, message="", n_steps=0, wall_s=0, cpu_s=0)


def view(events: Iterable[Event], *, live: bool = True, attempt: str | None = ATTEMPT) -> View:
    trace = Trace([*events])
    return View(spec=TrainSpec(), attempt=attempt, folder=Path(), trace=trace, live=live)


@pytest.mark.parametrize(
    ("events", "live", "state"),
    [
        ([], True, "waiting"),
        ([STARTED], True, "opening"),  # it records its first step, and may be meant to wait then
        ([STARTED, GOES_ON], True, "opening"),
        ([STARTED, GOES_ON, GOES_ON], True, "running"),
        ([STARTED, PAUSED], True, "paused"),
        ([STARTED, PAUSED, GOES_ON], True, "running"),
        ([STARTED, PAUSED], False, "paused"),  # parked: its process was given back
        ([STARTED, PAUSED, GOES_ON], False, "died"),
        ([STARTED], False, "died"),
        ([], False, "died"),
        *(
            ([STARTED, PAUSED, ended(status)], live, status)
            for status in ("finished", "stopped", "diverged", "failed", "died")
            for live in (True, False)
        ),
    ],
)
def test_the_state_is_what_the_folder_says_or_that_its_process_is_gone(
    events: list[Event], live: bool, state: str
):
    assert view(events, live=live).state == state


def test_a_shipped_run_is_recorded_whatever_it_says():
    assert view([STARTED, ended("finished")], live=False, attempt=None).state == "recorded"


@pytest.mark.parametrize(
    ("events", "live", "is_open"),
    [
        ([], True, True),
        ([STARTED], True, True),
        ([STARTED, PAUSED], False, True),
        ([STARTED], False, False),
        ([STARTED, ended("stopped")], True, False),
    ],
)
def test_a_run_is_open_while_more_may_come(events: list[Event], live: bool, is_open: bool):
    assert view(events, live=live).open == is_open


def test_the_origin_names_the_machine_and_the_time():
    assert view([STARTED]).origin == (
        "measured on this machine, 2 Jan 2026 12:05 UTC: some CPU, 1 thread"
    )
    assert view([STARTED], attempt=None).origin == "recorded 2 Jan 2026 on some CPU, 1 thread"


def test_before_its_first_event_a_run_has_no_origin():
    assert view([]).origin == "waiting for a free place on this machine"


def test_the_latest_recorded_step_is_the_one_that_is_quoted():
    events = [
        STARTED,
        Scalar(step=0, name="weights_bytes", value=1),
        Scalar(step=0, name="recorded_step_s", value=1e-4),
        Scalar(step=9, name="weights_bytes", value=2),
        Scalar(step=9, name="recorded_step_s", value=1e-4),
        Scalar(step=12, name="weights_bytes", value=3),  # not whole yet
    ]
    assert view(events).last_recorded_scalars["weights_bytes"] == 2
    assert view([STARTED]).last_recorded_scalars == {}


def test_examples_are_those_of_the_latest_recorded_step_or_the_batch():
    """They differ where a step also takes what was left over from the pass before."""
    events = [
        Scalar(step=0, name="batch_examples", value=17),
        Scalar(step=0, name="recorded_step_s", value=1e-4),
    ]
    assert runs.examples_in_step(view(events)) == 17
    assert runs.examples_in_step(view([])) == TrainSpec().batch_size


def test_a_folder_that_its_writer_has_only_begun_reads_as_far_as_it_goes(tmp_path: Path):
    assert runs.read(tmp_path).events == []
    (tmp_path / EVENTS).touch()
    assert runs.read(tmp_path).events == []
    recorder = Recorder(tmp_path / "other")
    recorder.write([STARTED])
    recorder.close()
    (tmp_path / "other" / EVENTS).rename(tmp_path / EVENTS)
    assert runs.read(tmp_path).started == STARTED


def test_reading_follows_a_folder_that_grows(tmp_path: Path):
    assert runs.read(tmp_path).events == []
    recorder = Recorder(tmp_path)
    for n in range(1, 4):
        recorder.write([Scalar(step=n, name="epoch", value=n)])
        assert len(runs.read(tmp_path).events) == n
    recorder.close()


def test_reading_twice_decodes_once(tmp_path: Path):
    recorder = Recorder(tmp_path)
    recorder.write([STARTED])
    recorder.close()
    assert runs.read(tmp_path) is runs.read(tmp_path)
