"""The worker process and the host that starts it: real processes, killed where that is the claim.

The host's clock stands still unless a test moves it, so that no run counts as orphaned by chance.
Waiting has a generous end and no test asserts how long anything took.
"""

import gc
import math
import os
import re
import signal
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest

from core.events import Ended
from core.specs import TrainSpec
from core.trace import EVENTS, Trace
from core.worker_host import ORPHAN_AFTER_S, WorkerHost

pytestmark = pytest.mark.skipif(not Path("/proc/self").exists(), reason="looks into /proc")

SLOW = 5.0  # epochs a second: a run that is still there when a test is done with it
PARKED = "checkpoint.npz"


class Clock:
    """Stands still until it is moved; runs `at_next` when it is read the next time."""

    def __init__(self) -> None:
        self.now = 1000.0
        self.at_next: Callable[[], None] | None = None

    def __call__(self) -> float:
        act, self.at_next = self.at_next, None
        if act:
            act()
        return self.now


@pytest.fixture(scope="module")
def clock() -> Clock:
    return Clock()


@pytest.fixture(scope="module")
def host(tmp_path_factory: pytest.TempPathFactory, clock: Clock) -> Iterator[WorkerHost]:
    """A worker for the whole module; a test that kills it finds the next one started."""
    made = WorkerHost(tmp_path_factory.mktemp("runs"), clock)
    made.warm()
    yield made
    made.close()


@pytest.fixture(scope="module")
def parking(
    tmp_path_factory: pytest.TempPathFactory, clock: Clock, host: WorkerHost
) -> Iterator[WorkerHost]:
    """A worker whose paused runs give their process back at once; warms up beside the other."""
    made = WorkerHost(tmp_path_factory.mktemp("parked"), clock, park_after_s=0.1)
    made.warm()
    yield made
    made.close()


@pytest.fixture
def spec(request: pytest.FixtureRequest) -> TrainSpec:
    """Settings that no other test runs, so that none joins another's run."""
    seed = sum(ord(letter) * (i + 1) for i, letter in enumerate(request.node.name))
    return TrainSpec(n_epochs=5000, seed=seed)


@pytest.fixture(autouse=True)
def stopped_after(request: pytest.FixtureRequest) -> Iterator[None]:
    """Ends what a test left running."""
    yield
    for name in {"host", "parking"} & set(request.fixturenames):
        made: WorkerHost = request.getfixturevalue(name)
        for attempt in list(made._live):
            made.command(TrainSpec(), attempt, "stop")
        until(lambda made=made: not made._live)


def until(true: Callable[[], object]) -> None:
    """Wait for something to become true; give up with an error after a minute."""
    end = time.monotonic() + 60
    while not true():
        assert time.monotonic() < end, "it never became true"
        time.sleep(0.005)


def trace(host: WorkerHost, spec: TrainSpec, attempt: str) -> Trace:
    folder = host.folder(spec, attempt)
    assert folder is not None
    return Trace.read(folder) if (folder / EVENTS).exists() else Trace()


def end_of(host: WorkerHost, spec: TrainSpec, attempt: str) -> Ended:
    """The end of an attempt, waited for, until the host too has let go of it."""
    until(lambda: trace(host, spec, attempt).ended and not host.is_live(attempt))
    ended = trace(host, spec, attempt).ended
    assert ended is not None
    return ended


def epoch(host: WorkerHost, spec: TrainSpec, attempt: str) -> float:
    told = trace(host, spec, attempt).scalars("epoch")
    return told[-1][1] if told else -1


def paused(host: WorkerHost, spec: TrainSpec, attempt: str) -> bool:
    told = trace(host, spec, attempt).scalars("paused")
    return bool(told and told[-1][1])


def last_step(run: Trace) -> int:
    return run.scalars("epoch")[-1][0]


def final_weights(run: Trace) -> bytes:
    """Bits of every weight in the last frame."""
    started = run.started
    assert started is not None
    names = [f"layers.{i}" for i in range(len(started.spec["hidden"]))] + ["head"]
    step = last_step(run)
    return b"".join(run.array(step, f"{n}.linear", "frame_weight").tobytes() for n in names)


def process_of(folder: Path) -> int:
    """The process that has a run folder's events open: the run's own."""
    for fd in Path("/proc").glob("[0-9]*/fd/*"):
        try:
            target = os.readlink(fd)
        except OSError:
            continue
        if target == str((folder / EVENTS).resolve()) and int(fd.parts[2]) != os.getpid():
            return int(fd.parts[2])
    raise AssertionError(f"no process has {folder} open")


def gone(pid: int) -> bool:
    """Ended, whether or not somebody has asked for its exit status."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] in "ZX"
    except OSError:
        return True


def kill(pid: int | None) -> None:
    assert pid is not None
    os.kill(pid, signal.SIGKILL)
    until(lambda: gone(pid))


# -- a run --------------------------------------------------------------------------------------


def test_a_run_goes_to_its_end(host: WorkerHost):
    """Submitted, a run tells who it is first and that it finished last, all updates made."""
    spec = TrainSpec(n_epochs=20)
    attempt = host.submit(spec)
    end = end_of(host, spec, attempt)
    run = trace(host, spec, attempt)
    assert run.started is not None
    assert (run.started.spec_id, run.started.attempt) == (spec.spec_id, attempt)
    assert TrainSpec.from_json(run.started.spec) == spec
    assert (end.status, end.message, end.n_steps) == ("finished", "20 passes over the data", 500)
    assert [value for _, value in run.scalars("epoch")][-1] == 20
    assert run.recorded_steps == [0, 19 * 25]  # the run and its last pass begin with one


def test_a_run_is_the_engines(host: WorkerHost):
    """What the process computes is what the engine computes here, to the bit."""
    from core.engine.train import Training

    spec = TrainSpec(n_epochs=20, optimizer="adamw", batch_size=7)
    attempt = host.submit(spec)
    end_of(host, spec, attempt)
    here = Training(spec)
    while not here.done:
        here.run_epoch()
    expected = b"".join(np.ascontiguousarray(w.T).tobytes() for w in here.network.weights)
    assert final_weights(trace(host, spec, attempt)) == expected


def test_two_submits_of_one_spec_join(host: WorkerHost, spec: TrainSpec):
    """While a run is live its settings have one attempt; a paused one goes on if asked to run."""
    attempt = host.submit(spec, paused=True, epochs_per_s=SLOW)
    assert host.submit(spec, paused=True) == attempt
    assert host.live_attempt(spec) == attempt
    until(lambda: paused(host, spec, attempt))
    assert host.submit(spec) == attempt
    until(lambda: epoch(host, spec, attempt) >= 1)


def test_an_ended_run_blocks_no_other(host: WorkerHost):
    """After a run has ended its settings get a new attempt, and both are kept."""
    spec = TrainSpec(n_epochs=1, seed=7)
    one = host.submit(spec)
    end_of(host, spec, one)
    other = host.submit(spec)
    assert other != one
    assert end_of(host, spec, other).status == "finished"
    assert final_weights(trace(host, spec, one)) == final_weights(trace(host, spec, other))


def test_a_run_that_fails_says_so(host: WorkerHost, monkeypatch: pytest.MonkeyPatch):
    """Settings that the worker refuses end the attempt with the reason, and the worker goes on."""
    spec = TrainSpec(n_epochs=1, seed=8)
    pid = host.worker_pid
    # Only a page of another version of the code could send this.
    monkeypatch.setattr(TrainSpec, "to_json", lambda self: {"learning_rat": 1})
    attempt = host.submit(spec)
    end = end_of(host, spec, attempt)
    assert end.status == "failed"
    assert "ValueError: setting='learning_rat' is unknown" in end.message
    assert host.worker_pid == pid


# -- pause, step, resume, stop ------------------------------------------------------------------


def test_pause_records_a_step_and_halts(host: WorkerHost, spec: TrainSpec):
    """A paused run has one more step, looked into op by op, and then nothing more to tell."""
    attempt = host.submit(spec, epochs_per_s=50)
    until(lambda: epoch(host, spec, attempt) >= 3)
    assert trace(host, spec, attempt).recorded_steps == [0]
    host.command(spec, attempt, "pause")
    until(lambda: paused(host, spec, attempt))
    run = trace(host, spec, attempt)
    assert len(run.recorded_steps) == 2
    assert last_step(run) == run.recorded_steps[-1] + 1
    time.sleep(0.2)
    assert len(trace(host, spec, attempt).events) == len(run.events)
    assert host.is_live(attempt)


def test_a_run_may_begin_paused(host: WorkerHost, spec: TrainSpec):
    """It then has its first step recorded, and its picture before and after."""
    attempt = host.submit(spec, paused=True)
    until(lambda: paused(host, spec, attempt))
    run = trace(host, spec, attempt)
    assert run.recorded_steps == [0]
    assert [step for step, _ in run.scalars("epoch")] == [0, 1]


def test_a_step_is_one_update(host: WorkerHost, spec: TrainSpec):
    """Each step command records and takes one update, and the run stays paused."""
    attempt = host.submit(spec, paused=True)
    until(lambda: paused(host, spec, attempt))
    for n in (1, 2, 3):
        host.command(spec, attempt, "step")
        until(lambda n=n: len(trace(host, spec, attempt).scalars("paused")) == n + 2)
        run = trace(host, spec, attempt)
        assert run.recorded_steps == list(range(n + 1))
        assert last_step(run) == n + 1
        assert paused(host, spec, attempt)


def test_resume_goes_on(host: WorkerHost):
    """Paused, stepped and resumed, a run ends as the same run undisturbed, to the bit."""
    spec = TrainSpec(n_epochs=12, seed=9, optimizer="momentum")
    undisturbed = host.submit(spec)
    end_of(host, spec, undisturbed)
    attempt = host.submit(spec, paused=True, epochs_per_s=200)
    for do in ("step", "step", "resume", "pause", "step", "pace", "resume"):
        host.command(spec, attempt, do, epochs_per_s=200)
    end = end_of(host, spec, attempt)
    assert (end.status, end.n_steps) == ("finished", 12 * 25)
    assert not paused(host, spec, attempt)
    expected = final_weights(trace(host, spec, undisturbed))
    assert final_weights(trace(host, spec, attempt)) == expected


def test_steps_up_to_the_end_do_not_pass_it(host: WorkerHost):
    """Stepped to the last update and resumed, a run makes just that one."""
    spec = TrainSpec(n_epochs=1, batch_size=30, seed=10)  # eight updates
    attempt = host.submit(spec, paused=True)  # takes the first
    for _ in range(6):
        host.command(spec, attempt, "step")
    host.command(spec, attempt, "resume")
    assert end_of(host, spec, attempt).n_steps == 8
    assert epoch(host, spec, attempt) == 1


def test_the_last_step_ends_the_run(host: WorkerHost):
    """A run that is stepped past its last update finishes, paused or not."""
    spec = TrainSpec(n_epochs=1, batch_size=30, seed=11)
    attempt = host.submit(spec, paused=True)
    for _ in range(7):
        host.command(spec, attempt, "step")
    end = end_of(host, spec, attempt)
    assert (end.status, end.n_steps) == ("finished", 8)


def test_the_pace_is_kept(host: WorkerHost, spec: TrainSpec):
    """A run goes no faster than its pace, and as fast as it can once the limit is lifted."""
    began = time.monotonic()
    attempt = host.submit(spec, epochs_per_s=SLOW)
    until(lambda: epoch(host, spec, attempt) >= 3)
    assert epoch(host, spec, attempt) <= 1 + SLOW * (time.monotonic() - began)
    host.command(spec, attempt, "pace", epochs_per_s=math.inf)
    until(lambda: epoch(host, spec, attempt) > 2 * (1 + SLOW * (time.monotonic() - began)))


def test_stop_ends_with_a_message(host: WorkerHost, spec: TrainSpec):
    """A stopped run says that a visitor stopped it and how far it was; nobody joins it."""
    attempt = host.submit(spec, epochs_per_s=SLOW)
    until(lambda: epoch(host, spec, attempt) >= 1)
    host.command(spec, attempt, "stop")
    assert host.live_attempt(spec) is None
    end = end_of(host, spec, attempt)
    assert (end.status, end.message) == ("stopped", "stopped by a visitor")
    assert end.n_steps == last_step(trace(host, spec, attempt)) > 0


@pytest.mark.parametrize("do", ["pause", "resume", "step", "stop", "pace"])
def test_a_command_leaves_an_ended_run_alone(host: WorkerHost, do: str):
    """Whatever is asked of it, a finished attempt is neither started again nor written to."""
    spec = TrainSpec(n_epochs=1, seed=12)
    attempt = host.latest_attempt(spec) or host.submit(spec)
    end_of(host, spec, attempt)
    folder = host.folder(spec, attempt)
    assert folder is not None
    before = {path.name: path.read_bytes() for path in folder.iterdir()}
    host.command(spec, attempt, do)
    assert not host.is_live(attempt)
    other = TrainSpec(n_epochs=1, seed=13)  # by its end the worker has heard the command too
    end_of(host, other, host.submit(other))
    assert {path.name: path.read_bytes() for path in folder.iterdir()} == before


# -- more runs than places ----------------------------------------------------------------------


def test_a_fifth_run_waits_in_line(host: WorkerHost, spec: TrainSpec):
    """Four runs are at work; a fifth begins when one of them ends, as it was last told to."""
    specs = [TrainSpec(n_epochs=5000, seed=spec.seed + i) for i in range(6)]
    attempts = [host.submit(s, epochs_per_s=SLOW) for s in specs]
    runs = list(zip(specs, attempts, strict=True))
    until(lambda: all(epoch(host, s, a) >= 0 for s, a in runs[:4]))
    waiting, unwanted = runs[4], runs[5]
    host.command(*waiting, "pause")
    host.command(*unwanted, "stop")
    end = end_of(host, *unwanted)
    assert (end.status, end.message) == ("stopped", "stopped before its turn came")
    assert trace(host, *waiting).events == []
    assert host.is_live(waiting[1])
    host.command(*runs[0], "stop")
    until(lambda: paused(host, *waiting))
    assert trace(host, *waiting).recorded_steps == [0]
    host.command(*waiting, "resume", epochs_per_s=SLOW)
    until(lambda: epoch(host, *waiting) >= 1)


def test_a_paused_run_gives_its_place_to_one_that_waits(host: WorkerHost, spec: TrainSpec):
    """Four paused runs keep nobody waiting: one parks at once, and goes on when it is asked to."""
    specs = [TrainSpec(n_epochs=5000, seed=spec.seed + i) for i in range(5)]
    attempts = [host.submit(s, paused=True) for s in specs[:4]]
    until(lambda: all(paused(host, s, a) for s, a in zip(specs, attempts, strict=False)))
    last = host.submit(specs[4], epochs_per_s=SLOW)
    until(lambda: epoch(host, specs[4], last) >= 1)
    parked_one = next(a for a in attempts if not host.is_live(a))
    first = specs[attempts.index(parked_one)]
    host.command(first, parked_one, "resume", epochs_per_s=SLOW)
    until(lambda: epoch(host, first, parked_one) >= 1)
    host.command(specs[4], last, "stop")


# -- nobody watches -----------------------------------------------------------------------------


def test_a_run_that_nobody_watches_is_stopped(host: WorkerHost, clock: Clock, spec: TrainSpec):
    """After a while without a viewer a run ends and says why; one that is looked at stays."""
    watched = TrainSpec(n_epochs=5000, seed=spec.seed + 1)
    alone, other = host.submit(spec, epochs_per_s=SLOW), host.submit(watched, epochs_per_s=SLOW)
    clock.now += ORPHAN_AFTER_S
    host.stop_orphans()
    assert host.live_attempt(spec) == alone
    host.touch(other)
    clock.now += 1
    host.stop_orphans()
    assert host.live_attempt(spec) is None  # nobody joins a run that is being stopped
    end = end_of(host, spec, alone)
    assert (end.status, end.message) == ("stopped", "nobody was watching any more")
    assert host.is_live(other)


# -- parked runs --------------------------------------------------------------------------------


def parked(host: WorkerHost, spec: TrainSpec, attempt: str) -> Path:
    """The folder of a paused run once it has given its process back."""
    folder = host.folder(spec, attempt)
    assert folder is not None
    until(lambda: not host.is_live(attempt))
    assert (folder / PARKED).exists()
    return folder


def test_a_parked_run_goes_on_with_the_same_bits(parking: WorkerHost):
    """Paused for long, a run leaves a checkpoint; resumed, it ends as if nothing had happened."""
    spec = TrainSpec(n_epochs=12, seed=14, optimizer="adamw", batch_size=7)
    undisturbed = parking.submit(spec)
    end_of(parking, spec, undisturbed)
    attempt = parking.submit(spec, paused=True)
    folder = parked(parking, spec, attempt)
    assert trace(parking, spec, attempt).ended is None
    parking.command(spec, attempt, "step")
    until(lambda: len(trace(parking, spec, attempt).recorded_steps) == 2)
    parked(parking, spec, attempt)
    parking.command(spec, attempt, "resume")
    assert parking.is_live(attempt)
    end = end_of(parking, spec, attempt)
    run, same = trace(parking, spec, attempt), trace(parking, spec, undisturbed)
    assert (end.status, end.n_steps) == ("finished", 12 * (250 // 7))
    assert final_weights(run) == final_weights(same)
    assert [e for e in run.events if type(e).__name__ == "Started"] == run.events[:1]
    assert not (folder / PARKED).exists()


def test_a_parked_run_can_be_stopped(parking: WorkerHost, spec: TrainSpec):
    """Stopped while it has no process, a run ends like any other and cannot be taken up again."""
    attempt = parking.submit(spec, paused=True)
    folder = parked(parking, spec, attempt)
    parking.command(spec, attempt, "stop")
    end = end_of(parking, spec, attempt)
    assert (end.status, end.n_steps) == ("stopped", 1)
    assert not (folder / PARKED).exists()


def test_a_parked_run_gives_its_place_to_a_new_attempt(parking: WorkerHost, spec: TrainSpec):
    """A parked run is not live: the same settings start afresh, and both can go on."""
    attempt = parking.submit(spec, paused=True)
    parked(parking, spec, attempt)
    assert parking.live_attempt(spec) is None
    assert parking.submit(spec, paused=True) != attempt


# -- names --------------------------------------------------------------------------------------

MALFORMED = [
    "",
    ".",
    "..",
    "../secret",
    "20250101-000000-abcdef/..",
    "20250101-000000-abcdeg",
    "20250101-000000-ABCDEF",
    "20250101-000000-abcdef\n",
    "20250101-000000-abcdef0",
    "*",
]


@pytest.mark.parametrize("attempt", MALFORMED)
def test_a_malformed_name_is_no_folder(host: WorkerHost, attempt: str):
    """What does not look like an attempt is not looked for."""
    assert host.folder(TrainSpec(), attempt) is None
    assert not host.exists(attempt)


@pytest.mark.parametrize("attempt", [*MALFORMED[1:], "20250101-000000-abcdef"])
def test_a_command_to_no_run_makes_none(host: WorkerHost, tmp_path: Path, attempt: str):
    """A name that is malformed, or that nothing has, neither starts a run nor makes a folder."""
    runs = host._runs
    before = sorted(runs.parent.rglob("*"))
    for do in ("resume", "step", "stop"):
        host.command(TrainSpec(), attempt, do)
    assert not host.is_live(attempt)
    assert sorted(runs.parent.rglob("*")) == before


def test_an_attempt_is_found_by_its_name(host: WorkerHost):
    """It has a folder under its own settings only, and the newest of several is known."""
    spec, other = TrainSpec(n_epochs=1, seed=15), TrainSpec(n_epochs=1, seed=16)
    assert host.latest_attempt(spec) is None
    attempt = host.submit(spec)
    end_of(host, spec, attempt)
    assert host.folder(spec, attempt) is not None
    assert host.folder(other, attempt) is None
    assert host.exists(attempt)
    assert host.latest_attempt(spec) == attempt


# -- processes that die -------------------------------------------------------------------------


def test_a_run_whose_process_is_killed_ends_alone(host: WorkerHost, spec: TrainSpec):
    """It is marked as died with the signal; other runs and the worker go on."""
    other = TrainSpec(n_epochs=5000, seed=spec.seed + 1)
    attempt, neighbour = (host.submit(s, epochs_per_s=SLOW) for s in (spec, other))
    until(lambda: epoch(host, spec, attempt) >= 1 and epoch(host, other, neighbour) >= 1)
    worker, folder = host.worker_pid, host.folder(spec, attempt)
    assert folder is not None
    kill(process_of(folder))
    end = end_of(host, spec, attempt)
    assert (end.status, end.message) == ("died", "the process of this run ended by signal 9")
    seen = epoch(host, other, neighbour)
    until(lambda: epoch(host, other, neighbour) > seen)
    assert host.worker_pid == worker


def test_a_folder_that_cannot_be_read_harms_no_other_run(host: WorkerHost, spec: TrainSpec):
    """A killed run whose events are garbage is let go of, and the worker goes on."""
    attempt, worker = host.submit(spec, epochs_per_s=SLOW), host.worker_pid
    until(lambda: epoch(host, spec, attempt) >= 1)
    folder = host.folder(spec, attempt)
    assert folder is not None
    pid = process_of(folder)
    (folder / EVENTS).write_text("garbage\n")
    kill(pid)
    until(lambda: not host.is_live(attempt))
    again = TrainSpec(n_epochs=1, seed=spec.seed)
    assert end_of(host, again, host.submit(again)).status == "finished"
    assert host.worker_pid == worker


def test_a_killed_worker_ends_its_runs(host: WorkerHost, spec: TrainSpec):
    """Runs of a killed worker die with it and say so; the next submit has a new worker."""
    other = TrainSpec(n_epochs=5000, seed=spec.seed + 1)
    runs = [(s, host.submit(s, epochs_per_s=SLOW)) for s in (spec, other)]
    until(lambda: all(epoch(host, *run) >= 1 for run in runs))
    folders = [folder for run in runs if (folder := host.folder(*run))]
    processes, worker = [process_of(folder) for folder in folders], host.worker_pid
    kill(worker)
    for run in runs:
        end = end_of(host, *run)
        assert end.status == "died"
        # Its own word or the host's, whichever comes first.
        assert re.fullmatch(r"the worker process ended( \(code -9\))?; run it again", end.message)
    until(lambda: all(gone(pid) for pid in processes))
    again = TrainSpec(n_epochs=1, seed=spec.seed)
    assert end_of(host, again, host.submit(again)).status == "finished"
    assert host.worker_pid not in (worker, None)


def test_commands_to_a_dying_worker_never_raise(host: WorkerHost, spec: TrainSpec):
    """Whatever is sent to a worker that has just been killed, none of it raises, then or later."""
    attempt = host.submit(spec, epochs_per_s=SLOW)
    until(lambda: epoch(host, spec, attempt) >= 0)
    assert host.worker_pid is not None
    os.kill(host.worker_pid, signal.SIGKILL)
    for _ in range(50):
        for do in ("pause", "step", "resume", "pace", "stop"):
            host.command(spec, attempt, do)
    assert end_of(host, spec, attempt).status in ("died", "stopped")
    gc.collect()  # a buffer with something left in it would complain now


def test_no_run_of_a_dead_worker_stays_live(host: WorkerHost, clock: Clock, spec: TrainSpec):
    """Also where another submit comes between a worker's death and the host's hearing of it."""
    attempt = host.submit(spec, epochs_per_s=SLOW)
    until(lambda: epoch(host, spec, attempt) >= 0)
    other = TrainSpec(n_epochs=1, seed=spec.seed + 1)
    worker = host.worker_pid
    clock.at_next = lambda: kill(worker)  # read within the submit, whose lock the host waits for
    second = host.submit(other)
    assert end_of(host, spec, attempt).status == "died"
    assert end_of(host, other, second).status in ("died", "finished")


def test_a_worker_that_cannot_start_ends_its_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """Where the process ends before it is ready, runs end with its exit code, and nothing hangs."""
    (tmp_path / "sitecustomize.py").write_text(
        "import os, sys\nif 'core.worker' in sys.orig_argv: os._exit(3)\n"
    )
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    spec, broken = TrainSpec(n_epochs=1), WorkerHost(tmp_path / "runs")
    broken.warm()
    attempt = broken.submit(spec)
    broken.command(spec, attempt, "pause")
    end = end_of(broken, spec, attempt)
    assert end.status == "died"
    assert "code 3" in end.message
    broken.close()


def test_closing_ends_the_runs(parking: WorkerHost, spec: TrainSpec):
    """When the host closes, every run is told to stop, and no process is left."""
    attempt = parking.submit(spec, epochs_per_s=SLOW)
    until(lambda: epoch(parking, spec, attempt) >= 1)
    folder, worker = parking.folder(spec, attempt), parking.worker_pid
    assert folder is not None and worker is not None
    process = process_of(folder)
    parking.close()
    assert gone(worker)
    assert gone(process)
    end = end_of(parking, spec, attempt)
    assert (end.status, end.message) == ("stopped", "the server ended")
    parking.stop_orphans()
    assert parking.worker_pid is None  # nothing starts it again unasked
