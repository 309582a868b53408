"""Number formats and their sizes."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class DType:
    """A number format."""

    name: str
    n_bytes: int  # of one element
    numpy: str  # the name torch knows, and NumPy too but for bfloat16


FP32 = DType(name="fp32", n_bytes=4, numpy="float32")
FP64 = DType(name="fp64", n_bytes=8, numpy="float64")
BF16 = DType(name="bf16", n_bytes=2, numpy="bfloat16")
FP16 = DType(name="fp16", n_bytes=2, numpy="float16")
DTYPES = {d.name: d for d in (FP32, FP64, BF16, FP16)}

GROUP = 32  # numbers of a row that share a scale: in int4, and in the blocks of GGUF files


@dataclass(frozen=True, slots=True, kw_only=True)
class WeightFormat:
    """A way to store a matrix: bits for each number, and bytes that a group of numbers shares."""

    name: str
    bits: int  # of one number
    group: int = 1  # numbers of a row that share; the last group of a row is filled up
    group_rows: int = 1  # at most so many rows share; blocks of rows are even, the last filled up
    group_bytes: int = 0  # what they share: scale, zero, least value

    def blocks(self, n_rows: int) -> tuple[int, int]:
        """How many blocks of rows there are, and how many rows each has."""
        n_blocks = -(-n_rows // self.group_rows)
        return n_blocks, -(-n_rows // n_blocks)

    def bytes_of(self, n_rows: int, n_columns: int) -> int:
        """Bytes of a matrix."""
        n_blocks, rows = self.blocks(n_rows)
        n_groups = n_blocks * -(-n_columns // self.group)
        return n_groups * (rows * self.group * self.bits // 8 + self.group_bytes)


# int8: scale and zero in fp32 for at most 64 numbers of a column, as FBGEMM's tables of bytes have
# them; int4: scale and zero in bfloat16. Q4_1: scale and least value in float16; Q8_0: scale in
# float16. Source of the latter two: block_q4_1 and block_q8_0 of ggml.
STORED = {
    f.name: f
    for f in (
        WeightFormat(name="fp32", bits=32),
        WeightFormat(name="bf16", bits=16),
        WeightFormat(name="int8", bits=8, group_rows=64, group_bytes=8),
        WeightFormat(name="int4", bits=4, group=GROUP, group_bytes=4),
        WeightFormat(name="Q4_1", bits=4, group=GROUP, group_bytes=4),
        WeightFormat(name="Q8_0", bits=8, group=GROUP, group_bytes=2),
        WeightFormat(name="F32", bits=32),
    )
}
