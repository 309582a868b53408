"""Examples of the torch specimens: the right ones, the same each time, none of them held out."""

import re
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.datasets import load_digits

from core import texts
from core.engine.data import DIGITS, DigitsSource, SumsSource, TextSource, source
from core.engine.models import IGNORED
from core.specimens import texts_folder
from core.specs import AdditionSpec, DigitsSpec, OwnTextSpec, PlaygroundSpec, PydocsSpec, Spec

seeds = st.integers(0, 2**31 - 1)


def rows(values: np.ndarray) -> list[bytes]:
    return [row.tobytes() for row in values]


def own_text(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, characters: str, **fields: int
) -> OwnTextSpec:
    monkeypatch.setenv("BOTHWAYS_RUNS", str(tmp_path))
    return OwnTextSpec(text=texts.keep(characters, texts_folder()), **fields)


# -- any of them ----------------------------------------------------------------------------------

SPECS = [
    DigitsSpec(),
    DigitsSpec(batch_size=512, seed=9),
    AdditionSpec(),
    AdditionSpec(batch_size=3, accumulation=4, seed=9),
    PydocsSpec(),
    PydocsSpec(batch_size=5, seq_len=16, accumulation=2, seed=9),
]
each_spec = pytest.mark.parametrize("spec", SPECS, ids=lambda s: f"{s.specimen}-{s.batch_size}")


@each_spec
def test_a_batch_depends_on_the_seed_and_the_update_alone(spec: Spec):
    """Asked for in any order, by any of two sources, it is the same."""
    one, other = source(spec), source(spec)
    places = [(0, 0), (7, 0), (1, 0), (46, 0), (1, 1), (1234, 0)]
    first = {at: one.batch(*at) for at in places}
    for at in reversed(places):
        again = other.batch(*at)
        assert rows(again.inputs) == rows(first[at].inputs), at
        assert rows(again.targets) == rows(first[at].targets), at


@each_spec
def test_another_update_has_other_examples(spec: Spec):
    whole = source(spec)
    assert rows(whole.batch(0, 0).inputs) != rows(whole.batch(1, 0).inputs)


@pytest.mark.parametrize("spec", SPECS[2:], ids=lambda s: f"{s.specimen}-{s.batch_size}")
def test_the_micro_batches_of_an_update_have_other_examples(spec: Spec):
    whole = source(spec)
    assert rows(whole.batch(3, 0).inputs) != rows(whole.batch(3, 1).inputs)


@pytest.mark.parametrize("kind", [DigitsSpec, AdditionSpec, PydocsSpec])
def test_another_seed_gives_another_order(kind: type[Spec]):
    one, other = (source(kind(seed=seed)).batch(0, 0) for seed in (1, 2))  # type: ignore[call-arg]
    assert rows(one.inputs) != rows(other.inputs)


@each_spec
def test_inputs_and_targets_are_of_the_kinds_that_the_models_take(spec: Spec):
    batch = source(spec).batch(0, 0)
    assert batch.inputs.dtype == (np.float32 if isinstance(spec, DigitsSpec) else np.int64)
    assert batch.targets.dtype == np.int64
    assert len(batch.inputs) == len(batch.targets) == spec.batch_size


def test_the_playground_has_its_own_examples():
    with pytest.raises(TypeError, match="playground has no batches here"):
        source(PlaygroundSpec())


# -- digits ---------------------------------------------------------------------------------------


def test_the_digits_are_those_of_scikit_learn():
    """Pixel for pixel, label for label, in the same order."""
    theirs = load_digits()
    with np.load(DIGITS, allow_pickle=False) as ours:
        assert (ours["images"] == theirs.images).all()
        assert (ours["labels"] == theirs.target).all()


def labelled(inputs: np.ndarray, targets: np.ndarray) -> Counter[tuple[bytes, int]]:
    """How often each image stands there with each label; images as 64 greys of 0 to 16."""
    greys = np.rint(inputs * 16).astype(np.uint8)
    assert (greys == inputs * 16).all()
    return Counter(zip(rows(greys), targets.tolist(), strict=True))


def test_learned_and_held_out_digits_are_all_the_digits_each_once():
    """1,437 + 360, and every image keeps its label."""
    theirs = load_digits()
    whole = source(DigitsSpec(batch_size=1437 // 3))
    batches = [whole.batch(step, 0) for step in range(3)]
    learned = sum((labelled(b.inputs, b.targets) for b in batches), Counter())
    held_out = labelled(whole.held_out.inputs, whole.held_out.targets)
    assert learned.total() == whole.n_train == 1437
    assert held_out.total() == 360
    assert learned + held_out == labelled(theirs.data.astype(np.float32) / 16, theirs.target)


@settings(max_examples=10)
@given(st.integers(1, 512), st.integers(0, 30), seeds)
def test_a_pass_takes_every_digit_once(batch_size: int, n_passes: int, seed: int):
    """Whatever the batch; the last one is what is left over."""
    whole = DigitsSource(DigitsSpec(batch_size=batch_size, seed=seed))
    first = n_passes * whole.steps_per_epoch
    batches = [whole.batch(first + i, 0) for i in range(whole.steps_per_epoch)]
    seen = Counter(row for b in batches for row in rows(b.inputs))
    assert seen.total() == whole.n_train
    assert [len(b.inputs) for b in batches[:-1]] == [batch_size] * (len(batches) - 1)
    assert len(batches[-1].inputs) == (whole.n_train - 1) % batch_size + 1
    assert seen == Counter(rows(whole._x[: whole.n_train]))


def test_each_pass_has_an_order_of_its_own():
    whole = DigitsSource(DigitsSpec(batch_size=512))
    orders = {
        tuple(row for i in range(3) for row in rows(whole.batch(3 * epoch + i, 0).inputs))
        for epoch in range(5)
    }
    assert len(orders) == 5


def test_which_digits_are_held_out_does_not_depend_on_the_batch():
    one, other = (source(DigitsSpec(batch_size=b)).held_out for b in (1, 512))
    assert rows(one.inputs) == rows(other.inputs)


# -- sums -----------------------------------------------------------------------------------------


def spelled(inputs: np.ndarray, targets: np.ndarray) -> Iterator[str]:
    """Sums as the model reads and completes them: what it is given, and the last character."""
    for tokens, answer in zip(inputs, targets, strict=True):
        yield "".join(texts.SUM_CHARACTERS[t] for t in [*tokens, answer[-1]])


@settings(max_examples=20)
@given(st.integers(0, 20_000), st.integers(0, 15), seeds)
def test_every_sum_is_right_and_only_its_answer_is_asked_for(step: int, micro: int, seed: int):
    batch = SumsSource(AdditionSpec(seed=seed)).batch(step, micro)
    for text, tokens, targets in zip(
        spelled(batch.inputs, batch.targets), batch.inputs, batch.targets, strict=True
    ):
        assert re.fullmatch(r"\d\d\+\d\d=\d\d\d", text)
        assert int(text[:2]) + int(text[3:5]) == int(text[6:])
        # The characters before and at the equals sign are given; each of the answer's is asked for
        # where the one before it stands.
        assert targets[:5].tolist() == [IGNORED] * 5
        assert targets[5:].tolist() == [texts.SUM_CHARACTERS.index(c) for c in text[6:]]
        assert tokens.tolist() == [texts.SUM_CHARACTERS.index(c) for c in text[:-1]]


@pytest.mark.parametrize("seed", [1, 2, 77])
def test_no_held_out_sum_is_ever_learned(seed: int):
    whole = SumsSource(AdditionSpec(seed=seed, batch_size=512))
    held_out = set(spelled(whole.held_out.inputs, whole.held_out.targets))
    assert len(held_out) == 500
    learned: set[str] = set()
    for step in range(100):
        batch = whole.batch(step, 0)
        learned |= set(spelled(batch.inputs, batch.targets))
    assert not learned & held_out
    assert len(learned) > 8900  # of 9,000: every one of them may come


def test_nine_tenths_of_all_sums_are_learned():
    assert SumsSource(AdditionSpec()).n_train == 9000


# -- texts ----------------------------------------------------------------------------------------

# Each character is its own position: what a window holds says where it is from.
POSITIONS = "".join(map(chr, range(0x100, 0x100 + 250)))


def windows(inputs: np.ndarray, targets: np.ndarray, vocabulary: str) -> list[str]:
    """Characters of each window with the one after it."""
    return [
        "".join(vocabulary[t] for t in [*tokens, answer[-1]])
        for tokens, answer in zip(inputs, targets, strict=True)
    ]


@pytest.mark.parametrize("seq_len", [8, 16, 40, 100, 124])
def test_windows_stay_in_their_part_of_a_text(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, seq_len: int
):
    """What is learned from never reaches into what is held out, not even by the target."""
    spec = own_text(tmp_path, monkeypatch, POSITIONS, seq_len=seq_len, batch_size=64)
    whole = TextSource(spec)
    alphabet = "".join(sorted(POSITIONS))
    learned: set[int] = set()
    for step in range(50):
        batch = whole.batch(step, 0)
        assert (batch.inputs[:, 1:] == batch.targets[:, :-1]).all()  # each predicts the next
        for text in windows(batch.inputs, batch.targets, alphabet):
            at = POSITIONS.index(text[0])
            assert POSITIONS[at : at + seq_len + 1] == text  # a stretch of the text
            learned |= {*range(at, at + seq_len + 1)}
    held_out: set[int] = set()
    for text in windows(whole.held_out.inputs, whole.held_out.targets, alphabet):
        at = POSITIONS.index(text[0])
        assert POSITIONS[at : at + seq_len + 1] == text
        held_out |= {*range(at, at + seq_len + 1)}
    assert learned == {*range(whole.n_train)}, "every character before the cut is learned from"
    assert min(held_out) >= whole.n_train, "none after it"
    assert max(held_out) == len(POSITIONS) - 1, "the last character is asked for"


def test_the_last_tenth_of_a_text_is_held_out():
    whole = TextSource(PydocsSpec())
    n = len(texts.python_documentation().characters)
    assert whole.n_train == int(0.9 * n)
    assert len(whole.held_out.inputs) == 32


def test_a_text_must_be_longer_than_its_context(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """The sentence names both lengths and two ways out."""
    spec = own_text(tmp_path, monkeypatch, POSITIONS, seq_len=256)
    with pytest.raises(ValueError, match=r"250 characters, too few for a context of 256; choose"):
        TextSource(spec)


@settings(max_examples=40)
@given(st.integers(200, 700), st.integers(8, 512))
def test_any_text_with_any_context_has_both_parts_or_is_refused(
    tmp_path_factory: pytest.TempPathFactory, n: int, seq_len: int
):
    with pytest.MonkeyPatch.context() as patch:
        characters = ("abcdefghij" * 70)[:n]
        spec = own_text(tmp_path_factory.mktemp("t"), patch, characters, seq_len=seq_len)
        try:
            whole = TextSource(spec)
        except ValueError as why:
            assert n < 2 * (seq_len + 1)
            assert "choose a shorter context" in str(why)
            return
        assert n >= 2 * (seq_len + 1)
        for part in (whole.batch(0, 0), whole.held_out):
            assert len(part.inputs) > 0
            assert part.inputs.shape[1] == seq_len
            assert part.inputs.min() >= 0 and part.inputs.max() < 10
