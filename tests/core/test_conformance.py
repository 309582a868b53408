"""Published figures against the functions the pages call, and the command that does it."""

import json
import re
from pathlib import Path

import pytest

from core import conformance
from core.conformance import BROKEN, FAILED, HOLDS, PASSED, SHOWN, UNSUPPORTED, check, read_rows

DATA = Path(__file__).parent.parent / "data"
ORACLE, VARIATIONS = DATA / "oracle.csv", DATA / "variations.csv"
ROWS = read_rows(ORACLE)
PUBLISHED = [row for row in ROWS if row["rel_tol"]]
# The same quantities of other models, stages, formats and schedules, each row with its source.
TOLERATED = PUBLISHED + read_rows(VARIATIONS)
BOUNDS = [row for row in ROWS if not row["rel_tol"]]
# Figures that a source prints and that are wrong, by the row that says so.
WRONG = {
    "kvh-405b-128k-TRAP": "123.05",
    "bpp-accelerate-bug": "16",
    "spec-trap": "2.4011",
    "l32-1b-bf16-file": "2471.6",
    "l32-3b-bf16-file": "6425.5",
    "ds-z2": "11.28",
}


def named(row) -> str:
    return row["id"]


@pytest.mark.parametrize("row", TOLERATED, ids=named)
def test_a_published_figure_is_met(row):
    outcome = check(row)
    assert outcome.status == PASSED, outcome.says


@pytest.mark.parametrize("row", TOLERATED, ids=named)
def test_a_figure_that_is_off_is_not_met(row):
    off = 1 + max(0.2, 3 * float(row["rel_tol"]))
    for expected in (float(row["expected"]) * off, float(row["expected"]) / off):
        assert check({**row, "expected": repr(expected)}).status == FAILED


@pytest.mark.parametrize("row", BOUNDS, ids=named)
def test_a_bound_holds_or_is_shown_only(row):
    outcome = check(row)
    assert outcome.status in (HOLDS, SHOWN), outcome.says


def test_bounds_are_bounds():
    """Each kind of bound breaks for a figure that no device could give."""
    impossible = {
        "decode_tok_s_measured": 1e9,
        "gpu_hours_published": 1.0,
        "peak_alloc_measured": 0.01,
        "file_bytes_published": 1.0,
    }
    for quantity, value in impossible.items():
        held = [r for r in BOUNDS if r["quantity"] == quantity and check(r).status == HOLDS]
        assert held, quantity
        for row in held:
            assert check({**row, "expected": str(value)}).status == BROKEN


@pytest.mark.parametrize("id", WRONG)
def test_the_wrong_figure_of_a_source_is_rejected(id):
    row = next(r for r in ROWS if r["id"] == id)
    assert check(row).status == PASSED
    assert check({**row, "expected": WRONG[id]}).status == FAILED


@pytest.mark.parametrize("row", TOLERATED, ids=named)
def test_a_row_without_its_inputs_is_not_passed(row):
    assert check({**row, "inputs_json": "{}"}).status == UNSUPPORTED


@pytest.mark.parametrize("row", PUBLISHED[::3], ids=named)
def test_a_row_with_broken_inputs_says_so(row):
    inputs = json.loads(row["inputs_json"])
    for name in inputs:
        if name in ("note", "formula", "trap", "model"):
            continue
        for bad in (None, "x", -5, [], {}, True, 1e308):
            outcome = check({**row, "inputs_json": json.dumps({**inputs, name: bad})})
            assert outcome.status in (FAILED, UNSUPPORTED, PASSED)
            assert outcome.says


@pytest.mark.parametrize(
    "changes",
    [
        {"inputs_json": "not json"},
        {"inputs_json": "[1]"},
        {"expected": "many"},
        {"expected": "nan"},
        {"rel_tol": "-1"},
        {"rel_tol": "inf"},
    ],
    ids=str,
)
def test_a_broken_row_fails_with_a_sentence(changes):
    outcome = check({**TOLERATED[0], **changes})
    assert outcome.status == FAILED
    assert ";" in outcome.says


def test_what_an_adapter_never_thought_of_is_unsupported(monkeypatch):
    def broken(given):
        return given.text("params").nothing

    monkeypatch.setitem(conformance.ADAPTERS, "bytes_per_param", broken)
    row = {"quantity": "bytes_per_param", "inputs_json": '{"params": "x"}', "expected": "1"}
    outcome = check({**row, "id": "a\nb", "unit": "B/param", "rel_tol": "0"})
    assert outcome.status == UNSUPPORTED
    assert outcome.id == "a b" and "AttributeError" in outcome.says


@pytest.mark.parametrize("off", [-1, 1])
def test_whole_numbers_are_met_to_the_last_digit(off):
    exact = [row for row in TOLERATED if row["quantity"] == "param_count" and row["rel_tol"] == "0"]
    assert max(int(row["expected"]) for row in exact) > 10**12
    for row in exact:
        assert check({**row, "expected": str(int(row["expected"]) + off)}).status == FAILED


def test_units_of_one_kind_are_converted_and_no_others():
    row = next(r for r in TOLERATED if r["unit"] == "GiB")
    bytes_ = float(row["expected"]) * 2**30
    assert check({**row, "unit": "B", "expected": repr(bytes_)}).status == PASSED
    assert check({**row, "unit": "GiB/s"}).status == UNSUPPORTED
    assert check({**row, "unit": ""}).status == UNSUPPORTED


def test_units_of_another_kind_are_not_passed():
    row = next(r for r in TOLERATED if r["unit"] == "GiB")
    assert check({**row, "unit": "tokens"}).status == UNSUPPORTED
    assert check({**row, "unit": "GB"}).status == FAILED  # 7 % apart
    assert check({**row, "quantity": "happiness"}).status == UNSUPPORTED


def written(path: Path, rows) -> Path:
    import csv

    with path.open("w", newline="") as file:
        writer = csv.DictWriter(file, conformance.COLUMNS)
        writer.writeheader()
        writer.writerows(rows)
    return path


def test_the_command_counts_and_names_what_failed(tmp_path, capsys):
    bad = {**TOLERATED[1], "id": "off", "expected": "1"}
    none = {**TOLERATED[2], "id": "none", "quantity": "happiness"}
    file = written(tmp_path / "rows.csv", [TOLERATED[0], bad, none, BOUNDS[-1]])
    assert conformance.main([str(file)]) == 1
    *lines, relations, last = capsys.readouterr().out.splitlines()
    assert last == "1 passed, 1 failed, 1 unsupported"
    assert re.fullmatch(r"relations: \d+ hold, \d+ broken, \d+ shown only", relations)
    assert any("off" in line and "failed" in line for line in lines)


def test_the_command_passes_the_whole_file(capsys):
    assert conformance.main([str(ORACLE)]) == 0
    assert f"{len(PUBLISHED)} passed, 0 failed, 0 unsupported" in capsys.readouterr().out


def test_text_that_no_terminal_shows_does_not_end_the_command(tmp_path, monkeypatch):
    import io
    import sys

    out = io.TextIOWrapper(io.BytesIO(), encoding="ascii")
    monkeypatch.setattr(sys, "stdout", out)
    row = {**PUBLISHED[0], "id": "モデル", "expected": "1"}
    assert conformance.main([str(written(tmp_path / "rows.csv", [row]))]) == 1
    out.flush()
    assert b"\\u30e2" in out.buffer.getvalue()


@pytest.mark.parametrize("ending", ["\n", "\r\n"])
def test_lines_inside_a_cell_and_a_byte_order_mark(tmp_path, ending):
    path = tmp_path / "rows.csv"
    cells = [
        "a\u2028b",
        "kv_bytes_per_token",
        '"{""layers"": 1,\n""kv_heads"": 1, ""head_dim"": 1}"',
    ]
    cells += ["4", "B", "0", '"two\nlines"']
    lines = [",".join(conformance.COLUMNS), ",".join(cells)]
    path.write_bytes(b"\xef\xbb\xbf" + ending.join(lines).encode())
    (row,) = read_rows(path)
    assert check(row).status == PASSED


@pytest.mark.parametrize(
    "content", [None, b"\xff\xfe", b"id,quantity\n1,2\n", b"", b'"' + b"a" * 200_000]
)
def test_a_file_that_cannot_be_used_is_one_sentence(tmp_path, capsys, content):
    path = tmp_path / "rows.csv"
    if content is not None:
        path.write_bytes(content)
    assert conformance.main([str(path)]) == 2
    said = capsys.readouterr()
    assert said.out == "" and len(said.err.splitlines()) == 1


def test_adapters_hold_no_formula():
    """No arithmetic but of units: times 8 bits, 100 per cent, 10^n, and what is one of many."""
    import ast

    allowed = {8, 100, 1000, 1e9, 1e12}
    for name in ("memory", "speed", "work", "told"):
        path = Path(conformance.__file__).parent / f"{name}.py"
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Mult | ast.Pow):
                constants = [
                    n.value for n in (node.left, node.right) if isinstance(n, ast.Constant)
                ]
                assert all(c in allowed for c in constants), ast.unparse(node)
