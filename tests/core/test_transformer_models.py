"""The models' arithmetic against torch's own layers, hand formulas and finite differences."""

import math
from collections.abc import Iterator
from dataclasses import replace

import pytest
import torch
import torch.nn.functional as F

from core.engine.models import (
    IGNORED,
    ROPE_BASE,
    Classifier,
    Transformer,
    attention_scores,
    flash_attention,
    rope_angles,
    rotate,
)
from core.shapes import ATTENTIONS, MlpShape, TransformerShape
from tests.core.transformers import Setting, random_settings

GPT = TransformerShape(
    vocab_size=13, n_layer=2, d_model=12, n_head=3, n_kv_head=3, d_ff=20, max_seq_len=10
)
LLAMA = replace(
    GPT,
    n_head=6,
    n_kv_head=3,
    d_head=4,
    norm="rmsnorm",
    mlp="swiglu",
    positions="rope",
    bias=False,
    tied=False,
)
BOTH = pytest.mark.parametrize("shape", [GPT, LLAMA], ids=["gpt", "llama"])


def model_of(shape: TransformerShape, **more: bool) -> Transformer:
    return Transformer(shape, torch.Generator().manual_seed(3), **more)


def tokens_of(shape: TransformerShape, seed: int = 0) -> tuple[torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(seed)
    size = (3, shape.max_seq_len)
    x = torch.randint(0, shape.vocab_size, size, generator=generator)
    return x, torch.randint(0, shape.vocab_size, size, generator=generator)


def close(found: torch.Tensor, expected: torch.Tensor, rounding: float = 2e-6) -> None:
    scale = float(expected.detach().abs().max())
    torch.testing.assert_close(found, expected, rtol=0, atol=rounding * max(scale, 1e-6))


# -- a whole model by other means ---------------------------------------------------------------


def gpt_by_torchs_layers(model: Transformer, tokens: torch.Tensor) -> torch.Tensor:
    """Logits by nn.MultiheadAttention, which takes the fused weight, and nn.functional."""
    shape = model.shape
    positions = torch.arange(tokens.shape[1])
    x = model.embed.tokens(tokens) + model.embed.positions(positions)
    mask = torch.nn.Transformer.generate_square_subsequent_mask(tokens.shape[1])
    for block in model.blocks:
        attention = torch.nn.MultiheadAttention(shape.d_model, shape.n_head, batch_first=True)
        attention.in_proj_weight = block.attn.qkv.weight
        attention.in_proj_bias = block.attn.qkv.bias
        attention.out_proj = block.attn.out
        h = block.attn.norm(x)
        x = x + attention(h, h, h, attn_mask=mask, need_weights=False)[0]
        h = F.gelu(block.mlp.up(block.mlp.norm(x)))
        x = x + block.mlp.down(h)
    return model.norm(x) @ model.embed.tokens.weight.T


def llama_by_hand(model: Transformer, tokens: torch.Tensor) -> torch.Tensor:
    """Logits head by head, rotation by unit complex numbers, norms written out."""
    shape = model.shape
    seq_len, n_group = tokens.shape[1], shape.n_head // shape.n_kv_head

    def norm(x: torch.Tensor, gain: torch.Tensor) -> torch.Tensor:
        return x / (x.pow(2).mean(-1, keepdim=True) + 1e-5).sqrt() * gain

    def turned(x_BTE: torch.Tensor) -> torch.Tensor:
        half = shape.d_head // 2
        pairs = torch.complex(x_BTE[..., :half], x_BTE[..., half:])
        frequency = ROPE_BASE ** (-torch.arange(half) / half)
        angle = torch.arange(seq_len)[:, None] * frequency
        pairs = pairs * torch.polar(torch.ones_like(angle), angle)
        return torch.cat([pairs.real, pairs.imag], -1)

    x = model.embed.tokens.weight[tokens]
    for block in model.blocks:
        h = norm(x, block.attn.norm.weight)
        heads = (h @ block.attn.qkv.weight.T).split(shape.d_head, -1)
        keys, values = heads[shape.n_head :][: shape.n_kv_head], heads[-shape.n_kv_head :]
        mixed = []
        for i in range(shape.n_head):
            q, k, v = turned(heads[i]), turned(keys[i // n_group]), values[i // n_group]
            scores = q @ k.transpose(1, 2) / math.sqrt(shape.d_head)
            future = torch.ones(seq_len, seq_len).triu(1).bool()
            mixed.append(scores.masked_fill(future, -math.inf).softmax(-1) @ v)
        x = x + torch.cat(mixed, -1) @ block.attn.out.weight.T
        h = norm(x, block.mlp.norm.weight)
        gate, up = h @ block.mlp.gate.weight.T, h @ block.mlp.up.weight.T
        x = x + (gate * torch.sigmoid(gate) * up) @ block.mlp.down.weight.T
    return norm(x, model.norm.weight) @ model.head.weight.T


@BOTH
@pytest.mark.parametrize("attention", ATTENTIONS)
def test_a_whole_model_computes_what_another_does(shape: TransformerShape, attention: str):
    """Logits, loss and every gradient, against torch's layers (gpt) or hand formulas (llama)."""
    model = model_of(replace(shape, attention=attention))
    for parameter in model.parameters():  # away from the start, where much is 0 or 1
        parameter.data.add_(torch.randn(parameter.shape) * 0.2)
    tokens, targets = tokens_of(shape)
    other = gpt_by_torchs_layers if shape is GPT else llama_by_hand
    logits = other(model, tokens)
    close(model(tokens), logits, rounding=1e-5)
    log_probs = torch.log(torch.exp(logits) / torch.exp(logits).sum(-1, keepdim=True))
    expected = -log_probs.gather(-1, targets[..., None]).mean()
    loss = model.loss(tokens, targets)
    close(loss, expected, rounding=1e-5)
    params = list(model.parameters())
    for found, grad in zip(
        torch.autograd.grad(loss, params), torch.autograd.grad(expected, params), strict=True
    ):
        close(found, grad, rounding=5e-5)


@pytest.fixture
def float64() -> Iterator[None]:
    """What a model makes for itself, as RoPE's angles, is in float64 too."""
    torch.set_default_dtype(torch.float64)
    yield
    torch.set_default_dtype(torch.float32)


@pytest.mark.usefixtures("float64")
@pytest.mark.parametrize("setting", random_settings(10, seed=61, precision="fp32"), ids=str)
def test_gradients_are_slopes(setting: Setting):
    """In float64, along a random direction through each parameter, to 2e-6.

    Dropout draws the same noise each time, and a checkpointed block draws it again.
    """
    model, batch = setting.model().double(), setting.batch()

    def loss() -> torch.Tensor:
        torch.manual_seed(5)
        return model.loss(*batch)

    loss().backward()
    for name, parameter in model.named_parameters():
        direction, h = torch.randn_like(parameter), 1e-6
        losses = []
        with torch.no_grad():
            for distance in (h, -2 * h, h):
                parameter.add_(direction, alpha=distance)
                losses.append(float(loss()))
        slope = (losses[0] - losses[1]) / (2 * h)
        gradient = float((parameter.grad * direction).sum())
        assert gradient == pytest.approx(slope, rel=2e-6, abs=1e-8), name


# -- attention ----------------------------------------------------------------------------------


@pytest.mark.parametrize("n_kv_head", [1, 2, 4])
def test_flash_and_explicit_attention_agree(n_kv_head: int):
    """On the same queries, keys and values, heads shared or not, and with equal gradients."""
    shape = replace(GPT, d_model=16, n_head=4, d_head=4, n_kv_head=n_kv_head)
    flash, explicit = (model_of(replace(shape, attention=a)) for a in ATTENTIONS)
    explicit.load_state_dict(flash.state_dict())
    tokens, targets = tokens_of(shape)
    losses = [m.loss(tokens, targets) for m in (flash, explicit)]
    for loss in losses:
        loss.backward()
    close(*losses)
    for one, two in zip(flash.parameters(), explicit.parameters(), strict=True):
        close(one.grad, two.grad, rounding=2e-5)


def test_flash_attention_is_softmax_of_scaled_products():
    q, k, v = (torch.randn(2, 7, n, 6) for n in (4, 2, 2))
    found = flash_attention(q, k, v)
    scores = attention_scores(q, k)
    expected = torch.empty(2, 7, 4, 6)
    for b in range(2):
        for head in range(4):
            for t in range(7):
                products = k[b, : t + 1, head // 2] @ q[b, t, head] / math.sqrt(6)
                close(scores[b, head, t, : t + 1], products)
                expected[b, t, head] = products.softmax(0) @ v[b, : t + 1, head // 2]
    close(found, expected.flatten(2))


@BOTH
def test_no_token_sees_the_future(shape: TransformerShape):
    model = model_of(shape)
    tokens, _ = tokens_of(shape)
    changed = tokens.clone()
    changed[:, 6:] = (changed[:, 6:] + 1) % shape.vocab_size
    one, two = model(tokens), model(changed)
    close(one[:, :6], two[:, :6])
    assert not torch.allclose(one[:, 6:], two[:, 6:])


# -- positions ----------------------------------------------------------------------------------


def test_rope_multiplies_pairs_by_unit_complex_numbers():
    """Channel r and r + E/2 of position t by exp(i t base^(-2r/E))."""
    x = torch.randn(2, 50, 3, 8)
    found = rotate(x, *rope_angles(50, 8))
    pairs = torch.complex(x[..., :4].double(), x[..., 4:].double())
    angle = torch.arange(50.0, dtype=torch.float64)[:, None, None] * torch.tensor(
        [ROPE_BASE ** (-2 * r / 8) for r in range(4)], dtype=torch.float64
    )
    expected = pairs * torch.exp(1j * angle)
    close(found.double(), torch.cat([expected.real, expected.imag], -1), rounding=1e-5)


def test_rope_makes_products_depend_on_distance_alone():
    q, k = torch.randn(8), torch.randn(8)
    many = rotate(torch.stack([q, k]).expand(1, 40, 2, 8), *rope_angles(40, 8))[0]
    for distance in (0, 1, 7):
        products = [float(many[t + distance, 0] @ many[t, 1]) for t in range(30)]
        assert max(products) - min(products) < 1e-4


def test_rope_keeps_lengths():
    x = torch.randn(1, 30, 2, 6)
    close(rotate(x, *rope_angles(30, 6)).norm(dim=-1), x.norm(dim=-1))


# -- loss, dropout, checkpointing ---------------------------------------------------------------


@BOTH
def test_the_loss_leaves_ignored_targets_out(shape: TransformerShape):
    """It is the mean over the others; ignored positions get no gradient of the logits."""
    model = model_of(shape)
    tokens, targets = tokens_of(shape)
    ignored = targets.clone()
    ignored[:, ::3] = IGNORED
    log_probs = model(tokens).log_softmax(-1)
    each = -log_probs.gather(-1, targets[..., None])[..., 0]
    close(model.loss(tokens, ignored), each[ignored != IGNORED].mean())


@BOTH
def test_checkpointing_changes_no_bit(shape: TransformerShape):
    """Loss and gradients are the same, dropout and explicit attention included."""
    shape = replace(shape, dropout=0.2, attention="explicit")
    gradients = []
    for checkpointing in (False, True):
        model = model_of(shape, checkpointing=checkpointing)
        torch.manual_seed(9)
        loss = model.loss(*tokens_of(shape))
        loss.backward()
        gradients.append([loss.detach(), *(p.grad for p in model.parameters())])
    for one, two in zip(*gradients, strict=True):
        assert torch.equal(one, two)


def test_a_checkpointed_step_leaves_the_generator_as_it_would_be():
    """What is drawn after it is what would be drawn after a plain step."""
    drawn = []
    for checkpointing in (False, True):
        shape = replace(GPT, dropout=0.2)
        torch.manual_seed(9)
        model_of(shape, checkpointing=checkpointing).loss(*tokens_of(shape)).backward()
        drawn.append(torch.rand(3))
    assert torch.equal(*drawn)


@BOTH
def test_dropout_falls_away_in_evaluation(shape: TransformerShape):
    with_, without = model_of(replace(shape, dropout=0.5)), model_of(shape)
    tokens, _ = tokens_of(shape)
    assert not torch.allclose(with_(tokens), without(tokens))
    assert torch.equal(with_.eval()(tokens), without.eval()(tokens))


# -- first weights ------------------------------------------------------------------------------


@BOTH
def test_first_weights_are_the_generators(shape: TransformerShape):
    """The same seed gives the same bits, another others; torch's own generator is not touched."""
    before = torch.get_rng_state()
    one, same, other = (Transformer(shape, torch.Generator().manual_seed(s)) for s in (1, 1, 2))
    assert torch.equal(torch.get_rng_state(), before)
    pairs = list(zip(one.parameters(), same.parameters(), other.parameters(), strict=True))
    assert all(torch.equal(a, b) for a, b, _ in pairs)
    assert not torch.equal(pairs[0][0], pairs[0][2])


def test_first_weights_have_gpt_2s_spread():
    """0.02; the two projections into the stream 0.02 / sqrt(2 L); biases 0, gains 1."""
    shape = replace(GPT, d_model=96, n_head=3, d_head=32, d_ff=384, n_layer=8, vocab_size=300)
    for name, p in model_of(shape).named_parameters():
        if name.endswith("bias"):
            assert not p.any()
        elif "norm" in name:
            assert (p == 1).all()
        else:
            into_stream = name.endswith(("attn.out.weight", "mlp.down.weight"))
            spread = 0.02 / (4 if into_stream else 1)
            assert float(p.detach().std()) == pytest.approx(spread, rel=0.05), name
            assert abs(float(p.detach().mean())) < spread / 10


def test_a_tied_head_is_the_embedding():
    """One parameter, whose gradient is the sum of both uses."""
    model = model_of(GPT)
    assert not any(name.startswith("head") for name, _ in model.named_parameters())
    tokens, targets = tokens_of(GPT)
    model.loss(tokens, targets).backward()
    untied = model_of(replace(GPT, tied=False))
    untied.load_state_dict(model.state_dict(), strict=False)
    untied.head.weight.data.copy_(model.embed.tokens.weight)
    untied.loss(tokens, targets).backward()
    close(model.embed.tokens.weight.grad, untied.embed.tokens.weight.grad + untied.head.weight.grad)


# -- the classifier -----------------------------------------------------------------------------


@pytest.mark.parametrize("activation", ["relu", "tanh", "sigmoid", "linear"])
def test_the_classifier_is_a_sequence_of_torchs_layers(activation: str):
    """Logits, loss and gradients equal those of nn.Sequential and nn.CrossEntropyLoss."""
    shape = MlpShape(
        d_in=6,
        hidden=(5, 4),
        d_out=3,
        activation=activation,
        output_activation="linear",
        loss="cross_entropy",
    )
    model = Classifier(shape, torch.Generator().manual_seed(1))
    functions = {"relu": torch.nn.ReLU, "tanh": torch.nn.Tanh, "sigmoid": torch.nn.Sigmoid}
    modules: list[torch.nn.Module] = []
    for d_in, d_out in ((6, 5), (5, 4), (4, 3)):
        modules += [torch.nn.Linear(d_in, d_out), functions.get(activation, torch.nn.Identity)()]
    other = torch.nn.Sequential(*modules[:-1])
    for theirs, ours in zip(other.parameters(), model.parameters(), strict=True):
        theirs.data.copy_(ours.data)
    x, y = torch.rand(7, 6), torch.randint(0, 3, (7,))
    close(model(x), other(x))
    loss, expected = model.loss(x, y), torch.nn.CrossEntropyLoss()(other(x), y)
    close(loss, expected)
    loss.backward()
    expected.backward()
    for ours, theirs in zip(model.parameters(), other.parameters(), strict=True):
        close(ours.grad, theirs.grad)


def test_the_classifiers_first_weights_are_within_their_bounds():
    shape = MlpShape(
        d_in=64,
        hidden=(100,),
        d_out=10,
        activation="relu",
        output_activation="linear",
        loss="cross_entropy",
    )
    for name, p in Classifier(shape, torch.Generator().manual_seed(1)).named_parameters():
        bound = {"layers.0": 64, "head.lin": 100}[name[:8]] ** -0.5
        assert float(p.detach().abs().max()) <= bound
        assert float(p.detach().abs().max()) > 0.7 * bound
