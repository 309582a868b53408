"""Models that a page can offer: what each is called, and which were trained here of late."""

import contextlib
import functools
import time
from pathlib import Path

from core import recordings, specimens
from core.pretrained import PRETRAINED, WEIGHTS, Unavailable, run_folder, shape_of, spec_of
from core.specs import AdditionSpec, FinetuneSpec, PydocsSpec, TransformerSpec
from core.trace import EVENTS

SHIPPED = "addition"  # the recording whose weights are shipped with it
MAX_CHANGED = 4  # copies of a published model, changed by a visitor's training step, with weights
_LEARNED = {
    "addition": "two-digit sums",
    "pydocs": "Python's documentation",
    "text": "a text of your own",
}


def shipped() -> tuple[str, ...]:
    """Names of the recordings that hold weights."""
    return (SHIPPED,) if (recordings.FOLDER / SHIPPED / WEIGHTS).is_file() else ()


def recent(n: int) -> tuple[str, ...]:
    """The newest `n` runs kept here that hold weights, as spec_id/attempt, newest first.

    Only of texts that everybody has: what learned from a visitor's own words is offered to nobody
    but by a link that names it.
    """
    found: list[str] = []
    folders = specimens.runs_folder().glob(f"*/*/{WEIGHTS}")
    for folder in sorted((f.parent for f in folders), key=lambda f: f.name, reverse=True):
        if len(found) == n:
            break
        name = f"{folder.parent.name}/{folder.name}"
        try:
            spec = _spec_of(name, folder / EVENTS)
        except Unavailable:
            continue
        if isinstance(spec, AdditionSpec | PydocsSpec):
            found.append(name)
    return tuple(found)


def require_weights(model: str) -> None:
    """Raises: Unavailable where a run is kept, but not what it learned."""
    if not (run_folder(model) / WEIGHTS).is_file():
        raise Unavailable(
            f"the weights of model={model!r} are not kept; train it again, or choose "
            f"{' or '.join(PRETRAINED)}"
        )


def thin(n_kept: int = MAX_CHANGED - 1) -> None:
    """Delete the weights of all but the newest `n_kept` changed copies of a published model, half a
    gigabyte each; their runs stay.
    """
    changed: list[Path] = []
    for weights in specimens.runs_folder().glob(f"*/*/{WEIGHTS}"):
        folder = weights.parent
        with contextlib.suppress(Unavailable):
            spec = _spec_of(f"{folder.parent.name}/{folder.name}", folder / EVENTS)
            changed += [weights] if isinstance(spec, FinetuneSpec) else []
    changed.sort(key=lambda path: path.parent.name, reverse=True)
    for weights in changed[n_kept:]:
        weights.unlink(missing_ok=True)


@functools.lru_cache(maxsize=64)
def _spec_of(name: str, _: Path) -> TransformerSpec | FinetuneSpec:
    return spec_of(name)


def is_published(model: str) -> bool:
    return model in PRETRAINED


def can_chat(model: str) -> bool:
    """Whether it has learned turns: a published model, or one that goes on from it.

    Raises: Unavailable.
    """
    return is_published(model) or isinstance(spec_of(model), FinetuneSpec)


def title_of(model: str) -> str:
    """What a visitor reads. Raises: Unavailable."""
    if is_published(model):
        return PRETRAINED[model].title
    spec = spec_of(model)
    if isinstance(spec, FinetuneSpec):
        steps = "one training step" if spec.n_steps == 1 else f"{spec.n_steps} training steps"
        return f"{title_of(spec.model)} after {steps}, {_when(model)}"
    size = f"{shape_of(model).n_params:,} parameters"
    where = f"trained here {_when(model)}" if "/" in model else "shipped, trained beforehand"
    what = _LEARNED[spec.specimen]
    return f"{what[:1].upper()}{what[1:]}: {size}, {where}"


def _when(model: str) -> str:
    """UTC, told by the attempt's name."""
    attempt = model.rpartition("/")[2]
    began = time.strptime(attempt[:15], "%Y%m%d-%H%M%S")
    return time.strftime("%d %b %H:%M UTC", began).lstrip("0")
