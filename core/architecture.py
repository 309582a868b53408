"""What a published model is, without weights: its layers by kind, and what stands around them.

A model is a stack of layers; layers that are alike are written once, with how many follow each
other. `core.transformer` makes the op table of it, `core.configs` reads it from a config.json,
`core.catalog` lists models by name. `core.shapes.TransformerShape` is the small case whose layers
are all alike, which the engine runs.
"""

from collections.abc import Iterator
from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Attention:
    """Softmax attention with a key and a value for each token in a cache."""

    n_head: int  # query heads
    n_kv_head: int
    d_head: int
    window: int = 0  # tokens that a query sees, itself among them; 0: all before it
    chunked: bool = False  # the window is an aligned block, as in Llama 4
    qkv_bias: bool = False
    out_bias: bool = False
    qk_norm: bool = False  # RMSNorm over the channels of a query head, and of a key head
    sinks: bool = False  # a learned score for each head that takes attention and gives nothing
    gate: bool = False  # the result is weighed by a gate of its own, as wide as the queries
    shares_cache: bool = False  # reads those of a layer before it, has none of its own

    @property
    def kind(self) -> str:
        """full, sliding or chunked."""
        if not self.window:
            return "full"
        return "chunked" if self.chunked else "sliding"

    @property
    def d_q(self) -> int:
        return self.n_head * self.d_head

    @property
    def d_kv(self) -> int:
        return self.n_kv_head * self.d_head

    @property
    def cached_width(self) -> int:
        """Numbers that a token leaves in the cache of a layer: 2 × k × d."""
        return 0 if self.shares_cache else 2 * self.d_kv


@dataclass(frozen=True, slots=True, kw_only=True)
class Latent:
    """Multi-head latent attention: the cache holds one compressed vector and one rotary key.

    Source: DeepSeek-V2 (arXiv:2405.04434), section 2.1.
    """

    n_head: int
    kv_rank: int  # width of the compressed keys and values
    d_rope: int  # width of the rotary part of a head, one key shared by all heads
    d_nope: int  # width of the part without positions
    d_value: int
    q_rank: int = 0  # width of the compressed queries; 0: not compressed
    qkv_bias: bool = False

    kind = "latent"
    window = 0

    @property
    def d_q(self) -> int:
        return self.n_head * (self.d_nope + self.d_rope)

    @property
    def cached_width(self) -> int:
        """Numbers that a token leaves in the cache of a layer: not doubled, rotary part too."""
        return self.kv_rank + self.d_rope


@dataclass(frozen=True, slots=True, kw_only=True)
class Recurrent:
    """A layer whose memory of the past has a fixed size: linear attention, a state space."""

    name: str  # as its config calls it: linear_attention, mamba2, …
    param_sizes: tuple[int, ...]  # numbers in each parameter tensor
    matrix_sizes: tuple[int, ...]  # those of them that multiply a token, for FLOPs
    state_numbers: int  # kept for each sequence, however long it is
    kept_numbers: int = 0  # kept of each token for backward

    kind = "recurrent"
    window = 0
    cached_width = 0


Mixer = Attention | Latent | Recurrent


@dataclass(frozen=True, slots=True, kw_only=True)
class Mlp:
    """The dense half of a layer."""

    d_ff: int
    gated: bool  # three matrices (SwiGLU, GeGLU) or two
    bias: bool = False

    kind = "dense"

    @property
    def n_matrices(self) -> int:
        return 3 if self.gated else 2


@dataclass(frozen=True, slots=True, kw_only=True)
class Experts:
    """A mixture: a router sends each token to `top_k` of `n` MLPs; shared ones see every token."""

    n: int
    top_k: int
    d_ff: int  # of one expert
    n_shared: int = 0
    d_shared: int = 0  # of one shared expert; 0: as an expert
    gated: bool = True
    bias: bool = False  # of the experts' matrices
    router_bias: bool = False
    shared_gate: bool = False  # one number a token that weighs the shared expert

    kind = "experts"

    @property
    def n_matrices(self) -> int:
        return 3 if self.gated else 2


Channels = Mlp | Experts


@dataclass(frozen=True, slots=True, kw_only=True)
class Layer:
    """One layer: tokens mixed, then channels; each branch normalised."""

    mixer: Mixer
    mlp: Channels
    n_norms: int = 2  # 1 where both branches share one, 4 where their results are normalised too

    @property
    def name(self) -> str:
        """`full`, `sliding`, `full experts`, …: which kinds of layers are told apart by."""
        parts = [self.mixer.kind]
        if isinstance(self.mlp, Experts):
            parts.append("experts")
        return " ".join(parts)


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelShape:
    """A decoder-only model.

    Raises: ValueError naming the field, its value, the rule and a remedy.
    """

    vocab_size: int
    d_model: int  # width of the residual stream
    layers: tuple[tuple[int, Layer], ...]  # (how many follow each other, what each is), in order
    max_seq_len: int
    norm: str = "rmsnorm"  # or layernorm
    norm_bias: bool = False
    positions: str = "rope"  # or learned: max_seq_len rows of d_model; or none
    tied: bool = False  # the head's weight is the token embedding's
    head_bias: bool = False
    final_norm: bool = True
    others: tuple[tuple[str, int], ...] = ()  # parameters that stand nowhere else: (name, numbers)
    attention: str = "flash"  # explicit: scores and probabilities are tensors
    dropout: float = 0.0
    rope_base: float = 10_000.0

    def __post_init__(self) -> None:
        for name in ("vocab_size", "d_model", "max_seq_len"):
            value = getattr(self, name)
            if not isinstance(value, int) or isinstance(value, bool) or value < 1:
                raise ValueError(
                    f"{name}={value!r} is not a whole number above 0; choose 1 or more"
                )
        if not self.layers:
            raise ValueError("layers=() has no layer; give at least one")

    @property
    def n_layer(self) -> int:
        return sum(n for n, _ in self.layers)

    def kinds(self) -> dict[Layer, int]:
        """Each kind of layer and how many there are, in order of first appearance."""
        found: dict[Layer, int] = {}
        for n, layer in self.layers:
            found[layer] = found.get(layer, 0) + n
        return found

    def layer_names(self) -> Iterator[str]:
        """The kind of every layer, from first to last."""
        for n, layer in self.layers:
            for _ in range(n):
                yield layer.name
