"""What a link says is read back as it was set, or refused by name."""

import dataclasses
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from components import settings
from components.settings import CONTROLS, NOT_SETTINGS, SHOWN, Control, read_query, settings_of
from core import specs
from core.specimens import shape_of
from core.specs import (
    AdditionSpec,
    DigitsSpec,
    OwnTextSpec,
    PlaygroundSpec,
    PydocsSpec,
    Spec,
    TransformerSpec,
)

TEXT = "0123456789abcdef" * 2  # the name of a text: no control, it comes with pasting one
DEFAULTS = {control.key: control.default for control in CONTROLS.values()} | {"text": TEXT}


@dataclass(frozen=True, slots=True)
class Meaning:
    """What a control's values are in the URL, and what each is in the spec."""

    spelled: dict[str, Any]  # as in the URL -> as in the spec
    field: str  # of the spec; empty if it is none of it
    of: Callable[[settings.Settings], Any]


def numbers(low: int, high: int, step: int = 1) -> dict[str, int]:
    return {str(n): n for n in range(low, high + 1, step)}


def listed(text: str, kind: Callable[[str], Any] = int) -> dict[str, Any]:
    return {word: kind(word) for word in text.split()}


def field(name: str, spelled: dict[str, Any]) -> Meaning:
    return Meaning(spelled, name, lambda s: getattr(s.spec, name))


def width(i: int) -> Meaning:
    return Meaning(numbers(1, 8), "hidden", lambda s: s.spec.hidden[i])


# Written out, not taken from the controls: these are the links that people have shared.
ACTIVATIONS = {"tanh": "tanh", "ReLU": "relu", "sigmoid": "sigmoid", "linear": "linear"}
OPTIMIZERS = {"SGD": "sgd", "momentum": "momentum", "AdamW": "adamw"}
BATCHES = listed("1 2 4 8 16 32 64 128 256 512")
EPOCHS = listed("20 50 100 200 500 1000 2000 5000")
STEPS = listed("50 200 500 1000 1500 2000 5000 20000")
KINDS = ("playground", "digits", "addition", "pydocs", "text")
MEANINGS = {
    "specimen": Meaning({k: k for k in KINDS}, "specimen", lambda s: s.spec.specimen),
    "problem": field("problem", {p: p for p in ("circle", "xor", "gauss", "spiral")}),
    "noise": field("noise", {str(n): n / 100 for n in range(0, 51, 5)}),
    "depth": Meaning(numbers(0, 6), "hidden", lambda s: len(s.spec.hidden)),
    **{f"w{i + 1}": width(i) for i in range(6)},
    "act": field("activation", ACTIVATIONS),
    "lr": field(
        "learning_rate", listed("0.00001 0.0001 0.001 0.003 0.01 0.03 0.1 0.3 1 3 10", float)
    ),
    "opt": field("optimizer", OPTIMIZERS),
    "batch": field("batch_size", numbers(1, 30)),
    "prec": field("precision", {"fp32": "fp32", "fp64": "fp64"}),
    "seed": field("seed", {str(n): n for n in (0, 1, 7, 12_345, 2**31 - 1)}),
    "epochs": field("n_epochs", EPOCHS),
    "pace": Meaning(
        {"1": 1, "10": 10, "60": 60, "fastest": float("inf")}, "", lambda s: s.epochs_per_s
    ),
    # Of the models that torch runs.
    "n_layer": field("n_layer", numbers(1, 12)),
    "d_model": field("d_model", listed("16 32 64 128 256 512")),
    "act_d": field("activation", ACTIVATIONS),
    "batch_d": field("batch_size", BATCHES),
    "batch_a": field("batch_size", BATCHES),
    "batch_t": field("batch_size", BATCHES),
    "ctx": field("seq_len", listed("16 32 64 128 256 512")),
    "arch": field("architecture", {"gpt": "gpt", "llama": "llama"}),
    "attn": field("attention", {"flash": "flash", "explicit": "explicit"}),
    "ckpt": field("checkpointing", {"off": False, "on": True}),
    "accum": field("accumulation", listed("1 2 4 8")),
    "drop": field("dropout", {str(n): n / 100 for n in range(0, 51, 10)}),
    "lr_t": field("learning_rate", listed("0.0001 0.0003 0.001 0.003 0.01 0.03 0.1 1", float)),
    "opt_t": field("optimizer", OPTIMIZERS),
    "prec_t": field("precision", {"fp32": "fp32", "bf16": "bf16", "fp16": "fp16"}),
    "epochs_d": field("n_epochs", EPOCHS),
    "steps_a": field("n_steps", STEPS),
    "steps_t": field("n_steps", STEPS),
}
FEATURES = {
    "x": "x",
    "y": "y",
    "x²": "x2",
    "y²": "y2",
    "x·y": "xy",
    "sin x": "sinx",
    "sin y": "siny",
}

each_control = pytest.mark.parametrize("control", CONTROLS.values(), ids=CONTROLS)
each_specimen = pytest.mark.parametrize("specimen", KINDS)
# Every control under every specimen that shows it.
each_value = pytest.mark.parametrize(
    ("specimen", "key", "text"),
    [
        (specimen, key, text)
        for specimen, keys in SHOWN.items()
        for key in keys
        if key != "features"
        for text in MEANINGS[key].spelled
    ],
)


def chosen(specimen: str, *link: tuple[str, str]) -> settings.Settings:
    """The settings of a link under a specimen, deep enough that every width is used."""
    query = read_query([(key, [text]) for key, text in link])
    assert not query.ignored
    return settings_of(DEFAULTS | {"specimen": specimen, "depth": 6} | query.values)


def fields_of(spec: Spec) -> dict[str, Any]:
    return {f.name: getattr(spec, f.name) for f in dataclasses.fields(spec)}


def test_every_control_has_its_meaning_checked_here():
    assert {*MEANINGS, "features"} == set(CONTROLS)


def test_every_control_is_shown_under_some_specimen_and_none_that_is_shown_is_unknown():
    assert set(SHOWN) == set(specs.SPECIMENS) == set(KINDS)
    assert {key for keys in SHOWN.values() for key in keys} | {"specimen"} == set(CONTROLS)


# -- what holds -----------------------------------------------------------------------------------


@each_value
def test_a_legal_value_of_a_link_reaches_the_spec(specimen: str, key: str, text: str):
    meaning = MEANINGS[key]
    assert meaning.of(chosen(specimen, (key, text))) == meaning.spelled[text]


@each_specimen
def test_a_link_chooses_what_is_trained(specimen: str):
    assert read_query([("specimen", [specimen])]).values == {"specimen": specimen}
    assert chosen(specimen).spec.specimen == specimen


@each_value
def test_a_setting_changes_its_own_field_and_no_other(specimen: str, key: str, text: str):
    before, after = chosen(specimen), chosen(specimen, (key, text))
    changed = {
        name
        for name, value in fields_of(after.spec).items()
        if value != fields_of(before.spec)[name]
    }
    assert changed <= {MEANINGS[key].field}
    if key != "pace":
        assert after.epochs_per_s == before.epochs_per_s


@each_specimen
def test_what_a_specimen_does_not_show_changes_nothing(specimen: str):
    """A control of another specimen may be left in the address."""
    for key in set(MEANINGS) - {*SHOWN[specimen], "specimen"}:
        for text in MEANINGS[key].spelled:
            assert chosen(specimen, (key, text)) == chosen(specimen), key


@given(st.lists(st.sampled_from(list(FEATURES)), min_size=1, unique=True))
def test_inputs_are_read_in_any_order_and_stand_in_one(names: list[str]):
    """Two links that differ in the order of their inputs name the same run."""
    query = read_query([("features", names)])
    assert not query.ignored
    spec = settings_of(DEFAULTS | query.values).spec
    assert isinstance(spec, PlaygroundSpec)
    assert spec.features == tuple(FEATURES[f] for f in FEATURES if f in names)


@pytest.mark.parametrize(
    "spec",
    [PlaygroundSpec(), DigitsSpec(), AdditionSpec(), PydocsSpec(), OwnTextSpec(text=TEXT)],
    ids=KINDS,
)
def test_the_defaults_are_those_of_the_spec(spec: Spec):
    """A bare address and a bare spec are the same run."""
    assert settings_of(DEFAULTS | {"specimen": spec.specimen}).spec == spec


def test_the_playground_goes_at_the_pace_of_tensorflows_and_torch_as_fast_as_it_can():
    assert settings_of(DEFAULTS).epochs_per_s == 60
    for specimen in KINDS[1:]:
        assert settings_of(DEFAULTS | {"specimen": specimen}).epochs_per_s == float("inf")


# Four heads always; a sum has eight characters; a text is pasted.
NOT_SET = {"addition": {"n_head", "seq_len"}, "pydocs": {"n_head"}, "text": {"n_head", "text"}}


@each_specimen
def test_every_field_of_a_spec_but_the_heads_is_set_by_some_control(specimen: str):
    before = fields_of(chosen(specimen).spec)
    changed = {"features"} & set(SHOWN[specimen])
    for key in {*SHOWN[specimen]} - {"features"}:
        for text in MEANINGS[key].spelled:
            after = fields_of(chosen(specimen, (key, text)).spec)
            changed |= {name for name in before if after[name] != before[name]}
    assert changed == set(before) - NOT_SET.get(specimen, set())


@each_control
def test_a_default_is_a_legal_value(control: Control):
    raw = control.default if isinstance(control.default, list) else [str(control.default)]
    assert read_query([(control.key, raw)]).values == {control.key: control.default}


@given(st.data())
def test_any_settings_that_controls_can_show_are_a_spec(data: st.DataObject):
    """No combination of legal values is refused by the spec."""
    values: dict[str, Any] = {
        key: read_query([(key, [data.draw(st.sampled_from(list(m.spelled)))])]).values[key]
        for key, m in MEANINGS.items()
    }
    values["features"] = data.draw(
        st.lists(st.sampled_from(list(FEATURES)), min_size=1, unique=True)
    )
    spec = settings_of(values | {"text": TEXT}).spec
    assert spec.specimen == values["specimen"]
    if isinstance(spec, PlaygroundSpec):
        assert len(spec.hidden) == values["depth"]
    assert Spec.from_json(spec.to_json()) == spec


def test_controls_reach_as_far_as_the_spec_does():
    legal = {key: list(m.spelled.values()) for key, m in MEANINGS.items()}
    for key, names in {
        "specimen": specs.SPECIMENS,
        "problem": specs.PROBLEMS,
        "prec": specs.PRECISIONS,
        "prec_t": specs.MIXED_PRECISIONS,
        "act": specs.ACTIVATIONS,
        "act_d": specs.ACTIVATIONS,
        "opt": specs.OPTIMIZERS,
        "opt_t": specs.OPTIMIZERS,
        "arch": specs.ARCHITECTURES,
        "attn": specs.ATTENTIONS,
    }.items():
        assert set(legal[key]) == set(names), key
    assert set(FEATURES.values()) == set(specs.FEATURES)
    for key, most in {
        "noise": specs.MAX_NOISE,
        "depth": specs.MAX_DEPTH,
        "w1": specs.MAX_WIDTH,
        "batch": specs.MAX_BATCH,
        "seed": specs.MAX_SEED,
        "epochs": specs.MAX_EPOCHS,
        "epochs_d": specs.MAX_EPOCHS,
        "n_layer": specs.MAX_LAYERS,
        "d_model": specs.MAX_D_MODEL,
        "ctx": specs.MAX_CONTEXT,
        "steps_a": specs.MAX_STEPS,
        "steps_t": specs.MAX_STEPS,
    }.items():
        assert max(legal[key]) == most, key


@pytest.mark.parametrize("specimen", KINDS[1:4])
@pytest.mark.parametrize("arch", ["gpt", "llama"])
@pytest.mark.parametrize("ctx", ["16", "512"])
def test_a_size_says_how_many_parameters_its_model_has(specimen: str, arch: str, ctx: str):
    """To two digits; what the slider sets can be set by hand; no two sizes have one name."""
    spec = chosen(specimen, ("arch", arch), ("ctx", ctx)).spec
    assert isinstance(spec, TransformerSpec | DigitsSpec)
    shape = shape_of(spec)
    sizes = settings.sizes(spec, getattr(shape, "vocab_size", 0))
    assert len(sizes) == len(settings.SIZES)
    for label, (layers, width) in sizes.items():
        link = (("arch", arch), ("ctx", ctx), ("n_layer", str(layers)), ("d_model", str(width)))
        n_params = shape_of(chosen(specimen, *link).spec).n_params
        number, unit = label.split()
        said = float(number) * {"k": 1e3, "M": 1e6}[unit]
        assert said == pytest.approx(n_params, rel=0.051)
    assert [*sizes.values()] == sorted(sizes.values(), key=lambda size: size[0] * size[1] ** 2)


# -- what is refused ------------------------------------------------------------------------------

RULES = {
    "specimen": "must be one of playground, digits, addition, pydocs, text",
    "problem": "must be one of circle, xor, gauss, spiral",
    "noise": "must be a whole number from 0 to 50 in steps of 5",
    "features": "must be among x, y, x², y², x·y, sin x, sin y, each once",
    "depth": "must be a whole number from 0 to 6",
    "w1": "must be a whole number from 1 to 8",
    "act": "must be one of tanh, ReLU, sigmoid, linear",
    "lr": "must be one of 0.00001, 0.0001,",
    "opt": "must be one of SGD, momentum, AdamW",
    "batch": "must be a whole number from 1 to 30",
    "prec": "must be one of fp32, fp64",
    "seed": "must be a whole number from 0 to 2147483647",
    "epochs": "must be one of 20, 50,",
    "pace": "must be one of 1, 10, 60, fastest",
    "n_layer": "must be a whole number from 1 to 12",
    "d_model": "must be one of 16, 32, 64, 128, 256, 512",
    "act_d": "must be one of tanh, ReLU, sigmoid, linear",
    **dict.fromkeys(("batch_d", "batch_a", "batch_t"), "must be one of 1, 2, 4,"),
    "ctx": "must be one of 16, 32, 64, 128, 256, 512",
    "arch": "must be one of gpt, llama",
    "attn": "must be one of flash, explicit",
    "ckpt": "must be one of off, on",
    "accum": "must be one of 1, 2, 4, 8",
    "drop": "must be a whole number from 0 to 50 in steps of 10",
    "lr_t": "must be one of 0.0001, 0.0003,",
    "opt_t": "must be one of SGD, momentum, AdamW",
    "prec_t": "must be one of fp32, bf16, fp16",
    "epochs_d": "must be one of 20, 50,",
    "steps_a": "must be one of 50, 200,",
    "steps_t": "must be one of 50, 200,",
}
BAD = {
    "problem": ["moons", "Circle", ""],
    "noise": ["7", "-5", "55", "0.5", "", "NaN"],
    "features": ["z", "x2", ""],
    "depth": ["7", "-1", "2.0", "two"],
    "w1": ["0", "9", "1e1", "4 2"],
    "act": ["relu", "gelu"],
    "lr": ["0.02", "1e-3", "nan", "inf", "0"],
    "opt": ["adam", "sgd"],
    "batch": ["0", "31", "10.5", "999999999999999999999999"],
    "prec": ["fp16", "float32"],
    "seed": ["-1", "2147483648", "0x10"],
    "epochs": ["0", "501", "1e3"],
    "pace": ["0", "61", "-1", "inf"],
    "specimen": ["Digits", "gpt", "depths", "", "Spec"],
    "n_layer": ["0", "13", "2.5", ""],
    "d_model": ["48", "8", "1024", "64.0"],
    "act_d": ["relu", ""],
    "batch_d": ["0", "33", "1024"],
    "batch_a": ["100", "-1"],
    "batch_t": ["", "1e2"],
    "ctx": ["8", "48", "1024"],
    "arch": ["GPT", "mamba"],
    "attn": ["Flash", "sdpa"],
    "ckpt": ["true", "1", ""],
    "accum": ["3", "0", "16"],
    "drop": ["5", "60", "0.1"],
    "lr_t": ["0.3", "3e-3", "nan"],
    "opt_t": ["adam", "Muon"],
    "prec_t": ["fp64", "int8"],
    "epochs_d": ["0", "21"],
    "steps_a": ["1", "1000000"],
    "steps_t": ["2001", "all"],
}


def test_every_control_is_tried_with_bad_values():
    widths = {f"w{i}" for i in range(2, 7)}  # as w1
    assert set(RULES) == set(BAD) == set(CONTROLS) - widths


@pytest.mark.parametrize(("key", "text"), [(key, text) for key in BAD for text in BAD[key]])
def test_a_bad_value_is_named_with_its_rule_and_what_stays(key: str, text: str):
    query = read_query([(key, [text])])
    assert not query.values
    said = query.ignored[key]
    assert f"`{key}`" in said
    assert f"`{text[:40] or ' '}`" in said
    assert RULES[key] in said
    default = CONTROLS[key].default
    assert said.endswith(f"stays {', '.join(default) if isinstance(default, list) else default}"), (
        said
    )


@each_control
def test_a_value_given_twice_is_refused(control: Control):
    if control.widget == "many":
        assert "each once" in read_query([(control.key, ["x", "x"])]).ignored[control.key]
        return
    raw = [str(control.default)] * 2
    assert "was given more than once" in read_query([(control.key, raw)]).ignored[control.key]


@each_control
def test_no_value_at_all_is_refused(control: Control):
    assert control.key in read_query([(control.key, [])]).ignored


hostile = st.text(max_size=60) | st.sampled_from(
    [
        "`",
        "``` code",
        "a`b`c",
        "\n",
        "\r\n# title",
        "9" * 5000,
        "1" * 4301,
        "<script>alert(1)</script>",
        "[x](javascript:alert(1))",
        "\u202e",
        "\x00",
        "१०",
        "🙂" * 30,
        "$x$",
        ":material/home:",
    ]
)


@each_control
@given(raw=st.lists(hostile, max_size=4))
def test_any_text_is_taken_or_named_and_never_raises(control: Control, raw: list[str]):
    query = read_query([(control.key, raw)])
    assert [*query.values, *query.ignored] == [control.key]
    if query.values:
        settings_of(DEFAULTS | query.values)


def code_spans(sentence: str) -> list[str]:
    return sentence.split("`")[1::2]


@each_control
@given(raw=st.lists(hostile, min_size=1, max_size=4))
def test_a_refused_text_is_quoted_in_one_line_and_cannot_leave_its_quotes(
    control: Control, raw: list[str]
):
    """It stands in a code span, so that no markup in it is read as such."""
    said = read_query([(control.key, raw)]).ignored.get(control.key)
    if said is None:
        return
    assert said.count("`") == 4
    key, shown = code_spans(said)
    assert key == control.key
    assert len(shown) <= 40
    assert len(said.splitlines()) == 1, said


@given(key=hostile.filter(lambda k: k not in {*CONTROLS, *NOT_SETTINGS}))
def test_an_unknown_setting_is_named(key: str):
    query = read_query([(key, ["1"])])
    assert not query.values
    said = query.ignored[key]
    assert said.endswith("is no setting of this page")
    assert said.count("`") == 2
    assert len(said.splitlines()) == 1, said


@pytest.mark.parametrize("key", NOT_SETTINGS)
def test_what_is_no_setting_but_belongs_in_a_link_is_left_alone(key: str):
    query = read_query([(key, ["anything", "twice"])])
    assert not query.values
    assert not query.ignored


def test_a_bad_value_takes_no_good_one_with_it():
    query = read_query(
        [("batch", ["99"]), ("depth", ["3"]), ("colour", ["red"]), ("run", ["a"]), ("opt", ["SGD"])]
    )
    assert query.values == {"depth": 3, "opt": "SGD"}
    assert list(query.ignored) == ["batch", "colour"]


# -- the learning rate that a diverged run is offered ---------------------------------------------

RATES = {"playground": [*MEANINGS["lr"].spelled], "text": [*MEANINGS["lr_t"].spelled]}
RATES |= dict.fromkeys(("digits", "addition", "pydocs"), RATES["text"])


@given(st.floats(0, 100), st.sampled_from(KINDS))
def test_the_rate_offered_is_the_largest_choice_that_is_not_above_what_was_asked(
    wanted: float, specimen: str
):
    offered = float(settings.next_learning_rate(wanted, specimen))
    rates = [float(rate) for rate in RATES[specimen]]
    assert offered in rates
    assert offered <= wanted * (1 + 1e-8) or offered == min(rates)
    assert [rate for rate in rates if offered < rate <= wanted] == []


@pytest.mark.parametrize(
    ("specimen", "rate"), [(specimen, rate) for specimen in KINDS for rate in RATES[specimen]]
)
def test_a_tenth_of_any_choice_offers_a_smaller_choice_or_the_smallest(specimen: str, rate: str):
    """`advice` of a diverged run is a tenth of its rate, with the rounding of a float."""
    offered = settings.next_learning_rate(float(rate) / 10, specimen)
    assert offered in RATES[specimen]
    assert float(offered) < float(rate) or rate == RATES[specimen][0]
