"""The Latency page tells times of any model on any device, and what it cannot tell."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from components import (
    latency_ops,
    latency_roofline,
    latency_sizes,
    latency_times,
    latency_utilisation,
)
from components.latency_times import Look
from components.sizing import chosen_model
from components.theme import bytes_text, seconds_text
from core import latency
from core.catalog import find_device, models
from core.footprints import Serving, Training
from core.forecast import Outlook
from tests.core.calibrations import calibration, keep_all
from tests.pages.conftest import Visit

TITLE = "Training waits for arithmetic, an answer waits for memory"
FORMATS = ("fp32", "bf16")


@pytest.fixture
def calibrated(kept: Path) -> Iterator[None]:
    keep_all(kept, FORMATS)
    yield
    for path in (kept / latency.FOLDER).glob("*.json"):
        path.unlink()


def test_a_first_visit_tells_the_times_of_a_model_on_a_device(visit: Visit):
    page = visit(page="latency")
    assert page.at.title[0].value == TITLE
    assert "**Llama-3.1-8B** on **H100 SXM 80GB**: a training step on 2,048 tokens" in page.said
    assert "all of it for memory" in page.said
    for label in ("A training step", "Reading the prompt", "Each token", "Answering"):
        assert f"{label}  \n**" in page.said
    assert "where programs were seen" in page.said


def test_numbers_follow_the_settings(visit: Visit):
    page = visit(page="latency")
    before = page.said
    page.set("batch", "64")
    assert "each further token of 64 sequences" in page.said
    assert page.said != before


def test_a_link_opens_the_same_page(visit: Visit):
    page = visit(page="latency", model="gpt-2-124m", device="rtx-4090-24gb", prompt="64")
    assert "**GPT-2 124M** on **RTX 4090 24GB**" in page.said
    assert "reading a prompt of 64 tokens" in page.said


@pytest.mark.parametrize("model", ["size", *list(models())[::6]])
def test_every_kind_of_model_has_a_page(visit: Visit, model: str):
    page = visit(page="latency", model=model, weights="Q4_K_M", context="8192")
    assert "each further token takes at least" in page.said


def test_a_mixture_shows_the_experts_that_a_batch_meets(visit: Visit):
    assert "sent to 2 of 8 experts" in visit(page="latency", model="mixtral-8x7b").said
    assert "experts" not in visit(page="latency").at.subheader[0].value


def test_an_unknown_peak_gives_no_figure_and_says_so(visit: Visit):
    page = visit(page="latency", device="apple-m3-ultra")
    assert "a training step on 2,048 tokens waits for a peak that is not published" in page.said
    assert "no dense bf16 peak of Apple M3 Ultra" in page.said
    assert "**unknown**" in page.said
    assert "no share can be given" in page.said or "give your own" in page.said


def test_a_step_that_is_too_fast_is_called_impossible(visit: Visit):
    page = visit(page="latency", step_ms="1")
    assert "impossible" in page.said
    assert "more than there is" in page.at.warning[0].value
    assert not visit(page="latency").at.warning
    assert not visit(page="latency", step_ms="400").at.warning


def test_a_speed_beyond_the_bandwidth_is_called_impossible(visit: Visit):
    """Source: claim-5090 of tests/data/oracle.csv: 8B in fp16 at 140 tokens a second."""
    page = visit(page="latency", device="rtx-5090-32gb", claim="140")
    assert "Impossible as one answer" in page.at.warning[0].value
    page = visit(page="latency", device="rtx-5090-32gb", claim="90")
    assert not page.at.warning
    assert "need **" in page.said


def test_drafts_that_cost_too_much_are_said_to_slow_it_down(visit: Visit):
    page = visit(page="latency", accept="30", draft="8", draft_cost="40")
    assert "This makes it slower" in page.said
    assert "**2.40 times**" in visit(page="latency").said  # published: α 0.8, γ 4, c 0.1


def test_a_prompt_that_the_context_cannot_hold_is_told_and_not_cut(visit: Visit):
    page = visit(page="latency", prompt="4096", context="2048")
    assert "A prompt of 4,096 tokens is longer than a context of 2,048" in page.said


def test_a_bad_link_is_told(visit: Visit):
    page = visit(page="latency", device="h1000", prompt="1000")
    assert "`prompt` = `1000`" in page.said
    assert page.at.title[0].value == TITLE


# -- this machine ---------------------------------------------------------------------------------


def test_this_machine_asks_to_be_measured_and_shows_no_time_before(visit: Visit):
    page = visit(page="latency", device="this")
    assert "not measured yet" in page.said
    assert "Calibrate this machine" in page.labels
    assert "Measure the ladder" in page.labels
    assert "Each token  \n**" not in page.said


@pytest.mark.usefixtures("calibrated")
def test_a_calibrated_machine_predicts_op_by_op(visit: Visit):
    page = visit(page="latency", device="this", model="gpt-2-124m", recipe="fp32", weights="fp32")
    assert "on **this machine**: a training step on 2,048 tokens takes **" in page.said
    assert "with the error seen here" in page.said
    read = calibration().paces[-1].read_bytes_per_s
    assert f"it reads {bytes_text(read)} a second" in page.said
    assert "calibrated" not in page.labels


@pytest.mark.usefixtures("calibrated")
def test_a_recipe_that_the_engine_has_not_is_told_by_its_roofline(visit: Visit):
    page = visit(page="latency", device="this", model="gpt-2-124m", recipe="mixed16")
    assert "a training step on 2,048 tokens takes at least" in page.said


# -- what the sections draw -----------------------------------------------------------------------


def look(device: str = "h100-sxm-80gb", model: str = "llama-3.1-8b") -> Look:
    chosen = chosen_model(model, "8B")
    bare = Look(
        name=chosen.name,
        shape=chosen.shape,
        n_params=chosen.n_params,
        n_active=chosen.n_active,
        device=find_device(device),
        training=Training(recipe="mixed16"),
        serving=Serving(),
        prompt=512,
        measured=(),
        works={},
    )
    works = {work: bare_outlook(bare, work) for work in latency_times.WORKS}
    return Look(**{f: getattr(bare, f) for f in Look.__slots__ if f != "works"}, works=works)


def bare_outlook(bare: Look, work: str) -> Outlook:
    return bare.of(work, bare.serving)


def test_no_dot_lies_above_the_roof():
    seen = look()
    batches = latency_times.by_batch(seen)
    figure = latency_roofline.figure(seen, [batches[b] for b in latency_roofline.BATCHES])
    using = seen.works["decode"].using
    assert using is not None and using.rates.peak_flops is not None
    for series in figure.message()["series"]:
        for x, y, *_ in series.get("items", ()):
            roof = min(x * using.rates.bandwidth_bytes_s, using.rates.peak_flops)
            assert y <= roof * 1.0001


@pytest.mark.parametrize("work", ["train", "prefill", "decode"])
def test_the_bars_parts_add_up_to_the_time(work: str):
    seen = look().works[work]
    assert seen.found is not None
    parts = latency_ops.parts(seen.found)
    assert sum(p.value for p in parts) == pytest.approx(seen.seconds, rel=0.02)
    rows = latency_ops.columns(seen.found)
    assert {len(column) for column in rows.values()} == {len(rows["op"])}


def test_shares_of_the_peak_differ_by_convention_and_hfu_is_the_largest_of_honest_ones():
    found = {
        c.name: latency_utilisation.step_flops(look(), c) for c in latency_utilisation.CONVENTIONS
    }
    honest = {n: f for n, f in found.items() if "experts" not in n and "windows" not in n}
    assert max(honest, key=lambda n: honest[n]).startswith("HFU")
    assert len(set(map(round, found.values()))) > 4
    assert latency_utilisation.share_text(2e15, 1.0, 1e15).endswith("impossible")
    assert latency_utilisation.share_text(2e14, 1.0, None) == "–"


def test_lines_of_all_models_are_the_times_of_each():
    seen = look()
    line = latency_times.line(seen, "decode")
    everything = latency_times.sizing.everything()
    at = len(everything.ladder) + [m.slug for m in everything.catalogue].index("llama-3.1-8b")
    assert line.seconds[at] == pytest.approx(seen.works["decode"].seconds)


def test_a_span_names_its_unit_once_where_it_is_one():
    assert latency_times.span_text((0.0056, 0.0107)) == "5.6 to 10.7 ms"
    assert latency_times.span_text((0.0006, 0.0107)) == "600 µs to 10.7 ms"
    assert seconds_text(0.0107) == "10.7 ms"


def test_published_models_stand_where_the_ladder_of_this_machine_does():
    """A ladder's own shape, as if it were published, lies on the line."""
    sizes, roof = [10**6, 10**8, 10**10], [1.0, 50.0, 6_000.0]
    here = [4.0, 100.0, 6_000.0]
    active = latency_sizes._active()
    told = latency_sizes._as_the_ladder(sizes, here, sizes, roof, [1.0] * len(active))
    largest = max(range(len(active)), key=lambda i: active[i])
    assert told[largest] == pytest.approx(1.0)  # beyond the ladder: as its end
    assert all(1.0 <= factor <= 4.0 for factor in told)
    small = min(range(len(active)), key=lambda i: active[i])
    assert told[small] == max(told)
