"""What programs were seen to reach of a device's published bandwidth or peak, by its kind.

`bands.csv`: of decoding, bytes of weights × tokens a second by the bandwidth; of prefill and
training, model FLOP/s by the dense peak in 16 bits. One row for each runtime; figures of rows that
have the same kind, work and bits make one band.

Checked: tests/core/test_bands.py.
"""

import csv
import functools
from collections.abc import Iterator
from dataclasses import dataclass

from core.catalog import FOLDER
from core.device_times import Share

WORKS = ("decode", "prefill", "train")
BITS = (16, 8, 4)  # classes of weight formats


@dataclass(frozen=True, slots=True, kw_only=True)
class Seen:
    """What one runtime reached."""

    kind: str  # of the device
    work: str
    bits: int
    runtime: str
    low: float
    high: float
    source: str


@functools.cache
def seen() -> tuple[Seen, ...]:
    """Every row. Raises: ValueError naming the row and its column."""
    return tuple(_rows())


def share(kind: str, work: str, bytes_per_weight: float = 2.0) -> Share | None:
    """The band of a kind of device, None where nothing was published. Products of prefill and
    training are computed in 16 bits, whatever the weights are stored in.

    Where there is one figure, the other end is the ceiling.
    """
    found = [s for s in seen() if s.kind == kind and s.work == work]
    if work == "decode":
        found = [s for s in found if s.bits == bits_of(bytes_per_weight)]
    if not found:
        return None
    low, high = min(s.low for s in found), max(s.high for s in found)
    sources = [f"{s.runtime}: {s.source}" for s in found]
    if low == high:
        high = 1.0
        sources.append("one figure was published; the other end is the ceiling")
    return Share(low=low, high=high, source="; ".join(sources))


def bits_of(bytes_per_weight: float) -> int:
    """The class that a format falls into: 16, 8, or 4 and fewer."""
    if bytes_per_weight > 1.5:
        return 16
    return 8 if bytes_per_weight > 0.9 else 4


def _rows() -> Iterator[Seen]:
    with (FOLDER / "bands.csv").open(encoding="utf-8", newline="") as lines:
        for number, cells in enumerate(csv.DictReader(lines), start=2):
            at = f"bands.csv, row {number}"
            low, high = float(cells["low"]), float(cells["high"])
            if not 0 < low <= high <= 1:
                raise ValueError(f"{at}: low={low}, high={high} are no shares in order; mend them")
            if cells["work"] not in WORKS:
                raise ValueError(
                    f"{at}: work={cells['work']!r} is unknown; choose {', '.join(WORKS)}"
                )
            if int(cells["bits"]) not in BITS:
                raise ValueError(f"{at}: bits={cells['bits']!r} is unknown; choose 16, 8 or 4")
            if not cells["source"]:
                raise ValueError(f"{at}: source is empty; say where the figure is from")
            yield Seen(
                kind=cells["kind"],
                work=cells["work"],
                bits=int(cells["bits"]),
                runtime=cells["runtime"],
                low=low,
                high=high,
                source=cells["source"],
            )
