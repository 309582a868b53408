"""The command line: what it prints, what it leaves on disk, and what it refuses and how."""

import contextlib
import dataclasses
import io
import json
import os
import re
import signal
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from core import cli
from core.__main__ import main
from core.memory import peak_bytes, timeline
from core.ops import executed_flops, model_flops
from core.specimens import ops_of, predictions, shape_of, step_in_torch
from core.specs import MAX_DEPTH, SPEC_KINDS, SPECIMENS, Spec
from core.texts import MAX_TEXT_BYTES
from core.trace import Trace

ROOT = Path(__file__).resolve().parent.parent.parent
FIELDS = [(name, f.name) for name in SPECIMENS for f in dataclasses.fields(SPEC_KINDS[name])]
TINY = ["--n-layer", "1", "--d-model", "8", "--n-head", "2", "--batch-size", "4"]
TINY_RUNS = {
    "playground": ["--n-epochs", "3"],
    "digits": ["--n-layer", "1", "--d-model", "8", "--batch-size", "100", "--n-epochs", "1"],
    "addition": [*TINY, "--n-steps", "3"],
    "pydocs": [*TINY, "--seq-len", "8", "--n-steps", "3"],
    "text": [*TINY, "--seq-len", "8", "--n-steps", "3"],
}
POEM = "Roses are red, violets are blue; a text of my own learns quickly, so do you.\n" * 5


@pytest.fixture(autouse=True)
def own_folders(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Texts, temporary folders and variables of a test end with it."""
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    monkeypatch.setenv("BOTHWAYS_RUNS", str(tmp_path / "runs"))
    for name in (*cli.THREAD_VARIABLES, "KINETO_LOG_LEVEL"):
        monkeypatch.setenv(name, os.environ.get(name, ""))


@pytest.fixture
def poem(tmp_path: Path) -> Path:
    path = tmp_path / "poem.txt"
    path.write_text(POEM)
    return path


def words_for(specimen: str, poem: Path) -> list[str]:
    own = ["--text-file", str(poem)] if specimen == "text" else []
    return ["--specimen", specimen, *own]


def called(*words: str) -> tuple[int, str, str]:
    """(exit code, stdout, stderr) of a command line, in this process."""
    out, err = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        code = main(words)
    return code, out.getvalue(), err.getvalue()


def told(out: str) -> dict:
    """The last line, which must be JSON without NaN."""
    return json.loads(out.splitlines()[-1], parse_constant=pytest.fail)


def process(*words: str, first: str = "") -> subprocess.CompletedProcess:
    """A command line in a process of its own, after a statement if one is given."""
    start = ["-m", "core"]
    if first:
        rest = "import sys; from core.__main__ import main; sys.exit(main(sys.argv[1:]))"
        start = ["-c", f"{first}; {rest}"]
    return subprocess.run(
        [sys.executable, *start, *words], cwd=ROOT, capture_output=True, text=True, timeout=120
    )


# -- a run --------------------------------------------------------------------------------------


@dataclasses.dataclass(frozen=True)
class Finished:
    words: list[str]
    done: subprocess.CompletedProcess
    folder: Path

    @property
    def result(self) -> dict:
        return told(self.done.stdout)

    @property
    def spec(self) -> Spec:
        return Spec.from_json(self.result["spec"])

    @property
    def trace(self) -> Trace:
        return Trace.read(self.folder)


LEARNING = {
    "playground": ["--n-epochs", "30", "--optimizer", "adamw", "--learning-rate", "0.01"],
    "addition": [*TINY, "--n-steps", "40", "--learning-rate", "0.03"],
}


@pytest.fixture(scope="module", params=LEARNING)
def finished(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Finished:
    """A run in a process of its own, as one would start it."""
    folder = tmp_path_factory.mktemp(request.param) / "run"
    words = ["--specimen", request.param, *LEARNING[request.param]]
    return Finished(words, process("run", "train", *words, "--out", str(folder)), folder)


def test_a_run_ends_with_one_line_of_json(finished: Finished):
    """stdout holds the result and nothing else; exit code 0."""
    assert finished.done.returncode == 0, finished.done.stderr
    assert len(finished.done.stdout.splitlines()) == 1
    assert finished.result["status"] == "finished"
    assert finished.result["folder"] == str(finished.folder)


def test_progress_goes_to_stderr(finished: Finished):
    """The folder, then step, epochs, losses and accuracy, at most a few lines a second."""
    first, *lines = finished.done.stderr.splitlines()
    assert first == f"run folder: {finished.folder}"
    number = r"[\d.e+-]+"
    line = (
        rf"step \d+, epochs {number}, train loss {number}, held-out loss {number}, "
        rf"accuracy {number}%"
    )
    assert [text for text in lines if not re.fullmatch(line, text)] == []
    assert lines[-1].startswith(f"step {finished.result['steps']},")
    ended = finished.trace.ended
    assert ended is not None
    assert len(lines) <= 2 + ended.wall_s / 0.4


def test_the_result_is_what_the_folder_says(finished: Finished):
    """Every number stands in the run folder too, which a page reads."""
    result, trace = finished.result, finished.trace
    started, ended = trace.started, trace.ended
    assert started is not None and ended is not None
    assert (started.spec_id, started.attempt) == (result["spec_id"], result["attempt"])
    assert Spec.from_json(started.spec) == finished.spec
    assert started.machine["n_threads"] == 1
    assert (ended.status, ended.n_steps) == ("finished", result["steps"])
    losses = [value for _, value in trace.scalars("train_loss")]
    assert (losses[0], losses[-1]) == (result["loss_first"], result["loss_last"])
    assert trace.scalars("held_out_loss")[-1] == (ended.n_steps, result["held_out_loss"])
    assert trace.scalars("held_out_accuracy")[-1] == (ended.n_steps, result["accuracy"])
    step = result["recorded_step"]
    scalars = trace.scalars_of(step)
    for name in ("weights", "gradients", "optimizer", "activations"):
        assert result["memory"][name]["measured_bytes"] == scalars[f"{name}_bytes"]
    held = [sum(m.held_bytes.values()) for m in trace.memory(step)]
    assert result["memory"]["peak"]["measured_bytes"] == max(held)
    assert result["flops_per_step"]["measured"] == scalars["flops_executed"]


def test_a_run_records_its_first_steps_and_its_last(finished: Finished):
    """The result is of one that the optimizer came to with state."""
    steps = finished.trace.recorded_steps
    assert steps[:2] == [0, 1]
    assert finished.result["recorded_step"] in steps[1:]
    assert finished.result["memory"]["optimizer"]["measured_bytes"] > 0


def test_the_predictions_are_cores(finished: Finished):
    """Predicted bytes and FLOPs are those of core's formulas."""
    expected = {name: int(p.value) for name, p in predictions(finished.spec).items()}
    expected["peak_bytes"] = int(peak_bytes(step_in_torch(finished.spec)).value)
    memory = finished.result["memory"]
    assert {f"{name}_bytes": m["predicted_bytes"] for name, m in memory.items()} == expected
    flops = executed_flops(ops_of(finished.spec))
    assert finished.result["flops_per_step"]["predicted"] == flops


def test_a_run_learns(finished: Finished):
    """The loss falls, the weights change, and time passes."""
    result = finished.result
    assert result["loss_last"] < 0.9 * result["loss_first"]
    assert 0 <= result["accuracy"] <= 1
    assert result["weights_sha256"]["before"] != result["weights_sha256"]["after"]
    assert result["examples_per_s"] > 0


def test_a_seed_gives_the_same_weights_twice(finished: Finished):
    """Before and after, to the bit, in another process; another seed gives others."""
    code, out, _ = called("run", "train", *finished.words)
    assert code == 0
    assert told(out)["weights_sha256"] == finished.result["weights_sha256"]
    short = ["--n-epochs" if finished.spec.specimen == "playground" else "--n-steps", "1"]
    _, out, _ = called("run", "train", *finished.words, *short, "--seed", "2")
    assert told(out)["weights_sha256"]["before"] != finished.result["weights_sha256"]["before"]


@pytest.mark.parametrize("specimen", SPECIMENS)
def test_predict_and_run_agree(specimen: str, poem: Path):
    """What `predict` says is what `run train` compares with; and what it measures, to the byte."""
    words = [*words_for(specimen, poem), *TINY_RUNS[specimen]]
    code, out, err = called("run", "train", *words)
    assert code == 0, err
    result = told(out)
    code, out, _ = called("predict", *words)
    assert code == 0
    predicted = told(out)
    assert (predicted["spec"], predicted["spec_id"]) == (result["spec"], result["spec_id"])
    memory = predicted["memory"] | {"peak": predicted["peak"]["bytes"]}
    assert memory == {name: m["predicted_bytes"] for name, m in result["memory"].items()}
    assert memory == {name: m["measured_bytes"] for name, m in result["memory"].items()}
    flops = predicted["flops_per_step"]["executed"]
    assert result["flops_per_step"] == {"predicted": flops, "measured": flops}


def test_the_default_folder_is_where_a_page_would_look():
    """A temporary folder, that BOTHWAYS_RUNS may name."""
    _, out, _ = called("run", "train", "--specimen", "playground", "--n-epochs", "1")
    result = told(out)
    folder = Path(result["folder"])
    assert folder.parts[-2:] == (result["spec_id"], result["attempt"])
    assert folder.parent.parent.name.startswith("bothways-")
    assert Trace.read(folder).ended is not None


def test_a_run_of_one_step_measures_no_peak():
    """The peak is predicted from the second step on; the rest is the same in the first."""
    words = ["--specimen", "addition", *TINY, "--n-steps", "1"]
    result = told(called("run", "train", *words)[1])
    assert (result["steps"], result["recorded_step"]) == (1, 0)
    assert result["memory"].pop("peak")["measured_bytes"] is None
    for found in result["memory"].values():
        assert found["measured_bytes"] == found["predicted_bytes"]


# -- runs that end otherwise --------------------------------------------------------------------


def test_a_run_that_diverges_says_so():
    """Exit code 1, the op, what would help, and no NaN in the line."""
    words = ["--learning-rate", "10", "--optimizer", "sgd", "--n-steps", "400"]
    code, out, _ = called("run", "train", "--specimen", "addition", *TINY, *words)
    result = told(out)
    assert (code, result["status"]) == (1, "diverged")
    assert "is no longer a finite number" in result["message"]
    assert result["advice"] == {"learning_rate": 1.0}
    ended = Trace.read(Path(result["folder"])).ended
    assert ended is not None and ended.message == result["message"]


def test_ctrl_c_ends_a_run_in_order(tmp_path: Path):
    """Exit code 0, a result, and a folder with its last event."""
    folder = tmp_path / "run"
    words = ["run", "train", "--specimen", "addition", *TINY, "--n-steps", "20000"]
    running = subprocess.Popen(
        [sys.executable, "-m", "core", *words, "--out", str(folder)],
        cwd=ROOT,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert running.stderr is not None
    for line in running.stderr:
        if line.startswith("step ") and not line.startswith(("step 0,", "step 1,", "step 2,")):
            break
    running.send_signal(signal.SIGINT)
    out, err = running.communicate(timeout=60)
    result = told(out)
    assert (running.returncode, result["status"]) == (0, "stopped")
    assert "Traceback" not in err
    ended = Trace.read(folder).ended
    assert ended is not None
    assert (ended.status, ended.n_steps) == ("stopped", result["steps"])
    assert 2 < result["steps"] < 20_000
    assert result["memory"]["peak"]["measured_bytes"] is not None


def test_a_run_that_fails_still_has_a_last_line(tmp_path: Path):
    """A disk that takes no more, here a limit for each file: exit code 1."""
    words = ["--specimen", "playground", "--n-epochs", "50", "--out", str(tmp_path / "run")]

    limit = "import resource; resource.setrlimit(resource.RLIMIT_FSIZE, (60_000, 60_000))"
    done = process("run", "train", *words, first=limit)
    result = told(done.stdout)
    assert (done.returncode, result["status"]) == (1, "failed")
    assert "File too large" in result["message"]


# -- predict ------------------------------------------------------------------------------------


def test_predict_loads_no_torch(poem: Path):
    """Nor numpy, which `run train` must not have loaded before it has set the threads."""
    program = (
        "import json, sys\n"
        "from core.__main__ import main\n"
        "codes = [main(['predict', *words]) for words in json.loads(sys.argv[1])]\n"
        "print(codes, [m for m in ('torch', 'numpy') if m in sys.modules])\n"
        "from core.cli import limit_threads\n"
        "limit_threads(2)\n"
        "import torch\n"
        "print(torch.get_num_threads())\n"
    )
    words = json.dumps([words_for(specimen, poem) for specimen in SPECIMENS])
    done = subprocess.run(
        [sys.executable, "-c", program, words],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=120,
    )
    *lines, codes, n_threads = done.stdout.splitlines()
    assert codes == f"{[0] * len(SPECIMENS)} []", done.stderr
    assert n_threads == "2"
    assert [told(line)["spec"]["specimen"] for line in lines] == list(SPECIMENS)


@pytest.mark.parametrize("specimen", SPECIMENS)
def test_a_prediction_carries_its_arithmetic(specimen: str, poem: Path):
    """Each string ends in the number it gives, and Python agrees with it."""
    said = told(called("predict", *words_for(specimen, poem))[1])
    values = {
        "parameters": said["parameters"],
        "flops_model": said["flops_per_step"]["model"],
        "flops_executed": said["flops_per_step"]["executed"],
        "peak": said["peak"]["bytes"],
        **said["memory"],
    }
    if said["kv_cache_bytes_per_token"] is not None:
        values["kv_cache"] = said["kv_cache_bytes_per_token"]
    assert set(said["arithmetic"]) == set(values)
    for name, arithmetic in said["arithmetic"].items():
        terms, _, value = arithmetic.rpartition(" = ")
        assert re.fullmatch(r"[\d +×()]+", terms), arithmetic
        assert int(value) == values[name] == eval(terms.replace("×", "*")), arithmetic


@pytest.mark.parametrize("specimen", SPECIMENS)
def test_a_prediction_is_of_the_model(specimen: str, poem: Path):
    """Parameters, FLOPs, cache and peak as the shape and the op table have them."""
    said = told(called("predict", *words_for(specimen, poem), "--seed", "3")[1])
    spec = Spec.from_json(said["spec"])
    assert spec.seed == 3
    shape, ops = shape_of(spec), ops_of(spec)
    assert said["parameters"] == shape.n_params
    assert said["flops_per_step"] == {"model": model_flops(ops), "executed": executed_flops(ops)}
    if specimen in ("playground", "digits"):
        assert said["kv_cache_bytes_per_token"] is None
    else:
        assert said["kv_cache_bytes_per_token"] == 2 * shape.n_layer * shape.d_kv * 4  # type: ignore[union-attr]
    moments = {(m.phase, m.op): m.highest_bytes for m in timeline(step_in_torch(spec))}
    peak = said["peak"]
    assert moments[peak["phase"], peak["op"]] == peak["bytes"] == max(moments.values())


def test_accumulation_multiplies_the_work():
    """Two micro-batches are twice the FLOPs of an update."""
    words = ["predict", "--specimen", "addition", *TINY]
    one, two = (told(called(*words, "--accumulation", n)[1])["flops_per_step"] for n in ("1", "2"))
    assert two == {name: 2 * value for name, value in one.items()}


# -- flags --------------------------------------------------------------------------------------


@pytest.mark.parametrize("command", [["run", "train"], ["predict"]])
def test_help_explains_every_setting(command: list[str], capsys: pytest.CaptureFixture):
    """A new field of any spec must be given its flag, its meaning, its range and its default."""
    with pytest.raises(SystemExit) as end:
        main([*command, "--help"])
    assert end.value.code == 0
    text = capsys.readouterr().out
    assert set(cli.FLAGS) == {setting for _, setting in FIELDS}
    entries = dict(re.findall(r"^  (--[\w-]+) (.*?)(?=^  --|\Z)", text, re.DOTALL | re.MULTILINE))
    for specimen, setting in FIELDS:
        entry = entries[cli.flag_of(setting)]
        (line,) = [e for e in entry.splitlines() if re.search(rf"(\b{specimen}\b.*|all): ", e)]
        assert " ".join(cli.FLAGS[setting].what.split()) in " ".join(entry.split())
        field = cli.specimens_with(setting)[specimen]
        assert f"default {cli._shown(field.default)}" in line or setting == "text"
    assert {"--specimen", "--spec", "--text-file"} <= set(entries)
    assert ({"--threads", "--out"} <= set(entries)) == (command == ["run", "train"])
    assert max(map(len, text.splitlines())) <= 100


@pytest.mark.parametrize("words", [[], ["run"], ["--help"], ["-h"], ["run", "--help"]])
def test_help_without_a_command_lists_the_commands(words: list[str]):
    code, out, err = called(*words)
    assert (code, err) == (0, "")
    assert "run train" in out and "predict" in out


def spec_with(specimen: str, setting: str, value: str) -> Spec:
    given = {"specimen": specimen, setting: value}
    if specimen == "text" and setting != "text":
        given["text"] = "0" * 32
    if setting == "n_head":
        given["d_model"] = "512"
    return cli.spec_of(given)


@pytest.mark.parametrize(("specimen", "setting"), FIELDS)
def test_the_range_in_the_help_is_the_specs(specimen: str, setting: str):
    """Both ends are taken, what lies beyond them is refused; of names, each and no other."""
    flag = cli.FLAGS[setting]
    allowed = flag.allowed_for(specimen)
    if flag.rule:
        return
    if isinstance(allowed[0], str):
        good, bad = [str(name) for name in allowed], ["nosuch"]
    else:
        low, high = allowed
        is_float = cli.specimens_with(setting)[specimen].type is float
        good = [f"{low:.12g}", f"{high:.12g}"]
        past = [low - abs(low) / 2 - 1e-9, high * 1.01] if is_float else [low - 1, high + 1]  # type: ignore[operator]
        bad = [f"{value:.12g}" for value in past]
    for value in good:
        spec = spec_with(specimen, setting, value)
        assert cli._shown(getattr(spec, setting)) == value
    for value in bad:
        with pytest.raises(cli.Refused):
            spec_with(specimen, setting, value)


def test_lists_are_written_with_commas():
    spec = cli.spec_of({"specimen": "playground", "hidden": "3, 2,1", "features": "x,sinx"})
    assert (spec.hidden, spec.features) == ((3, 2, 1), ("x", "sinx"))  # type: ignore[attr-defined]
    assert cli.spec_of({"specimen": "playground", "hidden": "none"}).hidden == ()  # type: ignore[attr-defined]


def test_checkpointing_alone_is_a_switch():
    words = ["predict", "--specimen", "addition"]
    for flag, on in (["--checkpointing"], True), (["--checkpointing", "false"], False):
        assert told(called(*words, *flag)[1])["spec"]["checkpointing"] is on


# -- what is refused ----------------------------------------------------------------------------

REFUSED = {
    "fly": ["command='fly' is unknown", "run train, run generate or predict"],
    "run fly": ["command='run fly' is unknown"],
    "predict": ["--specimen is missing", "playground, digits, addition, pydocs, text"],
    "predict --specimen cat": ["specimen='cat' is unknown", "playground, digits"],
    "predict --specimen depths": ["specimen='depths' is unknown"],
    "predict --specimen digits --n-layers 2": ["'--n-layers' is no flag", "--n-layer"],
    "predict --specimen digits --n-lay 2": ["'--n-lay' is no flag"],
    "predict --specimen digits --fly": ["'--fly' is no flag", "--help"],
    "predict --specimen digits -x": ["'-x' is no flag"],
    "predict --specimen digits more": ["'more' is no flag"],
    "predict --specimen digits --threads 1": ["'--threads' is no flag"],
    "predict --specimen digits --n-layer": ["--n-layer has no value"],
    "predict --specimen digits --n-layer --seed 1": ["--n-layer has no value"],
    "predict --specimen digits --help=2": ["takes no value"],
    "predict --specimen digits --hidden 2": ["--hidden='2' is no setting", "digits", "--n-layer"],
    "predict --specimen playground --n-steps 2": ["--n-steps='2'", "playground", "--n-epochs"],
    "predict --specimen digits --n-layer 13": ["n_layer=13", "from 0 to 12", "choose"],
    "predict --specimen digits --n-layer 1.5": ["n_layer='1.5'", "whole number"],
    "predict --specimen digits --n-layer -1": ["n_layer=-1", "from 0 to 12"],
    "predict --specimen digits --seed 1e3": ["seed='1e3'", "whole number"],
    "predict --specimen digits --learning-rate nan": ["learning_rate=nan", "1e-06 to 10"],
    "predict --specimen digits --learning-rate -1e-3": ["learning_rate=-0.001", "choose"],
    "predict --specimen digits --learning-rate fast": ["learning_rate='fast'"],
    "predict --specimen digits --precision fp64": ["precision='fp64'", "fp32, bf16, fp16"],
    "predict --specimen addition --n-head 7": ["n_head=7", "choose 70"],
    "predict --specimen addition --seq-len 9": ["seq_len=9", "leave it at 8"],
    "predict --specimen addition --checkpointing=maybe": ["checkpointing='maybe'"],
    "predict --specimen addition --text-file x.txt": ["--text-file='x.txt'", "addition"],
    "predict --specimen playground --hidden 4,9": ["width=9", "from 1 to 8"],
    "predict --specimen playground --hidden 1,1,1,1,1,1,1": [f"more than {MAX_DEPTH} layers"],
    "predict --specimen playground --features=": ["features=()", "at least one"],
    "predict --specimen playground --features x,x": ["each once"],
    "predict --specimen text": ["--text-file is missing"],
    "predict --specimen text --text cat": ["text='cat'"],
    f"predict --specimen text --text {'0' * 32}": ["is not kept here", "--text-file"],
    f"predict --specimen text --text {'0' * 32} --text-file x": ["two texts"],
    "run train --specimen playground --threads 0": ["--threads='0'", "from 1 to"],
    "run train --specimen playground --threads two": ["--threads='two'"],
}


def refusal(*words: str) -> str:
    """The one sentence with which a command line is refused."""
    code, out, err = called(*words)
    assert (code, out) == (2, ""), err
    assert err.endswith("\n") and len(err.splitlines()) == 1
    return err


@pytest.mark.parametrize("line", REFUSED)
def test_what_cannot_be_used_is_refused_in_one_sentence(line: str):
    sentence = refusal(*line.split())
    assert [part for part in REFUSED[line] if part not in sentence] == []


def test_a_refusal_is_the_same_from_a_shell():
    """Exit code 2 and one sentence: no usage, no traceback."""
    done = process("run", "train", "--specimen", "digits", "--n-layer", "99")
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr == "n_layer=99 is not a whole number from 0 to 12; choose one from 0 to 12\n"


@settings(max_examples=60)
@given(st.sampled_from(FIELDS), st.text(max_size=20) | st.from_regex(r"-?[0-9.,e]{1,20}"))
def test_any_value_is_used_or_refused_in_one_sentence(field: tuple[str, str], value: str):
    specimen, setting = field
    name = {"text": ["--text", "0" * 32]} if setting != "text" else {}
    words = ["--specimen", specimen, *name.get(specimen, []), cli.flag_of(setting), value]
    code, out, err = called("predict", *words)
    if code == 0:
        told(out)
    else:
        assert (code, out) == (2, "")
        assert len(err.splitlines()) == 1


def test_a_long_value_is_not_repeated_whole():
    sentence = refusal("predict", "--specimen", "digits", "--activation", "x" * 5000)
    assert "activation='xxx" in sentence and len(sentence) < 500


BAD_TEXTS = {
    "binary": (b"\x7fELF\xff\xfe" * 100, "is not UTF-8"),
    "zeros": (b"plain but for\0" * 100, "not a text"),
    "short": (b"too short", "at least 200"),
    "same": (b"a" * 300, "repeats one character"),
    "huge": (b"ab" * MAX_TEXT_BYTES, f"more than {MAX_TEXT_BYTES:,} bytes"),
}


@pytest.mark.parametrize("name", BAD_TEXTS)
def test_a_text_that_cannot_be_learnt_from_is_refused(name: str, tmp_path: Path):
    raw, why = BAD_TEXTS[name]
    path = tmp_path / name
    path.write_bytes(raw)
    sentence = refusal("predict", "--specimen", "text", "--text-file", str(path))
    assert f"--text-file={str(path)!r}" in sentence or len(str(path)) > 78
    assert why in sentence
    assert not (tmp_path / "runs").exists()


def test_a_file_that_is_not_there_is_refused(tmp_path: Path):
    for flag in ("--text-file", "--spec"):
        for path, why in ((tmp_path / "none", "No such file"), (tmp_path, "Is a directory")):
            sentence = refusal("predict", "--specimen", "text", flag, str(path))
            assert sentence.startswith(flag) and why in sentence


def test_a_text_too_short_for_its_context_is_refused(poem: Path):
    words = [*words_for("text", poem), *TINY, "--seq-len", "500"]
    assert "too few for a context of 500" in refusal("run", "train", *words)


def test_a_folder_that_holds_a_run_is_left_alone(tmp_path: Path):
    """Nor is a file taken for a folder."""
    words = ["run", "train", "--specimen", "playground", "--n-epochs", "1", "--out"]
    assert called(*words, str(tmp_path / "run"))[0] == 0
    before = (tmp_path / "run" / "events.jsonl").read_bytes()
    assert "holds a run already" in refusal(*words, str(tmp_path / "run"))
    assert (tmp_path / "run" / "events.jsonl").read_bytes() == before
    assert "cannot be written" in refusal(*words, str(tmp_path / "run" / "events.jsonl"))


# -- a file of settings -------------------------------------------------------------------------


@pytest.mark.parametrize("specimen", SPECIMENS)
def test_a_spec_goes_into_a_file_and_back(specimen: str, poem: Path, tmp_path: Path):
    """What a result holds under `spec` names the same spec; flags go before it."""
    path = tmp_path / "spec.json"
    said = told(called("predict", *words_for(specimen, poem), *TINY_RUNS[specimen])[1])
    path.write_text(json.dumps(said["spec"]))
    assert told(called("predict", "--spec", str(path))[1]) == said
    assert told(called("predict", "--spec", str(path), "--specimen", specimen)[1]) == said
    other = told(called("predict", "--spec", str(path), "--seed", "9")[1])
    assert other["spec"] == said["spec"] | {"seed": 9}


def test_a_file_without_a_specimen_is_the_playgrounds(tmp_path: Path):
    """As everywhere; a flag may name another."""
    path = tmp_path / "spec.json"
    path.write_text('{"batch_size": 7}')
    spec = told(called("predict", "--spec", str(path))[1])["spec"]
    assert (spec["specimen"], spec["batch_size"]) == ("playground", 7)
    spec = told(called("predict", "--spec", str(path), "--specimen", "digits")[1])["spec"]
    assert (spec["specimen"], spec["batch_size"]) == ("digits", 7)


@pytest.mark.parametrize(
    ("raw", "why"),
    [
        (b"", "is not JSON"),
        (b"\xff\xfe\x00", "is not JSON"),
        (b"[" * 50_000, "is not JSON"),
        (b"[1, 2]", "holds no object"),
        (b'{"specimen": "digits", "hidden": [2]}', "setting='hidden' is unknown"),
        (b'{"specimen": "digits", "seed": null}', "seed=None"),
        (b'{"specimen": "digits", "learning_rate": NaN}', "learning_rate=nan"),
        (b'{"specimen": ["digits"]}', "specimen=['digits'] is unknown"),
        (b'{"specimen": "addition"}', "--specimen=digits is not the file's"),
        (b" " * 200_000, "more than 100,000 bytes"),
    ],
)
def test_a_file_that_is_no_spec_is_refused(raw: bytes, why: str, tmp_path: Path):
    path = tmp_path / "spec.json"
    path.write_bytes(raw)
    given = ["--specimen", "digits"] if b"addition" in raw else []
    assert why in refusal("predict", "--spec", str(path), *given)
