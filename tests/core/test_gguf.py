"""The header of a GGUF file: read as the package gguf wrote it, and within bounds."""

import struct
from pathlib import Path

import gguf as package
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from core.blocks import GGML
from core.gguf import MAX_COUNT, Cut, Long, read_header
from tests.core.gguf_files import write_tiny


@pytest.fixture(scope="module")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    return write_tiny(tmp_path_factory.mktemp("gguf") / "tiny.gguf").read_bytes()


def start(n_tensors: int, n_pairs: int, version: int = 3) -> bytes:
    return b"GGUF" + struct.pack("<IQQ", version, n_tensors, n_pairs)


def text(value: str) -> bytes:
    return struct.pack("<Q", len(value)) + value.encode()


def tensor(name: str, dims: tuple[int, ...], type_id: int = 0, offset: int = 0) -> bytes:
    head = text(name) + struct.pack(f"<I{len(dims)}Q", len(dims), *dims)
    return head + struct.pack("<IQ", type_id, offset)


def test_the_header_ends_where_the_package_begins_its_weights(tiny: bytes, tmp_path: Path):
    (tmp_path / "a.gguf").write_bytes(tiny)
    theirs = package.GGUFReader(tmp_path / "a.gguf")
    header = read_header(tiny)
    assert header.start == theirs.data_offset
    assert [(t.name, t.offset, t.n_bytes) for t in header.tensors] == [
        (t.name, t.data_offset - theirs.data_offset, t.n_bytes) for t in theirs.tensors
    ]


def test_the_header_alone_is_enough(tiny: bytes):
    whole = read_header(tiny)
    assert read_header(tiny[: whole.n_bytes]) == whole


def test_a_header_that_is_cut_off_says_how_many_bytes_it_needs_at_least(tiny: bytes):
    whole = read_header(tiny)
    for size in range(0, whole.n_bytes, 7):
        with pytest.raises(Cut) as cut:
            read_header(tiny[:size])
        assert size < cut.value.needed <= whole.n_bytes


def test_every_type_of_ggml_is_told_with_its_bytes():
    found = [tensor(name, (256, 3), block.type_id) for name, block in GGML.items()]
    header = read_header(start(len(found), 0) + b"".join(found))
    assert [t.type for t in header.tensors] == list(GGML)
    assert all(t.n_bytes == GGML[t.name].bytes_of(3, 256) for t in header.tensors)


def test_a_type_that_is_unknown_has_a_number_and_no_bytes():
    (found,) = read_header(start(1, 0) + tensor("a", (4,), 999)).tensors
    assert (found.type_id, found.type, found.n_bytes) == (999, None, None)


def test_long_lists_are_kept_in_part(tiny: bytes):
    whole, part = read_header(tiny), read_header(tiny, keep=5)
    key = "tokenizer.ggml.tokens"
    assert part.metadata[key] == Long(n=260, first=tuple(whole.metadata[key][:5]))
    assert part.metadata["a.list"] == [-1, 2]
    assert part.tensors == whole.tensors


HUGE = 2**63
HOSTILE = {
    "more tensors than any file": (start(10**9, 0), "1000000000 tensors"),
    "2**63 pairs": (start(0, HUGE), "pairs of metadata, more than"),
    "a text of 2**63 bytes": (start(0, 1) + struct.pack("<Q", HUGE) + b"a" * 40, "claims"),
    "a list of 2**60 bytes": (
        start(0, 1) + text("a") + struct.pack("<IIQ", 9, 0, 2**60),
        "claims",
    ),
    "a list of 2**60 texts": (
        start(0, 1) + text("a") + struct.pack("<IIQ", 9, 8, 2**60),
        "claims",
    ),
    "lists in lists": (
        start(0, 1) + text("a") + struct.pack("<I", 9) + struct.pack("<IQ", 9, 1) * 2000,
        "deeper than"),
    "product overflow": (start(1, 0) + tensor("a", (2**40, 2**40)), "more numbers than"),
    "a negative size": (start(1, 0) + tensor("a", (2**64 - 1,)), "more numbers than"),
    "no dimension": (start(1, 0) + tensor("a", ()) + b"\0" * 9, "0 dimensions"),
    "five dimensions": (start(1, 0) + tensor("a", (1,) * 5), "5 dimensions"),
    "a tensor twice": (start(2, 0) + tensor("a", (1,)) * 2, "tensor a is there twice"),
    "a key twice": (
        start(0, 2) + (text("k") + struct.pack("<IB", 7, 1)) * 2, "k is there twice"),
    "a type of value": (start(0, 1) + text("k") + struct.pack("<IQ", 13, 1), "type 13"),
    "not UTF-8": (start(0, 1) + struct.pack("<Q", 1) + b"\xff" + b"\0" * 9, "utf-8"),
    "version 1": (start(0, 0, version=1), "version 1"),
    "other end first": (b"GGUF" + struct.pack(">IQQ", 3, 0, 0), "version 50331648"),
    "an alignment of nothing": (
        start(0, 1) + text("general.alignment") + struct.pack("<II", 4, 0), "alignment is 0"),
}  # fmt: skip


@pytest.mark.parametrize("name", HOSTILE)
def test_a_hostile_header_is_refused(name: str):
    data, said = HOSTILE[name]
    with pytest.raises(ValueError, match=said):
        read_header(data)


def test_a_row_that_is_not_whole_blocks_is_refused():
    (found,) = read_header(start(1, 0) + tensor("odd", (100, 2), 12)).tensors
    with pytest.raises(ValueError, match="odd: columns=100 is no multiple of 256"):
        _ = found.n_bytes


@given(st.binary(max_size=400), st.integers(0, MAX_COUNT), st.integers(0, 40))
def test_any_bytes_are_read_or_refused(tail: bytes, n_tensors: int, n_pairs: int):
    for data in (tail, b"GGUF" + tail, start(n_tensors, n_pairs) + tail):
        try:
            header = read_header(data, keep=4)
        except ValueError:
            continue
        assert header.n_bytes <= len(data)


def test_numpy_sees_the_same_numbers_where_the_header_says_they_are(tiny: bytes):
    header = read_header(tiny)
    norm = next(t for t in header.tensors if t.name == "output_norm.weight")
    at = header.start + norm.offset
    values = np.frombuffer(tiny[at : at + (norm.n_bytes or 0)], np.float32)
    assert values.shape == norm.shape and np.isfinite(values).all()
