"""What ladders measured is found again, beside what is predicted, and goes out as text."""

import csv
import dataclasses
import io
import json
from pathlib import Path
from typing import Any

import pytest

from core import latency, sweeps
from core.engine.train import ended, started
from core.events import Event, Sample, Scalar
from core.specs import DepthsSpec, LadderSpec
from core.sweeps import Row
from core.trace import EVENTS, Recorder, Trace
from tests.core.calibrations import calibration, keep_all

SPEC = LadderSpec(works=("train", "decode"), formats=("fp32",), rungs=(100_000, 300_000))
POINTS = sweeps.points_of(SPEC)


@pytest.fixture(autouse=True)
def nothing_shipped(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(sweeps.recordings, "FOLDER", tmp_path / "shipped")
    monkeypatch.setattr(latency, "SHIPPED", tmp_path / "shipped")


def point_events(i: int, seconds: float = 0.5, **more: float) -> list[Event]:
    point = POINTS[i]
    told = {
        "peak_bytes": sweeps.predicted(point)["peak_bytes"].value,
        "weights_bytes": sweeps.predicted(point)["weights_bytes"].value,
        sweeps.SECONDS[point.work]: seconds,
        "spread_s": 0.1,
        "min_s": seconds,
        "repeats": 5,
        "contended": 0.0,
    }
    return [
        Sample(step=i, name="point", text=point.text),
        *(Scalar(step=i, name=name, value=value) for name, value in (told | more).items()),
    ]


def run(
    runs: Path,
    attempt: str,
    events: list[Event],
    *,
    status: str = "finished",
    spec: Any = SPEC,
    **of_start: Any,
) -> Path:
    """A run folder as the worker leaves it."""
    folder = runs / spec.spec_id / attempt
    recorder = Recorder(folder)
    recorder.write([dataclasses.replace(started(spec, attempt), **of_start), *events])
    if status:
        recorder.write([ended(status, "", None, (0.0, 0.0))])
    recorder.close()
    return folder


def test_what_a_run_told_is_found_by_its_folder(tmp_path: Path):
    run(tmp_path, "a", point_events(0))
    found = {m.quantity: m for m in sweeps.points(tmp_path)}
    assert found.keys() == {"weights_bytes", "peak_bytes", sweeps.SECONDS[POINTS[0].work]}
    times = found[sweeps.SECONDS[POINTS[0].work]]
    assert (times.point, times.value, times.spread, times.repeats) == (POINTS[0], 0.5, 0.1, 5)
    assert times.machine == latency.fingerprint()
    assert times.attempt == "a"
    assert found["peak_bytes"].spread == 0


def test_a_run_that_was_stopped_keeps_what_is_done(tmp_path: Path):
    run(tmp_path, "a", point_events(0), status="stopped")
    assert {m.point for m in sweeps.points(tmp_path)} == {POINTS[0]}


def test_a_run_under_way_is_told_by_its_trace_alone(tmp_path: Path):
    folder = run(tmp_path, "a", point_events(0), status="")
    assert sweeps.points(tmp_path) == ()
    assert {m.point for m in sweeps.measured_in(Trace.read(folder))} == {POINTS[0]}


def test_a_point_half_told_is_no_point(tmp_path: Path):
    half = [e for e in point_events(0) if getattr(e, "name", "") != "step_s"]
    run(tmp_path, "a", half)
    assert sweeps.points(tmp_path) == ()


def test_the_newest_of_each_point_counts(tmp_path: Path):
    run(tmp_path, "a", point_events(0, 0.5) + point_events(1, 0.6), started_unix_s=1.0)
    run(tmp_path, "b", point_events(0, 0.7), started_unix_s=2.0)
    times = [m for m in sweeps.points(tmp_path) if m.quantity.endswith("_s")]
    assert {(m.point, m.value) for m in times} == {(POINTS[0], 0.7), (POINTS[1], 0.6)}


def test_other_code_and_other_machines_stand_beside_each_other(tmp_path: Path):
    run(tmp_path, "a", point_events(0))
    run(tmp_path, "b", point_events(0), code_version="another")
    run(tmp_path, "c", point_events(0), machine={"cpu": "another"})
    peaks = [m for m in sweeps.points(tmp_path) if m.quantity == "peak_bytes"]
    assert len({(m.machine, m.code_version) for m in peaks}) == len(peaks) == 3


def test_other_runs_and_broken_ones_are_passed_by(tmp_path: Path):
    run(tmp_path, "a", point_events(0))
    run(tmp_path, "b", [], spec=DepthsSpec())
    broken = run(tmp_path, "c", point_events(1))
    (broken / EVENTS).write_text((broken / EVENTS).read_text() + "{}\n")
    empty = tmp_path / SPEC.spec_id / "d"
    empty.mkdir()
    (empty / EVENTS).write_text("")
    assert {m.attempt for m in sweeps.points(tmp_path)} == {"a"}


def test_a_shipped_ladder_counts_too(tmp_path: Path):
    shipped = tmp_path / "shipped"
    run(shipped.parent, "a", point_events(0)).rename(shipped)
    assert not (tmp_path / SPEC.spec_id / "a").exists()
    shipped.rename(tmp_path / "moved")
    shipped.mkdir()
    (tmp_path / "moved").rename(shipped / "ladder")
    assert {m.attempt for m in sweeps.points(tmp_path / "runs")} == {"a"}


def test_measured_stands_beside_predicted(tmp_path: Path):
    keep_all(tmp_path)
    run(tmp_path, "a", point_events(0) + point_events(1, contended=1.0))
    rows = sweeps.rows(sweeps.points(tmp_path), tmp_path)
    peaks = [row for row in rows if row.quantity == "peak_bytes"]
    assert [row.error for row in peaks] == [0.0] * 2
    times = {row.work: row for row in rows if row.quantity.endswith("_s")}
    for point in POINTS[:2]:
        row = times[point.work]
        foreseen = sweeps.predicted(point, calibration())[sweeps.SECONDS[point.work]]
        assert row.predicted == pytest.approx(foreseen.value)
        assert row.error == pytest.approx(foreseen.value / 0.5 - 1)
        assert row.formula.startswith("core.")
    assert {row.contended for row in times.values()} == {False, True}
    assert not any(row.contended for row in peaks), "bytes do not depend on others"


def test_without_a_calibration_no_time_is_predicted(tmp_path: Path):
    run(tmp_path, "a", point_events(0))
    rows = sweeps.rows(sweeps.points(tmp_path), tmp_path)
    times = [row for row in rows if row.quantity.endswith("_s")]
    assert [(row.predicted, row.error) for row in times] == [(None, None)]


def test_all_that_would_be_measured_is_predicted_before(tmp_path: Path):
    keep_all(tmp_path)
    rows = sweeps.predicted_rows(SPEC, tmp_path)
    assert {(r.work, r.n_params) for r in rows} == {(p.work, p.n_params) for p in POINTS}
    assert {sweeps.SECONDS[p.work] for p in POINTS} <= {r.quantity for r in rows}
    assert all(r.predicted is not None and r.measured is None for r in rows)


@pytest.mark.parametrize("formula", {r.formula for r in sweeps.predicted_rows(SPEC, Path("/none"))})
def test_every_formula_is_a_function_of_ours(formula: str):
    import importlib

    module, _, name = formula.rpartition(".")
    assert callable(getattr(importlib.import_module(module), name))


def test_rows_go_out_and_come_back(tmp_path: Path):
    keep_all(tmp_path)
    run(tmp_path, "a", point_events(0))
    rows = sweeps.rows(sweeps.points(tmp_path), tmp_path)
    rows += sweeps.predicted_rows(SPEC, tmp_path)
    assert sweeps.from_json(sweeps.to_json(rows)) == rows
    table = list(csv.DictReader(io.StringIO(sweeps.to_csv(rows))))
    assert len(table) == len(rows)
    for line, row in zip(table, rows, strict=True):
        assert line["quantity"] == row.quantity
        assert line["formula"] == row.formula
        for name in ("predicted", "measured", "error"):
            value = getattr(row, name)
            assert line[name] == ("" if value is None else str(value))


def test_json_names_every_column(tmp_path: Path):
    rows = sweeps.predicted_rows(SPEC, tmp_path)
    assert set(json.loads(sweeps.to_json(rows))[0]) == {f.name for f in dataclasses.fields(Row)}


def test_why_points_were_passed_over_is_told(tmp_path: Path):
    why = [Sample(step=3, name="passed_over", text="time: about 9 s are needed")]
    folder = run(tmp_path, "a", [*point_events(0), *why])
    assert sweeps.passed_over(Trace.read(folder)) == {3: "time: about 9 s are needed"}
