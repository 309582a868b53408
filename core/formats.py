"""How products with each weight format are computed, in words: for pages, which load no torch."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Kernel:
    """How products with a weight format are computed here; for the page."""

    title: str
    real: bool  # from the stored numbers themselves; else they are dequantised before each product
    op: str  # of one vector, as torch calls it
    says: str  # one sentence


KERNELS = {
    "fp32": Kernel(
        title="32-bit floats",
        real=True,
        op="aten::embedding_bag",
        says="Four bytes a number, multiplied as they are.",
    ),
    "bf16": Kernel(
        title="bfloat16",
        real=True,
        op="aten::embedding_bag",
        says="Two bytes a number, the first half of the float; the vector is rounded to bfloat16 "
        "too, products are added up in 32 bits.",
    ),
    "int8": Kernel(
        title="8-bit integers",
        real=True,
        op="quantized::embedding_bag_byte_rowwise_offsets",
        says="One byte a number; 64 numbers of a column share a scale and a zero. The vector stays "
        "in 32 bits. For a whole prompt they are written out as floats first.",
    ),
    "int4": Kernel(
        title="4-bit integers",
        real=True,
        op="aten::_weight_int4pack_mm_for_cpu",
        says="Half a byte a number; 32 numbers of a row share a scale and a zero. The vector is "
        "rounded to bfloat16.",
    ),
    "file": Kernel(
        title="as in the file",
        real=False,
        op="aten::mv",
        says="The file's own blocks of 32 numbers, kept as they are. torch has no product for "
        "them: each product writes them out as floats first, which takes longer than it saves.",
    ),
}
