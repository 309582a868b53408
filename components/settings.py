"""Widgets to frozen specs, and the URL they are spelled in; the only file that names widget keys.

Every control is one row of `CONTROLS`: its key is its name in the URL, defaults are left out there.
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

import streamlit as st

from core import specs
from core.shapes import MlpShape
from core.specs import TrainSpec

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
OPTIMIZERS = {"SGD": "sgd", "momentum": "momentum", "AdamW": "adamw"}
ACTIVATIONS = {"tanh": "tanh", "ReLU": "relu", "sigmoid": "sigmoid", "linear": "linear"}

# Keys that a link may carry besides the settings.
NOT_SETTINGS = ("run", "embed", "embed_options", "v")
_MESSAGE = "ignored_settings"


@dataclass(frozen=True, slots=True, kw_only=True)
class Control:
    """One setting: how it is drawn, what its URL values may be."""

    key: str
    label: str
    help: str
    default: Any
    widget: str  # choice | scale | whole | many
    options: tuple[str, ...] = ()  # choice, scale, many: labels, which are the URL values too
    low: int = 0  # whole
    high: int = 0
    step: int = 1
    shown_as: str = "%d"

    def read(self, raw: list[str]) -> Any:
        """The value of URL parameters. Raises: ValueError with the rule in a few words."""
        if self.widget == "many":
            unknown = [v for v in raw if v not in self.options]
            if unknown or not raw or len(set(raw)) < len(raw):
                raise ValueError(f"must be among {', '.join(self.options)}, each once")
            return list(raw)
        if len(raw) != 1:
            raise ValueError("was given more than once")
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


_DEFAULT = TrainSpec()
_WIDTHS = (*_DEFAULT.hidden, *[2] * (specs.MAX_DEPTH - len(_DEFAULT.hidden)))

CONTROLS: dict[str, Control] = {
    c.key: c
    for c in (
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
    )
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """What a visitor has set: the spec, and the pace, which is no part of it."""

    spec: TrainSpec
    epochs_per_s: float


def settings_of(values: Mapping[str, Any]) -> Settings:
    """Control values to settings. Raises: ValueError from TrainSpec."""
    return Settings(
        spec=TrainSpec(
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


def read_query(parameters: Iterable[tuple[str, list[str]]]) -> Query:
    """Check a link against the controls; every bad or unknown parameter is named."""
    query = Query()
    for key, raw in parameters:
        if key in NOT_SETTINGS:
            continue
        shown = ", ".join(raw)[:40]
        control = CONTROLS.get(key)
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
    """Text from a link, safe inside a code span."""
    return text.replace("`", "'").replace("\n", " ") or " "


def drop_bad_parameters() -> None:
    """Take what cannot be used out of the URL, and say so until the visitor dismisses it.

    Bound widgets drop bad values silently: this runs before any of them is drawn.
    """
    query = read_query((key, st.query_params.get_all(key)) for key in st.query_params)
    if query.ignored:
        st.session_state[_MESSAGE] = list(query.ignored.values())
        for key in query.ignored:
            del st.query_params[key]
    if message := st.session_state.get(_MESSAGE):
        with st.container(horizontal=True, vertical_alignment="center"):
            st.warning("Part of the link was ignored: " + "; ".join(message) + ".")
            st.button("Dismiss", on_click=lambda: st.session_state.pop(_MESSAGE, None))


def next_learning_rate(wanted: float) -> str:
    """The largest choice at or below a rate, or the smallest there is."""
    below = [rate for rate in LEARNING_RATES if float(rate) <= wanted * (1 + 1e-9)]
    return below[-1] if below else LEARNING_RATES[0]


def set_learning_rate(rate: str) -> None:
    """Move the slider, as an answer to a run that diverged."""
    st.session_state["lr"] = rate


def draw() -> Settings:
    """The settings panel; returns what is set."""
    values: dict[str, Any] = {}
    parameters = st.empty()
    for key in ("problem", "noise", "features", "depth"):
        values[key] = _widget(CONTROLS[key])
    if not values["features"]:
        st.error("The network needs at least one input: choose x, y or any other.")
        st.stop()
    for i in range(values["depth"]):
        values[f"w{i + 1}"] = _widget(CONTROLS[f"w{i + 1}"])
    for key in ("act", "lr", "opt", "batch", "prec", "seed", "epochs", "pace"):
        values[key] = _widget(CONTROLS[key])
    chosen = settings_of(values)
    shape = MlpShape.of(chosen.spec)
    terms = " + ".join(str((d_in + 1) * d_out) for _, d_in, d_out, _ in shape.layers)
    parameters.markdown(f"**{shape.n_params} parameters**  \n:small[{terms}, biases included]")
    return chosen


def _widget(control: Control) -> Any:
    common = {"label": control.label, "key": control.key, "help": control.help}
    draw: Callable[..., Any]
    match control.widget:
        case "choice":
            draw, extra = (
                st.segmented_control,
                {"options": control.options, "default": control.default, "required": True},
            )
        case "many":
            draw, extra = (
                st.pills,
                {
                    "options": control.options,
                    "default": control.default,
                    "selection_mode": "multi",
                },
            )
        case "scale":
            draw, extra = (
                st.select_slider,
                {"options": control.options, "value": control.default},
            )
        case _ if control.high > 1000:
            draw, extra = (
                st.number_input,
                {"min_value": control.low, "max_value": control.high, "value": control.default},
            )
        case _:
            draw, extra = (
                st.slider,
                {
                    "min_value": control.low,
                    "max_value": control.high,
                    "value": control.default,
                    "step": control.step,
                    "format": control.shown_as,
                },
            )
    return draw(**common, **extra, bind="query-params")
