"""Matrices in each weight format: their products, what they hold, and how far they are off."""

import hashlib

import gguf
import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.utils._python_dispatch import TorchDispatchMode

from core.engine import kernels
from core.engine.kernels import KERNELS, RawBlocks, make
from core.specs import WEIGHT_FORMATS
from core.units import GROUP, STORED

FORMATS = ("fp32", "bf16", "int8", "int4")
ROUNDED = 2.0**-8  # relative, of a number in bfloat16
SIZES = [
    (640, 416),  # several blocks of fp32, and of all others
    (576, 96),
    (80, 64),
    (65, 96),  # rows that no block divides
    (97, 50),  # neither rows nor columns
    (16, 32),
    (13, 24),
    (1, 7),
]


def weight(n_rows: int, n_columns: int, seed: int = 1) -> torch.Tensor:
    return torch.randn(n_rows, n_columns, generator=torch.Generator().manual_seed(seed))


def vectors(n: int | None, n_columns: int) -> torch.Tensor:
    size = (n_columns,) if n is None else (n, n_columns)
    return torch.randn(size, generator=torch.Generator().manual_seed(2))


def tolerance(weight_format: str) -> float:
    """Of a product, relative to the greatest: of bfloat16 where vector or result are rounded."""
    return 2 * ROUNDED if weight_format in ("bf16", "int4") else 1e-5


def fingerprint(matrix: kernels.Matrix) -> str:
    found = hashlib.sha256()
    for name, tensor in matrix.stored():
        found.update(name.encode())
        found.update(tensor.contiguous().view(torch.uint8).numpy().tobytes())
    return found.hexdigest()


# -- products -----------------------------------------------------------------------------------


@pytest.mark.parametrize("n_vectors", [None, 1, 2, 9, 64])
@pytest.mark.parametrize("size", SIZES, ids=str)
@pytest.mark.parametrize("weight_format", FORMATS)
def test_a_product_is_that_of_the_numbers_the_format_can_tell(weight_format, size, n_vectors):
    matrix = make(weight(*size), weight_format)
    x = vectors(n_vectors, size[1])
    with torch.inference_mode():
        y = matrix.product(x)
    expected = x.double() @ matrix.dense().double().T
    assert y.dtype == torch.float32
    assert y.shape == expected.shape
    assert (y - expected).abs().max() <= tolerance(weight_format) * expected.abs().max()


@pytest.mark.parametrize("weight_format", FORMATS)
def test_a_vector_may_be_a_view_and_is_left_as_it_was(weight_format):
    matrix = make(weight(640, 416), weight_format)
    x = vectors(3, 832)[1, ::2]
    before = x.clone()
    y = matrix.product(x)
    assert torch.equal(x, before)
    assert torch.equal(y, matrix.product(x.contiguous()))


@pytest.mark.parametrize("weight_format", FORMATS)
def test_products_change_nothing_of_what_is_stored(weight_format):
    matrix = make(weight(640, 416), weight_format)
    before = fingerprint(matrix)
    for n in (None, 1, 20):
        matrix.product(vectors(n, 416)).zero_()
    matrix.rows(torch.tensor([0, 1])).zero_()
    assert fingerprint(matrix) == before


@pytest.mark.parametrize("weight_format", FORMATS)
def test_a_matrix_keeps_nothing_of_the_tensor_it_was_made_from(weight_format):
    given_ND = weight(640, 416)
    matrix = make(given_ND, weight_format)
    before = matrix.dense().clone()
    given_ND.zero_()
    assert torch.equal(matrix.dense(), before)


@pytest.mark.parametrize("weight_format", FORMATS)
def test_one_thread_and_two_give_the_same_bits(weight_format):
    matrix = make(weight(1280, 416), weight_format)
    x = vectors(None, 416)
    n_threads = torch.get_num_threads()
    try:
        torch.set_num_threads(1)
        one = matrix.product(x)
        torch.set_num_threads(2)
        two = matrix.product(x)
    finally:
        torch.set_num_threads(n_threads)
    assert torch.equal(one, two)


@pytest.mark.parametrize("weight_format", FORMATS)
def test_a_product_calls_what_the_page_says(weight_format):
    """In the sizes of models; small matrices of floats are done by aten::mv."""
    called = []

    class Watch(TorchDispatchMode):
        def __torch_dispatch__(self, func, types, args=(), kwargs=None):
            called.append(func.name())
            return func(*args, **(kwargs or {}))

    matrix = make(weight(640, 416), weight_format)
    with torch.inference_mode(), Watch():
        matrix.product(vectors(None, 416))
    assert KERNELS[weight_format].op in called
    assert matrix.real
    assert not matrix.note


# -- what it holds ------------------------------------------------------------------------------


@settings(deadline=None, max_examples=40)
@given(
    weight_format=st.sampled_from(FORMATS),
    n_rows=st.integers(1, 400),
    n_columns=st.integers(1, 100),
)
def test_stored_bytes_are_those_predicted(weight_format, n_rows, n_columns):
    matrix = make(weight(n_rows, n_columns), weight_format)
    expected = STORED[weight_format].bytes_of(n_rows, n_columns)
    assert matrix.stored_bytes == matrix.read_bytes == expected
    storages = {t.untyped_storage().data_ptr(): t.untyped_storage() for _, t in matrix.stored()}
    assert sum(s.nbytes() for s in storages.values()) == expected


@pytest.mark.parametrize("size", SIZES, ids=str)
@pytest.mark.parametrize("weight_format", FORMATS)
def test_rows_are_those_of_the_dense_matrix(weight_format, size):
    matrix = make(weight(*size), weight_format)
    ids = torch.tensor([size[0] - 1, 0, size[0] // 2, 0])
    assert matrix.rows(ids).dtype == torch.float32
    assert torch.equal(matrix.rows(ids), matrix.dense()[ids])


def test_every_weight_format_says_how_it_is_computed():
    assert tuple(KERNELS) == WEIGHT_FORMATS
    assert all(k.title and k.says.endswith(".") for k in KERNELS.values())


# -- how far it is off --------------------------------------------------------------------------


@pytest.mark.parametrize("size", SIZES, ids=str)
def test_fp32_is_exact_and_bf16_is_rounded_once(size):
    weight_ND = weight(*size)
    assert torch.equal(make(weight_ND, "fp32").dense(), weight_ND)
    assert torch.equal(make(weight_ND, "bf16").dense(), weight_ND.bfloat16().float())


@pytest.mark.parametrize("size", SIZES, ids=str)
def test_int8_is_off_by_half_a_step_of_its_block_at_most(size):
    """A step: a 255th of the range of at most 64 numbers of a column."""
    weight_ND = weight(*size)
    error = (make(weight_ND, "int8").dense() - weight_ND).abs()
    _, rows = STORED["int8"].blocks(size[0])
    for start in range(0, size[0], rows):
        block = weight_ND[start : start + rows]
        if len(block) < rows:  # filled up with zeros
            block = torch.cat([block, torch.zeros(1, size[1])])
        step = (block.amax(0) - block.amin(0)) / 255
        assert (error[start : start + rows] <= step / 2 + 1e-6).all()


@pytest.mark.parametrize("offset", [0.0, 3.0])
@pytest.mark.parametrize("size", SIZES, ids=str)
def test_int4_is_off_by_half_a_step_of_its_group_at_most(size, offset):
    """A step: a 15th of the range of 32 numbers of a row; scale and zero are rounded themselves."""
    weight_ND = weight(*size) + offset
    error = (make(weight_ND, "int4").dense() - weight_ND).abs()
    for start in range(0, size[1], GROUP):
        group = weight_ND[:, start : start + GROUP]
        if group.shape[1] < GROUP:
            group = torch.cat([group, torch.zeros(size[0], 1)], dim=1)
        least, greatest = group.aminmax(dim=1, keepdim=True)
        step = (greatest - least) / 15
        zero = (least + 8 * step).abs()
        allowed = step / 2 + ROUNDED * (8 * step + zero)
        assert (error[:, start : start + GROUP] <= allowed).all()


def test_int8_is_nearer_than_int4_and_bf16_nearer_than_int8():
    weight_ND = weight(640, 416)
    errors = [(make(weight_ND, f).dense() - weight_ND).norm() for f in ("int4", "int8", "bf16")]
    assert errors == sorted(errors, reverse=True)


@pytest.mark.parametrize("value", [0.0, 1.5, -2.0])
@pytest.mark.parametrize("weight_format", FORMATS)
def test_numbers_that_are_all_the_same_stay_exact(weight_format, value):
    matrix = make(torch.full((64, 64), value), weight_format)
    assert torch.equal(matrix.dense(), torch.full((64, 64), value))
    assert torch.equal(matrix.product(torch.ones(64)), torch.full((64,), 64 * value))


# -- where a packed product cannot be used ------------------------------------------------------


@pytest.mark.parametrize("size", [(65, 96), (64, 50)], ids=str)
def test_sizes_that_int4_cannot_pack_are_simulated_and_say_so(size):
    matrix = make(weight(*size), "int4")
    assert not matrix.real
    assert f"{size[0]} × {size[1]}" in matrix.note


@pytest.fixture
def retried():
    """Asks anew, before and after, whether packed products work."""
    kernels._works.cache_clear()
    yield
    kernels._works.cache_clear()


@pytest.mark.parametrize("how", ["missing", "raises", "wrong"])
def test_an_int4_product_that_fails_its_check_is_simulated(monkeypatch, retried, how):
    def broken(x, packed, group, grid):
        if how == "raises":
            raise RuntimeError("not on this machine")
        return torch.ones(len(x), len(packed), dtype=x.dtype)

    if how == "missing":
        monkeypatch.delattr(torch, "_weight_int4pack_mm_for_cpu")
    else:
        monkeypatch.setattr(torch, "_weight_int4pack_mm_for_cpu", broken)
    weight_ND, x_D = weight(64, 64), vectors(None, 64)
    matrix = make(weight_ND, "int4")
    assert not matrix.real
    assert "does not work" in matrix.note
    assert torch.allclose(matrix.product(x_D), matrix.dense() @ x_D, atol=1e-5)
    monkeypatch.undo()
    kernels._works.cache_clear()
    packed = make(weight_ND, "int4")
    assert packed.real
    assert torch.equal(matrix.dense(), packed.dense())
    assert matrix.stored_bytes == packed.stored_bytes


def test_an_int8_product_that_fails_its_check_is_simulated(monkeypatch, retried):
    def broken(table, indices, starts, x):
        raise RuntimeError("not on this machine")

    monkeypatch.setattr(kernels, "_byte_bags", broken)
    weight_ND, x_D = weight(96, 64), vectors(None, 64)
    matrix = make(weight_ND, "int8")
    assert not matrix.real
    assert torch.allclose(matrix.product(x_D), matrix.dense() @ x_D, atol=1e-5)
    assert (matrix.dense() - weight_ND).abs().max() < 0.02


# -- blocks of a file ---------------------------------------------------------------------------


def raw_blocks(weight_ND: torch.Tensor, block_type: str) -> RawBlocks:
    """By the package gguf."""
    blocks = gguf.quantize(weight_ND.numpy(), gguf.GGMLQuantizationType[block_type])
    raw = torch.from_numpy(blocks.view(np.uint8))
    return RawBlocks(type=block_type, raw=raw, shape=(weight_ND.shape[0], weight_ND.shape[1]))


@pytest.mark.parametrize("block_type", ["Q4_1", "Q8_0", "F32"])
def test_blocks_of_a_file_say_what_the_package_gguf_reads_in_them(block_type):
    raw = raw_blocks(weight(48, 96), block_type)
    expected = gguf.dequantize(raw.raw.numpy(), gguf.GGMLQuantizationType[block_type])
    matrix = make(torch.empty(48, 96), "file", raw)
    assert np.array_equal(matrix.dense().numpy(), expected.reshape(48, 96))
    assert STORED[block_type].bytes_of(48, 96) == raw.raw.numel()


@pytest.mark.parametrize("n_vectors", [None, 1, 20])
@pytest.mark.parametrize("types", [("Q4_1",), ("Q8_0",), ("F32",), ("Q4_1", "Q8_0", "F32")])
def test_a_product_of_a_files_blocks_is_that_of_their_numbers(types, n_vectors):
    parts = [raw_blocks(weight(48, 96, seed), t) for seed, t in enumerate(types)]
    matrix = make(torch.empty(48 * len(types), 96), "file", kernels.stacked(parts))
    x = vectors(n_vectors, 96)
    y, expected = matrix.product(x), x @ matrix.dense().T
    assert y.shape == expected.shape
    assert torch.allclose(y, expected, rtol=1e-4, atol=1e-4)
    assert torch.equal(matrix.rows(torch.tensor([47, 0])), matrix.dense()[[47, 0]])
    assert matrix.stored_bytes == sum(p.raw.numel() for p in parts)
    assert matrix.real is (types == ("F32",))


def test_blocks_are_written_out_some_at_a_time(monkeypatch):
    monkeypatch.setattr(kernels, "CHUNK", 10 * 96)
    matrix = make(torch.empty(48, 96), "file", raw_blocks(weight(48, 96), "Q8_0"))
    x = vectors(3, 96)
    assert torch.allclose(matrix.product(x), x @ matrix.dense().T, atol=1e-4)
    assert torch.allclose(matrix.product(x[0]), matrix.dense() @ x[0], atol=1e-4)


def test_a_model_without_a_file_of_blocks_stays_fp32():
    weight_ND = weight(48, 96)
    matrix = make(weight_ND, "file")
    assert matrix.real
    assert torch.equal(matrix.dense(), weight_ND)


# -- memory -------------------------------------------------------------------------------------


def test_a_system_without_large_pages_gets_ordinary_memory(monkeypatch):
    monkeypatch.delattr("mmap.MADV_HUGEPAGE", raising=False)
    weight_ND = weight(640, 416)
    assert torch.equal(make(weight_ND, "fp32").dense(), weight_ND)


def test_matrices_do_not_overlap():
    weights = [weight(n, 416, seed=n) for n in (3, 640, 7)]
    matrices = [make(w, f) for w in weights for f in ("fp32", "bf16")]
    for w, fp32, bf16 in zip(weights, matrices[::2], matrices[1::2], strict=True):
        assert torch.equal(fp32.dense(), w)
        assert torch.equal(bf16.dense(), w.bfloat16().float())
