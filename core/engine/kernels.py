"""One matrix in one weight format: what it holds, what a product reads, and the product itself.

The vectors stay fp32 or bf16. int8 keeps a scale for each row, int4 a scale and a zero for each
group of 32 numbers of a row; `file` keeps the blocks of a GGUF file as they are. The packed
products are private operations of torch: where one is missing, gives wrong numbers or does not take
a matrix's size, the matrix is dequantised before each product instead, and says so.

Shape suffixes: N rows (outputs), D columns (inputs), G groups of 32 columns, M vectors at once.
"""

import functools
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import torch
import torch.nn.functional as F

from core.units import GROUP, STORED

CHUNK = 1 << 20  # numbers dequantised at a time: 4 MB as fp32, which stay in the cache
PACK_ROWS = 16  # the packed int4 product takes multiples of it, and
PACK_BLOCK = 64  # its layout repeats after so many rows, on every instruction set


@dataclass(frozen=True, slots=True, kw_only=True)
class RawBlocks:
    """A matrix, or some rows of one, as a GGUF file holds it."""

    type: str  # Q4_1, Q8_0 or F32
    raw: torch.Tensor  # uint8 (N, bytes of a row)
    shape: tuple[int, int]  # (N, D)


@dataclass(frozen=True, slots=True, kw_only=True)
class Kernel:
    """How products with a weight format are computed here; for the page."""

    title: str
    real: bool  # from the stored numbers themselves; else they are dequantised before each product
    op: str  # as torch calls it
    says: str  # one sentence


KERNELS = {
    "fp32": Kernel(
        title="32-bit floats",
        real=True,
        op="aten::mv",
        says="Four bytes a number, multiplied as they are.",
    ),
    "bf16": Kernel(
        title="bfloat16",
        real=True,
        op="aten::mv",
        says="Two bytes a number: the first 16 bits of the float. Vectors are rounded to bfloat16 "
        "too, and sums kept in 32 bits.",
    ),
    "int8": Kernel(
        title="8-bit integers",
        real=True,
        op="aten::_weight_int8pack_mm",
        says="One byte a number and a bfloat16 scale for each row; vectors stay bfloat16.",
    ),
    "int4": Kernel(
        title="4-bit integers",
        real=True,
        op="aten::_weight_int4pack_mm_for_cpu",
        says="Half a byte a number, a bfloat16 scale and zero for each 32 of a row; vectors stay "
        "bfloat16.",
    ),
    "file": Kernel(
        title="as in the file",
        real=False,
        op="aten::mv",
        says="The file's own blocks of 32 numbers, kept as they are; torch has no product for "
        "them, so each product first writes them out as 32-bit floats, and takes longer for it.",
    ),
}


class Matrix:
    """A matrix of N × D numbers in one weight format."""

    shape: tuple[int, int]
    real = True  # the product is computed from the stored numbers themselves
    note = ""  # where it is not: why

    def product(self, x: torch.Tensor) -> torch.Tensor:
        """W x for a vector (D,) or for each of (M, D), fp32 -> (N,) or (M, N), fp32."""
        raise NotImplementedError

    def rows(self, ids: torch.Tensor) -> torch.Tensor:
        """The rows of these indices, shape (len(ids), D), fp32."""
        raise NotImplementedError

    def stored(self) -> Iterator[tuple[str, torch.Tensor]]:
        """What is in memory, by name."""
        raise NotImplementedError

    def dense(self) -> torch.Tensor:
        """The numbers that the format can tell, shape (N, D), fp32."""
        return self.rows(torch.arange(self.shape[0]))

    @property
    def stored_bytes(self) -> int:
        return sum(t.numel() * t.element_size() for _, t in self.stored())

    @property
    def read_bytes(self) -> int:
        """Of weights, in one product."""
        return self.stored_bytes


def make(
    weight_ND: torch.Tensor,
    weight_format: str,
    raw: RawBlocks | Sequence[RawBlocks] | None = None,
) -> Matrix:
    """The matrix in one of core.specs.WEIGHT_FORMATS; it shares no memory with what is given.

    `raw`: of the same matrix, for `file`, whose numbers are then the blocks' and not weight_ND's;
    without it a matrix stays fp32. Several are parts whose rows follow each other.
    """
    weight_ND = weight_ND.detach()
    if weight_format == "file" and raw is not None:
        return _from_blocks([raw] if isinstance(raw, RawBlocks) else list(raw))
    return _FORMATS[weight_format](weight_ND.float())


def stacked(parts: Sequence[RawBlocks]) -> RawBlocks | list[RawBlocks]:
    """Parts whose rows follow each other in one matrix; as one where they are of one type."""
    if len({p.type for p in parts}) > 1:
        return list(parts)
    n_rows = sum(p.shape[0] for p in parts)
    return RawBlocks(
        type=parts[0].type,
        raw=torch.cat([p.raw for p in parts]),
        shape=(n_rows, parts[0].shape[1]),
    )


# -- numbers with a point -----------------------------------------------------------------------


class Fp32(Matrix):
    def __init__(self, weight_ND: torch.Tensor) -> None:
        self.shape = (weight_ND.shape[0], weight_ND.shape[1])
        self._weight_ND = _fast_layout(weight_ND)

    def product(self, x: torch.Tensor) -> torch.Tensor:
        return torch.mv(self._weight_ND, x) if x.dim() == 1 else F.linear(x, self._weight_ND)

    def rows(self, ids: torch.Tensor) -> torch.Tensor:
        return self._weight_ND[ids]

    def dense(self) -> torch.Tensor:
        return self._weight_ND

    def stored(self) -> Iterator[tuple[str, torch.Tensor]]:
        yield "weight", self._weight_ND


def _fast_layout(weight_ND: torch.Tensor) -> torch.Tensor:
    """A copy whose columns lie together where there are more rows than columns."""
    n_rows, n_columns = weight_ND.shape
    if n_rows > n_columns:
        return weight_ND.t().contiguous().t()
    return weight_ND.clone(memory_format=torch.contiguous_format)


class Bf16(Matrix):
    def __init__(self, weight_ND: torch.Tensor) -> None:
        self.shape = (weight_ND.shape[0], weight_ND.shape[1])
        self._weight_ND = weight_ND.bfloat16()

    def product(self, x: torch.Tensor) -> torch.Tensor:
        x = x.bfloat16()
        y = torch.mv(self._weight_ND, x) if x.dim() == 1 else F.linear(x, self._weight_ND)
        return y.float()

    def rows(self, ids: torch.Tensor) -> torch.Tensor:
        return self._weight_ND[ids].float()

    def stored(self) -> Iterator[tuple[str, torch.Tensor]]:
        yield "weight", self._weight_ND


# -- packed integers ----------------------------------------------------------------------------


class Int8(Matrix):
    """code × scale of the row; codes -127 to 127."""

    def __init__(self, weight_ND: torch.Tensor) -> None:
        self.shape = (weight_ND.shape[0], weight_ND.shape[1])
        self._codes_ND, self._scales_N = codes8(weight_ND)

    def product(self, x: torch.Tensor) -> torch.Tensor:
        y_MN = torch.ops.aten._weight_int8pack_mm(
            x.bfloat16().view(-1, self.shape[1]), self._codes_ND, self._scales_N
        )
        return y_MN.view(*x.shape[:-1], -1).float()

    def rows(self, ids: torch.Tensor) -> torch.Tensor:
        return self._codes_ND[ids] * self._scales_N[ids].float()[:, None]

    def stored(self) -> Iterator[tuple[str, torch.Tensor]]:
        yield "codes", self._codes_ND
        yield "scales", self._scales_N


class Int4(Matrix):
    """(code - 8) × scale + zero of the group; codes 0 to 15, two in a byte in torch's order."""

    def __init__(self, weight_ND: torch.Tensor) -> None:
        self.shape = (weight_ND.shape[0], weight_ND.shape[1])
        codes_ND, self._grid_GN2 = codes4(weight_ND)
        self._packed = torch.ops.aten._convert_weight_to_int4pack_for_cpu(codes_ND.int(), 1)

    def product(self, x: torch.Tensor) -> torch.Tensor:
        y_MN = torch.ops.aten._weight_int4pack_mm_for_cpu(
            x.bfloat16().view(-1, self.shape[1]), self._packed, GROUP, self._grid_GN2
        )
        return y_MN.view(*x.shape[:-1], -1).float()

    def rows(self, ids: torch.Tensor) -> torch.Tensor:
        return _on_grid(self._codes(ids), self._grid_GN2[:, ids])

    def _codes(self, ids: torch.Tensor) -> torch.Tensor:
        """Out of the packed bytes, shape (len(ids), D)."""
        n_rows, n_columns = self.shape
        start = ids // PACK_BLOCK * PACK_BLOCK
        tail = n_rows % PACK_BLOCK  # rows of the last block, which has a layout of its own
        where = _int4_layout(PACK_BLOCK, n_columns)[ids - start]
        if tail:
            last = ids >= n_rows - tail
            where[last] = _int4_layout(tail, n_columns)[(ids - start)[last]]
        where = where + start[:, None] * n_columns
        bytes_ = self._packed.flatten()[where // 2]
        return bytes_ >> (where % 2 * 4).to(torch.uint8) & 15

    def stored(self) -> Iterator[tuple[str, torch.Tensor]]:
        yield "codes", self._packed
        yield "scales and zeros", self._grid_GN2


def codes8(weight_ND: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """int8 codes (N, D) and bfloat16 scales (N,): the nearest of 255 even steps."""
    largest_N = weight_ND.abs().amax(1).clamp_min(1e-30)
    scales_N = (largest_N / 127).bfloat16()
    codes_ND = (weight_ND / scales_N.float()[:, None]).round_().clamp_(-127, 127)
    return codes_ND.to(torch.int8), scales_N


def codes4(weight_ND: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """uint8 codes (N, D), 0 to 15, and bfloat16 scales and zeros (G, N, 2): in each group of 32 the
    nearest of 16 even steps from its least number to its greatest.
    """
    n_rows, n_columns = weight_ND.shape
    groups_NG32 = F.pad(weight_ND, (0, -n_columns % GROUP)).view(n_rows, -1, GROUP)
    low_NG, high_NG = groups_NG32.aminmax(dim=2)
    scale_NG = ((high_NG - low_NG) / 15).clamp_min_(1e-30).bfloat16()
    zero_NG = (low_NG + 8 * scale_NG.float()).bfloat16()
    grid_GN2 = torch.stack([scale_NG, zero_NG], dim=2).transpose(0, 1).contiguous()
    codes = (groups_NG32 - zero_NG.float()[..., None]) / scale_NG.float()[..., None]
    codes = codes.round_().add_(8).clamp_(0, 15).to(torch.uint8)
    return codes.view(n_rows, -1)[:, :n_columns], grid_GN2


def _on_grid(codes_ND: torch.Tensor, grid_GN2: torch.Tensor) -> torch.Tensor:
    """The numbers that int4 codes stand for, fp32 (N, D)."""
    n_rows, n_columns = codes_ND.shape
    scale_NG1, zero_NG1 = grid_GN2.float().transpose(0, 1)[..., None].unbind(2)
    codes = F.pad(codes_ND, (0, -n_columns % GROUP)).view(n_rows, -1, GROUP).float()
    return codes.sub_(8).mul_(scale_NG1).add_(zero_NG1).view(n_rows, -1)[:, :n_columns]


@functools.lru_cache(maxsize=16)
def _int4_layout(n_rows: int, n_columns: int) -> torch.Tensor:
    """Where torch packs the code of each row and column: its half byte, counted from the start.

    The order depends on the instruction set, so that it is found by packing the hexadecimal digits
    of each place. Shape (n_rows, n_columns), int64.
    """
    n = n_rows * n_columns
    place_ND = torch.arange(n).view(n_rows, n_columns)
    packed = torch.zeros(n, dtype=torch.long)
    for digit in range(0, n.bit_length(), 4):
        codes = (place_ND >> digit & 15).int()
        bytes_ = torch.ops.aten._convert_weight_to_int4pack_for_cpu(codes, 1).flatten().long()
        packed += torch.stack([bytes_ & 15, bytes_ >> 4], dim=1).flatten() << digit
    return packed.argsort().view(n_rows, n_columns)


# -- dequantised before each product ------------------------------------------------------------


class Simulated(Matrix):
    """Stored numbers that are written out as fp32, some rows at a time, before each product."""

    real = False

    def product(self, x: torch.Tensor) -> torch.Tensor:
        n_rows, n_columns = self.shape
        step = max(1, CHUNK // n_columns)
        parts = []
        for start in range(0, n_rows, step):
            w = self._dense(slice(start, start + step))
            parts.append(torch.mv(w, x) if x.dim() == 1 else F.linear(x, w))
        return torch.cat(parts, dim=-1) if len(parts) > 1 else parts[0]

    def rows(self, ids: torch.Tensor) -> torch.Tensor:
        return self._dense(ids)

    def _dense(self, which: torch.Tensor | slice) -> torch.Tensor:
        """Some rows, fp32."""
        raise NotImplementedError


class SimulatedInt8(Simulated):
    def __init__(self, weight_ND: torch.Tensor, note: str) -> None:
        self.shape = (weight_ND.shape[0], weight_ND.shape[1])
        self.note = note
        self._codes_ND, self._scales_N = codes8(weight_ND)

    def _dense(self, which: torch.Tensor | slice) -> torch.Tensor:
        return self._codes_ND[which] * self._scales_N[which].float()[:, None]

    def stored(self) -> Iterator[tuple[str, torch.Tensor]]:
        yield "codes", self._codes_ND
        yield "scales", self._scales_N


class SimulatedInt4(Simulated):
    """Two codes in a byte: column 2 i in its low half, 2 i + 1 in its high half."""

    def __init__(self, weight_ND: torch.Tensor, note: str) -> None:
        self.shape = (weight_ND.shape[0], weight_ND.shape[1])
        self.note = note
        codes_ND, self._grid_GN2 = codes4(weight_ND)
        codes_ND = F.pad(codes_ND, (0, -self.shape[1] % GROUP))
        self._packed = codes_ND[:, ::2] | codes_ND[:, 1::2] << 4

    def _dense(self, which: torch.Tensor | slice) -> torch.Tensor:
        packed = self._packed[which]
        codes_ND = torch.stack([packed & 15, packed >> 4], dim=2).flatten(1)
        return _on_grid(codes_ND[:, : self.shape[1]], self._grid_GN2[:, which])

    def stored(self) -> Iterator[tuple[str, torch.Tensor]]:
        yield "codes", self._packed
        yield "scales and zeros", self._grid_GN2


class FileBlocks(Simulated):
    """Blocks of a GGUF file: 32 numbers of a row each. Source: ggml's block_q4_1 and block_q8_0."""

    def __init__(self, blocks: RawBlocks) -> None:
        self.shape = blocks.shape
        self.note = KERNELS["file"].says
        self._type = blocks.type
        self._raw = blocks.raw.clone(memory_format=torch.contiguous_format)
        row_bytes = STORED[blocks.type].bytes_of_row(self.shape[1])
        assert self._raw.shape == (self.shape[0], row_bytes), (self._raw.shape, row_bytes)

    def _dense(self, which: torch.Tensor | slice) -> torch.Tensor:
        return dequantised(self._type, self._raw[which])

    def stored(self) -> Iterator[tuple[str, torch.Tensor]]:
        yield self._type, self._raw


def dequantised(block_type: str, raw: torch.Tensor) -> torch.Tensor:
    """What blocks say, fp32 (N, D); raw: uint8 (N, bytes of a row).

    Q4_1: float16 scale and minimum, then 16 bytes whose low halves are numbers 0 to 15 and whose
    high halves are 16 to 31: code × scale + minimum. Q8_0: float16 scale, then 32 int8.
    """
    if block_type == "F32":
        return raw.contiguous().view(torch.float32)
    block_bytes = STORED[block_type].bytes_of_row(GROUP)
    blocks = raw.view(raw.shape[0], -1, block_bytes)
    if block_type == "Q8_0":
        scale = blocks[..., :2].contiguous().view(torch.float16).float()
        return (blocks[..., 2:].view(torch.int8) * scale).flatten(1)
    assert block_type == "Q4_1", block_type
    scale, least = blocks[..., :4].contiguous().view(torch.float16).float().split(1, dim=-1)
    codes = torch.cat([blocks[..., 4:] & 15, blocks[..., 4:] >> 4], dim=-1)
    return codes.float().mul_(scale).add_(least).flatten(1)


class Stacked(Matrix):
    """Matrices of different formats whose rows follow each other."""

    def __init__(self, parts: Sequence[Matrix]) -> None:
        self._parts = list(parts)
        self.shape = (sum(p.shape[0] for p in parts), parts[0].shape[1])
        self.real = all(p.real for p in parts)
        self.note = " ".join(dict.fromkeys(p.note for p in parts if p.note))

    def product(self, x: torch.Tensor) -> torch.Tensor:
        return torch.cat([p.product(x) for p in self._parts], dim=-1)

    def rows(self, ids: torch.Tensor) -> torch.Tensor:
        return self.dense()[ids]

    def dense(self) -> torch.Tensor:
        return torch.cat([p.dense() for p in self._parts])

    def stored(self) -> Iterator[tuple[str, torch.Tensor]]:
        for i, part in enumerate(self._parts):
            for name, tensor in part.stored():
                yield f"{i}.{name}", tensor


def _from_blocks(parts: list[RawBlocks]) -> Matrix:
    made = [Fp32(dequantised("F32", p.raw)) if p.type == "F32" else FileBlocks(p) for p in parts]
    return made[0] if len(made) == 1 else Stacked(made)


# -- which of them ------------------------------------------------------------------------------


def _int8(weight_ND: torch.Tensor) -> Matrix:
    """Packed only where a row fills whole vector registers: else torch reads past its end."""
    if weight_ND.shape[1] % GROUP:
        return SimulatedInt8(weight_ND, f"its rows are no multiple of {GROUP} numbers")
    if not _works("int8"):
        return SimulatedInt8(weight_ND, "torch's int8 product does not work on this machine")
    return Int8(weight_ND)


def _int4(weight_ND: torch.Tensor) -> Matrix:
    n_rows, n_columns = weight_ND.shape
    if n_rows % PACK_ROWS or n_columns % GROUP:
        why = f"it is no multiple of {PACK_ROWS} rows of {GROUP} numbers"
        return SimulatedInt4(weight_ND, why)
    if not _works("int4"):
        return SimulatedInt4(weight_ND, "torch's int4 product does not work on this machine")
    return Int4(weight_ND)


_FORMATS: dict[str, Callable[[torch.Tensor], Matrix]] = {
    "fp32": Fp32,
    "bf16": Bf16,
    "int8": _int8,
    "int4": _int4,
    "file": Fp32,
}


@functools.cache
def _works(weight_format: str) -> bool:
    """Whether the packed product gives, for a small matrix, what its dequantised numbers give."""
    generator = torch.Generator().manual_seed(1)
    weight_ND = torch.randn(80, 64, generator=generator)
    x_MD = torch.randn(3, 64, generator=generator).bfloat16().float()
    packed, simulated = (Int8, SimulatedInt8) if weight_format == "int8" else (Int4, SimulatedInt4)
    expected = simulated(weight_ND, "")
    try:
        matrix = packed(weight_ND)
        y_MN, y_N, dense_ND = matrix.product(x_MD), matrix.product(x_MD[0]), matrix.dense()
    except (AttributeError, RuntimeError, NotImplementedError):  # private: may go, or take else
        return False
    expected_MN = expected.product(x_MD)
    near = functools.partial(torch.allclose, rtol=0.02, atol=0.2)
    return (
        near(y_MN, expected_MN)
        and near(y_N, expected_MN[0])
        and torch.equal(dense_ND, expected.dense())
    )
