"""Models are called what they are; none that learned from a visitor's words is offered."""

from pathlib import Path

import pytest

from core import own_models
from core.events import Started
from core.pretrained import WEIGHTS, Unavailable
from core.specs import AdditionSpec, DigitsSpec, FinetuneSpec, OwnTextSpec, PydocsSpec, Spec
from core.trace import Recorder


@pytest.fixture(autouse=True)
def runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("BOTHWAYS_RUNS", str(tmp_path))
    return tmp_path


def keep(runs: Path, spec: Spec, i: int, *, weights: bool = True) -> str:
    attempt = f"20260203-04050{i}-00000{i}"
    recorder = Recorder(runs / spec.spec_id / attempt)
    first = Started(
        spec_id=spec.spec_id,
        attempt=attempt,
        spec=spec.to_json(),
        machine={},
        code_version="0",
        started_unix_s=0.0,
    )
    recorder.write([first])
    recorder.close()
    if weights:
        (runs / spec.spec_id / attempt / WEIGHTS).touch()
    return f"{spec.spec_id}/{attempt}"


def test_the_newest_come_first(runs: Path):
    names = [keep(runs, AdditionSpec(seed=i), i) for i in range(6)]
    names.append(keep(runs, PydocsSpec(), 7))
    assert own_models.recent(3) == tuple(reversed(names[-3:]))


def test_only_runs_with_weights_that_write_text_are_offered(runs: Path):
    keep(runs, AdditionSpec(), 1, weights=False)
    keep(runs, DigitsSpec(), 2)
    assert own_models.recent(5) == ()


def test_what_learned_from_a_visitor_is_not_offered(runs: Path):
    keep(runs, OwnTextSpec(text="0" * 32), 1)
    keep(runs, FinetuneSpec(text="mine"), 2)
    assert own_models.recent(5) == ()


def test_a_folder_that_cannot_be_read_is_passed_over(runs: Path):
    broken = runs / "0123456789abcdef" / "20260203-040509-000009"
    broken.mkdir(parents=True)
    (broken / WEIGHTS).touch()
    (broken / "events.jsonl").write_text("{")
    good = keep(runs, AdditionSpec(), 1)
    assert own_models.recent(5) == (good,)


def test_a_run_is_called_by_what_it_learned_its_size_and_its_time(runs: Path):
    name = keep(runs, AdditionSpec(n_layer=1), 1)
    assert own_models.title_of(name) == (
        "Two-digit sums: 51,392 parameters, trained here 3 Feb 04:05 UTC"
    )
    stepped = keep(runs, FinetuneSpec(model="smollm2"), 2)
    assert own_models.title_of(stepped) == (
        "SmolLM2-135M-Instruct after one training step, 3 Feb 04:05 UTC"
    )
    assert own_models.title_of("smollm2") == "SmolLM2-135M-Instruct"
    assert own_models.title_of("addition").endswith("shipped, trained beforehand")


def test_the_shipped_model_holds_weights():
    assert own_models.shipped() == ("addition",)


def test_only_models_that_learned_turns_can_chat(runs: Path):
    assert own_models.can_chat("smollm2")
    assert own_models.can_chat(keep(runs, FinetuneSpec(), 1))
    assert not own_models.can_chat(keep(runs, PydocsSpec(), 2))
    with pytest.raises(Unavailable):
        own_models.can_chat("0123456789abcdef/20260203-040509-000009")


def test_of_changed_copies_only_the_newest_keep_their_weights(runs: Path):
    """Half a gigabyte each; what they told stays, and so do models that were trained here."""
    names = [keep(runs, FinetuneSpec(text=f"text {i}"), i) for i in range(5)]
    own = keep(runs, AdditionSpec(), 0)
    own_models.thin(2)
    kept = [(runs / name / WEIGHTS).exists() for name in names]
    assert kept == [False, False, False, True, True]
    assert (runs / own / WEIGHTS).exists()
    assert all((runs / name / "events.jsonl").exists() for name in names)


def test_a_model_whose_weights_are_gone_is_refused_with_what_helps(runs: Path):
    own_models.require_weights(keep(runs, AdditionSpec(), 1))
    own_models.require_weights("addition")
    with pytest.raises(Unavailable, match="are not kept; train it again, or choose smollm2"):
        own_models.require_weights(keep(runs, PydocsSpec(), 2, weights=False))
