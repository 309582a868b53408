"""An answer to a prompt: the prefill, then a trip for each further token, and what each tells.

Driven like a training run: a tick is one trip. The trips are timed while nothing else is done
between two reads of the clock; those to be looked into are run once more afterwards, from the same
cache, so that looking costs no measured time.
"""

import itertools
import statistics
import time
from collections.abc import Callable, Iterator

import numpy as np
import torch

from core import answers, pretrained
from core.drawing import block, evenly, shown_ops
from core.engine import sampling, weights
from core.engine.decoder import Decoder, Done
from core.engine.ledger import Ledger, storage_bytes
from core.engine.measured_run import MeasuredRun
from core.engine.measuring import LEAST_CPU_SHARE
from core.events import ANSWER_CATEGORIES, Array, Event, Memory, Sample, Scalar, Token, quantise
from core.ops import Decode, expand
from core.specs import GenerateSpec
from core.tokenizers import tokenizer_of

N_TOP = 20  # of the likeliest tokens, kept for each trip
SHOWN_CHANNELS = 48
SHOWN_TOKENS = 48
PART_CHANNELS = 24  # of what each part of the model gives for the newest token, in every trip
SHOWN_LAYERS = 12  # whose attention is kept, evenly spread, where there are more


class Answer(MeasuredRun):
    """One run of a spec. Raises: Unanswerable if the prompt does not fit or the model is not here.

    Deterministic: the same spec on the same machine and threads gives the same tokens.
    """

    def __init__(self, spec: GenerateSpec) -> None:
        super().__init__()  # `step` counts trips
        torch.set_num_threads(spec.threads)
        self.spec = spec
        self.tokenizer = tokenizer_of(spec.model)
        self.prompt = self.tokenizer.prompt_ids(spec)
        shape = pretrained.shape_of(spec.model)
        answers.require_room(spec, len(self.prompt), shape.max_seq_len)
        began = time.perf_counter()
        _, tensors = weights.load(spec.model)
        self.decoder = Decoder(
            shape,
            tensors,
            spec.weight_format,
            batch_size=spec.batch_size,
            context=spec.context,
            raw=weights.blocks_of(spec.model) if spec.weight_format == "file" else None,
        )
        del tensors
        self._load_s = time.perf_counter() - began
        self._generator = torch.Generator().manual_seed(spec.seed)
        self.tokens_BS = torch.tensor([self.prompt] * spec.batch_size, dtype=torch.int64)
        self._streams = [self.tokenizer.stream() for _ in range(spec.batch_size)]
        self._over = [False] * spec.batch_size
        self._texts = [""] * spec.batch_size
        self._began_s: float | None = None
        self._trip_s: list[float] = []
        self._cpu_s = 0.0
        self._looked = 0
        self._told = self._stopped = False
        self._before = self._sha256()
        # Ids of the ops of a trip, in the order in which the decoder runs them.
        rows = expand(answers.answer_ops(shape, Decode(batch_size=1, context=1)))
        self.op_ids = [op.id for op in rows]
        self._parts = _parts(self.op_ids)

    # -- driving --------------------------------------------------------------------------------

    @property
    def moment(self) -> tuple[int, int, bool]:
        """Changes whenever there is something new to tell."""
        return self.step, self._looked, self._told

    @property
    def summary(self) -> str:
        return f"{self.step} tokens"

    @property
    def answered(self) -> bool:
        """No further token comes."""
        full = self.tokens_BS.shape[1] > self.spec.context  # the newest is not read yet
        enough = self.step >= self.spec.max_new_tokens
        return enough or full or all(self._over) or (self._stopped and self.step > 0)

    def stop(self) -> None:
        """Take no further trip; what was said is still looked into and accounted for."""
        self._stopped = True

    @property
    def done(self) -> bool:
        return self._told

    def tick(self) -> None:
        """One trip; after the last, the looks, one at a time; then the account."""
        if not self.answered:
            self._take_trip()
        elif self._looked < self._n_looks:
            self._latest += self._look(self._looked)
            self._looked += 1
        else:
            self._latest += self._account()
            self._told = True

    @property
    def _n_looks(self) -> int:
        return min(self.spec.looks, self.step)

    def trip_tokens(self, step: int) -> torch.Tensor:
        """What trip `step` reads, shape (B, T): the prompt, the newest token, or without a cache
        everything so far.
        """
        n_prompt = len(self.prompt)
        end = n_prompt + step
        start = 0 if step == 0 or not self.spec.cache else end - 1
        return self.tokens_BS[:, start:end].clone()

    def _take_trip(self) -> None:
        spec, step = self.spec, self.step
        tokens_BT = self.trip_tokens(step)
        ends: list[float] = []
        parts: list[torch.Tensor] = []  # what each part of the model gives
        clock = time.perf_counter

        def done(output: torch.Tensor) -> None:
            if len(ends) in self._parts:
                parts.append(output)
            ends.append(clock())

        if not spec.cache:
            self.decoder.length = 0
        cpu = time.process_time()
        start = clock()
        logits_BV = self.decoder.trip(tokens_BT, done)
        probs_BV = sampling.probabilities(logits_BV, spec.temperature)
        new_B = sampling.draw(probs_BV, spec.temperature, spec.top_k, spec.top_p, self._generator)
        end = clock()
        self._cpu_s += time.process_time() - cpu
        if self._began_s is None:
            self._began_s = start
        self._trip_s.append(end - start)
        self.tokens_BS = torch.cat([self.tokens_BS, new_B[:, None]], dim=1)
        self._tell(step, probs_BV, new_B, start - self._began_s, end - self._began_s)
        op_ends = np.array(ends, dtype=np.float64) - start
        self._latest.append(
            Array(step=step, op="trip", role="op_ends", values=op_ends.astype(np.float32))
        )
        self._latest.append(Array(step=step, op="trip", role="parts", values=self._newest(parts)))
        self._done += 1

    def _newest(self, parts: list[torch.Tensor]) -> np.ndarray:
        """Some channels of the newest token of the first sequence: parts × channels, float32."""
        rows = [p.view(self.spec.batch_size, -1, p.shape[-1])[0, -1].numpy() for p in parts]
        n_channels = min(PART_CHANNELS, *map(len, rows))
        widths = {len(row) for row in rows}  # of the stream, and of the logits
        where = {width: evenly(width, n_channels) for width in widths}
        return np.stack([row[where[len(row)]] for row in rows])

    def _tell(
        self, step: int, probs_BV: torch.Tensor, new_B: torch.Tensor, start_s: float, end_s: float
    ) -> None:
        for row, token in enumerate(new_B.tolist()):
            if self._over[row]:
                continue
            ended = token in self.tokenizer.eos_ids
            text = "" if ended else self._streams[row].push(token)
            self._texts[row] += text
            self._over[row] = ended
            self._latest.append(
                Token(
                    step=step,
                    row=row,
                    phase="prefill" if step == 0 else "decode",
                    id=token,
                    text=self.tokenizer.piece(token) if ended else text,
                    start_s=start_s,
                    end_s=end_s,
                    prob=float(probs_BV[row, token]),
                    top=self._top(probs_BV[row]) if row == 0 else [],
                )
            )

    def _top(self, probs_V: torch.Tensor) -> list[list]:
        values, ids = probs_V.topk(min(N_TOP, len(probs_V)))
        piece = self.tokenizer.piece
        return [
            [i, piece(i), round(p, 6)] for i, p in zip(ids.tolist(), values.tolist(), strict=True)
        ]

    # -- telling --------------------------------------------------------------------------------

    def opening(self) -> Iterator[Event]:
        """The prompt, the op table's order, and what is held before the first trip."""
        yield Sample(step=0, name="ops", text=" ".join(self.op_ids))
        yield Sample(step=0, name="weights_sha256_before", text=self._before)
        yield Scalar(step=0, name="prompt_tokens", value=len(self.prompt))
        yield Scalar(step=0, name="load_s", value=self._load_s)
        decoder = self.decoder
        yield Scalar(step=0, name="weights_bytes", value=storage_bytes(decoder.weights))
        yield Scalar(step=0, name="kv_cache_bytes", value=storage_bytes(decoder.cache))
        yield Scalar(step=0, name="read_bytes_per_token", value=decoder.read_bytes)
        for token in self.prompt:
            text = self.tokenizer.piece(token)
            yield Token(step=0, row=0, phase="prompt", id=token, text=text)

    def recorded_step(self) -> Iterator[Event]:
        """One more trip: what a run opens with, and what a visitor's single step is."""
        if not self.done:
            self.tick()
        yield from self.frame()

    def checkpoint(self) -> dict[str, np.ndarray]:
        """The tokens so far: the cache is filled again from them."""
        return {
            "tokens": self.tokens_BS.numpy(),
            "over": np.array(self._over),
            "trip_s": np.array(self._trip_s),
            "cpu_s": np.array(self._cpu_s),
            "looked": np.array(self._looked),
            "generator": self._generator.get_state().numpy(),
        }

    def restore(self, saved: dict[str, np.ndarray]) -> None:
        self.tokens_BS = torch.from_numpy(saved["tokens"].copy())
        self._over = saved["over"].tolist()
        self._trip_s = saved["trip_s"].tolist()
        self._cpu_s, self._looked = float(saved["cpu_s"]), int(saved["looked"])
        self._generator.set_state(torch.from_numpy(saved["generator"].copy()))
        self._done = len(self._trip_s)
        self._began_s = time.perf_counter() - sum(self._trip_s)
        for row, stream in enumerate(self._streams):
            ids = self.tokens_BS[row, len(self.prompt) :].tolist()
            self._texts[row] = "".join(map(stream.push, ids))
        if self.step and self.spec.cache:
            self.decoder.length = 0
            self.decoder.trip(self.tokens_BS[:, :-1])

    def _account(self) -> Iterator[Event]:
        """What the whole answer took, once it is complete."""
        for row, text in enumerate(self._texts):
            yield Sample(step=self.step, name=f"text_{row}", text=text)
        decodes = self._trip_s[1:]
        total_s = sum(self._trip_s)
        told = {
            "new_tokens": self.step,
            "ttft_s": self._trip_s[0],
            "tokens_per_s": self.step * self.spec.batch_size / total_s,
            "kv_filled_bytes": self.decoder.filled_bytes,
            "contended": float(self._cpu_s / total_s < LEAST_CPU_SHARE),
        }
        if decodes:
            told["tpot_s"] = statistics.median(decodes)
            told["tpot_spread_s"] = float(np.subtract(*np.percentile(decodes, [75, 25])))
        for name, value in told.items():
            yield Scalar(step=self.step, name=name, value=value)
        after = self._sha256()
        yield Sample(step=self.step, name="weights_sha256_after", text=after)

    def _sha256(self) -> str:
        return weights.sha256(self.decoder.canonical())

    # -- looking --------------------------------------------------------------------------------

    def _look(self, step: int) -> Iterator[Event]:
        """A trip once more: its values, its attention, its memory."""
        tokens_BT = self.trip_tokens(step)
        length = self.decoder.length
        start = 0 if step == 0 or not self.spec.cache else len(self.prompt) + step - 1

        def again(done: Done) -> torch.Tensor:
            self.decoder.length = start
            return self.decoder.trip(tokens_BT, done)

        yield from self._values(step, again)
        yield from self._memory(step, tokens_BT, again)
        self.decoder.length = max(length, self.decoder.length)
        yield Scalar(step=step, name="looked", value=1.0)

    def _values(self, step: int, again: Callable[[Done], torch.Tensor]) -> Iterator[Event]:
        outputs: list[torch.Tensor] = []
        again(lambda output: outputs.append(output.clone()))
        ids = self.op_ids
        shown = shown_ops(ids, self.decoder.shape.n_layer)
        for op, output in zip(ids, outputs, strict=True):
            if op in shown and op != "rope":  # angles are no values of this text
                yield self._shown(step, op, output)
        shape = self.decoder.shape
        turned = "rope" if shape.positions == "rope" else "qkv"
        for i in evenly(shape.n_layer, SHOWN_LAYERS).tolist():
            queries = outputs[ids.index(f"blocks.{i}.attn.{turned}")]
            yield self._attention(step, i, queries)

    def _shown(self, step: int, op: str, output: torch.Tensor) -> Array:
        """Of the first sequence: new tokens × some channels, one scale for both signs."""
        width = output.shape[-1]
        first = output.reshape(self.spec.batch_size, -1, width)[0].float().numpy()
        numbers = first[np.ix_(evenly(len(first), SHOWN_TOKENS), evenly(width, SHOWN_CHANNELS))]
        top = max(float(np.abs(numbers).max(initial=0)), 1e-30)
        return quantise(step, op, "activation", numbers, low=-top, high=top)

    def _attention(self, step: int, i: int, qkv: torch.Tensor) -> Array:
        """Probabilities of every head in the first sequence: new tokens × tokens so far."""
        shape = self.decoder.shape
        n_group = shape.n_head // shape.n_kv_head
        h_TNE = qkv.reshape(self.spec.batch_size, -1, qkv.shape[-1])[0].unflatten(
            -1, (-1, shape.d_head)
        )
        q_HTE = h_TNE[:, : shape.n_head].transpose(0, 1).float()
        k_KSE = self.decoder.keys(i)[0].float()
        scores_HTS = q_HTE @ k_KSE.repeat_interleave(n_group, 0).transpose(1, 2)
        scores_HTS *= shape.d_head**-0.5
        n_new, n_all = scores_HTS.shape[1:]
        future_TS = torch.ones(n_new, n_all, dtype=torch.bool).triu_(n_all - n_new + 1)
        probs_HTS = scores_HTS.masked_fill_(future_TS, -torch.inf).softmax(-1)
        return quantise(
            step,
            f"blocks.{i}.attn.flash",
            "attention",
            block(probs_HTS.numpy()),
            low=0.0,
            high=1.0,
        )

    def _memory(
        self, step: int, tokens_BT: torch.Tensor, again: Callable[[Done], torch.Tensor]
    ) -> Iterator[Event]:
        phase = "prefill" if step == 0 else "decode"
        following = iter([*self.op_ids[1:], ""])
        ledger = Ledger(
            ANSWER_CATEGORIES,
            weights=self.decoder.weights,
            inputs=[tokens_BT, *self.decoder.constants],
            cache=self.decoder.cache,
        )
        with torch.inference_mode(), ledger:
            ledger.mark(phase, self.op_ids[0])
            again(lambda _: ledger.mark(phase, next(following)))
        samples = ledger.samples()
        for _, op, held_bytes in _highest_and_last(samples):
            yield Memory(step=step, phase=phase, op=op, held_bytes=held_bytes)
        peak = max(sum(held.values()) for _, _, held in samples)
        yield Scalar(step=step, name="peak_bytes", value=peak)


def _parts(ops: list[str]) -> frozenset[int]:
    """Places of the ops whose outputs stand for a part of the model: embedding, blocks, head."""
    embedded = max(i for i, op in enumerate(ops) if op.startswith("embed."))
    blocks = (i for i, op in enumerate(ops) if op.endswith(".mlp.add"))
    return frozenset((embedded, *blocks, ops.index("head")))


def _highest_and_last(
    samples: list[tuple[str, str, dict[str, int]]],
) -> list[tuple[str, str, dict[str, int]]]:
    """Of each op its highest moment and its end."""
    kept: list[tuple[str, str, dict[str, int]]] = []
    for _, of_one in itertools.groupby(samples, key=lambda sample: sample[1]):
        group = list(of_one)
        top = max(range(len(group)), key=lambda j: sum(group[j][2].values()))
        kept += [group[j] for j in sorted({top, len(group) - 1})]
    return kept
