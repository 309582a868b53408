"""The command line: `python -m core run train` trains a model, `python -m core run generate` lets
one answer, `python -m core predict` says what a training step will take.

The last line on stdout is one JSON object, all else goes to stderr. Exit codes: 0 finished or
stopped, 1 diverged or failed, 2 for a command line that cannot be used, with one sentence why.
"""

import json
import signal
import sys
from collections.abc import Sequence
from typing import Any

from core import cli
from core.cli import Refused
from core.memory import step_flops, step_memory, timeline
from core.specimens import kv_cache_bytes_per_token, step_in_torch
from core.specs import Spec

KEPT = ("weights", "gradients", "optimizer", "activations")

TRAIN = (
    "Train a model to its end, as the Training page does, and compare what its step takes with\n"
    "what was predicted. Ctrl-C stops it after the present update; a second one at once."
)
PREDICT = (
    "Parameters, FLOPs and bytes of one update, from the settings alone: nothing is trained, and\n"
    "torch is not loaded."
)
ABOUT = """usage: python -m core COMMAND [flags]

commands:
  run train      train a model; the last line is its result, as JSON
  run generate   let a model answer a prompt; the last line is its account, as JSON
  predict        parameters, FLOPs and bytes of one update, as JSON; with --model, bytes and
                 times of a published model on a device
  calibrate      what this machine does in a second, from which its times are predicted
  sweep          measure models from small to large, predicted beside measured
  conformance    check published figures in a CSV file against the functions the pages call
  validate       what others reported in a CSV file, beside what is predicted of it

COMMAND --help lists the flags of each.
"""


def main(argv: Sequence[str]) -> int:
    """Do what the words say; returns the exit code."""
    try:
        match list(argv):
            case [] | ["--help" | "-h"] | ["run"] | ["run", "--help" | "-h"]:
                print(ABOUT, end="")
                return 0
            case ["run", "train", *rest]:
                given = cli.parsed(cli.parser("run train", TRAIN, runs=True), rest)
                return _train(given)
            case ["run", "generate", *rest]:
                from core import ask  # which loads numpy

                with _CtrlC() as ctrl_c:
                    _say(ask.generate(rest, lambda: ctrl_c.came))
                return 0
            case ["conformance", *rest]:
                from core import conformance

                return conformance.main(rest)
            case ["validate", *rest]:
                from core import validation

                return validation.main(rest)
            case ["calibrate", *rest]:
                from core import measure

                return measure.calibrate(rest)
            case ["sweep", *rest]:
                from core import measure

                return measure.sweep(rest)
            case ["predict", *rest] if "--model" in " ".join(rest):
                from core import forecast

                return forecast.main(rest)
            case ["predict", *rest]:
                given = cli.parsed(cli.parser("predict", PREDICT, runs=False), rest)
                _say(predicted(cli.spec_of(given)))
                return 0
        words = " ".join(argv[: 1 + (argv[0] == "run")])
        raise Refused(
            f"command={words[:40]!r} is unknown; choose run train, run generate or predict"
        )
    except Refused as why:
        print(_shortened(str(why)), file=sys.stderr)
        return 2


def _say(record: dict[str, Any]) -> None:
    ascii_only = (sys.stdout.encoding or "utf-8").lower() != "utf-8"
    print(json.dumps(record, ensure_ascii=ascii_only, allow_nan=False), flush=True)


def _shortened(text: str, most: int = 400) -> str:
    return text if len(text) <= most else text[:most] + "…"


# -- predict ------------------------------------------------------------------------------------


def predicted(spec: Spec) -> dict[str, Any]:
    """What one update takes, from the second on, each with its arithmetic. Raises: Refused."""
    try:
        step, cache = step_in_torch(spec), kv_cache_bytes_per_token(spec)
    except FileNotFoundError:
        name = getattr(spec, "text", "")
        raise Refused(f"text={name!r} is not kept here; give --text-file a text") from None
    memory = {name.removesuffix("_bytes"): p for name, p in step_memory(step).items()}
    fullest = max(timeline(step), key=lambda moment: moment.highest_bytes)
    flops = step_flops(step)
    return {
        "spec_id": spec.spec_id,
        "spec": spec.to_json(),
        "parameters": step.shape.n_params,
        "flops_per_step": {name: value for name, (value, _) in flops.items()},
        "memory": {name: int(memory[name].value) for name in KEPT},
        "peak": {"bytes": fullest.highest_bytes, "phase": fullest.phase, "op": fullest.op},
        "kv_cache_bytes_per_token": cache[0] if cache else None,
        "arithmetic": {
            "parameters": memory["weights"].inputs[0][1],
            **{f"flops_{name}": arithmetic for name, (_, arithmetic) in flops.items()},
            **{name: memory[name].arithmetic for name in (*KEPT, "peak")},
            **({"kv_cache": cache[1]} if cache else {}),
        },
    }


# -- run train ----------------------------------------------------------------------------------


def _train(given: dict[str, str]) -> int:
    with _CtrlC() as ctrl_c:
        n_threads = cli.threads_of(given)
        spec = cli.spec_of(given)
        expected = predicted(spec)
        cli.limit_threads(n_threads)
        # Here and not above: numpy and torch read the number of threads as they load.
        from core.drive import train

        told = train(
            spec,
            expected,
            n_threads=n_threads,
            out=given.get("out"),
            stopping=lambda: ctrl_c.came,
        )
    _say(told)
    return 0 if told["status"] in ("finished", "stopped") else 1


class _CtrlC:
    """Notes the first Ctrl-C, for the run to end in order; a second one ends the process."""

    def __init__(self) -> None:
        self.came = False

    def __enter__(self) -> "_CtrlC":
        self._before = signal.signal(signal.SIGINT, self._note)
        return self

    def _note(self, *_: object) -> None:
        self.came = True
        signal.signal(signal.SIGINT, signal.SIG_DFL)

    def __exit__(self, *_: object) -> None:
        signal.signal(signal.SIGINT, self._before)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
