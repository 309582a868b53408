"""A calibration of this machine in round figures, with training steps, for tests that predict."""

from pathlib import Path
from typing import Any

from core import latency
from core.latency import Calibration, Cost, Pace, StepCosts

START_S = 1e-6  # of every op


def pace(bytes_per_s: float = 1e10) -> Pace:
    """A matrix takes a start and the time of its bytes."""
    read = tuple((n, START_S + n / bytes_per_s) for n in (1e5, 1e7))
    return Pace(
        working_set_bytes=1_000_000,
        ops={"add": ((0.0, START_S), (1e4, 3 * START_S)), "linear": ((0.0, START_S),)},
        products=read,
        heads=read,
        cache_bytes_per_s=((16.0, 4e9), (640.0, 8e9)),
    )


PACE = pace()


def calibration(weight_format: str = "fp32", **changes: Any) -> Calibration:
    given: dict[str, Any] = {
        "weight_format": weight_format,
        "threads": 1,
        "machine": latency.fingerprint(),
        "cpu": "a machine",
        "measured_unix_s": 0.0,
        "took_s": 1.0,
        "load_1min": 0.0,
        "paces": (PACE,),
        "product_flops_per_s": ((2.0, 1e10), (512.0, 1e11)),
        "size_share": ((1e4, 0.5), (1e6, 1.0)),
        "scores_per_s": ((32.0, 1e8), (512.0, 1e9)),
        "moved": {"add": ((1e3, 1e-6), (1e6, 1e-4))},
        "pick_s_per_logit": 1e-9,
        "steps": {precision: steps(precision) for precision in ("fp32", "bf16")},
    }
    return Calibration(**(given | changes))


COST = Cost(start_s=1e-5, flop_s=1e-11, number_s=0.0, byte_s=1e-10)


def steps(precision: str, cost: Cost = COST) -> StepCosts:
    phases = ("forward", "backward")
    return StepCosts(
        precision=precision,
        threads=1,
        machine=latency.fingerprint(),
        cpu="a machine",
        measured_unix_s=0.0,
        took_s=1.0,
        load_1min=0.0,
        ops={f"{phase} {kind}": cost for phase in phases for kind in ("silu", "linear")},
        update=cost,
    )


def keep_all(runs: Path, formats: tuple[str, ...] = ("fp32", "bf16")) -> None:
    """As if this machine had been calibrated into a folder of runs."""
    for name in formats:
        latency.keep(runs, calibration(name))
        latency.keep(runs, steps(name))
