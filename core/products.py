"""What one product with a matrix holds for a moment, in each weight format, and how the matrix is
laid out: the rules that `core.engine.kernels` computes by, told without computing.

Checked: the ledger, in every format (tests/core/test_ladder.py).
"""

from core.units import BF16, FP32, STORED

BLOCK_ROWS = {"fp32": 480, "bf16": 160}  # most rows of a block
LEAST_BLOCK_ROWS = 32  # with fewer, columns are too short to be worth it
LEAST_NUMBERS = {"fp32": 1 << 18, "bf16": 1 << 13}  # of a matrix in blocks
FEW_VECTORS = 8  # int8 writes its numbers out, once, for more vectors than these
CHUNK = 1 << 19  # numbers written out at a time: 2 MB as fp32, which stay in the cache
SHARED = STORED["int8"].group_bytes  # after a block's codes of a column


def block_rows(name: str, n_rows: int, n_columns: int) -> int:
    """Rows of a block of fp32 or bf16; 0 where the matrix is kept row after row."""
    most = min(n_rows, BLOCK_ROWS[name])
    rows = next(n for n in range(most, 0, -1) if n_rows % n == 0)
    if rows < LEAST_BLOCK_ROWS or n_rows * n_columns < LEAST_NUMBERS[name]:
        return 0
    return rows


def product_moves(name: str, m: int, n_out: int, n_in: int) -> tuple[int, ...]:
    """Bytes that come and go while m vectors are multiplied: at the end the results are there and
    the vectors are gone.
    """
    x, y = m * n_in * FP32.n_bytes, m * n_out * FP32.n_bytes
    if name in BLOCK_ROWS:
        moves = _of_floats(name, m, n_out, n_in)
    elif name == "int8":
        moves = _of_bytes(m, n_out, n_in)
    elif name == "int4":
        narrow, result = m * n_in * BF16.n_bytes, m * n_out * BF16.n_bytes
        moves = (narrow, result, -narrow, y, -result)
    else:
        moves = (y,)
    return (*moves, -x)


def _of_floats(name: str, m: int, n_out: int, n_in: int) -> tuple[int, ...]:
    """Narrowed where the weights are; blocks' results come apart and are put together."""
    narrows = name == "bf16"
    e = BF16.n_bytes if narrows else FP32.n_bytes
    y = m * n_out * FP32.n_bytes
    rows = block_rows(name, n_out, n_in)
    n_blocks = n_out // rows if rows else 1
    x_copy, result = m * n_in * e * narrows, m * n_out * e
    if m == 1 and rows:
        x_copy = n_blocks * n_in * e * (narrows or n_blocks > 1)  # once for each block
    joined = (result, -result) if m > 1 and n_blocks > 1 else ()
    widened = (y, -result) if narrows else ()
    return (x_copy, result, *joined, -x_copy, *widened)


def _of_bytes(m: int, n_out: int, n_in: int) -> tuple[int, ...]:
    """A few vectors one by one; of many, the numbers written out chunk by chunk before each."""
    e = FP32.n_bytes
    n_blocks, rows = STORED["int8"].blocks(n_out)
    y = m * n_out * e
    if m <= FEW_VECTORS:
        each = n_blocks * n_in * e * (n_blocks > 1)
        one = n_blocks * rows * e
        if m == 1:
            return (each, one, -each, y - one)
        return (*((each, one, -each) * m), y, -m * one)
    at_once = max(1, CHUNK // (n_in * rows))  # blocks
    moves: list[int] = []
    parts = 0
    for first in range(0, n_blocks, at_once):
        n = min(at_once, n_blocks - first)
        shared, numbers = n * n_in * SHARED, n * n_in * rows * e
        part = m * n * rows * e
        joined = (part, -part) if n > 1 else ()
        moves += (shared, numbers, -shared, part, *joined, -numbers)
        parts += part
    whole = m * n_blocks * rows * e
    return (*moves, whole, -parts, y - whole)
