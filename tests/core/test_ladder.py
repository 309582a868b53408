"""Models from small to large: their shapes, their bytes predicted and measured, and what a run of
them does when time, memory or a visitor ends it.
"""

import copy
import math
from collections.abc import Iterator
from dataclasses import replace

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import nn
from torch._subclasses.fake_tensor import FakeTensorMode

from core import sweeps
from core.engine import ladder, measuring
from core.engine.flops import flop_counter
from core.engine.ladder import Ladder
from core.engine.ledger import Ledger
from core.engine.models import Transformer
from core.engine.train import run_of
from core.events import Event, Sample, Scalar
from core.ladder import (
    LEAST_PARAMS,
    MOST_PARAMS,
    QUERIES_PER_KEY,
    WITHIN,
    ladder_shapes,
    shape_of_size,
    vocab_size,
)
from core.memory import TorchStep, step_memory, timeline
from core.ops import Train, executed_flops
from core.shapes import TransformerShape
from core.specs import RUNGS, LadderSpec
from core.units import BF16

SMALL = RUNGS[:3]
KIBI = 1024


# -- shapes -------------------------------------------------------------------------------------


@pytest.mark.parametrize("rung", ladder_shapes(), ids=lambda rung: f"{rung.asked:,}")
def test_parameters_are_those_of_transformers_own_llama(rung):
    """A rung is a Llama of these sizes: Hugging Face's has as many parameters, exactly."""
    transformers = pytest.importorskip("transformers")
    shape = rung.shape
    config = transformers.LlamaConfig(
        vocab_size=shape.vocab_size,
        hidden_size=shape.d_model,
        intermediate_size=shape.d_ff,
        num_hidden_layers=shape.n_layer,
        num_attention_heads=shape.n_head,
        num_key_value_heads=shape.n_kv_head,
        head_dim=shape.d_head,
        tie_word_embeddings=True,
    )
    with torch.device("meta"):
        model = transformers.LlamaForCausalLM(config)
    assert sum(p.numel() for p in model.parameters()) == rung.n_params
    assert rung.n_params / rung.asked == pytest.approx(1, abs=WITHIN)


def test_a_trillion_parameters_are_as_wide_as_published():
    """Levine et al. 2020, abstract: "an unprecedented width of 30K" for 1 trillion parameters."""
    assert shape_of_size(10**12).d_model == pytest.approx(30_000, rel=0.1)


def test_the_vocabulary_is_as_published():
    """Tao et al. 2024, abstract: that of Llama 2 70B should have been 216K, 7 times its 32K."""
    assert vocab_size(70_000_000_000) == 216_000


@given(st.floats(math.log(LEAST_PARAMS), math.log(MOST_PARAMS)))
def test_every_size_has_a_model_near_it(log_n: float):
    n = min(max(round(math.exp(log_n)), LEAST_PARAMS), MOST_PARAMS)
    shape = shape_of_size(n)
    # Below half a million the steps of width and depth are coarse.
    assert abs(math.log(shape.n_params / n)) < (WITHIN if n > 500_000 else 0.35)
    assert shape.n_head == QUERIES_PER_KEY * shape.n_kv_head
    assert shape.d_model == shape.n_head * shape.d_head
    assert shape.d_ff % 64 == shape.vocab_size % 64 == 0


def test_larger_models_have_more_parameters():
    sizes = [shape_of_size(round(10 ** (6 + i / 4))).n_params for i in range(25)]
    assert sizes == sorted(set(sizes))


@pytest.mark.parametrize("n", [LEAST_PARAMS - 1, MOST_PARAMS + 1])
def test_sizes_outside_the_ladder_are_refused(n: int):
    with pytest.raises(ValueError, match=f"n_params={n:,} is not from 50,000 to 1,000,000,000,000"):
        shape_of_size(n)


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        ({"works": ("swim",)}, "works='swim' is unknown"),
        ({"rungs": (1_000_000, 300_000)}, "do not rise"),
        ({"rungs": ()}, "must be at least one, each once"),
        ({"works": ("train",), "formats": ("int8",)}, "none that a training step has"),
        ({"budget_s": 0}, "budget_s=0 is not a number from 1 to 800"),
    ],
)
def test_a_ladder_that_makes_no_sense_is_refused(fields: dict[str, object], said: str):
    with pytest.raises(ValueError, match=said):
        LadderSpec(**fields)  # type: ignore[arg-type]


def test_points_go_up_rung_by_rung_and_formats_take_turns():
    points = LadderSpec().points
    assert [rung for rung, _, _ in points] == sorted(rung for rung, _, _ in points)
    assert [name for _, work, name in points[:2] if work == "train"] == ["fp32", "bf16"]
    assert len(points) == len(set(points)) == len(RUNGS) * (2 + 4 + 4)


# -- bytes --------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def told() -> dict[str, dict[str, float]]:
    """Everything that a ladder of the small rungs tells, by point."""
    spec = LadderSpec(rungs=SMALL, batch_size=2, seq_len=64, budget_s=800)
    points = sweeps.points_of(spec)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(ladder, "POINT_S", 0.0)
        found: dict[str, dict[str, float]] = {p.text: {} for p in points}
        for event in events_of(Ladder(spec)):
            if isinstance(event, Scalar):
                found[points[event.step].text][event.name] = event.value
    return found


SMALL_POINTS = sweeps.points_of(LadderSpec(rungs=SMALL, batch_size=2, seq_len=64))


@pytest.mark.parametrize("point", SMALL_POINTS, ids=lambda point: point.text)
def test_bytes_are_as_predicted(told: dict[str, dict[str, float]], point: sweeps.Point):
    """What can be counted to the byte; the peak within a hundredth or 64 KiB."""
    measured, predicted = told[point.text], sweeps.predicted(point)
    peak = predicted.pop("peak_bytes").value
    assert abs(peak - measured["peak_bytes"]) <= max(0.01 * measured["peak_bytes"], 64 * KIBI)
    assert {name: p.value for name, p in predicted.items()} == {
        name: measured[name] for name in predicted
    }
    kinds = {"weights_bytes", "gradients_bytes", "optimizer_bytes", "activations_bytes"}
    expected = kinds | {"logits_bytes"} if point.work == "train" else {"kv_cache_bytes"}
    assert expected <= predicted.keys()


def test_times_are_told_with_their_spread(told: dict[str, dict[str, float]]):
    for point in SMALL_POINTS:
        found = told[point.text]
        assert found[sweeps.SECONDS[point.work]] >= found["min_s"] > 0
        assert found["spread_s"] >= 0
        assert found["repeats"] >= 1
        assert found["contended"] in (0, 1)


LLAMA_8B = TransformerShape(  # Llama 3.1 8B. Source: its config.json
    vocab_size=128_256,
    n_layer=32,
    d_model=4096,
    n_head=32,
    n_kv_head=8,
    d_ff=14_336,
    max_seq_len=131_072,
    norm="rmsnorm",
    mlp="swiglu",
    positions="rope",
    rope_base=500_000.0,
    bias=False,
    tied=False,
)
LLAMA_405B = replace(LLAMA_8B, n_layer=126, d_model=16_384, n_head=128, d_ff=53_248)
PUBLISHED = {LLAMA_8B: 8_030_261_248, LLAMA_405B: 405_853_388_800}  # Source: their safetensors


@pytest.mark.parametrize(
    ("shape", "autocast"),
    [(LLAMA_8B, None), (LLAMA_8B, torch.bfloat16), (LLAMA_405B, torch.bfloat16)],
    ids=["8B fp32", "8B bf16", "405B bf16"],
)
def test_llama_in_tensors_without_memory_is_as_predicted(
    shape: TransformerShape, autocast: torch.dtype | None
):
    """Forward and backward through the very modules, with torch's fake tensors, which have sizes
    and no numbers: parameters, what is kept, gradients, the peak before the update, operations.
    """
    step = TorchStep(
        shape=shape,
        workload=Train(batch_size=1, seq_len=1024, autocast=BF16 if autocast else None),
        optimizer="sgd",
    )
    predicted = {name: p.value for name, p in step_memory(step).items()}
    with FakeTensorMode():
        model = hollow(shape)
        tokens, targets = (torch.zeros(1, 1024, dtype=torch.int64) for _ in range(2))

        def loss() -> torch.Tensor:
            with torch.autocast("cpu", autocast or torch.bfloat16, enabled=autocast is not None):
                return model.loss(tokens, targets)

        ledger = Ledger(weights=model.parameters(), inputs=[tokens, targets])
        with ledger:
            ledger.mark("forward", "model")
            found = loss()
            ledger.mark("backward", "model")
            found.backward()
            ledger.mark("update", "none")
        samples = ledger.samples()
        for parameter in model.parameters():
            parameter.grad = None
        with flop_counter() as counter:
            loss().backward()
    kept = [held for phase, _, held in samples if phase == "forward"][-1]
    rest = samples[-1][2]
    assert shape.n_params == sum(p.numel() for p in model.parameters()) == PUBLISHED[shape]
    assert predicted["weights_bytes"] == kept["weights"]
    assert predicted["activations_bytes"] == kept["activations"]
    assert predicted["gradients_bytes"] == rest["gradients"]
    before_update = [m.highest_bytes for m in timeline(step) if m.phase != "update"]
    assert max(before_update) == max(sum(held.values()) for _, _, held in samples)
    assert executed_flops(step.ops) == counter.get_total_flops()


def hollow(shape: TransformerShape) -> Transformer:
    """A model whose weights were never drawn."""
    model = Transformer.__new__(Transformer)
    nn.Module.__init__(model)
    model.shape, model.checkpointing = shape, False
    model._build()
    return model.train()


# -- a run --------------------------------------------------------------------------------------


class Clock:
    """Seconds that pass when a point is measured: as many as it has parameters, in millions."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, repeat_s: float = 0.0) -> None:
        self.now, self.measured = 0.0, []
        monkeypatch.setattr(Ladder, "_measured", self._measure)
        self._repeat_s = repeat_s

    def __call__(self) -> float:
        return self.now

    def _measure(self, point: sweeps.Point) -> ladder.Measured:
        self.now += point.n_params / 1e6
        self.measured.append(point)
        return ladder.Measured(
            bytes={"peak_bytes": 1.0},
            peak_at="forward head",
            seconds=[self._repeat_s] * 3,
            found=measuring.Alone(locked=True, load_1min=0.0, cpu_share=1.0),
        )


def events_of(run: Ladder) -> Iterator[Event]:
    yield from run.opening()
    while not run.done:
        run.tick()
        yield from run.frame()


def passed_over(events: list[Event]) -> dict[int, str]:
    return {e.step: e.text for e in events if isinstance(e, Sample) and e.name == "passed_over"}


DECODES = LadderSpec(works=("decode",), formats=("fp32",), rungs=RUNGS[:6], budget_s=20)


def test_no_point_is_begun_that_would_end_after_the_budget(monkeypatch: pytest.MonkeyPatch):
    """0.1 + 0.3 + 1 + 3.2 + 12 million parameters fit 20 'seconds', 30 million more do not."""
    clock = Clock(monkeypatch)
    events = list(events_of(Ladder(DECODES, clock)))
    assert [round(p.n_params, -6) // 10**6 for p in clock.measured] == [0, 0, 1, 3, 12]
    assert clock.now <= DECODES.budget_s
    ((step, why),) = passed_over(events).items()
    assert step == 5
    assert why.startswith("time: about 29.6 s are needed, and of 20 s 3.34 s are left")


def test_what_is_large_is_passed_over_and_what_is_cheap_still_measured(
    monkeypatch: pytest.MonkeyPatch,
):
    monkeypatch.setenv("BOTHWAYS_MAX_RUN_BYTES", str(60_000_000))
    clock = Clock(monkeypatch)
    spec = LadderSpec(formats=("fp32",), rungs=RUNGS[:5], budget_s=800)
    events = list(events_of(Ladder(spec, clock)))
    why = passed_over(events)
    points = sweeps.points_of(spec)
    over = {points[i].text for i in why}
    assert over == {p.text for p in points if sweeps.needed_bytes(p) > 60_000_000}
    assert all(text.startswith("memory: it needs") for text in why.values())
    assert {p.work for p in clock.measured if p.n_params > 12e6} == {"prefill", "decode"}


def test_a_run_that_was_parked_goes_on_where_it_was(monkeypatch: pytest.MonkeyPatch):
    clock = Clock(monkeypatch)
    whole = list(events_of(Ladder(DECODES, clock)))
    first = Ladder(DECODES, clock)
    events = list(first.opening())
    for _ in range(3):
        first.tick()
        events += first.frame()
    saved = copy.deepcopy(first.checkpoint())
    second = Ladder(DECODES, clock)
    second.restore(saved)
    assert second.step == 3
    while not second.done:
        second.tick()
        events += second.frame()
    assert second.summary == "5 of 6 points"
    assert [e for e in events if isinstance(e, Sample)] == [
        e for e in whole if isinstance(e, Sample)
    ]


def test_a_busy_machine_is_marked(monkeypatch: pytest.MonkeyPatch):
    """A point that was given less than the machine says so; one that had it whole says nothing."""
    monkeypatch.setattr(ladder, "POINT_S", 0.0)
    spec = LadderSpec(works=("decode",), formats=("fp32",), rungs=SMALL[:1], seq_len=16)

    def contended() -> float:
        return next(
            e.value
            for e in events_of(Ladder(spec))
            if isinstance(e, Scalar) and e.name == "contended"
        )

    monkeypatch.setattr(ladder, "BUSY", math.inf)
    monkeypatch.setattr(measuring, "LEAST_CPU_SHARE", 0.0)
    monkeypatch.setattr(measuring, "_taken", lambda fd: True)
    assert contended() == 0
    monkeypatch.setattr(measuring, "_taken", lambda fd: False)
    assert contended() == 1


def test_repeats_that_differ_much_are_marked_too():
    """Two threads that wait for each other use the processor all the while."""
    alone = measuring.Alone(locked=True, load_1min=0.0, cpu_share=2.0)
    for seconds, contended in (([1.0, 1.1, 1.2], False), ([1.0, 4.0, 9.0], True)):
        found = ladder.Measured(bytes={}, peak_at="", seconds=seconds, found=alone)
        assert found.contended is contended


def test_the_worker_runs_it():
    assert isinstance(run_of(DECODES), Ladder)
