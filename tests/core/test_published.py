"""The decoder on the published model, beside transformers on the same weights."""

import pytest
import torch

from core import pretrained
from core.engine import weights
from core.engine.decoder import Decoder
from core.engine.llama import llama_of
from core.shapes import TransformerShape
from core.tokenizers import tokenizer_of

PROMPTS = (
    "The capital of France is",
    "def fibonacci(n):\n",
    "Once upon a time, a small robot",
    "Water rises from the sea because",
    "1, 2, 3, 4, 5,",
)


@pytest.fixture(scope="module")
def smollm2() -> tuple[TransformerShape, weights.Weights]:
    if pretrained.find("smollm2") is None:
        pytest.skip("smollm2 is not installed: make models")
    return weights.load("smollm2")


def greedy(decoder: Decoder, ids: list[int], n: int) -> list[int]:
    decoder.length = 0
    new: list[int] = []
    tokens = torch.tensor([ids])
    for _ in range(n):
        new.append(int(decoder.trip(tokens)[0].argmax()))
        tokens = torch.tensor([[new[-1]]])
    return new


def theirs(llama: torch.nn.Module, ids: list[int], n: int) -> list[int]:
    with torch.inference_mode():
        out = llama.generate(  # type: ignore[operator]
            torch.tensor([ids]),
            attention_mask=torch.ones(1, len(ids), dtype=torch.int64),
            max_new_tokens=n,
            do_sample=False,
            eos_token_id=None,
            pad_token_id=0,
        )
    return out[0, len(ids) :].tolist()


@pytest.mark.parametrize(
    ("n_prompts", "n_new"), [(1, 12), pytest.param(5, 64, marks=pytest.mark.slow)]
)
def test_greedy_text_is_transformers(
    smollm2: tuple[TransformerShape, weights.Weights], n_prompts: int, n_new: int
):
    shape, found = smollm2
    llama, decoder = llama_of(shape, found), Decoder(shape, found, context=128)
    for prompt in PROMPTS[:n_prompts]:
        ids = tokenizer_of("smollm2").encode(prompt)
        assert greedy(decoder, ids, n_new) == theirs(llama, ids, n_new), prompt


def test_with_and_without_the_cache_the_logits_agree(
    smollm2: tuple[TransformerShape, weights.Weights],
):
    shape, found = smollm2
    decoder = Decoder(shape, found, context=64)
    ids = torch.tensor([tokenizer_of("smollm2").encode("Rivers carry it back to the sea, and")])
    whole = decoder.trip(ids, every=True)
    decoder.length = 0
    one_by_one = [decoder.trip(ids[:, i : i + 1], every=True) for i in range(ids.shape[1])]
    torch.testing.assert_close(torch.cat(one_by_one, dim=1), whole, atol=1e-4, rtol=0)
