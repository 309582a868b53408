"""Text to tokens and back: the published models' byte-pair encoding, and one token a character."""

import codecs
import functools
import re
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Protocol

from core import pretrained, specimens
from core.pretrained import PRETRAINED, Gguf, Unavailable
from core.specs import FinetuneSpec, GenerateSpec

if TYPE_CHECKING:
    from jinja2 import Template

CONTROL = 3  # type of a token in GGUF that no text spells: turns, ends
_TURN = re.compile("\x00(\\d+)\x00")  # stands for a turn while the template is rendered


class Stream(Protocol):
    """Text as its tokens come."""

    def push(self, id: int) -> str:
        """What this token adds; "" until a character is whole."""
        ...

    def end(self) -> str:
        """What is left of a character that was never completed."""
        ...


class Tokenizer(Protocol):
    @property
    def vocab_size(self) -> int: ...

    @property
    def eos_ids(self) -> frozenset[int]:
        """Tokens that end an answer."""
        ...

    def encode(self, text: str) -> list[int]:
        """Tokens of a text, as a visitor writes it: none of them is a control token.

        Raises: ValueError naming a character that the model does not know.
        """
        ...

    def decode(self, ids: Iterable[int]) -> str:
        """Their text; U+FFFD where the bytes are not UTF-8."""
        ...

    def piece(self, id: int) -> str:
        """How one token is shown, with the space that belongs to it."""
        ...

    def prompt_of(self, spec: GenerateSpec) -> str:
        """What the model reads, a chat in its template. Raises: ValueError if it has none."""
        ...

    def prompt_ids(self, spec: GenerateSpec) -> list[int]:
        """Tokens of `prompt_of`; the template's control tokens are, the visitor's are text."""
        ...

    def stream(self) -> Stream: ...


def tokenizer_of(model: str) -> Tokenizer:
    """The tokenizer of a model of any kind (`core.pretrained`).

    Raises: Unavailable.
    """
    if model in PRETRAINED:
        return _byte_pairs(pretrained.gguf_of(model))
    spec = pretrained.spec_of(model)
    if isinstance(spec, FinetuneSpec):
        return tokenizer_of(spec.model)
    try:
        return CharTokenizer(specimens.text_of(spec).vocabulary)
    except FileNotFoundError:
        raise Unavailable(f"the text that {model!r} learned from is gone; train it again") from None


# -- one token a character ----------------------------------------------------------------------


class CharTokenizer:
    """Of models trained here: a token is a character's place in the vocabulary."""

    eos_ids: frozenset[int] = frozenset()  # such a model writes until it is stopped

    def __init__(self, vocabulary: str) -> None:
        self._vocabulary = vocabulary
        self._ids = {character: i for i, character in enumerate(vocabulary)}

    @property
    def vocab_size(self) -> int:
        return len(self._vocabulary)

    def encode(self, text: str) -> list[int]:
        strange = next((c for c in text if c not in self._ids), None)
        if strange is not None:
            raise ValueError(
                f"the model has never seen {strange!r}; use only {_listed(self._vocabulary)}"
            )
        return [self._ids[c] for c in text]

    def decode(self, ids: Iterable[int]) -> str:
        return "".join(self._vocabulary[i] for i in ids)

    def piece(self, id: int) -> str:
        return self._vocabulary[id]

    def prompt_of(self, spec: GenerateSpec) -> str:
        if spec.chat:
            raise ValueError("chat=True needs a model that has learned turns; leave chat off")
        return spec.prompt

    def prompt_ids(self, spec: GenerateSpec) -> list[int]:
        return self.encode(self.prompt_of(spec))

    def stream(self) -> Stream:
        return _Characters(self)


class _Characters:
    def __init__(self, tokenizer: CharTokenizer) -> None:
        self.push = tokenizer.piece

    def end(self) -> str:
        return ""


def _listed(vocabulary: str) -> str:
    shown = "".join(c if c.isprintable() else " " for c in vocabulary)
    shown = " ".join(dict.fromkeys(shown.split()))
    return shown if len(shown) <= 80 else "characters of the text that it learned from"


# -- byte pairs ---------------------------------------------------------------------------------


class BytePairTokenizer:
    """Of published models: pairs of bytes merged in the order that the file gives.

    Digits stand alone, and no space is put in front. A byte that the vocabulary lacks is left out,
    as llama.cpp does: SmolLM2's lacks six control characters, and F1 and F2, with which only
    unassigned characters begin.

    Source: the file's own metadata, and llama.cpp (its pre-tokenizer `smollm`). Checked: a second
    encoder (tests/core/test_tokenizers.py).

    Raises: Unavailable for another kind of tokenizer.
    """

    def __init__(self, gguf: Gguf) -> None:
        from tokenizers import Tokenizer as Encoder
        from tokenizers import pre_tokenizers
        from tokenizers.models import BPE

        said = gguf.metadata
        try:
            kind = said["tokenizer.ggml.model"], said["tokenizer.ggml.pre"]
            tokens, types = said["tokenizer.ggml.tokens"], said["tokenizer.ggml.token_type"]
            merges = [tuple(pair.split(" ")) for pair in said["tokenizer.ggml.merges"]]
            eos_id = said["tokenizer.ggml.eos_token_id"]
        except KeyError as why:
            raise Unavailable(f"{gguf.path} has no tokenizer ({why})") from None
        if kind != ("gpt2", "smollm"):
            raise Unavailable(f"{gguf.path} has a tokenizer of another kind, {'/'.join(kind)}")
        self._control = {t: i for i, t in enumerate(tokens) if types[i] == CONTROL}
        self._bytes = _bytes_of(tokens, frozenset(self._control.values()))
        self._template: str | None = said.get("tokenizer.chat_template")
        ends = {eos_id} | {i for t, i in self._control.items() if t == "<|endoftext|>"}
        self.eos_ids = frozenset[int](ends)
        self._encoder = Encoder(BPE({t: i for i, t in enumerate(tokens)}, merges))
        self._encoder.pre_tokenizer = pre_tokenizers.Sequence(
            [
                pre_tokenizers.Digits(individual_digits=True),
                pre_tokenizers.ByteLevel(add_prefix_space=False),
            ]
        )

    @property
    def vocab_size(self) -> int:
        return len(self._bytes)

    def encode(self, text: str) -> list[int]:
        # Lone surrogates are no text, and the encoder would refuse them.
        whole = text.encode("utf-8", "replace").decode()
        return self._encoder.encode(whole, add_special_tokens=False).ids

    def decode(self, ids: Iterable[int]) -> str:
        return b"".join(self._bytes[i] for i in ids).decode(errors="replace")

    def piece(self, id: int) -> str:
        return self._bytes[id].decode(errors="replace")

    def prompt_of(self, spec: GenerateSpec) -> str:
        return "".join(text for text, _ in self._parts(spec))

    def prompt_ids(self, spec: GenerateSpec) -> list[int]:
        """Between two control tokens, text of the template and the visitor's is encoded as one."""
        ids: list[int] = []
        text = ""
        for part, control in self._parts(spec):
            if control:
                ids += [*self.encode(text), self._control[part]]
                text = ""
            else:
                text += part
        return ids + self.encode(text)

    def stream(self) -> Stream:
        return _Utf8(self._bytes)

    def _parts(self, spec: GenerateSpec) -> list[tuple[str, bool]]:
        """(text, whether it is a control token) of the prompt, in order.

        Turns are put in after the template is rendered, so that nothing in them can be taken for
        the template's.
        """
        if not spec.chat:
            return [(spec.prompt, False)]
        if self._template is None:
            raise ValueError("chat=True needs a model with a chat template; leave chat off")
        turns = [*spec.history, spec.prompt]
        rendered = _rendered(self._template, [f"\x00{i}\x00" for i in range(len(turns))])
        control = re.compile(f"({'|'.join(map(re.escape, self._control))})")
        parts: list[tuple[str, bool]] = []
        for i, piece in enumerate(_TURN.split(rendered)):
            if i % 2:
                parts.append((turns[int(piece)], False))
            else:
                parts += [(p, p in self._control) for p in control.split(piece) if p]
        return parts


@functools.lru_cache(maxsize=2)
def _byte_pairs(gguf: Gguf) -> BytePairTokenizer:
    return BytePairTokenizer(gguf)


class _Utf8:
    def __init__(self, bytes_of: Sequence[bytes]) -> None:
        self._bytes = bytes_of
        self._decoder = codecs.getincrementaldecoder("utf-8")(errors="replace")

    def push(self, id: int) -> str:
        return self._decoder.decode(self._bytes[id])

    def end(self) -> str:
        return self._decoder.decode(b"", final=True)


def _bytes_of(tokens: Sequence[str], control: frozenset[int]) -> list[bytes]:
    """What each token spells. Control tokens and what no byte stands for are text as it is."""
    byte = {character: bytes([b]) for b, character in _alphabet().items()}
    found = []
    for i, token in enumerate(tokens):
        spelled = i not in control and all(c in byte for c in token)
        found.append(b"".join(map(byte.__getitem__, token)) if spelled else token.encode())
    return found


def _alphabet() -> dict[int, str]:
    """The printable character that stands for each byte. Source: GPT-2, `bytes_to_unicode`."""
    printable = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    others = [b for b in range(256) if b not in printable]
    return {b: chr(b) for b in printable} | {b: chr(256 + i) for i, b in enumerate(others)}


def _rendered(template: str, turns: Sequence[str]) -> str:
    """The chat with these turns, the visitor's last, and the answer's beginning.

    Raises: ValueError. Checked: transformers' `apply_chat_template`.
    """
    from jinja2 import TemplateError  # 0.1 s, and only chats need it

    roles = ["user", "assistant"] * len(turns)
    messages = [
        {"role": role, "content": turn} for role, turn in zip(roles, reversed(turns), strict=False)
    ]
    try:
        return _compiled(template).render(messages=messages[::-1], add_generation_prompt=True)
    except TemplateError as why:
        raise ValueError(
            f"the chat template of the model does not take these turns ({why}); leave chat off"
        ) from None


@functools.lru_cache(maxsize=4)
def _compiled(template: str) -> "Template":
    """It comes from a file, so it runs in a sandbox. Raises: jinja2.TemplateError."""
    from jinja2 import TemplateError
    from jinja2.sandbox import ImmutableSandboxedEnvironment

    def refuse(message: str) -> None:
        raise TemplateError(message)

    environment = ImmutableSandboxedEnvironment(trim_blocks=True, lstrip_blocks=True)
    environment.globals["raise_exception"] = refuse
    return environment.from_string(template)
