"""Answers at one value of a setting after another: time of a token, and what differs besides.

Every point reads the same text, so that all do the same work: the prompt, and what the first point
(fp32, where formats are compared) writes after it. Points are measured in rounds, there and back,
and keep their weights meanwhile, so that a machine that grows busier does so for all of them.
"""

import math
import statistics
import time
from collections.abc import Iterator
from dataclasses import dataclass, field

import numpy as np
import torch

from core import answers, pretrained
from core.answers import Unanswerable
from core.engine import sampling, weights
from core.engine.decoder import Decoder
from core.engine.ledger import storage_bytes
from core.engine.measured_run import MeasuredRun
from core.engine.measuring import LEAST_CPU_SHARE, alone
from core.events import Event, Sample, Scalar
from core.specs import AnswerSweepSpec, GenerateSpec
from core.tokenizers import tokenizer_of

N_ROUNDS = 6  # the first reads the whole text, the others
FURTHER_TRIPS = 6  # of it, evenly spread, or as many as take
ROUND_S = 1.5
AGAIN_S = 0.5  # a prefill that took longer is not repeated
COMPARED_TOKENS = 256  # most of the text whose logits are compared: 50 MB at 49,152 tokens

Trip = tuple[int, list[int]]  # tokens in the cache before, tokens that it reads


@dataclass(slots=True, kw_only=True)
class _Point:
    """A value of the setting, and what was measured of it so far."""

    value: str | int | bool
    spec: GenerateSpec
    decoder: Decoder | None = None
    ttft_s: list[float] = field(default_factory=list)
    trip_s: list[float] = field(default_factory=list)
    cpu_s: float = 0.0  # of all that was timed
    disturbed: bool = False  # another measurement ran at the same time
    logits_max_diff: float = math.nan  # NaN: not compared
    tokens_changed: float = math.nan

    @property
    def text(self) -> str:
        """As in a link: `fp32`, `32`, `on`."""
        if isinstance(self.value, bool):
            return "on" if self.value else "off"
        return str(self.value)


class AnswerSweep(MeasuredRun):
    """Driven like a training run; a tick measures one point once, `step` counts points known.

    Raises: Unanswerable if the prompt does not fit; Unavailable if the model is not here.
    """

    def __init__(self, spec: AnswerSweepSpec) -> None:
        super().__init__()
        torch.set_num_threads(spec.threads)
        self.spec = spec
        self.tokenizer = tokenizer_of(spec.model)
        shape = pretrained.shape_of(spec.model)
        self._points = [
            _Point(value=value, spec=spec.at(value))
            for value in spec.points_within(shape.max_seq_len)
        ]
        first = self._points[0].spec
        self.prompt = self.tokenizer.prompt_ids(first)
        if spec.over != "context":
            answers.require_room(first, len(self.prompt), shape.max_seq_len)
        elif not self.prompt:
            raise Unanswerable("the prompt is empty; write at least one character")
        self._n_new = min(spec.max_new_tokens, first.context - len(self.prompt))
        if spec.over == "context":
            self._n_new = spec.max_new_tokens
        elif self._n_new < 2:
            raise Unanswerable(
                f"context={spec.context} has room for {self._n_new} new tokens after a prompt of "
                f"{len(self.prompt)}, and a decode needs 2; shorten the prompt"
            )
        self._ticks = 0
        self._loaded: dict[str, torch.Tensor] | None = None
        self._base: Decoder | None = None  # whose weights all points share, but for formats
        self._written: list[int] = []  # by the first point, after the prompt
        self._reference_TV: torch.Tensor | None = None  # its logits

    # -- driving --------------------------------------------------------------------------------

    @property
    def step(self) -> int:
        return min(self._ticks, len(self._points))

    @property
    def summary(self) -> str:
        return f"{self.step} points"

    @property
    def moment(self) -> int:
        """Changes whenever there is something new to tell."""
        return self._ticks

    @property
    def done(self) -> bool:
        return self._ticks >= N_ROUNDS * len(self._points)

    def tick(self) -> None:
        """Measure the next point once: the first round has them in order, the second backwards."""
        a_round, i = divmod(self._ticks, len(self._points))
        i = len(self._points) - 1 - i if a_round % 2 else i
        point = self._points[i]
        decoder = self._ready(point)
        if math.isnan(point.logits_max_diff) and self.spec.over == "weight_format":
            self._compare(point, decoder)
        with alone() as found:
            self._measure(point, decoder, a_round)
        point.disturbed = point.disturbed or not found.locked
        self._latest += _told(i, point, decoder, self._n_new)
        self._ticks += 1
        if self._ticks >= len(self._points):
            self._loaded = self._reference_TV = None

    def opening(self) -> Iterator[Event]:
        yield Sample(step=0, name="points", text=" ".join(p.text for p in self._points))
        yield Scalar(step=0, name="n_points", value=len(self._points))
        yield Scalar(step=0, name="n_rounds", value=N_ROUNDS)
        yield Scalar(step=0, name="prompt_tokens", value=len(self.prompt))

    def checkpoint(self) -> dict[str, np.ndarray]:
        """What was measured; weights and cache are made again."""
        saved = {"ticks": np.array(self._ticks), "written": np.array(self._written, np.int64)}
        for i, p in enumerate(self._points):
            rest = [p.cpu_s, p.disturbed, p.logits_max_diff, p.tokens_changed]
            saved |= {
                f"ttft_s_{i}": np.array(p.ttft_s),
                f"trip_s_{i}": np.array(p.trip_s),
                f"rest_{i}": np.array(rest, np.float64),
            }
        return saved

    def restore(self, saved: dict[str, np.ndarray]) -> None:
        self._ticks, self._written = int(saved["ticks"]), saved["written"].tolist()
        for i, p in enumerate(self._points):
            p.ttft_s, p.trip_s = saved[f"ttft_s_{i}"].tolist(), saved[f"trip_s_{i}"].tolist()
            p.cpu_s, disturbed, p.logits_max_diff, p.tokens_changed = saved[f"rest_{i}"].tolist()
            p.disturbed = bool(disturbed)

    # -- weights --------------------------------------------------------------------------------

    def _ready(self, point: _Point) -> Decoder:
        """A point's decoder, warm and with its text known; made the first time it is asked for."""
        if point.decoder is None:
            point.decoder = self._made(point)
            if not self._written:
                self._write(point.decoder)
            prefill, *_, last = self._trips(point)
            if point.trip_s:  # taken up again: the cache is filled anew
                _trip(point.decoder, *prefill)
            _trip(point.decoder, *last)
        return point.decoder

    def _made(self, point: _Point) -> Decoder:
        spec = point.spec
        if self.spec.over == "weight_format":
            return self._built(spec)
        most = max(self._points, key=lambda p: p.spec.batch_size * p.spec.context).spec
        if self._base is None:
            self._base = self._built(most)
        if self.spec.over == "context":
            return self._base  # a prefix of its cache is a shorter one
        return self._base.with_room(batch_size=spec.batch_size, context=spec.context)

    def _built(self, spec: GenerateSpec) -> Decoder:
        began = time.perf_counter()
        if self._loaded is None:
            _, self._loaded = weights.load(spec.model)
            load_s = time.perf_counter() - began
            self._latest.append(Scalar(step=0, name="load_s", value=load_s))
        decoder = Decoder(
            pretrained.shape_of(spec.model),
            self._loaded,
            spec.weight_format,
            batch_size=spec.batch_size,
            context=spec.context,
            raw=weights.blocks_of(spec.model) if spec.weight_format == "file" else None,
        )
        if self.spec.over != "weight_format":
            self._loaded = None
        return decoder

    # -- text -----------------------------------------------------------------------------------

    def _write(self, decoder: Decoder) -> None:
        """The text after the prompt: what the first point's model finds likeliest; over `context`
        the prompt again and again.
        """
        if self.spec.over == "context":
            most = max(p.spec.context for p in self._points)
            repeated = self.prompt * -(-most // len(self.prompt))
            self._written = repeated[len(self.prompt) : most]
            return
        decoder.length = 0
        tokens = self.prompt
        while len(self._written) < self._n_new:
            logits_BV = decoder.trip(torch.tensor([tokens] * decoder.batch_size))
            tokens = [int(logits_BV[0].argmax())]
            self._written += tokens
        text = self.tokenizer.decode(self._written)
        self._latest.append(Sample(step=0, name="text", text=text))
        self._latest.append(Scalar(step=0, name="new_tokens", value=len(self._written)))

    def _trips(self, point: _Point) -> list[Trip]:
        """The prefill, then every decode."""
        n_prompt, text = len(self.prompt), self.prompt + self._written
        if self.spec.over == "context":
            end = point.spec.context
            return [(0, text[: end - 1])] + [(end - 1, text[end - 1 : end])] * self._n_new
        ends = range(n_prompt + 1, n_prompt + self._n_new)
        decodes = [(end - 1, text[end - 1 : end]) for end in ends]
        if not point.spec.cache:
            decodes = [(0, text[:end]) for end in ends]
        return [(0, self.prompt), *decodes]

    # -- measuring ------------------------------------------------------------------------------

    def _measure(self, point: _Point, decoder: Decoder, a_round: int) -> None:
        """Prefill, then decodes: all of the text, in a further round some."""
        prefill, *decodes = self._trips(point)
        end = decodes[-1][0] + len(decodes[-1][1])
        every = 1 if a_round == 0 else -(-len(decodes) // FURTHER_TRIPS)
        picked: list[int] = []
        if a_round == 0 or max(point.ttft_s) < AGAIN_S:  # else the cache has it from before
            seconds, cpu_s, token = _trip(decoder, *prefill)
            point.ttft_s.append(seconds)
            point.cpu_s += cpu_s
            picked.append(token)
        spent_s = 0.0
        for start, tokens in decodes[a_round % every :: every]:
            seconds, cpu_s, token = _trip(decoder, start, tokens)
            point.trip_s.append(seconds)
            point.cpu_s += cpu_s
            picked.append(token)
            spent_s += seconds
            if spent_s > ROUND_S and a_round:
                break
        decoder.length = end
        if a_round == 0 and self.spec.over != "context":
            pairs = zip(picked, self._written, strict=True)
            point.tokens_changed = sum(token != wanted for token, wanted in pairs)

    def _compare(self, point: _Point, decoder: Decoder) -> None:
        """Largest difference of any logit of the text from the first point's."""
        text = self.prompt + self._written
        if self._reference_TV is None:
            first = self._ready(self._points[0])
            self._reference_TV = _logits(first, text)
        logits_TV = self._reference_TV if point is self._points[0] else _logits(decoder, text)
        point.logits_max_diff = float((logits_TV - self._reference_TV).abs().max())


def _trip(decoder: Decoder, start: int, tokens: list[int]) -> tuple[float, float, int]:
    """Wall and processor seconds of a trip with the choice of a token, and the first sequence's."""
    tokens_BT = torch.tensor([tokens] * decoder.batch_size)
    decoder.length = start
    cpu = time.process_time()
    began = time.perf_counter()
    probs_BV = sampling.probabilities(decoder.trip(tokens_BT))
    picked_B = probs_BV.argmax(dim=-1)
    seconds = time.perf_counter() - began
    return seconds, time.process_time() - cpu, int(picked_B[0])


def _logits(decoder: Decoder, text: list[int]) -> torch.Tensor:
    """Of the first sequence's last tokens, each told the ones before, shape (T, V)."""
    n_before = max(0, len(text) - 1 - COMPARED_TOKENS)
    tokens_BT = torch.tensor([text[:-1]] * decoder.batch_size)
    decoder.length = 0
    if n_before:
        decoder.trip(tokens_BT[:, :n_before])
    return decoder.trip(tokens_BT[:, n_before:], every=True)[0]


def _told(i: int, point: _Point, decoder: Decoder, n_new: int) -> Iterator[Event]:
    """All that is known of a point; told again, better known, after each of its rounds.

    A point without a cache keeps none from trip to trip, though a trip fills one.
    """
    spec = point.spec
    ttft_s, tpot_s = statistics.median(point.ttft_s), statistics.median(point.trip_s)
    timed_s = sum(point.ttft_s) + sum(point.trip_s)
    contended = point.disturbed or point.cpu_s / timed_s < LEAST_CPU_SHARE
    filled_bytes = decoder.filled_bytes if spec.cache else 0
    own_cache = decoder.context == spec.context
    told = {
        "tpot_s": tpot_s,
        "tpot_spread_s": float(np.subtract(*np.percentile(point.trip_s, [75, 25]))),
        "tpot_min_s": min(point.trip_s),
        "ttft_s": ttft_s,
        "tokens_per_s": n_new * spec.batch_size / (ttft_s + (n_new - 1) * tpot_s),
        "n_decodes": len(point.trip_s),
        "weights_bytes": storage_bytes(decoder.weights),
        "read_bytes_per_token": decoder.read_bytes / spec.batch_size,
        "kv_cache_bytes": storage_bytes(decoder.cache) if own_cache else filled_bytes,
        "kv_filled_bytes": filled_bytes,
        "logits_max_diff": point.logits_max_diff,
        "tokens_changed": point.tokens_changed,
        "contended": float(contended),
    }
    yield Sample(step=i, name="point", text=point.text)
    for name, value in told.items():
        if not math.isnan(value):
            yield Scalar(step=i, name=name, value=value)
