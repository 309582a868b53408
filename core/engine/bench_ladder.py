"""How far predicted times are off, printed: `python -m core.engine.bench_ladder`, or `make bench`.

For every work and format the machine is calibrated, then every rung of the ladder is measured and
set beside the prediction, and beside the plain rule: bytes of the weights over the memory's
bandwidth for a further token, operations over the fastest product for all else. Calibration and
measurement take turns, as often as `--rounds` says, and medians of the errors are shown; a star
marks rungs at which the machine was busy. Run it on a quiet machine:

    python -m core.engine.bench_ladder --threads 2 --rounds 3 --works decode,prefill,train
"""

import argparse
import statistics
from collections.abc import Sequence
from dataclasses import replace

import torch

from core import limits, sweeps
from core.engine import ladder
from core.engine.bandwidth import read_gb_s
from core.engine.calibrate import Unsteady, calibrate
from core.engine.calibrate_step import calibrate_step, ready_step
from core.engine.step import preload
from core.latency import Calibration
from core.machines import host
from core.ops import executed_flops
from core.specs import LADDER_FORMATS, MIXED_PRECISIONS, RUNGS, WORKS, LadderSpec
from core.sweeps import SECONDS, Point

COUNTED_FROM = 800_000  # parameters: smaller models are shown and not counted
GOALS = {"decode": (0.10, 0.25), "prefill": (0.09, 0.30), "train": (0.12, 0.25)}  # mean, worst


def measured_s(point: Point) -> tuple[float, float, bool]:
    """Median and least seconds of a point, and whether the machine was busy."""
    torch.set_num_threads(point.threads)
    if point.work == "train":
        ready = ready_step(point.shape, point.format, point.batch_size, point.seq_len)
        found = ladder.measured_step(ready)
    else:
        decoder = ladder.decoder_of(point.shape, point.format, point.seq_len)
        found = ladder.measured_trip(decoder, point.work, point.seq_len)
    seconds = found.seconds
    return statistics.median(seconds), min(seconds), found.contended


def plain_s(point: Point, calibration: Calibration, bytes_per_s: float) -> float:
    """By the plain rule."""
    if point.work == "decode":
        ops = sweeps.trip_ops(point.shape, point.work, point.format, point.seq_len)
        return sum(op.read_bytes for op in ops if op.kind == "linear") / bytes_per_s
    if point.work == "prefill":
        ops = sweeps.trip_ops(point.shape, point.work, point.format, point.seq_len)
        fastest = max(rate for _, rate in calibration.product_flops_per_s)
        return sum(op.forward_flops for op in ops) / fastest
    step = sweeps.step_of(point)
    fastest = 1 / min(c.flop_s for c in _products(calibration, point.format) if c.flop_s)
    return executed_flops(step.ops) / fastest


def _products(calibration: Calibration, precision: str):  # noqa: ANN202
    costs = calibration.steps[precision]
    return [costs.of(phase, "linear") for phase in ("forward", "backward")]


def _calibrated(point: Point, answers: Calibration | None) -> Calibration | None:
    """Anew; of a training step the answers' is carried along."""
    if point.work != "train":
        return calibrate(point.format, point.threads)
    answers = answers or calibrate("fp32", point.threads)
    return replace(answers, steps={point.format: calibrate_step(point.format, point.threads)})


def compare(points: Sequence[Point], rounds: int, bytes_per_s: float) -> None:
    """The rungs of one work in one format."""
    first = points[0]
    errors: list[list[float]] = [[] for _ in points]
    plain: list[list[float]] = [[] for _ in points]
    seconds: list[list[float]] = [[] for _ in points]
    busy = [False] * len(points)
    took: list[float] = []
    answers: Calibration | None = None
    for _ in range(rounds):
        try:
            calibration = answers = _calibrated(first, answers)
        except Unsteady as why:
            print(f"{first.work} {first.format}: not calibrated: {why}")
            continue
        assert calibration is not None
        took.append(
            calibration.steps[first.format].took_s if first.work == "train" else calibration.took_s
        )
        for i, point in enumerate(points):
            median_s, _, contended = measured_s(point)
            predicted = sweeps.predicted(point, calibration)[SECONDS[point.work]].value
            errors[i].append(predicted / median_s - 1)
            plain[i].append(plain_s(point, calibration, bytes_per_s) / median_s - 1)
            seconds[i].append(median_s)
            busy[i] = busy[i] or contended
    if not took:
        return
    print(
        f"\n{first.work} {first.format}, {first.threads} threads, calibrated in "
        f"{statistics.median(took):.1f} s: predicted / measured - 1"
    )
    counted: list[tuple[float, float]] = []
    for i, point in enumerate(points):
        error, simple = statistics.median(errors[i]), statistics.median(plain[i])
        if point.n_params >= COUNTED_FROM:
            counted.append((error, simple))
        print(
            f"  {point.n_params / 1e6:7.1f}M {statistics.median(seconds[i]) * 1e3:10.3f} ms "
            f"{error:+7.0%}   plain rule {simple:+7.0%}{'  *' if busy[i] else ''}",
            flush=True,
        )
    if counted:
        mean, worst = (f([abs(e) for e, _ in counted]) for f in (statistics.mean, max))
        simple = statistics.mean(abs(s) for _, s in counted)
        goal_mean, goal_worst = GOALS[first.work]
        met = "met" if mean <= goal_mean and worst <= goal_worst else "missed"
        print(
            f"  mean {mean:.1%}, worst {worst:.0%} (goal {goal_mean:.0%}, {goal_worst:.0%}: {met})"
            f"; plain rule mean {simple:.0%}",
            flush=True,
        )


def main() -> None:
    given = argparse.ArgumentParser(description="How far predicted times are off.")
    machine = host()
    given.add_argument("--threads", type=int, default=min(2, machine["n_cores"]))
    given.add_argument("--rounds", type=int, default=1)
    given.add_argument("--works", default=",".join(reversed(WORKS)))
    given.add_argument("--formats", default=",".join(LADDER_FORMATS))
    given.add_argument("--most", type=float, default=RUNGS[-1], help="parameters")
    asked = given.parse_args()
    preload()
    print(f"{machine['cpu']}, {machine['n_cores']} cores, load {machine['load_1min']}")
    bytes_per_s = read_gb_s(asked.threads) * 1e9
    print(f"memory is read at {bytes_per_s / 1e9:.1f} GB/s at best")
    rungs = tuple(n for n in RUNGS if n <= asked.most)
    for work in asked.works.split(","):
        for name in asked.formats.split(","):
            if work == "train" and name not in MIXED_PRECISIONS:
                continue
            spec = LadderSpec(works=(work,), formats=(name,), rungs=rungs, threads=asked.threads)
            fitting = [
                point
                for point in sweeps.points_of(spec)
                if sweeps.needed_bytes(point) <= limits.max_run_bytes()
            ]
            compare(fitting, asked.rounds, bytes_per_s)


if __name__ == "__main__":
    main()
