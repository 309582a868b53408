"""Settings that Memory and Latency share: a model of any size, a device, how both are used.

A model is one of the catalogue, one of any size on the ladder, or one that a visitor described,
which is kept under a name nobody can guess (core/model_store.py).
"""

import functools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import streamlit as st

from components import asking, settings
from components.settings import Control
from components.theme import count, plain, sentence
from core import model_store
from core.architecture import ModelShape
from core.cache import FORMATS as CACHE_FORMATS
from core.catalog import Device, Model, devices, find_device, find_model, models
from core.configs import Imported, Unreadable, read_config
from core.counts import counts
from core.footprints import Serving, Shapes, Training
from core.headers import read_header
from core.ladder import shape_of_size
from core.quantised import weight_formats
from core.specimens import runs_folder
from core.states import OPTIMIZERS, RECIPES
from core.validation import CEILING, FULL, LOWER, NONE

SIZED = "size"  # the model is one of the ladder, with as many parameters as the slider says
THIS = "this"  # the device is the machine that serves the page
SIZES = {
    f"{digit}{suffix}": digit * unit
    for suffix, unit, digits in (
        ("k", 1_000, (100, 300)),
        ("M", 1_000_000, (1, 3, 10, 30, 100, 300)),
        ("B", 1_000_000_000, (1, 3, 8, 14, 30, 70, 130, 200, 405, 700, 1000)),
    )
    for digit in digits
}
BATCHES = tuple(str(2**i) for i in range(11))
CONTEXTS = tuple(str(2**i) for i in range(7, 21))
MAX_UPLOAD_MB = 5
_NAME = r"[a-z0-9][a-z0-9.\-]{0,63}"

CONTROLS = {
    c.key: c
    for c in (
        Control(
            key="model",
            label="Model",
            help="Choose by name, or `any size` and move the slider. Your own: paste its "
            "config.json below.",
            default="llama-3.1-8b",
            widget="free",
            pattern=_NAME,
            rule="must be the name of a model, in small letters",
        ),
        Control(
            key="params",
            label="Parameters",
            help="A Llama-like model with about so many: width and depth by one published rule.",
            default="8B",
            widget="scale",
            options=tuple(SIZES),
        ),
        Control(
            key="device",
            label="Device",
            help="Whose memory and speed are compared.",
            default="h100-sxm-80gb",
            widget="free",
            pattern=_NAME,
            rule="must be the name of a device, in small letters",
        ),
        Control(
            key="recipe",
            label="Precision of training",
            help="\n".join(
                f"- **{r.label}**, {r.bytes_per_param:g} bytes a parameter with AdamW: {r.note}"
                for r in RECIPES.values()
            ),
            default="mixed16",
            widget="free",
            pattern="|".join(RECIPES),
            rule=f"must be one of {', '.join(RECIPES)}",
        ),
        Control(
            key="optimizer",
            label="Optimizer",
            help="\n".join(f"- **{o.label}** keeps {o.note}" for o in OPTIMIZERS.values()),
            default="adamw",
            widget="free",
            pattern="|".join(OPTIMIZERS),
            rule=f"must be one of {', '.join(OPTIMIZERS)}",
        ),
        Control(
            key="batch",
            label="Batch, sequences at once",
            help="Of a training step on one device, and of answers that are given together.",
            default="1",
            widget="scale",
            options=BATCHES,
        ),
        Control(
            key="context",
            label="Context, in tokens",
            help="Length of a training sequence, and of prompt and answer together.",
            default="2048",
            widget="scale",
            options=CONTEXTS,
        ),
        Control(
            key="attention",
            label="Attention",
            help="Explicit attention keeps every score and probability for backward; flash "
            "attention one number a query and head. It is what is called selective recompute.",
            default="flash",
            widget="choice",
            options=("flash", "explicit"),
        ),
        Control(
            key="recompute",
            label="Recompute blocks in backward",
            help="Gradient checkpointing: each block keeps its input only, and is computed again "
            "when backward needs it: a third more work.",
            default="off",
            widget="choice",
            options=("off", "on"),
        ),
        Control(
            key="weights",
            label="Weights of answers",
            help="How each weight is stored. Names like Q4_K_M are mixes of llama.cpp files.",
            default="bf16",
            widget="free",
            pattern="|".join(weight_formats()),
            rule=f"must be one of {', '.join(weight_formats())}",
        ),
        Control(
            key="view",
            label="The chart shows",
            help="Totals of both; or what one of them is made of at its peak.",
            default="totals",
            widget="choice",
            options=("totals", "training by category", "answers by category"),
        ),
        Control(
            key="cache",
            label="Keys and values",
            help="How each number of the KV cache is stored.",
            default="bf16",
            widget="choice",
            options=tuple(CACHE_FORMATS),
        ),
    )
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Chosen:
    """The model that is looked at."""

    slug: str  # what the URL calls it
    name: str
    shape: ModelShape
    n_params: int
    n_active: int
    model: Model | None = None  # of the catalogue
    imported: Imported | None = None  # a visitor's own


@dataclass(frozen=True, slots=True, kw_only=True)
class Sized:
    """What the sidebar says. `device` None: the machine that serves the page."""

    chosen: Chosen
    device: Device | None
    training: Training
    serving: Serving


def contradictions(values: Mapping[str, Any]) -> dict[str, str]:
    """Names of a link that there are not, each with a sentence."""
    said: dict[str, str] = {}
    if "model" in values:
        try:
            chosen_model(values["model"], CONTROLS["params"].default)
        except LookupError as why:
            said["model"] = f"`model`: {plain(str(why))}"
    if "device" in values and values["device"] not in (THIS, *devices()):
        try:
            find_device(values["device"])
        except LookupError as why:
            said["device"] = f"`device`: {plain(str(why))}"
    return said


def chosen_model(slug: str, size: str) -> Chosen:
    """Raises: LookupError naming near ones, or that it is no longer kept."""
    if slug == SIZED:
        shape = _of_size(SIZES[size])
        n, active = _counted(shape)
        return Chosen(
            slug=slug, name=f"A model of {size}", shape=shape, n_params=n, n_active=active
        )
    if slug.startswith("own-"):
        own = model_store.kept(slug, models_folder())
        n, active = _counted(own.shape)
        return Chosen(
            slug=slug,
            name=own.name,
            shape=own.shape,
            n_params=n,
            n_active=active,
            imported=own,
        )
    model = find_model(slug)
    n, active = _counted(model.shape)
    return Chosen(
        slug=model.slug,
        name=model.name,
        shape=model.shape,
        n_params=n,
        n_active=active,
        model=model,
    )


def _counted(shape: ModelShape) -> tuple[int, int]:
    found = counts(shape)
    return found.total, found.active


@functools.cache
def _of_size(n_params: int) -> ModelShape:
    return shape_of_size(n_params).model


def models_folder() -> Path:
    """Where visitors' models are kept: beside the runs."""
    return runs_folder() / "models"


# -- the sidebar ----------------------------------------------------------------------------------


def panel() -> Sized:
    """Draw the settings."""
    chosen = _model()
    device = _device()
    batch = settings.widget(CONTROLS["batch"])
    context = settings.widget(CONTROLS["context"])
    most = chosen.shape.max_seq_len
    if int(context) > most:
        st.caption(
            f"{chosen.name} was made for {count(most)} tokens: more is computed, but not promised."
        )
    st.markdown("**Training**")
    recipe = _named("recipe", tuple(RECIPES), lambda name: RECIPES[name].label)
    optimizer = _named("optimizer", tuple(OPTIMIZERS), lambda name: OPTIMIZERS[name].label)
    attention = settings.widget(CONTROLS["attention"])
    recompute = settings.widget(CONTROLS["recompute"])
    st.markdown("**Answers**")
    weights = _named("weights", weight_formats(), str)
    cache = settings.widget(CONTROLS["cache"])
    return Sized(
        chosen=chosen,
        device=device,
        training=Training(
            recipe=recipe,
            optimizer=optimizer,
            batch_size=int(batch),
            seq_len=int(context),
            attention=attention,
            recompute=recompute == "on",
        ),
        serving=Serving(
            weight_format=weights,
            cache_format=cache,
            batch_size=int(batch),
            context=int(context),
        ),
    )


def _model() -> Chosen:
    options = [SIZED, *models()]
    slug = _named("model", options, _title)
    size = CONTROLS["params"].default
    if slug == SIZED:
        size = settings.widget(CONTROLS["params"])
    try:
        chosen = chosen_model(slug, size)
    except LookupError as why:  # kept no longer since the page was opened
        st.error(plain(str(why)))
        chosen = chosen_model(CONTROLS["model"].default, size)
    active = f", {count(chosen.n_active)} active" if chosen.n_active != chosen.n_params else ""
    st.markdown(f"**{count(chosen.n_params)} parameters**{active}")
    _own_model()
    return chosen


def _title(slug: str) -> str:
    if slug == SIZED:
        return "Any size: move the slider"
    if slug.startswith("own-"):
        try:
            return f"{chosen_model(slug, CONTROLS['params'].default).name} (your own)"
        except LookupError:
            return "a model that is not kept"
    return models()[slug].name


def _device() -> Device | None:
    def title(slug: str) -> str:
        return "This machine" if slug == THIS else devices()[slug].name

    slug = _named("device", (THIS, *devices()), title)
    return None if slug == THIS else devices()[slug]


def _named(key: str, options: Sequence[str], title: Callable[[str], str]) -> str:
    """A choice whose URL value is a short name and whose label is not."""
    control, state = CONTROLS[key], f"{key}_choice"
    asking.follow(key, state, control.default)
    chosen = _resolved(key, st.session_state[state])
    st.session_state[state] = chosen
    shown = list(options) if chosen in options else [*options, chosen]
    value = st.selectbox(control.label, shown, key=state, format_func=title, help=control.help)
    asking.tell(key, state, value, control.default)
    return value


def _resolved(key: str, value: str) -> str:
    """The catalogue's own name of what a link calls otherwise."""
    if key == "model" and value not in (SIZED, *models()) and not value.startswith("own-"):
        return find_model(value).slug
    if key == "device" and value not in (THIS, *devices()):
        return find_device(value).slug
    return value


def _own_model() -> None:
    """Paste or upload a description; what cannot be read stays in its field."""
    with st.popover("Your own model", type="tertiary"):
        st.markdown(
            "Paste a Hugging Face `config.json`, or upload one, or the file of weights itself: of "
            "GGUF and safetensors only the header is read, and nothing is executed."
        )
        text = st.text_area("config.json", key="own_config", height=160, max_chars=200_000)
        file = st.file_uploader(
            "or a file",
            type=["json", "gguf", "safetensors"],
            key="own_file",
            help=f"At most {MAX_UPLOAD_MB} MB: of a larger file of weights, its first megabytes "
            "(head -c 5000000 FILE).",
        )
        if not (text.strip() or file):
            return
        try:
            data = file.getvalue() if file else text
            read = described(data, file.name if file else "")
        except Unreadable as why:
            st.error(sentence(str(why)))
            return
        n, _ = _counted(read.shape)
        st.markdown(f"**{plain(read.name)}**: {count(n)} parameters.")
        for word, notes in (("Not understood", read.unknown), ("Assumed", read.assumed)):
            if notes:
                st.caption(f"{word}: {plain('; '.join(notes))}")
        st.button("Look at it", type="primary", key="own_use", on_click=_use, args=(read,))


def described(data: bytes | str, file_name: str = "") -> Imported:
    """A model from a file's content. Raises: Unreadable."""
    is_text = isinstance(data, str) or (data.lstrip()[:1] == b"{" and b"\0" not in data[:16])
    if isinstance(data, bytes) and not is_text:
        header = read_header(data, name=file_name)
        if header.imported is None:
            notes = "; ".join(header.notes) or "its tensors do not tell"
            raise Unreadable(
                f"the header lists {header.n_params:,} parameters in {len(header.tensors):,} "
                f"tensors, but no shape can be read from it ({notes}); give the config.json"
            )
        return header.imported
    return read_config(data, name=file_name.removesuffix(".json").removesuffix("config"))


def _use(read: Imported) -> None:
    name = model_store.keep(read, models_folder())
    use("model", name)


def use(key: str, value: str) -> None:
    """Move a setting, as an answer to what does not fit or to a point that was chosen."""
    control = CONTROLS[key]
    if control.widget in ("choice", "scale"):
        st.session_state[key] = value
    elif value == control.default:
        st.query_params.pop(key, None)
        st.session_state.pop(f"{key}_choice", None)
    else:
        st.query_params[key] = value


def view() -> str:
    """What the Memory page's chart shows."""
    return settings.widget(CONTROLS["view"])


RUNS_CONTROLS = {
    c.key: c
    for c in (
        Control(
            key="against",
            label="Checked against",
            help="Reports: memory, speed and cost that people published. Runs: measured on the "
            "machine that serves this page.",
            default="others' reports",
            widget="choice",
            options=("others' reports", "runs on this machine"),
        ),
        Control(
            key="class",
            label="What the prediction is worth",
            help="A full prediction can be compared; a bound can only be broken.",
            default=FULL,
            widget="choice",
            options=(FULL, LOWER, CEILING, NONE),
        ),
    )
}


def checked_against() -> str:
    """Which measurements the Runs page shows."""
    return settings.widget(RUNS_CONTROLS["against"])


def report_class() -> str:
    """Which class of reports the Runs page shows."""
    return settings.widget(RUNS_CONTROLS["class"])


# -- all models at once ---------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class Everything:
    """The ladder's line and the catalogue's points, as one set for the columns."""

    ladder: tuple[int, ...]  # parameters of each step of the line
    catalogue: tuple[Model, ...]
    n_params: tuple[int, ...]  # of each model of the catalogue
    shapes: Shapes  # the ladder's, then the catalogue's

    def split(self, values: Sequence[float]) -> tuple[list[float], list[float]]:
        """Figures of the ladder, and of the catalogue."""
        n = len(self.ladder)
        return list(values[:n]), list(values[n:])


# Half decades: widths and depths jump by steps, which a finer line would show.
LADDER = tuple(round(10 ** (5 + i / 2)) for i in range(15))


@functools.cache
def everything() -> Everything:
    """Made once a process."""
    ladder = {shape.n_params: shape for shape in map(shape_of_size, LADDER)}
    sizes = tuple(sorted(ladder))
    catalogue = tuple(models().values())
    return Everything(
        ladder=sizes,
        catalogue=catalogue,
        n_params=tuple(counts(m.shape).total for m in catalogue),
        shapes=Shapes([*(ladder[n].model for n in sizes), *(m.shape for m in catalogue)]),
    )
