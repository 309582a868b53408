"""Visitors' models: kept, found again, unguessable; nothing else is read."""

import json

import pytest

from core import model_store
from core.catalog import models
from core.configs import Imported
from core.model_store import from_json, keep, kept, to_json
from tests.core.test_models import MODELS


def imported(shape, **more) -> Imported:
    return Imported(name="mine", shape=shape, **more)


@pytest.mark.parametrize("shape", [*MODELS.values(), *(m.shape for m in models().values())])
def test_a_model_survives_being_written_down(shape):
    model = imported(shape, unknown=("a",), assumed=("b",), dtype="bf16", quantisation="awq")
    assert from_json(json.loads(json.dumps(to_json(model)))) == model


def test_a_model_is_found_again_under_its_name(tmp_path):
    model = imported(MODELS["deepseek"])
    name = keep(model, tmp_path)
    assert model_store.NAME.fullmatch(name)
    assert kept(name, tmp_path) == model
    assert keep(model, tmp_path) == name
    assert keep(imported(MODELS["llama"]), tmp_path) != name


def test_names_tell_nothing_and_differ_from_place_to_place(tmp_path):
    model = imported(MODELS["llama"])
    names = {keep(model, tmp_path / place) for place in ("one", "two")}
    assert len(names) == 2


@pytest.mark.parametrize(
    "name", ["own-", "own-../../etc", "own-" + "0" * 32, "x", "own-" + "G" * 32]
)
def test_what_is_no_name_is_not_looked_for(tmp_path, name):
    with pytest.raises(LookupError, match="kept"):
        kept(name, tmp_path)


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"shape": {"layers": []}}', "null"])
def test_a_broken_file_is_no_longer_kept(tmp_path, text):
    name = keep(imported(MODELS["llama"]), tmp_path)
    (tmp_path / f"{name}.json").write_text(text)
    with pytest.raises(LookupError, match="no longer kept"):
        kept(name, tmp_path)
