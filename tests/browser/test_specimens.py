"""Digits and transformers, as a visitor meets them: trained, opened, explained, refused.

What only has to be looked at is looked at in the shipped recordings.
"""

import itertools
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from components.theme import COLOURS
from core.events import Sample
from core.recordings import shipped
from core.specs import AdditionSpec, DigitsSpec, Spec
from core.texts import kept
from core.trace import Trace
from tests.browser.conftest import Visit
from tests.browser.page import PHONE, TRAINS, Training
from tests.browser.test_access import faults, shrink, too_wide

pytestmark = [pytest.mark.browser, pytest.mark.timeout(400)]

seeds = itertools.count(7101)  # a spec for each test: runs of the same one would be joined
TEXT = 'The quick brown fox jumps over the lazy dog; <b>it</b> barks & "sleeps".\n' * 30

DIGITS = "/training?specimen=digits"  # shipped
ADDITION = "/training?specimen=addition"  # shipped
PYDOCS = "specimen=pydocs&n_layer=1&d_model=32&ctx=32&batch_t=8&steps_t=20000"
LLAMA = "specimen=addition&arch=llama&ckpt=on&accum=2&batch_a=8&n_layer=3&d_model=32"
DIVERGING = "specimen=digits&n_layer=8&d_model=128&act_d=linear&opt_t=SGD&lr_t=1&batch_d=64"
TOO_LARGE = "specimen=pydocs&n_layer=4&batch_t=512&ctx=256"

PATIENTLY_S = 240  # for what a busy machine may take minutes to learn
SCENE = "canvas[data-el=scene]"
LIGHT = COLOURS["light"]


def link(settings: str, **more: object) -> str:
    """A link to the training page with settings that no other test uses."""
    more = {"seed": next(seeds), **more}
    return f"/training?{settings}&" + "&".join(f"{key}={value}" for key, value in more.items())


def recorded(tab: Training, spec: Spec) -> tuple[Trace, int]:
    """The shipped recording of a spec, and which of its steps a tab shows."""
    recording = shipped(spec)
    assert recording is not None
    trace, step = Trace.read(recording), tab.ask("m.view.step")
    assert step == trace.recorded_steps[len(trace.recorded_steps) // 2]
    return trace, step


def press_at(tab: Training, place: dict[str, Any]) -> None:
    """Click into the middle of a tile, as somebody with a mouse does."""
    canvas = tab.widget.locator(SCENE)
    canvas.scroll_into_view_if_needed()
    middle = {"x": place["x"] + place["width"] / 2, "y": place["y"] + place["height"] / 2}
    canvas.click(position=middle)  # type: ignore[arg-type]


def part(tab: Training, group: str) -> dict[str, Any]:
    (found,) = tab.ask("m.place.tiles.filter((t) => t.group === arg)", group)
    return found


def open_op(tab: Training, op: str) -> dict[str, Any]:
    (found,) = tab.ask("m.place.openTiles.filter((t) => t.op.id === arg)", op)
    return found


def pixel(tab: Training, canvas: str, x: float, y: float) -> list[int]:
    """[r, g, b] of a canvas that is drawn at one pixel a CSS pixel."""
    return tab.ask(
        """((canvas) => {
          const copy = new OffscreenCanvas(canvas.width, canvas.height).getContext("2d");
          copy.drawImage(canvas, 0, 0);
          return [...copy.getImageData(arg.x, arg.y, 1, 1).data.subarray(0, 3)];
        })(root.querySelector(arg.canvas))""",
        {"canvas": canvas, "x": int(x), "y": int(y)},
    )


def mix(a: str, b: str, share: float) -> list[int]:
    one, other = (bytes.fromhex(colour[1:]) for colour in (a, b))
    return [round(x + (y - x) * share) for x, y in zip(one, other, strict=True)]


def near(seen: list[int], expected: list[int]) -> bool:
    """Equal within the rounding of one shade."""
    return all(abs(a - b) <= 1 for a, b in zip(seen, expected, strict=True))


# -- digits -------------------------------------------------------------------------------------


def assert_digits_read(tab: Training, trace: Trace, step: int, at_least: int) -> None:
    """Every held-out answer is drawn, and as many are right as the trace has it."""
    answers = trace.array(step, "head", "answers").argmax(1)
    right = int((answers == trace.array(0, "data", "labels")).sum())
    assert right >= at_least
    tab.until(
        "root.querySelector('[data-el=answers] canvas').ariaLabel === arg",
        f"64 held-out digits; {right} of them read right.",
    )


def test_digits_are_seen_to_be_learned_and_one_step_is_looked_into(visit: Visit, runs: Path):
    """From the first button to the answers of one step."""
    tab = visit(link("specimen=digits", epochs_d=5000)).train()
    tab.until("m.trace.frames.at(-1).held_out_accuracy > 0.9", within_s=PATIENTLY_S)
    told = tab.ask("m.trace.frames.map((f) => [f.step, f.held_out_accuracy, f.held_out_loss])")
    assert told[0][1] < 0.4
    assert [step for step, *_ in told] == sorted(step for step, *_ in told)
    assert told[-1][2] < 0.5 * told[0][2]

    tab.pause()
    trace, step = Trace.read(runs / tab.ask("m.header.run")), tab.ask("m.view.step")
    assert trace.recorded_steps == [0, step]
    accuracy = trace.scalars_of(step)["held_out_accuracy"]
    tab.until("m.el.counts.textContent.includes(arg)", f"step {step:,} ")
    assert f"{100 * accuracy:.1f} % of held-out digits" in tab.ask("m.el.counts.textContent")
    assert_digits_read(tab, trace, step, at_least=51)
    tab.stop()


def test_a_run_that_finishes_shows_its_last_step(visit: Visit, runs: Path):
    tab = visit(link("specimen=digits", epochs_d=20)).train()
    tab.until("m.trace.ended?.status === 'finished' && m.view.mode === 'step'")
    trace = Trace.read(runs / tab.ask("m.header.run"))
    assert tab.ask("m.view.step") == trace.recorded_steps[-1] == trace.scalars("epoch")[-1][0] - 1
    assert tab.ask("m.trace.frames.at(-1).held_out_accuracy") > 0.9
    tab.seek(0)
    tab.key("ArrowRight")
    tab.until("m.el.where.textContent.startsWith('forward · layers.0.act ')")


def test_the_shipped_digits_are_read(look: Visit):
    tab = look(DIGITS)
    trace, step = recorded(tab, DigitsSpec())
    assert_digits_read(tab, trace, step, at_least=32)


def test_parts_open_and_ops_are_pinned_by_click_and_by_the_list(look: Visit):
    tab = look(DIGITS)
    tab.seek(0.6)
    kind, choice = tab.widget.locator("[data-el=kind]"), tab.widget.get_by_label("Op", exact=True)
    assert tab.ask("m.place.openTiles.length") == 0
    press_at(tab, part(tab, "layers.1"))
    tab.until("m.place.openTiles.length === 2")
    assert tab.ask("m.place.openTiles.map((t) => t.op.id)") == ["layers.1.linear", "layers.1.act"]

    press_at(tab, open_op(tab, "layers.1.linear"))
    tab.until("root.querySelector('[data-el=kind]').textContent === 'pinned'")
    assert choice.input_value() == "layers.1.linear"
    assert "4,160" in tab.widget.locator("[data-el=facts]").inner_text()  # 64 x 64 + 64
    press_at(tab, open_op(tab, "layers.1.linear"))
    tab.until("root.querySelector('[data-el=kind]').textContent !== 'pinned'")
    press_at(tab, open_op(tab, "layers.1.act"))
    tab.until("root.querySelector('[data-el=ops]').value === 'layers.1.act'")

    choice.select_option("layers.0.act")  # the keyboard's way
    tab.until("m.place.openTiles.every((t) => t.group === 'layers.0')")
    assert kind.inner_text() == "pinned"
    tab.key("End")  # stays, whatever runs
    assert kind.inner_text() == "pinned"
    press_at(tab, part(tab, "layers.0"))
    tab.until("m.place.openTiles.length === 0")


def test_the_tiles_show_the_recorded_numbers(look: Visit):
    """Cells of the head's outputs and of their gradients, against the trace's."""
    tab = look(DIGITS)
    trace, step = recorded(tab, DigitsSpec())
    tile = part(tab, "head")

    def cell(left: float, width: float, row: int, column: int) -> list[int]:
        """Colour in the middle of one of 32 x 10 cells in a share of the tile's width."""
        x = tile["x"] + tile["width"] * (left + width * (column + 0.5) / 10)
        return pixel(tab, SCENE, x, tile["y"] + tile["height"] * (row + 0.5) / 32)

    cells = [(0, 0), (3, 4), (17, 9), (31, 1)]
    for row, column in cells:
        assert near(cell(0, 0.56, row, column), mix(LIGHT["empty"], LIGHT["empty"], 0))
    tab.during("update", "optimizer.step")
    for role, left, width in (("activation", 0.0, 0.56), ("grad", 0.6, 0.4)):
        numbers = trace.array(step, "head.linear", role)
        assert numbers.shape == (32, 10)
        top = float(np.abs(numbers).max())  # a full colour
        for row, column in cells:
            share = float(numbers[row, column]) / top
            if role == "grad":
                expected = mix(LIGHT["empty"], LIGHT["backward"], 0.1 + 0.9 * abs(share))
            else:
                side = LIGHT["negative" if share < 0 else "positive"]
                expected = mix(LIGHT["neutral"], side, abs(share))
            seen = cell(left, width, row, column)
            assert near(seen, expected), (role, row, column, seen, expected)


# -- sums ---------------------------------------------------------------------------------------


def test_sums_are_shown_as_they_were_written_right_and_wrong(visit: Visit, runs: Path):
    """From a network that knows nothing to one that gets every sum it never saw right; a step is
    shown with its own sums."""
    tab = visit("/training?specimen=addition&batch_a=64&seed=7").train()
    assert tab.ask("m.trace.frames[0].held_out_accuracy") < 0.1
    tab.until("m.trace.frames.at(-1).held_out_accuracy === 1", within_s=PATIENTLY_S)
    tab.pause()
    for step in (tab.ask("m.view.step"), 0):
        tab.widget.get_by_label("Recorded step").select_option(str(step))
        trace = Trace.read(runs / tab.ask("m.header.run"))
        written = [e.text for e in trace.events if isinstance(e, Sample) and e.step == step]
        expected = [re.findall(r"\d+", text) for text in written[:64]]
        tab.until(
            "JSON.stringify([...root.querySelectorAll('.sums span')]"
            ".map((e) => e.textContent.match(/\\d+/g))) === JSON.stringify(arg)",
            expected,
        )
        wrong = sum(int(a) + int(b) != int(answer) for a, b, answer in expected)
        assert tab.widget.locator(".sums .wrong").count() == wrong
        assert wrong <= 3 if step else wrong > 50
        accuracy = trace.scalars_of(step)["held_out_accuracy"]
        shown = tab.widget.locator("[data-el=answersRead]").inner_text()
        assert shown == f"{100 * accuracy:.1f} % of held-out sums right"
    tab.stop()


def test_a_block_opens_and_shows_who_looks_at_whom(look: Visit):
    """Attention of every head is drawn as recorded: a character looks at itself and at those before
    it. A pinned op says what it keeps, and why."""
    tab = look(ADDITION)
    trace, step = recorded(tab, AdditionSpec())
    tab.during("backward", "blocks.1.mlp.down")
    press_at(tab, part(tab, "blocks.0"))
    tab.until("m.place.openTiles.length === 10")
    names = tab.ask("m.place.openTiles.map((t) => t.op.id.replace('blocks.0.', ''))")
    assert names == ["attn.norm", "attn.qkv", "attn.flash", "attn.out", "attn.add",
                     "mlp.norm", "mlp.up", "mlp.gelu", "mlp.down", "mlp.add"]  # fmt: skip
    heads = trace.array(step, "blocks.0.attn.flash", "attention")
    assert heads.shape == (4, 8, 8)
    assert (np.triu(heads, 1) == 0).all()
    assert heads[:, 0, 0] == pytest.approx(1, abs=0.01)
    assert heads.sum(-1) == pytest.approx(1, abs=0.03)
    tile = open_op(tab, "blocks.0.attn.flash")
    size = tile["width"] / 2
    for head in range(4):
        left, top = tile["x"] + (head % 2) * size, tile["y"] + (head // 2) * size
        for query, key in ((0, 0), (0, 5), (3, 1), (7, 2), (7, 7)):
            cell = (size - 2) / 8
            seen = pixel(tab, SCENE, left + (key + 0.5) * cell, top + (query + 0.5) * cell)
            expected = mix(LIGHT["empty"], LIGHT["forward"], float(heads[head, query, key]))
            assert near(seen, expected), (head, query, key, seen, expected)

    tab.widget.locator("[data-el=ops]").select_option("blocks.0.mlp.gelu")
    tab.until("root.querySelector('[data-el=kind]').textContent === 'pinned'")
    assert "keeps for backward" in tab.widget.locator("[data-el=facts]").inner_text()
    assert tab.widget.locator("[data-el=because]").inner_text()


def test_what_the_pointer_is_on_is_said(look: Visit):
    tab = look(ADDITION)
    tile = part(tab, "blocks.1")
    canvas = tab.widget.locator(SCENE)
    canvas.hover(position={"x": tile["x"] + 5, "y": tile["y"] + 5})
    tip = tab.widget.locator("[data-el=tip]")
    tip.wait_for()
    assert tip.inner_text().startswith("blocks.1.mlp.add: 128 × 8 × 64")
    tab.page.mouse.move(0, 0)
    tip.wait_for(state="hidden")


def test_the_rows_are_the_characters_that_go_in_and_those_asked_for(look: Visit):
    """Six characters of a sum are given; the three of its answer are asked for."""
    tab = look(ADDITION)
    trace, _ = recorded(tab, AdditionSpec())
    letters = tab.ask("m.header.vocabulary")
    for step in trace.recorded_steps:
        text = "".join(letters[t] for t in trace.array(step, "input", "tokens"))
        assert re.fullmatch(r"\d\d\+\d\d=\d\d", text)
        asked = [letters[t] for t in trace.array(step, "target", "tokens") if t >= 0]
        assert int("".join(asked)) == int(text[:2]) + int(text[3:5])
        assert text[6:] == "".join(asked[:2])


def test_the_slider_goes_to_any_moment_of_the_step(look: Visit):
    tab = look(ADDITION)
    scrub = tab.widget.get_by_label("Moment of the step")
    box = scrub.bounding_box()
    assert box is not None
    for share in (0.75, 0.2):
        scrub.click(position={"x": share * box["width"], "y": box["height"] / 2})
        assert tab.ask("m.clock.t / m.clock.end") == pytest.approx(share, abs=0.03)
        tab.until("m.el.where.textContent.startsWith(`${m.state.phase} · ${m.state.op} `)")


# -- a step, by keyboard ------------------------------------------------------------------------


def assert_keys_lead_through(tab: Training, trace: Trace, step: int) -> None:
    """By ops, phases and ends, each named where the playhead stands; the server is not asked."""
    spans = trace.spans(step)
    tab.seek(0)
    tab.settled()
    asked, sent = len(tab.traffic.requests), tab.traffic.n_frames_sent
    for span in spans[1:20]:
        tab.key("ArrowRight")
        assert tab.ask("m.clock.t") == span.start_s
        tab.until("m.el.where.textContent.startsWith(arg)", f"{span.phase} · {span.op} ")
    tab.key("Home")
    assert tab.ask("m.clock.t") == 0
    phases = [s for i, s in enumerate(spans) if i and s.phase != spans[i - 1].phase]
    for span in phases[:12]:
        tab.key("Shift+ArrowRight")
        assert tab.ask("m.clock.t") == span.start_s
    tab.key("End")
    assert tab.ask("m.clock.t === m.clock.end")
    tab.key("Space")
    assert tab.ask("m.clock.playing")
    tab.until("m.clock.t > 0 && m.clock.t < m.clock.end")
    tab.key("Space")
    assert not tab.ask("m.clock.playing")
    assert tab.traffic.requests[asked:] == []
    assert tab.traffic.n_frames_sent == sent


@pytest.mark.parametrize(
    ("at", "spec"),
    [(DIGITS, DigitsSpec()), (ADDITION, AdditionSpec())],
    ids=["digits", "addition"],
)
def test_keys_lead_through_the_ops_of_a_step_and_ask_the_server_nothing(
    look: Visit, at: str, spec: Spec
):
    tab = look(at)
    trace, step = recorded(tab, spec)
    assert_keys_lead_through(tab, trace, step)
    assert "recompute" not in {span.phase for span in trace.spans(step)}


def test_checkpointing_is_seen_to_compute_again(visit: Visit, runs: Path):
    """In a step of two micro-batches through Llama's ops."""
    tab = visit(link(LLAMA))
    tab.until("m.recorded && m.view.mode === 'step'")
    trace = Trace.read(runs / tab.ask("m.header.run"))
    assert_keys_lead_through(tab, trace, 0)
    assert "recompute" in {span.phase for span in trace.spans(0)}
    tab.during("recompute", "blocks.1.mlp.up")
    assert tab.ask("m.el.where.textContent").startswith("recompute · blocks.1.mlp.up ")


# -- texts --------------------------------------------------------------------------------------


def test_a_pasted_text_is_learned_and_goes_on_in_its_own_characters(visit: Visit, runs: Path):
    """Its name comes into the address; a reload finds both the text and the run."""
    tab = visit(link("specimen=addition&d_model=32&n_layer=1&batch_t=8&ctx=32&steps_t=20000"))
    page = tab.page
    page.locator(".st-key-specimen").get_by_text("text", exact=True).click()
    page.get_by_text("Paste or upload a text of at least 200 characters to begin.").wait_for()
    page.get_by_role("textbox", name="Paste a text").fill("too short")
    page.get_by_role("button", name="Learn from it").click()
    page.get_by_text("the text has 9 characters; a model needs at least 200").wait_for()
    page.get_by_role("textbox", name="Paste a text").fill(TEXT)
    page.get_by_role("button", name="Learn from it").click()
    page.wait_for_url(re.compile(r"text=[0-9a-f]{32}"))
    tab.until("m.header.spec.specimen === 'text' && m.recorded && m.place")
    match = re.search(r"text=([0-9a-f]{32})", page.url)
    assert match is not None
    assert kept(match[1], runs / "texts").characters == TEXT.strip()
    tab.train()
    tab.until("root.querySelector('[data-el=answers] pre')?.textContent.length > 50")
    written = tab.ask("root.querySelector('[data-el=answers] pre').textContent")
    assert set(written) <= set(TEXT)
    assert tab.ask("root.querySelector('[data-el=answers] b')") is None, "shown, not run"
    tab.pause()
    run = tab.ask("m.header.run")
    page.wait_for_url(re.compile(f"run={run.split('/')[1]}"))
    tab.reload()
    assert tab.ask("m.header.run") == run
    tab.stop()


def test_documentation_is_learned_and_continued(visit: Visit):
    tab = visit(link(PYDOCS)).train()
    tab.until("m.trace.samplesAt(Infinity).length === 1")
    assert tab.ask("m.el.lossRead.textContent").startswith("step ")
    tab.until("m.trace.frames.at(-1).held_out_loss < 0.8 * m.trace.frames[0].held_out_loss",
              within_s=PATIENTLY_S)  # fmt: skip
    assert tab.widget.locator("[data-el=answers] pre").is_visible()
    tab.stop()


# -- from one to the other ----------------------------------------------------------------------


def test_going_from_specimen_to_specimen_leaves_nothing_of_the_last_one(visit: Visit):
    """Picture, answers and card are those of what is trained now, there and back again."""
    tab = visit(link("steps_a=50"))

    def choose(name: str) -> None:
        tab.page.locator(".st-key-specimen").get_by_text(name, exact=True).click()
        tab.until("m.header.spec.specimen === arg && m.recorded && m.place", name)
        tab.settled()

    def shown() -> list[bool]:
        return tab.ask(
            "[!m.el.answersCard.hidden, !!root.querySelector('[data-el=answers] canvas'),"
            " !!root.querySelector('.sums'), !!root.querySelector('select[data-el=weights]'),"
            " !!root.querySelector('select[data-el=ops]')]"
        )

    assert shown() == [False, False, False, True, False]
    for name in ("addition", "digits", "addition", "playground", "addition"):
        choose(name)
        match name:
            case "addition":
                tab.until("root.querySelectorAll('.sums span').length === 64")
                assert shown() == [True, False, True, False, True]
            case "digits":
                tab.until("root.querySelector('[data-el=answers] canvas')")
                assert shown() == [True, True, False, False, True]
            case "playground":
                assert shown() == [False, False, False, True, False]


def test_the_size_slider_makes_the_model_larger(visit: Visit):
    tab = visit(link("specimen=addition&batch_a=1"))
    tab.until("m.recorded")
    slider = tab.page.locator(".st-key-size input[type=range]")
    slider.press("ArrowRight")
    tab.until("m.header.spec.d_model === 128 && m.recorded")
    tab.page.wait_for_url(re.compile("d_model=128"))
    assert slider.get_attribute("value") == "3"


def test_what_does_not_fit_is_refused_with_a_way_out(visit: Visit):
    """The page opens with a sentence and one button, which leads to a run."""
    tab = visit(link(TOO_LARGE), drawn=False)
    fit = tab.page.locator(".st-key-fit button")
    fit.wait_for()
    assert "predicted" in tab.page.get_by_test_id("stAlert").first.inner_text()
    fit.click()
    fit.wait_for(state="detached")
    tab.drawn()


def test_a_run_that_diverges_says_which_op_and_offers_a_way_on(visit: Visit):
    """A real one: linear layers at a rate of 1."""
    tab = visit(link(DIVERGING))
    tab.page.locator(".st-key-go button:enabled", has_text=TRAINS).click()
    tab.page.get_by_text("is no longer a finite number").wait_for(timeout=1000 * PATIENTLY_S)
    tab.until("m.trace.ended?.status === 'diverged'")
    tab.page.get_by_role("button", name="Try learning rate 0.1").click()
    tab.until("m.header.spec.learning_rate === 0.1 && m.recorded")
    tab.page.get_by_text("is no longer a finite number").wait_for(state="detached")


# -- for everyone -------------------------------------------------------------------------------


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_axe_finds_no_fault_in_a_transformer_with_a_part_opened(look: Visit, scheme: str):
    tab = look(ADDITION) if scheme == "light" else look(ADDITION, color_scheme=scheme)
    press_at(tab, part(tab, "blocks.1"))
    tab.until("m.place.openTiles.length > 0")
    tab.seek(0.6)
    assert faults(tab) == []


def test_axe_finds_no_fault_with_a_digit_s_op_pinned(look: Visit):
    tab = look(DIGITS)
    tab.seek(0.6)
    tab.widget.get_by_label("Op", exact=True).select_option("layers.0.linear")
    assert faults(tab) == []


def test_axe_finds_no_serious_fault_where_a_text_is_asked_for(visit: Visit):
    """Streamlit's own uploader has a minor one."""
    tab = visit("/training?specimen=text", drawn=False)
    tab.page.get_by_text("Paste or upload a text of at least 200 characters to begin.").wait_for()
    assert [fault for fault in faults(tab) if "(minor)" not in fault] == []


@pytest.mark.parametrize(
    ("settings", "group"),
    [
        ("specimen=digits", "layers.0"),
        ("specimen=addition&batch_a=32&n_layer=12&d_model=32", "blocks.0"),
        ("specimen=pydocs", "blocks.0"),
    ],
    ids=["digits", "12 layers", "pydocs"],
)
def test_nothing_is_wider_than_a_phone(visit: Visit, settings: str, group: str):
    """Also with a part opened, whose ops stand in rows."""
    tab = visit(f"/training?{settings}", viewport=PHONE)
    tab.until("m.recorded")
    tab.seek(0.6)
    assert too_wide(tab) == []
    press_at(tab, part(tab, group))
    tab.until("m.place.openTiles.length > 0")
    assert too_wide(tab) == []
    shrink(tab)
    assert too_wide(tab) == []


def test_every_picture_has_words(look: Visit):
    tab = look(DIGITS)
    tab.seek(0.6)
    words = tab.ask("['scene', 'ribbon', 'loss'].map((n) => [m.el[n].role, m.el[n].ariaLabel])")
    assert [role for role, _ in words] == ["img"] * 3
    assert all(len(said) > 40 for _, said in words)
    assert "Model of 3 parts" in words[0][1]
