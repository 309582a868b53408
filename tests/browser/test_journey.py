"""A visitor's way through the training page: the shipped step, a live run, its end."""

import itertools
import os
import shutil
import signal
from pathlib import Path

import pytest

from core.recordings import shipped
from core.specs import TrainSpec
from core.trace import Trace
from core.worker_host import ATTEMPT
from tests.browser.conftest import Visit
from tests.browser.page import PHONE, Training
from tests.browser.server import Server

pytestmark = pytest.mark.browser

PLAYGROUND = {"epochs": 5000, "pace": 10}  # these go on for minutes
ADDITION = {"specimen": "addition", "batch_a": 32, "steps_a": 20000}

seeds = itertools.count(101)  # a spec for each test: runs of the same one would be joined


def link(**settings: object) -> str:
    """A link to the training page with settings that no other test uses."""
    settings = {"seed": next(seeds), **settings}
    return "/training?" + "&".join(f"{key}={value}" for key, value in settings.items())


def attempts(runs: Path, tab: Training) -> list[Path]:
    """The run folders of what a tab shows, oldest first."""
    spec_id = tab.ask("m.header.run").split("/")[0]
    return sorted(p for p in (runs / spec_id).glob("*") if ATTEMPT.fullmatch(p.name))


def folder(runs: Path, tab: Training) -> Path:
    """The run folder that a tab shows."""
    return runs / tab.ask("m.header.run")


# -- arriving -----------------------------------------------------------------------------------


def test_a_first_visit_shows_the_shipped_step_with_its_numbers(visit: Visit):
    tab = visit("/training")
    recording = shipped(TrainSpec())
    assert recording is not None
    trace = Trace.read(recording)
    step = trace.recorded_steps[len(trace.recorded_steps) // 2]
    frames = {at: epoch for at, epoch in trace.scalars("epoch") if at <= step}
    (epoch, right) = frames[max(frames)], trace.scalars_of(max(frames))["held_out_accuracy"]
    assert tab.ask("[m.view.mode, m.view.step]") == ["step", step]
    counts = tab.ask("m.el.counts.textContent")
    assert f"epoch {epoch:.0f} " in counts
    assert f"step {step:,}" in counts
    assert f"{100 * right:.1f} %" in counts
    tab.seek(1)
    assert tab.ask("m.state.loss") == trace.scalars_of(step)["loss"]
    shown = tab.ask("Number(root.querySelector('[data-el$=before]').title.replace('−', '-'))")
    followed = tab.ask("root.querySelector('[data-el=weights]').value")
    layer, out, source = map(int, followed.split("/"))
    assert layer == 2  # the output's
    weights = trace.array(step, "head.linear", "weight")
    assert shown == pytest.approx(weights[out, source], rel=1e-7)


# -- a live run ---------------------------------------------------------------------------------


def test_a_run_is_seen_to_learn_is_paused_and_stepped(visit: Visit, runs: Path):
    """From the shipped step through the first button to one real update more."""
    tab = visit("/?pace=10")  # the default spec, which is shipped
    assert tab.ask("m.header.stream") is None
    first = tab.page.locator(".st-key-go button")
    assert first.inner_text().endswith("Run it here")
    tab.ask("(window.painted = new Set(), m.paint = (paint => function () { paint.call(m);"
            " window.painted.add(m.trace.frames.at(-1)?.step); })(m.paint))")  # fmt: skip
    tab.train()
    tab.until("window.painted.size >= 4")
    tab.until("m.trace.frames.at(-1).held_out_accuracy >= 0.95")
    losses = tab.ask("m.trace.frames.map((f) => [f.epoch, f.held_out_loss])")
    epochs = [epoch for epoch, _ in losses]
    assert epochs == sorted(epochs)
    assert losses[-1][1] < 0.5 * losses[0][1]

    tab.pause()
    trace = Trace.read(folder(runs, tab))
    recorded = trace.recorded_steps
    assert tab.ask("m.view.step") == recorded[-1] > 0
    assert tab.ask("m.trace.recorded.map((r) => r.step)") == recorded
    epoch = dict(trace.scalars("epoch"))[recorded[-1]]
    tab.until(
        "m.el.counts.textContent.startsWith(arg)", f"epoch {epoch:.0f} · step {recorded[-1]:,} "
    )

    tab.press("Step")
    tab.until("m.view.step !== arg", recorded[-1])
    assert tab.ask("m.view.step") == recorded[-1] + 1
    trace = Trace.read(folder(runs, tab))
    assert trace.recorded_steps == [*recorded, recorded[-1] + 1]
    assert trace.scalars("epoch")[-1][0] == recorded[-1] + 2  # the update was taken
    tab.stop()  # others run these settings too


def test_keys_move_the_playhead_by_ops_and_phases_and_ask_the_server_nothing(look: Visit):
    tab = look()
    recording = shipped(TrainSpec())
    assert recording is not None
    trace, step = Trace.read(recording), tab.ask("m.view.step")
    spans = trace.spans(step)
    phases = [i for i, s in enumerate(spans) if i == 0 or s.phase != spans[i - 1].phase]
    tab.page.wait_for_load_state("networkidle")
    asked, sent = len(tab.traffic.requests), tab.traffic.n_frames_sent

    def at(i: int) -> None:
        """The playhead stands at the beginning of a span, and the page says so."""
        assert tab.ask("m.clock.t") == spans[i].start_s
        tab.until("m.el.where.textContent.startsWith(arg)", f"{spans[i].phase} · {spans[i].op} ")

    for i in range(1, len(spans)):
        tab.key("ArrowRight")
        at(i)
    tab.key("ArrowRight")
    assert tab.ask("m.clock.t === m.clock.end")
    for i in reversed(phases):
        tab.key("Shift+ArrowLeft")
        at(i)
    for i in phases[1:]:
        tab.key("Shift+ArrowRight")
        at(i)
    tab.key("ArrowLeft")
    at(phases[-1] - 1)
    tab.key("End")
    assert tab.ask("m.clock.t") == spans[-1].end_s
    tab.key("Home")
    at(0)
    tab.key("Space")
    assert tab.ask("m.clock.playing")
    tab.until("m.clock.t > 0")
    tab.key("Space")
    assert not tab.ask("m.clock.playing")
    assert tab.traffic.requests[asked:] == []
    assert tab.traffic.n_frames_sent == sent


def test_a_slow_press_on_pause_pauses(look: Visit):
    """The button's label must not be drawn anew while a finger is on it."""
    tab = look()
    tab.key("Space")
    tab.until("m.clock.t > 0")
    box = tab.widget.locator("[data-el=play]").bounding_box()
    assert box is not None
    tab.page.mouse.move(box["x"] + box["width"] / 2, box["y"] + box["height"] / 2)
    tab.page.mouse.down()
    moment = tab.ask("m.clock.t")
    tab.until("m.clock.t > arg", moment)
    tab.page.mouse.up()
    tab.until("!m.clock.playing")
    assert tab.ask("m.clock.t < m.clock.end")


def test_the_canvas_is_as_wide_as_its_box(look: Visit):
    """Else the picture is squeezed, and the pointer is not where it seems."""
    for tab in (look(), look(viewport=PHONE)):
        sizes = tab.ask("[m.el.scene, m.el.ribbon, m.el.loss].map((c) => [c.width, c.clientWidth])")
        assert [drawn - shown for drawn, shown in sizes] == [0, 0, 0]


def test_a_press_on_the_ribbon_goes_to_the_moment_under_the_pointer(look: Visit):
    tab = look()
    box = tab.widget.locator("canvas[data-el=ribbon]").bounding_box()
    assert box is not None
    share = 0.75
    scale = tab.ask(
        "({x: ribbon.scales(m.recorded, m.el.ribbon.clientWidth).x(arg * m.clock.end)})", share
    )
    tab.page.mouse.click(box["x"] + scale["x"], box["y"] + 100)
    assert tab.ask("m.clock.t / m.clock.end") == pytest.approx(share, abs=0.002)


# -- coming back, and in company ----------------------------------------------------------------


def test_a_reload_comes_back_to_the_same_run(visit: Visit):
    tab = visit(link(**PLAYGROUND)).train()
    run, seen = tab.ask("[m.header.run, m.trace.frames.length]")
    tab.page.wait_for_url(f"**run={run.split('/')[1]}*")
    tab.reload()
    assert tab.ask("m.header.run") == run
    tab.until("m.trace.frames.length > arg", seen + 5)
    assert tab.ask("m.trace.started.attempt") == run.split("/")[1]
    tab.press("Stop")


def test_two_tabs_of_one_spec_watch_one_run(visit: Visit, runs: Path):
    at = link(**PLAYGROUND)
    one = visit(at).train()
    other = visit(at)  # another visitor, who knows only the settings
    other.until("m.source && m.trace.frames.length > 5")
    assert other.ask("m.header.run") == one.ask("m.header.run")
    one.pause()
    other.until("m.trace.paused && m.view.mode === 'step'")
    other.button("Train").wait_for()
    other.press("Train")
    one.until("!m.trace.paused")
    one.button("Pause").wait_for()
    assert len(attempts(runs, one)) == 1
    one.press("Stop")
    other.until("m.trace.ended")


def test_two_visitors_who_run_the_shipped_settings_share_the_run(visit: Visit, runs: Path):
    one, other = visit("/?pace=10"), visit("/?pace=10")
    before = set(attempts(runs, one))
    one.train()
    other.train()
    assert other.ask("m.header.run") == one.ask("m.header.run")
    assert len(set(attempts(runs, one)) - before) == 1
    one.press("Stop")
    other.until("m.trace.ended")


def test_stop_ends_a_run_and_reset_goes_back_to_the_first_weights(visit: Visit, runs: Path):
    tab = visit(link(**PLAYGROUND)).train()
    stopped = folder(runs, tab)
    first = tab.ask("[...m.trace.frames[0].arrays.get('head.linear frame_weight').values]")
    tab.stop()
    ended = Trace.read(stopped).ended
    assert ended is not None and ended.status == "stopped" and ended.n_steps > 0
    assert tab.button("Stop").is_disabled()
    tab.page.get_by_text("This run ended early").wait_for()

    tab.press("Reset")
    tab.until("m.header.run !== arg && m.view.step === 0 && m.trace.paused",
              f"{stopped.parent.name}/{stopped.name}")  # fmt: skip
    assert tab.ask("[...m.recorded.arrays.get('head.linear weight').values]") == first
    assert tab.button("Train").is_enabled() and tab.button("Stop").is_enabled()
    assert attempts(runs, tab) == [stopped, folder(runs, tab)]


# -- when things break --------------------------------------------------------------------------


def worker_of(server: Server) -> int:
    """Process id of the server's worker."""
    for stat in Path("/proc").glob("[0-9]*/stat"):
        parent = stat.read_text().rpartition(")")[2].split()[1]
        command = (stat.parent / "cmdline").read_bytes()
        if int(parent) == server.pid and b"core.worker" in command:
            return int(stat.parent.name)
    raise AssertionError(f"process {server.pid} has no worker")


def test_a_worker_that_dies_breaks_its_runs_off_and_the_next_one_runs_them(
    visit: Visit, runs: Path, server: Server
):
    """NumPy's and torch's; what they recorded stays."""
    tabs = [visit(link(**settings)).train() for settings in (PLAYGROUND, ADDITION)]
    broken = [folder(runs, tab) for tab in tabs]
    seen = [tab.ask("m.trace.frames.length") for tab in tabs]
    os.kill(worker_of(server), signal.SIGKILL)
    for tab, run, n_frames in zip(tabs, broken, seen, strict=True):
        tab.page.get_by_text("This run broke off").wait_for()
        tab.until("m.trace.ended?.status === 'died'")
        assert tab.ask("m.trace.frames.length") >= n_frames
        ended = Trace.read(run).ended
        assert ended is not None and ended.status == "died"
        tab.until("m.recorded && m.place")

    for tab, run in zip(tabs, broken, strict=True):
        tab.train()
        tab.until("m.header.run !== arg", f"{run.parent.name}/{run.name}")
        tab.page.get_by_text("This run broke off").wait_for(state="detached")
        tab.stop()


def vanish(runs: Path, tab: Training) -> str:
    """Delete the folder of the run that a tab shows; returns which it was."""
    gone = folder(runs, tab)
    shutil.rmtree(gone)
    return f"{gone.parent.name}/{gone.name}"


ANOTHER = "m.header.run !== arg && m.trace.frames.length && m.trace.recorded.length"


@pytest.mark.parametrize("settings", [PLAYGROUND, ADDITION], ids=["playground", "addition"])
def test_a_live_run_s_folder_that_vanishes_leaves_a_page_that_trains(
    visit: Visit, runs: Path, settings: dict[str, object]
):
    tab = visit(link(**settings), allowed=(r"^404 .*/api/runs/",)).train()
    tab.until(ANOTHER, vanish(runs, tab))
    tab.train().stop()


def test_a_paused_or_ended_run_s_folder_that_vanishes_leaves_a_page_that_trains(
    visit: Visit, runs: Path
):
    tab = visit(link(**ADDITION), allowed=(r"^404 .*/api/runs/",))
    for _ in ("paused", "ended"):
        gone = vanish(runs, tab)
        tab.page.reload()  # it asks for nothing more by itself
        tab.until(ANOTHER, gone)
        tab.train().stop()
