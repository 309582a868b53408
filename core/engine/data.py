"""Examples of the torch specimens: batches as a pure function of seed and step, and held-out sets.

A batch depends on nothing but the seed and the update it is for: a run that was paused, parked or
looked into goes on with the same examples.
"""

import functools
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

import numpy as np

from core import texts
from core.engine.models import IGNORED
from core.specimens import text_of
from core.specs import AdditionSpec, DigitsSpec, Spec, TransformerSpec

DIGITS = Path(__file__).parent.parent / "data" / "digits.npz"
HELD_OUT_SHARE = 0.1
N_HELD_OUT_WINDOWS = 32  # windows of a text that are looked at for its held-out loss
N_HELD_OUT_SUMS = 500


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Pair:
    """Inputs and targets: (B, D) float32 and (B,), or tokens (B, T) and targets (B, T); int64."""

    inputs: np.ndarray
    targets: np.ndarray


class Source(Protocol):
    """Where a run's examples come from."""

    n_train: int  # examples that make up one pass
    held_out: Pair

    def batch(self, step: int, micro: int) -> Pair:
        """Examples of one micro-batch of an update."""
        ...


def source(spec: Spec) -> "DigitsSource | SumsSource | TextSource":
    match spec:
        case DigitsSpec():
            return DigitsSource(spec)
        case AdditionSpec():
            return SumsSource(spec)
        case TransformerSpec():
            return TextSource(spec)
    raise TypeError(f"{spec.specimen} has no batches here")


def _rng(spec: Spec, *what: int) -> np.random.Generator:
    return np.random.default_rng((spec.seed, *what))


@functools.cache
def _digits() -> tuple[np.ndarray, np.ndarray]:
    with np.load(DIGITS, allow_pickle=False) as file:
        return file["images"], file["labels"]


class DigitsSource:
    """1,437 images to learn from, 360 held out; each pass in an order of its own."""

    def __init__(self, spec: DigitsSpec) -> None:
        images, labels = _digits()
        order = _rng(spec, 0).permutation(len(images))
        self._spec = spec
        self._x = (images.reshape(-1, 64) / 16).astype(np.float32)[order]
        self._y = labels.astype(np.int64)[order]
        self.n_train = int(len(order) * 0.8)
        self.held_out = Pair(inputs=self._x[self.n_train :], targets=self._y[self.n_train :])

    @property
    def steps_per_epoch(self) -> int:
        return -(-self.n_train // self._spec.batch_size)

    def batch(self, step: int, micro: int) -> Pair:
        epoch, part = divmod(step, self.steps_per_epoch)
        order = _order(self._spec.seed, epoch, self.n_train)
        chosen = order[part * self._spec.batch_size : (part + 1) * self._spec.batch_size]
        return Pair(inputs=self._x[chosen], targets=self._y[chosen])


@functools.lru_cache(maxsize=4)
def _order(seed: int, epoch: int, n: int) -> np.ndarray:
    return np.random.default_rng((seed, 1, epoch)).permutation(n)


class SumsSource:
    """9,000 of all 10,000 sums to learn from; only the answer's characters count."""

    def __init__(self, spec: AdditionSpec) -> None:
        number = {c: i for i, c in enumerate(texts.SUM_CHARACTERS)}
        tokens = np.array([[number[c] for c in s] for s in texts.sums()], np.int64)
        tokens = tokens[_rng(spec, 0).permutation(len(tokens))]
        self._spec = spec
        self.n_train = int(len(tokens) * (1 - HELD_OUT_SHARE))
        self._tokens = tokens
        self.held_out = _answers(tokens[self.n_train :][:N_HELD_OUT_SUMS])

    def batch(self, step: int, micro: int) -> Pair:
        chosen = _rng(self._spec, 1, step, micro).integers(0, self.n_train, self._spec.batch_size)
        return _answers(self._tokens[chosen])


def _answers(tokens: np.ndarray) -> Pair:
    """Each character predicts the next; those before the answer are not asked for."""
    targets = tokens[:, 1:].copy()
    targets[:, : -texts.ANSWER_LENGTH] = IGNORED
    return Pair(inputs=tokens[:, :-1], targets=targets)


class TextSource:
    """Windows of a text; its last tenth is held out."""

    def __init__(self, spec: TransformerSpec) -> None:
        text = text_of(spec)
        number = {c: i for i, c in enumerate(text.vocabulary)}
        tokens = np.fromiter((number[c] for c in text.characters), np.int64)
        texts.require_length(text, spec.seq_len)
        cut = max(spec.seq_len + 1, int(len(tokens) * (1 - HELD_OUT_SHARE)))
        cut = min(cut, len(tokens) - spec.seq_len - 1)
        self._spec, self._tokens = spec, tokens
        self._n_starts = cut - spec.seq_len
        self.n_train = cut
        last = len(tokens) - spec.seq_len - 1
        starts = np.linspace(cut, last, min(N_HELD_OUT_WINDOWS, last - cut + 1)).astype(int)
        self.held_out = self._windows(np.unique(starts))

    def _windows(self, starts: np.ndarray) -> Pair:
        at = starts[:, None] + np.arange(self._spec.seq_len + 1)
        window = self._tokens[at]
        return Pair(inputs=window[:, :-1], targets=window[:, 1:])

    def batch(self, step: int, micro: int) -> Pair:
        rng = _rng(self._spec, 1, step, micro)
        return self._windows(rng.integers(0, self._n_starts, self._spec.batch_size))
