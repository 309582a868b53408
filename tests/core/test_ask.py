"""`python -m core run generate`: its account, and what it refuses and how."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from core.__main__ import main

ROOT = Path(__file__).resolve().parent.parent.parent
SUM = ("--model", "addition", "--prompt", "12+34=", "--max-new-tokens", "3")


def process(*words: str) -> subprocess.CompletedProcess:
    return subprocess.run(
        [sys.executable, "-m", "core", "run", "generate", *words],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=120,
    )


@pytest.fixture(scope="module")
def told() -> dict:
    done = process(*SUM, "--threads", "1")
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout.splitlines()[-1], parse_constant=pytest.fail)


def test_the_last_line_is_the_answer_and_its_account(told: dict):
    assert told["text"] == "046"
    assert (told["prompt_tokens"], told["new_tokens"]) == (6, 3)
    assert len(told["token_ids"]) == 3
    assert told["status"] == "finished"
    assert min(told["tpot_s"], told["ttft_s"], told["tokens_per_s"]) > 0
    assert told["bandwidth_share"] > 0


def test_bytes_stand_as_predicted_and_measured(told: dict):
    cache = told["kv_cache_bytes"]
    assert cache["predicted"] == cache["measured"] > 0
    weights = told["memory"]["weights"]
    assert weights["predicted_bytes"] == weights["measured_bytes"]
    peak = told["memory"]["peak"]
    assert abs(peak["predicted_bytes"] - peak["measured_bytes"]) <= 65536


def test_the_weights_stay(told: dict):
    hashes = told["weights_sha256"]
    assert hashes["before"] == hashes["after"]
    assert len(hashes["before"]) == 64


def test_without_the_cache_the_same_text(told: dict):
    done = process(*SUM, "--no-cache", "--dtype", "fp32")
    again = json.loads(done.stdout.splitlines()[-1])
    assert again["token_ids"] == told["token_ids"]
    assert again["spec"]["cache"] is False


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("--prompt", ""), "prompt='' is empty"),
        (("--model", "addition", "--prompt", "12+34=0468"), "more than a context of 8"),
        (("--model", "addition", "--prompt", "abc"), "never seen 'a'"),
        (("--model", "gpt9"), "no run that is kept"),
        (("--dtype", "fp8"), "choose one of fp32"),
        (("--temperature", "hot"), "temperature='hot'"),
        (("--max-new-tokens", "0"), "max_new_tokens=0"),
        (("--top-p", "2"), "top_p=2"),
        (("--nonsense", "1"), "no flag"),
    ],
)
def test_what_cannot_be_used_is_refused_in_one_sentence(
    words: tuple[str, ...], said: str, capsys: pytest.CaptureFixture[str]
):
    assert main(["run", "generate", *words]) == 2
    out, err = capsys.readouterr()
    assert said in err
    assert len(err.splitlines()) == 1
    assert out == ""
