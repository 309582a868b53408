"""Digits and transformers, as a visitor meets them: trained, opened, explained, refused."""

import shutil
from pathlib import Path

import pytest

from core.recordings import shipped
from core.specs import AdditionSpec, DigitsSpec
from core.trace import Trace
from tests.browser.conftest import Visit
from tests.browser.page import PHONE, Training
from tests.browser.test_access import faults

pytestmark = pytest.mark.browser


def click_part(tab: Training, n: int) -> None:
    """A click in the middle of the n-th part of the model."""
    x, y = tab.ask(
        "((t) => [t.x + t.width / 2, t.y + t.height / 2])(m.place.tiles[arg])", n
    )  # fmt: skip
    tab.widget.locator("[data-el=scene]").click(position={"x": x, "y": y})


def click_op(tab: Training, op: str) -> None:
    """A click on an op inside an opened part."""
    x, y = tab.ask(
        "((t) => [t.x + t.width / 2, t.y + t.height / 2])"
        "(m.place.openTiles.find((t) => t.op.id === arg))",
        op,
    )
    tab.widget.locator("[data-el=scene]").click(position={"x": x, "y": y})


def test_the_shipped_digits_are_read_and_a_part_opens_into_its_ops(visit: Visit):
    tab = visit("/training?specimen=digits")
    recording = shipped(DigitsSpec())
    assert recording is not None
    trace = Trace.read(recording)
    tab.seek(0.5)
    assert tab.ask("m.view.step") == trace.recorded_steps[len(trace.recorded_steps) // 2]
    label = tab.widget.locator("[data-el=answers] canvas").get_attribute("aria-label")
    assert label and label.startswith("64 held-out digits")
    click_part(tab, 1)
    tab.until("m.place.openTiles.length")
    ops = tab.ask("m.place.openTiles.map((t) => t.op.id)")
    assert ops == ["layers.1.linear", "layers.1.act"]
    click_op(tab, "layers.1.act")
    tab.until("root.querySelector('[data-el=ops]').value === 'layers.1.act'")
    assert "64" in tab.widget.locator("[data-el=facts]").inner_text()


def test_digits_learn_before_ones_eyes(visit: Visit):
    """A live run reads most held-out digits right, and its last step can be played."""
    tab = visit("/training?specimen=digits&seed=3&epochs_d=20")
    tab.until("m.trace.recorded.length")
    tab.press("Train")
    tab.until("m.trace.frames.at(-1).held_out_accuracy > 0.9")
    tab.until("m.trace.ended?.status === 'finished' && m.view.mode === 'step'")
    assert tab.ask("m.view.step === m.trace.recorded.at(-1).step")
    tab.seek(0)
    tab.key("ArrowRight")
    assert "layers.0.act" in tab.ask("m.el.where.textContent")


def test_addition_is_learned_to_the_last_held_out_sum(visit: Visit):
    """From a run that knows nothing to one that gets every sum it never saw right."""
    tab = visit("/training?specimen=addition&seed=2&steps_a=1500")
    tab.until("m.trace.recorded.length")
    assert tab.ask("m.trace.frames[0].held_out_accuracy") < 0.1
    tab.press("Train")
    tab.until("m.trace.frames.at(-1).held_out_accuracy > 0.5")
    tab.until("m.trace.frames.at(-1).held_out_accuracy >= 0.999 || m.trace.ended")
    best = tab.ask("Math.max(...m.trace.frames.map((f) => f.held_out_accuracy ?? 0))")
    assert best >= 0.999
    if tab.ask("!m.trace.ended"):
        tab.press("Pause")
        tab.until("m.view.mode === 'step' && m.trace.paused")
    shown = tab.widget.locator("[data-el=answers] .sums span")
    right = [text for text in shown.all_inner_texts() if not text.endswith("✗")]
    assert len(right) >= 60
    for text in right:
        question, answer = text.split(" = ")
        assert sum(map(int, question.split("+"))) == int(answer)


def test_a_block_opens_and_shows_who_looks_at_whom(visit: Visit):
    """Attention of every head is drawn once the op is done; a pinned op says why it is kept."""
    tab = visit("/training?specimen=addition")
    recording = shipped(AdditionSpec())
    assert recording is not None
    click_part(tab, 1)
    tab.seek(1)
    tab.until("m.place.openTiles.some((t) => t.op.id === 'blocks.0.attn.flash')")
    heads = tab.ask("m.recorded.arrays.get('blocks.0.attn.flash attention').shape")
    assert heads == [4, 8, 8]
    rows = tab.ask(
        "((a) => [0, 1, 2, 3].map((h) => [...Array(8).keys()].map((i) => a.at(h * 64 + i))))"
        "(m.recorded.arrays.get('blocks.0.attn.flash attention'))"
    )
    for row in rows:  # the first character can look at itself alone
        assert row[0] == pytest.approx(1, abs=0.01)
        assert max(row[1:]) == 0
    tab.widget.locator("[data-el=ops]").select_option("blocks.0.mlp.gelu")
    tab.until("root.querySelector('[data-el=kind]').textContent === 'pinned'")
    assert "keeps for backward" in tab.widget.locator("[data-el=facts]").inner_text()
    assert tab.widget.locator("[data-el=because]").inner_text()


def test_checkpointing_is_seen_to_compute_again(visit: Visit):
    tab = visit("/training?specimen=addition&ckpt=on&seed=4")
    tab.until("m.trace.recorded.length && m.view.mode === 'step'")
    assert "recompute" in tab.ask("m.recorded.spans.map((s) => s.phase)")
    tab.during("recompute", "blocks.1.mlp.up")
    assert tab.ask("m.el.where.textContent").startswith("recompute · blocks.1.mlp.up")


def test_what_does_not_fit_is_refused_with_a_way_out(visit: Visit):
    """The page opens with a sentence and one button, which leads to a run."""
    tab = visit("/training?specimen=addition&seed=5")
    tab.page.goto(tab.page.url.split("?")[0] + "?specimen=pydocs&n_layer=4&batch_t=512&ctx=256")
    fit = tab.page.locator(".st-key-fit button")
    fit.wait_for()
    assert "predicted" in tab.page.get_by_test_id("stAlert").first.inner_text()
    fit.click()
    fit.wait_for(state="detached")
    tab.drawn()


def test_a_run_folder_that_vanishes_leaves_a_page_that_trains(visit: Visit, runs: Path):
    tab = visit("/training?specimen=digits&seed=6")
    tab.until("m.trace.recorded.length")
    gone = tab.ask("m.header.run")
    shutil.rmtree(runs / gone)
    tab.reload()
    tab.until("m.header.run !== arg && m.trace.recorded.length", gone)


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_axe_finds_no_fault_in_a_transformer(visit: Visit, scheme: str):
    tab = visit("/training?specimen=addition", color_scheme=scheme)
    click_part(tab, 2)
    tab.seek(0.6)
    assert faults(tab) == []


@pytest.mark.parametrize("specimen", ["digits", "addition", "pydocs"])
def test_nothing_is_wider_than_a_phone(visit: Visit, specimen: str):
    tab = visit(f"/training?specimen={specimen}", viewport=PHONE)
    tab.until("m.recorded")
    wide = tab.page.evaluate(
        """() => [document.scrollingElement, document.querySelector('[data-testid=stMain]')]
          .map((e) => e.scrollWidth - e.clientWidth)"""
    )
    assert wide == [0, 0]
