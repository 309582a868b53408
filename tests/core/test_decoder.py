"""The decoder against the training model, with and without its cache, in every weight format."""

import itertools

import pytest
import torch

from core.answers import answer_ops
from core.engine import weights
from core.engine.decoder import Decoder
from core.engine.models import Transformer
from core.ops import Decode, Prefill, executed_flops, expand
from core.shapes import TransformerShape
from core.specs import WEIGHT_FORMATS

GPT = TransformerShape(
    vocab_size=37, n_layer=2, d_model=32, n_head=4, n_kv_head=4, d_ff=64, max_seq_len=24
)
LLAMA = TransformerShape(
    vocab_size=64,
    n_layer=3,
    d_model=64,
    n_head=4,
    n_kv_head=2,
    d_ff=96,
    max_seq_len=64,
    norm="rmsnorm",
    mlp="swiglu",
    positions="rope",
    rope_base=100_000.0,
    bias=False,
    tied=False,
)
SHAPES = pytest.mark.parametrize("shape", [GPT, LLAMA], ids=["gpt", "llama"])


def model_of(shape: TransformerShape) -> Transformer:
    model = Transformer(shape, torch.Generator().manual_seed(3)).eval()
    with torch.no_grad():  # first weights are too small to tell a wrong product from a right one
        for name, parameter in model.named_parameters():
            parameter.mul_(1 if "norm" in name else 6)
            if name.endswith("bias"):
                parameter.normal_(0, 0.3)
    return model


def decoder_of(model: Transformer, weight_format: str = "fp32", **given: int) -> Decoder:
    return Decoder(model.shape, model.state_dict(), weight_format, context=20, **given)


def some_tokens(shape: TransformerShape, n_rows: int, n: int) -> torch.Tensor:
    generator = torch.Generator().manual_seed(5)
    return torch.randint(shape.vocab_size, (n_rows, n), generator=generator)


@SHAPES
@pytest.mark.parametrize("n_rows", [1, 3])
def test_logits_are_the_training_models(shape: TransformerShape, n_rows: int):
    model, tokens = model_of(shape), some_tokens(shape, n_rows, 11)
    with torch.inference_mode():
        expected = model(tokens)
    decoder = decoder_of(model, batch_size=n_rows)
    torch.testing.assert_close(decoder.trip(tokens, every=True), expected, atol=1e-4, rtol=1e-4)


@SHAPES
@pytest.mark.parametrize("parts", [(1,) * 11, (7, 1, 1, 1, 1), (4, 5, 2)])
def test_a_cache_changes_nothing(shape: TransformerShape, parts: tuple[int, ...]):
    """A prompt in one go, token by token, or in pieces."""
    model, tokens = model_of(shape), some_tokens(shape, 2, 11)
    whole, cached = (decoder_of(model, batch_size=2) for _ in range(2))
    expected = whole.trip(tokens, every=True)
    ends = list(itertools.accumulate(parts))
    found = [
        cached.trip(tokens[:, end - n : end], every=True)
        for n, end in zip(parts, ends, strict=True)
    ]
    torch.testing.assert_close(torch.cat(found, dim=1), expected, atol=1e-4, rtol=1e-4)


@SHAPES
@pytest.mark.parametrize("weight_format", WEIGHT_FORMATS)
def test_a_narrower_format_moves_the_logits_a_little(shape: TransformerShape, weight_format: str):
    model, tokens = model_of(shape), some_tokens(shape, 1, 9)
    with torch.inference_mode():
        expected = model(tokens)[:, -1]
    found = decoder_of(model, weight_format).trip(tokens)
    likeness = torch.cosine_similarity(found, expected).item()
    least = {"fp32": 1 - 1e-6, "file": 1 - 1e-6, "bf16": 0.999, "int8": 0.998, "int4": 0.9}
    assert likeness > least[weight_format]
    if weight_format in ("bf16", "int8", "int4"):
        assert not torch.allclose(found, expected, atol=1e-6)


@SHAPES
def test_the_weights_in_memory_are_the_models(shape: TransformerShape):
    """Names, values, order: their hash is the training model's."""
    model = model_of(shape)
    decoder = decoder_of(model)
    for (name, found), (expected_name, expected) in zip(
        decoder.canonical(), model.state_dict().items(), strict=True
    ):
        assert name == expected_name
        assert torch.equal(found, expected), name
    before = weights.sha256(decoder.canonical())
    assert before == weights.sha256(model.state_dict().items())
    decoder.trip(some_tokens(shape, 1, 5))
    assert weights.sha256(decoder.canonical()) == before
    with torch.no_grad():
        next(iter(decoder.weights)).view(-1)[0] += 1e-6
    assert weights.sha256(decoder.canonical()) != before


@SHAPES
@pytest.mark.parametrize("n_new", [1, 6])
def test_ops_come_in_the_tables_order_and_shapes(shape: TransformerShape, n_new: int):
    decoder = decoder_of(model_of(shape))
    outputs: list[torch.Tensor] = []
    decoder.trip(some_tokens(shape, 1, n_new), outputs.append)
    workload = (
        Prefill(batch_size=1, seq_len=n_new) if n_new > 1 else Decode(batch_size=1, context=1)
    )
    rows = expand(answer_ops(shape, workload))
    assert len(outputs) == len(rows)
    for op, output in zip(rows, outputs, strict=True):
        if op.kind not in ("angles", "rope"):  # complex numbers; all heads in one row
            assert output.numel() == torch.Size(op.output_shape).numel(), op.id


@SHAPES
def test_the_tables_work_is_the_counters(shape: TransformerShape):
    from core.engine.flops import flop_counter

    decoder = decoder_of(model_of(shape), batch_size=2)
    ops = answer_ops(shape, Prefill(batch_size=2, seq_len=7))
    with flop_counter() as counter:
        decoder.trip(some_tokens(shape, 2, 7))
    assert counter.get_total_flops() == executed_flops(ops)


@SHAPES
@pytest.mark.parametrize("weight_format", ["fp32", "bf16"])
def test_the_cache_fills_token_by_token(shape: TransformerShape, weight_format: str):
    decoder = decoder_of(model_of(shape), weight_format, batch_size=2)
    number = 4 if weight_format == "fp32" else 2
    token = 2 * shape.n_layer * 2 * shape.d_kv * number  # keys and values, two sequences
    assert decoder.filled_bytes == 0
    decoder.trip(some_tokens(shape, 2, 5))
    assert decoder.filled_bytes == 5 * token
    decoder.trip(some_tokens(shape, 2, 1))
    assert decoder.filled_bytes == 6 * token


def test_a_cache_without_room_is_refused_with_the_remedy():
    decoder = decoder_of(model_of(LLAMA))
    with pytest.raises(ValueError, match="21 do not fit a context of 20; shorten"):
        decoder.trip(some_tokens(LLAMA, 1, 21))
    assert decoder.length == 0
