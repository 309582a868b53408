"""Latency's settings are those it shares with Memory and its own; each is a URL value."""

import pytest

from components import pacing, settings, sizing


def test_own_settings_do_not_take_the_names_of_shared_ones():
    assert not set(pacing.OWN) & set(sizing.CONTROLS)
    assert {**sizing.CONTROLS, **pacing.OWN} == pacing.CONTROLS
    assert not set(pacing.OWN) & set(settings.NOT_SETTINGS)


@pytest.mark.parametrize("key", pacing.OWN)
def test_every_default_may_stand_in_a_link(key: str):
    control = pacing.OWN[key]
    assert control.read([str(control.default)]) == control.default
    assert control.label and control.help


@pytest.mark.parametrize(
    ("key", "value"),
    [("prompt", "1000"), ("accept", "101"), ("draft", "0"), ("step_ms", "-1"), ("ops", "all")],
)
def test_a_bad_value_is_named_and_ignored(key: str, value: str):
    query = settings.read_query([(key, [value])], pacing.CONTROLS)
    assert key not in query.values
    assert key in query.ignored[key] and "stays" in query.ignored[key]


def test_every_work_has_a_name():
    assert set(pacing.WORKS.values()) == {"train", "prefill", "decode"}
