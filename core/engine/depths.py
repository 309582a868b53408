"""Peak memory of an answer and of a training step at one depth after another."""

import numpy as np
import torch

from core.engine.ledger import Ledger
from core.engine.measured_run import MeasuredRun
from core.engine.model_step import Ready, followed
from core.engine.models import Transformer
from core.engine.train_torch import AUTOCAST, new_model, new_optimizer
from core.events import Scalar
from core.specs import DepthsSpec, Spec


class DepthSweep(MeasuredRun):
    """Driven like a training run; a tick measures one depth, `step` counts those done."""

    def __init__(self, spec: Spec) -> None:
        assert isinstance(spec, DepthsSpec)
        super().__init__()
        self.spec = spec

    @property
    def summary(self) -> str:
        return f"{self.step} depths"

    @property
    def done(self) -> bool:
        return self.step >= len(self.spec.depths)

    def tick(self) -> None:
        depth = self.spec.depths[self.step]
        at = self.spec.at(depth)
        for name, peak in (("train_peak_bytes", _train(at)), ("inference_peak_bytes", _answer(at))):
            self._latest.append(Scalar(step=depth, name=name, value=peak))
        self._done += 1

    def checkpoint(self) -> dict[str, np.ndarray]:
        return {"step": np.array(self.step)}

    def restore(self, saved: dict[str, np.ndarray]) -> None:
        self._done = int(saved["step"])


def _tokens(spec: DepthsSpec) -> torch.Tensor:
    generator = torch.Generator().manual_seed(spec.seed)
    return torch.randint(
        spec.vocab_size, (spec.batch_size, spec.seq_len), generator=generator, dtype=torch.int64
    )


def _answer(spec: DepthsSpec) -> int:
    """Peak of reading the batch in inference mode, fp32."""
    model = new_model(spec).eval()
    tokens = _tokens(spec)
    with torch.inference_mode(), Ledger(weights=model.parameters(), inputs=[tokens]) as ledger:
        ledger.mark("forward", "model")
        logits = model(tokens)
    del logits
    return _peak(ledger)


def _train(spec: DepthsSpec) -> int:
    """Peak of the second training step: the optimizer's state exists by then."""
    model = new_model(spec)
    assert isinstance(model, Transformer)
    model.train()
    optimizer = new_optimizer(spec, model)
    batches = [(_tokens(spec), _tokens(spec)) for _ in range(spec.accumulation)]
    ready = Ready(
        model=model,
        optimizer=optimizer,
        batches=batches,
        autocast=AUTOCAST.get(spec.precision),
        scaler=torch.amp.GradScaler("cpu", enabled=spec.precision == "fp16"),
        seed=spec.seed,
    )
    followed(ready)
    return _peak(followed(ready))


def _peak(ledger: Ledger) -> int:
    return max(sum(held.values()) for _, _, held in ledger.samples())
