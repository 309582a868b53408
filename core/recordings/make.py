"""Make the shipped recordings anew: `python -m core.recordings.make [name …]`, or
`make recordings`. `calibrations` is a name too: what this machine does in a second, by which the
recorded times can be predicted.
"""

import shutil
import sys
import time

from core import latency
from core.engine.calibrate import calibrate
from core.engine.calibrate_step import calibrate_step
from core.engine.finetune import Finetune
from core.engine.ladder import Ladder
from core.engine.step import preload
from core.engine.train import Training, ended, frames_and_steps, run_of, started
from core.engine.train_torch import TorchTraining
from core.events import Event
from core.recordings import FOLDER
from core.specs import (
    MIXED_PRECISIONS,
    AdditionSpec,
    DigitsSpec,
    FinetuneSpec,
    GenerateSpec,
    LadderSpec,
    PlaygroundSpec,
    RunSpec,
)
from core.trace import ARRAYS, EVENTS, Recorder, Trace

MAX_ARRAY_BYTES = 450_000  # pictures are thinned to this; the whole recording stays under 1 MB

# Stable name -> spec, and the epochs (of the playground) or updates at which one step is recorded
# op by op.
RECORDINGS: dict[str, tuple[RunSpec, tuple[int, ...]]] = {
    "circle": (PlaygroundSpec(), (0, 10, 25, 41, 100, 499)),
    "digits": (DigitsSpec(), (0, 20, 100, 899)),
    "addition": (AdditionSpec(), (0, 250, 1499)),
    "sum": (GenerateSpec(model="addition", prompt="12+34=", max_new_tokens=3, context=8), ()),
    "answer": (GenerateSpec(), ()),
    "smollm2_step": (FinetuneSpec(), ()),
    "ladder": (LadderSpec(), ()),
}
CALIBRATIONS = "calibrations"


def make(name: str) -> None:
    spec, ticks = RECORDINGS[name]
    folder = FOLDER / name
    shutil.rmtree(folder, ignore_errors=True)
    began = (time.perf_counter(), time.process_time())
    run = run_of(spec)
    events: list[Event] = [started(spec, name)]
    if isinstance(run, Training | TorchTraining):
        events += frames_and_steps(run, ticks)
    else:
        events += run.opening()
        while not run.done:
            if isinstance(run, Ladder):
                run.tick()
                events += run.frame()
            else:
                events += run.recorded_step()
    events.append(ended("finished", run.summary, run, began))
    if not isinstance(run, Finetune):  # half a gigabyte
        run.keep(folder)
    recorder = Recorder(folder)
    recorder.write(Trace(events).thinned(MAX_ARRAY_BYTES).events)
    recorder.close()
    size = sum((folder / file).stat().st_size for file in (EVENTS, ARRAYS))
    print(f"{name}: {len(events)} events, {size / 1000:.0f} kB, {run.step} steps")


def calibrations() -> None:
    """In every format of the ladder, with the threads of the recordings."""
    spec = LadderSpec()
    for name in spec.formats:
        latency.keep(FOLDER, calibrate(name, spec.threads))
        if name in MIXED_PRECISIONS:
            latency.keep(FOLDER, calibrate_step(name, spec.threads))


def main() -> None:
    preload()
    for name in sys.argv[1:] or (*RECORDINGS, CALIBRATIONS):
        if name == CALIBRATIONS:
            calibrations()
        else:
            make(name)


if __name__ == "__main__":
    main()
