"""What an uploaded file of weights says of itself: the header of a GGUF or safetensors file.

The first bytes are enough; no weight is looked at, nothing is executed or unpickled. Time and
memory grow with the bytes given, never with the sizes that they claim.

Sources: the GGUF specification; safetensors, README and src/tensor.rs. Checked: files that the
packages gguf and safetensors write, and broken ones (tests/core/test_headers.py).
"""

import json
import math
import re
import struct
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from core import gguf
from core.architecture import ModelShape
from core.configs import Imported, Unreadable
from core.header_shapes import NoShape, gguf_shape, named_shape
from core.quantised import FTYPE_BY_NUMBER
from core.sizes import Bytes

MAX_SAFETENSORS = 100_000_000  # bytes of the JSON: the library's own limit
_MAX_NUMBERS = 2**63 - 1
_KEPT = 4096  # values of a list of metadata that are looked at
_SHOWN = 8  # of them, in the text
_SHOWN_CHARACTERS = 300

# Bits of one number. Source: safetensors 0.8, src/tensor.rs, enum Dtype.
SAFETENSORS = {
    "BOOL": 8, "U8": 8, "I8": 8, "U16": 16, "I16": 16, "U32": 32, "I32": 32, "U64": 64, "I64": 64,
    "F4": 4, "F6_E2M3": 6, "F6_E3M2": 6, "F8_E4M3": 8, "F8_E5M2": 8, "F8_E8M0": 8,
    "F8_E4M3FNUZ": 8, "F8_E5M2FNUZ": 8, "F16": 16, "BF16": 16, "F32": 32, "F64": 64, "C64": 64,
}  # fmt: skip

# Tables and masks that are computed, and stand in files all the same.
_COMPUTED = re.compile(r"rope_freqs|rope_factors|rotary_emb\.inv_freq|masked_bias$")
_MASK = re.compile(r"\b(attn|attention)\.bias$")  # if of rank 4
_PACKED = re.compile(r"qweight|weight_packed|_blocks$|quant_state|qzeros|g_idx|absmax|_scales?\b")


@dataclass(frozen=True, slots=True, kw_only=True)
class Tensor:
    """One tensor by the header."""

    name: str
    shape: tuple[int, ...]  # outermost first
    dtype: str  # "type 99" for a number that is unknown
    n_bytes: int | None  # None: of a type whose size is unknown
    offset: int  # from the first byte of the weights
    computed: bool  # a table or a mask, no parameter

    @property
    def n_numbers(self) -> int:
        return math.prod(self.shape)


@dataclass(frozen=True, slots=True, kw_only=True)
class TypeTotal:
    """All tensors of one type."""

    dtype: str
    n_tensors: int
    n_numbers: int
    n_bytes: Bytes | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Header:
    """What the header says."""

    kind: str  # GGUF or safetensors
    tensors: tuple[Tensor, ...] = field(repr=False)
    metadata: tuple[tuple[str, str], ...] = field(repr=False)  # plain text, shortened
    header_bytes: int  # up to the first byte of the weights
    unknown: tuple[str, ...]  # types of tensors whose size is not known here
    notes: tuple[str, ...]  # what a reader of the numbers should know
    imported: Imported | None  # None where the file does not tell the model's shape

    @property
    def n_params(self) -> int:
        """Numbers in all tensors but computed ones; `notes` says where numbers are packed."""
        return sum(t.n_numbers for t in self.tensors if not t.computed)

    @property
    def weights_bytes(self) -> Bytes:
        """Of all tensors whose size is known."""
        return Bytes(sum(t.n_bytes or 0 for t in self.tensors))

    @property
    def file_bytes(self) -> Bytes:
        """Of the whole file, but for what fills up its end."""
        ends = [t.offset + (t.n_bytes or 0) for t in self.tensors]
        return Bytes(self.header_bytes + max(ends, default=0))

    def by_type(self) -> tuple[TypeTotal, ...]:
        """The largest first."""
        found: dict[str, list[Tensor]] = {}
        for tensor in self.tensors:
            found.setdefault(tensor.dtype, []).append(tensor)
        totals = [
            TypeTotal(
                dtype=dtype,
                n_tensors=len(of),
                n_numbers=sum(t.n_numbers for t in of),
                n_bytes=None if of[0].n_bytes is None else Bytes(sum(t.n_bytes or 0 for t in of)),
            )
            for dtype, of in found.items()
        ]
        return tuple(sorted(totals, key=lambda total: -total.n_numbers))


def read_header(data: bytes, *, name: str = "") -> Header:
    """The header that stands first in `data`, of a file that is called `name`.

    Raises: Unreadable if the bytes are no header, or end before it does: then it says how many
    bytes are needed.
    """
    if not data:
        raise Unreadable("bytes=0: an empty file has no header; choose a GGUF or safetensors file")
    if data[:4] == gguf.MAGIC or gguf.MAGIC.startswith(data[:4]):
        return _gguf(data, name)
    return _safetensors(data, name)


def _needs(kind: str, have: int, needed: int) -> Unreadable:
    return Unreadable(
        f"bytes={have:,} end within the {kind} header, which needs {needed:,} or more; "
        f"give at least the first {needed:,} bytes of the file"
    )


def _tensor(
    name: str, shape: tuple[int, ...], dtype: str, n_bytes: int | None, offset: int
) -> Tensor:
    return Tensor(
        name=name,
        shape=shape,
        dtype=dtype,
        n_bytes=n_bytes,
        offset=offset,
        computed=bool(_COMPUTED.search(name) or (len(shape) == 4 and _MASK.search(name))),
    )


def _require_apart(tensors: list[Tensor]) -> None:
    """Raises: Unreadable if two share bytes."""
    end, last = 0, ""
    for tensor in sorted(tensors, key=lambda t: (t.offset, t.n_bytes or 0)):
        if tensor.offset < end:
            raise Unreadable(
                f"offset={tensor.offset} of {_plain(tensor.name)} is before {end}, where "
                f"{_plain(last)} ends; tensors have bytes of their own: choose an intact file"
            )
        if tensor.n_bytes:
            end, last = tensor.offset + tensor.n_bytes, tensor.name


# -- GGUF ---------------------------------------------------------------------------------------


def _gguf(data: bytes, name: str) -> Header:
    try:
        header = gguf.read_header(data, keep=_KEPT)
        tensors = [
            _tensor(t.name, t.shape, t.type or f"type {t.type_id}", t.n_bytes, t.offset)
            for t in header.tensors
        ]
    except gguf.Cut as cut:
        raise _needs("GGUF", len(data), cut.needed) from None
    except ValueError as why:
        raise Unreadable(
            f"header={name or 'GGUF'!r} is not as the GGUF format has it ({_plain(why)}); "
            "choose an intact file of version 2 or 3"
        ) from None
    for tensor in tensors:
        if tensor.offset % header.alignment:
            raise Unreadable(
                f"offset={tensor.offset} of {_plain(tensor.name)} is no multiple of the alignment "
                f"{header.alignment}; choose an intact file"
            )
    _require_apart(tensors)
    imported, notes = _imported(
        lambda: gguf_shape(header.metadata, {t.name: t.shape for t in tensors if not t.computed}),
        name=str(header.metadata.get("general.name") or name or "GGUF file"),
        quantisation=_file_type(header.metadata),
        dtype="",
    )
    if header.metadata.get("split.count", 0) not in (0, 1):
        notes = (*notes, "the file is one of several that hold the model: its own part is counted")
    return Header(
        kind="GGUF",
        tensors=tuple(tensors),
        metadata=tuple((_plain(k), _plain(v)) for k, v in header.metadata.items()),
        header_bytes=header.start,
        unknown=tuple(sorted({t.dtype for t in tensors if t.n_bytes is None})),
        notes=notes,
        imported=imported,
    )


def _file_type(metadata: Mapping[str, Any]) -> str:
    """The name of a GGUF file's mix; "" where it has none that is known."""
    number = metadata.get("general.file_type")
    return FTYPE_BY_NUMBER.get(number, "") if isinstance(number, int) else ""


# -- safetensors --------------------------------------------------------------------------------


def _safetensors(data: bytes, name: str) -> Header:
    if len(data) < 8:
        raise _needs("safetensors", len(data), 8)
    (n,) = struct.unpack("<Q", data[:8])
    if not 2 <= n <= MAX_SAFETENSORS or data[8:9] not in (b"", b"{"):
        raise Unreadable(
            f"beginning={data[:9]!r} is neither GGUF's nor safetensors', whose header has 2 to "
            f"{MAX_SAFETENSORS:,} bytes of JSON; choose a GGUF or safetensors file"
        )
    if len(data) < 8 + n:
        raise _needs("safetensors", len(data), 8 + n)
    entries = _json(data[8 : 8 + n])
    metadata = entries.pop("__metadata__", {})
    if not isinstance(metadata, dict) or not all(isinstance(v, str) for v in metadata.values()):
        raise _not_so("__metadata__", metadata, "maps names to texts")
    tensors = [_entry(key, entry) for key, entry in entries.items()]
    _require_apart(tensors)
    filled = sum(t.n_bytes or 0 for t in tensors)
    end = max((t.offset + (t.n_bytes or 0) for t in tensors), default=0)
    if filled != end:
        raise Unreadable(
            f"offsets leave {end - filled:,} bytes to no tensor; safetensors has no holes: "
            "choose an intact file"
        )
    dtypes = sorted({t.dtype for t in tensors if t.dtype not in SAFETENSORS})
    imported, notes = _imported(
        lambda: named_shape({t.name: t.shape for t in tensors}),
        name=name or "safetensors file",
        quantisation="",
        dtype=_main_dtype(tensors),
    )
    if any(_PACKED.search(t.name) for t in tensors):
        notes = (*notes, "weights are packed: numbers are counted as stored, not as computed with")
    return Header(
        kind="safetensors",
        tensors=tuple(tensors),
        metadata=tuple((_plain(k), _plain(v)) for k, v in metadata.items()),
        header_bytes=8 + n,
        unknown=tuple(_plain(d) for d in dtypes),
        notes=notes,
        imported=imported,
    )


_TORCH = {"F32": "float32", "F16": "float16", "BF16": "bfloat16"}


def _main_dtype(tensors: list[Tensor]) -> str:
    """What most numbers are stored in, as torch calls it; "" for what is no plain float."""
    totals: dict[str, int] = {}
    for tensor in tensors:
        totals[tensor.dtype] = totals.get(tensor.dtype, 0) + tensor.n_numbers
    return _TORCH.get(max(totals, key=totals.__getitem__, default=""), "")


def _json(raw: bytes) -> dict[str, Any]:
    def once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        found = dict(pairs)
        if len(found) < len(pairs):
            seen: set[str] = set()
            twice = next(k for k, _ in pairs if k in seen or seen.add(k))
            raise Unreadable(
                f"name={_plain(twice)!r} is in the header twice; a name is given once: choose an "
                "intact file"
            )
        return found

    try:
        found = json.loads(raw.decode(), object_pairs_hook=once)
        json.dumps(found, ensure_ascii=False).encode()  # halves of characters are refused too
    except Unreadable:
        raise
    except UnicodeError as why:
        raise Unreadable(
            f"header={raw[:20]!r}… is not UTF-8 ({_plain(why)}); choose an intact file"
        ) from None
    except (ValueError, RecursionError) as why:
        raise Unreadable(
            f"header={raw[:20]!r}… is no JSON that is read here ({_plain(why)}); choose an intact "
            "file"
        ) from None
    if not isinstance(found, dict):
        raise _not_so("header", found, "is an object of JSON")
    return found


def _not_so(what: str, value: Any, rule: str) -> Unreadable:
    return Unreadable(f"{_plain(what)}={_plain(value)} is wrong: it {rule}; choose an intact file")


def _is_size(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and 0 <= value <= _MAX_NUMBERS


def _entry(name: str, entry: Any) -> Tensor:
    if not isinstance(entry, dict):
        raise _not_so(name, entry, "has dtype, shape and data_offsets")
    dtype, shape, offsets = (entry.get(key) for key in ("dtype", "shape", "data_offsets"))
    if not isinstance(dtype, str):
        raise _not_so(f"dtype of {name}", dtype, "is a text")
    if not isinstance(shape, list) or len(shape) > 64 or not all(map(_is_size, shape)):
        raise _not_so(f"shape of {name}", shape, "is a list of at most 64 whole numbers from 0")
    if math.prod(max(1, n) for n in shape) > _MAX_NUMBERS:
        raise _not_so(f"shape of {name}", shape, f"has at most {_MAX_NUMBERS} numbers")
    if not isinstance(offsets, list) or len(offsets) != 2 or not all(map(_is_size, offsets)):
        raise _not_so(f"data_offsets of {name}", offsets, "has two whole numbers from 0")
    start, end = offsets
    if end < start:
        raise _not_so(f"data_offsets of {name}", offsets, "ends after it begins")
    bits = SAFETENSORS.get(dtype)
    if bits and math.prod(shape) * bits != (end - start) * 8:
        raise _not_so(
            f"data_offsets of {name}",
            offsets,
            f"holds {math.prod(shape):,} numbers of {bits} bits",
        )
    return _tensor(name, tuple(shape), dtype if bits else _plain(dtype), end - start, start)


# -- both ---------------------------------------------------------------------------------------


def _imported(
    shape_of: Callable[[], tuple[ModelShape, tuple[str, ...]]],
    *,
    name: str,
    quantisation: str,
    dtype: str,
) -> tuple[Imported | None, tuple[str, ...]]:
    """The model, and why there is none."""
    try:
        shape, assumed = shape_of()
    except NoShape as why:
        return None, (f"the model's shape is not told: {_plain(why)}",)
    imported = Imported(
        name=_plain(name),
        shape=shape,
        unknown=(),
        assumed=assumed,
        dtype=dtype,
        quantisation=quantisation,
    )
    return imported, ()


def _plain(value: Any) -> str:
    """Text for a page: no control characters, not long, of lists and objects the outside."""
    if isinstance(value, gguf.Long):
        text = f"[{_listed(value.first)}, …] ({value.n:,} values)"
    elif isinstance(value, list):
        text = f"[{_listed(value)}{', …' if len(value) > _SHOWN else ''}] ({len(value):,} values)"
    else:
        text = _scalar(value)
    return text if len(text) <= _SHOWN_CHARACTERS else text[:_SHOWN_CHARACTERS] + "…"


def _listed(values: Sequence[Any]) -> str:
    return ", ".join(map(_scalar, values[:_SHOWN]))


def _scalar(value: Any) -> str:
    if isinstance(value, list | dict | gguf.Long):
        return "{…}" if isinstance(value, dict) else "[…]"
    text = str(value)[: _SHOWN_CHARACTERS + 1]
    return "".join(c if c.isprintable() else " " for c in text)
