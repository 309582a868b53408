"""A visitor's text is taken as it is, or refused with a sentence; its name gives nothing away."""

import pydoc
import stat
from pathlib import Path
from pydoc_data.topics import topics

import pytest
from hypothesis import given
from hypothesis import strategies as st

from core import texts
from core.specs import TEXT_ID
from core.texts import (
    MAX_TEXT_BYTES,
    MAX_VOCABULARY,
    MIN_TEXT_CHARACTERS,
    UNKNOWN,
    checked,
    decoded,
    keep,
    kept,
    python_documentation,
    spelled,
    sums,
)

LINE = "All happy families are alike; each unhappy family is unhappy in its own way.\n"
TEXT = LINE * 4
MANY_KINDS = "".join(map(chr, range(0x4E00, 0x4E00 + 500)))  # more than the alphabet holds

# Texts that a visitor may bring, none with line ends of another system or blanks at its ends.
visitors_texts = st.text(
    st.characters(exclude_categories=["Cs"], exclude_characters="\r\0"), min_size=1
).map(lambda text: f"<{text}>" * MIN_TEXT_CHARACTERS)


# -- taken ----------------------------------------------------------------------------------------


@given(visitors_texts)
def test_a_text_is_taken_character_for_character(text: str):
    assert decoded(text.encode()) == checked(text) == text


@pytest.mark.parametrize("end", ["\r\n", "\r"], ids=["Windows", "old Mac"])
def test_line_ends_of_other_systems_are_line_ends(end: str):
    assert decoded(TEXT.replace("\n", end).encode()) == TEXT.strip()
    assert checked(TEXT.replace("\n", end)) == TEXT.strip()


def test_a_byte_order_mark_is_no_character_of_the_text():
    assert decoded(b"\xef\xbb\xbf" + TEXT.encode()) == TEXT.strip()


def test_blanks_around_a_text_are_not_learned():
    assert checked(f"\n\n  {TEXT}\t\n") == TEXT.strip()


def test_a_text_of_just_the_largest_and_of_just_the_smallest_size_is_taken():
    largest = ("ab" * MAX_TEXT_BYTES)[:MAX_TEXT_BYTES]
    assert decoded(largest.encode()) == checked(largest) == largest
    smallest = ("ab" * MIN_TEXT_CHARACTERS)[:MIN_TEXT_CHARACTERS]
    assert decoded(smallest.encode()) == smallest


# -- refused --------------------------------------------------------------------------------------


@pytest.mark.parametrize("nothing", ["", " ", "\n" * 1000, "\ufeff"])
def test_an_empty_text_says_how_long_one_must_be(nothing: str):
    for refuse in (lambda: checked(nothing), lambda: decoded(nothing.encode())):
        with pytest.raises(ValueError, match=r"has [01] characters; .* at least 200 to learn from"):
            refuse()


def test_a_text_that_is_too_short_says_how_long_it_is():
    with pytest.raises(ValueError, match="the text has 199 characters; a model needs at least 200"):
        checked("ab" * 99 + "a")


def test_blanks_do_not_make_a_short_text_long():
    with pytest.raises(ValueError, match="the text has 2 characters"):
        checked(f"a{' ' * 1000}\n".strip() + "b" + "\n" * 1000)


def test_a_text_that_is_too_long_says_so_and_what_to_do():
    long = b"ab" * (MAX_TEXT_BYTES // 2 + 1)
    with pytest.raises(ValueError, match=r"1,000,002 bytes, more than 1,000,000; take a part"):
        decoded(long)
    with pytest.raises(ValueError, match=r"longer than 1,000,000 bytes; take a part"):
        checked(long.decode())


def test_length_is_counted_in_bytes_of_utf_8():
    """350,000 characters of 3 bytes are too much, though they are fewer than a million."""
    with pytest.raises(ValueError, match="longer than 1,000,000 bytes"):
        checked("文字" * 175_000)


@pytest.mark.parametrize(
    ("raw", "position"),
    [
        (TEXT.encode() + b"caf\xe9" + TEXT.encode(), len(TEXT.encode()) + 3),  # Latin-1
        (b"\xff\xfe" + TEXT.encode("utf-16-le"), 0),  # UTF-16
        ("日本語".encode("shift_jis") * 100, 0),
        (TEXT.encode()[:-1] + "é".encode()[:1], len(TEXT.encode()) - 1),  # cut off
        (b"\x89PNG\r\n\x1a\n" + bytes(300), 0),  # a picture
    ],
    ids=["Latin-1", "UTF-16", "Shift-JIS", "cut", "picture"],
)
def test_what_is_not_utf_8_is_refused_with_the_first_wrong_byte(raw: bytes, position: int):
    with pytest.raises(ValueError, match=f"byte {position:,} is not UTF-8; save the text as UTF-8"):
        decoded(raw)


def test_a_wrong_byte_after_a_byte_order_mark_is_counted_from_the_files_beginning():
    with pytest.raises(ValueError, match="byte 7 is not UTF-8"):
        decoded(b"\xef\xbb\xbfabcd\xe9" + TEXT.encode())


def test_zero_bytes_are_no_text():
    with pytest.raises(ValueError, match="zero bytes, so it is not a text"):
        decoded(b"\x7fELF" + bytes(1000))


@pytest.mark.parametrize("one", ["a", "🙂"])
def test_a_text_of_one_repeated_character_has_nothing_to_predict(one: str):
    with pytest.raises(ValueError, match="repeats one character"):
        checked(one * 500)


@given(st.binary(max_size=600))
def test_any_bytes_are_a_text_or_a_sentence(raw: bytes):
    """ValueError and nothing else; what is taken can be learned from and written down."""
    try:
        text = decoded(raw)
    except ValueError as why:
        assert str(why) and "\n" not in str(why)
    else:
        assert len(text) >= MIN_TEXT_CHARACTERS
        text.encode()


# -- the alphabet ---------------------------------------------------------------------------------


@given(visitors_texts)
def test_every_character_has_a_number_and_comes_back_from_it(characters: str):
    text = spelled(characters)
    number = {c: i for i, c in enumerate(text.vocabulary)}
    assert "".join(text.vocabulary[number[c]] for c in text.characters) == text.characters
    assert len(text.characters) == len(characters)
    assert text.vocab_size == len(set(text.vocabulary)) <= MAX_VOCABULARY


def test_a_text_of_few_kinds_of_characters_keeps_them_all():
    for characters in ("abab", MANY_KINDS[:MAX_VOCABULARY]):
        text = spelled(characters)
        assert text.characters == characters
        assert text.vocabulary == "".join(sorted(set(characters)))


def test_beyond_256_kinds_the_rarest_become_one_sign_and_the_common_ones_stay():
    common, rare = MANY_KINDS[: MAX_VOCABULARY - 1], MANY_KINDS[MAX_VOCABULARY - 1 :]
    text = spelled(common * 3 + rare)
    assert text.vocab_size == MAX_VOCABULARY
    assert text.characters == common * 3 + UNKNOWN * len(rare)


def test_the_sign_for_the_rest_may_stand_in_the_text_itself():
    text = spelled(MANY_KINDS + UNKNOWN * 5)
    assert text.vocab_size <= MAX_VOCABULARY
    assert UNKNOWN in text.vocabulary


# -- keeping --------------------------------------------------------------------------------------


@given(visitors_texts)
def test_a_kept_text_comes_back(tmp_path_factory: pytest.TempPathFactory, text: str):
    folder = tmp_path_factory.mktemp("texts")
    assert kept(keep(text, folder), folder) == spelled(text)


def test_the_same_text_has_the_same_name_and_is_kept_once(tmp_path: Path):
    names = {keep(TEXT, tmp_path) for _ in range(3)}
    assert len(names) == 1
    assert sorted(p.name for p in tmp_path.iterdir()) == sorted([f"{names.pop()}.txt", "secret"])


def test_another_text_has_another_name(tmp_path: Path):
    assert keep(TEXT, tmp_path) != keep(TEXT + "!", tmp_path)


def test_a_name_cannot_be_guessed_from_the_text(tmp_path: Path):
    """Each installation mixes in a secret that only it can read."""
    here, there = tmp_path / "here", tmp_path / "there"
    assert keep(TEXT, here) != keep(TEXT, there)
    assert len((here / "secret").read_bytes()) == 32
    assert stat.S_IMODE((here / "secret").stat().st_mode) == 0o600


def test_a_name_is_one_that_settings_take(tmp_path: Path):
    assert TEXT_ID.fullmatch(keep(TEXT, tmp_path))


MALFORMED = [
    "",
    "../secret",
    "../../etc/passwd",
    "/etc/passwd",
    "a" * 31,
    "a" * 33,
    "A" * 32,
    "g" * 32,
    "0" * 31 + "\n",
    "0" * 32 + "\n",
    "0" * 30 + "/.",
    "٠" * 32,  # digits of another script
    "secret",
    "0" * 28 + "\0.tx",
]


@pytest.mark.parametrize("name", MALFORMED, ids=ascii)
def test_a_malformed_name_is_refused_before_any_file_is_looked_for(tmp_path: Path, name: str):
    keep(TEXT, tmp_path / "texts")
    (tmp_path / "secret.txt").write_text(TEXT)
    with pytest.raises(ValueError, match="is not the name of a kept text"):
        kept(name, tmp_path / "texts")


def test_a_name_of_nothing_is_not_found(tmp_path: Path):
    keep(TEXT, tmp_path)
    with pytest.raises(FileNotFoundError):
        kept("0" * 32, tmp_path)


def test_a_text_that_is_no_longer_kept_is_not_found(tmp_path: Path):
    name = keep(TEXT, tmp_path)
    assert kept(name, tmp_path).characters == TEXT  # remembered from here on, if at all
    (tmp_path / f"{name}.txt").unlink()
    with pytest.raises(FileNotFoundError):
        kept(name, tmp_path)


def test_line_ends_are_kept_as_they_are(tmp_path: Path):
    """Whatever the system's own are: positions in the text must not move."""
    name = keep("a\nb\u2028c\n" * 100, tmp_path)
    assert (tmp_path / f"{name}.txt").read_bytes() == "a\nb\u2028c\n".encode() * 100


# -- texts of the house ---------------------------------------------------------------------------


@pytest.mark.parametrize("topic", ["assert", "lambda", "BOOLEAN", "TRUTHVALUE"])
def test_python_documentation_is_what_help_shows(topic: str, monkeypatch: pytest.MonkeyPatch):
    """Line for line what this very Python's `help("assert")` prints."""
    pages: list[str] = []
    monkeypatch.setattr(pydoc, "pager", lambda text, *_: pages.append(text))
    pydoc.help.showtopic(topic)
    shown, _, _ = pages[0].strip().partition("\nRelated help topics")
    assert len(shown) > 200
    text = python_documentation().characters
    for line in shown.splitlines():
        assert line.strip() in text


def test_python_documentation_is_all_of_it():
    """As many characters as the topics have, and two line ends between each two."""
    lengths = [len(text) for text in topics.values()]
    assert len(python_documentation().characters) == sum(lengths) + 2 * (len(lengths) - 1)


def test_python_documentation_fits_what_a_visitors_text_must():
    text = python_documentation()
    assert len(text.characters.encode()) < 2 * MAX_TEXT_BYTES
    assert text.vocab_size <= MAX_VOCABULARY


def test_the_sums_are_all_of_two_two_digit_numbers_and_right():
    every = sums()
    assert len(set(every)) == 100 * 100
    assert all(len(s) == texts.SUM_LENGTH and set(s) <= set(texts.SUM_CHARACTERS) for s in every)
    for s in every:
        a, b, answer = int(s[:2]), int(s[3:5]), s[6:]
        assert s == f"{a:02d}+{b:02d}={a + b:03d}" and len(answer) == texts.ANSWER_LENGTH
