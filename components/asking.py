"""The Inference page's settings: which model is asked, how it answers, and what it is asked.

Controls as in components/settings.py: a row's key is its name in the URL.
"""

import urllib.parse
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, NoReturn

import streamlit as st

from components import settings
from components.settings import Control
from components.theme import count, sentence
from core import answers, own_models, pretrained, specs
from core.formats import KERNELS
from core.machines import host
from core.pretrained import Unavailable
from core.shapes import TransformerShape
from core.specs import GenerateSpec
from core.tokenizers import tokenizer_of

N_RECENT = 5  # own models that are offered without being named
LINK_BYTES = 6000  # of a prompt as a link spells it; a longer one is not put into the address
CONTEXTS = ("64", "128", "256", "512", "1024", "2048", "4096", "8192")
SEQUENCES = ("1", "2", "4", "8", "16", "32", "64")
NEW_TOKENS = ("1", "2", "3", "8", "16", "32", "64", "128", "256", "512", "1024")
TEMPERATURES = ("0", "0.1", "0.3", "0.5", "0.7", "1", "1.3", "1.6", "2")
TOP_K = ("all", "1000", "200", "50", "20", "10", "5", "2", "1")
TOP_P = ("1", "0.99", "0.95", "0.9", "0.8", "0.7", "0.5", "0.3", "0.1")
MODES = ("One prompt", "Chat")
N_CORES = host()["n_cores"]

# What a model is asked first, and what else it may be asked, by what it has learned.
EXAMPLES = {
    "published": (
        "The water cycle begins when",
        "The capital of France is",
        "Once upon a time",
        "def fibonacci(n):",
        "2, 4, 8, 16,",
    ),
    "addition": ("12+34=", "99+99=", "07+05="),
    "pydocs": ("The ", "A class ", "def "),
    "text": ("The ",),
}

CONTROLS: dict[str, Control] = {
    c.key: c
    for c in (
        Control(
            key="model",
            label="Model",
            help="A published model of 135 million parameters, or one that was trained here.",
            default="smollm2",
            widget="free",
            pattern=specs.MODEL.pattern,
            rule="must be the name of a model, or of a run as spec_id/attempt",
        ),
        Control(
            key="prompt",
            label="Prompt",
            help="What the model goes on from. It is read in one pass, all tokens at once.",
            default=EXAMPLES["published"][0],
            widget="free",
            pattern=f".{{0,{specs.MAX_PROMPT}}}",
            rule=f"must be a text of at most {specs.MAX_PROMPT:,} characters",
        ),
        Control(
            key="mode",
            label="How you ask",
            help="One prompt: the model goes on from a text. Chat: turns, in the model's own "
            "template, sent again whole each time.",
            default=MODES[0],
            widget="choice",
            options=MODES,
        ),
        Control(
            key="format",
            label="Precision of the weights",
            help="How each weight is kept.\n"
            + "\n".join(
                f"- {name}, {'real kernel' if k.real else 'simulated'}: {k.says}"
                for name, k in KERNELS.items()
            ),
            default="fp32",
            widget="choice",
            options=specs.WEIGHT_FORMATS,
        ),
        Control(
            key="cache",
            label="KV cache",
            help="Keys and values of earlier tokens, kept. Without it every token reads the whole "
            "text again.",
            default="on",
            widget="choice",
            options=("on", "off"),
        ),
        Control(
            key="context",
            label="Context, in tokens",
            help="What the cache has room for: prompt and answer. The room is taken beforehand.",
            default="512",
            widget="scale",
            options=CONTEXTS,
        ),
        Control(
            key="tokens",
            label="New tokens at most",
            help="The answer ends there, or when the model says that it has ended.",
            default="32",
            widget="scale",
            options=NEW_TOKENS,
        ),
        Control(
            key="sequences",
            label="Sequences at once (batch)",
            help="Answers to the same prompt, computed side by side: each weight is read once for "
            "all of them. At temperature 0 they are all alike.",
            default="1",
            widget="scale",
            options=SEQUENCES,
        ),
        Control(
            key="temperature",
            label="Temperature",
            help="Divides the logits before probabilities are made of them. 0 takes the likeliest "
            "token every time; above 1 unlikely ones gain.",
            default="0",
            widget="scale",
            options=TEMPERATURES,
        ),
        Control(
            key="top_k",
            label="Top-k",
            help="Draws among so many of the likeliest tokens only.",
            default="all",
            widget="scale",
            options=TOP_K,
        ),
        Control(
            key="top_p",
            label="Top-p",
            help="Draws among the fewest tokens whose probabilities add up to this.",
            default="1",
            widget="scale",
            options=TOP_P,
        ),
        Control(
            key="draw",
            label="Seed of the drawing",
            help="The same seed draws the same tokens.",
            default=1,
            widget="whole",
            high=specs.MAX_SEED,
        ),
        Control(
            key="threads",
            label="Processor threads",
            help="How many cores compute one answer.",
            default=1,
            widget="whole",
            low=1,
            high=N_CORES,
        ),
    )
}
SAMPLING = ("top_k", "top_p", "draw")
_GREEDY = "At temperature 0 the likeliest token is taken: there is nothing to draw among."


@dataclass(frozen=True, slots=True, kw_only=True)
class Panel:
    """What the sidebar says."""

    model: str
    values: Mapping[str, Any]  # by key of CONTROLS


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """A question that can be answered: a spec whose prompt was counted and has room."""

    spec: GenerateSpec
    shape: TransformerShape
    n_prompt: int  # tokens


# -- the sidebar ----------------------------------------------------------------------------------


def panel() -> Panel:
    """Draw the settings. A model that is not there is only named: `components/models.py` tells."""
    model = _model()
    shape = _shape(model)
    most = shape.max_seq_len if shape else int(CONTEXTS[-1])
    if shape is not None:
        st.markdown(f"**{count(shape.n_params)} parameters**")
    values: dict[str, Any] = {"model": model}
    for key in ("format", "cache", "context", "tokens", "sequences", "temperature", *SAMPLING):
        values[key] = _one(key, model, most, values)
    values["threads"] = settings.widget(CONTROLS["threads"]) if N_CORES > 1 else 1
    return Panel(model=model, values=values)


def _one(key: str, model: str, most: int, values: Mapping[str, Any]) -> Any:
    control = CONTROLS[key]
    match key:
        case "format":
            options = control.options
            without = ""
            if not own_models.is_published(model):
                options = tuple(o for o in options if o != "file")
                without = " No `file`: this model comes in none."
            chosen = settings.widget(control, options=options)
            kernel = KERNELS[chosen]
            how = "real kernel" if kernel.real else "simulated"
            st.caption(f"{kernel.title}, {how}.{without}")
            return chosen
        case "context":
            options = contexts(most)
            only, several = options[-1], len(options) > 1
            if several:
                return settings.widget(control, options=options, default=_default(options))
            st.select_slider(
                control.label,
                ("0", only),
                value=only,
                key="own_context",
                disabled=True,
                help=f"This model was trained for {most} tokens and knows no more places.",
            )
            return only
        case "tokens":
            return settings.widget(control, default=default_tokens(model))
        case _ if key in SAMPLING and values["temperature"] == "0":
            settings.widget(control, disabled_because=_GREEDY)
            return control.default
    return settings.widget(control)


def contexts(most: int) -> tuple[str, ...]:
    """What the context may be for a model that was made for at most so many tokens."""
    fitting = tuple(c for c in CONTEXTS if int(c) <= most)
    return fitting or (str(most),)


def _default(options: tuple[str, ...]) -> str:
    """The usual context, or the longest there is."""
    usual = CONTROLS["context"].default
    return usual if usual in options else options[-1]


def contradictions(values: Mapping[str, Any]) -> dict[str, str]:
    """Parameters of a link that its model cannot have, each with a sentence."""
    model = values.get("model", CONTROLS["model"].default)
    shape = _shape(model)
    if own_models.is_published(model) or shape is None:
        return {}
    said: dict[str, str] = {}
    if values.get("format") == "file":
        said["format"] = (
            "`format` = `file` needs a model that comes in a file of its own; precision of the "
            "weights stays fp32"
        )
    most = shape.max_seq_len
    if int(values.get("context", 0)) > most:
        said["context"] = f"`context` is at most {most}, for which this model was trained"
    if values.get("mode") == "Chat" and not _can_chat(model):
        said["mode"] = "`mode` = `Chat` needs a model that has learned turns"
    return said


def _model() -> str:
    """The model's name. It is no bound widget: those spell their labels in the URL, and these
    labels are long and change.
    """
    default: str = CONTROLS["model"].default
    moved = follow("model", "model_choice", default)
    chosen = st.session_state["model_choice"]
    if moved and "tokens" in st.session_state and "tokens" not in st.query_params:
        st.session_state["tokens"] = default_tokens(chosen)
    options = [default, *own_models.shipped(), *own_models.recent(N_RECENT)]
    if chosen not in options:
        options.append(chosen)
    model: str = st.selectbox(
        "Model",
        options,
        key="model_choice",
        format_func=_title,
        help=CONTROLS["model"].help,
        on_change=_model_changed,
    )
    tell("model", "model_choice", model, default)
    return model


def _model_changed() -> None:
    """Another model has its own first prompt, and its own length of an answer."""
    st.session_state.pop("prompt_text", None)
    st.query_params.pop("prompt", None)
    model = st.session_state["model_choice"]
    st.session_state["tokens"] = default_tokens(model)
    shape = _shape(model)
    if shape is not None and st.session_state.get("context") not in contexts(shape.max_seq_len):
        st.session_state.pop("context", None)


def _title(model: str) -> str:
    try:
        return own_models.title_of(model)
    except Unavailable:
        return "a run that is not kept"


def _shape(model: str) -> TransformerShape | None:
    try:
        return pretrained.shape_of(model)
    except Unavailable:
        return None


def _can_chat(model: str) -> bool:
    try:
        return own_models.can_chat(model)
    except Unavailable:
        return False


# -- what is asked --------------------------------------------------------------------------------


def mode(model: str) -> str:
    """One prompt, or a chat where the model has learned turns."""
    control = CONTROLS["mode"]
    if _can_chat(model):
        return settings.widget(control)
    st.segmented_control(
        control.label,
        MODES,
        default=MODES[0],
        key="no_chat",
        disabled=True,
        help="A chat needs a model that has learned turns; this one only goes on from a text.",
    )
    return MODES[0]


def prompt(chosen: Panel, shape: TransformerShape) -> Asked | None:
    """Draw the prompt, its examples and its length; None where it cannot be answered, which is
    said.
    """
    examples = EXAMPLES[_kind(chosen.model)]
    follow("prompt", "prompt_text", examples[0])
    text = st.text_area(
        CONTROLS["prompt"].label,
        key="prompt_text",
        height=68,
        help=CONTROLS["prompt"].help,
    )
    fits_a_link = len(urllib.parse.quote(text)) <= LINK_BYTES
    tell("prompt", "prompt_text", text if fits_a_link else examples[0], examples[0])
    with st.container(horizontal=True, gap="small", key="examples"):
        for i, example in enumerate(examples):
            st.button(
                example,
                key=f"example-{i}",
                on_click=use_prompt,
                args=(example,),
                disabled=example == text,
            )
    if not fits_a_link:
        st.caption(
            "This prompt is too long for an address. Once it is answered, the link names its run."
        )
    try:
        asked = counted(spec_of(chosen, text), shape)
    except ValueError as why:
        st.error(sentence(str(why)))
        return None
    _tell_count(asked)
    return asked


def spec_of(
    chosen: Panel, text: str, *, chat: bool = False, history: tuple[str, ...] = ()
) -> GenerateSpec:
    """Raises: ValueError for a prompt that is empty or too long."""
    values = chosen.values
    top_k = values["top_k"]
    return GenerateSpec(
        model=chosen.model,
        prompt=text,
        chat=chat,
        history=history,
        max_new_tokens=int(values["tokens"]),
        weight_format=values["format"],
        cache=values["cache"] == "on",
        context=max(8, int(values["context"])),
        batch_size=int(values["sequences"]),
        temperature=float(values["temperature"]),
        top_k=0 if top_k == "all" else int(top_k),
        top_p=float(values["top_p"]),
        seed=values["draw"],
        threads=values["threads"],
    )


def counted(spec: GenerateSpec, shape: TransformerShape) -> Asked:
    """A question with its tokens counted. Raises: ValueError where it cannot be asked."""
    n_prompt = len(tokenizer_of(spec.model).prompt_ids(spec))
    answers.require_room(spec, n_prompt, shape.max_seq_len)
    return Asked(spec=spec, shape=shape, n_prompt=n_prompt)


def _tell_count(asked: Asked) -> None:
    spec, n_prompt = asked.spec, asked.n_prompt
    room = spec.context - n_prompt + 1  # the newest token need not be read
    said = f"{count(n_prompt)} of {count(spec.context)} tokens"
    if room < spec.max_new_tokens:
        said += f"; the answer ends after {room} new ones, when the context is full"
    st.caption(f"{said}.")


def message(*, disabled: bool, first: bool) -> str | None:
    """What the visitor sends in a chat. Words that could not be sent come back into the field."""
    refused = st.session_state.pop("message_refused", None)
    if refused is not None:
        st.session_state["message"], why = refused
        st.error(why)
    with st.container():  # else it would cling to the bottom of the window
        return st.chat_input(
            "Say something to the model" if first else "Your next turn",
            key="message",
            disabled=disabled,
        )


def keep_message(text: str, why: str) -> NoReturn:
    """Say why words were not sent, above the field with the words in it."""
    st.session_state["message_refused"] = (text, why)
    st.rerun()


def _kind(model: str) -> str:
    """What it has learned, as EXAMPLES has it. Raises: Unavailable."""
    return "published" if own_models.can_chat(model) else pretrained.spec_of(model).specimen


def default_tokens(model: str) -> str:
    """A sum's answer has three characters."""
    try:
        return "3" if _kind(model) == "addition" else "32"
    except Unavailable:
        return "32"


# -- moved by buttons -----------------------------------------------------------------------------


def use_model(model: str) -> None:
    """The panel follows the URL."""
    st.query_params["model"] = model


def use_prompt(text: str) -> None:
    st.session_state["prompt_text"] = text


def use(field: str, value: Any) -> None:
    """Move a control, as an answer to settings that do not fit."""
    keys = {"weight_format": "format", "batch_size": "sequences", "max_new_tokens": "tokens"}
    st.session_state[keys.get(field, field)] = "on" if value is True else str(value)


def more_tokens(spec: GenerateSpec) -> int | None:
    """The next longer answer; None for the longest."""
    return next((int(n) for n in NEW_TOKENS if int(n) > spec.max_new_tokens), None)


# -- widgets that are not bound -------------------------------------------------------------------


def follow(parameter: str, key: str, default: str) -> bool:
    """Before a widget is drawn: take what the URL says, if that is new; whether it was."""
    said = st.query_params.get(parameter)
    new = key not in st.session_state or st.session_state.get(f"{key}_said") != said
    if new:
        st.session_state[key] = default if said is None else said
    st.session_state[f"{key}_said"] = said
    return new


def tell(parameter: str, key: str, value: str, default: str) -> None:
    """After it is drawn: say its value in the URL, unless it is the default."""
    if value != default:
        st.query_params[parameter] = value
    else:
        st.query_params.pop(parameter, None)
    st.session_state[f"{key}_said"] = st.query_params.get(parameter)


def seed_prompt(text: str) -> None:
    """A prompt that no link can hold, from the run that the link names; only where the page has
    none yet.
    """
    if "prompt_text" not in st.session_state and "prompt" not in st.query_params:
        st.session_state["prompt_text"] = text
        st.session_state["prompt_text_said"] = None
