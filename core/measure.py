"""What this machine does in a second, and models from small to large, without a page.

`python -m core calibrate` measures the machine once for each weight format and keeps it beside the
runs; `python -m core sweep` runs the ladder. The last line on stdout is one JSON object.
"""

import argparse
import contextlib
import dataclasses
import json
import signal
import sys
import time
from collections.abc import Iterator, Sequence
from typing import Any

from core import cli
from core.cli import Refused
from core.specs import WORKS, CalibrationSpec, LadderSpec, RunSpec
from core.worker_host import new_attempt

CALIBRATE = (
    "Measure what this machine does in a second, in each weight format, and keep it for\n"
    "predictions of time. Each format takes about 3 s on a quiet machine."
)
SWEEP = (
    "Measure models from small to large: bytes and seconds of training steps, of reading a prompt\n"
    "and of further tokens. Ctrl-C stops after the present point and keeps what is done."
)


def calibrate(argv: Sequence[str]) -> int:
    """Returns the exit code. Raises: Refused."""
    made = _parser("calibrate", CALIBRATE)
    made.add_argument("--formats", metavar="A,B", help="of weights; default all")
    made.add_argument("--threads", metavar="N", help="processor threads; default 1")
    given = cli.parsed(made, argv)
    fields: dict[str, Any] = {}
    if "formats" in given:
        fields["weight_formats"] = tuple(given["formats"].split(","))
    return _run(_spec(CalibrationSpec, fields, given))


def sweep(argv: Sequence[str]) -> int:
    """Returns the exit code. Raises: Refused."""
    made = _parser("sweep", SWEEP)
    usual = LadderSpec()
    for flag, meaning, default in (
        ("works", f"among {', '.join(WORKS)}", ",".join(usual.works)),
        ("formats", "of weights, or of a step's products", ",".join(usual.formats)),
        ("rungs", "parameters, about, smallest first", ",".join(map(str, usual.rungs))),
        ("budget-s", "seconds after which no point is begun", f"{usual.budget_s:g}"),
        ("batch", "sequences of a training step", str(usual.batch_size)),
        ("seq-len", "tokens of each", str(usual.seq_len)),
        ("threads", "processor threads", str(usual.threads)),
    ):
        made.add_argument(f"--{flag}", metavar="VALUE", help=f"{meaning}; default {default}")
    made.add_argument("--csv", metavar="FILE", help="write predicted and measured there too")
    given = cli.parsed(made, argv)
    fields: dict[str, Any] = {}
    for name in ("works", "formats"):
        if name in given:
            fields[name] = tuple(given[name].split(","))
    if "rungs" in given:
        fields["rungs"] = tuple(cli.value_of(int, text) for text in given["rungs"].split(","))
    for flag, field, kind in (
        ("budget_s", "budget_s", float),
        ("batch", "batch_size", int),
        ("seq_len", "seq_len", int),
    ):
        if flag in given:
            fields[field] = cli.value_of(kind, given[flag])
    return _run(_spec(LadderSpec, fields, given), given.get("csv", ""))


def _parser(command: str, about: str) -> argparse.ArgumentParser:
    return cli.Parser(
        prog=f"python -m core {command}",
        description=about,
        formatter_class=argparse.RawTextHelpFormatter,
        allow_abbrev=False,
    )


def _spec(kind: type[RunSpec], fields: dict[str, Any], given: dict[str, str]) -> RunSpec:
    if "threads" in given:
        fields["threads"] = cli.value_of(int, given["threads"])
    try:
        return kind(**fields)
    except ValueError as why:
        raise Refused(str(why)) from None


def _run(spec: Any, csv_file: str = "") -> int:
    """Measure to the end, into an ordinary run folder. Returns 0, or 1 where it failed."""
    cli.limit_threads(spec.threads)
    # Here and not above: numpy and torch read the number of threads as they load.
    from core.drive import on_threads
    from core.engine.calibrate import Calibrating
    from core.engine.ladder import Ladder
    from core.engine.train import ended, started
    from core.specimens import runs_folder
    from core.trace import Recorder, Trace

    began = (time.perf_counter(), time.process_time())
    attempt = new_attempt()
    folder = runs_folder() / spec.spec_id / attempt
    run = Ladder(spec) if isinstance(spec, LadderSpec) else Calibrating(spec)
    recorder = Recorder(folder)
    print(f"run folder: {folder}", file=sys.stderr, flush=True)
    recorder.write([on_threads(started(spec, attempt), spec.threads), *run.opening()])
    status, message = "finished", ""
    with _stopping() as stop:
        try:
            while not run.done and not stop:
                run.tick()
                recorder.write(run.frame())
                print(run.summary, file=sys.stderr, flush=True)
        except RuntimeError as why:  # a machine too busy to be calibrated
            status, message = "failed", str(why)
    if stop:
        status = "stopped"
    if status != "failed":
        run.keep(folder)
    recorder.write([ended(status, message or run.summary, run, began)])
    recorder.close()
    record: dict[str, Any] = {
        "spec_id": spec.spec_id,
        "attempt": attempt,
        "folder": str(folder),
        "spec": spec.to_json(),
        "status": status,
        "message": message or run.summary,
    }
    if isinstance(spec, LadderSpec):
        record |= _rows(Trace.read(folder), csv_file)
    print(json.dumps(record, allow_nan=False), flush=True)
    return 0 if status != "failed" else 1


def _rows(trace: Any, csv_file: str) -> dict[str, Any]:
    """Each measurement beside its prediction."""
    from pathlib import Path

    from core import sweeps
    from core.specimens import runs_folder

    rows = sweeps.rows(sweeps.measured_in(trace), runs_folder())
    if csv_file:
        Path(csv_file).write_text(sweeps.to_csv(rows), encoding="utf-8")
    return {
        "rows": [dataclasses.asdict(row) for row in rows],
        "passed_over": {str(i): why for i, why in sweeps.passed_over(trace).items()},
    }


@contextlib.contextmanager
def _stopping() -> Iterator[list[bool]]:
    """Empty until Ctrl-C; a second one ends the process."""
    came: list[bool] = []

    def note(*_: object) -> None:
        came.append(True)
        signal.signal(signal.SIGINT, signal.SIG_DFL)

    before = signal.signal(signal.SIGINT, note)
    try:
        yield came
    finally:
        signal.signal(signal.SIGINT, before)
