"""A link sets what it names; what it names wrongly is said aloud."""

import pytest

from core.specs import TrainSpec
from tests.pages.conftest import Visit

# The values of each control in turn; link i takes each one's i-th, so that every value is visited.
VALUES = {
    "problem": ["circle", "xor", "gauss", "spiral"],
    "noise": [str(n) for n in range(0, 51, 5)],
    "depth": [str(n) for n in (6, 5, 4, 3, 2, 1, 0)],
    **{f"w{i}": [str(n) for n in range(1, 9)] for i in range(1, 7)},
    "act": ["tanh", "ReLU", "sigmoid", "linear"],
    "lr": ["0.00001", "0.0001", "0.001", "0.003", "0.01", "0.03", "0.1", "0.3", "1", "3", "10"],
    "opt": ["SGD", "momentum", "AdamW"],
    "batch": ["1", "2", "10", "17", "29", "30"],
    "prec": ["fp32", "fp64"],
    "seed": ["0", "1", "12345", "2147483647"],
    "epochs": ["20", "50", "100", "200", "500", "1000", "2000", "5000"],
    "pace": ["1", "10", "60", "fastest"],
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
NAMES = {"act": "activation", "lr": "learning_rate", "opt": "optimizer", "batch": "batch_size"}
NAMES |= {"prec": "precision", "epochs": "n_epochs"}
WORDS = {"ReLU": "relu", "SGD": "sgd", "AdamW": "adamw"}


def spec_of(link: dict[str, str], features: list[str]) -> TrainSpec:
    """The settings that a link spells, read without any code of the page."""
    fields: dict[str, object] = {
        "hidden": tuple(int(link[f"w{i + 1}"]) for i in range(int(link["depth"])))
    }
    fields["features"] = tuple(FEATURES[f] for f in FEATURES if f in features)
    fields["noise"] = int(link["noise"]) / 100
    for key in ("problem", "act", "opt", "prec"):
        fields[NAMES.get(key, key)] = WORDS.get(link[key], link[key])
    for key in ("batch", "seed", "epochs"):
        fields[NAMES.get(key, key)] = int(link[key])
    return TrainSpec(**fields, learning_rate=float(link["lr"]))  # type: ignore[arg-type]


@pytest.mark.parametrize("i", range(11))
def test_a_link_sets_every_control_and_the_run_that_is_shown(visit: Visit, i: int):
    """The widgets, the spec that the picture is drawn of, and nothing ignored."""
    link = {key: values[i % len(values)] for key, values in VALUES.items()}
    features = [list(FEATURES)[i % 7], list(FEATURES)[(i + 3) % 7]]
    page = visit(**link, features=features)
    assert [w.value for w in page.at.warning] == []
    depth = int(link["depth"])
    for key, text in link.items():
        if key[0] != "w" or int(key[1:]) <= depth:
            assert str(page.at.get_by_key(key).value) == text, key
    assert set(page.at.get_by_key("features").value) == set(features)
    header = page.header
    assert TrainSpec.from_json(header["spec"]) == spec_of(link, features)


def test_there_is_a_width_for_each_hidden_layer_and_no_other(visit: Visit):
    for depth in range(7):
        page = visit(depth=str(depth))
        keys = [s.key for s in page.at.slider if s.key.startswith("w")]
        assert keys == [f"w{i + 1}" for i in range(depth)]


def test_a_link_without_settings_is_the_default(visit: Visit):
    header = visit().header
    assert TrainSpec.from_json(header["spec"]) == TrainSpec()


def test_training_settings_without_a_path_lead_to_training(visit: Visit):
    """Links of before, when the address without a path led there."""
    page = visit(page="", batch="13")
    assert page.at.title[0].value == "A step is four things, over and over"
    assert page.at.get_by_key("batch").value == 13


# -- bad links ----------------------------------------------------------------------------------


def test_one_warning_names_every_bad_value_with_its_rule(visit: Visit):
    page = visit(batch="99", lr="0.02", colour="red", opt="AdamW")
    (warning,) = (w.value for w in page.at.warning)
    assert warning.startswith("Part of the link was ignored: ")
    assert "`batch` = `99` must be a whole number from 1 to 30; batch size stays 10" in warning
    assert "`lr` = `0.02` must be one of" in warning
    assert "`colour` is no setting of this page" in warning


def test_bad_values_leave_the_good_ones_alone(visit: Visit):
    page = visit(batch="99", opt="AdamW", depth="1", w1="3", seed="-1")
    header = page.header
    assert TrainSpec.from_json(header["spec"]) == TrainSpec(optimizer="adamw", hidden=(3,))


def test_what_was_ignored_is_taken_out_of_the_address(visit: Visit):
    page = visit(batch="99", colour="red", embed_options="light_theme")
    assert "batch" not in page.at.query_params
    assert "colour" not in page.at.query_params


def test_the_warning_stays_until_it_is_dismissed(visit: Visit):
    page = visit(batch="99")
    for _ in range(2):
        page.again()
        assert len(page.at.warning) == 1
    page.set("depth", 1)
    assert len(page.at.warning) == 1
    page.press("Dismiss")
    assert [w.value for w in page.at.warning] == []
    page.again()
    assert [w.value for w in page.at.warning] == []


def test_a_good_link_is_met_without_a_warning(visit: Visit):
    page = visit(batch="13")
    assert [w.value for w in page.at.warning] == []
    assert "Dismiss" not in page.labels


@pytest.mark.parametrize(
    "link",
    [
        {"features": ["x", "z"]},
        {"features": ""},
        {"features": ["x", "x"]},
        {"depth": ["1", "2"]},
        {"lr": "`; [x](javascript:alert(1))"},
        {"<script>": "1"},
        {"seed": "9" * 5000},
        {"noise": "NaN"},
        {"run": "../../etc"},
        {"run": ["a", "b"]},
    ],
    ids=str,
)
def test_no_link_breaks_the_page(visit: Visit, link: dict[str, object]):
    page = visit(**link)
    assert page.at.title[0].value == "A step is four things, over and over"
    header = page.header
    assert TrainSpec.from_json(header["spec"]) == TrainSpec()


@pytest.mark.parametrize("key", ["embed", "embed_options", "v"])
def test_what_other_software_adds_to_a_link_is_left_alone(visit: Visit, key: str):
    assert [w.value for w in visit(**{key: "1"}).at.warning] == []
