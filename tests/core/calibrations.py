"""A calibration in round figures, of this machine: for tests that predict times."""

from typing import Any

from core import latency
from core.latency import Calibration, Pace

PACE = Pace(
    working_set_bytes=1,
    dispatch_s={"add": 1e-6},
    read_bytes_per_s=1e10,
    head_bytes_per_s=1e10,
    cache_bytes_per_s=1e10,
)


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
        "attention_flops_per_s": ((2.0, 1e9), (512.0, 1e10)),
        "moved_bytes_per_s": 1e9,
        "pick_s_per_logit": 1e-9,
    }
    return Calibration(**(given | changes))
