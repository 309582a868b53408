"""What an adapter gives, and how a row's inputs are asked for."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from core.sizes import UNITS, Bytes

MOST = 1e30  # beyond every size, count and rate that is computed with


class Unsupported(Exception):
    """This quantity cannot be computed from these inputs; says what is missing."""


# Units that a row may ask in instead of another: of one kind, and how many of the first they are.
_KINDS: tuple[dict[str, float], ...] = (
    {"s": 1, "ms": 1e-3, "us": 1e-6, "µs": 1e-6, "min": 60, "h": 3600, "hours": 3600,
     "days": 86_400, "d": 86_400},
    {"FLOP": 1, "GFLOP": 1e9, "TFLOP": 1e12, "PFLOP": 1e15, "EFLOP": 1e18, "ZFLOP": 1e21},
    {"FLOP/s": 1, "GFLOP/s": 1e9, "TFLOP/s": 1e12, "PFLOP/s": 1e15, "TFLOPS": 1e12},
    {"B/s": 1, "MB/s": 1e6, "GB/s": 1e9, "TB/s": 1e12, "GiB/s": 2**30, "TiB/s": 2**40},
    {"ratio": 1, "x": 1, "1": 1, "%": 0.01},
    {"t": 1, "kg": 1e-3},
    {"kWh": 1, "MWh": 1e3, "GWh": 1e6},
    {"tokens": 1, "token": 1},
    {"params": 1, "parameters": 1, "M params": 1e6, "B params": 1e9},
    {"bit": 1, "bits": 1, "bit/weight": 1, "bits/weight": 1, "bpw": 1},
    {"B/param": 1, "bytes/param": 1},
)  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class Value:
    """A number that is no size, and its unit."""

    number: float
    unit: str

    def in_unit(self, unit: str) -> float:
        """Raises: Unsupported where the row asks in another kind of unit."""
        if unit == self.unit:
            return self.number
        for sizes in _KINDS:
            if unit in sizes and self.unit in sizes:
                return self.number * sizes[self.unit] / sizes[unit]
        raise Unsupported(f"unit={unit[:20]!r} where the function gives {self.unit}")


Answer = Bytes | Value


class Inputs:
    """A row's inputs; asking for one that is missing makes the row unsupported."""

    def __init__(self, values: Mapping[str, Any]) -> None:
        self._values = values

    def has(self, *names: str) -> bool:
        """Whether all of them are given, and are not null."""
        return all(self._values.get(name) is not None for name in names)

    def number(self, *names: str, default: float | None = None) -> float:
        """The first that is given. Raises: Unsupported unless it is a finite number from 0."""
        for name in names:
            value = self._values.get(name)
            if value is None:
                continue
            good = isinstance(value, (int, float)) and not isinstance(value, bool)
            if not good or not abs(value) <= MOST:
                raise Unsupported(f"{name}={str(value)[:40]} is no number up to {MOST:g}")
            if value < 0:
                raise Unsupported(f"{name}={value!r} is below 0")
            return value
        if default is None:
            raise Unsupported(f"{' or '.join(names)} is missing")
        return default

    def whole(self, *names: str, default: int | None = None) -> int:
        """The same as a whole number."""
        value = self.number(*names, default=default)
        if value != int(value):
            raise Unsupported(f"{names[0]}={value!r} is not whole")
        return int(value)

    def text(self, name: str, default: str | None = None) -> str:
        value = self._values.get(name)
        value = default if value is None else value
        if not isinstance(value, str):
            raise Unsupported(f"{name} is missing" if value is None else f"{name} is no text")
        return value

    def flag(self, name: str, default: bool = False) -> bool:
        value = self._values.get(name)
        value = default if value is None else value
        if not isinstance(value, bool):
            raise Unsupported(f"{name}={value!r} is neither true nor false")
        return value

    def size(self, name: str) -> Bytes:
        """A size whose name ends in its unit: `kv_pool_gib`. Raises: Unsupported."""
        for unit in ("bytes", *UNITS):
            if self.has(f"{name}_{unit.lower()}"):
                number = self.number(f"{name}_{unit.lower()}")
                return Bytes.of(number, "B" if unit == "bytes" else unit)
        raise Unsupported(f"{name} is missing; give it with a unit, as in {name}_gib")

    def plain(self) -> dict[str, Any]:
        return dict(self._values)
