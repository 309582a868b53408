"""What each specimen is made of, without weights: its shape and the text it learns from."""

import functools
import os
from pathlib import Path

from core import texts
from core.memory import Prediction, TorchStep, step_memory, train_memory, train_ops, walk
from core.ops import INDEX_BYTES, Decode, Op, Prefill, Train, expand, kv_cache_bytes
from core.shapes import MlpShape, TransformerShape
from core.specs import (
    AdditionSpec,
    DepthsSpec,
    DigitsSpec,
    FinetuneSpec,
    OwnTextSpec,
    PlaygroundSpec,
    PydocsSpec,
    Spec,
    TransformerSpec,
)
from core.transformer import transformer_ops
from core.units import DTYPES

ROOT = Path(__file__).resolve().parent.parent
N_PIXELS = 64
N_CLASSES = 10


def runs_folder() -> Path:
    """Where attempts are kept: $BOTHWAYS_RUNS, or `runs` beside the code."""
    return Path(os.environ.get("BOTHWAYS_RUNS", ROOT / "runs"))


def texts_folder() -> Path:
    """Where visitors' own texts are kept, beside the runs."""
    return runs_folder() / "texts"


def text_of(spec: TransformerSpec) -> texts.Text:
    """The characters a spec learns from. Raises: FileNotFoundError if a text is no longer kept."""
    match spec:
        case AdditionSpec():
            return texts.Text(characters="", vocabulary=texts.SUM_CHARACTERS)
        case PydocsSpec():
            return texts.python_documentation()
        case OwnTextSpec():
            return texts.kept(spec.text, texts_folder())
    raise TypeError(f"{spec.specimen} learns from no text")


def shape_of(spec: Spec) -> MlpShape | TransformerShape:
    """Layer sizes of a spec's model."""
    match spec:
        case PlaygroundSpec():
            return MlpShape.of(spec)
        case DigitsSpec():
            return MlpShape(
                d_in=N_PIXELS,
                hidden=(spec.d_model,) * spec.n_layer,
                d_out=N_CLASSES,
                activation=spec.activation,
                output_activation="linear",
                loss="cross_entropy",
            )
        case DepthsSpec():
            return transformer_shape(spec, spec.vocab_size)
        case TransformerSpec():
            return transformer_shape(spec, text_of(spec).vocab_size)
        case FinetuneSpec():
            from core import pretrained  # which knows this module

            return pretrained.shape_of(spec.model)
    raise TypeError(f"{spec!r} has no shape")


def transformer_shape(spec: TransformerSpec, vocab_size: int) -> TransformerShape:
    """GPT-2's or Llama's layer at the spec's size; Llama's MLP is 8/3 wide, in steps of 8."""
    gpt = spec.architecture == "gpt"
    return TransformerShape(
        vocab_size=vocab_size,
        n_layer=spec.n_layer,
        d_model=spec.d_model,
        n_head=spec.n_head,
        n_kv_head=spec.n_head if gpt or spec.n_head % 2 else spec.n_head // 2,
        d_ff=4 * spec.d_model if gpt else -(-8 * spec.d_model // 3 // 8) * 8,
        max_seq_len=spec.seq_len,
        norm="layernorm" if gpt else "rmsnorm",
        mlp="gelu" if gpt else "swiglu",
        positions="learned" if gpt else "rope",
        bias=gpt,
        attention=spec.attention,
        dropout=spec.dropout,
    )


def torch_step(spec: Spec, batch_size: int | None = None, *, first: bool = False) -> TorchStep:
    """A spec's training step as predictions see it; `batch_size` where it took another, `first`
    where it is the run's first.
    """
    assert not isinstance(spec, PlaygroundSpec), "the playground's step is NumPy's"
    mixed = DTYPES[spec.precision] if spec.precision != "fp32" else None
    sequence = isinstance(spec, TransformerSpec | FinetuneSpec)
    return TorchStep(
        shape=shape_of(spec),
        workload=Train(
            batch_size=batch_size or spec.batch_size,
            seq_len=spec.seq_len if sequence else 1,
            autocast=mixed,
            checkpointing=getattr(spec, "checkpointing", False),
        ),
        optimizer=spec.optimizer,
        accumulation=getattr(spec, "accumulation", 1),
        first=first,
    )


def step_in_torch(spec: Spec, batch_size: int | None = None) -> TorchStep:
    """`torch_step`, and the playground's too: as it is done in torch when it is looked into."""
    if not isinstance(spec, PlaygroundSpec):
        return torch_step(spec, batch_size)
    return TorchStep(
        shape=MlpShape.of(spec),
        workload=Train(batch_size=batch_size or spec.batch_size, dtype=DTYPES[spec.precision]),
        optimizer=spec.optimizer,
        fused=False,
        keeps_loss=True,
    )


def kv_cache_bytes_per_token(spec: Spec) -> tuple[int, str] | None:
    """What generating keeps of each token in the weights' format, with its arithmetic; None where
    the model is not a transformer.
    """
    shape = shape_of(spec)
    if isinstance(shape, MlpShape):
        return None
    workload = Decode(batch_size=1, context=1)
    n_bytes = kv_cache_bytes(transformer_ops(shape, workload))
    each = f"{shape.n_layer} × {shape.d_kv} × {workload.dtype.n_bytes}"
    return n_bytes, f"2 × {each} = {n_bytes}"


def ops_of(spec: Spec, batch_size: int | None = None) -> tuple[Op, ...]:
    """The op table of a spec's step, a row for each layer."""
    if isinstance(spec, PlaygroundSpec):
        return train_ops(spec, batch_size)
    return expand(torch_step(spec, batch_size).ops)


def predictions(
    spec: Spec, batch_size: int | None = None, *, first: bool = False
) -> dict[str, Prediction]:
    """Predicted bytes of a spec's step by category; `first` for a run's first step."""
    if isinstance(spec, PlaygroundSpec):
        return train_memory(spec, batch_size)
    found = step_memory(torch_step(spec, batch_size, first=first))
    found.pop("inputs_bytes")  # not on screen: known beforehand, and small
    return found


def inference_peak_bytes(spec: TransformerSpec) -> int:
    """Most bytes alive while the model reads a batch and keeps nothing: weights, tokens, and what
    one op hands to the next. In fp32.

    Checked: the ledger in inference mode, to the byte (tests/core/test_depths.py).
    """
    shape = shape_of(spec)
    assert isinstance(shape, TransformerShape)
    rest = shape.n_params * DTYPES["fp32"].n_bytes
    rest += spec.batch_size * spec.seq_len * INDEX_BYTES
    ops = transformer_ops(shape, Prefill(batch_size=spec.batch_size, seq_len=spec.seq_len))
    return max(m.highest_bytes for m in walk(ops, rest) if m.phase == "forward")


@functools.lru_cache(maxsize=32)
def predicted_depths(spec: DepthsSpec) -> tuple[tuple[int, int, int], ...]:
    """(depth, peak of a training step, peak of inference) in bytes, for every depth."""
    return tuple(
        (
            depth,
            int(step_memory(torch_step(spec.at(depth)))["peak_bytes"].value),
            inference_peak_bytes(spec.at(depth)),
        )
        for depth in range(1, spec.n_layer + 1)
    )
