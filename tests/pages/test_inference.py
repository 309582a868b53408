"""The Inference page shows what was recorded, and says what cannot be asked and why.

Models are small: the shipped one that adds, and a published one drawn at random (`tiny`).
"""

import re
from collections.abc import Iterator
from itertools import count
from pathlib import Path
from typing import Any

import pytest

from components import models
from components.theme import bytes_text, rate_text, seconds_text
from core import latency, pretrained, texts
from core.answer_account import Told, predicted_bytes
from core.latency import Calibration
from core.pretrained import PRETRAINED, WEIGHTS
from core.recordings import FOLDER
from core.specimens import texts_folder
from core.specs import (
    AdditionSpec,
    AnswerSweepSpec,
    FinetuneSpec,
    GenerateSpec,
    OwnTextSpec,
    PydocsSpec,
    Spec,
)
from core.trace import Trace
from tests.core import calibrations
from tests.core.gguf_files import tiny, write_tiny
from tests.pages.answers import AFTER, BEFORE, SUM, TOLD, answer, ended, started, sweep, update
from tests.pages.conftest import Visit
from tests.pages.page import Page, keep

TITLE = "An answer runs one way, and changes nothing"
LABELS = {
    "weights_bytes": "Weights held",
    "read_bytes_per_token": "Read for each token",
    "kv_cache_bytes": "KV cache, its room",
    "kv_filled_bytes": "KV cache, filled now",
    "peak_bytes": "Peak",
    "ttft_s": "First token after",
    "tpot_s": "Each further token",
    "tokens_per_s": "Throughput",
}
SUM_LINK = {"model": "addition", "prompt": SUM.prompt}
NUMBERS = count(1)


@pytest.fixture
def attempt() -> str:
    """The name of a run that no other test uses."""
    return f"20260102-120500-{next(NUMBERS):06x}"


@pytest.fixture
def known(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A small published model is known, but its file is nowhere; the file, ready to be put."""
    written = write_tiny(tmp_path / "tiny.gguf")
    monkeypatch.setenv("BOTHWAYS_MODELS", str(tmp_path / "models"))
    monkeypatch.setitem(PRETRAINED, "tiny", tiny(written))
    models.fetch_of.cache_clear()
    return written


@pytest.fixture
def here(known: Path) -> Path:
    """The same, with its file in its place."""
    place = pretrained.models_folder() / PRETRAINED["tiny"].file_name
    place.parent.mkdir()
    return known.rename(place)


def numbers(page: Page) -> dict[str, str]:
    """What stands large under each label."""
    shown = (re.fullmatch(r"(.+)  \n\*\*(.+)\*\*", m.value) for m in page.at.markdown)
    return {found[1]: found[2] for found in shown if found}


def readable(name: str, value: float) -> str:
    write = bytes_text if name.endswith("_bytes") or "bytes" in name else seconds_text
    return rate_text(value) if name == "tokens_per_s" else write(value)


def linked(page: Page, key: str) -> str:
    """A value of the page's address."""
    value = page.at.query_params[key]
    return value if isinstance(value, str) else value[0]


# -- what is shown --------------------------------------------------------------------------------


def test_the_first_visit_shows_the_shipped_answer(visit: Visit, kept: Path):
    """Its numbers are the recording's own; nothing is started."""
    if pretrained.find("smollm2") is None:
        pytest.skip("smollm2 is not installed: make models")
    page = visit(page="inference")
    told = Told.by(Trace.read(FOLDER / "answer"))
    assert page.at.title[0].value == TITLE
    assert page.header["run"].endswith("/recording")
    shown = numbers(page)
    for name, label in LABELS.items():
        assert shown[label] == readable(name, told.scalars[name])
    assert shown["Weights unchanged"] == told.before[:8]
    assert not list(kept.glob("*/*/events.jsonl"))


def test_every_number_is_the_run_s_own(visit: Visit, kept: Path, attempt: str):
    keep(kept, SUM, attempt, answer(SUM, attempt))
    page = visit(page="inference", **SUM_LINK)
    shown = numbers(page)
    assert {label: shown[label] for label in LABELS.values()} == {
        LABELS[name]: readable(name, TOLD[name]) for name in LABELS
    }


def test_beside_each_number_of_bytes_stands_its_prediction(visit: Visit, kept: Path, attempt: str):
    keep(kept, SUM, attempt, answer(SUM, attempt))
    page = visit(page="inference", **SUM_LINK)
    found = predicted_bytes(SUM, pretrained.shape_of("addition"), 6, 3)
    for quantity, prediction in found.items():
        assert f"predicted {bytes_text(prediction.value)}" in page.said, quantity
        assert prediction.arithmetic in page.said, quantity


def test_a_changed_weight_would_show(visit: Visit, kept: Path, attempt: str):
    keep(kept, SUM, attempt, answer(SUM, attempt, after=AFTER))
    page = visit(page="inference", **SUM_LINK, run=attempt)
    assert numbers(page)["Weights changed"] == AFTER[:8]


def test_what_nobody_asked_is_predicted_and_not_started(visit: Visit, kept: Path):
    page = visit(page="inference", model="addition", prompt="31+13=")
    shown = numbers(page)
    assert {shown[label] for label in LABELS.values()} == {"not measured yet"}
    assert "Nobody has asked this here yet" in page.said
    assert "Answer" in page.labels
    spec = GenerateSpec(model="addition", prompt="31+13=", max_new_tokens=3, context=8)
    assert not (kept / spec.spec_id).exists()


def test_an_answer_is_given_and_told(visit: Visit, kept: Path):
    """A real one, from the button to the hash."""
    spec = GenerateSpec(model="addition", prompt="55+44=", max_new_tokens=3, context=8)
    page = visit(page="inference", model="addition", prompt=spec.prompt).press("Answer")
    page.until(spec, lambda run: run.ended)
    told = Told.by(page.run(spec))
    assert told.text == "099"
    shown = numbers(page)
    assert shown["Weights unchanged"] == told.before[:8] == told.after[:8]
    assert shown["Each further token"] == seconds_text(told.scalars["tpot_s"])
    assert page.header["run"] == f"{spec.spec_id}/{linked(page, 'run')}"
    assert "Answer again" in page.labels


def test_a_step_is_one_token_and_then_it_waits(visit: Visit):
    spec = GenerateSpec(model="addition", prompt="21+12=", max_new_tokens=3, context=8)

    def waits(run: Trace) -> bool:
        said = run.scalars("paused")
        return bool(said) and said[-1][1] == 1

    page = visit(page="inference", model="addition", prompt=spec.prompt).press("Step")
    page.until(spec, waits)
    assert Told.by(page.run(spec)).n_trips == 1
    page.press("Step").until(spec, lambda run: Told.by(run).n_trips == 2 and waits(run))
    page.press("Stop").until(spec, lambda run: run.ended)
    assert "This run ended early" in page.said


def test_a_longer_answer_is_not_offered_where_the_context_is_full(
    visit: Visit, kept: Path, attempt: str
):
    keep(kept, SUM, attempt, answer(SUM, attempt))
    page = visit(page="inference", **SUM_LINK)
    (more,) = (b for b in page.at.button if b.label == "More tokens")
    assert not more.disabled  # it used all that it was given
    page = visit(page="inference", model="addition", prompt=SUM.prompt, tokens="8")
    (more,) = (b for b in page.at.button if b.label == "More tokens")
    assert more.disabled


def test_a_run_that_broke_off_says_why(visit: Visit, kept: Path, attempt: str):
    spec = GenerateSpec(model="addition", prompt="66+11=", max_new_tokens=3, context=8)
    keep(kept, spec, attempt, [started(spec, attempt), ended("failed", "the disk is full")])
    page = visit(page="inference", model="addition", prompt=spec.prompt, run=attempt)
    (error,) = (e.value for e in page.at.error)
    assert error == "This run broke off: The disk is full. What was recorded is kept."


# -- links ----------------------------------------------------------------------------------------

LINK = {
    "model": "addition",
    "prompt": "12+3",
    "format": "int8",
    "cache": "off",
    "tokens": "2",
    "sequences": "4",
    "temperature": "0.7",
    "top_k": "5",
    "top_p": "0.9",
    "draw": "7",
}
LINKED = GenerateSpec(
    model="addition",
    prompt="12+3",
    weight_format="int8",
    cache=False,
    max_new_tokens=2,
    batch_size=4,
    temperature=0.7,
    top_k=5,
    top_p=0.9,
    seed=7,
    context=8,
)


def test_a_link_sets_every_control(visit: Visit, kept: Path, attempt: str):
    """The run that it shows is the one of exactly these settings."""
    keep(kept, LINKED, attempt, answer(LINKED, attempt, n_prompt=4))
    page = visit(page="inference", **LINK)
    assert [w.value for w in page.at.warning] == []
    assert GenerateSpec.from_json(page.header["spec"]) == LINKED
    for key in ("format", "cache", "tokens", "sequences", "temperature", "top_k", "top_p", "draw"):
        assert str(page.at.get_by_key(key).value) == LINK[key]


def test_what_is_set_stands_in_the_address(visit: Visit):
    page = visit(page="inference", model="addition")
    page.set("prompt_text", "98+76=")
    assert linked(page, "prompt") == "98+76="
    page.set("prompt_text", "12+34=")
    assert "prompt" not in page.at.query_params
    page.set("model_choice", "smollm2")
    assert "model" not in page.at.query_params


def test_a_link_that_only_names_a_run_has_its_prompt(visit: Visit, kept: Path, attempt: str):
    """As of a prompt that is too long for an address."""
    spec = GenerateSpec(model="addition", prompt="87+65=", max_new_tokens=3, context=8)
    keep(kept, spec, attempt, answer(spec, attempt))
    page = visit(page="inference", model="addition", run=attempt)
    assert page.at.get_by_key("prompt_text").value == "87+65="
    assert page.header["run"].endswith(attempt)


def test_a_long_prompt_is_not_put_into_the_address(visit: Visit, here: Path):
    page = visit(page="inference", model="tiny")
    page.set("prompt_text", "x " * 4000)
    assert "prompt" not in page.at.query_params
    assert "too long for an address" in page.said
    assert page.at.get_by_key("prompt_text").value == "x " * 4000


@pytest.mark.parametrize(
    ("link", "said"),
    [
        ({"format": "fp8"}, "`format` = `fp8` must be one of fp32, bf16, int8, int4, file"),
        ({"context": "513"}, "`context` = `513` must be one of 64, 128"),
        ({"sequences": "65"}, "`sequences` = `65` must be one of 1, 2"),
        ({"threads": "100000"}, "`threads` = `100000` must be a whole number from 1 to"),
        ({"temperature": "hot"}, "`temperature` = `hot` must be one of 0, 0.1"),
        ({"model": "../x"}, "`model` = `../x` must be the name of a model"),
        ({"batch": "10"}, "`batch` is no setting of this page"),
        ({"model": "addition", "format": "file"}, "`format` = `file` needs a model that comes"),
        ({"model": "addition", "context": "64"}, "`context` is at most 8"),
        ({"model": "addition", "mode": "Chat"}, "`mode` = `Chat` needs a model that has learned"),
    ],
    ids=str,
)
def test_what_a_link_says_wrongly_is_said_aloud(visit: Visit, link: dict[str, str], said: str):
    page = visit(page="inference", **({"model": "addition"} | link))
    (warning,) = (w.value for w in page.at.warning)
    assert said in warning


def test_at_temperature_0_there_is_nothing_to_set_of_drawing(visit: Visit, kept: Path):
    """Disabled, with the reason; and the answer is one, however the seed stands."""
    page = visit(page="inference", model="addition", top_k="5", draw="9")
    for key in ("top_k", "top_p", "draw"):
        control = page.at.get_by_key(key)
        assert control.disabled
        assert "At temperature 0" in control.help
    assert page.header["run"].endswith("/recording")
    page.set("temperature", "0.7")
    assert not page.at.get_by_key("top_k").disabled


# -- what cannot be asked -------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("prompt", "said"),
    [
        ("", "Prompt='' is empty; write at least one character."),
        ("twelve", "The model has never seen 't'; use only 0123456789+=."),
        ("12+34=046", "The prompt has 9 tokens, more than a context of 8"),
    ],
)
def test_a_prompt_that_cannot_be_answered_says_why_and_stays(visit: Visit, prompt: str, said: str):
    page = visit(page="inference", model="addition")
    page.set("prompt_text", prompt)
    (error,) = (e.value for e in page.at.error)
    assert error.startswith(said)
    assert page.at.get_by_key("prompt_text").value == prompt
    assert page.set("prompt_text", "12+34=").at.error == []


def test_what_a_visitor_types_is_no_markup(visit: Visit):
    page = visit(page="inference", model="addition", prompt="`$x$`")
    (error,) = (e.value for e in page.at.error)
    assert r"never seen '\`'" in error


def test_control_characters_are_a_text_like_any_other(visit: Visit, here: Path):
    page = visit(page="inference", model="tiny", prompt="a\x00\x1b[2J\u202eb")
    assert [e.value for e in page.at.error] == []
    assert "Answer" in page.labels


def test_what_does_not_fit_is_refused_with_what_does(visit: Visit, monkeypatch: pytest.MonkeyPatch):
    spec = GenerateSpec(
        model="addition", prompt="12+34=", max_new_tokens=3, context=8, batch_size=64
    )
    shape = pretrained.shape_of("addition")
    need = predicted_bytes(spec, shape, 6)["answer_peak_bytes"].value
    monkeypatch.setenv("BOTHWAYS_MAX_RUN_BYTES", str(int(need) - 1))
    page = visit(page="inference", model="addition", sequences="64")
    (warning,) = (w.value for w in page.at.warning)
    assert bytes_text(need) in warning
    assert not [b for b in page.at.button if b.label == "Answer"]
    page.press("Use a batch of 32, which fits")
    assert page.at.get_by_key("sequences").value == "32"
    assert [w.value for w in page.at.warning] == []


def test_a_model_that_is_not_here_is_offered(
    visit: Visit, known: Path, monkeypatch: pytest.MonkeyPatch
):
    """And where it cannot be fetched, that is said in a sentence, and the page goes on."""
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    page = visit(page="inference", model="tiny")
    (info,) = (i.value for i in page.at.info)
    assert "The file of Tiny is not on this machine" in info
    page.press("Fetch it (0 MB)")
    for _ in range(200):
        if page.again().at.error:
            break
    (error,) = (e.value for e in page.at.error)
    assert error.startswith("Pip could not fetch bothways-tiny==1.0")
    assert "Fetch it (0 MB)" in page.labels


def test_without_the_published_model_other_models_work(visit: Visit, known: Path):
    assert visit(page="inference", model="addition").header["run"].endswith("/recording")
    assert visit(page="training").at.title[0].value == "A step is four things, over and over"


def test_a_broken_file_is_named(visit: Visit, here: Path):
    here.write_bytes(here.read_bytes()[:-100])
    page = visit(page="inference", model="tiny")
    (error,) = (e.value for e in page.at.error)
    assert "remove it and fetch Tiny again" in error
    assert "Fetch it (0 MB)" in page.labels


def test_a_run_that_is_gone_is_no_model(visit: Visit):
    page = visit(page="inference", model="0123456789abcdef/20200101-000000-abcdef")
    (error,) = (e.value for e in page.at.error)
    assert "is no run that is kept on this machine" in error


# -- own models -----------------------------------------------------------------------------------


def trained(kept: Path, spec: Spec, attempt: str) -> str:
    keep(kept, spec, attempt, [started(spec, attempt), ended()])
    (kept / spec.spec_id / attempt / WEIGHTS).touch()
    return f"{spec.spec_id}/{attempt}"


def test_own_models_are_offered_but_none_that_learned_from_a_visitor_s_words(
    visit: Visit, kept: Path
):
    text = texts.keep("It was the best of times, it was the worst of times.\n" * 9, texts_folder())
    theirs = [
        trained(kept, OwnTextSpec(text=text, n_layer=1), "20270101-000001-000001"),
        trained(kept, FinetuneSpec(text="a secret of mine"), "20270101-000002-000002"),
    ]
    trained(kept, AdditionSpec(n_layer=1), "20270101-000003-000003")
    trained(kept, PydocsSpec(n_layer=1), "20270101-000004-000004")
    page = visit(page="inference", model="addition")
    options = page.at.get_by_key("model_choice").options
    assert len([o for o in options if "trained here" in o]) == 2
    assert "Two-digit sums: 51,392 parameters, trained here 1 Jan 00:00 UTC" in options
    page = visit(page="inference", model=theirs[0], prompt="It ")
    assert [e.value for e in page.at.error] == []
    assert page.at.get_by_key("model_choice").value == theirs[0]


# -- times ----------------------------------------------------------------------------------------


@pytest.fixture
def calibration(kept: Path) -> Iterator[Calibration]:
    """Round figures for this machine."""
    made = calibrations.calibration()
    path = latency.keep(kept, made)
    yield made
    path.unlink()


def test_times_are_predicted_once_the_machine_is_calibrated(
    visit: Visit, kept: Path, attempt: str, calibration: Calibration
):
    keep(kept, SUM, attempt, answer(SUM, attempt))
    page = visit(page="inference", **SUM_LINK)
    found = latency.predict_answer(pretrained.shape_of("addition"), SUM, 6, calibration)
    assert f"predicted {seconds_text(found['ttft_s'].value)}" in page.said
    assert f"predicted {seconds_text(found['tpot_s'].value)}" in page.said
    assert f"{seconds_text(found['tpot_overhead_s'].value)} starting the ops" in page.said
    assert "overhead-bound" in page.said
    assert "Calibrate this machine" not in page.labels


def test_before_that_the_page_says_so_and_offers_it(visit: Visit):
    page = visit(page="inference", model="addition")
    assert [c.value for c in page.at.caption].count("not calibrated yet") == 3
    assert "Calibrate this machine" in page.labels


# -- one setting after another --------------------------------------------------------------------


def table(page: Page, column: str) -> list[str]:
    (found,) = (t.value for t in page.at.table if column in t.value.columns)
    return list(found[column])


def test_formats_are_compared_by_what_was_measured(visit: Visit, kept: Path, attempt: str):
    spec = AnswerSweepSpec.of(SUM, "weight_format")
    keep(kept, spec, attempt, sweep(spec, attempt, (0.004, 0.002, 0.001)))
    page = visit(page="inference", **SUM_LINK)
    assert table(page, "format") == ["fp32", "bf16", "int8", "int4"]
    assert table(page, "each token") == ["4 ms ± 400 µs", "2 ms ± 200 µs", "1 ms ± 100 µs", "–"]
    assert table(page, "logits moved, at most") == ["0", "0.25", "0.5", "–"]
    assert table(page, "tokens changed, of 2") == ["0", "1", "2", "–"]
    assert table(page, "kernel") == ["real"] * 4
    assert "The fastest here, int8, is 4 times as fast." in page.said


def test_batches_trade_throughput_for_waiting(visit: Visit, kept: Path, attempt: str):
    spec = AnswerSweepSpec.of(SUM, "batch_size")
    keep(kept, spec, attempt, sweep(spec, attempt, (0.01, 0.01, 0.02, 0.02, 0.04, 0.04)))
    page = visit(page="inference", **SUM_LINK)
    assert table(page, "tokens a second")[0] == "100 tokens/s"
    assert table(page, "tokens a second")[-1] == "800 tokens/s"
    assert "32 sequences at once give 8 times the tokens a second of one" in page.said
    assert "each waits 4 times as long for its next token." in page.said


def test_without_the_cache_a_token_costs_the_whole_text(visit: Visit, kept: Path, attempt: str):
    spec = AnswerSweepSpec.of(SUM, "context")
    keep(kept, spec, attempt, sweep(spec, attempt, (0.002,)))
    page = visit(page="inference", **SUM_LINK)
    assert "After 8 tokens the next one takes 2 ms with the cache and 20 ms without: 10 times" in (
        page.said
    )


# -- chat -----------------------------------------------------------------------------------------

FIRST = GenerateSpec(model="tiny", prompt="Who *are* you?", chat=True)
SECOND = GenerateSpec(
    model="tiny", prompt="And I?", chat=True, history=(FIRST.prompt, "I am a model.")
)


def chat(kept: Path) -> dict[str, str]:
    """Two turns; the link to them."""
    attempts = (f"20260102-120500-{next(NUMBERS):06x}", f"20260102-120501-{next(NUMBERS):06x}")
    keep(kept, FIRST, attempts[0], answer(FIRST, attempts[0], ("I am ", "a model."), 20))
    keep(kept, SECOND, attempts[1], answer(SECOND, attempts[1], ("A ", "reader."), 48))
    return {"model": "tiny", "mode": "Chat", "chat": attempts[0], "run": attempts[1]}


def said_in(page: Page) -> list[str]:
    return [t.value for t in page.at.text]


def test_a_chat_is_what_its_address_names(visit: Visit, kept: Path, here: Path):
    """A reload shows every turn again, as plain text; who has no such address sees none."""
    link = chat(kept)
    page = visit(page="inference", **link)
    assert said_in(page) == ["Who *are* you?", "I am a model.", "And I?", "A reader."]
    assert said_in(visit(page="inference", model="tiny", mode="Chat")) == []
    assert said_in(page.press("New chat")) == []
    assert "chat" not in page.at.query_params


def test_a_conversation_outlives_a_look_at_one_prompt(visit: Visit, kept: Path, here: Path):
    link = chat(kept)
    page = visit(page="inference", **(link | {"chat": f"{link['chat']}.{link['run']}"}))
    page.set("mode", "One prompt")
    assert "run" not in page.at.query_params
    assert said_in(page.set("mode", "Chat")) == [
        "Who *are* you?", "I am a model.", "And I?", "A reader."
    ]  # fmt: skip


def test_each_turn_says_what_it_sent_and_that_no_weight_changed(
    visit: Visit, kept: Path, here: Path
):
    page = visit(page="inference", **chat(kept))
    figures = [c.value for c in page.at.caption if "tokens sent" in c.value]
    assert [f.split("  \n")[0] for f in figures] == ["20 tokens sent", "48 tokens sent"]
    for figure in figures:
        assert f"first token after {seconds_text(TOLD['ttft_s'])}" in figure
        assert f"weights {BEFORE[:8]} = {BEFORE[:8]}" in figure
    assert "Turn 2 sent 48 tokens, 22 of them for the second time or more" in page.said
    assert page.header["run"].endswith(linked(page, "run"))


def test_a_training_step_on_what_was_said_is_told_in_the_chat(
    visit: Visit, kept: Path, here: Path, attempt: str
):
    link = chat(kept)
    spec = FinetuneSpec(model="tiny", text="And I?\nA reader.")
    keep(kept, spec, attempt, update(spec, attempt))
    link |= {"chat": f"{link['chat']}.{link['run']}", "run": attempt}
    page = visit(page="inference", **link)
    assert f"`{BEFORE[:8]}` ≠ `{AFTER[:8]}`" in page.said
    assert table(page, "norm of the change") == ["3.0·10⁰", "1.0·10⁰"]
    page.press("Ask the changed model")
    assert linked(page, "model") == f"{spec.spec_id}/{attempt}"
    assert page.at.get_by_key("model_choice").value == f"{spec.spec_id}/{attempt}"


def test_words_that_cannot_be_sent_come_back(visit: Visit, here: Path):
    page = visit(page="inference", model="tiny", mode="Chat", context="64")
    page.at.chat_input[0].set_value("x" * 100)
    page.again()
    (error,) = (e.value for e in page.at.error)
    assert "more than a context of 64" in error
    assert "run" not in page.at.query_params


def test_a_turn_of_a_chat_that_is_gone_leaves_the_others(visit: Visit, kept: Path, here: Path):
    link = chat(kept)
    page = visit(page="inference", **(link | {"chat": "20200101-000000-abcdef"}))
    assert said_in(page) == ["And I?", "A reader."]


def test_a_model_without_turns_has_no_chat(visit: Visit):
    page = visit(page="inference", model="addition")
    control = page.at.get_by_key("no_chat")
    assert control.disabled
    assert "has learned turns" in control.help


@pytest.mark.parametrize("run", ["", "../../x", "20200101-000000-abcdef", "x" * 9999])
def test_no_link_breaks_the_page(visit: Visit, run: str, here: Path):
    link: dict[str, Any] = {"model": "tiny", "run": run, "chat": f"{run}.{run}"}
    for mode in ("Chat", "One prompt"):
        assert visit(page="inference", **link, mode=mode).at.title[0].value == TITLE
