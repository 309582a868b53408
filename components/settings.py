"""Widgets to frozen specs, and the URL they are spelled in: what a control is, and the training
page's own. Those of the Inference page stand in components/asking.py; no other file names a widget.

Every control is one row of `CONTROLS`: its key is its name in the URL, defaults are left out there.
"""

import dataclasses
import math
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

import streamlit as st

from core import specs, texts
from core.shapes import MlpShape, TransformerShape
from core.specimens import shape_of, text_of, texts_folder, transformer_shape
from core.specs import (
    AdditionSpec,
    DigitsSpec,
    OwnTextSpec,
    PlaygroundSpec,
    PydocsSpec,
    Spec,
    TransformerSpec,
)

LEARNING_RATES = (
    "0.00001",
    "0.0001",
    "0.001",
    "0.003",
    "0.01",
    "0.03",
    "0.1",
    "0.3",
    "1",
    "3",
    "10",
)
EPOCHS = ("20", "50", "100", "200", "500", "1000", "2000", "5000")
PACES = {"1": 1.0, "10": 10.0, "60": 60.0, "fastest": float("inf")}
FEATURES = {
    "x": "x", "y": "y", "x²": "x2", "y²": "y2", "x·y": "xy", "sin x": "sinx", "sin y": "siny"
}  # fmt: skip
WIDTHS = ("16", "32", "64", "128", "256", "512")
TORCH_RATES = ("0.0001", "0.0003", "0.001", "0.003", "0.01", "0.03", "0.1", "1")
BATCHES = ("1", "2", "4", "8", "16", "32", "64", "128", "256", "512")
CONTEXTS = ("16", "32", "64", "128", "256", "512")
STEPS = ("50", "200", "500", "1000", "1500", "2000", "5000", "20000")
ON_OFF = ("off", "on")
OPTIMIZERS = {"SGD": "sgd", "momentum": "momentum", "AdamW": "adamw"}
ACTIVATIONS = {"tanh": "tanh", "ReLU": "relu", "sigmoid": "sigmoid", "linear": "linear"}

# Keys that a link may carry besides the settings.
NOT_SETTINGS = ("run", "text", "chat", "embed", "embed_options", "v")
_MESSAGE = "ignored_settings"


@dataclass(frozen=True, slots=True, kw_only=True)
class Control:
    """One setting: how it is drawn, what its URL values may be."""

    key: str
    label: str
    help: str
    default: Any
    widget: str  # choice | scale | whole | many | free
    options: tuple[str, ...] = ()  # choice, scale, many: labels, which are the URL values too
    low: int = 0  # whole
    high: int = 0
    step: int = 1
    shown_as: str = "%d"
    pattern: str = ""  # free: what a text must be, and the rule in a few words
    rule: str = ""

    def read(self, raw: list[str]) -> Any:
        """The value of URL parameters. Raises: ValueError with the rule in a few words."""
        if self.widget == "many":
            unknown = [v for v in raw if v not in self.options]
            if unknown or not raw or len(set(raw)) < len(raw):
                raise ValueError(f"must be among {', '.join(self.options)}, each once")
            return list(raw)
        if len(raw) != 1:
            raise ValueError("was given more than once")
        if self.widget == "free":
            if not re.fullmatch(self.pattern, raw[0], re.DOTALL):
                raise ValueError(self.rule)
            return raw[0]
        if self.options:
            if raw[0] not in self.options:
                raise ValueError(f"must be one of {', '.join(self.options)}")
            return raw[0]
        rule = f"must be a whole number from {self.low} to {self.high}"
        if self.step > 1:
            rule += f" in steps of {self.step}"
        try:
            value = int(raw[0])
        except ValueError:
            raise ValueError(rule) from None
        if not self.low <= value <= self.high or (value - self.low) % self.step:
            raise ValueError(rule)
        return value


_DEFAULT = PlaygroundSpec()
_WIDTHS = (*_DEFAULT.hidden, *[2] * (specs.MAX_DEPTH - len(_DEFAULT.hidden)))

# Which controls a specimen shows, in their order.
_TORCH = ("n_layer", "d_model")
_TRANSFORMER = ("arch", "attn", "ckpt", "accum", "drop", "lr_t", "opt_t", "prec_t", "seed")
SHOWN = {
    "playground": (
        "problem", "noise", "features", "depth", "w1", "w2", "w3", "w4", "w5", "w6",
        "act", "lr", "opt", "batch", "prec", "seed", "epochs", "pace",
    ),
    "digits": (*_TORCH, "act_d", "batch_d", "lr_t", "opt_t", "prec_t", "seed", "epochs_d"),
    "addition": (*_TORCH, "batch_a", *_TRANSFORMER, "steps_a"),
    "pydocs": (*_TORCH, "ctx", "batch_t", *_TRANSFORMER, "steps_t"),
    "text": (*_TORCH, "ctx", "batch_t", *_TRANSFORMER, "steps_t"),
}  # fmt: skip

CONTROLS: dict[str, Control] = {
    c.key: c
    for c in (
        Control(
            key="specimen",
            label="What is trained",
            help="playground: points in the plane. digits: handwritten ones. addition, pydocs, "
            "text: a small transformer that writes sums, Python's documentation, or your own text.",
            default="playground",
            widget="choice",
            options=specs.SPECIMENS,
        ),
        Control(
            key="problem",
            label="Data",
            help="Two classes of points in the plane; the network learns to tell them apart.",
            default=_DEFAULT.problem,
            widget="choice",
            options=specs.PROBLEMS,
        ),
        Control(
            key="noise",
            label="Noise",
            help="How much the classes are mixed, in percent of the generators' range.",
            default=0,
            widget="whole",
            high=50,
            step=5,
            shown_as="%d %%",
        ),
        Control(
            key="features",
            label="Inputs",
            help="What the network is told about a point. More inputs make hard problems easy.",
            default=["x", "y"],
            widget="many",
            options=tuple(FEATURES),
        ),
        Control(
            key="depth",
            label="Hidden layers (depth)",
            help="0 leaves a single neuron that can only draw a straight line.",
            default=len(_DEFAULT.hidden),
            widget="whole",
            high=specs.MAX_DEPTH,
        ),
        *(
            Control(
                key=f"w{i + 1}",
                label=f"Neurons in hidden {i + 1} (width)",
                help="Each neuron adds a weight for every input it listens to, and a bias.",
                default=width,
                widget="whole",
                low=1,
                high=specs.MAX_WIDTH,
            )
            for i, width in enumerate(_WIDTHS)
        ),
        Control(
            key="act",
            label="Activation",
            help="What a hidden neuron makes of its sum. The output is always tanh.",
            default="tanh",
            widget="choice",
            options=tuple(ACTIVATIONS),
        ),
        Control(
            key="lr",
            label="Learning rate",
            help="How far one step moves each weight against its gradient.",
            default="0.03",
            widget="scale",
            options=LEARNING_RATES,
        ),
        Control(
            key="opt",
            label="Optimizer",
            help="SGD keeps nothing, momentum one number for each weight, AdamW two and a counter.",
            default="SGD",
            widget="choice",
            options=tuple(OPTIMIZERS),
        ),
        Control(
            key="batch",
            label="Batch size",
            help="Examples that share one step; their activations are all held at once.",
            default=_DEFAULT.batch_size,
            widget="whole",
            low=1,
            high=specs.MAX_BATCH,
        ),
        Control(
            key="prec",
            label="Precision",
            help="Format of every number in the run: 4 or 8 bytes each. Both are real here.",
            default=_DEFAULT.precision,
            widget="choice",
            options=specs.PRECISIONS,
        ),
        Control(
            key="seed",
            label="Seed",
            help="Draws the data, then the first weights. The same seed gives the same bits.",
            default=_DEFAULT.seed,
            widget="whole",
            high=specs.MAX_SEED,
        ),
        Control(
            key="epochs",
            label="Stop after epochs",
            help="One epoch is one pass over the 250 training examples.",
            default=str(_DEFAULT.n_epochs),
            widget="scale",
            options=EPOCHS,
        ),
        Control(
            key="pace",
            label="Pace, epochs a second",
            help="Slows the run so that it can be watched; changes no number. 60 is TensorFlow "
            "Playground's pace.",
            default="60",
            widget="scale",
            options=tuple(PACES),
        ),
        Control(
            key="n_layer",
            label="Layers",
            help="Blocks of the transformer, or hidden layers of the digits' network.",
            default=2,
            widget="whole",
            low=1,
            high=specs.MAX_LAYERS,
        ),
        Control(
            key="d_model",
            label="Width",
            help="Numbers that stand for one token in the residual stream, or neurons of a layer.",
            default="64",
            widget="scale",
            options=WIDTHS,
        ),
        Control(
            key="act_d",
            label="Activation",
            help="What a hidden neuron makes of its sum.",
            default="ReLU",
            widget="choice",
            options=tuple(ACTIVATIONS),
        ),
        *(
            Control(
                key=key,
                label="Batch size",
                help="Examples that share one step; their activations are all held at once.",
                default=default,
                widget="scale",
                options=BATCHES,
            )
            for key, default in (("batch_d", "32"), ("batch_a", "128"), ("batch_t", "32"))
        ),
        Control(
            key="ctx",
            label="Context",
            help="Characters that the model sees at once.",
            default="64",
            widget="scale",
            options=CONTEXTS,
        ),
        Control(
            key="arch",
            label="Architecture",
            help="gpt: LayerNorm, GELU, learned positions. llama: RMSNorm, SwiGLU, rotary "
            "positions, and keys and values shared between heads.",
            default="gpt",
            widget="choice",
            options=specs.ARCHITECTURES,
        ),
        Control(
            key="attn",
            label="Attention",
            help="explicit keeps scores and probabilities, as the textbook does; flash never holds "
            "them whole.",
            default="flash",
            widget="choice",
            options=specs.ATTENTIONS,
        ),
        Control(
            key="ckpt",
            label="Gradient checkpointing",
            help="Keep only each block's input, and compute the block again in backward: less "
            "memory, more time.",
            default="off",
            widget="choice",
            options=ON_OFF,
        ),
        Control(
            key="accum",
            label="Gradient accumulation",
            help="Micro-batches whose gradients add up to one update.",
            default="1",
            widget="scale",
            options=("1", "2", "4", "8"),
        ),
        Control(
            key="drop",
            label="Dropout",
            help="Share of the stream's numbers put to zero in training, in percent.",
            default=0,
            widget="whole",
            high=50,
            step=10,
            shown_as="%d %%",
        ),
        Control(
            key="lr_t",
            label="Learning rate",
            help="How far one step moves each weight against its gradient.",
            default="0.003",
            widget="scale",
            options=TORCH_RATES,
        ),
        Control(
            key="opt_t",
            label="Optimizer",
            help="SGD keeps nothing, momentum one number for each weight, AdamW two and a counter.",
            default="AdamW",
            widget="choice",
            options=tuple(OPTIMIZERS),
        ),
        Control(
            key="prec_t",
            label="Precision",
            help="fp32, or autocast to bf16 or fp16 in matrix products; weights stay fp32. All "
            "are real on this processor; in a small model the casts cost more than they save.",
            default="fp32",
            widget="choice",
            options=specs.MIXED_PRECISIONS,
        ),
        Control(
            key="epochs_d",
            label="Stop after epochs",
            help="One epoch is one pass over the 1,437 training digits.",
            default="20",
            widget="scale",
            options=EPOCHS,
        ),
        *(
            Control(
                key=key,
                label="Stop after steps",
                help="Updates of the weights.",
                default=default,
                widget="scale",
                options=STEPS,
            )
            for key, default in (("steps_a", "1500"), ("steps_t", "2000"))
        ),
    )
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """What a visitor has set: the spec, and the pace, which is no part of it."""

    spec: Spec
    epochs_per_s: float


def settings_of(values: Mapping[str, Any]) -> Settings:
    """Control values to settings. Raises: ValueError from the spec."""
    match values["specimen"]:
        case "playground":
            return _playground(values)
        case "digits":
            spec = DigitsSpec(
                n_layer=values["n_layer"],
                d_model=int(values["d_model"]),
                activation=ACTIVATIONS[values["act_d"]],
                optimizer=OPTIMIZERS[values["opt_t"]],
                learning_rate=float(values["lr_t"]),
                batch_size=int(values["batch_d"]),
                precision=values["prec_t"],
                seed=values["seed"],
                n_epochs=int(values["epochs_d"]),
            )
        case _:
            spec = _transformer(values)
    return Settings(spec=spec, epochs_per_s=float("inf"))


def _transformer(values: Mapping[str, Any]) -> Spec:
    common: dict[str, Any] = {
        "n_layer": values["n_layer"],
        "d_model": int(values["d_model"]),
        "architecture": values["arch"],
        "attention": values["attn"],
        "checkpointing": values["ckpt"] == "on",
        "accumulation": int(values["accum"]),
        "dropout": values["drop"] / 100,
        "optimizer": OPTIMIZERS[values["opt_t"]],
        "learning_rate": float(values["lr_t"]),
        "precision": values["prec_t"],
        "seed": values["seed"],
    }
    if values["specimen"] == "addition":
        return AdditionSpec(
            **common, batch_size=int(values["batch_a"]), n_steps=int(values["steps_a"])
        )
    common |= {
        "seq_len": int(values["ctx"]),
        "batch_size": int(values["batch_t"]),
        "n_steps": int(values["steps_t"]),
    }
    if values["specimen"] == "pydocs":
        return PydocsSpec(**common)
    return OwnTextSpec(**common, text=values["text"])


def _playground(values: Mapping[str, Any]) -> Settings:
    return Settings(
        spec=PlaygroundSpec(
            problem=values["problem"],
            noise=values["noise"] / 100,
            features=tuple(FEATURES[f] for f in FEATURES if f in values["features"]),
            hidden=tuple(values[f"w{i + 1}"] for i in range(values["depth"])),
            activation=ACTIVATIONS[values["act"]],
            optimizer=OPTIMIZERS[values["opt"]],
            learning_rate=float(values["lr"]),
            batch_size=values["batch"],
            precision=values["prec"],
            seed=values["seed"],
            n_epochs=int(values["epochs"]),
        ),
        epochs_per_s=PACES[values["pace"]],
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Query:
    """A link's parameters, sorted into what holds and what was ignored."""

    values: dict[str, Any] = field(default_factory=dict)
    ignored: dict[str, str] = field(default_factory=dict)  # key -> sentence


def read_query(
    parameters: Iterable[tuple[str, list[str]]], controls: Mapping[str, Control] = CONTROLS
) -> Query:
    """Check a link against a page's controls; every bad or unknown parameter is named."""
    query = Query()
    for key, raw in parameters:
        if key in NOT_SETTINGS:
            continue
        shown = ", ".join(raw)[:40]
        control = controls.get(key)
        if control is None:
            query.ignored[key] = f"`{_plain(key[:40])}` is no setting of this page"
            continue
        try:
            query.values[key] = control.read(raw)
        except ValueError as why:
            default = control.default
            kept = ", ".join(default) if isinstance(default, list) else default
            query.ignored[key] = (
                f"`{_plain(key)}` = `{_plain(shown)}` {why}; {control.label.lower()} stays {kept}"
            )
    return query


def _plain(text: str) -> str:
    """Text from a link, safe inside a code span: one line, and no way out of it."""
    shown = "".join(c if c.isprintable() else " " for c in text)
    return shown.replace("`", "'") or " "


def drop_bad_parameters(
    controls: Mapping[str, Control],
    contradictions: Callable[[Mapping[str, Any]], dict[str, str]] = lambda values: {},
) -> None:
    """Take what a page cannot use out of the URL, and say so until the visitor dismisses it.

    `contradictions` names values that are good alone but not together, with a sentence for each.
    Bound widgets drop bad values silently: this runs before any of them is drawn.
    """
    query = read_query(((key, st.query_params.get_all(key)) for key in st.query_params), controls)
    ignored = query.ignored | contradictions(query.values)
    if ignored:
        st.session_state[_MESSAGE] = list(ignored.values())
        for key in ignored:
            del st.query_params[key]
    if message := st.session_state.get(_MESSAGE):
        with st.container(horizontal=True, vertical_alignment="center"):
            st.warning("Part of the link was ignored: " + "; ".join(message) + ".")
            st.button("Dismiss", on_click=lambda: st.session_state.pop(_MESSAGE, None))


def next_learning_rate(wanted: float, specimen: str) -> str:
    """The largest choice at or below a rate, or the smallest there is."""
    rates = LEARNING_RATES if specimen == "playground" else TORCH_RATES
    below = [rate for rate in rates if float(rate) <= wanted * (1 + 1e-9)]
    return below[-1] if below else rates[0]


def set_learning_rate(rate: str, specimen: str) -> None:
    """Move the slider, as an answer to a run that diverged."""
    st.session_state["lr" if specimen == "playground" else "lr_t"] = rate


def use(specimen: str, field: str, value: Any) -> None:
    """Move a control, as an answer to settings that do not fit."""
    batch = {"digits": "batch_d", "addition": "batch_a"}.get(specimen, "batch_t")
    keys = {"batch_size": batch, "seq_len": "ctx", "d_model": "d_model", "checkpointing": "ckpt"}
    st.session_state[keys[field]] = "on" if value is True else str(value)


def draw() -> Settings:
    """The settings panel; returns what is set, or stops the page with a sentence."""
    values: dict[str, Any] = {"specimen": widget(CONTROLS["specimen"])}
    specimen = values["specimen"]
    if specimen == "text":
        values["text"] = _own_text()
    parameters = st.empty()
    for key in SHOWN[specimen]:
        if key[0] == "w" and int(key[1:]) > values["depth"]:
            continue
        values[key] = widget(CONTROLS[key])
    if values.get("features") == []:
        st.error("The network needs at least one input: choose x, y or any other.")
        st.stop()
    chosen = settings_of(values)
    try:
        shape = shape_of(chosen.spec)
        if isinstance(chosen.spec, OwnTextSpec):
            texts.require_length(text_of(chosen.spec), chosen.spec.seq_len)
    except FileNotFoundError:
        st.error("That text is no longer kept here. Paste or upload it again.")
        st.stop()
    except ValueError as why:
        st.error(f"This text cannot be used: {why}.")
        st.stop()
    with parameters.container():
        if isinstance(shape, MlpShape):
            terms = " + ".join(f"{(d_in + 1) * d_out:,}" for _, d_in, d_out, _ in shape.layers)
            st.markdown(f"**{shape.n_params:,} parameters**  \n:small[{terms}, biases included]")
        else:
            st.markdown(f"**{shape.n_params:,} parameters**")
        if isinstance(chosen.spec, TransformerSpec | DigitsSpec):
            _size(chosen.spec, shape)
    return chosen


# Layers and width of models from small to large: where the size slider can stand.
SIZES = ((1, 32), (2, 32), (2, 64), (2, 128), (4, 128), (4, 256), (8, 256), (8, 512))


def sizes(spec: TransformerSpec | DigitsSpec, vocab_size: int) -> dict[str, tuple[int, int]]:
    """Layers and width by the number of parameters that they make under these settings."""
    found: dict[str, tuple[int, int]] = {}
    for n_layer, d_model in SIZES:
        one = dataclasses.replace(spec, n_layer=n_layer, d_model=d_model)
        sequence = isinstance(one, TransformerSpec)
        shape = transformer_shape(one, vocab_size) if sequence else shape_of(one)
        found[_two_digits(shape.n_params)] = (n_layer, d_model)
    return found


def _two_digits(n: int) -> str:
    unit, one = ("M", 1e6) if n >= 1e6 else ("k", 1e3)
    return f"{float(f'{n / one:.2g}'):g} {unit}"


def _size(spec: TransformerSpec | DigitsSpec, shape: MlpShape | TransformerShape) -> None:
    """A slider that sets layers and width together; it stands where the model is now."""
    choices = sizes(spec, 0 if isinstance(shape, MlpShape) else shape.vocab_size)

    def moved() -> None:
        n_layer, d_model = choices[st.session_state["size"]]
        st.session_state["n_layer"], st.session_state["d_model"] = n_layer, str(d_model)

    def away(label: str) -> float:
        n_layer, d_model = choices[label]  # parameters grow about as layers and as width squared
        return abs(math.log(n_layer * d_model**2 / (spec.n_layer * spec.d_model**2)))

    st.session_state["size"] = min(choices, key=away)
    st.select_slider(
        "Size, in parameters",
        choices,
        key="size",
        on_change=moved,
        help="Sets layers and width below. In between it stands at the nearest.",
    )


def _own_text() -> str:
    """The name of the visitor's text; asks for one, and stops the page, where there is none yet.

    The name is the only way to the text: it stands in this visitor's address and nowhere else.
    """
    name = st.query_params.get("text", "")
    with st.expander("Your text", expanded=not specs.TEXT_ID.fullmatch(name)):
        pasted = st.text_area(
            "Paste a text",
            key="pasted",
            height=140,
            max_chars=texts.MAX_TEXT_BYTES,
            help="Kept on this server under a name that only your address holds; never listed, "
            "never run.",
        )
        uploaded = st.file_uploader("or a text file, UTF-8, up to 1 MB", type=["txt", "md"])
        if st.button("Learn from it", key="use-text"):
            try:
                text = (
                    texts.decoded(uploaded.getvalue()) if uploaded else texts.checked(pasted or "")
                )
                name = texts.keep(text, texts_folder())
            except ValueError as why:
                st.error(f"This text cannot be used: {why}.")
            else:
                st.query_params["text"] = name
    if not specs.TEXT_ID.fullmatch(name):
        st.info("Paste or upload a text of at least 200 characters to begin.")
        st.stop()
    return name


def widget(
    control: Control,
    *,
    options: tuple[str, ...] | None = None,
    default: str | None = None,
    disabled_because: str = "",
) -> Any:
    """Draw a control; with fewer options or another default where the page's other settings say so.

    One that cannot apply is drawn all the same, disabled, with the reason in its tooltip.
    """
    common = {
        "label": control.label,
        "key": control.key,
        "help": disabled_because or control.help,
        "disabled": bool(disabled_because),
    }
    options = options or control.options
    default = control.default if default is None else default
    draw: Callable[..., Any]
    match control.widget:
        case "choice":
            draw, extra = (
                st.segmented_control,
                {"options": options, "default": default, "required": True},
            )
        case "many":
            draw, extra = (
                st.pills,
                {"options": options, "default": default, "selection_mode": "multi"},
            )
        case "scale":
            draw, extra = (st.select_slider, {"options": options, "value": default})
        case _ if control.high > 1000:
            draw, extra = (
                st.number_input,
                {"min_value": control.low, "max_value": control.high, "value": default},
            )
        case _:
            draw, extra = (
                st.slider,
                {
                    "min_value": control.low,
                    "max_value": control.high,
                    "value": default,
                    "step": control.step,
                    "format": control.shown_as,
                },
            )
    return draw(**common, **extra, bind="query-params")
