"""A size knows its unit: GB and GiB, bytes and numbers, cannot be mixed."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from core.sizes import UNITS, Bytes, total

sizes = st.integers(0, 10**18).map(Bytes)


@given(st.integers(0, 10**15), st.sampled_from(sorted(UNITS)))
def test_a_unit_and_back(n, unit):
    assert Bytes.of(n, unit).in_unit(unit) == pytest.approx(n, rel=1e-12)


def test_decimal_and_binary_units_are_two_things():
    assert Bytes.of(1, "GB").n == 10**9
    assert Bytes.of(1, "GiB").n == 2**30
    assert Bytes.of(80, "GB").in_unit("GiB") == pytest.approx(74.5058, rel=1e-5)
    assert Bytes.of(1, "KiB").n == 1024 and Bytes.of(1, "kB").n == 1000


@given(sizes, sizes)
def test_sizes_add_and_compare(a, b):
    assert (a + b).n == a.n + b.n
    assert (a + b) - b == a
    assert (a < b) == (a.n < b.n)
    assert total([a, b]) == a + b


@given(sizes, st.integers(1, 1000))
def test_a_number_scales_and_a_size_divides_to_a_number(a, k):
    assert (a * k).n == (k * a).n == a.n * k
    if a.n:
        assert a * k / a == pytest.approx(k)


@pytest.mark.parametrize(
    "mistake",
    [
        lambda a: a * a,  # bytes counted twice
        lambda a: a + 1,
        lambda a: 1 + a,
        lambda a: a - 1,
        lambda a: a < 1,
        lambda a: Bytes(a),
        lambda a: Bytes("1"),
        lambda a: Bytes(True),
    ],
)
def test_what_makes_no_sense_is_a_type_error(mistake):
    with pytest.raises(TypeError):
        mistake(Bytes(34))


@pytest.mark.parametrize("value", [float("nan"), float("inf")])
def test_a_size_is_finite(value):
    with pytest.raises(ValueError, match="finite"):
        Bytes(value)


def test_an_unknown_unit_names_those_there_are():
    with pytest.raises(ValueError, match="GiB"):
        Bytes.of(1, "Gb")
