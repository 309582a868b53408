"""The Runs page: reports of others beside predictions, and what was measured here."""

import pytest

from core.catalog import FOLDER
from core.validation import CEILING, FULL, LOWER, NONE, read_cases, validate
from tests.pages.conftest import Visit

CASES = [validate(row) for row in read_cases(FOLDER / "reports.csv")]


@pytest.mark.parametrize("kind", [FULL, LOWER, CEILING, NONE])
def test_every_class_has_its_table(visit: Visit, kind):
    page = visit("runs", **{"class": kind})
    n = sum(c.kind_of_prediction == kind for c in CASES)
    assert f"**{n} reports.**" in page.said
    if kind in (LOWER, CEILING):
        assert "bounds hold" in page.said


def test_nothing_measured_yet_is_said(visit: Visit):
    page = visit("runs", against="runs on this machine")
    assert "Measure the ladder" in page.labels


def test_a_bad_class_is_named(visit: Visit):
    assert "`class`" in visit("runs", **{"class": "best"}).said
