"""The training page shows what was recorded, and its buttons drive a real run.

Every test that starts a run has a seed of its own, so that no two look at the same one.
"""

import gc
import os
import re
import signal
from itertools import count
from pathlib import Path
from typing import Any

import pytest

from components import runs
from components.theme import bytes_text
from core.events import Ended, Event, Scalar, Started
from core.recordings import shipped
from core.specs import TrainSpec
from core.trace import Trace
from tests.pages.conftest import Visit
from tests.pages.page import Page, keep

SHIPPED = Trace.read(Path(__file__).resolve().parents[2] / "core" / "recordings" / "circle")
LABELS = {
    "weights_bytes": "Weights",
    "gradients_bytes": "Gradients",
    "optimizer_bytes": "Optimizer state",
    "activations_bytes": "Activations",
}
SEEDS = count(1000)
GONE = "20200101-000000-abcdef"


@pytest.fixture
def seed() -> int:
    """One that no other test of this module uses."""
    return next(SEEDS)


def is_paused(run: Trace) -> bool:
    said = run.scalars("paused")
    return bool(said) and said[-1][1] == 1


def n_recorded(n: int) -> Any:
    return lambda run: len(run.recorded_steps) == n


def numbers(page: Page) -> dict[str, tuple[str, str]]:
    """What stands under each label of the comparison: (measured, predicted and error)."""
    shown = [m.value for m in page.at.markdown if "  \n**" in m.value and ":small" not in m.value]
    said = [c.value for c in page.at.caption if c.value.startswith("predicted ")]
    measured = dict(re.fullmatch(r"(.+)  \n\*\*(.+)\*\*", text).groups() for text in shown)  # type: ignore[union-attr]
    return {
        label: (value, text) for (label, value), text in zip(measured.items(), said, strict=True)
    }


# -- the first visit ------------------------------------------------------------------------------


def test_the_first_visit_shows_the_shipped_run(visit: Visit):
    page = visit()
    assert page.at.title[0].value == "A step is four things, over and over"
    header, run = page.header, page.shown
    assert header["stream"] is None
    assert len(run.events) == len(SHIPPED.events)
    assert [step for step, _ in run.scalars("recorded_step_s")] == SHIPPED.recorded_steps
    assert "run" not in page.at.query_params


@pytest.mark.parametrize("quantity", LABELS)
def test_the_first_numbers_are_the_recorded_ones_and_the_prediction_is_exact(
    visit: Visit, quantity: str
):
    """Measured is the trace's own scalar, the same in all its steps; predicted is the same."""
    (recorded,) = {value for _, value in SHIPPED.scalars(quantity)}
    text = bytes_text(recorded)
    assert numbers(visit())[LABELS[quantity]] == (text, f"predicted {text} · exact")


def test_every_number_says_where_it_is_from_and_how_it_is_made(visit: Visit):
    """Formula, machine, and how often it was measured, for each of the four."""
    page = visit()
    machine = SHIPPED.started.machine["cpu"]  # type: ignore[union-attr]
    assert len(page.at.latex) == 4
    assert page.said.count(f"on {machine}") == 4
    assert page.said.count("median of 15 repeats") == 4


def test_the_first_visit_starts_no_run(visit: Visit, kept: Path):
    visit()
    assert not (kept / TrainSpec().spec_id).exists()


def test_a_shipped_run_offers_to_be_run_here(visit: Visit):
    assert visit().labels == ["Run it here", "Step", "Reset"]


def test_a_rerun_collects_no_garbage(visit: Visit):
    """A full collection at every rerun costs what Streamlit's own was turned off to save, and
    freezing what is alive each time would keep it for good."""
    page = visit()
    full: list[str] = []

    def note(phase: str, info: dict[str, int]) -> None:
        if phase == "start" and info["generation"] == 2:
            full.append(phase)

    frozen = gc.get_freeze_count()
    gc.disable()  # what is left are collections that somebody asks for
    gc.callbacks.append(note)
    page.again()
    gc.callbacks.remove(note)
    gc.enable()
    assert full == []
    assert gc.get_freeze_count() <= frozen


# -- settings -------------------------------------------------------------------------------------


def test_choosing_adamw_changes_the_prediction_at_once(visit: Visit, seed: int):
    """k = 2 buffers for each of P = 25 parameters of 4 bytes, and c = 4 bytes for n = 6 tensors."""
    page = visit(seed=str(seed)).set("opt", "AdamW")
    expected = 2 * 25 * 4 + 4 * 6
    assert numbers(page)["Optimizer state"][1].startswith(f"predicted {expected} B")


def test_a_larger_batch_changes_the_predicted_activations_at_once(visit: Visit, seed: int):
    """Each example keeps the outputs of 4 + 2 + 1 neurons, 4 bytes each."""
    page = visit(seed=str(seed)).set("batch", 20)
    assert numbers(page)["Activations"][1].startswith(f"predicted {20 * 7 * 4} B")


def test_the_settings_count_the_parameters(visit: Visit, seed: int):
    page = visit(seed=str(seed), depth="1", w1="3", features=["x", "y", "x·y"])
    assert "**16 parameters**" in page.said
    assert "12 + 4, biases included" in page.said


def test_settings_that_nobody_has_run_get_a_run_that_waits_with_one_step_recorded(
    visit: Visit, seed: int
):
    """Nothing is drawn that did not happen, so a step happens."""
    spec = TrainSpec(seed=seed)
    page = visit().set("seed", seed)
    page.until(spec, is_paused)
    run = page.run(spec)
    assert run.recorded_steps == [0]
    assert run.scalars("epoch")[0] == (0, 0)
    assert page.labels == ["Train", "Step", "Reset", "Stop"]
    header, sent = page.header, page.shown
    assert header["stream"] == f"./api/runs/{spec.spec_id}/{page.attempt}"
    assert sent.events == []


def test_what_a_live_run_measured_is_what_was_predicted_exactly(visit: Visit, seed: int):
    spec = TrainSpec(seed=seed, optimizer="adamw", batch_size=7, precision="fp64", hidden=(3,))
    page = visit(seed=str(seed), opt="AdamW", batch="7", prec="fp64", depth="1", w1="3")
    page.until(spec, is_paused)
    measured = page.run(spec).scalars_of(0)
    for quantity, label in LABELS.items():
        text = bytes_text(measured[quantity])
        assert numbers(page)[label] == (text, f"predicted {text} · exact")


def test_before_anything_is_measured_the_page_says_so(visit: Visit, kept: Path, seed: int):
    """A run that has not begun: predictions stand, measurements are missing."""
    attempt = keep(kept, TrainSpec(seed=seed), "20260101-000000-000000", [])
    page = visit(seed=str(seed), run=attempt)
    for value, said in numbers(page).values():
        assert value == "not measured yet"
        assert said.endswith(" · –")


def test_without_inputs_a_sentence_says_what_to_do(visit: Visit):
    page = visit().set("features", [])
    assert [e.value for e in page.at.error] == [
        "The network needs at least one input: choose x, y or any other."
    ]
    page.set("features", ["x"])
    assert [e.value for e in page.at.error] == []
    assert page.header["spec"]["features"] == ["x"]


# -- buttons --------------------------------------------------------------------------------------


def test_run_it_here_trains_the_shipped_settings_anew(visit: Visit):
    """From the first weights, on this machine, to the last epoch."""
    spec = TrainSpec()
    page = visit(pace="fastest").press("Run it here")
    page.until(spec, lambda run: run.ended)
    run = page.run(spec)
    assert run.ended.status == "finished"  # type: ignore[union-attr]
    assert run.scalars("epoch")[-1][1] == 500
    assert run.scalars("train_loss")[0] == SHIPPED.scalars("train_loss")[0]
    assert page.labels == ["Train again", "Step", "Reset", "Show the recording"]
    header, sent = page.header, page.shown
    assert header["stream"] is None
    assert sent.ended


def test_show_the_recording_leads_back_to_the_shipped_run(visit: Visit):
    page = visit(pace="1").press("Run it here")
    page.until(TrainSpec(), lambda run: run.scalars("epoch"))
    page.press("Stop").press("Show the recording")
    assert "run" not in page.at.query_params
    assert page.header["run"].endswith("/recording")


def test_train_goes_on_with_the_run_that_waits(visit: Visit, seed: int):
    spec = TrainSpec(seed=seed, n_epochs=20)
    page = visit(seed=str(seed), epochs="20", pace="fastest")
    page.until(spec, is_paused)
    attempt = page.attempt
    page.press("Train").until(spec, lambda run: run.ended)
    assert page.attempt == attempt
    assert page.run(spec).scalars("epoch")[-1] == (20 * 25, 20)


def test_pause_stops_a_run_where_it_is_with_a_step_to_look_into(visit: Visit, seed: int):
    spec = TrainSpec(seed=seed)
    page = visit(seed=str(seed), pace="10")
    page.until(spec, is_paused).press("Train")
    page.until(spec, lambda run: not is_paused(run))
    assert "Pause" in page.labels
    page.press("Pause").until(spec, is_paused)
    assert "Train" in page.labels
    run = page.run(spec)
    assert len(run.recorded_steps) == 2
    assert run.ended is None


def test_step_records_one_more_update(visit: Visit, seed: int):
    spec = TrainSpec(seed=seed)
    page = visit(seed=str(seed))
    page.until(spec, is_paused)
    for n in (2, 3):
        page.press("Step").until(spec, n_recorded(n))
    assert page.run(spec).recorded_steps == [0, 1, 2]


def test_step_on_a_shipped_run_begins_one_that_can_be_stepped(visit: Visit):
    page = visit().press("Step")
    page.until(TrainSpec(), is_paused)
    assert page.run(TrainSpec()).recorded_steps == [0]


def test_reset_begins_again_at_the_first_weights(visit: Visit, seed: int):
    """Another attempt of the same settings; the one before ends and is kept."""
    spec = TrainSpec(seed=seed)
    page = visit(seed=str(seed))
    page.until(spec, is_paused).press("Step").until(spec, n_recorded(2))
    before = page.folder(spec)
    page.press("Reset").until(spec, is_paused)
    assert page.folder(spec) != before
    assert page.run(spec).recorded_steps == [0]
    weights = (t.array(0, "head.linear", "weight") for t in (page.run(spec), Trace.read(before)))
    assert (next(weights) == next(weights)).all()


def test_stop_ends_a_run_and_keeps_what_was_recorded(visit: Visit, seed: int):
    spec = TrainSpec(seed=seed)
    page = visit(seed=str(seed), pace="1")
    page.until(spec, is_paused).press("Train")
    page.until(spec, lambda run: not is_paused(run))
    page.press("Stop").until(spec, lambda run: run.ended)
    run = page.run(spec)
    assert run.ended.status == "stopped"  # type: ignore[union-attr]
    assert run.recorded_steps
    assert "This run ended early: stopped by a visitor. What was recorded is kept." in page.said
    assert page.shown.recorded_steps == run.recorded_steps
    assert "Stop" not in page.labels
    assert "Train again" in page.labels


def test_train_again_is_a_new_attempt(visit: Visit, seed: int):
    spec = TrainSpec(seed=seed)
    page = visit(seed=str(seed))
    page.until(spec, is_paused).press("Stop").until(spec, lambda run: run.ended)
    before = page.attempt
    page.press("Train again")
    assert page.attempt != before
    page.until(spec, lambda run: run.scalars("paused"))
    assert not is_paused(page.run(spec))


def test_the_pace_of_a_run_can_be_changed_while_it_goes(visit: Visit, seed: int):
    """500 epochs at one a second would outlast this test; at the fastest pace they end."""
    spec = TrainSpec(seed=seed)
    page = visit(seed=str(seed), pace="1")
    page.until(spec, is_paused).press("Train")
    page.until(spec, lambda run: not is_paused(run))
    page.set("pace", "fastest").until(spec, lambda run: run.ended)
    assert page.run(spec).ended.status == "finished"  # type: ignore[union-attr]


def test_changing_a_setting_leaves_the_run_and_coming_back_finds_it(visit: Visit, seed: int):
    spec, other = TrainSpec(seed=seed), TrainSpec(seed=seed, batch_size=11)
    page = visit(seed=str(seed))
    page.until(spec, is_paused)
    first = page.attempt
    page.set("batch", 11).until(other, is_paused)
    assert page.attempt != first
    assert [t.value for t in page.at.toast] == []
    page.set("batch", 10)
    assert page.header["run"] == f"{spec.spec_id}/{first}"


# -- links to runs --------------------------------------------------------------------------------


def test_a_link_to_a_run_shows_that_run(visit: Visit, seed: int):
    """What one visitor sees, another who has the link sees too."""
    spec = TrainSpec(seed=seed)
    page = visit(seed=str(seed))
    page.until(spec, is_paused).press("Step").until(spec, n_recorded(2))
    other = visit(seed=str(seed), run=page.attempt)
    assert other.header["run"] == f"{spec.spec_id}/{page.attempt}"
    assert other.header["known"]["n_recorded"] == 2


def test_a_link_to_a_run_that_is_gone_says_so_and_shows_the_page(visit: Visit):
    page = visit(run=GONE)
    assert [t.value for t in page.at.toast] == [
        "That run is no longer kept. Its settings are: press Train to run it again."
    ]
    assert page.header["run"].endswith("/recording")
    assert "run" not in page.at.query_params


def test_a_link_to_what_is_no_run_says_so(visit: Visit):
    page = visit(run="../../../etc")
    assert [t.value for t in page.at.toast] == [
        "The link's run is no name of a run, so it was ignored."
    ]
    assert page.header["run"].endswith("/recording")


# -- runs that ended early ------------------------------------------------------------------------


def begun(spec: TrainSpec, attempt: str) -> list[Event]:
    """First events of a run that goes."""
    first = Started(
        spec_id=spec.spec_id,
        attempt=attempt,
        spec=spec.to_json(),
        machine={"cpu": "a machine", "n_threads": 1},
        code_version="0",
        started_unix_s=0.0,
    )
    return [first, *[Scalar(step=0, name="paused", value=0)] * 2]


def end(status: str, message: str, **advice: float) -> Ended:
    return Ended(status=status, message=message, n_steps=7, wall_s=1, cpu_s=1, advice=advice)


def test_a_run_whose_process_is_gone_says_that_it_broke_off(visit: Visit, kept: Path, seed: int):
    """Its folder has no end, and no worker of this server knows it."""
    spec, attempt = TrainSpec(seed=seed), "20260101-000000-00dead"
    keep(kept, spec, attempt, begun(spec, attempt))
    page = visit(seed=str(seed), run=attempt)
    (error,) = (e.value for e in page.at.error)
    assert error == (
        "This run broke off: its process ended without a word. What was recorded is kept."
    )
    assert "Train again" in page.labels


@pytest.mark.parametrize("status", ["failed", "died"])
def test_a_run_that_broke_off_says_why(visit: Visit, kept: Path, seed: int, status: str):
    spec, attempt = TrainSpec(seed=seed), "20260101-000000-00dead"
    keep(kept, spec, attempt, [*begun(spec, attempt), end(status, "the disk is full")])
    page = visit(seed=str(seed), run=attempt)
    (error,) = (e.value for e in page.at.error)
    assert error == "This run broke off: the disk is full. What was recorded is kept."


def test_a_worker_that_is_killed_leaves_a_message_and_another_takes_over(visit: Visit, seed: int):
    spec = TrainSpec(seed=seed)
    page = visit(seed=str(seed))
    page.until(spec, is_paused).press("Step").until(spec, n_recorded(2))
    pid = runs.host().worker_pid
    assert pid
    os.kill(pid, signal.SIGKILL)
    page.until(spec, lambda run: run.ended)
    (error,) = (e.value for e in page.at.error)
    assert "This run broke off: the worker process ended" in error
    page.press("Train again").until(spec, lambda run: run.recorded_steps)
    assert [e.value for e in page.at.error] == []


def test_a_run_that_diverged_offers_a_smaller_learning_rate(visit: Visit, kept: Path, seed: int):
    """The last finite picture stays; the button moves the slider to a tenth of the rate."""
    spec, attempt = TrainSpec(seed=seed, learning_rate=10), "20260101-000000-00d1ff"
    message = "step 7: gradient of head.linear is no longer a finite number"
    said = [*begun(spec, attempt), end("diverged", message, learning_rate=1.0)]
    keep(kept, spec, attempt, said)
    page = visit(seed=str(seed), lr="10", run=attempt)
    (error,) = (e.value for e in page.at.error)
    assert error.startswith("Step 7: gradient of head.linear is no longer a finite number.")
    page.press("Try learning rate 1")
    assert page.at.get_by_key("lr").value == "1"
    assert page.header["spec"]["learning_rate"] == 1.0
    assert [e.value for e in page.at.error] == []


@pytest.mark.parametrize("rate", ["0.003", "0.00001"])
def test_every_rate_that_diverges_is_offered_a_choice_of_the_slider(
    visit: Visit, kept: Path, seed: int, rate: str
):
    spec, attempt = TrainSpec(seed=seed, learning_rate=float(rate)), "20260101-000000-00d1ff"
    said = [*begun(spec, attempt), end("diverged", "x", learning_rate=float(rate) / 10)]
    keep(kept, spec, attempt, said)
    page = visit(seed=str(seed), lr=rate, run=attempt)
    (label,) = (label for label in page.labels if label.startswith("Try learning rate"))
    page.press(label)
    assert page.at.get_by_key("lr").value == label.rsplit(" ", 1)[1]


# -- a host without the stream --------------------------------------------------------------------


def test_where_there_is_no_stream_the_page_sends_the_run_itself(visit: Visit, seed: int):
    """The widget says that it could not connect; from then on each rerun brings what is new."""
    spec = TrainSpec(seed=seed)
    page = visit(seed=str(seed))
    page.until(spec, is_paused)
    page.at.session_state["player"] = {"transport": "poll"}
    page.again()
    header, run = page.header, page.shown
    assert header["stream"] is None
    assert run.recorded_steps == [0]
    page.press("Step").until(spec, n_recorded(2))
    assert page.shown.recorded_steps == [0, 1]


def test_a_shipped_run_is_found_by_its_settings_alone():
    assert shipped(TrainSpec()) is not None
    assert shipped(TrainSpec(seed=2)) is None
