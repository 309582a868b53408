"""Measured figures of answers, printed: `python -m core.engine.bench_answers`, or `make bench`.

Ratios within one run, medians with their range; what is compared takes turns. `python -m
core.engine.bench_answers llamacpp` compares with llama.cpp on the same file, where it is installed.
"""

import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import torch

from core import latency, pretrained
from core.engine import sampling, weights
from core.engine.answer import Answer
from core.engine.bandwidth import read_gb_s
from core.engine.calibrate import Unsteady, calibrate
from core.engine.decoder import Decoder
from core.engine.llama import llama_of
from core.engine.step import preload
from core.machines import host
from core.specs import WEIGHT_FORMATS, GenerateSpec
from core.tokenizers import tokenizer_of
from core.trace import Recorder

MODEL = "smollm2"
PROMPT = "The water cycle begins when"
N_NEW = 24
ROUNDS = 5
CONTEXT = 128


def _said(label: str, values: list[float], unit: str) -> float:
    median = statistics.median(values)
    low, high = min(values), max(values)
    print(f"{label:<58} {median:10.4g} {unit:<10} ({low:.4g} to {high:.4g})", flush=True)
    return median


def _decode_s(decoder: Decoder, ids: list[int], n_new: int = N_NEW) -> float:
    """Median seconds of a further token, with the choice of it."""
    decoder.length = 0
    tokens, took = torch.tensor([ids]), []
    with torch.inference_mode():
        for _ in range(n_new):
            began = time.perf_counter()
            probs = sampling.probabilities(decoder.trip(tokens), 0.0)
            tokens = probs.argmax(dim=-1)[:, None]
            took.append(time.perf_counter() - began)
    return statistics.median(took[1:])


def _alternating(works: dict[str, Callable[[], float]]) -> dict[str, list[float]]:
    found: dict[str, list[float]] = {name: [] for name in works}
    for work in works.values():
        work()  # warm
    for _ in range(ROUNDS):
        for name, work in works.items():
            found[name].append(work())
    return found


def formats(threads: int) -> None:
    """Time of a token in each weight format, beside the prediction from a calibration made now."""
    torch.set_num_threads(threads)
    shape, found = weights.load(MODEL)
    ids = tokenizer_of(MODEL).encode(PROMPT)
    blocks = weights.blocks_of(MODEL)
    decoders = {
        name: Decoder(shape, found, name, context=CONTEXT, raw=blocks if name == "file" else None)
        for name in WEIGHT_FORMATS
    }
    works = {name: lambda d=d: _decode_s(d, ids) for name, d in decoders.items()}
    took = _alternating(works)
    reads = read_gb_s(threads)
    print(f"\n{threads} thread{'s' * (threads > 1)}; memory is read at {reads:.1f} GB/s at best")
    for name, decoder in decoders.items():
        median = _said(f"a further token, {name}", [s * 1e3 for s in took[name]], "ms")
        gb_s = decoder.read_bytes / median / 1e6
        said = f"{'':<58} {gb_s:10.4g} GB/s, {gb_s / reads:.0%} of the reading; "
        try:
            calibration = calibrate(name, threads)
        except Unsteady as why:
            print(f"{said}not calibrated: {why}")
            continue
        spec = GenerateSpec(
            prompt=PROMPT,
            weight_format=name,
            threads=threads,
            context=CONTEXT,
            max_new_tokens=N_NEW,
        )
        predicted = latency.predict_answer(shape, spec, len(ids), calibration)["tpot_s"].value
        print(f"{said}predicted {predicted * 1e3:.4g} ms, {predicted * 1e3 / median - 1:+.0%}")


def beside_transformers(threads: int) -> None:
    """Time of a token of transformers' generate over ours: same weights, prompt and threads."""
    torch.set_num_threads(threads)
    shape, found = weights.load(MODEL)
    ids = tokenizer_of(MODEL).encode(PROMPT)
    decoder = Decoder(shape, found, context=CONTEXT)
    try:
        llama = llama_of(shape, found)
    except ImportError:
        print("transformers is not installed: make test installs it")
        return

    def theirs(cache: str) -> float:
        given = {
            "attention_mask": torch.ones(1, len(ids), dtype=torch.int64),
            "do_sample": False,
            "eos_token_id": None,
            "pad_token_id": 0,
            "cache_implementation": cache,
        }
        took = []
        with torch.inference_mode():
            for n_new in (1, N_NEW):
                began = time.perf_counter()
                llama.generate(torch.tensor([ids]), max_new_tokens=n_new, **given)  # type: ignore[operator]
                took.append(time.perf_counter() - began)
        return (took[1] - took[0]) / (N_NEW - 1)

    found_s = _alternating(
        {
            "ours": lambda: _decode_s(decoder, ids),
            "dynamic": lambda: theirs("dynamic"),
            "static": lambda: theirs("static"),
        }
    )
    best = min(("dynamic", "static"), key=lambda name: statistics.median(found_s[name]))
    ratios = [a / b for a, b in zip(found_s[best], found_s["ours"], strict=True)]
    _said(f"transformers' generate over ours, {best} cache, {threads} threads", ratios, "times")


def recording(threads: int) -> None:
    """What timing each op, keeping probabilities and writing them adds to a token."""
    torch.set_num_threads(threads)
    shape, found = weights.load(MODEL)
    ids = tokenizer_of(MODEL).encode(PROMPT)
    decoder = Decoder(shape, found, context=CONTEXT)
    spec = GenerateSpec(
        prompt=PROMPT, threads=threads, context=CONTEXT, max_new_tokens=N_NEW, looks=0
    )

    def recorded() -> float:
        run = Answer(spec)
        run.tick()
        with tempfile.TemporaryDirectory() as folder:
            recorder = Recorder(Path(folder))
            began = time.perf_counter()
            while not run.answered:
                run.tick()
                recorder.write(run.frame())
            took = time.perf_counter() - began
            recorder.close()
        return took / (run.step - 1)

    def bare() -> float:
        decoder.length = 0
        tokens, began = torch.tensor([ids]), 0.0
        with torch.inference_mode():
            for i in range(N_NEW):
                began = time.perf_counter() if i == 1 else began
                probs = sampling.probabilities(decoder.trip(tokens), 0.0)
                tokens = probs.argmax(dim=-1)[:, None]
        return (time.perf_counter() - began) / (N_NEW - 1)

    took = _alternating({"recorded": recorded, "bare": bare})
    ratios = [a / b for a, b in zip(took["recorded"], took["bare"], strict=True)]
    _said("recorded over bare, whole time a token", ratios, "times")


def llamacpp() -> None:
    """Time of a token of llama.cpp over ours, on the same file."""
    try:
        from llama_cpp import Llama  # type: ignore[import-not-found]
    except ImportError:
        print("llama.cpp is not built here: pip install llama-cpp-python compiles it (10-20 min)")
        return
    torch.set_num_threads(2)
    shape, found = weights.load(MODEL)
    ids = tokenizer_of(MODEL).encode(PROMPT)
    decoder = Decoder(shape, found, "int4", context=CONTEXT)
    model = Llama(str(pretrained.located(MODEL)), n_ctx=CONTEXT, n_threads=2, verbose=False)

    def theirs() -> float:
        model.reset()
        model.eval(ids)
        began = time.perf_counter()
        for _ in range(N_NEW):
            model.eval([model.sample(temp=0)])
        return (time.perf_counter() - began) / N_NEW

    took = _alternating({"ours": lambda: _decode_s(decoder, ids), "theirs": theirs})
    ratios = [a / b for a, b in zip(took["theirs"], took["ours"], strict=True)]
    _said("llama.cpp (Q4_1) over ours (int4), 2 threads", ratios, "times")


def main() -> None:
    preload()
    if sys.argv[1:] == ["llamacpp"]:
        llamacpp()
        return
    machine = host()
    print(f"{machine['cpu']}, {machine['n_cores']} cores, load {machine['load_1min']}")
    if pretrained.find(MODEL) is None:
        print(f"{MODEL} is not installed: make models")
        return
    recording(1)
    most = min(2, machine["n_cores"])
    beside_transformers(most)
    for threads in sorted({1, most}):
        formats(threads)


if __name__ == "__main__":
    main()
