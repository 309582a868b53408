"""What a model is, without weights: layer sizes and how they are joined."""

from dataclasses import dataclass

from core.architecture import Attention, Layer, Mlp, ModelShape
from core.specs import TrainSpec

NORMS = ("layernorm", "rmsnorm")
MLPS = ("gelu", "swiglu")
POSITIONS = ("learned", "rope")
ATTENTIONS = ("flash", "explicit")


@dataclass(frozen=True, slots=True, kw_only=True)
class MlpShape:
    """A multi-layer perceptron: `d_in -> hidden ... -> d_out`, each layer with a bias."""

    d_in: int
    hidden: tuple[int, ...]
    d_out: int
    activation: str  # of the hidden layers
    output_activation: str = "tanh"
    loss: str = "half_squared_error"  # or cross_entropy, over d_out classes

    @classmethod
    def of(cls, spec: TrainSpec) -> "MlpShape":
        return cls(d_in=len(spec.features), hidden=spec.hidden, d_out=1, activation=spec.activation)

    @property
    def widths(self) -> tuple[int, ...]:
        """Sizes of all columns, inputs first and output last."""
        return (self.d_in, *self.hidden, self.d_out)

    @property
    def layers(self) -> tuple[tuple[str, int, int, str], ...]:
        """(name, inputs, outputs, activation) of each layer, in forward order."""
        names = [f"layers.{i}" for i in range(len(self.hidden))] + ["head"]
        activations = [self.activation] * len(self.hidden) + [self.output_activation]
        widths = self.widths
        return tuple(
            (name, widths[i], widths[i + 1], activations[i]) for i, name in enumerate(names)
        )

    @property
    def n_params(self) -> int:
        """Weights and biases: sum over layers of (inputs + 1) x outputs."""
        return sum((d_in + 1) * d_out for _, d_in, d_out, _ in self.layers)


@dataclass(frozen=True, slots=True, kw_only=True)
class TransformerShape:
    """A decoder-only transformer, normalised before each branch; GPT-2 and Llama are corners of it.

    Raises: ValueError naming the field, its value, the rule and a remedy.
    """

    vocab_size: int
    n_layer: int
    d_model: int  # width of the residual stream
    n_head: int  # query heads
    n_kv_head: int  # key and value heads; n_head / n_kv_head queries share each
    d_ff: int  # width inside the MLP
    max_seq_len: int  # longest context; with learned positions, rows of their table
    d_head: int = 0  # width of one head; 0: d_model / n_head
    norm: str = "layernorm"
    mlp: str = "gelu"
    positions: str = "learned"
    rope_base: float = 10_000.0  # of RoPE's frequencies
    tied: bool = True  # the head's weight is the token embedding's
    bias: bool = True  # of linear layers and LayerNorm; the head has none
    attention: str = "flash"  # explicit: scores and probabilities are tensors that one can look at
    dropout: float = 0.0  # of the embedding, both branches, and probabilities where explicit

    def __post_init__(self) -> None:
        for name in ("vocab_size", "n_layer", "d_model", "n_head", "n_kv_head", "d_ff"):
            _require_count(name, getattr(self, name))
        _require_count("max_seq_len", self.max_seq_len)
        for name, allowed in (
            ("norm", NORMS),
            ("mlp", MLPS),
            ("positions", POSITIONS),
            ("attention", ATTENTIONS),
        ):
            value = getattr(self, name)
            if value not in allowed:
                raise ValueError(f"{name}={value!r} is unknown; choose {' or '.join(allowed)}")
        _require_divisible("n_head", self.n_head, "n_kv_head", self.n_kv_head)
        if self.d_head == 0:
            _require_divisible("d_model", self.d_model, "n_head", self.n_head)
            object.__setattr__(self, "d_head", self.d_model // self.n_head)
        _require_count("d_head", self.d_head)
        if self.positions == "rope" and self.d_head % 2:
            raise ValueError(
                f"d_head={self.d_head} is odd, but RoPE turns pairs of channels; "
                f"choose {self.d_head + 1} or learned positions"
            )
        if not 0 <= self.dropout < 1:
            raise ValueError(
                f"dropout={self.dropout!r} is not a number from 0 to below 1; choose 0 or 0.1"
            )

    @property
    def d_q(self) -> int:
        """Width of all queries of a token."""
        return self.n_head * self.d_head

    @property
    def d_kv(self) -> int:
        """Width of all keys, or all values, of a token."""
        return self.n_kv_head * self.d_head

    @property
    def model(self) -> ModelShape:
        """The same, as one kind of layer."""
        layer = Layer(
            mixer=Attention(
                n_head=self.n_head,
                n_kv_head=self.n_kv_head,
                d_head=self.d_head,
                qkv_bias=self.bias,
                out_bias=self.bias,
            ),
            mlp=Mlp(d_ff=self.d_ff, gated=self.mlp == "swiglu", bias=self.bias),
        )
        return ModelShape(
            vocab_size=self.vocab_size,
            d_model=self.d_model,
            layers=((self.n_layer, layer),),
            max_seq_len=self.max_seq_len,
            norm=self.norm,
            norm_bias=self.norm == "layernorm" and self.bias,
            positions=self.positions,
            tied=self.tied,
            attention=self.attention,
            dropout=self.dropout,
            rope_base=self.rope_base,
        )

    @property
    def n_params(self) -> int:
        """Embeddings, layers, last norm and head, in closed form.

        Source: FORMULAS 2.1 generalised. Checked: the op table's sum and the torch module.
        """
        d, ff, q, kv = self.d_model, self.d_ff, self.d_q, self.d_kv
        n_up = 2 if self.mlp == "swiglu" else 1
        layer_bias = self.norm == "layernorm" and self.bias
        norm = 2 * d if layer_bias else d
        attention = d * (q + 2 * kv) + q * d + self.bias * (q + 2 * kv + d)
        mlp = (n_up + 1) * d * ff + self.bias * (n_up * ff + d)
        outside = self.vocab_size * d * (1 if self.tied else 2) + norm
        if self.positions == "learned":
            outside += self.max_seq_len * d
        return self.n_layer * (2 * norm + attention + mlp) + outside


def _require_count(what: str, value: object) -> None:
    if not isinstance(value, int) or isinstance(value, bool) or value < 1:
        raise ValueError(f"{what}={value!r} is not a whole number above 0; choose 1 or more")


def _require_divisible(what: str, value: int, by: str, divisor: int) -> None:
    if value % divisor:
        below = value // divisor * divisor
        choices = f"{below} or {below + divisor}" if below else f"{divisor}"
        raise ValueError(
            f"{what}={value} is not divisible by {by}={divisor}; choose {what}={choices}"
        )
