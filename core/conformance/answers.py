"""What an adapter gives, and how a row's inputs are asked for."""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from core.sizes import Bytes


class Unsupported(Exception):
    """This quantity cannot be computed from these inputs; says what is missing."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Value:
    """A number that is no size. `unit` as the row would write it."""

    number: float
    unit: str


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
            if not good or not math.isfinite(value):
                raise Unsupported(f"{name}={value!r} is no number")
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
        value = self._values.get(name, default)
        if not isinstance(value, str):
            raise Unsupported(f"{name} is missing" if value is None else f"{name} is no text")
        return value

    def flag(self, name: str, default: bool = False) -> bool:
        value = self._values.get(name, default)
        if not isinstance(value, bool):
            raise Unsupported(f"{name}={value!r} is neither true nor false")
        return value

    def plain(self) -> dict[str, Any]:
        return dict(self._values)
