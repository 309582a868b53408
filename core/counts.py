"""How many parameters a model has, by the conventions in use; all are sums over the op table."""

import functools
from dataclasses import dataclass

from core.architecture import ModelShape
from core.ops import Train
from core.transformer import model_ops


@dataclass(frozen=True, slots=True, kw_only=True)
class Counts:
    """Numbers of parameters."""

    total: int  # every one
    active: int  # those that one token meets
    input_embedding: int  # a table of its own; 0 where the head shares it
    positions: int  # learned; nanoGPT's `get_num_params` leaves them out

    @property
    def active_without_input_embedding(self) -> int:
        """As gpt-oss counts: rows of the input embedding are looked up, not multiplied."""
        return self.active - self.input_embedding


@functools.lru_cache(maxsize=512)
def counts(shape: ModelShape) -> Counts:
    """Source: the op table. Checked: transformers on the meta device (tests/core)."""
    ops = model_ops(shape, Train(batch_size=1, seq_len=1))
    by_id = {op.id: op.n_params for op in ops}
    return Counts(
        total=sum(op.repeat * op.n_params for op in ops),
        active=sum(op.repeat * op.active_params for op in ops),
        input_embedding=0 if shape.tied else by_id["embed.tokens"],
        positions=by_id.get("embed.positions", 0),
    )


def gpt_layers(layers: int, hidden: int) -> int:
    """12 L h²: the matrices of a GPT's layers, without embeddings, norms and biases.

    Source: Korthikanti et al. 2022, appendix A; the size that Megatron's papers name models by.
    """
    return 12 * layers * hidden**2
