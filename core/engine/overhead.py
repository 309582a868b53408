"""What it costs to look at a step, measured on one small transformer."""

import copy
import time
from collections.abc import Callable

import torch

from core.engine.model_step import Ready, followed, recorded_step_of
from core.engine.models import Transformer
from core.shapes import TransformerShape

SHAPE = TransformerShape(
    vocab_size=65, n_layer=4, d_model=64, n_head=4, n_kv_head=4, d_ff=256, max_seq_len=64
)


def small_transformer() -> Ready:
    """Four layers of GPT-2's kind, 0.2 million parameters, on 8 x 64 tokens with fused AdamW."""
    generator = torch.Generator().manual_seed(0)
    model = Transformer(SHAPE, generator)
    tokens = torch.randint(0, SHAPE.vocab_size, (8, SHAPE.max_seq_len + 1), generator=generator)
    return Ready(
        model=model,
        optimizer=torch.optim.AdamW(model.parameters(), fused=True),
        batches=[(tokens[:, :-1].contiguous(), tokens[:, 1:].contiguous())],
    )


def looks(ready: Ready) -> dict[str, Callable[[], float]]:
    """Seconds of one update, by how it is looked at."""

    def seconds(work: Callable[[], object]) -> Callable[[], float]:
        def measure() -> float:
            began = time.perf_counter()
            work()
            return time.perf_counter() - began

        return measure

    return {
        "plain": seconds(lambda: ready.run(lambda phase, op: None)),
        "followed by the ledger": seconds(lambda: followed(ready)),
        "recorded op by op": seconds(
            lambda: list(recorded_step_of(0, lambda: copy.deepcopy(ready)))
        ),
    }
