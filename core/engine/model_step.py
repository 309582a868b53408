"""One training step of a torch model, looked at from four sides: values, memory, work, time.

The step runs several times from copies of the same state, so that no look disturbs another and the
model is left as it was. The model says by `mark(op)` where it is in forward; backward is labelled
from autograd's graph, in which every node knows when in forward it was made.
"""

import bisect
import statistics
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field

import numpy as np
import torch
import torch.nn.functional as F
from torch.overrides import TorchFunctionMode

from core.drawing import block, evenly
from core.engine.flops import flop_counter
from core.engine.ledger import Ledger, storage_bytes
from core.engine.models import IGNORED, Classifier, Transformer, attention_scores
from core.engine.step import N_REPEATS, N_WARM_UP, Mark, state_of, times
from core.events import Array, Event, Memory, Scalar, quantise

SLOW_STEP_S = 0.05  # above it a step is repeated for about a second, three times at least
SLOW_REPEATS_S = 1.0
SHOWN_HEADS = 4  # of scores; attention probabilities are shown of all
MAX_SAMPLES = 400  # of memory in one step, but for the end of every op

Batch = tuple[torch.Tensor, torch.Tensor]  # inputs and targets
Make = Callable[[], "Ready"]  # an update ready to run, fresh each time
Look = Callable[[int, Make], Iterator[Event]]  # events of step number and update


@dataclass(slots=True, kw_only=True)
class Ready:
    """A model, its optimizer and the micro-batches of its next update.

    `copy.deepcopy` of one gives an independent copy, optimizer and all.
    """

    model: Transformer | Classifier
    optimizer: torch.optim.Optimizer
    batches: list[Batch]
    autocast: torch.dtype | None = None
    scaler: torch.amp.GradScaler = field(
        default_factory=lambda: torch.amp.GradScaler("cpu", enabled=False)
    )
    seed: int = 0  # of the update's dropout

    @property
    def params(self) -> list[torch.Tensor]:
        return list(self.model.parameters())

    @property
    def inputs(self) -> list[torch.Tensor]:
        return [tensor for batch in self.batches for tensor in batch]

    @property
    def state(self) -> list[torch.Tensor]:
        """The optimizer's buffers and counters; with fp16, the loss scale and its counter."""
        scaling = (getattr(self.scaler, name, None) for name in ("_scale", "_growth_tracker"))
        return [*state_of(self.optimizer), *(t for t in scaling if t is not None)]

    def run(
        self,
        mark: Mark,
        after_forward: Callable[[torch.Tensor], None] = lambda loss: None,
        after_recompute: Callable[[], None] = lambda: None,
        before_update: Callable[[], None] = lambda: None,
    ) -> float:
        """forward -> loss -> backward for each micro-batch, then the update; the mean loss.

        `after_forward(loss)` is called before backward, `after_recompute()` when a checkpointed
        block has been computed again, `before_update()` when the gradients are complete.
        """
        torch.manual_seed(self.seed)
        total = 0.0
        for inputs, targets in self.batches:
            labels = _Labels(mark, after_recompute)
            with torch.autocast("cpu", self.autocast or torch.bfloat16, bool(self.autocast)):
                loss = self.model.loss(inputs, targets, labels.mark)
                if len(self.batches) > 1:
                    loss = loss / len(self.batches)
            mark("", "")
            after_forward(loss)
            scaled = self.scaler.scale(loss)
            labels.hook(scaled)
            mark("backward", "loss")
            scaled.backward()
            mark("", "")
            labels.unhook()
            total += float(loss.detach())
            del loss, scaled
        before_update()
        mark("update", "optimizer.step")
        self.scaler.step(self.optimizer)
        self.scaler.update()
        mark("update", "optimizer.zero_grad")
        self.optimizer.zero_grad(set_to_none=True)
        mark("", "")
        return total


class _Labels:
    """Turns a model's marks into (phase, op), and the graph it leaves into backward's."""

    def __init__(self, mark: Mark, after_recompute: Callable[[], None]) -> None:
        self._mark = mark
        self._after_recompute = after_recompute
        self._ops: list[str] = []
        self._starts: list[int] = []  # number of the first autograd node that an op may make
        self._now = "loss"
        self._hooks: list = []

    def mark(self, op: str) -> None:
        if torch._C._current_graph_task_id() != -1:  # backward is under way: a repeated forward
            if op:
                self._mark("recompute", op)
            else:
                self._after_recompute()
                self._mark("backward", self._now)
        elif op:
            self._ops.append(op)
            self._starts.append(torch._C._autograd._get_sequence_nr())  # type: ignore[attr-defined]
            self._mark("loss" if op == "loss" else "forward", op)

    def hook(self, loss: torch.Tensor) -> None:
        """Mark in backward when the last node of each op, which there comes first, begins."""
        last: dict[int, torch.autograd.graph.Node] = {}
        for node in _nodes(loss):
            number = node._sequence_nr()  # type: ignore[attr-defined]
            i = bisect.bisect_right(self._starts, number) - 1
            if i >= 0 and (i not in last or number > last[i]._sequence_nr()):  # type: ignore[attr-defined]
                last[i] = node
        self._hooks = [node.register_prehook(self._begin(self._ops[i])) for i, node in last.items()]

    def unhook(self) -> None:
        for hook in self._hooks:
            hook.remove()

    def _begin(self, op: str) -> Callable[[tuple], None]:
        def prehook(_: tuple) -> None:
            self._now = op
            self._mark("backward", op)

        return prehook


def _nodes(loss: torch.Tensor) -> Iterator[torch.autograd.graph.Node]:
    """Nodes of the graph behind a loss, but for those that add up a parameter's gradient."""
    waiting, seen = [loss.grad_fn], set()
    while waiting:
        node = waiting.pop()
        if node is None or node in seen or node.name() == "torch::autograd::AccumulateGrad":
            continue
        seen.add(node)
        waiting += [following for following, _ in node.next_functions]
        yield node


def recorded_step_of(
    step: int, make: "Make", looks: "Sequence[Look] | None" = None
) -> Iterator[Event]:
    """Events of the update that `make()` gives fresh copies of; changes nothing but what those
    share with each other.

    The last event is the scalar `recorded_step_s`.
    """
    for look in looks or (_values, memory, work, _times):
        with torch.random.fork_rng(devices=[]):
            events = list(look(step, make))
        yield from events


# -- time ---------------------------------------------------------------------------------------


def _unmarked(phase: str, op: str) -> None:
    """A step that nobody looks into."""


def _times(step: int, make: Make) -> Iterator[Event]:
    def plain_s() -> float:
        ready = make()
        began = time.perf_counter()
        ready.run(_unmarked)
        return time.perf_counter() - began

    plain_s()
    once_s = plain_s()
    n_warm_up, n_repeats = N_WARM_UP, N_REPEATS
    if once_s > SLOW_STEP_S:
        n_warm_up, n_repeats = 1, max(3, int(SLOW_REPEATS_S / once_s) // 2 * 2 + 1)
    n_repeats = min(n_repeats, N_REPEATS)
    plain = [plain_s() for _ in range(n_repeats)]
    yield Scalar(step=step, name="plain_step_s", value=statistics.median(plain))
    yield from times(step, make, n_warm_up, n_repeats)


def times_once(step: int, make: Make) -> Iterator[Event]:
    """As `_times`, of a step that takes seconds: once to warm up, once to be timed."""
    yield from times(step, make, 1, 1)


# -- work and memory ----------------------------------------------------------------------------


def work(step: int, make: Make) -> Iterator[Event]:
    """Floating-point operations that torch's counter sees."""
    ready = make()
    with flop_counter() as counter:
        ready.run(_unmarked)
    yield Scalar(step=step, name="flops_executed", value=counter.get_total_flops())


def followed(ready: Ready) -> Ledger:
    """The ledger of one update of `ready`, which takes it."""
    ledger = Ledger(weights=ready.params, inputs=ready.inputs, optimizer=ready.state)
    with ledger:
        ready.run(
            ledger.mark,
            after_forward=lambda loss: ledger.keep(("forward", "loss"), but=[loss]),
            after_recompute=lambda: ledger.keep(("recompute",)),
        )
        ledger.classify(ready.state, "optimizer")
    return ledger


def memory(step: int, make: Make) -> Iterator[Event]:
    """Live bytes op by op, their peak, and what is kept for backward."""
    samples = followed(make()).samples()
    for phase, op, held_bytes in _thinned(samples):
        yield Memory(step=step, phase=phase, op=op, held_bytes=held_bytes)
    peak = max(sum(held.values()) for _, _, held in samples)
    at_loss = [held for phase, _, held in samples if phase == "loss"][-1]
    yield Scalar(step=step, name="peak_bytes", value=peak)
    yield Scalar(step=step, name="activations_bytes", value=at_loss["activations"])


_Sample = tuple[str, str, dict[str, int]]


def _thinned(samples: list[_Sample]) -> list[_Sample]:
    """The end of every op and the step's highest moment; then, while there is room, the highest
    moment of each op and some of the rest.
    """
    totals = [sum(held.values()) for _, _, held in samples]
    wanted = [int(np.argmax(totals))]
    starts = [i for i, s in enumerate(samples) if i == 0 or samples[i - 1][:2] != s[:2]]
    highest: list[int] = []
    for start, end in zip(starts, [*starts[1:], len(samples)], strict=True):
        wanted.append(end - 1)
        highest.append(max(range(start, end), key=totals.__getitem__))
    kept = set(wanted)
    for more in (highest, evenly(len(samples), MAX_SAMPLES).tolist()):
        kept |= set(more[: max(0, MAX_SAMPLES - len(kept))])
    return [samples[i] for i in sorted(kept)]


# -- values -------------------------------------------------------------------------------------


class Outputs(TorchFunctionMode):
    """Each op's output: the last tensor that a torch function gave under its mark."""

    def __init__(self) -> None:
        super().__init__()
        self.of: dict[str, torch.Tensor] = {}
        self._now = ""

    def mark(self, phase: str, op: str) -> None:
        self._now = op if phase == "forward" else ""

    def __torch_function__(self, func, types, args=(), kwargs=None):  # noqa: ANN001, ANN204
        out = func(*args, **(kwargs or {}))
        if self._now and isinstance(out, torch.Tensor) and out.requires_grad:
            self.of[self._now] = out
        return out


def _values(step: int, make: Make) -> Iterator[Event]:
    ready = make()
    scale = ready.scaler.get_scale() if ready.scaler.is_enabled() else 1.0
    names = [name for name, _ in ready.model.named_parameters()]
    before = [p.detach().clone() for p in ready.params]
    gradients: list[torch.Tensor] = []
    first = Outputs()

    def after_forward(_: torch.Tensor) -> None:
        if not kept:
            for output in first.of.values():
                output.retain_grad()
            kept.update(first.of)

    def before_update() -> None:
        if ready.scaler.is_enabled():
            ready.scaler.unscale_(ready.optimizer)
        gradients.extend(p.grad.clone() for p in ready.params if p.grad is not None)

    kept: dict[str, torch.Tensor] = {}
    weights_bytes = storage_bytes(ready.params)
    with first:
        loss = ready.run(first.mark, after_forward=after_forward, before_update=before_update)

    yield Scalar(step=step, name="loss", value=loss)
    inputs, targets = ready.batches[0]
    yield Scalar(
        step=step, name="batch_examples", value=sum(len(batch[0]) for batch in ready.batches)
    )
    yield Scalar(step=step, name="weights_bytes", value=weights_bytes)
    yield Scalar(step=step, name="gradients_bytes", value=storage_bytes(gradients))
    yield Scalar(step=step, name="optimizer_bytes", value=storage_bytes(ready.state))
    yield Scalar(step=step, name="inputs_bytes", value=storage_bytes(ready.inputs))
    yield from data(step, inputs, targets, kept["head" if "head" in kept else "head.linear"])
    for op, output in kept.items():
        yield shown(step, op, "activation", output.detach())
        if output.grad is not None:
            yield shown(step, op, "grad", output.grad / scale)
    if isinstance(ready.model, Transformer):
        yield from _attention(step, ready.model, kept)
    yield from _parameters(step, names, before, gradients, ready.params)


def data(
    step: int, inputs: torch.Tensor, targets: torch.Tensor, logits: torch.Tensor
) -> Iterator[Event]:
    """What the step read, and the loss of each position (of a classifier, of each example)."""
    if inputs.is_floating_point():
        losses = F.cross_entropy(logits.detach().float(), targets, reduction="none")
        yield Array(step=step, op="input", role="activation", values=block(inputs.numpy()))
        targets = targets[torch.from_numpy(evenly(len(targets)))]
        losses = losses[torch.from_numpy(evenly(len(losses)))]
    else:
        inputs, targets = inputs[0], targets[0]
        losses = F.cross_entropy(
            logits[0].detach().float(), targets, reduction="none", ignore_index=IGNORED
        )
        yield Array(step=step, op="input", role="tokens", values=inputs.numpy().astype(np.int32))
    yield Array(step=step, op="target", role="tokens", values=targets.numpy().astype(np.int32))
    yield Array(step=step, op="loss", role="losses", values=losses.numpy())


def shown(step: int, op: str, role: str, values: torch.Tensor) -> Array:
    """The drawn part: of the first sequence, tokens × channels (of scores, for some heads); of
    perceptrons, examples × neurons. One scale for both signs; minus infinity is the darkest.
    """
    if op.endswith((".scores", ".softmax", ".softmax_drop")):
        values = values[0, torch.from_numpy(evenly(values.shape[1], SHOWN_HEADS))]
    elif values.dim() > 2:
        values = values[0].flatten(1)
    numbers = block(values.float().numpy())
    finite = np.abs(numbers[np.isfinite(numbers)])
    top = max(float(finite.max(initial=0)), 1e-30)
    return quantise(step, op, role, np.nan_to_num(numbers, neginf=-top), low=-top, high=top)


def _attention(step: int, model: Transformer, outputs: dict[str, torch.Tensor]) -> Iterator[Event]:
    """Probabilities of every head in the first sequence: queries × keys, 0 to 1."""
    shape = model.shape
    for i in range(shape.n_layer):
        path = f"blocks.{i}.attn"
        if shape.attention == "explicit":
            op = f"{path}.softmax"
            probs_HTS = outputs[op][0].detach().float()
        else:
            op = f"{path}.flash"
            source = f"{path}.rope" if shape.positions == "rope" else f"{path}.qkv"
            heads_1THE = outputs[source].detach()[:1].float()
            q_1THE = heads_1THE[:, :, : shape.n_head]
            k_1TKE = heads_1THE[:, :, shape.n_head : shape.n_head + shape.n_kv_head]
            scores_HTS = attention_scores(q_1THE, k_1TKE)[0]
            future_TS = torch.ones(scores_HTS.shape[1:], dtype=torch.bool).triu_(1)
            probs_HTS = scores_HTS.masked_fill_(future_TS, -torch.inf).softmax(-1)
        yield quantise(step, op, "attention", block(probs_HTS.numpy()), low=0.0, high=1.0)


def _parameters(
    step: int,
    names: list[str],
    before: Iterable[torch.Tensor],
    gradients: Iterable[torch.Tensor],
    after: Iterable[torch.Tensor],
) -> Iterator[Event]:
    """An exact part of each parameter, its gradient and its new value, and the norms of all."""
    for name, weight, grad, new in zip(names, before, gradients, after, strict=True):
        op, _, leaf = name.rpartition(".")  # leaf: weight or bias
        for role, tensor in ((leaf, weight), (f"grad_{leaf}", grad), (f"{leaf}_after", new)):
            values = tensor.detach().float().numpy()
            yield Array(step=step, op=op, role=role, values=block(values))
        for what, tensor in (
            (leaf, weight),
            (f"grad_{leaf}", grad),
            (f"update_{leaf}", new.detach() - weight),
        ):
            norm = float(tensor.float().norm())
            yield Scalar(step=step, name=f"norm.{what}:{name}", value=norm)
