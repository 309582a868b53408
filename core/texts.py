"""Texts that a character model learns from: sums, Python's own documentation, a visitor's text."""

import functools
import itertools
from collections import Counter
from dataclasses import dataclass
from pathlib import Path

from core import kept as store
from core.specs import TEXT_ID

MAX_TEXT_BYTES = 1_000_000
MIN_TEXT_CHARACTERS = 200
MAX_VOCABULARY = 256
UNKNOWN = "\N{WHITE SQUARE}"  # stands for characters outside the vocabulary

SUM_CHARACTERS = "0123456789+="
SUM_LENGTH = 9  # `12+34=046`
ANSWER_LENGTH = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class Text:
    """Characters to learn from, and the alphabet they are spelled in."""

    characters: str
    vocabulary: str  # token id -> character

    @property
    def vocab_size(self) -> int:
        return len(self.vocabulary)


def spelled(characters: str) -> Text:
    """A text over its own alphabet; the rarest characters beyond the limit become `UNKNOWN`."""
    kinds = Counter(characters)
    if len(kinds) <= MAX_VOCABULARY:
        return Text(characters=characters, vocabulary="".join(sorted(kinds)))
    common = {c for c, _ in kinds.most_common(MAX_VOCABULARY - 1)} | {UNKNOWN}
    kept = "".join(c if c in common else UNKNOWN for c in characters)
    return Text(characters=kept, vocabulary="".join(sorted(common)))


@functools.cache
def python_documentation() -> Text:
    """The reference texts behind `help()`, inside every Python: `pydoc_data.topics`."""
    from pydoc_data import topics

    return spelled("\n\n".join(topics.topics[name] for name in sorted(topics.topics)))


def sums() -> list[str]:
    """All 10,000 sums of two two-digit numbers, as `12+34=046`."""
    return [f"{a:02d}+{b:02d}={a + b:03d}" for a, b in itertools.product(range(100), repeat=2)]


# -- a visitor's own text ---------------------------------------------------------------------


def decoded(raw: bytes) -> str:
    """Uploaded bytes as text. Raises: ValueError saying what is wrong and what would do."""
    if len(raw) > MAX_TEXT_BYTES:
        raise ValueError(
            f"the text has {len(raw):,} bytes, more than {MAX_TEXT_BYTES:,}; take a part of it"
        )
    try:
        # Not "utf-8-sig": it counts a wrong byte's place from behind the mark.
        text = raw.decode("utf-8").removeprefix("\N{BYTE ORDER MARK}")
    except UnicodeDecodeError as why:
        raise ValueError(
            f"byte {why.start:,} is not UTF-8; save the text as UTF-8 and try again"
        ) from None
    if "\0" in text:
        raise ValueError("the file holds zero bytes, so it is not a text; choose a plain text file")
    return checked(text)


def checked(text: str) -> str:
    """A typed or decoded text with plain line ends. Raises: ValueError."""
    text = text.replace("\r\n", "\n").replace("\r", "\n").strip()
    if len(text.encode()) > MAX_TEXT_BYTES:
        raise ValueError(f"the text is longer than {MAX_TEXT_BYTES:,} bytes; take a part of it")
    if len(text) < MIN_TEXT_CHARACTERS:
        raise ValueError(
            f"the text has {len(text):,} characters; a model needs at least "
            f"{MIN_TEXT_CHARACTERS:,} to learn from"
        )
    if len(set(text)) < 2:
        raise ValueError("the text repeats one character, so there is nothing to predict")
    return text


def keep(text: str, folder: Path) -> str:
    """Store a visitor's text under a name nobody can guess; returns the name.

    The name mixes the text's hash with a secret of this installation, so that it gives nothing away
    and the same text has the same name.
    """
    return store.keep(text, folder, suffix=".txt")


def kept(text_id: str, folder: Path) -> Text:
    """Raises: ValueError for a malformed name; FileNotFoundError if it is no longer kept."""
    if not TEXT_ID.fullmatch(text_id):
        raise ValueError(f"text={text_id!r} is not the name of a kept text; paste the text again")
    path = folder / f"{text_id}.txt"
    path.stat()  # where it is gone it is not found, though it may be remembered
    return _spelled_file(path)


@functools.lru_cache(maxsize=4)  # a megabyte takes 0.1 s, and a page asks for it several times
def _spelled_file(path: Path) -> Text:
    return spelled(path.read_text(encoding="utf-8"))


def require_length(text: Text, seq_len: int) -> None:
    """Raises: ValueError where a text does not hold a window to learn from and one held out."""
    n = len(text.characters)
    if n < 2 * (seq_len + 1):
        raise ValueError(
            f"the text has {n:,} characters, too few for a context of {seq_len}; choose a shorter "
            "context or a longer text"
        )
