"""Measured figures of the playground engine, printed: `python -m core.bench`, or `make bench`.

Medians of several repeats with their range; one process, one thread. Figures drift from machine to
machine and with its load, so tests assert none of them.
"""

import itertools
import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np

from core.engine.overhead import looks, small_transformer
from core.engine.playground import batches
from core.engine.step import preload
from core.engine.train import Training, train
from core.machines import host
from core.recordings import shipped
from core.specs import TrainSpec
from core.trace import Trace
from core.worker_host import WorkerHost

N_REPEATS = 7


def _measured(label: str, unit: str, figure: Callable[[], float]) -> None:
    figure()
    values = [figure() for _ in range(N_REPEATS)]
    median, low, high = statistics.median(values), min(values), max(values)
    print(f"{label:<58} {median:10.4g} {unit:<10} ({low:.4g} to {high:.4g})")


def _seconds(work: Callable[[], object]) -> float:
    began = time.perf_counter()
    work()
    return time.perf_counter() - began


def _step_us(spec: TrainSpec, n_steps: int = 500) -> float:
    run = Training(spec)
    x, target = run._train
    order = [i for _, i in itertools.islice(batches(len(x), spec.batch_size), n_steps)]

    def steps() -> None:
        for indices in order:
            run.network.backward(x[indices], target[indices])
            run.optimizer.update(run.network.params, run.network.gradient)

    return _seconds(steps) / n_steps * 1e6


def _epochs_per_s(spec: TrainSpec) -> float:
    return spec.n_epochs / _seconds(lambda: list(train(spec)))


def _recorded_step_ms(spec: TrainSpec) -> float:
    run = Training(spec)
    run.run_epoch()
    return _seconds(lambda: list(run.recorded_step())) * 1e3


def _epochs_until_solved(seed: int) -> float:
    run = Training(TrainSpec(seed=seed))
    x, target = run._held_out
    while run.epoch < 300:
        run.run_epoch()
        output = run.network.forward(x)[-1]
        right = np.mean((output > 0) == (target > 0))
        if right >= 0.95 and run.network.loss(x, target) < 0.1:
            break
    return run.epoch


def _first_frame_ms(host_: WorkerHost, runs: Path, seed: int) -> float:
    spec = TrainSpec(seed=seed, n_epochs=20)
    began = time.perf_counter()
    folder = runs / spec.spec_id / host_.submit(spec)
    while not (folder / "events.jsonl").exists() or not Trace.read(folder).scalars("epoch"):
        time.sleep(0.001)
    return (time.perf_counter() - began) * 1e3


def _look_figures() -> None:
    """What following a transformer's memory, and recording its step, cost."""
    for how, seconds in looks(small_transformer()).items():
        _measured(
            f"one update of 4 layers of 64, {how}", "ms", lambda seconds=seconds: seconds() * 1e3
        )


def main() -> None:
    preload()
    machine = host()
    print(f"{machine['cpu']}, {machine['n_cores']} cores, load {machine['load_1min']}")
    default, deep = TrainSpec(), TrainSpec(hidden=(8,) * 6, features=("x", "y", "x2", "y2", "xy"))
    _measured("one update, default network", "µs", lambda: _step_us(default))
    _measured("one update, 6 layers of 8", "µs", lambda: _step_us(deep))
    _measured(
        "one update, default network, AdamW", "µs", lambda: _step_us(TrainSpec(optimizer="adamw"))
    )
    _measured(
        "epochs with losses and pictures, default network",
        "epochs/s",
        lambda: _epochs_per_s(TrainSpec(n_epochs=100)),
    )
    _measured("one step recorded op by op, default", "ms", lambda: _recorded_step_ms(default))
    _measured("one step recorded op by op, 6 layers of 8", "ms", lambda: _recorded_step_ms(deep))
    _look_figures()
    recording = shipped(default)
    if recording is not None:
        _measured(
            "reading the shipped recording",
            "ms",
            lambda: _seconds(lambda: Trace.read(recording)) * 1e3,
        )
    seeds = iter(range(1, 1000))
    _measured(
        "epochs until solved, one seed after another",
        "epochs",
        lambda: _epochs_until_solved(next(seeds)),
    )
    with tempfile.TemporaryDirectory() as folder:
        worker = WorkerHost(Path(folder))
        _first_frame_ms(worker, Path(folder), 0)  # the first waits for torch
        _measured(
            "warm worker: submit to first frame",
            "ms",
            lambda: _first_frame_ms(worker, Path(folder), next(seeds)),
        )
        worker.close()


if __name__ == "__main__":
    main()
