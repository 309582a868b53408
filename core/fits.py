"""Whether a model fits a device, by how much, and the least change that would make it fit.

What a program needs besides (its context, what the allocator cannot use) is told as a band and not
put into the figure.

Sources: `HEADROOM` from the differences between allocated and reserved memory in the cases of
tests/data/cases.csv: a CUDA context of about 0.5 to 1.4 GB, and fragmentation.
"""

import bisect
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from core import footprints
from core.architecture import ModelShape
from core.cache import FORMATS as CACHE_FORMATS
from core.cache import tokens_that_fit
from core.footprints import PREFILL_CHUNK, Footprints, Serving, Training, serving, training
from core.quantised import weights_bytes
from core.sizes import Bytes
from core.states import RECIPES

HEADROOM = Bytes.of(1.5, "GB")
RANKS = (2, 4, 8, 16, 32, 64, 128, 256, 512, 1024, 2048)
SHORT = 2048  # tokens, where a shorter context is offered
NARROWER = ("bf16", "Q8_0", "fp8", "Q4_K_M", "Q2_K")  # weights that are offered, widest first


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """Needed beside usable."""

    needed: Bytes
    usable: Bytes

    @property
    def fits(self) -> bool:
        return self.needed <= self.usable

    @property
    def tight(self) -> bool:
        """It fits by less than what a program needs besides."""
        return self.fits and self.left < HEADROOM

    @property
    def left(self) -> Bytes:
        """Bytes to spare; below 0, those that are missing."""
        return self.usable - self.needed


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """A change of settings and what would be needed then. `settings`: URL keys and values."""

    says: str
    needed: Bytes
    fits: bool
    settings: tuple[tuple[str, str], ...] = ()


def training_verdict(shape: ModelShape, how: Training, usable: Bytes) -> Verdict:
    return Verdict(needed=_peak(training([shape], how)), usable=usable)


def serving_verdict(shape: ModelShape, how: Serving, usable: Bytes) -> Verdict:
    return Verdict(needed=_peak(serving([shape], how)), usable=usable)


def _peak(found: Footprints) -> Bytes:
    return Bytes(float(found.peak[0]))


def training_changes(shape: ModelShape, how: Training, usable: Bytes) -> tuple[Change, ...]:
    """Changes from the one that costs least to the one that costs most: one alone, then all that
    came before it together, then more devices. Ends with the first that fits.
    """
    found: list[Change] = []
    together, said, keys = how, [], []
    for words, changed, key in _training_steps(how):
        needed = _peak(training([shape], changed))
        change = Change(says=words, needed=needed, fits=needed <= usable, settings=(key,))
        found.append(change)
        if change.fits:
            return tuple(found)
        together = _merged(together, changed, how)
        said.append(words)
        keys.append(key)
    if len(said) > 1:
        needed = _peak(training([shape], together))
        found.append(
            Change(
                says="all of these together",
                needed=needed,
                fits=needed <= usable,
                settings=tuple(keys),
            )
        )
        if found[-1].fits:
            return tuple(found)
    before = "all of these, and " if len(said) > 1 else "".join(f"{words}, and " for words in said)
    for ranks in RANKS:
        needed = sharded(shape, together, ranks)
        if needed <= usable or ranks == RANKS[-1]:
            found.append(
                Change(
                    says=f"{before}ZeRO-3 over {ranks:,} devices",
                    needed=needed,
                    fits=needed <= usable,
                )
            )
            break
    return tuple(found)


def _training_steps(how: Training) -> Iterator[tuple[str, Training, tuple[str, str]]]:
    if how.attention == "explicit":
        yield "flash attention", replace(how, attention="flash"), ("attention", "flash")
    if not how.recompute:
        yield "compute blocks again in backward", replace(how, recompute=True), ("recompute", "on")
    if how.batch_size > 1:
        yield "one sequence at once", replace(how, batch_size=1), ("batch", "1")
    recipe = RECIPES[how.recipe]
    if recipe.computes == "fp32" and not recipe.autocast:
        yield "products in bf16", replace(how, recipe="autocast"), ("recipe", "autocast")
    if how.optimizer == "adamw":
        yield "8-bit AdamW", replace(how, optimizer="adam8bit"), ("optimizer", "adam8bit")
    if how.recipe != "bf16":
        yield "bf16 alone, no master copy", replace(how, recipe="bf16"), ("recipe", "bf16")
    if how.seq_len > SHORT:
        yield f"sequences of {SHORT:,}", replace(how, seq_len=SHORT), ("context", str(SHORT))


def _merged(so_far: Training, changed: Training, base: Training) -> Training:
    """`so_far` with what `changed` has changed of `base`."""
    fields = ("recipe", "optimizer", "batch_size", "seq_len", "attention", "recompute")
    new = {f: getattr(changed, f) for f in fields if getattr(changed, f) != getattr(base, f)}
    return replace(so_far, **new)


def sharded(shape: ModelShape, how: Training, ranks: int) -> Bytes:
    """The peak on one of `ranks` devices under ZeRO-3: `core.footprints.sharded`."""
    return Bytes(float(footprints.sharded([shape], how, ranks)[0]))


def serving_changes(shape: ModelShape, how: Serving, usable: Bytes) -> tuple[Change, ...]:
    """Narrower caches, shorter contexts, narrower weights; ends with the first that fits."""
    found: list[Change] = []
    steps: list[tuple[str, Serving, tuple[str, str]]] = []
    if how.cache_format in ("fp32", "bf16"):
        steps.append(("keys and values in fp8", replace(how, cache_format="fp8"), ("cache", "fp8")))
    if how.batch_size > 1:
        steps.append(("one sequence at once", replace(how, batch_size=1), ("batch", "1")))
    if how.context > SHORT:
        steps.append(
            (f"a context of {SHORT:,}", replace(how, context=SHORT), ("context", str(SHORT)))
        )
    now = weights_bytes(shape, how.weight_format)
    steps += [
        (f"weights in {name}", replace(how, weight_format=name), ("weights", name))
        for name in NARROWER
        if weights_bytes(shape, name) < now
    ]
    for words, changed, key in steps:
        needed = _peak(serving([shape], changed))
        found.append(Change(says=words, needed=needed, fits=needed <= usable, settings=(key,)))
        if found[-1].fits:
            return tuple(found)
    last = steps[-1][1] if steps else how
    needed = _peak(serving([shape], last))
    n = -(-needed.n // usable.n)
    found.append(
        Change(
            says=f"weights split over {n:,.0f} devices",
            needed=needed * (1 / n),
            fits=True,
        )
    )
    return tuple(found)


def context_that_fits(shape: ModelShape, how: Serving, usable: Bytes) -> int | None:
    """The longest context of each sequence, whatever `how.context` says; None without end."""
    most = _beside_whole_chunks(shape, how, usable)
    if most is None or most >= PREFILL_CHUNK:
        return most

    def too_long(n_tokens: int) -> bool:
        return _peak(serving([shape], replace(how, context=n_tokens))) > usable

    return bisect.bisect_left(range(1, PREFILL_CHUNK + 1), True, key=too_long)


def _beside_whole_chunks(shape: ModelShape, how: Serving, usable: Bytes) -> int | None:
    """The same beside weights and what a whole chunk of a prompt holds for a moment."""
    found = serving([shape], replace(how, context=PREFILL_CHUNK))
    rest = float(found.parts["weights"][0] + found.parts["temporaries"][0])
    if usable.n <= rest:
        return 0
    each = CACHE_FORMATS[how.cache_format].bytes_per_number
    try:
        return tokens_that_fit(shape, Bytes(usable.n - rest), each, batch_size=how.batch_size)
    except OverflowError:
        return None


def needed_devices(needed: Bytes, usable: Bytes) -> int:
    """How many devices hold so much, split evenly."""
    return int(-(-needed.n // usable.n))


def each_fits(found: Footprints, usable: Sequence[Bytes]) -> list[list[bool]]:
    """[model][device]: whether it fits."""
    return [[float(peak) <= u.n for u in usable] for peak in found.peak]
