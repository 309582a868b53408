"""Settings: what gets in, what is refused and how, and the names that links are made of."""

import dataclasses
import json
import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from core.specs import MAX_DEPTH, TrainSpec
from tests.core.strategies import json_values, train_specs

FIELDS = [field.name for field in dataclasses.fields(TrainSpec)]


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
    with pytest.raises(ValueError, match="'learning_rat' is unknown; use .*learning_rate"):
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


def well_typed(spec: TrainSpec) -> bool:
    """Whether every field holds exactly the type it declares."""
    strings = (spec.problem, spec.activation, spec.optimizer, spec.precision)
    return (
        all(type(value) is str for value in (*strings, *spec.features))
        and all(type(value) is float for value in (spec.noise, spec.learning_rate))
        and all(
            type(value) is int
            for value in (spec.batch_size, spec.seed, spec.n_epochs, *spec.hidden)
        )
        and type(spec.features) is tuple
        and type(spec.hidden) is tuple
    )


@pytest.mark.parametrize("field", FIELDS)
@pytest.mark.parametrize("make", [TrainSpec.from_json, lambda record: TrainSpec(**record)])
def test_a_wrong_type_is_a_value_error(make, field: str):
    """Whatever is put into a field either is what the field declares or raises ValueError."""
    for junk in JUNK:
        try:
            spec = make({field: junk})
        except ValueError:
            continue
        assert well_typed(spec), f"{field}={junk!r} got in"


@pytest.mark.parametrize("record", [None, [], ["noise"], "noise", 3, True])
def test_settings_that_are_no_object_are_a_value_error(record: object):
    """JSON that is not an object raises ValueError like any other nonsense."""
    with pytest.raises(ValueError, match="settings="):
        TrainSpec.from_json(record)  # type: ignore[arg-type]


@given(st.dictionaries(st.sampled_from(FIELDS), json_values | train_specs.map(lambda s: s.seed)))
def test_any_json_is_a_spec_or_a_value_error(record: dict):
    """JSON of any kind in any fields gives a well-typed spec with an id, or ValueError."""
    try:
        spec = TrainSpec.from_json(record)
    except ValueError:
        return
    assert well_typed(spec)
    assert len(spec.spec_id) == 16
