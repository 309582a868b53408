"""A recorded step of torch models: spans, memory, work and numbers, and that it changes nothing."""

import copy
import json
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from itertools import groupby, pairwise

import numpy as np
import pytest
import torch
from torch.overrides import _get_current_function_mode_stack
from torch.utils._python_dispatch import _get_current_dispatch_mode_stack

from core.drawing import SHOWN, block, evenly
from core.engine.model_step import MAX_SAMPLES, Ready, followed, recorded_step_of
from core.engine.models import IGNORED, Transformer
from core.events import Array, Span
from core.memory import step_memory
from core.ops import executed_flops, expand
from core.shapes import TransformerShape
from core.trace import Trace, pack
from tests.core.transformers import Setting, classifiers

GPT = TransformerShape(
    vocab_size=40,
    n_layer=2,
    d_model=48,
    n_head=4,
    n_kv_head=4,
    d_ff=96,
    max_seq_len=40,
)
LLAMA = replace(
    GPT,
    n_kv_head=2,
    norm="rmsnorm",
    mlp="swiglu",
    positions="rope",
    bias=False,
    tied=False,
    attention="explicit",
    dropout=0.1,
)
SETTINGS = [
    Setting(shape=GPT, batch_size=2, seq_len=40, optimizer="adamw"),
    Setting(shape=LLAMA, batch_size=2, seq_len=40, optimizer="momentum", precision="bf16"),
    Setting(
        shape=replace(LLAMA, attention="flash"),
        batch_size=2,
        seq_len=40,
        precision="fp16",
        checkpointing=True,
        accumulation=2,
        optimizer="adamw",
    ),
    classifiers(batch_size=40)[0],
]
STEP = 7


class Recorded:
    """A recorded step, and the model it was recorded from."""

    def __init__(self, setting: Setting) -> None:
        self.setting = setting
        self.ready = setting.ready()
        self.trace = Trace(list(recorded_step_of(STEP, lambda: copy.deepcopy(self.ready))))
        self.scalars = self.trace.scalars_of(STEP)
        self.rows = expand(setting.step.ops)

    def array(self, op: str, role: str) -> np.ndarray:
        return self.trace.array(STEP, op, role)

    @property
    def arrays(self) -> Iterator[Array]:
        return (e for e in self.trace.events if isinstance(e, Array))


@pytest.fixture(scope="module", params=SETTINGS, ids=str)
def recorded(request: pytest.FixtureRequest) -> Recorded:
    return Recorded(request.param)


def gradients(ready: Ready) -> dict[str, torch.Tensor]:
    """Of each parameter, by a plain loop on a copy."""
    ready = copy.deepcopy(ready)
    torch.manual_seed(ready.seed)
    for inputs, targets in ready.batches:
        dtype = ready.autocast
        with torch.autocast("cpu", dtype or torch.bfloat16, enabled=dtype is not None):
            loss = ready.model.loss(inputs, targets) / len(ready.batches)
        ready.scaler.scale(loss).backward()
    if ready.scaler.is_enabled():
        ready.scaler.unscale_(ready.optimizer)
    return {name: p.grad for name, p in ready.model.named_parameters() if p.grad is not None}


# -- spans --------------------------------------------------------------------------------------


def test_spans_follow_each_other(recorded: Recorded):
    spans = recorded.trace.spans(STEP)
    assert spans[0].start_s == 0
    assert all(one.end_s == two.start_s for one, two in pairwise(spans))
    assert all(span.start_s < span.end_s for span in spans)
    assert spans[-1].end_s == recorded.scalars["recorded_step_s"]


def test_spans_run_there_and_back(recorded: Recorded):
    """Forward in the table's order, the loss, backward in reverse, for each micro-batch; recompute
    of a block in forward order, at the block's end in backward.
    """
    setting = recorded.setting
    spans = recorded.trace.spans(STEP)
    forward = [s.op for s in spans if s.phase in ("forward", "loss")]
    assert forward == [op.id for op in recorded.rows] * setting.accumulation
    backward = [s.op for s in spans if s.phase == "backward"]
    backward = [op for op, _ in groupby(backward)]  # recompute parts an op's span in two
    there = [op.id for op in recorded.rows if op.kind not in ("angles", "mask")]
    assert backward == there[::-1] * setting.accumulation
    assert [s.op for s in spans if s.phase == "update"] == ["optimizer.step", "optimizer.zero_grad"]
    again = [s.op for s in spans if s.phase == "recompute"]
    if not setting.checkpointing:
        assert again == []
    else:
        blocks = [
            [op.id for op in recorded.rows if op.id.startswith(f"blocks.{i}.")] for i in (1, 0)
        ]
        assert again == [*blocks[0], *blocks[1]] * setting.accumulation
        first = next(i for i, s in enumerate(spans) if s.phase == "recompute")
        assert spans[first - 1].op == "blocks.1.mlp.drop"  # the first that needs its noise
        after = next(s for s in spans[first:] if s.phase != "recompute")
        assert (after.phase, after.op) == ("backward", "blocks.1.mlp.drop")


def test_times_say_how_they_were_taken(recorded: Recorded):
    scalars = recorded.scalars
    assert scalars["step_repeats"] in range(3, 16, 2)
    assert 0 < scalars["step_min_s"] <= scalars["recorded_step_s"] <= scalars["step_max_s"]
    assert scalars["plain_step_s"] > 0


def test_a_slow_step_is_repeated_less():
    """About a second of repeats, three at least."""
    setting = Setting(
        shape=replace(GPT, n_layer=5, d_model=192, d_ff=768, d_head=48), batch_size=10, seq_len=40
    )
    ready = setting.ready()
    trace = Trace(list(recorded_step_of(STEP, lambda: copy.deepcopy(ready))))
    scalars = trace.scalars_of(STEP)
    if scalars["step_min_s"] > 0.2:
        assert scalars["step_repeats"] <= 5
    assert scalars["step_repeats"] >= 3
    assert len(trace.memory(STEP)) <= MAX_SAMPLES


# -- memory and work ----------------------------------------------------------------------------


def test_bytes_and_flops_are_the_predicted_ones(recorded: Recorded):
    """Every category, the peak and the work of the recorded step, 0 off."""
    for name, prediction in step_memory(recorded.setting.step).items():
        assert recorded.scalars[name] == pytest.approx(
            prediction.value, rel=0.002 if name == "peak_bytes" else 0
        ), name
    flops = recorded.setting.accumulation * executed_flops(recorded.setting.step.ops)
    assert recorded.scalars["flops_executed"] == flops


def test_thinned_memory_keeps_every_end_and_the_peak(recorded: Recorded):
    full = followed(copy.deepcopy(recorded.ready)).samples()
    kept = [(m.phase, m.op, m.held_bytes) for m in recorded.trace.memory(STEP)]

    def ends(samples: list) -> list:
        return [list(group)[-1] for _, group in groupby(samples, key=lambda s: s[:2])]

    assert ends(kept) == ends(full)
    totals = [sum(held.values()) for _, _, held in kept]
    assert max(totals) == recorded.scalars["peak_bytes"]
    assert len(kept) <= max(MAX_SAMPLES, len(ends(full)) + 1)


# -- numbers ------------------------------------------------------------------------------------


def test_exact_parts_of_parameters_and_their_gradients(recorded: Recorded):
    """The block shown is the parameter's, bit by bit; its gradient is that of a plain loop."""
    grads = gradients(recorded.ready)
    for name, parameter in recorded.ready.model.named_parameters():
        op, _, leaf = name.rpartition(".")
        weight = recorded.array(op, leaf)
        assert weight.dtype == np.float32
        np.testing.assert_array_equal(weight, block(parameter.detach().numpy()))
        np.testing.assert_array_equal(
            recorded.array(op, f"grad_{leaf}"), block(grads[name].numpy())
        )
        norms = {
            leaf: parameter,
            f"grad_{leaf}": grads[name],
        }
        for what, tensor in norms.items():
            found = recorded.scalars[f"norm.{what}:{name}"]
            assert found == pytest.approx(float(tensor.detach().double().norm()), rel=1e-5)
        assert recorded.scalars[f"norm.update_{leaf}:{name}"] > 0
        after = recorded.array(op, f"{leaf}_after")
        moved = float(np.linalg.norm(after - weight))
        assert moved <= recorded.scalars[f"norm.update_{leaf}:{name}"] * 1.001


def test_the_new_weight_is_the_optimizers(recorded: Recorded):
    """As a plain step on a copy leaves it."""
    ready = copy.deepcopy(recorded.ready)
    ready.run(lambda phase, op: None)
    for name, parameter in ready.model.named_parameters():
        op, _, leaf = name.rpartition(".")
        np.testing.assert_array_equal(
            recorded.array(op, f"{leaf}_after"), block(parameter.detach().numpy())
        )


def test_every_op_shows_its_output_and_gradient(recorded: Recorded):
    """At most 32 x 32 numbers of the first sequence in 256 shades, for every op but constants."""
    roles = {(a.op, a.role): a for a in recorded.arrays}
    for op in recorded.rows:
        if op.kind in ("angles", "mask", "loss"):
            continue
        for role in ("activation", "grad"):
            shown = roles[op.id, role]
            assert shown.values.dtype == np.uint8
            assert shown.low == -shown.high < 0
            *heads, rows, columns = shown.values.shape
            if op.kind in ("scores", "softmax") or op.id.endswith("softmax_drop"):
                assert (*heads, rows, columns) == (4, SHOWN, SHOWN)
            else:
                assert heads == []
                n_rows, *widths = op.output_shape[-(len(op.output_shape) - 1) :]
                if op.id.startswith(("layers", "head.linear")):
                    n_rows, widths = op.output_shape[0], op.output_shape[1:]
                assert (rows, columns) == (min(n_rows, SHOWN), min(int(np.prod(widths)), SHOWN))


def test_outputs_shown_are_the_models():
    """To a shade: norms, projections and logits against the model's own modules, called here."""
    recorded = Recorded(SETTINGS[0])
    outputs: dict[str, torch.Tensor] = {}

    def keep(name: str):
        def hook(_module: torch.nn.Module, _args: object, output: torch.Tensor) -> None:
            output.retain_grad()
            outputs[name] = output

        return hook

    model = copy.deepcopy(recorded.ready.model)
    names = ("norm", "qkv", "out", "up", "down")
    for name, module in model.named_modules():
        if name.rpartition(".")[2] in names:
            module.register_forward_hook(keep(name))
    model.loss(*recorded.ready.batches[0]).backward()
    assert len(outputs) == 2 * 6 + 1
    shown = {(a.op, a.role): a for a in recorded.arrays}
    for name, output in outputs.items():
        for role, values in (("activation", output.detach()), ("grad", output.grad)):
            found = shown[name, role]
            shade = (found.high - found.low) / 255
            np.testing.assert_allclose(
                found.numbers, block(values[0].numpy()), rtol=0, atol=0.51 * shade
            )
            assert np.abs(block(values[0].numpy())).max() == pytest.approx(found.high, rel=1e-4)


@pytest.mark.parametrize("shape", [GPT, LLAMA, replace(LLAMA, attention="flash")], ids=str)
def test_attention_shown_is_that_of_the_explicit_model(shape: TransformerShape):
    """Of every head, rows summing to one and the future dark; computed apart where flash ran."""
    setting = Setting(shape=replace(shape, dropout=0.0), batch_size=2, seq_len=21)
    recorded = Recorded(setting)
    explicit = Transformer(replace(setting.shape, attention="explicit"))
    explicit.load_state_dict(recorded.ready.model.state_dict())
    probs: dict[str, torch.Tensor] = {}
    original = torch.softmax

    def spy(scores: torch.Tensor, dim: int) -> torch.Tensor:
        out = original(scores, dim=dim)
        probs[f"blocks.{len(probs)}.attn"] = out
        return out

    torch.softmax = spy
    try:
        explicit(recorded.ready.batches[0][0])
    finally:
        torch.softmax = original
    for i in range(2):
        op = f"blocks.{i}.attn." + ("flash" if shape.attention == "flash" else "softmax")
        found = recorded.array(op, "attention")
        expected = probs[f"blocks.{i}.attn"][0].detach().numpy()
        assert found.shape == (4, 21, 21)
        np.testing.assert_allclose(found, expected, rtol=0, atol=0.51 / 255)
        assert not np.triu(found, 1).any()


def test_tokens_and_losses_of_the_first_sequence():
    """Exact; their mean over the batch's first sequence is what the loss says of it."""
    setting = SETTINGS[0]
    ready = setting.ready()
    inputs, targets = ready.batches[0]
    targets[0, :5] = IGNORED
    trace = Trace(list(recorded_step_of(STEP, lambda: copy.deepcopy(ready))))
    np.testing.assert_array_equal(trace.array(STEP, "input", "tokens"), inputs[0])
    np.testing.assert_array_equal(trace.array(STEP, "target", "tokens"), targets[0])
    losses = trace.array(STEP, "loss", "losses")
    assert losses.dtype == np.float32 and not losses[:5].any()
    with torch.no_grad():
        alone = float(ready.model.loss(inputs[:1], targets[:1]))
    assert losses[5:].mean() == pytest.approx(alone, rel=1e-5)


def test_the_part_shown_is_evenly_spaced():
    assert evenly(5).tolist() == [0, 1, 2, 3, 4]
    assert evenly(63, 3).tolist() == [0, 31, 62]
    assert len(set(evenly(1000).tolist())) == SHOWN
    values = np.arange(2 * 40 * 64).reshape(2, 40, 64)
    np.testing.assert_array_equal(block(values), values[:, evenly(40)][:, :, evenly(64)])
    np.testing.assert_array_equal(block(np.arange(3.0)), [0, 1, 2])


# -- the recording ------------------------------------------------------------------------------


@pytest.mark.parametrize("setting", SETTINGS[2:], ids=str)
def test_recording_changes_nothing(setting: Setting):
    """Weights, state, data and torch's generator are those of a run that was not looked into."""
    ready = setting.ready()
    torch.manual_seed(1)
    before = torch.get_rng_state()
    events = recorded_step_of(STEP, lambda: copy.deepcopy(ready))
    next(events)
    assert torch.equal(torch.get_rng_state(), before)
    list(events)
    assert torch.equal(torch.get_rng_state(), before)
    other = setting.ready()
    pairs = [(ready.params, other.params), (ready.state, other.state), (ready.inputs, other.inputs)]
    for one, two in pairs:
        assert all(torch.equal(a, b) for a, b in zip(one, two, strict=True))
    assert all(p.grad is None for p in ready.params)


def test_a_plain_step_pays_for_nothing(recorded: Recorded):
    """In a step after a recording no mode is active and no hook is on a parameter or a module."""
    ready = recorded.ready
    seen: list[tuple] = []

    def look(op: str) -> None:
        modes = (*_get_current_dispatch_mode_stack(), *_get_current_function_mode_stack())
        hooks = [h for m in ready.model.modules() for h in (m._forward_hooks, m._backward_hooks)]
        seen.append((modes, any(hooks)))

    ready.model.loss(*ready.batches[0], look)
    assert set(seen) == {((), False)}
    for parameter in ready.params:
        assert not parameter._post_accumulate_grad_hooks and not parameter._backward_hooks


def test_a_recording_is_small():
    """Four layers of the digits' size and more: under 600 kB of arrays; lines that JSON reads."""
    shape = replace(LLAMA, n_layer=4, d_model=128, d_ff=344, n_head=8, n_kv_head=4, vocab_size=100)
    ready = Setting(shape=shape, batch_size=2, seq_len=40, optimizer="adamw").ready()
    lines, arrays = pack(recorded_step_of(STEP, lambda: copy.deepcopy(ready)))
    assert len(arrays) < 600_000
    assert len(lines) < 300_000
    for line in lines.splitlines():
        json.loads(line, parse_constant=pytest.fail)
    assert len(Trace.parse(lines, arrays).events) == lines.count(b"\n")


def test_every_label_is_an_op_of_the_table(recorded: Recorded):
    known = {op.id for op in recorded.rows} | {"optimizer.step", "optimizer.zero_grad"}
    labels = {e.op for e in recorded.trace.events if hasattr(e, "op")}
    assert labels - known == {"input", "target"}
    assert recorded.trace.recorded_steps == [STEP]
    assert getattr(recorded.trace.events[-1], "name", None) == "recorded_step_s"


def test_each_number_is_said_once(recorded: Recorded):
    names = Counter(e.name for e in recorded.trace.events if hasattr(e, "name"))
    places = Counter((a.op, a.role) for a in recorded.arrays)
    assert {n for n, times in (names + places).items() if times > 1} == set()
    spans = Counter((e.phase, e.op) for e in recorded.trace.events if isinstance(e, Span))
    parts = 2 * recorded.setting.accumulation if recorded.setting.checkpointing else 1
    assert max(spans.values()) <= parts
