"""What numbers take up in each format."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from core.units import STORED

SIZES = st.integers(1, 5000)


def test_a_block_of_a_gguf_file_takes_what_ggml_says():
    """Source: block_q4_1 (20 bytes) and block_q8_0 (34 bytes), of 32 numbers each."""
    assert STORED["Q4_1"].bytes_of(1, 32) == 20
    assert STORED["Q8_0"].bytes_of(1, 32) == 34
    assert STORED["F32"].bytes_of(1, 32) == 128


@pytest.mark.parametrize(
    ("name", "n_bytes"),
    [
        ("fp32", 128 * 64 * 4),
        ("bf16", 128 * 64 * 2),
        ("int8", 128 * 64 + 2 * 64 * 8),  # two blocks of 64 rows: scale and zero for each column
        ("int4", 128 * 64 // 2 + 128 * 2 * 4),  # two groups in each row
    ],
)
def test_bytes_of_a_matrix_are_those_of_its_numbers_and_of_what_they_share(name, n_bytes):
    assert STORED[name].bytes_of(128, 64) == n_bytes


@pytest.mark.parametrize("name", STORED)
@given(n_rows=SIZES, n_columns=SIZES)
def test_blocks_hold_all_rows_and_are_as_few_and_as_even_as_can_be(name, n_rows, n_columns):
    stored = STORED[name]
    n_blocks, rows = stored.blocks(n_rows)
    assert rows <= stored.group_rows
    assert n_rows <= n_blocks * rows < n_rows + n_blocks
    assert (n_blocks - 1) * stored.group_rows < n_rows
    assert stored.bytes_of(n_rows, n_columns) * 8 >= n_rows * n_columns * stored.bits


@given(n_rows=SIZES, n_columns=SIZES)
def test_a_narrower_format_never_takes_more_bytes_once_rows_and_columns_fill_groups(
    n_rows, n_columns
):
    n_rows, n_columns = 64 * n_rows, 32 * n_columns
    sizes = [STORED[name].bytes_of(n_rows, n_columns) for name in ("fp32", "bf16", "int8", "int4")]
    assert sizes == sorted(sizes, reverse=True)
