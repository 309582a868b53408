"""Make the shipped recordings anew: `python -m core.recordings.make`, or `make recordings`."""

import shutil
import time

from core.engine.step import preload
from core.engine.train import Training, ended, frames_and_steps, started
from core.recordings import FOLDER
from core.specs import TrainSpec
from core.trace import ARRAYS, EVENTS, Recorder, Trace

MAX_ARRAY_BYTES = 450_000  # pictures are thinned to this; the whole recording stays under 1 MB

# Stable name -> spec, and the epochs after which one step is recorded op by op.
RECORDINGS = {
    "circle": (TrainSpec(), (0, 10, 25, 41, 100, 499)),
}


def make(name: str) -> None:
    spec, epochs = RECORDINGS[name]
    folder = FOLDER / name
    shutil.rmtree(folder, ignore_errors=True)
    began = (time.perf_counter(), time.process_time())
    run = Training(spec)
    events = [started(spec, name), *frames_and_steps(run, epochs)]
    events.append(ended("finished", f"{run.epoch} passes over the data", run, began))
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
