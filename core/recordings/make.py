"""Make the shipped recordings anew: `python -m core.recordings.make`, or `make recordings`."""

import shutil
import time

from core.engine.depths import DepthSweep
from core.engine.step import preload
from core.engine.train import ended, frames_and_steps, started, training_of
from core.recordings import FOLDER
from core.specs import AdditionSpec, DigitsSpec, PlaygroundSpec, Spec
from core.trace import ARRAYS, EVENTS, Recorder, Trace

MAX_ARRAY_BYTES = 450_000  # pictures are thinned to this; the whole recording stays under 1 MB

# Stable name -> spec, and the epochs (of the playground) or updates at which one step is recorded
# op by op.
RECORDINGS: dict[str, tuple[Spec, tuple[int, ...]]] = {
    "circle": (PlaygroundSpec(), (0, 10, 25, 41, 100, 499)),
    "digits": (DigitsSpec(), (0, 20, 100, 899)),
    "addition": (AdditionSpec(), (0, 250, 1499)),
}


def make(name: str) -> None:
    spec, ticks = RECORDINGS[name]
    folder = FOLDER / name
    shutil.rmtree(folder, ignore_errors=True)
    began = (time.perf_counter(), time.process_time())
    run = training_of(spec)
    assert not isinstance(run, DepthSweep)
    events = [started(spec, name), *frames_and_steps(run, ticks)]
    events.append(ended("finished", run.summary, run, began))
    recorder = Recorder(folder)
    recorder.write(Trace(events).thinned(MAX_ARRAY_BYTES).events)
    recorder.close()
    size = sum((folder / file).stat().st_size for file in (EVENTS, ARRAYS))
    print(f"{name}: {len(events)} events, {size / 1000:.0f} kB, {run.step} steps")


def main() -> None:
    preload()
    for name in RECORDINGS:
        make(name)


if __name__ == "__main__":
    main()
