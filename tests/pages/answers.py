"""Runs of answers, written by hand: what a page shows of them is what stands in their folder."""

from collections.abc import Sequence

from core.events import Ended, Event, Sample, Scalar, Started, Token
from core.machines import host
from core.specs import AnswerSweepSpec, FinetuneSpec, GenerateSpec, RunSpec

BEFORE, AFTER = "a1b2c3d4" * 8, "0f1e2d3c" * 8
SUM = GenerateSpec(model="addition", prompt="10+10=", max_new_tokens=3, context=8)
TOLD = {  # none of it what a prediction gives
    "weights_bytes": 1_234_567,
    "kv_cache_bytes": 23_456,
    "read_bytes_per_token": 345_678,
    "peak_bytes": 4_567_890,
    "ttft_s": 0.0123,
    "tpot_s": 0.00456,
    "tpot_spread_s": 0.0001,
    "tokens_per_s": 78.9,
    "kv_filled_bytes": 6_543,
}


def started(spec: RunSpec, attempt: str) -> Started:
    return Started(
        spec_id=spec.spec_id,
        attempt=attempt,
        spec=spec.to_json(),
        machine=host(),
        code_version="0",
        started_unix_s=1_767_355_500.0,
    )


def ended(status: str = "finished", message: str = "3 tokens") -> Ended:
    return Ended(status=status, message=message, n_steps=3, wall_s=1, cpu_s=1)


def answer(
    spec: GenerateSpec,
    attempt: str,
    text: Sequence[str] = ("0", "2", "0"),
    n_prompt: int = 6,
    after: str = BEFORE,
    told: dict[str, float] | None = None,
) -> list[Event]:
    """All that a finished answer tells, but for what only the widget draws."""
    tokens = [
        Token(
            step=i,
            row=0,
            phase="decode" if i else "prefill",
            id=i,
            text=piece,
            start_s=0.01 * i,
            end_s=0.01 * (i + 1),
            prob=0.5,
        )
        for i, piece in enumerate(text)
    ]
    said = TOLD if told is None else told
    return [
        started(spec, attempt),
        Sample(step=0, name="weights_sha256_before", text=BEFORE),
        Scalar(step=0, name="prompt_tokens", value=n_prompt),
        Scalar(step=0, name="paused", value=0),
        Scalar(step=0, name="paused", value=0),
        *tokens,
        *(Scalar(step=len(text), name=name, value=value) for name, value in said.items()),
        Sample(step=len(text), name="text_0", text="".join(text)),
        Sample(step=len(text), name="weights_sha256_after", text=after),
        ended(),
    ]


def update(spec: FinetuneSpec, attempt: str) -> list[Event]:
    """A training step that moved three tensors."""
    norms = {"embed.tokens.weight": 3.0, "blocks.0.mlp.up.weight": 0.6, "blocks.0.mlp.gate": 0.8}
    return [
        started(spec, attempt),
        Sample(step=0, name="weights_sha256_before", text=BEFORE),
        Scalar(step=0, name="loss", value=2.5),
        Scalar(step=0, name="largest_change", value=1e-5),
        *(Scalar(step=0, name=f"norm.update_weight:{k}", value=v) for k, v in norms.items()),
        Scalar(step=0, name="paused", value=0),
        Sample(step=1, name="weights_sha256_after", text=AFTER),
        ended(message="1 updates"),
    ]


def sweep(spec: AnswerSweepSpec, attempt: str, tpot_s: Sequence[float]) -> list[Event]:
    """A sweep of which so many points were measured."""
    events: list[Event] = [
        started(spec, attempt),
        Scalar(step=0, name="new_tokens", value=2),
        Scalar(step=0, name="paused", value=0),
    ]
    for i, seconds in enumerate(tpot_s):
        told = {
            "tpot_s": seconds,
            "tpot_spread_s": seconds / 5,
            "ttft_s": 10 * seconds,
            "logits_max_diff": 0.25 * i,
            "tokens_changed": i,
            "contended": 0.0,
        }
        events += [Scalar(step=i, name=name, value=value) for name, value in told.items()]
    return [*events, ended(message=f"{len(tpot_s)} points")]
