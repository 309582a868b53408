"""One training step in torch, looked at from three sides: its time, its values, its memory.

The same step runs several times from the same state, so that no look disturbs another: recording
never happens inside a timed region.
"""

import itertools
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Protocol

import numpy as np
import torch
import torch.nn.functional as F

from core.engine.ledger import Ledger, storage_bytes
from core.engine.measuring import alone
from core.engine.playground import Network, Optimizer
from core.events import Array, Event, Memory, Scalar, Span
from core.optimizers import BETA_1, BETA_2, EPSILON, MOMENTUM, WEIGHT_DECAY

N_WARM_UP = 3
N_REPEATS = 15  # odd, so that the median is a step that happened
FINITE_DIFFERENCE = 1e-6  # distance to either side, float64

_now = time.perf_counter_ns

_FUNCTIONS = {"tanh": torch.tanh, "relu": torch.relu, "sigmoid": torch.sigmoid}

Mark = Callable[
    [str, str], None
]  # (phase, op): called before each op; ("", ""): not the step's work


def preload() -> None:
    """Pay for torch's late imports now (the first optimizer costs a second), on one thread.

    Runs no backward pass: autograd's threads would not survive a fork.
    """
    torch.set_num_threads(1)
    torch.optim.SGD([torch.zeros(1, requires_grad=True)], lr=1.0)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Batch:
    """Shapes: x_BF (B, F), target_B1 (B, 1)."""

    x_BF: np.ndarray
    target_B1: np.ndarray


def state_of(optimizer: torch.optim.Optimizer) -> list[torch.Tensor]:
    """Every tensor that an optimizer keeps."""
    return [t for state in optimizer.state.values() for t in state.values() if t is not None]


class _TorchStep:
    """Fresh torch copies of a NumPy network and optimizer, and one step on them."""

    def __init__(self, network: Network, optimizer: Optimizer, batch: Batch) -> None:
        self.layers = network.shape.layers
        self.params: list[torch.Tensor] = []
        for w_IO in network.weights:
            self.params.append(torch.tensor(w_IO[:-1].T, requires_grad=True))
            self.params.append(torch.tensor(w_IO[-1], requires_grad=True))
        self.x = torch.tensor(batch.x_BF)
        self.target = torch.tensor(batch.target_B1)
        self.optimizer = self._optimizer(optimizer)
        if optimizer.n_steps:
            self._load_state(network, optimizer)

    def _optimizer(self, optimizer: Optimizer) -> torch.optim.Optimizer:
        if optimizer.name == "adamw":
            return torch.optim.AdamW(
                self.params,
                lr=optimizer.learning_rate,
                betas=(BETA_1, BETA_2),
                eps=EPSILON,
                weight_decay=WEIGHT_DECAY,
            )
        momentum = MOMENTUM if optimizer.name == "momentum" else 0
        return torch.optim.SGD(self.params, lr=optimizer.learning_rate, momentum=momentum)

    def _load_state(self, network: Network, optimizer: Optimizer) -> None:
        names = {"sgd": (), "momentum": ("momentum_buffer",), "adamw": ("exp_avg", "exp_avg_sq")}
        for name, flat in zip(names[optimizer.name], optimizer.buffers, strict=True):
            for i, buffer_IO in enumerate(network.views(flat)):
                for param, part in (
                    (self.params[2 * i], buffer_IO[:-1].T),
                    (self.params[2 * i + 1], buffer_IO[-1]),
                ):
                    self.optimizer.state[param][name] = torch.tensor(part).contiguous()
        if optimizer.name == "adamw":
            for param in self.params:
                self.optimizer.state[param]["step"] = torch.tensor(float(optimizer.n_steps))

    @property
    def inputs(self) -> list[torch.Tensor]:
        return [self.x, self.target]

    @property
    def state(self) -> list[torch.Tensor]:
        return state_of(self.optimizer)

    def run(
        self,
        mark: Mark,
        keep: Callable[[str, torch.Tensor], None] | None = None,
        before_update: Callable[[], None] = lambda: None,
    ) -> float:
        """forward -> loss -> backward -> update; returns the loss.

        `keep(op, output)` sees each op's output in forward; `before_update()` is called when the
        gradients are complete.
        """
        watch: list[tuple[torch.autograd.graph.Node, str]] = []
        out = self.x
        for i, (name, *_, activation) in enumerate(self.layers):
            op = f"{name}.linear"
            mark("forward", op)
            out = F.linear(out, self.params[2 * i], self.params[2 * i + 1])
            watch.append((out.grad_fn, op))  # type: ignore[arg-type]
            if keep:
                keep(op, out)
            if activation != "linear":
                op = f"{name}.act"
                mark("forward", op)
                out = _FUNCTIONS[activation](out)
                watch.append((out.grad_fn, op))  # type: ignore[arg-type]
                if keep:
                    keep(op, out)
        mark("loss", "loss")
        loss = 0.5 * F.mse_loss(out, self.target)
        mark("", "")
        watch.append((loss.grad_fn, "loss"))  # type: ignore[arg-type]
        del out
        hooks = [node.register_prehook(_marker(mark, op)) for node, op in watch]
        watch.clear()
        mark("backward", "loss")
        loss.backward()
        mark("", "")
        for hook in hooks:
            hook.remove()
        before_update()
        mark("update", "optimizer.step")
        self.optimizer.step()
        mark("update", "optimizer.zero_grad")
        self.optimizer.zero_grad(set_to_none=True)
        mark("", "")
        return float(loss.detach())


def _marker(mark: Mark, op: str) -> Callable[[tuple], None]:
    def prehook(_: tuple) -> None:
        mark("backward", op)

    return prehook


def recorded_step(
    step: int, network: Network, optimizer: Optimizer, batch: Batch
) -> Iterator[Event]:
    """Events of the step that `network` would take next; changes nothing.

    The spans are those of the median repeat; the last event is the scalar `recorded_step_s`.
    """

    def fresh() -> _TorchStep:
        return _TorchStep(network, optimizer, batch)

    yield from _values(step, fresh(), network, optimizer, batch)
    yield from _memory(step, fresh())
    yield from times(step, fresh, N_WARM_UP, N_REPEATS)


class Runnable(Protocol):
    """One update, ready to run."""

    def run(self, mark: Mark) -> float: ...


def times(
    step: int, fresh: Callable[[], Runnable], n_warm_up: int, n_repeats: int
) -> Iterator[Event]:
    """Spans of the median repeat; the last event is the scalar `recorded_step_s`.

    `contended` is 1 where the machine was not ours alone meanwhile.
    """
    runs: list[list[Span]] = []
    with alone() as found:
        for _ in range(n_warm_up + n_repeats):
            marks: list[tuple[int, str, str]] = []

            def mark(phase: str, op: str, marks: list = marks) -> None:
                marks.append((_now(), phase, op))

            fresh().run(mark)
            runs.append(_spans(step, marks))
    runs = sorted(runs[n_warm_up:], key=lambda spans: spans[-1].end_s)
    median = runs[len(runs) // 2]
    yield from median
    yield Scalar(step=step, name="contended", value=float(found.contended))
    yield Scalar(step=step, name="load_1min", value=found.load_1min)
    yield Scalar(step=step, name="step_repeats", value=n_repeats)
    yield Scalar(step=step, name="step_min_s", value=runs[0][-1].end_s)
    yield Scalar(step=step, name="step_max_s", value=runs[-1][-1].end_s)
    yield Scalar(step=step, name="recorded_step_s", value=median[-1].end_s)


def _spans(step: int, marks: list[tuple[int, str, str]]) -> list[Span]:
    """Spans end to end: what was not the step's work is cut out of the clock."""
    spans: list[Span] = []
    clock_ns = 0
    for (start, phase, op), (end, _, _) in itertools.pairwise(marks):
        if not op:
            continue
        if spans and (spans[-1].phase, spans[-1].op) == (phase, op):
            first = spans.pop().start_s
        else:
            first = clock_ns / 1e9
        clock_ns += end - start
        spans.append(Span(step=step, phase=phase, op=op, start_s=first, end_s=clock_ns / 1e9))
    return spans


def _memory(step: int, torch_step: _TorchStep) -> Iterator[Event]:
    ledger = Ledger(weights=torch_step.params, inputs=torch_step.inputs, optimizer=torch_step.state)
    with ledger:
        torch_step.run(ledger.mark)
        ledger.classify(torch_step.state, "optimizer")
    for phase, op, held_bytes in ledger.samples():
        yield Memory(step=step, phase=phase, op=op, held_bytes=held_bytes)


def _values(
    step: int, torch_step: _TorchStep, network: Network, optimizer: Optimizer, batch: Batch
) -> Iterator[Event]:
    outputs: dict[str, torch.Tensor] = {}
    saved: list[torch.Tensor] = []

    def keep(op: str, output: torch.Tensor) -> None:
        output.retain_grad()
        outputs[op] = output

    def save(tensor: torch.Tensor) -> torch.Tensor:
        saved.append(tensor.detach())
        return tensor

    gradients: list[torch.Tensor] = []
    before = [p.detach().clone() for p in torch_step.params]
    own = {
        t.untyped_storage()._cdata for t in (*torch_step.params, torch_step.x, torch_step.target)
    }
    weights_bytes = storage_bytes(torch_step.params)
    with torch.autograd.graph.saved_tensors_hooks(save, lambda t: t):
        loss = torch_step.run(
            lambda phase, op: None,
            keep,
            lambda: gradients.extend(p.grad for p in torch_step.params),  # type: ignore[misc]
        )
    kept = [t for t in saved if t.untyped_storage()._cdata not in own]

    yield Scalar(step=step, name="loss", value=loss)
    yield Scalar(step=step, name="batch_examples", value=len(batch.x_BF))
    yield Scalar(step=step, name="weights_bytes", value=weights_bytes)
    yield Scalar(step=step, name="gradients_bytes", value=storage_bytes(gradients))
    yield Scalar(step=step, name="optimizer_bytes", value=storage_bytes(torch_step.state))
    yield Scalar(step=step, name="activations_bytes", value=storage_bytes(kept))

    yield Array(step=step, op="input", role="activation", values=batch.x_BF)
    yield Array(step=step, op="target", role="activation", values=batch.target_B1)
    for op, output in outputs.items():
        yield Array(step=step, op=op, role="activation", values=output.detach().numpy())
        if output.grad is not None:
            yield Array(step=step, op=op, role="grad", values=output.grad.numpy())

    differences = finite_differences(network, batch)
    reference = list(network.views(differences))
    largest = 0.0
    for i, (name, *_) in enumerate(torch_step.layers):

        def joined(tensors: list[torch.Tensor], i: int = i) -> np.ndarray:
            """(O, I + 1): the weights of each neuron, its bias last."""
            return np.concatenate(
                [tensors[2 * i].numpy(), tensors[2 * i + 1].numpy()[:, None]], axis=1
            )

        op, grad = f"{name}.linear", joined(gradients)
        yield Array(step=step, op=op, role="weight", values=joined(before))
        yield Array(step=step, op=op, role="grad_weight", values=grad)
        yield Array(step=step, op=op, role="finite_difference", values=reference[i].T)
        yield Array(
            step=step,
            op=op,
            role="weight_after",
            values=joined([p.detach() for p in torch_step.params]),
        )
        for role, values in _optimizer_arrays(torch_step, optimizer, i):
            yield Array(step=step, op=op, role=role, values=values)
        largest = max(largest, float(np.abs(grad - reference[i].T).max()))
    yield Scalar(step=step, name="finite_difference_largest_gap", value=largest)

    network.backward(batch.x_BF, batch.target_B1)
    flat = np.concatenate(
        [
            np.concatenate([g.numpy().T.ravel() for g in pair])
            for pair in zip(gradients[::2], gradients[1::2], strict=True)
        ]
    )
    yield Scalar(
        step=step,
        name="hand_written_largest_gap",
        value=float(np.abs(network.gradient - flat).max()),
    )


def _optimizer_arrays(
    torch_step: _TorchStep, optimizer: Optimizer, layer: int
) -> Iterator[tuple[str, np.ndarray]]:
    """What the optimizer's update read, float64, shape (O, I + 1)."""
    weight, bias = torch_step.params[2 * layer], torch_step.params[2 * layer + 1]

    def joined(name: str) -> np.ndarray:
        parts = [torch_step.optimizer.state[p][name].double().numpy() for p in (weight, bias)]
        return np.concatenate([parts[0], parts[1][:, None]], axis=1)

    if optimizer.name == "momentum":
        yield "velocity", joined("momentum_buffer")
    if optimizer.name == "adamw":
        n = optimizer.n_steps + 1
        yield "m_hat", joined("exp_avg") / (1 - BETA_1**n)
        yield "v_hat", joined("exp_avg_sq") / (1 - BETA_2**n)


def finite_differences(network: Network, batch: Batch) -> np.ndarray:
    """(L(w + h) - L(w - h)) / 2h for every parameter, in float64; flat, shape (P,)."""
    exact = Network(network.shape, np.float64)
    exact.params[:] = network.params
    x, target = batch.x_BF.astype(np.float64), batch.target_B1.astype(np.float64)
    slopes = np.empty_like(exact.params)
    for i, value in enumerate(exact.params.copy()):
        losses = []
        for sign in (1, -1):
            exact.params[i] = value + sign * FINITE_DIFFERENCE
            losses.append(exact.loss(x, target))
        exact.params[i] = value
        slopes[i] = (losses[0] - losses[1]) / (2 * FINITE_DIFFERENCE)
    return slopes
