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
