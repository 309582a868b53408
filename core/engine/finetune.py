"""Updates of a published model on a short text: all of its weights, or a small product beside each
matrix (LoRA).

Driven like any run. The first update is looked into; every look begins again from the file's own
weights, so that no second copy of the model is ever held.
"""

import math
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import torch
import torch.nn.functional as F
from torch import nn

from core.drawing import shown_ops
from core.engine import model_step, weights
from core.engine.ledger import storage_bytes
from core.engine.measured_run import MeasuredRun
from core.engine.model_step import Batch, Ready
from core.engine.models import Transformer
from core.engine.train import Diverged
from core.engine.train_torch import AUTOCAST, new_optimizer
from core.events import Event, Sample, Scalar
from core.specimens import ops_of
from core.specs import FinetuneSpec
from core.tokenizers import tokenizer_of

LORA_SCALE = 2.0  # alpha / rank, as Hu et al. 2021 set it


class Finetune(MeasuredRun):
    """One run of a spec. Raises: Unavailable if the model is not here; ValueError for a text of
    fewer than two tokens.
    """

    def __init__(self, spec: FinetuneSpec) -> None:
        super().__init__()
        torch.set_num_threads(spec.threads)
        self.spec = spec
        self.tokenizer = tokenizer_of(spec.model)
        ids = self.tokenizer.encode(spec.text)
        if len(ids) < 2:
            raise ValueError(
                f"text={spec.text!r} is {len(ids)} token; write at least two, so that there is "
                "one to predict"
            )
        self._batch = _windows(ids, spec)
        shape, self._original = weights.load(spec.model)
        self.model = Transformer.of(shape, self._original)
        if spec.lora_rank:
            _add_lora(self.model, spec.lora_rank, spec.seed)
        self._optimizer = new_optimizer(spec, self.model)
        self._first_loss = math.nan

    # -- driving --------------------------------------------------------------------------------

    @property
    def summary(self) -> str:
        return f"{self.step} updates"

    @property
    def done(self) -> bool:
        return self.step >= self.spec.n_steps

    def tick(self) -> None:
        """One update. Raises: Diverged."""
        loss = self._ready().run(lambda phase, op: None)
        if not math.isfinite(loss):
            raise Diverged(self.step, "loss")
        self._latest.append(Scalar(step=self.step, name="train_loss", value=loss))
        self._done += 1
        if self.done:
            after = weights.sha256(self._named())
            self._latest.append(Sample(step=self.step, name="weights_sha256_after", text=after))

    def recorded_step(self) -> Iterator[Event]:
        """The first update op by op, then the update; a later one is only taken."""
        if self.done:
            return
        if self.step == 0:
            yield from model_step.recorded_step_of(0, self._again, looks=self._looks)
            self._again()
        self.tick()
        yield from self.frame()

    def _ready(self) -> Ready:
        return Ready(
            model=self.model,
            optimizer=self._optimizer,
            batches=[self._batch],
            autocast=AUTOCAST.get(self.spec.precision),
        )

    def _again(self) -> Ready:
        """The state before the first update."""
        with torch.no_grad():
            for name, parameter in self.model.named_parameters():
                if name in self._original:
                    parameter.copy_(self._original[name])
                elif name.endswith("lora_b"):
                    parameter.zero_()
                parameter.grad = None
        self._optimizer = new_optimizer(self.spec, self.model)
        return self._ready()

    @property
    def _looks(self) -> tuple[model_step.Look, ...]:
        return (self._values, model_step.memory, model_step.work, model_step.times_once)

    # -- telling --------------------------------------------------------------------------------

    def opening(self) -> Iterator[Event]:
        """What it reads, and the hash of the weights that it starts from."""
        inputs, targets = self._batch
        yield Scalar(step=0, name="n_train", value=inputs.numel())
        yield Sample(step=0, name="weights_sha256_before", text=weights.sha256(self._named()))
        pieces = [self.tokenizer.piece(i) for i in [*inputs[0].tolist(), int(targets[0, -1])]]
        for piece in pieces:
            yield Sample(step=0, name="piece", text=piece)

    def _named(self) -> Iterator[tuple[str, torch.Tensor]]:
        """All weights, in the model's order; with LoRA the added ones too."""
        return ((name, p.detach()) for name, p in self.model.named_parameters())

    def _values(self, step: int, make: model_step.Make) -> Iterator[Event]:
        """Outputs and their gradients, of a few blocks whole; norms of every parameter's change."""
        ready = make()
        names = [name for name, p in self.model.named_parameters() if p.requires_grad]
        params = [p for p in ready.params if p.requires_grad]
        squares: dict[str, torch.Tensor] = {}
        outputs = model_step.Outputs()
        kept: dict[str, torch.Tensor] = {}
        shown = shown_ops([op.id for op in ops_of(self.spec)], self.model.shape.n_layer)

        def after_forward(_: torch.Tensor) -> None:
            kept.update({op: t for op, t in outputs.of.items() if op in shown})
            for output in kept.values():
                output.retain_grad()

        def before_update() -> None:
            squares.update(
                {n: p.grad.norm() for n, p in zip(names, params, strict=True) if p.grad is not None}
            )

        weights_bytes = storage_bytes(ready.params)
        before = {n: p.detach().norm() for n, p in zip(names, params, strict=True)}
        with outputs:
            loss = ready.run(outputs.mark, after_forward=after_forward, before_update=before_update)
        inputs, targets = self._batch
        yield Scalar(step=step, name="loss", value=loss)
        yield Scalar(step=step, name="batch_examples", value=len(inputs))
        yield Scalar(step=step, name="batch_tokens", value=inputs.numel())
        yield Scalar(step=step, name="weights_bytes", value=weights_bytes)
        trained = sum(p.numel() * p.element_size() for p in params)
        yield Scalar(step=step, name="gradients_bytes", value=trained)
        yield Scalar(step=step, name="optimizer_bytes", value=storage_bytes(ready.state))
        yield from model_step.data(step, inputs, targets, kept["head"])
        for op, output in kept.items():
            yield model_step.shown(step, op, "activation", output.detach())
            if output.grad is not None:
                yield model_step.shown(step, op, "grad", output.grad)
        moved = 0.0
        for name, parameter in zip(names, params, strict=True):
            start = self._original.get(name)
            change = parameter.detach() - start if start is not None else parameter.detach()
            moved = max(moved, float(change.abs().max()))
            for what, norm in (
                ("weight", before[name]),
                ("grad_weight", squares.get(name, torch.zeros(()))),
                ("update_weight", change.norm()),
            ):
                yield Scalar(step=step, name=f"norm.{what}:{name}", value=float(norm))
        yield Scalar(step=step, name="largest_change", value=moved)

    # -- keeping --------------------------------------------------------------------------------

    def keep(self, folder: Path) -> None:
        """The weights after the last update. Raises: OSError."""
        if not self.spec.lora_rank:
            weights.save_run(folder, self.model)

    def checkpoint(self) -> dict[str, np.ndarray]:
        """Only where it stood: it is short, and begins again."""
        return {"step": np.array(self.step)}

    def restore(self, saved: dict[str, np.ndarray]) -> None:
        for _ in range(int(saved["step"])):
            self.tick()
        self._latest.clear()


def _windows(ids: list[int], spec: FinetuneSpec) -> Batch:
    """Inputs and the tokens that follow them, shape (B, T): windows of the text one after another,
    from its beginning again where it ends.
    """
    n = min(spec.seq_len, len(ids) - 1)
    n_starts = len(ids) - n
    rows = [ids[i * n % n_starts :][: n + 1] for i in range(spec.batch_size)]
    tokens = torch.tensor(rows, dtype=torch.int64)
    return tokens[:, :-1].clone(), tokens[:, 1:].clone()


# -- LoRA ---------------------------------------------------------------------------------------


class LoraLinear(nn.Module):
    """A frozen matrix with a trained product of rank R beside it.

    Source: Hu et al. 2021; A drawn as nn.Linear's weight, B zero, so that it begins unchanged.
    """

    def __init__(self, base: nn.Linear, rank: int, generator: torch.Generator) -> None:
        super().__init__()
        self.weight, self.bias = base.weight, base.bias
        d_out, d_in = base.weight.shape
        bound = d_in**-0.5
        a_RD = torch.empty(rank, d_in).uniform_(-bound, bound, generator=generator)
        self.lora_a = nn.Parameter(a_RD)
        self.lora_b = nn.Parameter(torch.zeros(d_out, rank))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        added = F.linear(F.linear(x, self.lora_a), self.lora_b)
        return F.linear(x, self.weight, self.bias) + LORA_SCALE * added


def _add_lora(model: Transformer, rank: int, seed: int) -> None:
    generator = torch.Generator().manual_seed(seed)
    model.requires_grad_(False)
    for module in list(model.modules()):
        for name, child in list(module.named_children()):
            if isinstance(child, nn.Linear):
                setattr(module, name, LoraLinear(child, rank, generator))
