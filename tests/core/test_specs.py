"""Settings: what gets in, what is refused and how, and the names that links are made of."""

import dataclasses
import json
import math
from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from core.specs import MAX_DEPTH, SPEC_KINDS, RunSpec, Spec, TrainSpec
from tests.core.strategies import json_values, train_specs

# The least that makes a valid spec of each specimen.
LEAST = {name: {"specimen": name} for name in SPEC_KINDS}
LEAST["text"]["text"] = "0123456789abcdef" * 2
FIELDS = [
    (name, field.name) for name, kind in SPEC_KINDS.items() for field in dataclasses.fields(kind)
]


# -- there and back -----------------------------------------------------------------------------


@given(train_specs)
def test_a_spec_survives_json(spec: TrainSpec):
    """Written to JSON text and read again, a spec is equal and has the same id."""
    again = TrainSpec.from_json(json.loads(json.dumps(spec.to_json(), allow_nan=False)))
    assert again == spec
    assert again.spec_id == spec.spec_id


@given(train_specs)
def test_differences_are_enough(spec: TrainSpec):
    """The fields that differ from the defaults, and no others, give the whole spec back."""
    assert TrainSpec.from_json(json.loads(json.dumps(spec.differences))) == spec
    default = TrainSpec().to_json()
    assert all(default[name] != value for name, value in spec.differences.items())


@pytest.mark.parametrize("specimen", SPEC_KINDS)
def test_a_spec_of_every_specimen_survives_json(specimen: str):
    """The defaults of each specimen come back as what they were, from all or the fewest fields."""
    spec = RunSpec.from_json(LEAST[specimen])
    assert type(spec) is SPEC_KINDS[specimen]
    assert RunSpec.from_json(json.loads(json.dumps(spec.to_json()))) == spec
    assert RunSpec.from_json(json.loads(json.dumps(spec.differences))) == spec


def test_settings_without_a_specimen_are_the_playgrounds():
    """Links from before there were others name no specimen."""
    assert RunSpec.from_json({"problem": "xor"}) == TrainSpec(problem="xor")


# -- names --------------------------------------------------------------------------------------


def test_ids_of_old_links_stay():
    """These two ids stand in links and in names of recordings: they never change."""
    assert TrainSpec().spec_id == "977ff33a7cc08c88"
    other = TrainSpec(problem="spiral", features=("x", "sinx"), hidden=(8, 8), optimizer="adamw")
    assert other.spec_id == "1c0f91fd89eab9b9"


@given(train_specs, train_specs)
def test_ids_differ_exactly_where_specs_do(one: TrainSpec, other: TrainSpec):
    """Two specs share an id if and only if they are equal."""
    assert (one.spec_id == other.spec_id) == (one == other)


def test_ids_of_specimens_differ():
    """No two specimens share an id, whatever fields they share."""
    assert len({RunSpec.from_json(least).spec_id for least in LEAST.values()}) == len(SPEC_KINDS)


@pytest.mark.parametrize(("field", "value"), [("learning_rate", 1), ("noise", 0)])
def test_a_whole_number_names_the_same_run(field: str, value: int):
    """A number field given as a whole number is the float: equal specs have equal ids and types."""
    whole, point = TrainSpec(**{field: value}), TrainSpec(**{field: float(value)})
    assert whole == point
    assert whole.spec_id == point.spec_id
    assert isinstance(getattr(whole, field), float)


# -- what is refused ----------------------------------------------------------------------------

INVALID = [
    ("problem", "moons"),
    ("problem", ""),
    ("noise", -0.01),
    ("noise", 0.51),
    ("features", []),
    ("features", ["x", "x"]),
    ("hidden", [4] * (MAX_DEPTH + 1)),
    ("activation", "gelu"),
    ("optimizer", "Adam"),
    ("learning_rate", 0),
    ("learning_rate", 10.5),
    ("learning_rate", 10**30),
    ("batch_size", 0),
    ("batch_size", 31),
    ("precision", "fp16"),
    ("seed", -1),
    ("seed", 2**31),
    ("n_epochs", 0),
    ("n_epochs", 5001),
    ("n_epochs", 2.5),
]


@pytest.mark.parametrize(("field", "value"), INVALID)
def test_a_refusal_says_what_and_what_to_do(field: str, value: object):
    """The message holds the field, the value and a remedy."""
    with pytest.raises(ValueError) as refusal:
        TrainSpec.from_json({field: value})
    message = str(refusal.value)
    assert field in message
    assert repr(tuple(value) if isinstance(value, list) else value) in message
    assert "choose" in message.split(";")[-1]


@pytest.mark.parametrize(
    ("field", "values", "element"),
    [("features", ["x", "z"], "feature='z'"), ("hidden", [4, 9], "width=9")],
)
def test_a_refusal_names_the_element(field: str, values: list, element: str):
    """Of a list with one bad element the message holds that element and a remedy."""
    with pytest.raises(ValueError, match=f"^{element} .*; choose"):
        TrainSpec.from_json({field: values})


def test_an_unknown_setting_is_refused_by_name():
    """A field that does not exist is named, and the known ones are listed."""
    with pytest.raises(ValueError, match=r"'learning_rat' is unknown; use .*learning_rate"):
        TrainSpec.from_json({"learning_rat": 0.1})


JUNK = [
    None,
    True,
    False,
    math.nan,
    math.inf,
    -math.inf,
    10**400,
    -(10**400),
    1.5,
    7,
    "",
    "x",
    "nan",
    b"x",
    [],
    [[]],
    [["x"]],
    [None],
    [True],
    [math.nan],
    [4.0],
    ["4"],
    {},
    {"x": 1},
    (),
    ("x",),
    ("x", ["y"]),
    ([4],),
    {1, 2},
    object(),
]


def well_typed(spec: RunSpec) -> bool:
    """Whether every field holds exactly the type it declares."""
    for field in dataclasses.fields(spec):
        value = getattr(spec, field.name)
        if type(value) is not type(field.default):
            return False
        if isinstance(value, tuple):
            assert isinstance(field.default, tuple)
            kind = type(field.default[0]) if field.default else str
            if {type(element) for element in value} - {kind}:
                return False
    return True


def directly(record: dict) -> RunSpec:
    """The spec made without a detour through JSON's lists."""
    values = {name: value for name, value in record.items() if name != "specimen"}
    return SPEC_KINDS[record["specimen"]](**values)


@pytest.mark.parametrize("make", [RunSpec.from_json, directly])
@pytest.mark.parametrize(("specimen", "field"), FIELDS)
def test_a_wrong_type_is_a_value_error(make: Callable[[dict], RunSpec], specimen: str, field: str):
    """Whatever is put into a field either is what the field declares or raises ValueError."""
    for junk in JUNK:
        try:
            spec = make(LEAST[specimen] | {field: junk})
        except ValueError:
            continue
        assert well_typed(spec), f"{field}={junk!r} got in"


def test_training_takes_no_answer_for_a_run():
    with pytest.raises(ValueError, match="specimen='answer' is unknown"):
        Spec.from_json({"specimen": "answer"})


@pytest.mark.parametrize("specimen", JUNK)
def test_a_specimen_that_is_none_is_a_value_error(specimen: object):
    """Whatever is named as the specimen, a known name or ValueError."""
    with pytest.raises(ValueError, match="specimen="):
        RunSpec.from_json({"specimen": specimen})


@pytest.mark.parametrize("record", [None, [], ["noise"], "noise", 3, True])
def test_settings_that_are_no_object_are_a_value_error(record: object):
    """JSON that is not an object raises ValueError like any other nonsense."""
    with pytest.raises(ValueError, match="settings="):
        TrainSpec.from_json(record)  # type: ignore[arg-type]


@given(
    st.sampled_from(sorted(SPEC_KINDS)).flatmap(
        lambda name: st.tuples(
            st.just(name),
            st.dictionaries(
                st.sampled_from([field for kind, field in FIELDS if kind == name]),
                json_values | st.integers(0, 40) | st.floats(0, 1),
                max_size=4,
            ),
        )
    )
)
def test_any_json_is_a_spec_or_a_value_error(settings: tuple[str, dict]):
    """JSON of any kind in any fields gives a well-typed spec with an id, or ValueError."""
    specimen, record = settings
    try:
        spec = RunSpec.from_json(LEAST[specimen] | record)
    except ValueError:
        return
    assert well_typed(spec)
    assert len(spec.spec_id) == 16
