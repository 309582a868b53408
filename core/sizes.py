"""`Bytes`: a size that knows its unit, so that GB and GiB, or bytes and numbers, cannot be mixed.

Sizes add to sizes and are scaled by plain numbers; a size times a size, or plus a plain number, is
a TypeError. GB is 10⁹ bytes, GiB is 2³⁰.
"""

import math
from dataclasses import dataclass
from functools import total_ordering

UNITS = {"B": 1} | {
    f"{prefix}{ending}": base**power
    for power, prefix in enumerate("kMGTP", start=1)
    for ending, base in (("B", 1000), ("iB", 1024))
}
UNITS["KiB"] = UNITS.pop("kiB")

Number = int | float


@total_ordering
@dataclass(frozen=True, slots=True, eq=True, order=False)
class Bytes:
    """A number of bytes.

    Raises: ValueError unless it is finite; TypeError for what is no number.
    """

    n: Number

    def __post_init__(self) -> None:
        if isinstance(self.n, Bytes | bool) or not isinstance(self.n, Number):
            raise TypeError(f"{self.n!r} is not a plain number of bytes")
        if not math.isfinite(self.n):
            raise ValueError(f"bytes={self.n!r} is not finite; give a number")

    @classmethod
    def of(cls, value: Number, unit: str) -> "Bytes":
        """`Bytes.of(31.4, "GB")`. Raises: ValueError naming the units there are."""
        return cls(value * _size(unit))

    def in_unit(self, unit: str) -> float:
        """How many of a unit. Raises: ValueError naming the units there are."""
        return self.n / _size(unit)

    def __add__(self, other: "Bytes") -> "Bytes":
        return Bytes(self.n + other.n) if isinstance(other, Bytes) else NotImplemented

    def __sub__(self, other: "Bytes") -> "Bytes":
        return Bytes(self.n - other.n) if isinstance(other, Bytes) else NotImplemented

    def __mul__(self, factor: Number) -> "Bytes":
        return NotImplemented if isinstance(factor, Bytes) else Bytes(self.n * factor)

    __rmul__ = __mul__

    def __truediv__(self, other: "Bytes | Number") -> "Bytes | float":
        return self.n / other.n if isinstance(other, Bytes) else Bytes(self.n / other)

    def __lt__(self, other: "Bytes") -> bool:
        return self.n < other.n if isinstance(other, Bytes) else NotImplemented

    def __int__(self) -> int:
        return round(self.n)


def _size(unit: str) -> int:
    if unit not in UNITS:
        raise ValueError(f"unit={unit!r} is unknown; choose {', '.join(UNITS)}")
    return UNITS[unit]


def total(sizes: "list[Bytes] | tuple[Bytes, ...]") -> Bytes:
    """The sum of sizes; of none, no bytes."""
    return Bytes(sum(size.n for size in sizes))
