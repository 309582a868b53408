"""`python -m core predict --model` says memory and latency, each figure with how it is made."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from core import footprints, forecast, latency
from core.catalog import find_model, models
from core.cli import Refused
from core.footprints import Serving, Training
from tests.core.calibrations import keep_all

FIGURES = {
    "memory": ("training_peak", "training_states", "serving_peak", "kv_cache_per_token"),
    "latency": ("train_step", "prefill", "decode"),
}
CONFIG = {
    "model_type": "llama",
    "hidden_size": 4096,
    "num_hidden_layers": 32,
    "num_attention_heads": 32,
    "num_key_value_heads": 8,
    "intermediate_size": 14336,
    "vocab_size": 128256,
    "max_position_embeddings": 8192,
    "tie_word_embeddings": False,
}


def told(capsys: pytest.CaptureFixture[str], *flags: str) -> dict[str, Any]:
    assert forecast.main(flags) == 0
    return json.loads(capsys.readouterr().out.splitlines()[-1])


@pytest.fixture(autouse=True)
def runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("BOTHWAYS_RUNS", str(tmp_path / "runs"))
    monkeypatch.setattr(latency, "SHIPPED", tmp_path / "none")
    return tmp_path / "runs"


def test_every_figure_says_how_it_is_made(capsys: pytest.CaptureFixture[str]):
    found = told(capsys, "--model", "llama-3.1-8b")
    for part, names in FIGURES.items():
        for name in names:
            figure = found[part][name]
            assert figure["value"] > 0 and figure["unit"] in ("B", "s"), name
            assert figure["formula"] and figure["arithmetic"] and figure["source"], name
    assert found["model"]["parameters"] == 8_030_261_248


@pytest.mark.parametrize("slug", models())
def test_every_model_has_a_forecast_on_every_kind_of_device(slug: str):
    shape = models()[slug].shape
    for device in ("h100-sxm-80gb", "apple-m3-ultra", "tpu-v5e", None):
        asked = forecast.Request(
            name=slug,
            shape=shape,
            source="",
            unsure=(),
            device=forecast.find_device(device) if device else forecast.find_device("a30-24gb"),
            prompt=64,
            training=Training(recipe="mixed16", seq_len=64),
            serving=Serving(weight_format="Q4_K_M", context=64),
        )
        found = forecast.forecast(asked)
        json.dumps(found, allow_nan=False)
        assert found["latency"]["decode"]["value"] > 0


def test_memory_is_what_the_pages_show(capsys: pytest.CaptureFixture[str]):
    found = told(capsys, "--model", "llama-3.1-8b", "--batch", "4", "--context", "512")
    shape = find_model("llama-3.1-8b").shape
    how = Training(recipe="mixed16", batch_size=4, seq_len=512)
    assert found["memory"]["training_peak"]["value"] == float(
        footprints.training([shape], how).peak[0]
    )
    assert found["memory"]["training_peak"]["fits"] is False


def test_decode_is_a_band_with_its_source_and_no_one_number(capsys: pytest.CaptureFixture[str]):
    found = told(capsys, "--model", "llama-3.1-8b", "--device", "rtx 4090")["latency"]["decode"]
    band = found["band"]
    assert found["value"] <= band["low"] < band["high"]
    assert "llama.cpp" in band["share_of_bandwidth"]["source"]
    assert found["bound"] == "memory"


def test_an_unknown_peak_gives_no_figure_and_says_why(capsys: pytest.CaptureFixture[str]):
    found = told(capsys, "--model", "llama-3.1-8b", "--device", "apple-m3-ultra")["latency"]
    for name in ("train_step", "prefill"):
        assert found[name]["value"] is None
        assert "no dense bf16 peak" in found[name]["why"]
        assert found[name]["tokens_per_s"] is None
    assert found["decode"]["value"] > 0


def test_a_config_file_is_the_model_it_describes(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
):
    path = tmp_path / "config.json"
    path.write_text(json.dumps(CONFIG))
    found = told(capsys, "--model", str(path))
    named = told(capsys, "--model", "llama-3.1-8b")
    assert found["model"]["parameters"] == named["model"]["parameters"]
    assert found["latency"]["decode"]["value"] == named["latency"]["decode"]["value"]


def test_this_machine_is_told_from_its_calibration(runs: Path, capsys: pytest.CaptureFixture[str]):
    flags = ("--model", "gpt-2-124m", "--device", "this", "--recipe", "fp32", "--weights", "fp32")
    with pytest.raises(Refused, match="is not calibrated; run"):
        forecast.main(flags)
    keep_all(runs)
    found = told(capsys, *flags, "--context", "128")["latency"]
    for name in FIGURES["latency"]:
        band = found[name]["band"]
        assert band["low"] < found[name]["value"] < band["high"]
        assert "calibrated on a machine" in found[name]["source"]


@pytest.mark.parametrize(
    ("flags", "why"),
    [
        ((), "--model is missing"),
        (("--model", "llama-3.1-9b"), "did you mean"),
        (("--model", "no/such/config.json"), "cannot be read"),
        (("--model", "gpt-2-124m", "--device", "h1000"), "did you mean|there are"),
        (("--model", "gpt-2-124m", "--batch", "0"), "batch=0 is out of range; choose"),
        (("--model", "gpt-2-124m", "--batch", "many"), "is no whole number; choose"),
        (("--model", "gpt-2-124m", "--weights", "fp3"), "is unknown; choose one of"),
        (("--model", "gpt-2-124m", "--recipe", "fp3"), "is unknown; choose one of"),
        (("--model", "gpt-2-124m", "--prompt", "99", "--context", "9"), "choose --context 99"),
        (("--model", "gpt-2-124m", "--contxt", "9"), "did you mean --context"),
    ],
)
def test_what_cannot_be_used_is_refused_with_a_remedy(flags: tuple[str, ...], why: str):
    with pytest.raises(Refused, match=why):
        forecast.main(flags)


def test_a_file_that_is_no_config_is_refused(tmp_path: Path):
    path = tmp_path / "config.json"
    path.write_text("[1, 2")
    with pytest.raises(Refused, match=r"config\.json"):
        forecast.main(("--model", str(path)))


def test_the_command_loads_no_torch_and_ends_with_one_line_of_json():
    code = (
        "import sys; from core.__main__ import main; "
        "code = main(['predict', '--model', 'gpt-2-124m']); "
        "assert 'torch' not in sys.modules and 'streamlit' not in sys.modules; sys.exit(code)"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=120, check=False
    )
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout.splitlines()[-1])["model"]["name"] == "GPT-2 124M"
