"""Bytes of a model's weights when most of them are stored in few bits.

A file that is called 4-bit is not 4 bits a weight: norms, routers, often embeddings and the head
stay in 16 or 32 bits, blocks carry scales, and llama.cpp's mixes store some matrices finer than the
rest. So bytes are summed tensor by tensor: `tensors` lists them under GGUF's names, `gguf_tensors`
gives each the type that llama.cpp would, `weights_bytes` those of any format a page offers.

Checked: published sizes of Llama files, the real file of SmolLM2 tensor by tensor, and the package
gguf (tests/core/test_quantised.py).
"""

import functools
import math
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from core.architecture import Attention, Experts, Latent, Layer, Mlp, ModelShape, Recurrent
from core.blocks import GGML, SCALED, Scaled, grouped
from core.sizes import Bytes

Shape = tuple[int, ...]  # outermost first; the last is what a row holds


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """One tensor of a file."""

    name: str
    shape: Shape
    type: str
    n_bytes: int

    @property
    def n_weights(self) -> int:
        return math.prod(self.shape)


# -- which tensors there are --------------------------------------------------------------------


def tensors(shape: ModelShape) -> Iterator[tuple[str, Shape]]:
    """Name and shape of every tensor, as llama.cpp's conversion names and groups them.

    Experts of a layer are one tensor of rank 3; queries, keys and values are one matrix where the
    norms have biases and every head its own keys, as GPT-2 and GPT-NeoX store them.
    """
    yield from _around(shape)
    at = 0
    for count, layer in shape.layers:
        inside = list(_inside(layer, shape))
        for i in range(at, at + count):
            yield from ((f"blk.{i}.{name}", dims) for name, dims in inside)
        at += count


def _around(shape: ModelShape) -> Iterator[tuple[str, Shape]]:
    yield "token_embd.weight", (shape.vocab_size, shape.d_model)
    if shape.positions == "learned":
        yield "position_embd.weight", (shape.max_seq_len, shape.d_model)
    if shape.final_norm:
        yield from _norm("output_norm", shape)
    if not shape.tied:
        yield "output.weight", (shape.vocab_size, shape.d_model)
    if shape.head_bias:
        yield "output.bias", (shape.vocab_size,)
    for name, n in shape.others:
        yield name, (n,)


def _norm(name: str, shape: ModelShape) -> Iterator[tuple[str, Shape]]:
    yield f"{name}.weight", (shape.d_model,)
    after = name.startswith("post_")  # of a branch's result: RMSNorm in every model that has one
    if shape.norm_bias and shape.norm == "layernorm" and not after:
        yield f"{name}.bias", (shape.d_model,)


_NORMS = {
    0: (),
    1: ("attn_norm",),
    2: ("attn_norm", "ffn_norm"),
    4: ("attn_norm", "post_attention_norm", "ffn_norm", "post_ffw_norm"),
}


def _inside(layer: Layer, shape: ModelShape) -> Iterator[tuple[str, Shape]]:
    for name in _NORMS.get(layer.n_norms, tuple(f"norm_{i}" for i in range(layer.n_norms))):
        yield from _norm(name, shape)
    mixer, d = layer.mixer, shape.d_model
    if isinstance(mixer, Attention):
        yield from _attention(mixer, d, fused=shape.norm_bias and layer.n_norms == 2)
    elif isinstance(mixer, Latent):
        yield from _latent(mixer, d)
    else:
        yield from _recurrent(mixer, d)
    if isinstance(layer.mlp, Experts):
        yield from _experts(layer.mlp, d)
    else:
        yield from _mlp("", layer.mlp.d_ff, d, gated=layer.mlp.gated, bias=layer.mlp.bias)


def _linear(name: str, *dims: int, bias: bool = False) -> Iterator[tuple[str, Shape]]:
    yield f"{name}.weight", dims
    if bias:
        yield f"{name}.bias", dims[:-1]


def _attention(a: Attention, d: int, *, fused: bool) -> Iterator[tuple[str, Shape]]:
    if fused and a.qkv_bias and a.n_head == a.n_kv_head:
        yield from _linear("attn_qkv", 3 * a.d_q, d, bias=True)
    else:
        yield from _linear("attn_q", a.d_q, d, bias=a.qkv_bias)
        for part in ("attn_k", "attn_v"):  # there too where a cache is shared
            yield from _linear(part, a.d_kv, d, bias=a.qkv_bias)
    yield from _linear("attn_output", d, a.d_q, bias=a.out_bias)
    if a.qk_norm:
        yield "attn_q_norm.weight", (a.d_head,)
        yield "attn_k_norm.weight", (a.d_head,)
    if a.sinks:
        yield "attn_sinks.weight", (a.n_head,)


def _latent(a: Latent, d: int) -> Iterator[tuple[str, Shape]]:
    if a.q_rank:
        yield from _linear("attn_q_a", a.q_rank, d, bias=a.qkv_bias)
        yield "attn_q_a_norm.weight", (a.q_rank,)
        yield from _linear("attn_q_b", a.d_q, a.q_rank)
    else:
        yield from _linear("attn_q", a.d_q, d, bias=a.qkv_bias)
    yield from _linear("attn_kv_a_mqa", a.kv_rank + a.d_rope, d, bias=a.qkv_bias)
    yield "attn_kv_a_norm.weight", (a.kv_rank,)
    yield "attn_k_b.weight", (a.n_head, a.kv_rank, a.d_nope)
    yield "attn_v_b.weight", (a.n_head, a.d_value, a.kv_rank)
    yield from _linear("attn_output", d, a.n_head * a.d_value)


def _recurrent(mixer: Recurrent, d: int) -> Iterator[tuple[str, Shape]]:
    """The matrices as if their rows were as wide as the model; what else there is, as vectors."""
    left = list(mixer.matrix_sizes)
    for i, n in enumerate(mixer.param_sizes):
        matrix = n in left and n % d == 0
        if matrix:
            left.remove(n)
        yield f"ssm_{i}.weight", (n // d, d) if matrix else (n,)


def _mlp(
    suffix: str, d_ff: int, d: int, *, gated: bool, bias: bool, experts: Shape = ()
) -> Iterator[tuple[str, Shape]]:
    for part in ("gate", "up") if gated else ("up",):
        yield from _linear(f"ffn_{part}{suffix}", *experts, d_ff, d, bias=bias)
    yield from _linear(f"ffn_down{suffix}", *experts, d, d_ff, bias=bias)


def _experts(e: Experts, d: int) -> Iterator[tuple[str, Shape]]:
    yield from _linear("ffn_gate_inp", e.n, d, bias=e.router_bias)
    yield from _mlp("_exps", e.d_ff, d, gated=e.gated, bias=e.bias, experts=(e.n,))
    if e.n_shared:
        d_shared = e.n_shared * (e.d_shared or e.d_ff)
        yield from _mlp("_shexp", d_shared, d, gated=e.gated, bias=e.bias)
    if e.shared_gate:
        yield "ffn_gate_inp_shexp.weight", (d,)


def llama_like(
    *,
    hidden: int,
    layers: int,
    q_dim: int,
    kv_dim: int,
    ffn: int,
    vocab: int,
    tied: bool = False,
    experts: int = 0,
) -> ModelShape:
    """A model of Llama's kind from the widths of its matrices: all that a file's size asks for.

    The width of a head is not among them; it is taken as wide as the two allow.
    """
    d_head = math.gcd(q_dim, kv_dim)
    attention = Attention(n_head=q_dim // d_head, n_kv_head=kv_dim // d_head, d_head=d_head)
    mlp = Experts(n=experts, top_k=1, d_ff=ffn) if experts > 1 else Mlp(d_ff=ffn, gated=True)
    return ModelShape(
        vocab_size=vocab,
        d_model=hidden,
        layers=((layers, Layer(mixer=attention, mlp=mlp)),),
        max_seq_len=1,
        tied=tied,
    )


# -- llama.cpp's mixes --------------------------------------------------------------------------

# Name of a file type -> (its number in general.file_type, what a tensor is stored in unless a rule
# says otherwise). Source: llama.cpp, include/llama.h and src/llama-quant.cpp.
_FTYPES = {
    "F32": (0, "F32"),
    "F16": (1, "F16"),
    "Q4_0": (2, "Q4_0"),
    "Q4_1": (3, "Q4_1"),
    "Q8_0": (7, "Q8_0"),
    "Q5_0": (8, "Q5_0"),
    "Q5_1": (9, "Q5_1"),
    "Q2_K": (10, "Q2_K"),
    "Q3_K_S": (11, "Q3_K"),
    "Q3_K_M": (12, "Q3_K"),
    "Q3_K_L": (13, "Q3_K"),
    "Q4_K_S": (14, "Q4_K"),
    "Q4_K_M": (15, "Q4_K"),
    "Q5_K_S": (16, "Q5_K"),
    "Q5_K_M": (17, "Q5_K"),
    "Q6_K": (18, "Q6_K"),
    "IQ2_XXS": (19, "IQ2_XXS"),
    "IQ2_XS": (20, "IQ2_XS"),
    "Q2_K_S": (21, "Q2_K"),
    "IQ3_XS": (22, "IQ3_S"),
    "IQ3_XXS": (23, "IQ3_XXS"),
    "IQ1_S": (24, "IQ1_S"),
    "IQ4_NL": (25, "IQ4_NL"),
    "IQ3_S": (26, "IQ3_S"),
    "IQ3_M": (27, "IQ3_S"),
    "IQ2_S": (28, "IQ2_XS"),
    "IQ2_M": (29, "IQ2_S"),
    "IQ4_XS": (30, "IQ4_XS"),
    "IQ1_M": (31, "IQ1_M"),
    "BF16": (32, "BF16"),
    "TQ1_0": (36, "TQ1_0"),
    "TQ2_0": (37, "TQ2_0"),
    "MXFP4_MOE": (38, "MXFP4"),
    "NVFP4": (39, "NVFP4"),
    "Q1_0": (40, "Q1_0"),
    "Q2_0": (41, "Q2_0"),
}
FTYPES = tuple(_FTYPES)
FTYPE_BY_NUMBER = {number: name for name, (number, _) in _FTYPES.items()}
_FINEST_WHOLE = ("F32", "F16", "BF16")  # not quantised: no rule but which tensors stay in F32

_BELOW_3_BITS = ("IQ1_S", "IQ1_M", "IQ2_XXS", "IQ2_XS", "IQ2_S", "IQ2_M")
_IQ2_BETTER = ("IQ2_S", "IQ2_M")
_TERNARY = ("TQ1_0", "TQ2_0", "Q2_0")
_WITH_8_EXPERTS_OUTPUT_Q5 = (
    "Q2_K", "IQ3_XS", "IQ3_XXS", "Q3_K_S", "Q3_K_M", "IQ4_NL", "Q4_K_S", "Q4_K_M", "IQ3_S",
    "IQ3_M", "IQ4_XS",
)  # fmt: skip
_OUTPUT_TYPES = {
    "Q2_K": "Q3_K", "IQ3_XXS": "IQ3_S", "Q3_K_M": "Q4_K", "Q3_K_L": "Q5_K", "IQ3_M": "Q4_K",
}  # fmt: skip
_WHERE_ROWS_DO_NOT_FIT = {
    **dict.fromkeys(
        ("IQ1_S", "IQ1_M", "IQ2_XXS", "IQ2_XS", "IQ2_S", "IQ3_XXS", "IQ3_S", "IQ4_XS"), "IQ4_NL"
    ),
    **dict.fromkeys(("Q2_K", "Q3_K", "TQ1_0", "TQ2_0", "Q2_0"), "Q4_0"),
    "Q4_K": "Q5_0",
    "Q5_K": "Q5_1",
    "Q6_K": "Q8_0",
}

# What a tensor is, by a part of its name; the first that is found counts.
_CATEGORIES = (
    ("attn_qkv.weight", "attn_v"),  # the three in one are stored as the values would be
    ("attn_kv_b.weight", "attn_v"),
    ("attn_v.weight", "attn_v"),
    ("attn_k.weight", "attn_k"),
    ("attn_q.weight", "attn_q"),
    ("attn_output.weight", "attn_output"),
    ("ffn_up", "ffn_up"),
    ("ffn_gate", "ffn_gate"),
    ("ffn_down", "ffn_down"),
)
_LEFT_ALONE = (
    "_norm.weight", "ffn_gate_inp.weight", "position_embd", "token_types", "ssm_conv1d",
    "shortconv.conv.weight", "altup", "laurel", "per_layer_model_proj", "attn_rel_b.weight",
)  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class MixFacts:
    """What the rule asks of a model besides its tensors."""

    n_layer: int
    n_gqa: int  # query heads that share a key head, in the first layer
    n_expert: int
    is_70b: bool  # 80 layers and fewer key heads than query heads: the source's class of that name

    @classmethod
    def of(cls, shape: ModelShape) -> "MixFacts":
        layers = list(shape.kinds())
        heads = [a for a in (layer.mixer for layer in layers) if isinstance(a, Attention)]
        experts = [layer.mlp.n for layer in layers if isinstance(layer.mlp, Experts)]
        return cls(
            n_layer=shape.n_layer,
            n_gqa=heads[0].n_head // heads[0].n_kv_head if heads else 1,
            n_expert=max(experts, default=0),
            is_70b=shape.n_layer == 80 and any(a.n_head != a.n_kv_head for a in heads),
        )


def mixed(
    found: Iterable[tuple[str, Shape]], ftype: str, facts: MixFacts, *, imatrix: bool = True
) -> list[Row]:
    """Each tensor with the type that llama-quantize would store it in; `found` in a file's order.

    Not of the rule here: the branches for Falcon's architecture, and a remedy where the source has
    none: rows that fit no block are stored in F16, where it gives up for some types.

    Source: llama.cpp, src/llama-quant.cpp, commit 007dbbf (llama_tensor_get_type,
    tensor_allows_quantization, tensor_type_fallback). Raises: ValueError for an unknown ftype.
    """
    named = sorted(found, key=lambda tensor: _place(tensor[0]))
    return _Mix(_known_ftype(ftype), facts, [name for name, _ in named], imatrix).rows(named)


def _known_ftype(ftype: str) -> str:
    if ftype not in _FTYPES:
        raise ValueError(f"ftype={ftype!r} is unknown; choose one of {', '.join(FTYPES)}")
    return ftype


def _place(name: str) -> tuple[int, str]:
    """Where the source's map of tensors has it: by layer, then by name."""
    found = re.match(r"blk\.(\d+)\.", name)
    return (int(found[1]) if found else -1), name


def _category(name: str) -> str:
    if name == "output.weight":
        return "output"
    if name in ("token_embd.weight", "per_layer_token_embd.weight"):
        return "token_embd"
    return next((kind for part, kind in _CATEGORIES if part in name), "other")


def _may_be_quantised(name: str, dims: Shape) -> bool:
    rank = len(dims) - next((i for i, n in enumerate(dims) if n > 1), len(dims) - 1)
    return rank >= 2 and name.endswith("weight") and not any(p in name for p in _LEFT_ALONE)


class _Mix:
    """One pass over a file's tensors: what was met before decides what comes."""

    def __init__(self, ftype: str, facts: MixFacts, names: Sequence[str], imatrix: bool) -> None:
        self.ftype, self.base = ftype, _FTYPES[ftype][1]
        self.facts, self.imatrix = facts, imatrix
        self.tied = "output.weight" not in names
        self.n_values = sum(_category(name) == "attn_v" for name in names)
        self.met = {"attn_v": 0, "ffn_down": 0, "ffn_gate": 0, "ffn_up": 0}

    def rows(self, named: Sequence[tuple[str, Shape]]) -> list[Row]:
        found = []
        for name, dims in named:
            kind = self._type(name, dims)
            size = GGML[kind].bytes_of(math.prod(dims[:-1]), dims[-1])
            found.append(Row(name=name, shape=dims, type=kind, n_bytes=size))
        return found

    def _type(self, name: str, dims: Shape) -> str:
        if not _may_be_quantised(name, dims):
            return "F32"
        if self.base in _FINEST_WHOLE:
            return self.base
        category = _category(name)
        kind = self._chosen(category, name, dims)
        if category in self.met:
            self.met[category] += 1
        return _fitting(kind, dims[-1])

    def _chosen(self, category: str, name: str, dims: Shape) -> str:
        if category == "output" or (self.tied and category == "token_embd"):
            return self._output(dims[-1])
        if self.ftype == "MXFP4_MOE":
            return "MXFP4" if len(dims) == 3 else "Q8_0"
        if category == "token_embd":
            return self._embedding()
        low = self.ftype in _BELOW_3_BITS
        if category == "attn_v":
            return self._values_below_3_bits() if low else self._values()
        if category == "attn_k":
            return self._keys(low)
        if category == "attn_output":
            return self._attention_output(low)
        if category == "ffn_down":
            return self._down_below_3_bits() if low else self._down(name)
        if self.ftype == "IQ3_XS" and category in ("ffn_gate", "ffn_up"):
            n = self.facts.n_layer
            return "IQ3_XXS" if n // 8 <= self._layer(category, name) < 7 * n // 8 else self.base
        if category == "attn_q":
            return {"IQ3_XS": "IQ3_XXS", "IQ3_XXS": "IQ2_S"}.get(self.ftype, self.base)
        return self.base

    def _output(self, n_columns: int) -> str:
        if self.ftype == "MXFP4_MOE" or not GGML[self.base].holds_rows_of(n_columns):
            return "Q8_0"
        if self.ftype in (*_BELOW_3_BITS, "IQ3_XXS"):
            return "Q5_K"
        return "Q8_0" if self.base == "Q8_0" else "Q6_K"

    def _embedding(self) -> str:
        if self.ftype in (*_IQ2_BETTER, "IQ3_XXS"):
            return "IQ3_S"
        if self.ftype in _BELOW_3_BITS:
            return "Q2_K"
        return "Q4_K" if self.ftype in _TERNARY else self.base

    def _values_below_3_bits(self) -> str:
        if self.facts.n_gqa >= 4 or self.facts.n_expert >= 4:
            return "Q4_K"
        return "IQ3_S" if self.ftype in _IQ2_BETTER else "Q2_K"

    def _values(self) -> str:
        if self.facts.n_expert == 8:
            return "Q8_0"
        kind = self._values_by_ftype()
        return "Q5_K" if self.facts.is_70b and kind in ("Q3_K", "Q4_K") else kind

    def _values_by_ftype(self) -> str:
        grouped, i = self.facts.n_gqa >= 4, self.met["attn_v"]
        match self.ftype:
            case "Q2_K":
                return "Q4_K" if grouped else "Q3_K"
            case "IQ3_XXS" if not grouped:
                return self.base if self.imatrix else "IQ3_S"
            case "Q2_K_S" | "IQ3_XXS" | "IQ3_XS" | "IQ3_S" if grouped:
                return "Q4_K"
            case "IQ3_M":
                return "Q4_K"
            case "Q3_K_M":
                return "Q5_K" if i < 2 else "Q4_K"
            case "Q3_K_L":
                return "Q5_K"
            case "IQ4_NL" | "IQ4_XS" if grouped:
                return "Q5_K"
            case "Q4_K_M" | "Q5_K_M" if _more_bits(i, self.n_values):
                return "Q6_K"
            case "Q4_K_S" if i < 4:
                return "Q5_K"
        return self.base

    def _keys(self, low: bool) -> str:
        if self.facts.n_expert == 8:
            return "Q4_K" if low else "Q8_0"
        return {"IQ3_XS": "IQ3_XXS", "IQ3_XXS": "IQ2_S"}.get(self.ftype, self.base)

    def _attention_output(self, low: bool) -> str:
        if self.facts.n_expert == 8:
            return "Q5_K" if low or self.ftype in _WITH_8_EXPERTS_OUTPUT_Q5 else self.base
        if low:
            better = {"IQ1_S": "IQ2_XXS", "IQ1_M": "IQ2_XXS", "IQ2_S": "IQ3_S", "IQ2_M": "IQ3_S"}
            return better.get(self.ftype, self.base)
        return _OUTPUT_TYPES.get(self.ftype, self.base)

    def _layer(self, category: str, name: str) -> int:
        """By its name in a mixture of experts, else by how many came before."""
        return _place(name)[0] if self.facts.n_expert > 1 else self.met[category]

    def _down_below_3_bits(self) -> str:
        if self.met["ffn_down"] >= self.facts.n_layer // 8:
            return self.base
        return "IQ3_S" if self.ftype in _IQ2_BETTER else "Q2_K"

    def _down(self, name: str) -> str:
        n, i = self.facts.n_layer, self._layer("ffn_down", name)
        early = i < n // 8
        match self.ftype:
            case "Q2_K":
                return "Q3_K"
            case "Q2_K_S" if early:
                return "Q4_K"
            case "IQ3_XXS" if not self.imatrix:
                return "Q4_K" if early else "Q3_K"
            case "Q3_K_M":
                return "Q5_K" if i < n // 16 else "Q4_K"
            case "IQ3_M" if early or (self.facts.n_expert == 8 and _more_bits(i, n)):
                return "Q4_K"
            case "Q3_K_L":
                return "Q5_K"
            case "Q4_K_M" | "Q5_K_M" if _more_bits(i, n):
                return "Q6_K"
            case "IQ4_NL" | "IQ4_XS" if early and not self.imatrix:
                return "Q5_K"
            case "Q4_K_S" if early:
                return "Q5_K"
            case "Q4_0" | "Q5_0" if early and self.imatrix:
                return "Q4_1" if self.ftype == "Q4_0" else "Q5_1"
        return self.base


def _more_bits(i: int, n: int) -> bool:
    """The first eighth of n layers, the last, and every third between."""
    return i < n // 8 or i >= 7 * n // 8 or (i - n // 8) % 3 == 2


def _fitting(kind: str, n_columns: int) -> str:
    """The type, or a coarser block's where a row is no whole number of blocks."""
    if GGML[kind].holds_rows_of(n_columns):
        return kind
    other = _WHERE_ROWS_DO_NOT_FIT.get(kind, "F16")
    return other if GGML[other].holds_rows_of(n_columns) else "F16"


@functools.lru_cache(maxsize=256)
def gguf_tensors(shape: ModelShape, ftype: str, *, imatrix: bool = True) -> tuple[Row, ...]:
    """Every tensor of the GGUF file that llama-quantize makes: name, shape, type, bytes.

    `imatrix`: with an importance matrix, which changes what some types are stored in.
    Raises: ValueError for an unknown ftype.
    """
    return tuple(mixed(tensors(shape), ftype, MixFacts.of(shape), imatrix=imatrix))


def file_bytes(shape: ModelShape, ftype: str, *, imatrix: bool = True) -> Bytes:
    """Of a GGUF file's tensors. Its header, some megabytes for the vocabulary, comes on top."""
    return Bytes(sum(row.n_bytes for row in gguf_tensors(shape, ftype, imatrix=imatrix)))


def mix_bits_per_weight(shape: ModelShape, ftype: str, *, imatrix: bool = True) -> float:
    """Of a GGUF file: bits of all its tensors by the numbers in them, as llama.cpp states it."""
    rows = gguf_tensors(shape, ftype, imatrix=imatrix)
    return 8 * sum(row.n_bytes for row in rows) / sum(row.n_weights for row in rows)


# -- every format that a page offers ------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class Custom:
    """What a format makes of a model, by the custom of those who publish it."""

    name: str
    title: str
    linear: Scaled  # matrices of attention and of dense and shared MLPs
    experts: Scaled
    outer: Scaled  # embeddings and the head
    rest: Scaled  # norms, biases, routers, and what is no matrix
    head: Scaled | None = None  # where it is not as the embeddings are
    stays: str  # what is not in the format
    source: str


_MANY = "embeddings, head, router, norms and biases stay in bf16"


def _whole(name: str, title: str) -> Custom:
    kind = SCALED[name]
    return Custom(
        name=name, title=title, linear=kind, experts=kind, outer=kind, rest=kind,
        stays="nothing stays finer: every number is stored alike", source=kind.source,
    )  # fmt: skip


def _inner(name: str, title: str, kind: Scaled, rest: str = "bf16", stays: str = _MANY) -> Custom:
    """The matrices inside the layers, and nothing else."""
    return Custom(
        name=name, title=title, linear=kind, experts=kind, outer=SCALED[rest],
        rest=SCALED[rest], stays=stays, source=kind.source,
    )  # fmt: skip


_FP16 = "embeddings, head, router, norms and biases stay in fp16"
_BITSANDBYTES = "embeddings, head, router, norms and biases stay in 16 bits"

CUSTOMS = {
    c.name: c
    for c in (
        _whole("fp32", "float32"),
        _whole("fp16", "float16"),
        _whole("bf16", "bfloat16"),
        _inner("fp8", "FP8, a scale for each output channel", SCALED["FP8 channel"]),
        _inner("fp8-block", "FP8, a scale for 128 × 128", SCALED["FP8 128x128"]),
        _inner("int8", "int8, a scale for each output", SCALED["int8 channel"], "fp16", _FP16),
        _inner("awq-g128", "int4 AWQ, groups of 128", grouped(4, 128), "fp16", _FP16),
        _inner("gptq-g128", "int4 GPTQ, groups of 128", grouped(4, 128), "fp16", _FP16),
        _inner("gptq-g32", "int4 GPTQ, groups of 32", grouped(4, 32), "fp16", _FP16),
        _inner(
            "gptq-g128-act",
            "int4 GPTQ, groups of 128 in order of activity",
            grouped(4, 128, act_order=True),
            "fp16",
            _FP16,
        ),
        _inner("nf4", "NF4, blocks of 64", SCALED["NF4"], stays=_BITSANDBYTES),
        _inner(
            "nf4-dq", "NF4, its scales coded too", SCALED["NF4 double quant"], stays=_BITSANDBYTES
        ),
        Custom(
            name="int4-g32",
            title="int4, groups of 32, as gpt-fast",
            linear=SCALED["int4 bf16 g32"],
            experts=SCALED["int4 bf16 g32"],
            outer=SCALED["bf16"],
            head=SCALED["int4 bf16 g32"],
            rest=SCALED["bf16"],
            stays="embeddings, router, norms and biases stay in bf16, as does a tied head",
            source="pytorch-labs/gpt-fast, quantize.py: every nn.Linear, the output's too",
        ),
        Custom(
            name="mxfp4",
            title="MXFP4, experts only",
            linear=SCALED["bf16"],
            experts=SCALED["MXFP4"],
            outer=SCALED["bf16"],
            rest=SCALED["bf16"],
            stays="all but the experts' matrices stays in bf16, so a dense model is not smaller",
            source="openai/gpt-oss, README: MoE weights in MXFP4, all other tensors in BF16",
        ),
        _inner("mxfp4-all", "MXFP4, every layer's matrices", SCALED["MXFP4"]),
        _inner("nvfp4", "NVFP4", SCALED["NVFP4"]),
        _inner("mxfp6", "MXFP6", SCALED["MXFP6"]),
        _inner("mxfp8", "MXFP8", SCALED["MXFP8"]),
    )
}

_MIX_STAYS = (
    "norms, biases and routers stay in F32; embeddings, head and some matrices are stored finer or "
    "coarser by llama.cpp's rule for each tensor"
)


def weight_formats() -> tuple[str, ...]:
    """Names that `weights_bytes` knows: CUSTOMS and FTYPES."""
    return (*CUSTOMS, *FTYPES)


def stays(format_name: str) -> str:
    """What of a model is not in the format that it is called by. Raises: ValueError."""
    _known_format(format_name)
    return CUSTOMS[format_name].stays if format_name in CUSTOMS else _MIX_STAYS


def _known_format(name: str) -> None:
    if name not in CUSTOMS and name not in FTYPES:
        raise ValueError(f"format={name!r} is unknown; choose one of {', '.join(weight_formats())}")


def weights_bytes(shape: ModelShape, format_name: str) -> Bytes:
    """Of all weights of a model in one of `weight_formats()`; `stays` says what is not in it.

    A mix of llama.cpp is as made with an importance matrix. Raises: ValueError.
    """
    _known_format(format_name)
    if format_name in FTYPES:
        return file_bytes(shape, format_name)
    custom = CUSTOMS[format_name]
    total = sum(_stored(custom, name, dims) for name, dims in _around(shape))
    for layer, count in shape.kinds().items():
        total += count * sum(_stored(custom, name, dims) for name, dims in _inside(layer, shape))
    return Bytes(total)


def _stored(custom: Custom, name: str, dims: Shape) -> int:
    n = math.prod(dims)
    if name == "output.weight":
        return (custom.head or custom.outer).bytes_of(dims[0], dims[1])
    if name in ("token_embd.weight", "position_embd.weight"):
        return custom.outer.bytes_of(dims[0], dims[1])
    if not _may_be_quantised(name, dims):
        return custom.rest.bytes_of(1, n)
    if "_exps" in name:
        return dims[0] * custom.experts.bytes_of(dims[1], dims[2])
    return custom.linear.bytes_of(n // dims[-1], dims[-1])
