"""A conversation is what its runs tell."""

import math

import pytest

from core.chats import Turn, Update, history_of, layer_of, link_of, said_in
from core.events import Ended, Event, Sample, Scalar, Token
from core.specs import AdditionSpec, FinetuneSpec, GenerateSpec
from core.trace import Trace

ASKED = GenerateSpec(prompt="And?", chat=True, history=("Hi.", "Hello."))


def ended(status: str) -> Ended:
    return Ended(status=status, message="no memory", n_steps=0, wall_s=0, cpu_s=0)


def piece(step: int, text: str) -> Token:
    return Token(step=step, row=0, phase="decode", id=0, text=text)


def turn(*events: Event, spec: GenerateSpec = ASKED) -> Turn:
    found = link_of(spec, Trace([*events]))
    assert isinstance(found, Turn)
    return found


def test_the_next_turn_sends_all_that_was_said():
    answered = turn(piece(0, "Noth"), piece(1, "ing."))
    assert history_of([answered]) == ("Hi.", "Hello.", "And?", "Nothing.")
    assert said_in(answered) == "And?\nNothing."


def test_a_turn_without_an_answer_is_not_sent_again():
    first = turn(piece(0, "Hello."), spec=GenerateSpec(prompt="Hi.", chat=True))
    broken = turn(ended("failed"))
    assert broken.broke_off == "no memory"
    assert history_of([first, broken]) == ("Hi.", "Hello.")
    assert history_of([]) == ()


def test_a_turn_that_was_stopped_did_not_break_off():
    assert turn(piece(0, "N"), ended("stopped")).broke_off == ""


@pytest.mark.parametrize("spec", [GenerateSpec(), AdditionSpec()])
def test_other_runs_are_no_part_of_a_conversation(spec: GenerateSpec | AdditionSpec):
    assert link_of(spec, Trace()) is None


def test_a_step_tells_how_far_each_layer_moved():
    """Norms of a layer's tensors make the norm of all its numbers."""
    moved = {"embed.tokens.weight": 2.0, "blocks.0.attn.qkv.weight": 3.0, "blocks.0.mlp.up": 4.0}
    found = link_of(
        FinetuneSpec(),
        Trace(
            [
                Sample(step=0, name="weights_sha256_before", text="a"),
                Scalar(step=0, name="loss", value=2.0),
                Scalar(step=0, name="largest_change", value=1e-5),
                *(
                    Scalar(step=0, name=f"norm.update_weight:{k}", value=v)
                    for k, v in moved.items()
                ),
                Scalar(step=0, name="norm.weight:norm.weight", value=9.0),
                Sample(step=1, name="weights_sha256_after", text="b"),
            ]
        ),
    )
    assert isinstance(found, Update)
    assert found.layers == (("embed", 2.0), ("block 1", math.hypot(3.0, 4.0)))
    assert (found.before, found.after, found.loss, found.largest_change) == ("a", "b", 2.0, 1e-5)


@pytest.mark.parametrize(
    ("parameter", "layer"),
    [("blocks.29.mlp.down.weight", "block 30"), ("norm.weight", "norm"), ("head.weight", "head")],
)
def test_a_parameter_belongs_to_a_layer_as_pages_count_them(parameter: str, layer: str):
    assert layer_of(parameter) == layer
