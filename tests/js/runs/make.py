"""The recorded steps that the tests of tiles read: `python -m tests.js.runs.make`.

One real step of each, looked into after a few updates, with the op table as the page sends it.
Small models, so that a recording stays below 150 kB. Times and the machine's name differ from one
making to the next; make them anew when the event schema or what a step records has changed.
"""

import json
import shutil
from pathlib import Path

import torch

from components.widgets.training import WORDS, _characters, _op
from core.engine.train import started
from core.engine.train_torch import TorchTraining
from core.specimens import ops_of
from core.specs import AdditionSpec, DigitsSpec, Spec
from core.trace import Recorder

HERE = Path(__file__).parent
N_UPDATES = 20  # before the recorded one: the optimizer's state is there, gradients are not noise

RUNS: dict[str, Spec] = {
    "addition": AdditionSpec(d_model=16, n_head=2, batch_size=8),
    "digits": DigitsSpec(),
    # A step of more phases than four: blocks computed again, and two micro-batches.
    "checkpointed": AdditionSpec(
        n_layer=1, d_model=8, n_head=2, batch_size=2, checkpointing=True, accumulation=2
    ),
}


def make(name: str, spec: Spec) -> None:
    folder = HERE / name
    shutil.rmtree(folder, ignore_errors=True)
    run = TorchTraining(spec)
    recorder = Recorder(folder)
    recorder.write([started(spec, "20260101-000000-000000"), *run.opening()])
    while run.step < N_UPDATES:
        run.tick()
    recorder.write(run.frame())
    recorder.write(run.recorded_step())
    recorder.close()
    header = {
        "ops": [_op(op) for op in ops_of(spec)],
        "words": WORDS[spec.specimen],
        **_characters(spec),
    }
    (folder / "header.json").write_text(json.dumps(header, ensure_ascii=False) + "\n")
    size = sum(path.stat().st_size for path in folder.iterdir())
    assert size < 150_000, (name, size)
    print(f"{name}: {size / 1000:.0f} kB")


def main() -> None:
    torch.set_num_threads(1)
    for name, spec in RUNS.items():
        make(name, spec)


if __name__ == "__main__":
    main()
