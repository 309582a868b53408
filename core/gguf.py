"""GGUF: what the header of a file says, read within bounds; the weights stay where they are.

Source: the GGUF specification, versions 2 and 3 (ggml, docs/gguf.md). Checked: the package gguf
reads the same, and lengths that a file does not have are not believed (tests/core/test_gguf.py).
"""

import math
import mmap
import struct
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from core.blocks import GGML_BY_ID
from core.units import STORED

MAGIC = b"GGUF"
MAX_HEADER = 2**30  # bytes; the header of DeepSeek-V3's file has 8 million
MAX_COUNT = 2**20  # tensors, and pairs of metadata
MAX_DEPTH = 4  # of lists in lists
MAX_NUMBERS = 2**63 - 1  # of a tensor: what ggml counts with

_SCALARS = dict(zip(range(8), "BbHhIif?", strict=True)) | {10: "Q", 11: "q", 12: "d"}
_STRING, _ARRAY = 8, 9
_LEAST_PAIR = 8 + 4 + 1  # bytes of an empty key, a type and a byte
_LEAST_TENSOR = 8 + 4 + 8 + 4 + 8


class Unavailable(ValueError):
    """A model cannot be used: what is wrong, and what would help."""


class Cut(ValueError):
    """The bytes end before the header does."""

    def __init__(self, needed: int) -> None:
        super().__init__("it is cut off")
        self.needed = needed  # bytes from the first, at least


@dataclass(frozen=True, slots=True, kw_only=True)
class Long:
    """A list of metadata of which only the first values were kept."""

    n: int
    first: tuple[Any, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Described:
    """A tensor as the header has it."""

    name: str
    shape: tuple[int, ...]  # outermost first
    type_id: int
    offset: int  # from the first byte of the weights

    @property
    def type(self) -> str | None:
        """None for a number that no type of ggml is known by here."""
        block = GGML_BY_ID.get(self.type_id)
        return block.name if block else None

    @property
    def n_bytes(self) -> int | None:
        """None for an unknown type. Raises: ValueError if a row is not whole blocks."""
        block = GGML_BY_ID.get(self.type_id)
        if block is None:
            return None
        try:
            return block.bytes_of(math.prod(self.shape[:-1]), self.shape[-1])
        except ValueError as why:
            raise ValueError(f"{self.name}: {why}") from None


@dataclass(frozen=True, slots=True, kw_only=True)
class Header:
    """All that stands before the weights."""

    version: int
    metadata: dict[str, Any] = field(repr=False)
    tensors: tuple[Described, ...] = field(repr=False)
    n_bytes: int  # of the header
    start: int  # of the weights: n_bytes, filled up to the alignment
    alignment: int


def read_header(data: bytes | mmap.mmap, *, keep: int | None = None) -> Header:
    """The header that stands first in `data`; lists of metadata longer than `keep` become `Long`.

    Time and memory grow with the bytes given, not with the lengths that they claim.
    Raises: Cut if it is not whole; ValueError if it is no header of GGUF.
    """
    reader = _Reader(data, keep)
    if (magic := reader.take(4)) != MAGIC:
        raise ValueError(f"it begins with {magic!r}")
    if (version := reader.number("I")) not in (2, 3):
        raise ValueError(f"version {version}")
    n_tensors, n_pairs = reader.number("Q"), reader.number("Q")
    for what, n in (("tensors", n_tensors), ("pairs of metadata", n_pairs)):
        if n > MAX_COUNT:
            raise ValueError(f"it claims {n} {what}, more than {MAX_COUNT}")
    reader.require(n_pairs * _LEAST_PAIR + n_tensors * _LEAST_TENSOR)
    metadata: dict[str, Any] = {}
    for _ in range(n_pairs):
        key = reader.string()
        if key in metadata:
            raise ValueError(f"{key} is there twice")
        metadata[key] = reader.value(reader.number("I"))
    found: dict[str, Described] = {}
    for _ in range(n_tensors):
        tensor = _described(reader)
        if tensor.name in found:
            raise ValueError(f"tensor {tensor.name} is there twice")
        found[tensor.name] = tensor
    alignment = metadata.get("general.alignment", 32)
    if not isinstance(alignment, int) or not 1 <= alignment <= 2**20:
        raise ValueError(f"its alignment is {alignment!r}")
    return Header(
        version=version,
        metadata=metadata,
        tensors=tuple(found.values()),
        n_bytes=reader.at,
        start=-(-reader.at // alignment) * alignment,
        alignment=alignment,
    )


def _described(reader: "_Reader") -> Described:
    name, n_dims = reader.string(), reader.number("I")
    if not 1 <= n_dims <= 4:
        raise ValueError(f"{name} has {n_dims} dimensions")
    shape = tuple(reader.number("Q") for _ in range(n_dims))[::-1]
    if math.prod(max(1, n) for n in shape) > MAX_NUMBERS:
        raise ValueError(f"{name} has the shape {shape}, more numbers than {MAX_NUMBERS}")
    return Described(name=name, shape=shape, type_id=reader.number("I"), offset=reader.number("Q"))


class _Reader:
    """Takes little-endian values off the front of a file's bytes."""

    def __init__(self, data: bytes | mmap.mmap, keep: int | None) -> None:
        self.data, self.at, self.keep = data, 0, keep

    def require(self, n_bytes: int) -> None:
        """Raises: Cut if fewer are left; ValueError if no header is so long."""
        needed = self.at + n_bytes
        if needed <= len(self.data):
            return
        if needed > MAX_HEADER:
            raise ValueError(f"something in it claims {n_bytes} bytes, more than {MAX_HEADER}")
        raise Cut(needed)

    def take(self, n_bytes: int) -> bytes:
        self.require(n_bytes)
        self.at += n_bytes
        return self.data[self.at - n_bytes : self.at]

    def number(self, code: str) -> Any:
        return struct.unpack(f"<{code}", self.take(struct.calcsize(code)))[0]

    def string(self) -> str:
        return self.take(self.number("Q")).decode()

    def value(self, kind: int, depth: int = 0) -> Any:
        if kind == _STRING:
            return self.string()
        if kind != _ARRAY:
            return self.number(_scalar(kind))
        if depth == MAX_DEPTH:
            raise ValueError(f"recursion: lists in lists deeper than {MAX_DEPTH}")
        kind, n = self.number("I"), self.number("Q")
        if kind in _SCALARS:
            return self._numbers(_SCALARS[kind], n)
        if kind not in (_STRING, _ARRAY):
            raise ValueError(f"values of type {kind}, which is unknown")
        self.require(n * 8)  # the least that a string or a list has
        kept = n if self.keep is None else min(n, self.keep)
        first = [self.value(kind, depth + 1) for _ in range(kept)]
        for _ in range(n - kept):
            if kind == _STRING:
                self.take(self.number("Q"))
            else:
                self.value(kind, depth + 1)
        return first if kept == n else Long(n=n, first=tuple(first))

    def _numbers(self, code: str, n: int) -> Any:
        size = struct.calcsize(code)
        self.require(n * size)
        kept = n if self.keep is None else min(n, self.keep)
        first = list(struct.unpack(f"<{kept}{code}", self.take(kept * size)))
        self.take((n - kept) * size)
        return first if kept == n else Long(n=n, first=tuple(first))


def _scalar(kind: int) -> str:
    if kind not in _SCALARS:
        raise ValueError(f"a value of type {kind}, which is unknown")
    return _SCALARS[kind]


# -- files whose weights are used ---------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class Stored:
    """Where a tensor's bytes are in a file; each of its rows is a whole number of blocks."""

    type: str
    shape: tuple[int, ...]  # outermost first
    offset: int  # from the file's first byte
    n_bytes: int

    @property
    def n_rows(self) -> int:
        return math.prod(self.shape[:-1])


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Gguf:
    """A whole GGUF file whose tensors are of types that can be computed with here."""

    path: Path
    metadata: dict[str, Any] = field(repr=False)
    tensors: dict[str, Stored] = field(repr=False)

    @classmethod
    def read(cls, path: Path) -> "Gguf":
        """0.1 s for 49,152 tokens and as many merges. Raises: Unavailable."""
        try:
            with (
                path.open("rb") as file,
                mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data,
            ):
                header = read_header(data)
                tensors = {t.name: _stored(t, header.start, len(data)) for t in header.tensors}
        except OSError as why:
            raise Unavailable(f"{path} cannot be read ({why.strerror}); fetch it again") from None
        except ValueError as why:
            raise Unavailable(f"{path} is no whole GGUF file ({why}); fetch it again") from None
        return cls(path=path, metadata=header.metadata, tensors=tensors)


def _stored(tensor: Described, start: int, file_bytes: int) -> Stored:
    kind, size = tensor.type, tensor.n_bytes
    if kind not in STORED or size is None:
        raise ValueError(f"{tensor.name} is stored as type {tensor.type_id}, which is unknown here")
    if start + tensor.offset + size > file_bytes:
        raise ValueError(f"{tensor.name} goes beyond its end")
    return Stored(type=kind, shape=tensor.shape, offset=start + tensor.offset, n_bytes=size)
