"""Number formats and their sizes."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class DType:
    """A number format."""

    name: str
    n_bytes: int  # of one element
    numpy: str  # the name NumPy and torch both know


FP32 = DType(name="fp32", n_bytes=4, numpy="float32")
FP64 = DType(name="fp64", n_bytes=8, numpy="float64")
DTYPES = {d.name: d for d in (FP32, FP64)}
