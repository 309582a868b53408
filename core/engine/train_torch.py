"""A training run in torch: digits and character transformers, driven like the playground's.

Deterministic at one thread: an update depends on the spec and its number alone (its examples and
its dropout are drawn anew from both), so that a run that was paused, parked or looked into goes on
with the same bits.
"""

import copy
import math
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import torch
import torch.nn.functional as F
from torch.utils._python_dispatch import TorchDispatchMode

from core.engine import weights
from core.engine.data import DigitsSource, Pair, source
from core.engine.model_step import Ready, recorded_step_of
from core.engine.models import IGNORED, Classifier, Transformer
from core.engine.train import Diverged
from core.events import Array, Event, Sample, Scalar, quantise
from core.optimizers import BETA_1, BETA_2, EPSILON, MOMENTUM, WEIGHT_DECAY
from core.shapes import MlpShape
from core.specimens import shape_of, text_of
from core.specs import AdditionSpec, DigitsSpec, Spec, TransformerSpec
from core.texts import ANSWER_LENGTH

FRAME_EVERY_S = 0.2  # pictures at most so often, and never more than a quarter of the time
SAMPLE_EVERY_S = 4.0
SAMPLE_LENGTH = 160
SAMPLE_WITHIN_S = 2.0  # a large model writes less: while it does, nobody can pause it
TEMPERATURE = 0.8
N_SHOWN = 64  # held-out digits, or sums, whose answers are shown
AUTOCAST = {"bf16": torch.bfloat16, "fp16": torch.float16}


def new_model(spec: Spec) -> Transformer | Classifier:
    """The spec's model with its first weights."""
    shape = shape_of(spec)
    generator = torch.Generator().manual_seed(spec.seed)
    if isinstance(shape, MlpShape):
        return Classifier(shape, generator)
    assert isinstance(spec, TransformerSpec)
    return Transformer(shape, generator, checkpointing=spec.checkpointing)


def new_optimizer(spec: Spec, model: torch.nn.Module) -> torch.optim.Optimizer:
    """SGD, momentum or fused AdamW: fused needs no temporaries and one call."""
    params = list(model.parameters())
    if spec.optimizer == "adamw":
        return torch.optim.AdamW(
            params,
            lr=spec.learning_rate,
            betas=(BETA_1, BETA_2),
            eps=EPSILON,
            weight_decay=WEIGHT_DECAY,
            fused=True,
        )
    momentum = MOMENTUM if spec.optimizer == "momentum" else 0
    return torch.optim.SGD(params, lr=spec.learning_rate, momentum=momentum, fused=True)


def autocast(spec: Spec) -> torch.autocast:
    """Mixed precision of a spec; off in fp32."""
    dtype = AUTOCAST.get(spec.precision)
    return torch.autocast("cpu", dtype=dtype or torch.bfloat16, enabled=dtype is not None)


class TorchTraining:
    """One run of a spec in torch."""

    def __init__(self, spec: Spec) -> None:
        self.spec = spec
        self.model = new_model(spec)
        self.optimizer = new_optimizer(spec, self.model)
        self.scaler = torch.amp.GradScaler("cpu", enabled=spec.precision == "fp16")
        self.scaler.scale(torch.zeros(()))  # now and not in the first step: it makes its state then
        self.source = source(spec)
        self._vocabulary = text_of(spec).vocabulary if isinstance(spec, TransformerSpec) else ""
        self.step = 0
        self._losses: list[float] = []  # of the updates since the last frame
        self._framed_s = self._sampled_s = -math.inf
        self._frame_cost_s = 0.0
        self._last_finite = [p.detach().clone() for p in self.model.parameters()]

    # -- driving --------------------------------------------------------------------------------

    @property
    def n_steps(self) -> int:
        """Updates of the whole run."""
        if isinstance(self.spec, DigitsSpec):
            assert isinstance(self.source, DigitsSource)
            return self.spec.n_epochs * self.source.steps_per_epoch
        assert isinstance(self.spec, TransformerSpec)
        return self.spec.n_steps

    @property
    def accumulation(self) -> int:
        return self.spec.accumulation if isinstance(self.spec, TransformerSpec) else 1

    @property
    def epoch(self) -> float:
        """Passes over the training examples; of a text, characters read over its length."""
        if isinstance(self.source, DigitsSource):
            return self.step / self.source.steps_per_epoch
        per_step = self.spec.batch_size * self.accumulation
        if isinstance(self.spec, TransformerSpec) and not isinstance(self.spec, AdditionSpec):
            per_step *= self.spec.seq_len
        return self.step * per_step / self.source.n_train

    @property
    def moment(self) -> int:
        """Changes whenever there is something new to tell."""
        return self.step

    @property
    def done(self) -> bool:
        return self.step >= self.n_steps

    @property
    def summary(self) -> str:
        return f"{self.step} steps, {self.epoch:.4g} passes over the data"

    @property
    def last_tick_is_next(self) -> bool:
        return self.step == self.n_steps - 1

    def micro_batches(self) -> list[Pair]:
        """Examples of the next update."""
        return [self.source.batch(self.step, micro) for micro in range(self.accumulation)]

    def tick(self) -> None:
        """One update. Raises: Diverged."""
        torch.manual_seed(self._dropout_seed)
        _copy(self._last_finite, [p.detach() for p in self.model.parameters()])
        total = 0.0
        for pair in self.micro_batches():
            with autocast(self.spec):
                loss = self.model.loss(*_tensors(pair)) / self.accumulation
            total += float(loss.detach())
            if not math.isfinite(total):
                self._diverge(self._first_not_finite(pair))
            self.scaler.scale(loss).backward()
            del loss
        self.scaler.step(self.optimizer)
        self.scaler.update()
        if not _finite(list(self.model.parameters())):
            self._diverge(self._gradient_not_finite() or "optimizer.step")
        self.optimizer.zero_grad(set_to_none=True)
        self._losses.append(total)
        self.step += 1

    def recorded_step(self) -> Iterator[Event]:
        """Events of the next update looked at op by op; then takes it."""
        ready = Ready(
            model=self.model,
            optimizer=self.optimizer,
            batches=[_tensors(pair) for pair in self.micro_batches()],
            autocast=AUTOCAST.get(self.spec.precision),
            scaler=self.scaler,
            seed=self._dropout_seed,
        )
        self.model.train()
        yield from recorded_step_of(self.step, lambda: copy.deepcopy(ready))
        self.tick()

    @property
    def _dropout_seed(self) -> int:
        return (self.spec.seed * 1_000_003 + self.step) % 2**63

    def _diverge(self, op: str) -> None:
        """Back to the last finite parameters. Raises: Diverged."""
        self.optimizer.zero_grad(set_to_none=True)
        with torch.no_grad():
            _copy(list(self.model.parameters()), self._last_finite)
        raise Diverged(self.step, op)

    def _first_not_finite(self, pair: Pair) -> str:
        """The op of the forward pass whose output is the first that is not finite."""
        with _FirstNotFinite() as watch, torch.no_grad(), autocast(self.spec):
            self.model.loss(*_tensors(pair), watch.mark)
        return watch.op or "loss"

    def _gradient_not_finite(self) -> str:
        """The parameters whose gradient is the first that is not, in backward's order."""
        for path, parameter in reversed(list(self.model.named_parameters())):
            if parameter.grad is not None and not _finite([parameter.grad]):
                return f"gradient of {path.rpartition('.')[0]}"
        return ""

    # -- telling --------------------------------------------------------------------------------

    def opening(self) -> Iterator[Event]:
        """What the pictures of a run are drawn over, once."""
        yield Scalar(step=0, name="n_train", value=self.source.n_train)
        if isinstance(self.spec, DigitsSpec):
            shown = self.source.held_out
            images = (shown.inputs[:N_SHOWN] * 16).round().astype(np.uint8)
            yield Array(step=0, op="data", role="images", values=images.reshape(-1, 8, 8))
            labels = shown.targets[:N_SHOWN].astype(np.int8)
            yield Array(step=0, op="data", role="labels", values=labels)

    def wants_frame(self, ticks_per_s: float = math.inf) -> bool:
        """Whether to look now: at 0, 1, 2, 4, 8 …, five times a second, and at the end."""
        since = time.perf_counter() - self._framed_s
        early = self.step & (self.step - 1) == 0
        return self.done or early or since >= max(FRAME_EVERY_S, 3 * self._frame_cost_s)

    def frame(self) -> Iterator[Event]:
        """Losses, accuracy and answers now."""
        began = time.perf_counter()
        step = self.step
        self.model.eval()
        with torch.inference_mode(), autocast(self.spec):
            logits = self.model(_tensor(self.source.held_out.inputs)).float()
        targets = _tensor(self.source.held_out.targets)
        held_out_loss = F.cross_entropy(
            logits.flatten(0, -2), targets.flatten(), ignore_index=IGNORED
        )
        train_loss = float(np.mean(self._losses)) if self._losses else self._next_loss()
        self._losses.clear()
        yield Scalar(step=step, name="epoch", value=self.epoch)
        yield Scalar(step=step, name="train_loss", value=train_loss)
        yield Scalar(step=step, name="held_out_loss", value=float(held_out_loss))
        accuracy = self._accuracy(logits, targets)
        yield Scalar(step=step, name="held_out_accuracy", value=accuracy)
        if self.spec.precision == "fp16":
            yield Scalar(step=step, name="loss_scale", value=float(self.scaler.get_scale()))
        if isinstance(self.spec, DigitsSpec):
            probabilities = torch.softmax(logits[:N_SHOWN], dim=-1).nan_to_num(0.0)
            yield quantise(step, "head", "answers", probabilities.numpy(), low=0.0, high=1.0)
        else:
            yield from self._samples(logits, began)
        self.model.train()
        self._frame_cost_s = time.perf_counter() - began
        self._framed_s = time.perf_counter()

    def _next_loss(self) -> float:
        """Of the examples that the next update will learn from, before the first of them."""
        with torch.inference_mode(), autocast(self.spec):
            losses = [float(self.model.loss(*_tensors(pair))) for pair in self.micro_batches()]
        return float(np.mean(losses))

    def _accuracy(self, logits: torch.Tensor, targets: torch.Tensor) -> float:
        """Share of held-out digits, whole sums, or next characters that are right."""
        asked = targets != IGNORED
        right = (logits.argmax(-1) == targets) | ~asked
        if isinstance(self.spec, AdditionSpec):
            return float(right.all(-1).float().mean())
        return float(right[asked].float().mean())

    def _samples(self, logits: torch.Tensor, now_s: float) -> Iterator[Event]:
        vocabulary = self._vocabulary
        if isinstance(self.spec, AdditionSpec):
            # Greedy answers: up to the first wrong character they are what the model itself would
            # write; a wrong one makes the sum wrong whatever follows.
            asked = self.source.held_out.inputs[:N_SHOWN]
            answers = logits[:N_SHOWN, -ANSWER_LENGTH:].argmax(-1).numpy()
            for tokens, answer in zip(asked, answers, strict=True):
                question = "".join(vocabulary[t] for t in tokens[: -ANSWER_LENGTH + 1])
                text = question + "".join(vocabulary[t] for t in answer)
                yield Sample(step=self.step, name="sum", text=text)
        elif self.done or now_s - self._sampled_s >= SAMPLE_EVERY_S:
            yield Sample(step=self.step, name="continuation", text=self.continuation())
            self._sampled_s = time.perf_counter()

    def continuation(self) -> str:
        """Characters the model writes after the first held-out window's, drawn at 0.8.

        Fewer where they take too long, or can no longer be drawn.
        """
        until_s = time.perf_counter() + SAMPLE_WITHIN_S
        assert isinstance(self.spec, TransformerSpec) and isinstance(self.model, Transformer)
        generator = torch.Generator().manual_seed(self.spec.seed)
        tokens = self.source.held_out.inputs[0].tolist()
        n_given = len(tokens)
        training = self.model.training
        self.model.eval()
        with torch.inference_mode(), autocast(self.spec):
            for _ in range(SAMPLE_LENGTH):
                window = torch.tensor([tokens[-self.spec.seq_len :]])
                probs = torch.softmax(self.model(window)[0, -1].float() / TEMPERATURE, dim=-1)
                if not _finite([probs]):
                    break
                tokens.append(int(torch.multinomial(probs, 1, generator=generator)))
                if time.perf_counter() > until_s:
                    break
        self.model.train(training)
        return "".join(self._vocabulary[t] for t in tokens[n_given:])

    # -- keeping --------------------------------------------------------------------------------

    def keep(self, folder: Path) -> None:
        """The finished model's weights, where it is one that can be asked. Raises: OSError."""
        if isinstance(self.model, Transformer):
            weights.save_run(folder, self.model)

    def checkpoint(self) -> dict[str, np.ndarray]:
        """Everything that `restore` needs to go on with the same bits."""
        saved = {"step": np.array(self.step)}
        for i, parameter in enumerate(self.model.parameters()):
            saved[f"param_{i}"] = parameter.detach().numpy().copy()
            for name, value in self.optimizer.state[parameter].items():
                if value is not None:
                    saved[f"state_{i}_{name}"] = value.numpy().copy()
        if self.scaler.is_enabled():
            state = self.scaler.state_dict()
            saved["scaler"] = np.array([state["scale"], state["_growth_tracker"]])
        return saved

    def restore(self, saved: dict[str, np.ndarray]) -> None:
        self.step = int(saved["step"])
        with torch.no_grad():
            for i, parameter in enumerate(self.model.parameters()):
                parameter.copy_(torch.from_numpy(saved[f"param_{i}"]))
                prefix = f"state_{i}_"
                state = {
                    name.removeprefix(prefix): torch.from_numpy(saved[name].copy())
                    for name in saved
                    if name.startswith(prefix)
                }
                if state:
                    self.optimizer.state[parameter] = state
        if "scaler" in saved:
            scale, growth = saved["scaler"]
            state = self.scaler.state_dict() | {"scale": scale, "_growth_tracker": int(growth)}
            self.scaler.load_state_dict(state)


class _FirstNotFinite(TorchDispatchMode):
    """Names the op whose output is the first that is not finite."""

    def __init__(self) -> None:
        super().__init__()
        self.op = ""
        self._now = ""

    def mark(self, op: str) -> None:
        self._now = op

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):  # noqa: ANN001, ANN204
        out = func(*args, **(kwargs or {}))
        if not self.op and isinstance(out, torch.Tensor) and out.is_floating_point():
            masked = func is torch.ops.aten.masked_fill_.Scalar  # minus infinity is meant there
            if not masked and not bool(torch.isfinite(out).all()):
                self.op = self._now
        return out


def _finite(tensors: list[torch.Tensor]) -> bool:
    """Whether every number is. The largest magnitude and not a sum, which could overflow itself."""
    with torch.no_grad():
        tops = torch._foreach_norm(tensors, math.inf)  # pyright: ignore[reportPrivateImportUsage]
    return bool(torch.stack(list(tops)).isfinite().all())


def _copy(into: list[torch.Tensor], source: list[torch.Tensor]) -> None:
    torch._foreach_copy_(into, source)  # pyright: ignore[reportPrivateImportUsage]


def _tensor(values: np.ndarray) -> torch.Tensor:
    return torch.from_numpy(np.ascontiguousarray(values))


def _tensors(pair: Pair) -> tuple[torch.Tensor, torch.Tensor]:
    return _tensor(pair.inputs), _tensor(pair.targets)
