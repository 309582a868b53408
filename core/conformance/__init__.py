"""`python -m core conformance FILE.csv`: published figures against the functions the pages call.

A row is a quantity, inputs as JSON, what is expected in which unit, and how far off may be.
Adapters (`memory`, `speed`) put the inputs into the project's functions and hold no formula. What
cannot be computed is unsupported, and never passed. Rows without a tolerance are bounds that their
quantity names, or calibrations that are shown only.
"""

import csv
import io
import json
import math
import re
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from core.conformance import memory, speed
from core.conformance.answers import Answer, Inputs, Unsupported, Value
from core.sizes import UNITS, Bytes

COLUMNS = ("id", "quantity", "inputs_json", "expected", "unit", "rel_tol", "source")
ADAPTERS = {**memory.ADAPTERS, **speed.ADAPTERS}
RELATIONS = {**memory.RELATIONS, **speed.RELATIONS}
EXACT = 1e-15  # what a tolerance of 0 leaves to floating point; of whole numbers, nothing
MAX_FILE_BYTES = 50_000_000

PASSED, FAILED, UNSUPPORTED = "passed", "failed", "unsupported"
HOLDS, BROKEN, SHOWN = "holds", "broken", "shown only"


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """What became of a row."""

    id: str
    quantity: str
    status: str  # of rows with a tolerance the first three, of others the last three
    says: str


def check(row: Mapping[str, str | None]) -> Outcome:
    """One row against the project's functions; whatever is wrong with it is said, not raised."""
    cells = {name: (row.get(name) or "").strip() for name in COLUMNS}
    quantity = cells["quantity"]

    def outcome(status: str, says: str) -> Outcome:
        return Outcome(
            id=_line(cells["id"] or "(no id)", 80),
            quantity=_line(quantity or "(no quantity)", 80),
            status=status,
            says=_line(says, 400),
        )

    tolerated = bool(cells["rel_tol"])
    bad, cannot = (FAILED, UNSUPPORTED) if tolerated else (BROKEN, SHOWN)
    try:
        inputs = Inputs(_inputs(cells["inputs_json"]))
        expected = _number("expected", cells["expected"])
        tolerance = _number("rel_tol", cells["rel_tol"]) if tolerated else 0.0
    except ValueError as why:
        return outcome(bad, str(why))
    if tolerance < 0:
        return outcome(bad, f"rel_tol={tolerance} is below 0; give 0 or more")
    try:
        if tolerated:
            return outcome(*_compared(quantity, inputs, expected, cells["unit"], tolerance))
        return outcome(*_related(quantity, inputs, expected, cells["unit"]))
    except Unsupported as why:
        return outcome(cannot, str(why))
    except ZeroDivisionError:
        return outcome(cannot, "an input is 0 that something is divided by; give more")
    except Exception as why:  # a file is anyone's: whatever its inputs set off is the row's own
        return outcome(cannot, f"{type(why).__name__}: {why}")


def _compared(
    quantity: str, inputs: Inputs, expected: float, unit: str, tolerance: float
) -> tuple[str, str]:
    adapter = ADAPTERS.get(quantity)
    if adapter is None:
        raise Unsupported(f"no function computes {quantity[:60]!r}")
    got = _in_unit(adapter(inputs), unit)
    off = abs(got - expected)
    whole = isinstance(got, int) and isinstance(expected, int)
    allowed = max(tolerance, 0 if whole else EXACT) * abs(expected)
    said = f"got {_digits(got)}, expected {_digits(expected)} {unit}, tolerance {tolerance:g}"
    return (PASSED if off <= allowed else FAILED), said


def _related(quantity: str, inputs: Inputs, expected: float, unit: str) -> tuple[str, str]:
    relation = RELATIONS.get(quantity)
    if relation is None:
        return SHOWN, "a calibration: nothing to meet"
    whole = Bytes.of(expected, unit) if unit in UNITS else expected
    holds, said = relation(inputs, whole)  # type: ignore[arg-type]
    return (HOLDS if holds else BROKEN), said


def _in_unit(answer: Answer, unit: str) -> float:
    """Raises: Unsupported where the row asks in another kind of unit."""
    if isinstance(answer, Bytes):
        if unit not in UNITS:
            raise Unsupported(f"unit={unit[:20]!r} is no unit of bytes")
        return answer.in_unit(unit)
    return answer.in_unit(unit)


def _inputs(text: str) -> dict[str, object]:
    try:
        found = json.loads(text)
    except (ValueError, RecursionError):
        raise ValueError("inputs_json is not JSON; give an object") from None
    if not isinstance(found, dict):
        raise ValueError("inputs_json is no object; give one")
    return found


def _number(column: str, text: str) -> float:
    """Whole numbers as such, so that they are compared to the last digit."""
    try:
        value = int(text) if re.fullmatch(r"[+-]?\d{1,300}", text, re.ASCII) else float(text)
    except ValueError:
        raise ValueError(f"{column}={text[:40]!r} is no number; give one") from None
    if not math.isfinite(value):
        raise ValueError(f"{column}={text[:40]!r} is not finite; give a number")
    return value


def read_rows(path: Path) -> list[dict[str, str | None]]:
    """Raises: ValueError with one sentence for a file that cannot be used."""
    try:
        if path.stat().st_size > MAX_FILE_BYTES:
            raise ValueError(f"{path} is larger than {MAX_FILE_BYTES:,} bytes; give a smaller file")
        text = path.read_text(encoding="utf-8-sig")
    except OSError as why:
        raise ValueError(f"{path} cannot be read: {why.strerror or why}") from None
    except UnicodeDecodeError:
        raise ValueError(f"{path} is not UTF-8 text; save it as CSV in UTF-8") from None
    reader = csv.DictReader(io.StringIO(text, newline=""))
    try:
        rows = [dict(row) for row in reader]
        names = reader.fieldnames or ()
    except csv.Error as why:
        raise ValueError(f"{path} is no CSV: {why}") from None
    missing = [name for name in COLUMNS if name not in names]
    if missing:
        raise ValueError(f"{path} lacks the columns {', '.join(missing)}; it needs them all")
    return rows


def check_all(rows: Iterable[Mapping[str, str | None]]) -> Iterator[Outcome]:
    """Every row in order."""
    return map(check, rows)


def summary(outcomes: Sequence[Outcome]) -> tuple[str, str]:
    """The two last lines of the command."""
    n = {
        status: sum(o.status == status for o in outcomes)
        for status in (PASSED, FAILED, UNSUPPORTED, HOLDS, BROKEN, SHOWN)
    }
    return (
        f"relations: {n[HOLDS]} hold, {n[BROKEN]} broken, {n[SHOWN]} shown only",
        f"{n[PASSED]} passed, {n[FAILED]} failed, {n[UNSUPPORTED]} unsupported",
    )


def main(argv: Sequence[str]) -> int:
    """Check a file; a line for each row that failed. Returns 0, 1 if any failed, 2 for no file."""
    if len(argv) != 1 or argv[0] in ("-h", "--help"):
        print(
            "usage: python -m core conformance FILE.csv\n"
            f"columns: {', '.join(COLUMNS)}; inputs_json an object, rel_tol empty for bounds",
            file=sys.stderr if len(argv) != 1 else sys.stdout,
        )
        return 0 if argv and argv[0] in ("-h", "--help") else 2
    try:
        rows = read_rows(Path(argv[0]))
    except ValueError as why:
        print(why, file=sys.stderr)
        return 2
    outcomes = list(check_all(rows))
    for o in outcomes:
        if o.status in (FAILED, BROKEN, UNSUPPORTED):
            print(_printable(f"{o.status}: {o.id}: {o.quantity}: {o.says}"))
    for line in summary(outcomes):
        print(line)
    return int(any(o.status in (FAILED, BROKEN) for o in outcomes))


def _line(text: str, most: int) -> str:
    """A text as one line, and not a long one."""
    text = " ".join(text.split())
    return text if len(text) <= most else text[:most] + "…"


def _digits(number: float) -> str:
    return f"{number:,}" if isinstance(number, int) else f"{number:.10g}"


def _printable(text: str) -> str:
    """What this terminal can show of a text; the rest as escapes."""
    encoding = sys.stdout.encoding or "utf-8"
    return text.encode(encoding, "backslashreplace").decode(encoding)


__all__ = ["Answer", "Inputs", "Unsupported", "Value", "check", "check_all", "main", "summary"]
