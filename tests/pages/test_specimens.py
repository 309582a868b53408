"""Every specimen has a page: its settings, a run of its own, and numbers that were predicted.

Models are small and runs short; every test that starts one has a seed of its own.
"""

import re
from itertools import count
from pathlib import Path
from typing import Any

import pytest

from components.theme import bytes_text
from core import texts
from core.specimens import predictions, shape_of, texts_folder
from core.specs import (
    AdditionSpec,
    DigitsSpec,
    OwnTextSpec,
    PydocsSpec,
    Spec,
    TransformerSpec,
)
from core.trace import Trace
from tests.pages.conftest import Visit
from tests.pages.page import Page

LABELS = {
    "weights_bytes": "Weights",
    "gradients_bytes": "Gradients",
    "optimizer_bytes": "Optimizer state",
    "activations_bytes": "Activations",
    "peak_bytes": "Peak",
}
SEEDS = count(5000)
TEXT = "It was the best of times, it was the worst of times, it was the age of wisdom.\n" * 10


@pytest.fixture
def seed() -> int:
    """One that no other test uses."""
    return next(SEEDS)


def is_paused(run: Trace) -> bool:
    said = run.scalars("paused")
    return bool(said) and said[-1][1] == 1


def numbers(page: Page) -> dict[str, tuple[str, str]]:
    """What stands under each label of the comparison: (measured, predicted and error)."""
    found: dict[str, tuple[str, str]] = {}
    captions = [c.value for c in page.at.caption if c.value.startswith("predicted ")]
    shown = [m.value for m in page.at.markdown if re.fullmatch(r"[\w ]+  \n\*\*.+\*\*", m.value)]
    shown = [text for text in shown if text.split("  \n")[0] in LABELS.values()]
    for text, said in zip(shown, captions, strict=True):
        label, value = text.split("  \n")
        found[label] = (value.strip("*"), said)
    return found


SMALL = {"n_layer": "1", "d_model": "16"}
SPECIMENS: list[tuple[dict[str, str], Spec]] = [
    ({"specimen": "digits"}, DigitsSpec()),
    (
        {"specimen": "digits", **SMALL, "act_d": "tanh", "batch_d": "64", "opt_t": "SGD"},
        DigitsSpec(n_layer=1, d_model=16, activation="tanh", batch_size=64, optimizer="sgd"),
    ),
    ({"specimen": "addition", "batch_a": "16"}, AdditionSpec(batch_size=16)),
    (
        {"specimen": "addition", **SMALL, "batch_a": "8", "arch": "llama", "accum": "2"},
        AdditionSpec(n_layer=1, d_model=16, batch_size=8, architecture="llama", accumulation=2),
    ),
    (
        {"specimen": "pydocs", **SMALL, "batch_t": "4", "ctx": "32", "attn": "explicit"},
        PydocsSpec(n_layer=1, d_model=16, batch_size=4, seq_len=32, attention="explicit"),
    ),
    (
        {"specimen": "pydocs", **SMALL, "batch_t": "4", "ctx": "16", "ckpt": "on", "drop": "10"},
        PydocsSpec(
            n_layer=1, d_model=16, batch_size=4, seq_len=16, checkpointing=True, dropout=0.1
        ),
    ),
]
each_specimen = pytest.mark.parametrize(
    ("link", "spec"), SPECIMENS, ids=["-".join(link.values()) for link, _ in SPECIMENS]
)


def with_seed(spec: Spec, seed: int) -> Spec:
    return Spec.from_json(spec.to_json() | {"seed": seed})


@each_specimen
def test_what_was_measured_is_what_was_predicted(
    visit: Visit, link: dict[str, str], spec: Spec, seed: int
):
    """The numbers on the page are the run's own scalars; four are exact, the peak within 1 %.

    Of the first update, before which no optimizer has a state, and of the next.
    """
    spec = with_seed(spec, seed)
    page = visit(**link, seed=str(seed))
    assert Spec.from_json(page.header["spec"]) == spec
    page.until(spec, is_paused)
    for step in (0, 1):
        measured = page.run(spec).scalars_of(step)
        predicted = predictions(spec, first=step == 0)
        shown = numbers(page)
        assert list(shown) == list(LABELS.values())
        for quantity, label in LABELS.items():
            value, said = shown[label]
            assert value == bytes_text(measured[quantity])
            assert said.startswith(f"predicted {bytes_text(predicted[quantity].value)} · ")
            if quantity != "peak_bytes":
                assert said.endswith("exact"), (label, value, said)
        assert measured["peak_bytes"] == pytest.approx(predicted["peak_bytes"].value, rel=0.01)
        page.press("Step").until(spec, lambda run, n=step + 2: len(run.recorded_steps) == n)


@each_specimen
def test_a_run_of_every_specimen_can_be_trained_to_its_end(
    visit: Visit, link: dict[str, str], spec: Spec, seed: int
):
    if isinstance(spec, DigitsSpec):
        short = {"epochs_d": "20"}
        expected = 20 * -(-1437 // spec.batch_size)
    else:
        short = {"steps_a" if spec.specimen == "addition" else "steps_t": "50"}
        spec = Spec.from_json(spec.to_json() | {"n_steps": 50})
        expected = 50
    spec = with_seed(spec, seed)
    page = visit(**link, **short, seed=str(seed))
    page.until(spec, is_paused).press("Train").until(spec, lambda run: run.ended)
    run = page.run(spec)
    assert run.ended is not None and run.ended.status == "finished"
    assert run.ended.n_steps == run.scalars("epoch")[-1][0] == expected
    assert run.recorded_steps == [0, expected - 1]
    losses = [value for _, value in run.scalars("held_out_loss")]
    assert losses[-1] < losses[0]
    assert "Train again" in page.labels
    assert page.shown.ended
    assert [e.value for e in page.at.error] == []


def test_a_specimen_shows_its_own_settings_and_no_others(visit: Visit):
    playground, digits = visit().at, visit(specimen="digits").at
    addition, pydocs = visit(specimen="addition").at, visit(specimen="pydocs").at

    def has(page: Any, key: str) -> bool:
        try:
            page.get_by_key(key)
        except KeyError:
            return False
        return True

    shown = {
        key: [has(page, key) for page in (playground, digits, addition, pydocs)]
        for key in ("problem", "act_d", "batch_a", "ctx", "arch", "n_layer", "seed", "pace", "size")
    }
    assert shown == {
        "problem": [True, False, False, False],
        "act_d": [False, True, False, False],
        "batch_a": [False, False, True, False],
        "ctx": [False, False, False, True],
        "arch": [False, False, True, True],
        "n_layer": [False, True, True, True],
        "seed": [True, True, True, True],
        "pace": [True, False, False, False],
        "size": [False, True, True, True],
    }


def test_one_can_go_from_specimen_to_specimen_and_back(visit: Visit, seed: int):
    """What was set is still set; every one has its own run."""
    page = visit(seed=str(seed), problem="xor").set("specimen", "digits")
    page.set("d_model", "16")
    assert page.header["spec"] == DigitsSpec(d_model=16, seed=seed).to_json()
    page.set("specimen", "addition")
    assert page.header["spec"]["specimen"] == "addition"
    assert page.header["spec"]["seed"] == seed
    page.set("specimen", "playground")
    assert page.header["spec"]["specimen"] == "playground"
    assert page.header["spec"]["seed"] == seed


# -- settings -------------------------------------------------------------------------------------


@pytest.mark.parametrize("specimen", ["digits", "addition", "pydocs"])
def test_the_size_slider_sets_layers_and_width(visit: Visit, specimen: str, seed: int):
    page = visit(specimen=specimen, seed=str(seed), batch_a="2", batch_t="2", ctx="16")
    small = page.at.get_by_key("size").options[0]
    page.set("size", small)
    assert page.at.get_by_key("n_layer").value == 1
    assert page.at.get_by_key("d_model").value == "32"
    spec = Spec.from_json(page.header["spec"])
    assert (spec.n_layer, spec.d_model) == (1, 32)  # type: ignore[attr-defined]
    assert page.at.get_by_key("size").value == small
    assert f"**{shape_of(spec).n_params:,} parameters**" in page.said


@pytest.mark.parametrize("specimen", ["digits", "addition", "pydocs"])
def test_the_size_slider_stays_where_it_was_put(visit: Visit, specimen: str, seed: int):
    """It says what the model is; nothing may move it back."""
    page = visit(specimen=specimen, seed=str(seed), batch_a="1", batch_t="1", ctx="16")
    for size in page.at.get_by_key("size").options[:5]:
        page.set("size", size)
        assert page.at.get_by_key("size").value == size


def test_the_size_slider_follows_what_is_set_by_hand(visit: Visit, seed: int):
    page = visit(specimen="addition", seed=str(seed), batch_a="2")
    options = page.at.get_by_key("size").options
    page.set("d_model", "128").set("n_layer", 4)
    assert page.at.get_by_key("size").value == options[4]
    page.set("n_layer", 5)  # between two sizes: the nearer one
    assert page.at.get_by_key("size").value == options[4]


def predicted_bytes(page: Page, label: str) -> str:
    said = numbers(page)[label][1]
    return said.removeprefix("predicted ").split(" · ")[0]


def test_checkpointing_changes_the_predicted_activations_at_once(visit: Visit, seed: int):
    """They are there before any run of the new settings has measured anything."""
    link = {"specimen": "addition", "seed": str(seed), "batch_a": "16", "n_layer": "4"}
    page = visit(**link)
    spec = AdditionSpec(seed=seed, batch_size=16, n_layer=4)
    kept = Spec.from_json(spec.to_json() | {"checkpointing": True})
    full, less = (predictions(s)["activations_bytes"].value for s in (spec, kept))
    assert predicted_bytes(page, "Activations") == bytes_text(full)
    page.set("ckpt", "on")
    assert predicted_bytes(page, "Activations") == bytes_text(less)
    assert less < full / 3


@pytest.mark.parametrize(("precision", "extra"), [("bf16", 0), ("fp16", 8)])
def test_mixed_precision_changes_the_predictions_at_once(
    visit: Visit, seed: int, precision: str, extra: int
):
    """Activations of matrix products are half as large; weights stay, and fp16 has a loss scale."""
    page = visit(specimen="addition", seed=str(seed), batch_a="16")
    before = {label: predicted_bytes(page, label) for label in LABELS.values()}
    page.set("prec_t", precision)
    spec = AdditionSpec(seed=seed, batch_size=16, precision=precision)
    found = predictions(spec)
    for quantity, label in LABELS.items():
        assert predicted_bytes(page, label) == bytes_text(found[quantity].value)
    assert predicted_bytes(page, "Weights") == before["Weights"]
    assert predicted_bytes(page, "Activations") != before["Activations"]
    fp32 = predictions(AdditionSpec(seed=seed, batch_size=16))
    assert found["optimizer_bytes"].value == fp32["optimizer_bytes"].value + extra


# -- a text of one's own --------------------------------------------------------------------------


def test_before_there_is_a_text_the_page_asks_for_one(visit: Visit, kept: Path):
    page = visit(specimen="text")
    assert [e.value for e in page.at.info] == [
        "Paste or upload a text of at least 200 characters to begin."
    ]
    assert not page.at.get("bidi_component")


@pytest.mark.parametrize(
    ("pasted", "why"),
    [
        ("", "the text has 0 characters; a model needs at least 200 to learn from"),
        ("To be", "the text has 5 characters; a model needs at least 200 to learn from"),
        ("a" * 300, "the text repeats one character, so there is nothing to predict"),
    ],
)
def test_a_text_that_cannot_be_used_is_met_with_a_sentence(visit: Visit, pasted: str, why: str):
    page = visit(specimen="text").set("pasted", pasted).press("Learn from it")
    assert [e.value for e in page.at.error] == [f"This text cannot be used: {why}."]
    assert "text" not in page.at.query_params
    assert not page.at.get("bidi_component")


def test_a_pasted_text_is_kept_under_a_name_in_the_address_and_learned_from(
    visit: Visit, kept: Path, seed: int
):
    page = visit(specimen="text", seed=str(seed), **SMALL, batch_t="2", ctx="16")
    page.set("pasted", TEXT).press("Learn from it")
    name = page.at.query_params["text"]
    assert isinstance(name, str)
    assert texts.kept(name, kept / "texts").characters == TEXT.strip()
    spec = OwnTextSpec(text=name, seed=seed, n_layer=1, d_model=16, batch_size=2, seq_len=16)
    assert Spec.from_json(page.header["spec"]) == spec
    page.until(spec, is_paused)
    assert page.run(spec).recorded_steps == [0]
    assert page.header["vocabulary"] == "".join(sorted(set(TEXT.strip())))
    assert [e.value for e in page.at.error] == []


def test_an_uploaded_text_is_learned_from(visit: Visit, kept: Path, seed: int):
    page = visit(specimen="text", seed=str(seed), **SMALL, batch_t="2", ctx="16")
    (uploader,) = page.at.file_uploader
    uploader.set_value([("tale.txt", b"\xef\xbb\xbf" + TEXT.encode(), "text/plain")])
    page.press("Learn from it")
    assert texts.kept(page.at.query_params["text"], kept / "texts").characters == TEXT.strip()


def test_the_same_link_finds_the_text_again(visit: Visit, kept: Path, seed: int):
    name = texts.keep(TEXT, kept / "texts")
    page = visit(specimen="text", text=name, seed=str(seed), **SMALL, batch_t="2", ctx="16")
    assert page.header["spec"]["text"] == name


def test_a_text_that_is_no_longer_kept_is_met_with_a_sentence(visit: Visit, kept: Path):
    page = visit(specimen="text", text="0123456789abcdef" * 2)
    assert [e.value for e in page.at.error] == [
        "That text is no longer kept here. Paste or upload it again."
    ]
    assert not page.at.get("bidi_component")


@pytest.mark.parametrize("name", ["../../../etc/passwd", "secret", "A" * 32, ""], ids=repr)
def test_a_malformed_name_of_a_text_is_as_good_as_none(visit: Visit, kept: Path, name: str):
    page = visit(specimen="text", text=name)
    assert [e.value for e in page.at.info] == [
        "Paste or upload a text of at least 200 characters to begin."
    ]


def test_a_text_that_is_shorter_than_twice_its_context_is_met_with_a_sentence(
    visit: Visit, kept: Path, seed: int
):
    """And none of its settings is lost: a shorter context is one move away."""
    name = texts.keep(TEXT[:300], kept / "texts")
    page = visit(specimen="text", text=name, ctx="256", seed=str(seed), batch_t="2", **SMALL)
    assert [e.value for e in page.at.error] == [
        "This text cannot be used: the text has 300 characters, too few for a context of 256; "
        "choose a shorter context or a longer text."
    ]
    assert not page.at.get("bidi_component")
    page.set("ctx", "128")
    assert [e.value for e in page.at.error] == []
    assert page.header["spec"]["seq_len"] == 128


def test_texts_and_runs_of_one_visitor_are_nowhere_listed(visit: Visit, kept: Path, seed: int):
    """Another visitor's page says nothing of a text whose name it does not have."""
    name = texts.keep(TEXT + "My diary.", kept / "texts")
    page = visit(specimen="text")
    assert name not in page.said
    assert "diary" not in page.said


def test_texts_are_kept_beside_the_runs(kept: Path):
    assert texts_folder() == kept / "texts"


# -- ends -----------------------------------------------------------------------------------------


def test_a_torch_run_that_diverges_says_where_and_offers_a_smaller_rate(visit: Visit, seed: int):
    """A real one: no number in it was made up."""
    spec = DigitsSpec(
        seed=seed, n_layer=12, activation="linear", optimizer="sgd", learning_rate=1.0, d_model=512
    )
    link = {"specimen": "digits", "n_layer": "12", "d_model": "512", "act_d": "linear"}
    page = visit(**link, opt_t="SGD", lr_t="1", seed=str(seed))
    page.until(spec, is_paused).press("Train").until(spec, lambda run: run.ended)
    run = page.run(spec)
    assert run.ended is not None
    assert (run.ended.status, run.ended.advice) == ("diverged", {"learning_rate": 0.1})
    (error,) = (e.value for e in page.at.error)
    assert re.match(r"Step \d+: [\w. ]+ is no longer a finite number\.", error), error
    page.press("Try learning rate 0.1")
    assert page.at.get_by_key("lr_t").value == "0.1"
    assert page.header["spec"]["learning_rate"] == 0.1
    assert [e.value for e in page.at.error] == []


def test_pause_and_step_work_on_every_kind(visit: Visit, seed: int):
    spec = AdditionSpec(seed=seed, n_layer=1, d_model=16, batch_size=8, n_steps=20_000)
    page = visit(specimen="addition", seed=str(seed), **SMALL, batch_a="8", steps_a="20000")
    page.until(spec, is_paused).press("Train")
    page.until(spec, lambda run: not is_paused(run) and len(run.scalars("epoch")) > 4)
    page.press("Pause").until(spec, is_paused)
    first = page.run(spec).recorded_steps
    assert len(first) == 2
    page.press("Step").until(spec, lambda run: len(run.recorded_steps) == 3)
    assert page.run(spec).recorded_steps[-1] == first[-1] + 1
    assert isinstance(spec, TransformerSpec)
    page.press("Stop").until(spec, lambda run: run.ended)
