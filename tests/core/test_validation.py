"""Reports beside predictions: classes, bounds that hold, broken rows, the command."""

import json
import re

import pytest

from core.catalog import FOLDER
from core.validation import (
    CEILING,
    COLUMNS,
    FULL,
    LOWER,
    NONE,
    main,
    read_cases,
    summary,
    validate,
)

REPORTS = FOLDER / "reports.csv"
ROWS = read_cases(REPORTS)
CASES = [validate(row) for row in ROWS]


@pytest.mark.parametrize("case", CASES, ids=lambda c: c.id)
def test_a_bound_holds_and_every_class_says_why(case):
    assert case.holds is not False, (case.predicted, case.reported, case.says)
    assert case.kind_of_prediction in (FULL, LOWER, CEILING, NONE)
    assert case.says
    assert (case.predicted is None) == (case.kind_of_prediction == NONE)


def test_every_report_of_decoding_lies_under_its_ceiling():
    decodes = [c for c in CASES if c.kind_of_prediction == CEILING]
    assert len(decodes) >= 15
    assert all(c.ratio >= 1 for c in decodes)


def test_full_predictions_of_files_and_caches_are_exact():
    near = [c for c in CASES if c.kind_of_prediction == FULL and c.kind == "infer-memory"]
    assert len(near) >= 10
    assert all(abs(c.ratio - 1) < 0.005 for c in near)


def test_no_prediction_is_made_from_too_little():
    for c in CASES:
        if c.kind_of_prediction == NONE:
            assert c.predicted is None and c.ratio is None and c.holds is None


@pytest.mark.parametrize("row", ROWS, ids=lambda r: r["id"])
def test_the_name_of_a_row_plays_no_part(row):
    again = validate({**row, "id": "other", "source": ""})
    first = validate(row)
    assert (again.predicted, again.kind_of_prediction) == (
        first.predicted,
        first.kind_of_prediction,
    )


@pytest.mark.parametrize("row", ROWS[::5], ids=lambda r: r["id"])
def test_rubbish_in_a_field_is_no_traceback(row):
    given = json.loads(row["config_json"])
    for name in given:
        for bad in (None, -1, "x", [], {}, True, 1e308, ""):
            case = validate({**row, "config_json": json.dumps({**given, name: bad})})
            assert case.says or case.reported is None


@pytest.mark.parametrize("text", ["", "[]", "nope", "{"])
def test_a_row_without_inputs_is_said(text):
    assert validate({**ROWS[0], "config_json": text}).kind_of_prediction == NONE


def test_a_broken_bound_is_told(tmp_path, capsys):
    import csv

    row = next(r for r, c in zip(ROWS, CASES, strict=True) if c.kind_of_prediction == CEILING)
    path = tmp_path / "cases.csv"
    with path.open("w", newline="") as file:
        writer = csv.DictWriter(file, [*COLUMNS, "notes"])
        writer.writeheader()
        writer.writerow({**row, "reported": "1e9"})
    assert main([str(path)]) == 1
    assert "BROKEN" in capsys.readouterr().out


def test_the_command_prints_every_case(capsys):
    assert main([str(REPORTS)]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == len(CASES) + 2
    assert lines[-1] == summary(CASES)
    assert re.search(r"\d+ full prediction, \d+ lower bound, \d+ ceiling", lines[-1])


@pytest.mark.parametrize("argv", [[], ["a", "b"], ["/nowhere.csv"]])
def test_a_command_line_that_cannot_be_used(argv, capsys):
    assert main(argv) == 2
    assert capsys.readouterr().err
