"""Shapes and the op table: counts against torch's modules and counter, and the table's laws."""

from dataclasses import replace

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.utils.flop_counter import FlopCounterMode

from core.memory import train_ops
from core.ops import Train, mlp_ops
from core.shapes import MlpShape
from core.specs import TrainSpec
from core.units import DTYPES
from tests.core.strategies import train_specs

ACTIVATIONS = {"tanh": torch.nn.Tanh, "relu": torch.nn.ReLU, "sigmoid": torch.nn.Sigmoid}


def torch_network(shape: MlpShape) -> torch.nn.Sequential:
    modules: list[torch.nn.Module] = []
    for width_in, width_out in zip((shape.d_in, *shape.hidden), shape.hidden, strict=False):
        modules.append(torch.nn.Linear(width_in, width_out))
        if shape.activation != "linear":
            modules.append(ACTIVATIONS[shape.activation]())
    last = shape.hidden[-1] if shape.hidden else shape.d_in
    return torch.nn.Sequential(*modules, torch.nn.Linear(last, shape.d_out), torch.nn.Tanh())


# -- shapes -------------------------------------------------------------------------------------


@given(train_specs)
def test_parameters_are_those_of_torch(spec: TrainSpec):
    """The shape's count and the op table's sums equal the parameters of the same torch network."""
    shape = MlpShape.of(spec)
    params = list(torch_network(shape).parameters())
    ops = train_ops(spec)
    assert shape.n_params == sum(p.numel() for p in params)
    assert sum(op.n_params for op in ops) == shape.n_params
    assert sum(op.n_param_tensors for op in ops) == len(params)


@given(train_specs)
def test_layers_join_up(spec: TrainSpec):
    """Each layer takes what the one before gives, from the features to the one output."""
    layers = MlpShape.of(spec).layers
    widths_in, widths_out = [d_in for _, d_in, _, _ in layers], [d_out for _, _, d_out, _ in layers]
    assert widths_in == [len(spec.features), *widths_out[:-1]]
    assert widths_out == [*spec.hidden, 1]
    assert [name for name, *_ in layers] == [f"layers.{i}" for i in range(len(layers) - 1)] + [
        "head"
    ]
    assert [activation for *_, activation in layers] == [spec.activation] * len(spec.hidden) + [
        "tanh"
    ]


# -- the op table -------------------------------------------------------------------------------


@given(train_specs)
def test_an_op_reads_what_came_before(spec: TrainSpec):
    """Ids are unique, and every input is the data or an earlier op's id."""
    known = {"input", "target"}
    for op in train_ops(spec):
        assert op.id not in known
        assert set(op.inputs) <= known
        known.add(op.id)


@given(train_specs)
def test_every_output_is_read(spec: TrainSpec):
    """All ops lead to the loss, which comes last and is one number."""
    ops = train_ops(spec)
    read = {name for op in ops for name in op.inputs}
    assert [op.id for op in ops if op.id not in read] == ["loss"]
    assert ops[-1].id == "loss"
    assert ops[-1].output_shape == ()


@given(train_specs, st.integers(1, 100))
def test_twice_the_batch_is_twice_the_work(spec: TrainSpec, batch_size: int):
    """Saved bytes and floating-point operations of every op are proportional to the examples."""
    for one, two in zip(train_ops(spec, batch_size), train_ops(spec, 2 * batch_size), strict=True):
        assert two.saved_bytes == 2 * one.saved_bytes
        assert two.forward_flops == 2 * one.forward_flops


@given(train_specs, st.integers(1, 100))
def test_parameters_do_not_depend_on_the_batch(spec: TrainSpec, batch_size: int):
    """But for work, saved bytes and shapes, an op is the same at any batch size."""

    def fixed(n: int) -> list:
        return [
            (op.id, op.kind, op.inputs, op.output_shape[1:], op.param_sizes, op.saved_because)
            for op in train_ops(spec, n)
        ]

    assert fixed(batch_size) == fixed(spec.batch_size)


@given(train_specs)
def test_twice_the_precision_is_twice_the_bytes(spec: TrainSpec):
    """float64 keeps twice the bytes of float32 and does the same operations."""
    narrow, wide = (train_ops(replace(spec, precision=p)) for p in ("fp32", "fp64"))
    for one, two in zip(narrow, wide, strict=True):
        assert two.saved_bytes == 2 * one.saved_bytes
        assert two.forward_flops == one.forward_flops


@given(train_specs)
def test_what_is_kept_is_explained(spec: TrainSpec):
    """An op that keeps something says which gradient needs it, and no other op does."""
    assert all(bool(op.saved_bytes) == bool(op.saved_because) for op in train_ops(spec))


@settings(max_examples=50)
@given(train_specs, st.integers(1, 40))
def test_forward_flops_are_torchs_count(spec: TrainSpec, batch_size: int):
    """The table's operations of one forward pass equal FlopCounterMode's on the same network."""
    network = torch_network(MlpShape.of(spec))
    with FlopCounterMode(display=False) as counter:
        network(torch.zeros(batch_size, len(spec.features)))
    counted = counter.get_total_flops()
    assert sum(op.forward_flops for op in train_ops(spec, batch_size)) == counted


@pytest.mark.parametrize("precision", DTYPES)
def test_output_shapes_are_torchs(precision: str):
    """Each op's output has the shape that the torch module of the same place gives."""
    shape = MlpShape(d_in=3, hidden=(5, 4), d_out=1, activation="relu")
    ops = mlp_ops(shape, Train(batch_size=7, dtype=DTYPES[precision]))
    column, shapes = torch.zeros(7, 3), []
    for module in torch_network(shape):
        column = module(column)
        shapes.append(tuple(column.shape))
    assert [op.output_shape for op in ops] == [*shapes, ()]


def test_a_shape_other_than_the_playgrounds_counts_too():
    """More outputs than one, and a linear one, which the last linear op then keeps for the loss."""
    shape = MlpShape(d_in=4, hidden=(6,), d_out=3, activation="tanh", output_activation="linear")
    ops = mlp_ops(shape, Train(batch_size=2, dtype=DTYPES["fp32"]))
    assert [op.id for op in ops] == ["layers.0.linear", "layers.0.act", "head.linear", "loss"]
    assert shape.n_params == 5 * 6 + 7 * 3
    assert ops[2].saved_bytes == 2 * 3 * 4
