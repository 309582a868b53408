"""The Memory page: what it says of a model, of a device, and of what a visitor sends."""

import itertools
import json

import pytest

from components import sizing
from components.theme import bytes_text
from core.catalog import devices, find_model, models
from core.footprints import Serving, Training, serving, training
from core.specimens import runs_folder
from core.states import CONVENTIONS, OPTIMIZERS, RECIPES
from tests.pages.conftest import Visit

CONFIG = {
    "model_type": "llama",
    "hidden_size": 512,
    "num_hidden_layers": 4,
    "num_attention_heads": 8,
    "intermediate_size": 1024,
    "vocab_size": 1000,
    "max_position_embeddings": 2048,
}


def needs(slug: str, how: Training, answers: Serving) -> tuple[str, str]:
    shape = find_model(slug).shape
    step, answer = training([shape], how).peak[0], serving([shape], answers).peak[0]
    return bytes_text(float(step)), bytes_text(float(answer))


def test_the_page_says_what_the_functions_say(visit: Visit):
    page = visit("memory")
    step, answer = needs("llama-3.1-8b", Training(recipe="mixed16"), Serving())
    assert f"**{step}** to take one training step" in page.said
    assert f"**{answer}** to answer" in page.said
    assert "483,803 tokens" in page.said


def test_a_link_is_the_page(visit: Visit):
    link = {
        "model": "deepseek-v3-r1", "device": "b200-sxm-180gb", "recipe": "fp8", "batch": "4",
        "context": "4096", "attention": "explicit", "recompute": "on", "weights": "Q4_K_M",
        "cache": "q8_0", "optimizer": "momentum",
    }  # fmt: skip
    page = visit("memory", **link)
    how = Training(
        recipe="fp8", optimizer="momentum", batch_size=4, seq_len=4096, attention="explicit",
        recompute=True,
    )  # fmt: skip
    answers = Serving(weight_format="Q4_K_M", cache_format="q8_0", batch_size=4, context=4096)
    for said in needs("deepseek-v3-r1", how, answers):
        assert said in page.said
    assert "B200 SXM 180GB" in page.said and "ignored" not in page.said


@pytest.mark.parametrize("slug", list(models())[::6])
def test_every_model_has_its_page(visit: Visit, slug):
    page = visit("memory", model=slug)
    assert models()[slug].name.split()[0] in page.said


@pytest.mark.parametrize("slug", list(devices())[::9])
def test_every_device_has_its_verdict(visit: Visit, slug):
    page = visit("memory", device=slug)
    assert "to spare" in page.said or "too much" in page.said


@pytest.mark.parametrize(("recipe", "optimizer"), list(itertools.product(RECIPES, OPTIMIZERS))[::7])
def test_every_recipe_holds_what_it_says(visit: Visit, recipe, optimizer):
    page = visit("memory", recipe=recipe, optimizer=optimizer)
    step, _ = needs("llama-3.1-8b", Training(recipe=recipe, optimizer=optimizer), Serving())
    assert step in page.said


def test_the_conventions_stand_side_by_side(visit: Visit):
    said = visit("memory").said
    for convention in CONVENTIONS:
        assert f"| **{convention.bytes_per_param:g}**" in said
        assert convention.counts in said


def test_the_chart_holds_every_model_and_the_measure(visit: Visit):
    chart, bars = visit("memory").charts
    points = [s for s in chart["series"] if s["name"].endswith("published models")]
    assert len(points) == 2
    assert {len(s["items"]) for s in points} == {len(models())}
    assert chart["measure"]["label"] == "Llama-3.1-8B"
    assert any(line["strong"] for line in chart["lines"])
    step, answer = bars["rows"]
    assert step["name"] == "a training step" and answer["name"] == "answering"
    total = sum(s["value"] for s in step["segments"])
    assert total == pytest.approx(chart["measure"]["high"])


@pytest.mark.parametrize("view", ["training by category", "answers by category"])
def test_categories_add_up_to_the_line(visit: Visit, view):
    chart, _ = visit("memory", view=view).charts
    (stack,) = chart["series"]
    every = sizing.everything()
    trains = view.startswith("training")
    shapes = every.shapes
    found = training(shapes, Training(recipe="mixed16")) if trains else serving(shapes, Serving())
    sums = [sum(layer["values"][i] for layer in stack["layers"]) for i in range(len(stack["xs"]))]
    assert sums == pytest.approx([float(v) for v in found.peak[: len(sums)]])


def test_a_point_that_is_chosen_is_looked_at(visit: Visit):
    page = visit("memory")
    page.at.query_params["model"] = "gpt-2-xl-1.5b"
    assert "**GPT-2 XL 1.5B**" in page.again().said


def test_any_size_has_a_slider(visit: Visit):
    page = visit("memory", model="size", params="405B")
    assert "A model of 405B" in page.said
    page.set("params", "1M")
    assert "A model of 1M" in page.said


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("model", "gpt-9"), ("model", "own-zz"), ("model", "../../etc/passwd"), ("model", "<b>"),
        ("device", "abacus"), ("recipe", "fp3"), ("optimizer", "lion"), ("batch", "0"),
        ("batch", "3"), ("context", "-1"), ("context", "1e9"), ("attention", "all"),
        ("weights", "Q9"), ("cache", ""), ("view", "3d"), ("params", "2B"), ("hidden", "8"),
    ],
)  # fmt: skip
def test_a_bad_link_is_named_and_ignored(visit: Visit, key, value):
    page = visit("memory", **{key: value})
    assert f"`{key}`" in page.said
    step, _ = needs("llama-3.1-8b", Training(recipe="mixed16"), Serving())
    assert step in page.said


def test_a_visitors_model_is_kept_and_found_again(visit: Visit):
    page = visit("memory").set("own_config", json.dumps({**CONFIG, "mystery": 3}))
    assert "Not understood: mystery" in page.said
    page.press("Look at it")
    name = page.at.query_params["model"]
    assert name.startswith("own-") and (runs_folder() / "models" / f"{name}.json").exists()
    assert "Fields not understood: mystery" in visit("memory", model=name).said


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("nonsense", "not JSON"),
        ("[]", "not an object"),
        ('{"hidden_size": 8}', "is missing"),
        (json.dumps({**CONFIG, "hidden_size": -1}), "below 1"),
        (json.dumps({**CONFIG, "hidden_size": "<script>"}), "not a whole number"),
    ],
)
def test_what_cannot_be_read_stays_and_says_why(visit: Visit, text, says):
    page = visit("memory").set("own_config", text)
    assert says in page.said
    assert page.at.text_area(key="own_config").value == text


def test_what_would_fit_can_be_tried(visit: Visit):
    page = visit("memory", batch="64", context="8192")
    (button, *_) = (b for b in page.at.button if b.label == "Try it")
    button.click()
    page.again()
    assert page.at.query_params["recompute"] == "on"


def test_a_context_beyond_the_models_is_said(visit: Visit):
    assert "was made for 1,024 tokens" in visit("memory", model="gpt-2-124m", context="4096").said


def test_the_ledger_sums_to_the_activations(visit: Visit):
    page = visit("memory")
    found = training([find_model("llama-3.1-8b").shape], Training(recipe="mixed16"))
    assert f"Together **{bytes_text(float(found.kept[0]))}**" in page.said
