"""Activations by published closed forms, each of one architecture under one implementation.

The op table says what this project's own models keep; these say what papers and others measured,
so that both can stand side by side. Letters: s tokens, b sequences, h width, a heads, L layers, t
tensor parallel, p pipeline parallel, m interleaved stages. What is in bytes already is `Bytes`: 34
sbh is bytes, and is not multiplied by two again.

Checked: tests/data/oracle.csv.
"""

from core.sizes import Bytes

MODES = (
    "tp_no_sp_no_recompute",
    "sp",
    "selective",
    "sp+selective",
    "full",
    "sp+full",
    "none",
)


def layer_bytes(
    mode: str, *, seq: int, batch: int, hidden: int, heads: int, tensor_parallel: int = 1
) -> Bytes:
    """Of one layer of a 16-bit GPT with dropout masks of one byte and a GELU MLP of 4 h.

    `none` is that on one device; `tp_no_sp_no_recompute` splits matrices over t devices; `sp`
    splits the rest too; `selective` computes attention's scores again (as flash attention does);
    `full` keeps a layer's input alone, and with `sp` a part of it.
    Source: Korthikanti et al. 2022 (arXiv:2205.05198), equations 1 to 6 and table 2.
    Raises: ValueError naming the modes.
    """
    if mode not in MODES:
        raise ValueError(f"mode={mode!r} is unknown; choose {', '.join(MODES)}")
    t = tensor_parallel
    scores = 5 * heads * seq / hidden
    each = {
        "none": 34 + scores,
        "tp_no_sp_no_recompute": 10 + 24 / t + scores / t,
        "sp": (34 + scores) / t,
        "selective": 10 + 24 / t,
        "sp+selective": 34 / t,
        "full": 2,
        "sp+full": 2 / t,
    }[mode]
    return Bytes(seq * batch * hidden * each)


def stage_layers(
    layers: int,
    *,
    stages: int,
    interleave: int | None = None,
    micro_batches: int | None = None,
) -> float:
    """Layers' worth of activations that the first of `stages` pipeline stages holds.

    With 1F1B it holds p micro-batches, or as many as there are, of L / p layers; interleaved
    schedules of m > 1 parts, which need p micro-batches and more, hold L (1 + (p - 1) / (p m)).
    Source: Korthikanti et al. 2022, section 4.2.3.
    """
    if stages == 1:
        return layers
    if not interleave or interleave == 1:
        return layers * min(stages, micro_batches or stages) / stages
    return layers * (1 + (stages - 1) / (stages * interleave))


def first_stage_bytes(
    mode: str,
    *,
    seq: int,
    batch: int,
    hidden: int,
    heads: int,
    layers: int,
    tensor_parallel: int = 1,
    stages: int = 1,
    interleave: int | None = None,
    micro_batches: int | None = None,
) -> Bytes:
    """Activations of the first pipeline stage, where the most are held."""
    one = layer_bytes(
        mode,
        seq=seq,
        batch=batch,
        hidden=hidden,
        heads=heads,
        tensor_parallel=tensor_parallel,
    )
    return one * stage_layers(
        layers, stages=stages, interleave=interleave, micro_batches=micro_batches
    )


def share_of_baseline(
    mode: str, *, seq: int, hidden: int, heads: int, tensor_parallel: int
) -> float:
    """Of a mode, relative to splitting matrices alone.

    Source: Korthikanti et al. 2022, figure 7.
    """
    how = {
        "seq": seq,
        "batch": 1,
        "hidden": hidden,
        "heads": heads,
        "tensor_parallel": tensor_parallel,
    }
    ratio = layer_bytes(mode, **how) / layer_bytes("tp_no_sp_no_recompute", **how)
    assert isinstance(ratio, float)
    return ratio


def copies_bytes(
    *, seq: int, batch: int, hidden: int, dtype_bytes: float, copies: float = 1, layers: float = 1
) -> Bytes:
    """So many tensors as large as the stream, in each of so many layers."""
    return Bytes(seq * batch * hidden * dtype_bytes * copies * layers)


def logits_bytes(*, seq: int, batch: int, vocab: int, dtype_bytes: float = 4) -> Bytes:
    """One tensor of logits."""
    return Bytes(seq * batch * vocab * dtype_bytes)


def gpt_saved_elements(
    *,
    dropout: float,
    explicit: bool,
    seq: int,
    heads: int,
    hidden: int,
    gelu_steps: bool = False,
    widened: bool = False,
) -> float:
    """Numbers that a pre-norm GPT block with biases keeps for each s b h, as torch keeps them.

    With dropout the CPU keeps a mask in the tensor's own format, not in one byte. `gelu_steps`: the
    tanh form of GELU written out, whose three steps are kept, 4 h wide each. `widened`: 16-bit
    scores computed in fp32, and scaled queries, keys and values kept beside.
    Source: measured with torch on a CPU (tests/data/oracle.csv, rows act-gpt-*; transformers 5.24,
    GPT2Block: tests/core/test_activations.py).
    """
    scores = heads * seq / hidden * (1 + 2 * (dropout > 0)) * explicit
    if widened:
        scores = 2 * scores + 3
    return 16 + 2 * (dropout > 0) + 12 * gelu_steps + scores


def llama_saved_elements(
    *, hidden: int, q_dim: int, kv_dim: int, ffn: int, qk_norm: bool = False
) -> float:
    """Numbers that a layer of Llama's family keeps for each s b h in transformers, SDPA, bf16.

    RMSNorm computes in fp32, whose copies are counted as two numbers each; keys and values are
    written out for each query head. Source: measured with transformers 5.24 (rows act-hf-*).
    """
    numbers = 16 * hidden + 2 * (q_dim + 2 * kv_dim) + 2 * q_dim + 8 * ffn
    numbers += 6 * (q_dim + kv_dim) * qk_norm
    return numbers / hidden / 2


def loss_saved_bytes(*, upcast: bool = True) -> float:
    """Bytes kept for each logit: of bf16 logits widened to fp32, the fp32 copy's softmax alone."""
    return 4.0 if upcast else 2.0


LOGITS_PEAK_BYTES = 12  # of each: bf16 2, fp32 4, its gradient 4, the bf16 gradient 2
