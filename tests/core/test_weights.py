"""Weights of models that answer: the numbers are the file's, and the model is the published one."""

import dataclasses
import os
import shutil
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import gguf
import numpy as np
import pytest
import torch
import torch.nn.functional as F
from safetensors.torch import load_file, save_file

from core import pretrained, specimens
from core.engine import models, weights
from core.engine.llama import llama_of
from core.engine.models import Transformer
from core.engine.train import started
from core.pretrained import PRETRAINED, Pretrained, Unavailable
from core.shapes import TransformerShape
from core.specs import AdditionSpec, OwnTextSpec, TransformerSpec
from core.texts import keep
from core.tokenizers import tokenizer_of
from core.trace import Recorder
from tests.core.gguf_files import SHAPE, tiny, write_tiny

ATTEMPT = "20300101-120000-abcdef"
TEXT = (
    "Photosynthesis is the process by which green plants turn sunlight into food. Light is taken "
    "in by chlorophyll in the leaves, and its energy splits water into hydrogen and oxygen. "
    "The oxygen is released into the air, while the hydrogen is combined with carbon dioxide to "
    "make sugar. The plant uses this sugar to grow, and stores what is left as starch. Almost all "
    "life on Earth depends on this process, either directly or through the animals that eat plants."
)


@pytest.fixture
def model(
    tmp_path_factory: pytest.TempPathFactory, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Pretrained:
    """A small published model in the models folder."""
    written = tmp_path_factory.getbasetemp() / "tiny.gguf"
    if not written.exists():
        write_tiny(written)
    known = tiny(written)
    (tmp_path / "models").mkdir()
    shutil.copy(written, tmp_path / "models" / known.file_name)
    monkeypatch.setenv("BOTHWAYS_MODELS", str(tmp_path / "models"))
    monkeypatch.setitem(PRETRAINED, "tiny", known)
    return known


def cache_of(model: Pretrained) -> Path:
    (found,) = pretrained.models_folder().glob("*.safetensors")
    return found


# -- the published model ------------------------------------------------------------------------


@pytest.fixture(scope="module")
def smollm2() -> tuple[TransformerShape, weights.Weights]:
    """Its weights as the file's blocks give them: nothing kept from before has a part in it."""
    if pretrained.find("smollm2") is None:
        pytest.skip("smollm2 is not installed: make models")
    shape = pretrained.shape_of("smollm2")
    return shape, weights.from_blocks(weights.blocks_of("smollm2"), shape)


def ours_of(shape: TransformerShape, found: weights.Weights) -> Transformer:
    model = Transformer(shape)
    model.load_state_dict(found, assign=True)
    return model


@torch.inference_mode()
def perplexity(logits_TV: torch.Tensor, tokens_T: torch.Tensor) -> float:
    return F.cross_entropy(logits_TV[:-1], tokens_T[1:]).exp().item()


def test_the_published_model_is_transformers_llama(
    smollm2: tuple[TransformerShape, weights.Weights],
):
    """The same logits and the same perplexity on a text, within rounding; and without the file's
    order of rows undone, neither, though such a model still writes English.
    """
    shape, found = smollm2
    tokens_T = torch.tensor(tokenizer_of("smollm2").encode(TEXT))
    ours = ours_of(shape, found)
    with torch.inference_mode():
        logits_TV = ours(tokens_T[None])[0]
        expected_TV = llama_of(shape, found)(tokens_T[None]).logits[0]
        as_filed = weights.blocks_of("smollm2")
        for i, block in enumerate(ours.blocks):
            qkv_ND = weights.dense(as_filed[f"blocks.{i}.attn.qkv.weight"])
            block.attn.qkv.weight = torch.nn.Parameter(qkv_ND)  # type: ignore
        tangled_TV = ours(tokens_T[None])[0]
    told = [perplexity(x, tokens_T) for x in (logits_TV, expected_TV, tangled_TV)]
    assert (logits_TV - expected_TV).abs().max() < 2e-4  # of up to 36; 6e-5 on our machine
    assert told[0] == pytest.approx(told[1], rel=1e-5)
    assert told[0] < 12  # plain words about what it has often read
    assert told[2] > 3 * told[0]


def test_every_number_is_what_the_package_gguf_makes_of_the_file(
    smollm2: tuple[TransformerShape, weights.Weights],
):
    """Bit for bit, of each kind of matrix in the first and the last layer, and of the embedding."""
    shape, found = smollm2
    file = pretrained.gguf_of("smollm2")
    raw = np.memmap(file.path, np.uint8, mode="c")

    def theirs(name: str) -> torch.Tensor:
        stored = file.tensors[f"{name}.weight"]
        rows = raw[stored.offset : stored.offset + stored.n_bytes]
        rows = rows.reshape(*stored.shape[:-1], -1)
        return torch.from_numpy(gguf.dequantize(rows, gguf.GGMLQuantizationType[stored.type]))

    assert torch.equal(found["norm.weight"], theirs("output_norm"))
    assert torch.equal(found["embed.tokens.weight"], theirs("token_embd"))
    for i in (0, shape.n_layer - 1):
        ours, blk = f"blocks.{i}", f"blk.{i}"
        for name, other in (
            ("attn.out", "attn_output"),
            ("mlp.gate", "ffn_gate"),
            ("mlp.up", "ffn_up"),
            ("mlp.down", "ffn_down"),
            ("attn.norm", "attn_norm"),
            ("mlp.norm", "ffn_norm"),
        ):
            assert torch.equal(found[f"{ours}.{name}.weight"], theirs(f"{blk}.{other}"))
        q, k, v = found[f"{ours}.attn.qkv.weight"].split([shape.d_q, shape.d_kv, shape.d_kv])
        assert torch.equal(v, theirs(f"{blk}.attn_v"))
        for rows, other, n_head in ((q, "q", shape.n_head), (k, "k", shape.n_kv_head)):
            pairs = theirs(f"{blk}.attn_{other}").view(n_head, shape.d_head // 2, 2, -1)
            assert torch.equal(rows, pairs.transpose(1, 2).reshape(rows.shape))


def test_the_published_model_has_all_its_parameters(
    smollm2: tuple[TransformerShape, weights.Weights],
):
    shape, found = smollm2
    assert sum(tensor.numel() for tensor in found.values()) == shape.n_params == 134_515_008


# -- any published model ------------------------------------------------------------------------


def test_weights_have_the_names_order_and_sizes_of_the_model(model: Pretrained):
    shape, found = weights.load("tiny")
    assert shape == SHAPE
    expected = Transformer(shape).state_dict()
    assert [(n, t.shape, t.dtype) for n, t in found.items()] == [
        (n, t.shape, t.dtype) for n, t in expected.items()
    ]


def test_a_head_of_its_own_is_loaded(
    tmp_path: Path, model: Pretrained, monkeypatch: pytest.MonkeyPatch
):
    shape = dataclasses.replace(SHAPE, tied=False)
    untied = tiny(write_tiny(tmp_path / "untied.gguf", shape))
    shutil.copy(tmp_path / "untied.gguf", tmp_path / "models" / untied.file_name)
    monkeypatch.setitem(PRETRAINED, "tiny", untied)
    found_shape, found = weights.load("tiny")
    tokens_BT = torch.arange(12).view(1, 12)
    with torch.inference_mode():
        ours, theirs = ours_of(found_shape, found), llama_of(shape, found)
        assert not torch.equal(found["head.weight"], found["embed.tokens.weight"])
        torch.testing.assert_close(ours(tokens_BT), theirs(tokens_BT).logits)


def test_the_model_has_the_epsilon_that_files_are_held_to():
    assert pretrained.NORM_EPSILON == models.NORM_EPSILON


def test_what_is_kept_is_what_was_made(model: Pretrained):
    made = weights.from_blocks(weights.blocks_of("tiny"), SHAPE)
    for _ in range(2):
        _, found = weights.load("tiny")
        assert weights.sha256(found.items()) == weights.sha256(made.items())
        assert cache_of(model).stat().st_size > 4 * SHAPE.n_params


def test_a_second_load_makes_nothing_anew(model: Pretrained):
    weights.load("tiny")
    before = cache_of(model).stat().st_mtime_ns
    weights.load("tiny")
    assert cache_of(model).stat().st_mtime_ns == before


@pytest.mark.parametrize("damage", ["cut off", "empty", "other names", "other sizes", "a folder"])
def test_a_broken_cache_is_made_anew(damage: str, model: Pretrained):
    _, whole = weights.load("tiny")
    expected, cache = weights.sha256(whole.items()), cache_of(model)
    del whole  # it is mapped from the file that is broken next
    match damage:
        case "cut off":
            os.truncate(cache, cache.stat().st_size - 1)
        case "empty":
            cache.write_bytes(b"")
        case "other names":
            save_file({"a": torch.zeros(2)}, cache)
        case "other sizes":
            state = load_file(cache)
            save_file({n: t[..., :-1].contiguous() for n, t in state.items()}, cache)
        case "a folder":
            cache.unlink()
            cache.mkdir()
    for _ in range(2):
        _, found = weights.load("tiny")
        assert weights.sha256(found.items()) == expected


def test_a_models_folder_that_takes_nothing_is_done_without(
    model: Pretrained, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    """Here it is a file's name; a full disk and a folder of somebody else's end the same way."""
    _, expected = weights.load("tiny")
    site = tmp_path / "site"
    (site / "bothways_tiny-1.0.dist-info").mkdir(parents=True)
    (site / "bothways_tiny-1.0.dist-info" / "METADATA").write_text(
        "Metadata-Version: 2.1\nName: bothways-tiny\nVersion: 1.0\n"
    )
    (site / "bothways_tiny-1.0.dist-info" / "RECORD").write_text("tiny.gguf,,\n")
    shutil.copy(pretrained.located("tiny"), site / "tiny.gguf")
    monkeypatch.syspath_prepend(site)
    (tmp_path / "file").touch()
    monkeypatch.setenv("BOTHWAYS_MODELS", str(tmp_path / "file" / "models"))
    _, found = weights.load("tiny")
    assert weights.sha256(found.items()) == weights.sha256(expected.items())


def test_changed_bytes_are_not_loaded(model: Pretrained):
    path = pretrained.located("tiny")
    raw = bytearray(path.read_bytes())
    raw[-1] ^= 1
    path.write_bytes(raw)
    with pytest.raises(Unavailable, match="sha256"):
        weights.load("tiny")


def test_whoever_writes_into_a_weight_changes_only_his_own(model: Pretrained):
    weights.load("tiny")
    _, found = weights.load("tiny")
    before = weights.sha256(found.items())
    found["norm.weight"].mul_(2)
    _, again = weights.load("tiny")
    assert weights.sha256(again.items()) == before != weights.sha256(found.items())


def test_those_that_load_at_once_all_have_the_weights(model: Pretrained):
    """Each makes the file and puts it in place; none sees half of one."""
    made = weights.from_blocks(weights.blocks_of("tiny"), SHAPE)
    with ThreadPoolExecutor(8) as pool:
        found = [f for _, f in pool.map(weights.load, ["tiny"] * 24)]
    assert {weights.sha256(f.items()) for f in found} == {weights.sha256(made.items())}
    assert [p.name for p in pretrained.models_folder().glob(".*")] == []


def test_blocks_are_the_bytes_of_the_file(model: Pretrained):
    file = pretrained.gguf_of("tiny")
    raw = np.fromfile(file.path, np.uint8)
    blocks = weights.blocks_of("tiny")
    down, stored = blocks["blocks.1.mlp.down.weight"], file.tensors["blk.1.ffn_down.weight"]
    assert (down.type, down.shape) == ("Q4_1", (SHAPE.d_model, SHAPE.d_ff))
    assert down.raw.numpy().tobytes() == raw[stored.offset :][: stored.n_bytes].tobytes()
    qkv = blocks["blocks.0.attn.qkv.weight"]
    parts = [file.tensors[f"blk.0.attn_{part}.weight"] for part in "qkv"]
    assert qkv.shape == (SHAPE.d_q + 2 * SHAPE.d_kv, SHAPE.d_model)
    assert qkv.raw.numpy().tobytes() == b"".join(
        raw[stored.offset :][: stored.n_bytes].tobytes() for stored in parts
    )
    assert list(blocks) == list(Transformer(SHAPE).state_dict())
    assert blocks["embed.tokens.weight"].type == "Q8_0"


def test_a_row_of_the_model_is_that_row_of_the_file(model: Pretrained):
    """Rows may be put in order before or after they are dequantised."""
    _, found = weights.load("tiny")
    blocks, rows = weights.blocks_of("tiny"), weights.rows_in_file(SHAPE)
    qkv = blocks["blocks.0.attn.qkv.weight"]
    ordered = dataclasses.replace(qkv, raw=qkv.raw[rows])
    assert torch.equal(weights.dense(ordered), found["blocks.0.attn.qkv.weight"])
    assert sorted(rows.tolist()) == list(range(len(rows)))


# -- runs ---------------------------------------------------------------------------------------


@pytest.fixture
def runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("BOTHWAYS_RUNS", str(tmp_path / "runs"))
    return tmp_path / "runs"


def begun(spec: TransformerSpec, runs: Path) -> tuple[str, Path, Transformer]:
    """A run folder that says what it is, and a model of its spec."""
    folder = runs / spec.spec_id / ATTEMPT
    recorder = Recorder(folder)
    recorder.write([started(spec, ATTEMPT)])
    recorder.close()
    shape = specimens.shape_of(spec)
    assert isinstance(shape, TransformerShape)
    model = Transformer(shape, torch.Generator().manual_seed(3))
    return f"{spec.spec_id}/{ATTEMPT}", folder, model


@pytest.mark.parametrize("architecture", ["gpt", "llama"])
def test_a_run_gives_back_the_weights_that_it_kept(architecture: str, runs: Path):
    name, folder, model = begun(AdditionSpec(architecture=architecture, d_model=32), runs)
    assert weights.save_run(folder, model) == folder / "weights.safetensors"
    shape, found = weights.load(name)
    assert shape == model.shape
    assert weights.sha256(found.items()) == weights.sha256(model.state_dict().items())
    assert sorted(p.name for p in folder.iterdir()) == [
        "arrays.bin", "events.jsonl", "weights.safetensors",
    ]  # fmt: skip


def test_what_a_run_keeps_is_a_safetensors_file(runs: Path):
    _, folder, model = begun(AdditionSpec(), runs)
    found = load_file(weights.save_run(folder, model))
    assert {n: torch.equal(t, found[n]) for n, t in model.state_dict().items()} == dict.fromkeys(
        found, True
    )


def test_a_model_of_a_text_answers_with_its_letters(runs: Path):
    text_id = keep("All happy families are alike. " * 20, specimens.texts_folder())
    name, folder, model = begun(OwnTextSpec(text=text_id, d_model=16, n_head=2), runs)
    weights.save_run(folder, model)
    shape, _ = weights.load(name)
    assert tokenizer_of(name).vocab_size == shape.vocab_size
    assert tokenizer_of(name).decode(tokenizer_of(name).encode("happy")) == "happy"


def test_saving_again_replaces(runs: Path):
    name, folder, model = begun(AdditionSpec(), runs)
    weights.save_run(folder, model)
    with torch.no_grad():
        model.embed.tokens.weight.mul_(2)
    weights.save_run(folder, model)
    assert torch.equal(weights.load(name)[1]["embed.tokens.weight"], model.embed.tokens.weight)


def test_a_save_that_fails_leaves_what_was_there(runs: Path):
    name, folder, model = begun(AdditionSpec(), runs)
    weights.save_run(folder, model)
    before = weights.sha256(weights.load(name)[1].items())
    shutil.move(folder, folder.with_name("moved"))
    with pytest.raises(OSError, match="No such file"):
        weights.save_run(folder, model)
    shutil.move(folder.with_name("moved"), folder)
    assert weights.sha256(weights.load(name)[1].items()) == before


def test_a_run_without_weights_is_refused(runs: Path):
    name, _, _ = begun(AdditionSpec(), runs)
    with pytest.raises(Unavailable, match="kept no weights; train it again"):
        weights.load(name)


@pytest.mark.parametrize("raw", [b"", b"\xff" * 100, b"\x02\0\0\0\0\0\0\0{}"])
def test_weights_of_a_run_that_cannot_be_read_are_refused(raw: bytes, runs: Path):
    name, folder, _ = begun(AdditionSpec(), runs)
    (folder / "weights.safetensors").write_bytes(raw)
    with pytest.raises(Unavailable, match=r"cannot be read|another model"):
        weights.load(name)


def test_weights_of_another_model_are_refused(runs: Path):
    name, folder, _ = begun(AdditionSpec(), runs)
    weights.save_run(folder, Transformer(dataclasses.replace(SHAPE, n_layer=1)))
    with pytest.raises(Unavailable, match="another model"):
        weights.load(name)


# -- the hash -----------------------------------------------------------------------------------


def test_the_hash_is_of_names_bytes_and_order():
    a, b = ("a", torch.arange(6.0)), ("b", torch.arange(6.0).view(2, 3).bfloat16())
    told = [weights.sha256(x) for x in ([a, b], [b, a], [a], [("c", a[1]), b], [])]
    assert len(set(told)) == 5
    turned = ("b", b[1].t().contiguous().t())
    assert weights.sha256([a, turned]) == told[0]  # however it lies in memory
