"""The home page shows two real runs of one model: figures and sentence are theirs."""

import json
import time
from pathlib import Path
from typing import Any

import pytest

from components import both, runs
from components.both import ANSWER, PAIRS, STEP
from components.theme import bytes_text, count, rate_text, seconds_text
from core import pretrained
from core.events import Sample, Scalar, Token
from core.recordings import shipped
from core.specimens import predictions
from core.trace import Trace
from tests.pages.conftest import Visit
from tests.pages.page import DEADLINE_S, Page

each_pair = pytest.mark.parametrize("pair", PAIRS.values(), ids=PAIRS)


def header(page: Page) -> dict[str, Any]:
    """What the widget was told."""
    (widget,) = page.at.get("bidi_component")
    sent = widget.proto.bytes
    return json.loads(sent[4 : 4 + int.from_bytes(sent[:4], "little")])


def figures(page: Page, lane: str) -> dict[str, dict[str, str]]:
    return {figure["id"]: figure for figure in header(page)["figures"][lane]}


def recorded(pair: both.Pair) -> tuple[Trace, Trace]:
    found = [shipped(pair.step), shipped(pair.answer)]
    step, answer = (Trace.read(folder) for folder in found if folder)
    return step, answer


def scalar(trace: Trace, name: str) -> float:
    """The first of that name: looks of an answer repeat some."""
    return next(e.value for e in trace.events if isinstance(e, Scalar) and e.name == name)


def sha(trace: Trace, which: str) -> str:
    name = f"weights_sha256_{which}"
    return next(e.text for e in trace.events if isinstance(e, Sample) and e.name == name)


def check(page: Page, pair: both.Pair, step: Trace, answer: Trace) -> None:
    """Every figure on the page against the events of the runs."""
    at = step.recorded_steps[-1]
    told = step.scalars_of(at)
    left, right = figures(page, STEP), figures(page, ANSWER)
    predicted = predictions(pair.step, first=at == 0)["peak_bytes"].value
    assert left["peak_bytes"]["value"] == bytes_text(told["peak_bytes"])
    assert left["peak_bytes"]["note"].startswith(f"predicted {bytes_text(predicted)} · ")
    tokens = told.get("batch_tokens", told["batch_examples"] * getattr(pair.step, "seq_len", 1))
    assert left["step_tokens_per_s"]["value"] == rate_text(tokens / told["recorded_step_s"])
    assert left["largest_change"]["value"] == "weights moved"
    assert right["answer_peak_bytes"]["value"] == bytes_text(scalar(answer, "peak_bytes"))
    assert right["tpot_s"]["value"] == seconds_text(scalar(answer, "tpot_s"))
    before, after = sha(answer, "before"), sha(answer, "after")
    assert before == after
    assert right["answer_change"]["value"] == "weights frozen"
    assert right["answer_change"]["label"] == f"sha {before[:4]} → {after[:4]} · |Δ| 0"
    assert right["answer_change"]["note"] == "predicted 0 · exact"
    ratio = told["peak_bytes"] / scalar(answer, "peak_bytes")
    ends = [e.end_s for e in answer.events if isinstance(e, Token) and e.end_s is not None]
    in_time = sum(1 for end in ends if end <= told["recorded_step_s"])
    said = header(page)["takeaway"]
    assert f": {ratio:.3g} times as much" in said
    assert f"{count(in_time)} tokens" in said


# -- the shipped runs -----------------------------------------------------------------------------


def test_the_address_without_a_path_is_this_page(visit: Visit):
    page = visit(page="")
    assert page.at.title[0].value == "One model, used twice"
    assert header(page)["pair"] == next(iter(PAIRS))
    assert "Run both here" in page.labels


@each_pair
def test_its_figures_are_those_of_the_recordings(visit: Visit, pair: both.Pair):
    page = visit(page="", pair=pair.key)
    check(page, pair, *recorded(pair))
    lanes = header(page)["lanes"]
    assert lanes[STEP]["run"] == f"{pair.step.spec_id}/recording"
    assert lanes[ANSWER]["run"] == f"{pair.answer.spec_id}/recording"


def test_the_published_model_starts_both_with_the_same_weights():
    step, answer = recorded(PAIRS["SmolLM2-135M"])
    assert sha(step, "before") == sha(answer, "before") == sha(answer, "after")
    assert sha(step, "after") != sha(step, "before")


def test_its_hashes_are_beside_the_figure(visit: Visit):
    step, _ = recorded(PAIRS["SmolLM2-135M"])
    label = figures(visit(page=""), STEP)["largest_change"]["label"]
    assert label.startswith(f"sha {sha(step, 'before')[:4]} → {sha(step, 'after')[:4]} · |Δ| ")


# -- links ----------------------------------------------------------------------------------------


def test_a_link_sets_the_model_and_the_moment(visit: Visit):
    page = visit(page="", pair="sums", t="0.004")
    assert header(page)["pair"] == "sums"
    assert header(page)["moment"] == 0.004
    assert [w.value for w in page.at.warning] == []


@pytest.mark.parametrize(
    "link", [{"t": "soon"}, {"pair": "gpt-9"}, {"step": "../../etc"}, {"colour": "red"}], ids=str
)
def test_a_bad_link_is_said_and_the_rest_holds(visit: Visit, link: dict[str, str]):
    page = visit(page="", **link)
    (warning,) = (w.value for w in page.at.warning)
    assert f"`{next(iter(link))}`" in warning
    assert page.at.title[0].value == "One model, used twice"
    assert header(page)["moment"] is None


def test_a_run_that_is_gone_is_said(visit: Visit):
    page = visit(page="", answer="20260101-000000-abcdef")
    assert "That run is no longer kept" in page.said
    assert header(page)["lanes"][ANSWER]["run"].endswith("/recording")


@pytest.mark.parametrize(
    "link", [{"specimen": "addition"}, {"lr": "0.1"}, {"run": "gone"}], ids=str
)
def test_links_of_before_lead_to_training(visit: Visit, link: dict[str, str]):
    page = visit(page="", **link)
    assert page.at.title[0].value == "A step is four things, over and over"


@pytest.mark.parametrize(
    ("button", "title"),
    [
        ("Open the step", "A step is four things, over and over"),
        ("Open the answer", "An answer runs one way, and changes nothing"),
    ],
)
def test_each_lane_opens_on_its_own_page(visit: Visit, button: str, title: str):
    page = visit(page="", pair="sums")
    page.press(button)
    assert page.at.title[0].value == title


# -- running them here ----------------------------------------------------------------------------


def test_both_are_run_here_one_after_the_other(visit: Visit, kept: Path):
    """The answer first; while either is under way the lanes say so; then the figures are theirs."""
    pair = PAIRS["sums"]
    page = visit(page="", pair=pair.key)
    page.press("Run both here")
    assert "Stop" in page.labels
    deadline = time.monotonic() + DEADLINE_S
    while "Run both here" not in page.labels:
        assert time.monotonic() < deadline, page.said
        lanes = header(page)["lanes"]
        assert lanes[STEP]["live"] or lanes[ANSWER]["live"]
        time.sleep(0.2)
        page.again()
    lanes = header(page)["lanes"]
    step, answer = (Trace.read(kept / lanes[name]["run"]) for name in (STEP, ANSWER))
    assert step.started and answer.ended
    assert step.started.started_unix_s >= answer.started.started_unix_s  # type: ignore[union-attr]
    check(page, pair, step, answer)
    page.press("Show the recordings")
    assert header(page)["lanes"][STEP]["run"].endswith("/recording")


def test_stopping_ends_what_is_under_way(visit: Visit):
    page = visit(page="", pair="sums")
    page.press("Run both here").press("Stop")
    deadline = time.monotonic() + DEADLINE_S
    while "Run both here" not in page.labels:
        assert time.monotonic() < deadline, page.said
        time.sleep(0.1)
        page.again()


def test_what_this_machine_cannot_hold_is_said_with_the_bytes(
    visit: Visit, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setenv("BOTHWAYS_MAX_RUN_BYTES", "100000000")
    page = visit(page="")
    need = predictions(PAIRS["SmolLM2-135M"].step)["peak_bytes"].value
    assert f"The step would hold {bytes_text(need)} at its peak, predicted" in page.said
    assert bytes_text(1e8) in page.said
    assert "Run both here" not in page.labels
    assert "Run sums here, which fits" in page.labels
    page.press("Run sums here, which fits")
    assert header(page)["pair"] == "sums"
    assert runs.host().latest_attempt(PAIRS["sums"].answer) is not None


def test_without_the_models_file_the_recordings_are_shown_all_the_same(
    visit: Visit, monkeypatch: pytest.MonkeyPatch
):
    def missing(name: str) -> None:
        raise pretrained.Unavailable(f"the file of {name} is not on this machine")

    monkeypatch.setattr(pretrained, "shape_of", missing)
    page = visit(page="")
    assert "the file of smollm2 is not on this machine" in page.said
    assert "Run both here" not in page.labels
    step, answer = recorded(PAIRS["SmolLM2-135M"])
    peak = figures(page, ANSWER)["answer_peak_bytes"]
    assert peak["value"] == bytes_text(scalar(answer, "peak_bytes"))
    assert peak["note"] == "not predicted here"
    held = step.scalars_of(0)["peak_bytes"]
    assert figures(page, STEP)["peak_bytes"]["value"] == bytes_text(held)
