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

GROUP = 32  # numbers of a row that share a scale, in int4 and in the blocks of GGUF files


@dataclass(frozen=True, slots=True, kw_only=True)
class WeightFormat:
    """A way to store a matrix's numbers: a few bits for each, and what rows and groups share."""

    name: str
    bits: int  # of one number
    row_bytes: int = 0  # shared by the numbers of a row: its scale
    group_bytes: int = 0  # shared by each started group of 32: scale, zero or minimum
    whole_groups: bool = False  # a row's last group is filled up

    def bytes_of_row(self, n: int) -> int:
        """Bytes of a row of n numbers."""
        groups = -(-n // GROUP)
        n_stored = groups * GROUP if self.whole_groups else n
        return n_stored * self.bits // 8 + self.row_bytes + groups * self.group_bytes

    def bytes_of(self, n_rows: int, n: int) -> int:
        """Bytes of a matrix of n_rows rows of n numbers."""
        return n_rows * self.bytes_of_row(n)


# int8: a bfloat16 scale for each row; int4: a bfloat16 scale and zero for each group.
# Q4_1: float16 scale and minimum; Q8_0: float16 scale. Source: block_q4_1 and block_q8_0 of ggml.
STORED = {
    f.name: f
    for f in (
        WeightFormat(name="fp32", bits=32),
        WeightFormat(name="bf16", bits=16),
        WeightFormat(name="int8", bits=8, row_bytes=2),
        WeightFormat(name="int4", bits=4, group_bytes=4, whole_groups=True),
        WeightFormat(name="Q4_1", bits=4, group_bytes=4, whole_groups=True),
        WeightFormat(name="Q8_0", bits=8, group_bytes=2, whole_groups=True),
        WeightFormat(name="F32", bits=32),
    )
}
