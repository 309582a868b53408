"""One answer without a page: its flags, its run, and the account of it."""

import argparse
import contextlib
import dataclasses
import sys
import time
from collections.abc import Callable, Sequence
from typing import Any

from core import answers, cli, pretrained
from core.answer_account import Told, predicted_bytes
from core.cli import Refused
from core.events import Token
from core.specs import GenerateSpec
from core.tokenizers import tokenizer_of
from core.trace import Trace
from core.worker_host import new_attempt

GENERATE = (
    "Let a model answer a prompt, as the Inference page does, and compare what it takes with what\n"
    "was predicted. Ctrl-C stops it after the present token."
)
_FLAGS = {  # flag -> field of the spec, and what it means
    "model": ("model", "smollm2, a shipped recording such as addition, or a run: spec_id/attempt"),
    "prompt": ("prompt", "text to go on from; with --chat, what is asked"),
    "max-new-tokens": ("max_new_tokens", "tokens to write, unless the model ends before"),
    "dtype": ("weight_format", "of the weights: fp32, bf16, int8, int4, or file (its own blocks)"),
    "context": ("context", "tokens that the cache has room for"),
    "batch": ("batch_size", "sequences of the same prompt at once"),
    "temperature": ("temperature", "0: always the likeliest token"),
    "top-k": ("top_k", "draw among so many of the likeliest; 0: all"),
    "top-p": ("top_p", "draw among the fewest whose probabilities reach this sum"),
    "seed": ("seed", "of the drawing"),
    "threads": ("threads", "processor threads"),
}
_SWITCHES = {
    "no-cache": "read the whole text again for every token",
    "chat": "put the prompt into the model's chat template",
}


def parser() -> argparse.ArgumentParser:
    made = cli.Parser(
        prog="python -m core run generate",
        description=GENERATE,
        formatter_class=argparse.RawTextHelpFormatter,
        allow_abbrev=False,
    )
    fields = {f.name: f for f in dataclasses.fields(GenerateSpec)}
    for flag, (name, what) in _FLAGS.items():
        made.add_argument(
            f"--{flag}", metavar="VALUE", help=f"{what}; default {fields[name].default}"
        )
    for flag, what in _SWITCHES.items():
        made.add_argument(f"--{flag}", action="store_const", const="true", help=what)
    made.add_argument("--out", metavar="FOLDER", help="run folder to write; default: temporary")
    return made


def spec_of(given: dict[str, str]) -> GenerateSpec:
    """The spec that flags describe; the context of a small model is its own. Raises: Refused."""
    fields = {f.name: f for f in dataclasses.fields(GenerateSpec)}
    record: dict[str, Any] = {"specimen": GenerateSpec.specimen, "looks": 1}
    for flag, (name, _) in _FLAGS.items():
        text = given.get(flag.replace("-", "_"))
        if text is not None:
            record[name] = cli.value_of(fields[name].type, text)
    record["cache"] = "no_cache" not in given
    record["chat"] = "chat" in given
    try:
        spec = GenerateSpec.from_json(record)
        shape = pretrained.shape_of(spec.model)
        if "context" not in given and spec.context > shape.max_seq_len:
            spec = dataclasses.replace(spec, context=shape.max_seq_len)
        ids = tokenizer_of(spec.model).prompt_ids(spec)
        answers.require_room(spec, len(ids), shape.max_seq_len)
    except ValueError as why:
        raise Refused(str(why)) from None
    return spec


def generate(argv: Sequence[str], stopping: Callable[[], bool]) -> dict[str, Any]:
    """What an answer was and took, beside what was predicted. Raises: Refused."""
    given = cli.parsed(parser(), argv)
    spec = spec_of(given)
    cli.limit_threads(spec.threads)
    # Here and not above: numpy and torch read the number of threads as they load.
    from core.drive import new_folder, on_threads
    from core.engine.answer import Answer
    from core.engine.train import ended, started

    began = (time.perf_counter(), time.process_time())
    attempt = new_attempt()
    try:
        run = Answer(spec)
    except ValueError as why:
        raise Refused(str(why)) from None
    folder, recorder = new_folder(given.get("out"), spec, attempt)
    print(f"run folder: {folder}", file=sys.stderr, flush=True)
    recorder.write([on_threads(started(spec, attempt), spec.threads), *run.opening()])
    while not run.done:
        if stopping() and not run.answered:
            run.stop()
        run.tick()
        recorder.write(run.frame())
    status = "stopped" if stopping() else "finished"
    with contextlib.suppress(OSError):  # a full disk
        recorder.write([ended(status, run.summary, run, began)])
        recorder.close()
    return {
        "spec_id": spec.spec_id,
        "attempt": attempt,
        "folder": str(folder),
        "spec": spec.to_json(),
        "status": status,
        **account(Trace.read(folder), spec),
    }


def account(trace: Trace, spec: GenerateSpec) -> dict[str, Any]:
    """The figures of a finished answer. Bytes predicted beside measured."""
    from core.engine.bandwidth import read_gb_s

    told = Told.by(trace)
    measured, scalars = told.measured, told.scalars
    shape = pretrained.shape_of(spec.model)
    predicted = predicted_bytes(spec, shape, told.n_prompt, told.n_trips)

    def both(quantity: str) -> tuple[int, int]:
        return int(predicted[quantity].value), int(measured[quantity])

    cache = both("kv_cache_bytes")
    memory = {"weights": both("held_bytes"), "cache": cache, "peak": both("answer_peak_bytes")}
    tpot_s = measured.get("tpot_s")
    _, read = both("read_bytes_per_token")
    return {
        "text": told.text,
        "prompt_tokens": told.n_prompt,
        "new_tokens": told.n_trips,
        "token_ids": [
            e.id
            for e in trace.events
            if isinstance(e, Token) and e.row == 0 and e.phase != "prompt"
        ],
        "ttft_s": measured["ttft_s"],
        "tpot_s": tpot_s,
        "tokens_per_s": measured["tokens_per_s"],
        "read_bytes_per_token": read,
        "bandwidth_share": read / tpot_s / (read_gb_s(spec.threads) * 1e9) if tpot_s else None,
        "kv_cache_bytes": dict(zip(("predicted", "measured"), cache, strict=True)),
        "contended": bool(scalars["contended"]),
        "memory": {
            name: {"predicted_bytes": of[0], "measured_bytes": of[1]} for name, of in memory.items()
        },
        "weights_sha256": {"before": told.before, "after": told.after},
    }
