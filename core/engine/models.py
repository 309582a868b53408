"""The models in plain torch: a decoder-only transformer and a perceptron that classifies.

Module paths are the op table's ids, and `mark(op)` is called before each op, so that whoever
times or follows a step can label what it sees; by default it does nothing.

Shape suffixes: B sequences (or examples), T tokens, S tokens looked at, D channels of the stream,
H query heads, K key and value heads, G query heads that share one of them, E channels of a head,
R pairs of channels that RoPE turns, F width inside the MLP, V vocabulary.
"""

from collections.abc import Callable
from contextlib import AbstractContextManager, contextmanager, nullcontext

import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.checkpoint import checkpoint, set_checkpoint_early_stop

from core.shapes import MlpShape, TransformerShape

IGNORED = -100  # a target that no loss is taken of
INIT_STD = 0.02
NORM_EPSILON = 1e-5
ROPE_BASE = 10_000.0

Mark = Callable[[str], None]  # called with the op's id before it runs; "" after a repeated forward


def unmarked(op: str) -> None:
    """The default of `mark`."""


def _cross_entropy(logits_MV: torch.Tensor, targets_M: torch.Tensor) -> torch.Tensor:
    wide = torch.promote_types(logits_MV.dtype, torch.float32)
    return F.cross_entropy(logits_MV.to(wide), targets_M, ignore_index=IGNORED)


class Transformer(nn.Module):
    """GPT-2 and Llama styles and what lies between, as the shape says.

    Parameters are float32. Drawn as GPT-2's: normal with 0.02, those of the two projections back
    into the stream divided by sqrt(2 L); biases 0, norms 1.
    """

    def __init__(
        self,
        shape: TransformerShape,
        generator: torch.Generator | None = None,
        *,
        checkpointing: bool = False,
    ) -> None:
        super().__init__()
        self.shape = shape
        self.checkpointing = checkpointing
        with torch.device("meta"):
            self._build()
        self.to_empty(device="cpu")
        self._initialise(generator)

    @classmethod
    def of(cls, shape: TransformerShape, weights: dict[str, torch.Tensor]) -> "Transformer":
        """A model with copies of these weights, named as in its `state_dict()`."""
        with torch.device("meta"):
            model = cls.__new__(cls)
            nn.Module.__init__(model)
            model.shape, model.checkpointing = shape, False
            model._build()
        copies = {name: tensor.clone() for name, tensor in weights.items()}
        model.load_state_dict(copies, assign=True)
        return model.requires_grad_()

    def _build(self) -> None:
        shape = self.shape
        self.embed = Embed(shape)
        self.blocks = nn.ModuleList(Block(shape, f"blocks.{i}") for i in range(shape.n_layer))
        self.norm = _norm(shape)
        self.head = None if shape.tied else nn.Linear(shape.d_model, shape.vocab_size, bias=False)

    @torch.no_grad()
    def _initialise(self, generator: torch.Generator | None) -> None:
        into_stream = INIT_STD / (2 * self.shape.n_layer) ** 0.5
        for name, parameter in self.named_parameters():
            if "norm" in name and name.endswith("weight"):
                parameter.fill_(1)
            elif name.endswith("bias"):
                parameter.zero_()
            else:
                back = name.endswith(("attn.out.weight", "mlp.down.weight"))
                parameter.normal_(0, into_stream if back else INIT_STD, generator=generator)

    def forward(self, tokens_BT: torch.Tensor, mark: Mark = unmarked) -> torch.Tensor:
        """Logits, shape (B, T, V)."""
        shape, seq_len = self.shape, tokens_BT.shape[1]
        x_BTD = self.embed(tokens_BT, mark)
        rotation = mask_TS = None
        if shape.positions == "rope":
            mark("rope")
            rotation = rope_angles(seq_len, shape.d_head, shape.rope_base)
        if shape.attention == "explicit":
            mark("mask")
            mask_TS = torch.ones(seq_len, seq_len, dtype=torch.bool).triu_(1)
        for block in self.blocks:
            assert isinstance(block, Block)
            if self.checkpointing and self.training:
                mark(f"{block.attn.path}.norm")
                x_BTD = _recomputed(block, x_BTD, rotation, mask_TS, mark)
            else:
                x_BTD = block.attn(x_BTD, rotation, mask_TS, mark)
                x_BTD = block.mlp(x_BTD, mark)
        mark("norm")
        x_BTD = self.norm(x_BTD)
        mark("head")
        weight_VD = self.embed.tokens.weight if self.head is None else self.head.weight
        return F.linear(x_BTD, weight_VD)

    def loss(
        self, tokens_BT: torch.Tensor, targets_BT: torch.Tensor, mark: Mark = unmarked
    ) -> torch.Tensor:
        """Mean cross-entropy over the targets that are not `IGNORED`, in float32 at least."""
        logits_BTV = self(tokens_BT, mark)
        mark("loss")
        return _cross_entropy(logits_BTV.flatten(0, 1), targets_BT.flatten())


class Embed(nn.Module):
    def __init__(self, shape: TransformerShape) -> None:
        super().__init__()
        self.dropout = shape.dropout
        self.tokens = nn.Embedding(shape.vocab_size, shape.d_model)
        learned = shape.positions == "learned"
        self.positions = nn.Embedding(shape.max_seq_len, shape.d_model) if learned else None

    def forward(self, tokens_BT: torch.Tensor, mark: Mark) -> torch.Tensor:
        mark("embed.tokens")
        x_BTD = self.tokens(tokens_BT)
        if self.positions is not None:
            mark("embed.positions")
            x_BTD = x_BTD + self.positions.weight[: tokens_BT.shape[1]]
        if self.dropout and self.training:
            mark("embed.drop")
            x_BTD = F.dropout(x_BTD, self.dropout)
        return x_BTD


class Block(nn.Module):
    """Two branches, each added to the stream that it read."""

    def __init__(self, shape: TransformerShape, path: str) -> None:
        super().__init__()
        self.attn = Attention(shape, f"{path}.attn")
        self.mlp = Mlp(shape, f"{path}.mlp")

    def forward(
        self,
        x_BTD: torch.Tensor,
        rotation: tuple[torch.Tensor, torch.Tensor] | None,
        mask_TS: torch.Tensor | None,
        mark: Mark,
    ) -> torch.Tensor:
        x_BTD = self.attn(x_BTD, rotation, mask_TS, mark)
        x_BTD = self.mlp(x_BTD, mark)
        mark("")
        return x_BTD


class Attention(nn.Module):
    def __init__(self, shape: TransformerShape, path: str) -> None:
        super().__init__()
        self.shape = shape
        self.path = path
        self.norm = _norm(shape)
        self.qkv = nn.Linear(shape.d_model, shape.d_q + 2 * shape.d_kv, bias=shape.bias)
        self.out = nn.Linear(shape.d_q, shape.d_model, bias=shape.bias)

    def forward(
        self,
        x_BTD: torch.Tensor,
        rotation: tuple[torch.Tensor, torch.Tensor] | None,
        mask_TS: torch.Tensor | None,
        mark: Mark,
    ) -> torch.Tensor:
        shape, path = self.shape, self.path
        dropping = shape.dropout > 0 and self.training
        batch_size, seq_len, _ = x_BTD.shape
        n_head, n_kv_head = shape.n_head, shape.n_kv_head
        mark(f"{path}.norm")
        h = self.norm(x_BTD)
        mark(f"{path}.qkv")
        h = self.qkv(h).view(batch_size, seq_len, n_head + 2 * n_kv_head, shape.d_head)
        if rotation is None:
            q_BTHE, k_BTKE, v_BTKE = h.split([n_head, n_kv_head, n_kv_head], dim=2)
        else:
            mark(f"{path}.rope")
            h, v_BTKE = h.split([n_head + n_kv_head, n_kv_head], dim=2)
            v_BTKE = v_BTKE.clone()  # a view would keep the queries and keys before rotation too
            q_BTHE, k_BTKE = rotate(h, *rotation).split([n_head, n_kv_head], dim=2)
        del h
        if mask_TS is None:
            mark(f"{path}.flash")
            h = flash_attention(q_BTHE, k_BTKE, v_BTKE)
            del q_BTHE, k_BTKE, v_BTKE
        else:
            mark(f"{path}.scores")
            h = attention_scores(q_BTHE, k_BTKE).masked_fill_(mask_TS, -torch.inf)
            del q_BTHE, k_BTKE
            mark(f"{path}.softmax")
            h = torch.softmax(h, dim=-1)
            if dropping:
                mark(f"{path}.softmax_drop")
                h = F.dropout(h, shape.dropout)
            mark(f"{path}.mix")
            h = h @ _by_head(v_BTKE, n_head // n_kv_head)
            del v_BTKE
            h = h.transpose(1, 2).clone(memory_format=torch.contiguous_format).flatten(2)
        mark(f"{path}.out")
        h = self.out(h)
        if dropping:
            mark(f"{path}.drop")
            h = F.dropout(h, shape.dropout)
        mark(f"{path}.add")
        return x_BTD + h


class Mlp(nn.Module):
    def __init__(self, shape: TransformerShape, path: str) -> None:
        super().__init__()
        self.path = path
        self.dropout = shape.dropout
        self.norm = _norm(shape)
        gated = shape.mlp == "swiglu"
        self.gate = nn.Linear(shape.d_model, shape.d_ff, bias=shape.bias) if gated else None
        self.up = nn.Linear(shape.d_model, shape.d_ff, bias=shape.bias)
        self.down = nn.Linear(shape.d_ff, shape.d_model, bias=shape.bias)

    def forward(self, x_BTD: torch.Tensor, mark: Mark) -> torch.Tensor:
        path = self.path
        mark(f"{path}.norm")
        h = self.norm(x_BTD)
        if self.gate is None:
            mark(f"{path}.up")
            h = self.up(h)
            mark(f"{path}.gelu")
            h = F.gelu(h)
        else:
            mark(f"{path}.gate")
            gate_BTF = self.gate(h)
            mark(f"{path}.silu")
            gate_BTF = F.silu(gate_BTF)
            mark(f"{path}.up")
            h = self.up(h)
            mark(f"{path}.product")
            h = gate_BTF * h
            del gate_BTF
        mark(f"{path}.down")
        h = self.down(h)
        if self.dropout and self.training:
            mark(f"{path}.drop")
            h = F.dropout(h, self.dropout)
        mark(f"{path}.add")
        return x_BTD + h


def _norm(shape: TransformerShape) -> nn.Module:
    if shape.norm == "rmsnorm":
        return nn.RMSNorm(shape.d_model, eps=NORM_EPSILON)
    return nn.LayerNorm(shape.d_model, eps=NORM_EPSILON, bias=shape.bias)


# -- positions ----------------------------------------------------------------------------------


def rope_angles(
    seq_len: int, d_head: int, base: float = ROPE_BASE
) -> tuple[torch.Tensor, torch.Tensor]:
    """Cosines and sines of position × base^(-2r / d_head), shape (T, 1, R), in the format of the
    queries: that of autocast where it is on.

    Source: Su et al. 2021 (RoFormer), pairs (r, r + d_head / 2) as in Hugging Face's Llama.
    """
    frequency_R = base ** (torch.arange(0, d_head, 2) / -d_head)
    angle_T1R = torch.outer(torch.arange(seq_len), frequency_R)[:, None]
    dtype = torch.get_default_dtype()
    if torch.is_autocast_enabled("cpu"):
        dtype = torch.get_autocast_dtype("cpu")
    return angle_T1R.cos().to(dtype), angle_T1R.sin().to(dtype)


def rotate(x_BTHE: torch.Tensor, cos_T1R: torch.Tensor, sin_T1R: torch.Tensor) -> torch.Tensor:
    """Each pair of channels of each head turned by its position's angle."""
    a_BTHR, b_BTHR = x_BTHE.chunk(2, dim=-1)
    return torch.cat(
        [a_BTHR * cos_T1R - b_BTHR * sin_T1R, a_BTHR * sin_T1R + b_BTHR * cos_T1R], dim=-1
    )


# -- attention ----------------------------------------------------------------------------------


def flash_attention(
    q_BTHE: torch.Tensor, k_BTKE: torch.Tensor, v_BTKE: torch.Tensor
) -> torch.Tensor:
    """Causal attention that never holds a row of scores whole; shape (B, T, H × E)."""
    y_BHTE = F.scaled_dot_product_attention(
        q_BTHE.transpose(1, 2),
        k_BTKE.transpose(1, 2),
        v_BTKE.transpose(1, 2),
        is_causal=True,
        enable_gqa=q_BTHE.shape[2] != k_BTKE.shape[2],
    )
    return y_BHTE.transpose(1, 2).flatten(2)


def attention_scores(q_BTHE: torch.Tensor, k_BTKE: torch.Tensor) -> torch.Tensor:
    """Queries times keys over sqrt(E), before the mask; shape (B, H, T, S)."""
    n_group = q_BTHE.shape[2] // k_BTKE.shape[2]
    scores_BHTS = _by_head(q_BTHE, 1) @ _by_head(k_BTKE, n_group).transpose(2, 3)
    return scores_BHTS.mul_(q_BTHE.shape[-1] ** -0.5)


def _by_head(x_BTKE: torch.Tensor, n_group: int) -> torch.Tensor:
    """A copy in which heads come before tokens, each head repeated for its group.

    A batched product would copy anyway wherever it cannot take the heads as they lie; always
    copying makes one rule of it, and lets go of the product that all three were cut from.
    """
    x_BKTE = x_BTKE.transpose(1, 2)
    x_BKGTE = x_BKTE[:, :, None].expand(-1, -1, n_group, -1, -1)
    return x_BKGTE.clone(memory_format=torch.contiguous_format).flatten(1, 2)


# -- checkpointing ------------------------------------------------------------------------------


def _recomputed(block: Block, *inputs: object) -> torch.Tensor:
    """The block's output; only its inputs are kept, and backward begins by computing it again.

    To the end: stopping early, as torch does by default, would leave the last op's label behind.
    """
    with set_checkpoint_early_stop(False):
        return checkpoint(  # type: ignore[return-value]
            block,
            *inputs,
            use_reentrant=False,
            preserve_rng_state=False,
            context_fn=_same_dropout if block.mlp.dropout else _no_contexts,  # type: ignore
        )


def _no_contexts() -> tuple[AbstractContextManager, AbstractContextManager]:
    return nullcontext(), nullcontext()


def _same_dropout() -> tuple[AbstractContextManager, AbstractContextManager]:
    """Contexts of the first and the repeated forward: both draw the same dropout.

    What checkpoint's own `preserve_rng_state` does, but with the generator's state in a tensor
    that an observer of ops can see (5,056 bytes a block).
    """
    state = torch.get_rng_state().clone()

    @contextmanager
    def replay():  # noqa: ANN202
        now = torch.get_rng_state()
        torch.set_rng_state(state)
        try:
            yield
        finally:
            torch.set_rng_state(now)

    return nullcontext(), replay()


# -- a classifier -------------------------------------------------------------------------------


_FUNCTIONS = {"tanh": torch.tanh, "relu": torch.relu, "sigmoid": torch.sigmoid}


class Layer(nn.Module):
    def __init__(self, path: str, d_in: int, d_out: int, activation: str) -> None:
        super().__init__()
        self.path = path
        self.activation = activation
        self.linear = nn.Linear(d_in, d_out)

    def forward(self, x_BD: torch.Tensor, mark: Mark) -> torch.Tensor:
        mark(f"{self.path}.linear")
        x_BD = self.linear(x_BD)
        if self.activation != "linear":
            mark(f"{self.path}.act")
            x_BD = _FUNCTIONS[self.activation](x_BD)
        return x_BD


class Classifier(nn.Module):
    """A perceptron over flat inputs with one logit for each class.

    Weights and biases are drawn uniform within 1 / sqrt(inputs), as nn.Linear draws them.
    """

    def __init__(self, shape: MlpShape, generator: torch.Generator | None = None) -> None:
        super().__init__()
        assert shape.loss == "cross_entropy", f"loss={shape.loss} is not a classifier's"
        self.shape = shape
        with torch.device("meta"):
            *hidden, head = (Layer(*layer) for layer in shape.layers)
            self.layers = nn.ModuleList(hidden)
            self.head = head
        self.to_empty(device="cpu")
        with torch.no_grad():
            for layer in (*hidden, head):
                bound = layer.linear.in_features**-0.5
                layer.linear.weight.uniform_(-bound, bound, generator=generator)
                layer.linear.bias.uniform_(-bound, bound, generator=generator)

    def forward(self, x_BD: torch.Tensor, mark: Mark = unmarked) -> torch.Tensor:
        """Logits, shape (B, classes)."""
        for layer in self.layers:
            x_BD = layer(x_BD, mark)
        return self.head(x_BD, mark)

    def loss(
        self, x_BD: torch.Tensor, targets_B: torch.Tensor, mark: Mark = unmarked
    ) -> torch.Tensor:
        """Mean cross-entropy over the targets that are not `IGNORED`, in float32 at least."""
        logits_BV = self(x_BD, mark)
        mark("loss")
        return _cross_entropy(logits_BV, targets_B)
