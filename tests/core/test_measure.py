"""`python -m core calibrate` and `python -m core sweep`: runs without a page."""

import csv
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from core import latency, measure, sweeps
from core.cli import Refused
from core.engine import calibrate as calibrating
from core.engine import calibrate_step
from core.specs import CalibrationSpec, LadderSpec
from core.trace import Trace
from tests.core.calibrations import calibration, steps

ROOT = Path(__file__).resolve().parents[2]
SWEEP = ["--rungs", "100000", "--formats", "fp32,int8", "--works", "train,decode"]
SWEEP += ["--batch", "1", "--seq-len", "16"]


@pytest.fixture(autouse=True)
def runs(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    monkeypatch.setenv("BOTHWAYS_RUNS", str(tmp_path))
    monkeypatch.setattr(latency, "SHIPPED", tmp_path / "shipped")
    for name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "KINETO_LOG_LEVEL"):
        monkeypatch.setenv(name, os.environ.get(name, "1"))  # the command sets them
    return tmp_path


def said(capsys: pytest.CaptureFixture[str]) -> dict:
    out = capsys.readouterr().out.splitlines()
    return json.loads(out[-1])


def test_a_sweep_is_an_ordinary_run(runs: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    table = tmp_path / "ladder.csv"
    assert measure.sweep([*SWEEP, "--csv", str(table)]) == 0
    told = said(capsys)
    assert told["status"] == "finished"
    spec = LadderSpec.from_json(told["spec"])
    assert spec.rungs == (100_000,)
    found = {(row["work"], row["format"]) for row in told["rows"]}
    assert found == {("train", "fp32"), ("decode", "fp32"), ("decode", "int8")}
    bytes_off = [r["error"] for r in told["rows"] if r["quantity"] == "weights_bytes"]
    assert bytes_off == [0.0] * 3
    trace = Trace.read(Path(told["folder"]))
    assert trace.ended is not None and trace.ended.status == "finished"
    assert {m.attempt for m in sweeps.points(runs)} >= {told["attempt"]}
    assert len(list(csv.DictReader(table.read_text().splitlines()))) == len(told["rows"])


def test_a_calibration_is_kept_for_every_prediction(
    runs: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):
    monkeypatch.setattr(calibrating, "calibrate", lambda name, threads: calibration(name))
    monkeypatch.setattr(calibrating, "calibrate_step", lambda name, threads: steps(name))
    assert measure.calibrate(["--formats", "bf16,int8"]) == 0
    told = said(capsys)
    assert CalibrationSpec.from_json(told["spec"]).weight_formats == ("bf16", "int8")
    for name in ("bf16", "int8"):
        kept = latency.stored(runs, name, 1)
        assert kept is not None
        assert kept.steps == {"bf16": steps("bf16")}  # what a model is trained in, and no more


@pytest.mark.parametrize(
    ("command", "argv", "why"),
    [
        (measure.sweep, ["--works", "swim"], "works='swim' is unknown"),
        (measure.sweep, ["--rungs", "many"], "rung='many' is not a whole number"),
        (measure.sweep, ["--budget-s", "0"], "budget_s=0"),
        (measure.sweep, ["--steps", "3"], "is no flag of python -m core sweep"),
        (measure.calibrate, ["--formats", "fp3"], "weight_format='fp3' is unknown"),
        (measure.calibrate, ["--threads", "0"], "threads=0 is not a whole number from 1 to 256"),
    ],
)
def test_a_command_that_cannot_be_is_refused(command, argv: list[str], why: str):
    with pytest.raises(Refused, match=why):
        command(argv)


def test_ctrl_c_keeps_what_is_done(tmp_path: Path):
    """A second of measuring, an interrupt: the run has ended as stopped, with its points."""
    code = (
        "import os, signal, sys\n"
        "from core import measure\n"
        "from core.engine import ladder\n"
        "whole = ladder.Ladder.tick\n"
        "def tick(run):\n"
        "    whole(run)\n"
        "    os.kill(os.getpid(), signal.SIGINT)\n"
        "ladder.Ladder.tick = tick\n"
        f"sys.exit(measure.sweep({SWEEP!r}))\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code],
        cwd=ROOT,
        env=os.environ | {"BOTHWAYS_RUNS": str(tmp_path)},
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert done.returncode == 0, done.stderr
    told = json.loads(done.stdout.splitlines()[-1])
    assert told["status"] == "stopped"
    assert {row["work"] for row in told["rows"]} == {"train"}
    assert {m.attempt for m in sweeps.points(tmp_path)} >= {told["attempt"]}


def test_a_step_is_calibrated_in_a_moment(monkeypatch: pytest.MonkeyPatch):
    """On the smallest models alone: every kind of op of both families has its cost."""
    monkeypatch.setattr(
        calibrate_step, "PROBES", tuple(p for p in calibrate_step.PROBES if p.shape.d_model == 64)
    )
    monkeypatch.setattr(calibrate_step, "LEAST_SWEEPS", 1)
    monkeypatch.setattr(calibrate_step, "MOST_S", 0.0)
    found = calibrate_step.calibrate_step("bf16", 1)
    assert latency.StepCosts.from_json(json.loads(json.dumps(found.to_json()))) == found
    kinds = {"linear", "flash", "rmsnorm", "silu", "rope", "layernorm", "gelu", "scores", "softmax"}
    for phase in ("forward", "backward"):
        assert {f"{phase} {kind}" for kind in kinds} <= found.ops.keys()
    parts = [n for c in found.ops.values() for n in (c.start_s, c.flop_s, c.number_s, c.byte_s)]
    assert min(parts) >= 0
    assert found.update.seconds(0, 10, 1e6) > 0
