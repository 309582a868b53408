"""The catalogue: what its rows say, counted; names that are found; broken rows that are named."""

import csv

import pytest

from core import catalog
from core.catalog import FOLDER, devices, find_device, find_model, models
from core.counts import counts

# Totals and active parameters as counted with transformers on the meta device, or published.
MODELS = list(models().values())


def test_there_are_sixty_models_that_are_counted_exactly():
    exact = [m for m in MODELS if m.exact and counts(m.shape).total == m.params_published]
    assert len(exact) >= 60
    assert [m.name for m in MODELS if m.exact and m not in exact] == []


@pytest.mark.parametrize("model", MODELS, ids=lambda m: m.slug)
def test_a_count_is_the_published_one_or_says_how_it_differs(model):
    total = counts(model.shape).total
    assert model.count_convention and model.source
    if model.params_published is None:
        assert not model.exact
    elif model.exact:
        assert total == model.params_published
    else:
        assert total > model.params_published  # the conventions leave something out
        assert total == pytest.approx(model.params_published, rel=0.016)
    if model.active_published is not None:
        assert counts(model.shape).active == model.active_published
        assert model.active_convention


def closed_form(row) -> int | None:
    """FORMULAS of the families, written down apart from the table."""
    n = {k: int(v) for k, v in row.items() if v.isdigit()}
    layers, h, v, ff = n["layers"], n["hidden"], n["vocab"], n["ffn"]
    embeddings = v * h * (1 if n["tied"] else 2)
    if row["family"] == "gpt2":
        positions = n["max_context"] * h
        return layers * (12 * h * h + 13 * h) + v * h + 2 * h + positions
    if row["family"] == "neox":
        return layers * (12 * h * h + 13 * h) + embeddings + 2 * h
    if row["experts"] or row["family"] in ("phi", "palm"):
        return None
    q, kv = n["heads"] * n["head_dim"], n["kv_heads"] * n["head_dim"]
    each = 2 * h * q + 2 * h * kv + 3 * h * ff + 2 * h
    each += {"qwen2": q + 2 * kv, "qwen3": 2 * n["head_dim"]}.get(row["family"], 0)
    each += {"gemma2": 2 * h, "gemma3": 2 * h + 2 * n["head_dim"]}.get(row["family"], 0)
    return layers * each + embeddings + h


def test_the_table_is_the_closed_form_of_each_family():
    rows = list(csv.DictReader((FOLDER / "models.csv").read_text().splitlines()))
    checked = 0
    for row in rows:
        if row["counted"] != "exact" or (expected := closed_form(row)) is None:
            continue
        assert counts(models()[row["slug"]].shape).total == expected, row["slug"]
        checked += 1
    assert checked >= 50


def test_there_are_sixty_devices_and_unknown_peaks_are_unknown():
    assert len(devices()) >= 60
    unknown = [d for d in devices().values() if d.peak_flops["bf16"] is None]
    assert unknown
    for device in devices().values():
        assert all(peak is None or peak > 0 for peak in device.peak_flops.values())
        assert device.bandwidth_bytes_s > 0 and device.source and device.usable_source
        assert device.usable.n > 0


def test_usable_bytes_are_what_the_source_says_and_else_the_label():
    l40s = find_device("L40S")
    assert l40s.usable.n == 46_068 * 2**20 and "46068 MiB" in l40s.usable_source
    a100 = find_device("A100-80GB")
    assert a100.usable.n == 80 * 10**9 and "label" in a100.usable_source
    # "288 GB" is not a decimal count of bytes.
    assert find_device("GB300").usable.in_unit("GB") == pytest.approx(298.0, rel=1e-3)


def test_what_was_not_looked_up_says_so():
    assert "config" in find_model("smollm2-135m").from_memory
    assert find_model("llama-3.1-405b").from_memory == ()
    assert any(d.from_memory for d in devices().values())


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ("llama-65b", "LLaMA-65B"),
        ("LLaMA 65B", "LLaMA-65B"),
        ("Llama-3.1-8B", "Llama-3.1-8B"),
        ("llama-3-70b", "Llama-3.1-70B"),
        ("gpt-oss-120b", "gpt-oss-120b"),
        ("deepseek-v3", "DeepSeek-V3 / R1"),
        ("qwen3_235b_a22b", "Qwen3-235B-A22B"),
        ("phi-2", "Phi-2 2.7B"),
        ("meta-llama/Llama-3.1-8B-Instruct", "Llama-3.1-8B"),
        ("google/gemma-2-9b-it", "Gemma-2-9B"),
    ],
)
def test_names_are_found_as_people_write_them(text, name):
    assert find_model(text).name == name


def test_every_name_and_alias_leads_to_its_own_row():
    for find, entries in ((find_model, models()), (find_device, devices())):
        for slug, entry in entries.items():
            assert find(slug) is entry and find(entry.name) is entry
            for alias in entry.aliases:
                assert find(alias) is entry, alias


def test_an_unknown_name_has_near_ones():
    with pytest.raises(LookupError, match=r"did you mean .*Llama-3.1-8B"):
        find_model("lama-3.1-8b")
    with pytest.raises(LookupError, match="device"):
        find_device("abacus")


@pytest.mark.parametrize(
    ("column", "value", "says"),
    [
        ("layers", "many", "row 2, layers='many' is no number"),
        ("layers", "", "row 2, layers is empty"),
        ("hidden", "-4", "below 0"),
        ("pattern", "spiral", "layer 'spiral' is unknown"),
    ],
)
def test_a_broken_row_is_named(tmp_path, monkeypatch, column, value, says):
    rows = list(csv.DictReader((FOLDER / "models.csv").read_text().splitlines()))[:1]
    rows[0][column] = value
    with (tmp_path / "models.csv").open("w", newline="") as file:
        writer = csv.DictWriter(file, rows[0].keys())
        writer.writeheader()
        writer.writerows(rows)
    monkeypatch.setattr(catalog, "FOLDER", tmp_path)
    with pytest.raises(ValueError, match=says):
        list(catalog._rows("models.csv", catalog._model))


def test_layers_follow_their_patterns():
    gemma = find_model("gemma-3-27b").shape
    names = list(gemma.layer_names())
    assert names[:6] == ["sliding"] * 5 + ["full"] and len(names) == 62
    assert names.count("full") == 10
    deepseek = list(find_model("deepseek-v3").shape.layer_names())
    assert deepseek[:3] == ["latent"] * 3 and set(deepseek[3:]) == {"latent experts"}
    maverick = list(find_model("llama-4-maverick").shape.layer_names())
    assert sum("experts" in name for name in maverick) == 24
    assert sum("chunked" in name for name in maverick) == 36
