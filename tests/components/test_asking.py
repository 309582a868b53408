"""What the Inference page's controls say is the spec that is run."""

import dataclasses
from typing import Any

import pytest

from components import asking, settings
from components.asking import CONTROLS, Panel, contexts, more_tokens, spec_of
from components.settings import read_query
from core.specs import MAX_NEW_TOKENS, GenerateSpec

DEFAULTS = {key: control.default for key, control in CONTROLS.items()}

# Written out, not taken from the controls: these are the links that people have shared.
MEANT: dict[str, tuple[str, dict[str, Any]]] = {
    "format": ("weight_format", {f: f for f in ("fp32", "bf16", "int8", "int4", "file")}),
    "cache": ("cache", {"on": True, "off": False}),
    "context": ("context", {str(2**n): 2**n for n in range(6, 14)}),
    "tokens": (
        "max_new_tokens",
        {str(n): n for n in (1, 2, 3, 8, 16, 32, 64, 128, 256, 512, 1024)},
    ),
    "sequences": ("batch_size", {str(2**n): 2**n for n in range(7)}),
    "temperature": (
        "temperature",
        {"0": 0, "0.1": 0.1, "0.3": 0.3, "0.5": 0.5, "0.7": 0.7, "1": 1, "1.3": 1.3, "1.6": 1.6}
        | {"2": 2},
    ),
    "top_k": (
        "top_k",
        {"all": 0, "1000": 1000, "200": 200, "50": 50, "20": 20, "10": 10, "5": 5, "2": 2, "1": 1},
    ),
    "top_p": (
        "top_p",
        {t: float(t) for t in ("1", "0.99", "0.95", "0.9", "0.8", "0.7", "0.5", "0.3", "0.1")},
    ),
    "draw": ("seed", {"0": 0, "1": 1, "2147483647": 2147483647}),
    "threads": ("threads", {"1": 1}),
}


def panel(**changes: Any) -> Panel:
    return Panel(model="smollm2", values=DEFAULTS | changes)


@pytest.mark.parametrize("key", MEANT)
def test_every_value_of_a_control_is_one_of_the_spec(key: str):
    name, meant = MEANT[key]
    for text, value in meant.items():
        read = read_query([(key, [text])], CONTROLS)
        assert read.ignored == {}
        spec = spec_of(panel(**read.values), "Hi")
        assert getattr(spec, name) == value
    if CONTROLS[key].options:
        assert set(CONTROLS[key].options) == set(meant)


def test_a_link_without_settings_is_the_default_spec():
    assert spec_of(panel(), DEFAULTS["prompt"]) == GenerateSpec()


def test_each_control_is_part_of_the_spec_or_says_how_it_is_asked():
    assert set(CONTROLS) == {*MEANT, "model", "prompt", "mode"}
    named = {name for name, _ in MEANT.values()}
    assert {f.name for f in dataclasses.fields(GenerateSpec)} == named | {
        "model", "prompt", "chat", "history", "looks"
    }  # fmt: skip


def test_no_key_is_the_training_page_s_too():
    """One key has one widget's value; two pages would hand each other theirs."""
    assert set(CONTROLS) & {*settings.CONTROLS, *settings.NOT_SETTINGS} == set()


@pytest.mark.parametrize(
    ("most", "found"),
    [
        (8192, ("64", "128", "256", "512", "1024", "2048", "4096", "8192")),
        (128, ("64", "128")),
        (100, ("64",)),
        (8, ("8",)),
    ],
)
def test_no_context_is_longer_than_the_model_was_made_for(most: int, found: tuple[str, ...]):
    assert contexts(most) == found


def test_a_longer_answer_is_the_next_there_is():
    assert more_tokens(GenerateSpec(max_new_tokens=32)) == 64
    assert more_tokens(GenerateSpec(max_new_tokens=33)) == 64
    assert more_tokens(GenerateSpec(max_new_tokens=MAX_NEW_TOKENS)) is None


@pytest.mark.parametrize("name", ["smollm2", "addition", "0123456789abcdef/20260101-000000-abcdef"])
def test_models_are_named_in_links(name: str):
    assert read_query([("model", [name])], CONTROLS).values == {"model": name}


@pytest.mark.parametrize("name", ["", "SmolLM2", "../runs", "a/b", "0123456789abcdef"])
def test_what_is_no_name_of_a_model_is_refused(name: str):
    expected = name == "0123456789abcdef"  # a name all the same, of nothing
    assert ("model" in read_query([("model", [name])], CONTROLS).values) is expected


def test_a_prompt_in_a_link_may_be_any_text():
    text = "line one\nline two \x00 ünïcödé"
    assert read_query([("prompt", [text])], CONTROLS).values == {"prompt": text}
    assert "prompt" in read_query([("prompt", ["x" * 50_001])], CONTROLS).ignored


def test_the_formats_say_whether_their_kernel_is_real():
    said = asking.CONTROLS["format"].help
    assert "file, simulated" in said
    for name in ("fp32", "bf16", "int8", "int4"):
        assert f"- {name}, real kernel" in said
